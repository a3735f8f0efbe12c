//! The outbox: log records that wait for the collector.
//!
//! A row holds the records of one page: an lz4 frame, whose checksum finds damage that SQLite does not notice, of lines of JSON, one a record. Rows
//! are sent in the order of their oldest creation time; a row is deleted when all of its records are delivered or rejected, and otherwise remembers
//! how many were. While older entries are still to be read, records wait, for at most ten minutes or until the file is full, so that they leave in
//! order of creation.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read as _, Write as _};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::types::{DeadReason, RecordKind};
use super::{LedgerError, micros, schema, timestamp};

/// Records wait this long for older ones that are still to be read.
pub(super) const MAX_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// What is in front of the text of an entry in a line: as it is, or as a JSON string if it has line breaks.
const ENTRY: &str = ",\"entry\":";
const TEXT: &str = ",\"text\":";

/// What a line begins with.
const BEGIN: &str = "{\"record\":";

/// A record as outbox and dead letters hold it: a line of JSON, with the entry at its end so that it is neither escaped nor parsed. A member
/// that a line lacks has its default, and one that is not known is skipped, so that a version reads the lines of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stored<'a> {
    /// Its number among the records of the file: 1, 2, 3 and so on. It has none until it is taken, or without a collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// What it stands for.
    pub kind: RecordKind,
    /// When the entry was created, but not later than it arrived, which is the order of delivery; if it has no readable time, that of the entry
    /// before it.
    pub created: Timestamp,
    /// When its page arrived.
    pub arrived: Timestamp,
    /// The poll that fetched it, as in `traceparent`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Cow<'a, str>>,
    /// The keyed hash of the actor, if it is asked for.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Cow<'a, str>>,
    /// The entry as the API wrote it, without what is redacted, or the JSON of a gap.
    #[serde(skip)]
    pub entry: Cow<'a, str>,
}

/// The position of a record in the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboxPosition {
    /// The place of its page.
    pub(crate) page: i64,
    /// Its index within the page.
    pub(crate) index: u32,
}

/// A record that waits for the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Its position.
    pub(crate) position: OutboxPosition,
    /// When its page arrived.
    pub(crate) arrived_at: Timestamp,
    /// The record; see [`Stored`].
    pub line: Bytes,
}

/// The records of a request, and what became of them.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The oldest ones, in the order of [`LedgerHandle::outbox_batch`](super::LedgerHandle::outbox_batch), or a witness.
    pub(crate) records: Vec<OutboxRecord>,
    /// The record was sent out of order.
    pub(crate) is_witness: bool,
    /// Why they were rejected for good, and what the collector said; `None` if they were delivered.
    pub(crate) rejected: Option<(DeadReason, String)>,
}

/// What is kept in memory of the outbox.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// When a wait for older entries began that has taken too long, or that a full file has ended. Otherwise it would be full again at once.
    released: Option<Timestamp>,
    /// The page that was read last: a request may end within it.
    open_page: Option<(i64, Vec<Bytes>)>,
}

/// Returns the time up to which the records of all entries are delivered: that up to which all entries are in the file, or before the oldest
/// record that waits was created.
pub(super) fn delivered_through(
    transaction: &Transaction<'_>,
    complete_through: Option<Timestamp>,
) -> rusqlite::Result<Option<Timestamp>> {
    let oldest: Option<i64> = transaction
        .prepare_cached("SELECT min(oldest) FROM outbox")?
        .query_row([], |row| row.get(0))?;
    let before = oldest.map(|oldest| timestamp(oldest - 1));
    Ok(complete_through.map(|through| before.map_or(through, |before| before.min(through))))
}

// === impl Stored ===

impl<'a> Stored<'a> {
    /// Reads a line. One that cannot be read is taken for an entry, so that it is delivered as it is.
    pub fn read(line: &'a [u8]) -> Self {
        let read = str::from_utf8(line).ok().and_then(Self::parse);
        read.unwrap_or_else(|| Self {
            entry: String::from_utf8_lossy(line),
            ..Self::default()
        })
    }

    fn parse(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix(BEGIN)?.strip_suffix('}')?;
        let (record, entry) = match line.split_once(ENTRY) {
            Some((record, entry)) => (record, Cow::Borrowed(entry)),
            None => {
                let (record, text) = line.split_once(TEXT)?;
                (record, Cow::Owned(serde_json::from_str(text).ok()?))
            }
        };
        let record = serde_json::from_str(record).ok()?;
        Some(Self { entry, ..record })
    }

    /// Returns the line, without a line break.
    pub fn line(&self) -> String {
        let record = serde_json::to_string(self).expect("texts and times are JSON");
        match self.entry.contains('\n') {
            false => [BEGIN, &record, ENTRY, &self.entry, "}"].concat(),
            true => {
                let text = serde_json::to_string(&self.entry).expect("a text is JSON");
                [BEGIN, &record, TEXT, &text, "}"].concat()
            }
        }
    }
}

// === impl Outbox ===

impl Outbox {
    /// Reads the oldest records that may be sent, without the first `skip`. Older entries are still to be read since `held_since`; `None` if none
    /// are. Unless it `is_urgent`, records wait for them.
    pub(super) fn batch(
        &mut self,
        connection: &Connection,
        held_since: Option<Timestamp>,
        is_urgent: bool,
        mut skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        let is_over = |since: &_| self.released == Some(*since) || is_urgent;
        self.released = held_since.filter(is_over);
        if held_since.is_some() && self.released.is_none() {
            return Ok(Vec::new());
        }
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut cached = self.open_page.take();
        // Without the blocks, so that those of skipped pages are not read.
        let mut pages = connection.prepare_cached(
            "SELECT page, arrived, acknowledged, records FROM outbox
             ORDER BY oldest, newest, page",
        )?;
        let mut rows = pages.query([])?;
        while let Some(row) = rows.next()? {
            let (page, arrived_at): (i64, _) = (row.get(0)?, timestamp(row.get(1)?));
            let (acknowledged, end): (u32, u32) = (row.get(2)?, row.get(3)?);
            let waiting = end.saturating_sub(acknowledged) as usize;
            if skip >= waiting {
                skip -= waiting;
                continue;
            }
            let first = acknowledged as usize + std::mem::take(&mut skip);
            // A row of which a part was delivered has to be written again.
            let fits = records.len() + waiting <= max_records;
            if !fits && records.len() > max_records / 2 {
                break;
            }
            let open = match cached.take().filter(|(cached, _)| *cached == page) {
                Some((_, open)) => open,
                None => open_page(connection, page)?.unwrap_or_default(),
            };
            for (index, line) in (0..end).zip(&open).skip(first) {
                let full = records.len() >= max_records || bytes + line.len() > max_bytes;
                if full && !records.is_empty() {
                    self.open_page = Some((page, open));
                    return Ok(records);
                }
                bytes += line.len();
                records.push(OutboxRecord {
                    position: OutboxPosition { page, index },
                    arrived_at,
                    line: line.clone(),
                });
            }
        }
        Ok(records)
    }

    /// Removes the records of a request, whatever became of them.
    pub(super) fn remove(
        &mut self,
        transaction: &Transaction<'_>,
        settled: &Settled,
    ) -> Result<(), LedgerError> {
        let records = &settled.records;
        if settled.is_witness {
            // Its page may change.
            self.open_page = None;
            return records
                .iter()
                .try_for_each(|record| take_out(transaction, record));
        }
        for page in records.chunk_by(|one, other| one.position.page == other.position.page) {
            let last = page[page.len() - 1].position;
            let position = params![last.page, last.index + 1];
            transaction
                .prepare_cached("UPDATE outbox SET acknowledged = max(acknowledged, ?2) WHERE page = ?1 AND records > ?2")?
                .execute(position)?;
            // Writing the position first would take room that a full disk does not have.
            transaction
                .prepare_cached("DELETE FROM outbox WHERE page = ?1 AND records <= ?2")?
                .execute(position)?;
        }
        Ok(())
    }
}

/// Returns the number of the last record.
pub(super) fn last_sequence(transaction: &Transaction<'_>) -> rusqlite::Result<i64> {
    let mut last = transaction.prepare_cached("SELECT sequence FROM state")?;
    last.query_row([], |row| row.get(0))
}

/// Gives the next numbers to the records that have none. A transaction that is rolled back takes them back.
pub(super) fn number(
    transaction: &Transaction<'_>,
    records: &mut [Stored<'_>],
) -> rusqlite::Result<()> {
    let mut last = last_sequence(transaction)?;
    for record in records {
        record.sequence.get_or_insert_with(|| {
            last += 1;
            last
        });
    }
    transaction
        .prepare_cached("UPDATE state SET sequence = ?1 WHERE sequence < ?1")?
        .execute([last])?;
    Ok(())
}

/// Numbers and adds records that arrived together. Returns how many.
pub(super) fn push(
    transaction: &Transaction<'_>,
    mut records: Vec<Stored<'_>>,
) -> rusqlite::Result<u64> {
    number(transaction, &mut records)?;
    let (mut count, mut lines) = (0, Vec::new());
    let (mut oldest, mut newest) = (Timestamp::MAX, Timestamp::MIN);
    let mut arrived_at = Timestamp::MIN;
    for record in records {
        (oldest, newest) = (oldest.min(record.created), newest.max(record.created));
        arrived_at = record.arrived;
        lines.extend_from_slice(record.line().as_bytes());
        lines.push(b'\n');
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    transaction
        .prepare_cached(
            "INSERT INTO outbox (oldest, newest, arrived, records, block) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            micros(oldest),
            micros(newest),
            micros(arrived_at),
            count,
            compress(&lines)
        ])?;
    Ok(count)
}

/// Removes a record that was sent out of order: its page is written again.
fn take_out(transaction: &Transaction<'_>, witness: &OutboxRecord) -> Result<(), LedgerError> {
    let OutboxPosition { page, index } = witness.position;
    let mut open = open_page(transaction, page)?.unwrap_or_default();
    // The record is named by its line, so that this can be repeated.
    if open.get(index as usize) != Some(&witness.line) {
        return Ok(());
    }
    open.remove(index as usize);
    let lines: Vec<u8> = open
        .iter()
        .flat_map(|line| [line, &b"\n"[..]].concat())
        .collect();
    let block = compress(&lines);
    transaction
        .prepare_cached("UPDATE outbox SET records = records - 1, block = ?2 WHERE page = ?1")?
        .execute(params![page, block])?;
    transaction
        .prepare_cached("DELETE FROM outbox WHERE page = ?1 AND records <= acknowledged")?
        .execute([page])?;
    Ok(())
}

/// Checks that the records of all pages can be read.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let mut pages = connection.prepare("SELECT page FROM outbox")?;
    let mut rows = pages.query([])?;
    while let Some(row) = rows.next()? {
        open_page(connection, row.get(0)?)?;
    }
    Ok(())
}

/// Decompresses the records of a page; `None` if it is gone.
fn open_page(connection: &Connection, page: i64) -> rusqlite::Result<Option<Vec<Bytes>>> {
    let mut found =
        connection.prepare_cached("SELECT records, block FROM outbox WHERE page = ?1")?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, decompress(row.get_ref(1)?.as_blob()?)));
    let Some((count, bytes)) = found.query_row([page], read).optional()? else {
        return Ok(None);
    };
    let count: u32 = count;
    let damaged =
        |error: &dyn Display| schema::corrupt(format!("log records cannot be read: {error}"));
    let bytes = bytes.map_err(|error| damaged(&error))?;
    let lines = lines(&bytes.into());
    if lines.len() != count as usize {
        return Err(damaged(&format!("there are {} of {count}", lines.len())));
    }
    Ok(Some(lines))
}

/// Returns the lines of a page, without their line breaks.
fn lines(bytes: &Bytes) -> Vec<Bytes> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let lines = lines.map(|line| bytes.slice_ref(line.strip_suffix(b"\n").unwrap_or(line)));
    lines.collect()
}

/// Compresses the records of a page.
pub fn compress(records: &[u8]) -> Vec<u8> {
    // Larger blocks take more memory than they save.
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .content_checksum(true);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    let written = encoder.write_all(records);
    let frame = written.map_err(Into::into).and_then(|()| encoder.finish());
    frame.expect("memory takes whatever is written to it")
}

/// Decompresses the records of a page.
pub fn decompress(frame: &[u8]) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    FrameDecoder::new(frame).read_to_end(&mut records)?;
    Ok(records)
}
