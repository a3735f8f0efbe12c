//! A page of the outbox as one compressed block.

use super::types::RecordKind;

/// Packs records, oldest first, each as its kind, its length and its bytes, and compresses them together.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    bytes: Vec<u8>,
    records: u32,
}

/// lz4 makes nothing smaller than this.
const MAX_RATIO: usize = 255;

/// A block that does not unpack: the file is damaged.
#[derive(Debug, thiserror::Error)]
#[error("a page of the outbox is damaged: {0}")]
pub(super) struct BlockError(String);

// === impl BlockWriter ===

impl BlockWriter {
    /// Adds one record.
    pub(super) fn push(&mut self, kind: RecordKind, raw: &str) {
        self.bytes.push(kind as u8);
        // A page is capped far below four gigabytes.
        let length = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes
            .extend_from_slice(&raw.as_bytes()[..length as usize]);
        self.records += 1;
    }

    /// How many records were added.
    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// The block.
    pub(super) fn finish(&self) -> Vec<u8> {
        lz4_flex::compress_prepend_size(&self.bytes)
    }
}

/// A page whose block was unpacked.
#[derive(Debug)]
pub(super) struct OpenPage {
    pub(super) page: i64,
    bytes: Vec<u8>,
}

// === impl OpenPage ===

impl OpenPage {
    pub(super) fn new(page: i64, block: &[u8]) -> Result<Self, BlockError> {
        Ok(Self {
            page,
            bytes: decompress(block)?,
        })
    }

    /// The records, oldest first. An error is the last one.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<(RecordKind, &[u8]), BlockError>> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let record = split(rest);
            rest = record.map_or(&[], |(_, _, rest)| rest);
            Some(
                record
                    .map(|(kind, raw, _)| (kind, raw))
                    .ok_or_else(|| BlockError("a record ends early".to_owned())),
            )
        })
    }
}

/// The first record, and what follows it.
fn split(bytes: &[u8]) -> Option<(RecordKind, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<5>()?;
    let kind = RecordKind::from_code(head[0].into());
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let (raw, rest) = rest.split_at_checked(length)?;
    Some((kind, raw, rest))
}

/// Compresses one text, for what is kept beside the outbox.
pub(super) fn pack(text: &str) -> Vec<u8> {
    lz4_flex::compress_prepend_size(text.as_bytes())
}

/// Undoes [`pack`].
pub(super) fn unpack(block: &[u8]) -> Result<String, BlockError> {
    String::from_utf8(decompress(block)?).map_err(|error| BlockError(error.to_string()))
}

/// The size that a block names is not believed where lz4 could not have made it so small: it would be reserved, and the process ended.
fn decompress(block: &[u8]) -> Result<Vec<u8>, BlockError> {
    let (size, compressed) =
        lz4_flex::block::uncompressed_size(block).map_err(|error| BlockError(error.to_string()))?;
    if size / MAX_RATIO > compressed.len() {
        return Err(BlockError(format!(
            "{} bytes cannot hold {size}",
            compressed.len()
        )));
    }
    let bytes = lz4_flex::block::decompress(compressed, size)
        .map_err(|error| BlockError(error.to_string()))?;
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err(BlockError("it ends early".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_in_order() {
        let mut block = BlockWriter::default();
        let records = [
            (RecordKind::Entry, "{\"a\":1}"),
            (RecordKind::Gap, ""),
            (RecordKind::Entry, "{\n \"ü\": null }"),
        ];
        for (kind, raw) in records {
            block.push(kind, raw);
        }
        assert_eq!(block.records(), 3);
        let page = OpenPage::new(1, &block.finish()).expect("intact");
        let out = page.records().map(|record| record.expect("whole"));
        assert!(out.eq(records.map(|(kind, raw)| (kind, raw.as_bytes()))));
    }

    #[test]
    fn a_damaged_block_is_an_error_and_not_a_panic() {
        let mut block = BlockWriter::default();
        block.push(RecordKind::Entry, &"x".repeat(1000));
        let good = block.finish();
        for cut in 0..good.len() {
            assert!(OpenPage::new(1, &good[..cut]).is_err());
        }
        assert!(OpenPage::new(1, &[0xff; 16]).is_err());
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = OpenPage::new(1, &flipped).map(|page| page.records().count());
        }
        let empty = OpenPage::new(1, &BlockWriter::default().finish()).expect("intact");
        assert_eq!(empty.records().count(), 0);
    }

    #[test]
    fn what_follows_the_last_whole_record_is_an_error() {
        for tail in [&b"\0"[..], b"\0\x05\0\0\0four", b"\0\xff\xff\xff\xff"] {
            let bytes = [b"\0\x03\0\0\0one", tail].concat();
            let page = OpenPage::new(1, &lz4_flex::compress_prepend_size(&bytes)).expect("unpacks");
            let records: Vec<_> = page.records().collect();
            assert!(
                matches!(
                    records.as_slice(),
                    [Ok((RecordKind::Entry, b"one")), Err(_)]
                ),
                "{records:?}"
            );
        }
    }
}
