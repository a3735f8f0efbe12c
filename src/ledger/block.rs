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
        self.bytes.push(match kind {
            RecordKind::Entry => 0,
            RecordKind::Gap => 1,
        });
        // A page is capped far below four gigabytes.
        let length = u32::try_from(raw.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&raw.as_bytes()[..length as usize]);
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

/// The records of a block, oldest first.
pub(super) fn read(block: &[u8]) -> Result<Vec<(RecordKind, String)>, BlockError> {
    let bytes = decompress(block)?;
    let mut rest = bytes.as_slice();
    let mut records = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let kind = if head[0] == 1 { RecordKind::Gap } else { RecordKind::Entry };
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let raw = tail.get(..length).ok_or_else(|| BlockError("a record ends early".to_owned()))?;
        records.push((kind, String::from_utf8_lossy(raw).into_owned()));
        rest = &tail[length..];
    }
    if rest.is_empty() { Ok(records) } else { Err(BlockError("bytes are left over".to_owned())) }
}

/// Compresses one text, for what is kept beside the outbox.
pub(super) fn pack(text: &str) -> Vec<u8> {
    lz4_flex::compress_prepend_size(text.as_bytes())
}

/// Undoes [`pack`].
pub(super) fn unpack(block: &[u8]) -> Result<String, BlockError> {
    let bytes = decompress(block)?;
    String::from_utf8(bytes).map_err(|error| BlockError(error.to_string()))
}

/// The size that a block names is not believed where lz4 could not have made it so small: it would be reserved, and the process ended.
fn decompress(block: &[u8]) -> Result<Vec<u8>, BlockError> {
    let (size, compressed) = lz4_flex::block::uncompressed_size(block).map_err(|error| BlockError(error.to_string()))?;
    if size / MAX_RATIO > compressed.len() {
        return Err(BlockError(format!("{} bytes cannot hold {size}", compressed.len())));
    }
    lz4_flex::block::decompress(compressed, size).map_err(|error| BlockError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_out_in_order() {
        let mut block = BlockWriter::default();
        let records = [(RecordKind::Entry, "{\"a\":1}"), (RecordKind::Gap, ""), (RecordKind::Entry, "{\n \"ü\": null }")];
        for (kind, raw) in records {
            block.push(kind, raw);
        }
        assert_eq!(block.records(), 3);
        let out = read(&block.finish()).expect("intact");
        assert!(out.iter().map(|(kind, raw)| (*kind, raw.as_str())).eq(records));
    }

    #[test]
    fn a_damaged_block_is_an_error_and_not_a_panic() {
        let mut block = BlockWriter::default();
        block.push(RecordKind::Entry, &"x".repeat(1000));
        let good = block.finish();
        for cut in 0..good.len() {
            let _ = read(&good[..cut]);
        }
        assert!(read(&[0xff; 16]).is_err());
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&flipped);
        }
        let empty = BlockWriter::default().finish();
        assert!(read(&empty).expect("intact").is_empty());
    }
}
