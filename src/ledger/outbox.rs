//! The outbox: encoded log records that wait for the collector.
//!
//! A row holds the records of one page as an lz4 block. Rows are sent in the order of their oldest creation time; a row is deleted when
//! all of its records are delivered or rejected, and otherwise remembers how many were. The records of an open sweep and of an incomplete
//! history wait, for at most ten minutes or until the file is full, so that records leave in order of creation.

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::changes::TraceContext;
use super::dead_letters::{DeadLetter, DeadReason};
use super::page::Ledger;
use super::types::RecordKind;
use super::{LedgerError, Settings, micros, timestamp};
use crate::util;

/// lz4 compresses no better than this.
const MAX_RATIO: usize = 255;

/// The sweep of records that wait until the history is complete.
pub(super) const HISTORY: i64 = -1;

/// Records wait this long for an open sweep or an incomplete history.
const MAX_HOLD: SignedDuration = SignedDuration::from_mins(10);

/// Turns JSON into log records.
pub trait Encode: Send + Sync {
    /// Appends one record as field 2 of `ScopeLogs`: tag, length, `LogRecord`.
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>);

    /// Returns the JSON as it may be stored in a dead letter: redacted like records.
    fn redact(&self, json: &str) -> String;

    /// Returns the kind of a record and the JSON of its body; the inverse of [`encode`](Self::encode).
    fn decode(&self, record: &[u8]) -> (RecordKind, String);
}

/// What a log record is made of.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// What it stands for.
    pub kind: RecordKind,
    /// The entry as the service wrote it, or the JSON of a gap.
    pub json: &'a str,
    /// When the entry was created; when its page arrived if it has no readable time.
    pub created_at: Timestamp,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The poll that fetched it.
    pub trace: Option<TraceContext>,
}

/// The position of a record in the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboxPosition {
    /// The place of its page.
    pub page: i64,
    /// Its index within the page.
    pub index: u32,
}

/// A record that waits for the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Its position.
    pub position: OutboxPosition,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// Field 2 of `ScopeLogs`: tag, length, `LogRecord`.
    pub bytes: Bytes,
}

/// The records of a request, and what became of them.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// The oldest ones, in the order of [`LedgerHandle::outbox_batch`](super::LedgerHandle::outbox_batch), or a witness.
    pub records: Vec<OutboxRecord>,
    /// It was sent before its turn.
    pub is_witness: bool,
    /// Why they were rejected for good, and what the collector said; `None` if they were delivered.
    pub rejected: Option<(DeadReason, String)>,
}

/// The records of one page.
pub(super) struct PageWriter {
    encoder: Arc<dyn Encode>,
    arrived_at: Timestamp,
    trace: Option<TraceContext>,
    bytes: Vec<u8>,
    records: u32,
    /// The oldest and the newest creation time.
    span: Option<(Timestamp, Timestamp)>,
}

// === impl PageWriter ===

impl PageWriter {
    pub(super) fn new(
        settings: &Settings,
        arrived_at: Timestamp,
        trace: Option<TraceContext>,
    ) -> Self {
        Self {
            encoder: settings.encoder.clone(),
            arrived_at,
            trace,
            bytes: Vec::new(),
            records: 0,
            span: None,
        }
    }

    /// Makes room for the records of so many bytes of JSON, which take a little more than that.
    pub(super) fn reserve(&mut self, json: usize) {
        self.bytes.reserve_exact(json + json / 2);
    }

    pub(super) fn push(&mut self, kind: RecordKind, json: &str, created_at: Timestamp) {
        let record = RawRecord {
            kind,
            json,
            created_at,
            arrived_at: self.arrived_at,
            trace: self.trace,
        };
        self.encoder.encode(&record, &mut self.bytes);
        self.records += 1;
        let (oldest, newest) = self.span.unwrap_or((created_at, created_at));
        self.span = Some((oldest.min(created_at), newest.max(created_at)));
    }

    pub(super) fn records(&self) -> u32 {
        self.records
    }

    /// Writes the row with this number, whose records wait for a sweep or for [`HISTORY`].
    pub(super) fn write(
        &self,
        transaction: &Transaction<'_>,
        page: i64,
        sweep: i64,
    ) -> rusqlite::Result<()> {
        let (oldest, newest) = self.span.unwrap_or((self.arrived_at, self.arrived_at));
        transaction
            .prepare_cached(
                "INSERT INTO outbox (page, oldest, newest, sweep, arrived, records, block) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                page,
                micros(oldest),
                micros(newest),
                sweep,
                micros(self.arrived_at),
                self.records,
                lz4_flex::compress_prepend_size(&self.bytes)
            ])?;
        Ok(())
    }
}

// === impl Ledger ===

impl Ledger {
    /// Reads the oldest records that may be sent, without the first `skip`.
    pub(super) fn batch(
        &mut self,
        mut skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        self.check_fence()?;
        let hold = self.hold;
        // Once the file was full, nothing is held back until sweep and history are complete: it would fill again at once.
        self.is_released |= self.size.is_full(&self.status.borrow());
        let is_released = self.is_released;
        let is_over = |since: Option<Timestamp>| {
            since.is_none_or(|since| is_released || util::now().duration_since(since) >= MAX_HOLD)
        };
        // Of the sweeps, those before this one may be sent.
        let sweep = if is_over(hold.sweep_since) {
            i64::MAX
        } else {
            hold.sweep
        };
        let least = if is_over(hold.history_since) {
            HISTORY
        } else {
            0
        };
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut cached = self.open_page.take();
        // Without the blocks, so that those of skipped pages are not read.
        let mut pages = self.connection.prepare_cached(
            "SELECT page, arrived, acknowledged, records FROM outbox
             WHERE sweep < ?1 AND sweep >= ?2 ORDER BY oldest, newest, page",
        )?;
        let mut rows = pages.query([sweep, least])?;
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
                None => self.open_page(page)?.unwrap_or_default(),
            };
            for (index, record) in (0..end).zip(&open).skip(first) {
                let full = records.len() >= max_records || bytes + record.len() > max_bytes;
                if full && !records.is_empty() {
                    self.open_page = Some((page, open));
                    return Ok(records);
                }
                bytes += record.len();
                records.push(OutboxRecord {
                    position: OutboxPosition { page, index },
                    arrived_at,
                    bytes: record.clone(),
                });
            }
        }
        Ok(records)
    }

    /// Takes out a record that left before its turn: its page is written again.
    fn take_out(
        &self,
        transaction: &Transaction<'_>,
        witness: &OutboxRecord,
    ) -> Result<(), LedgerError> {
        let page = witness.position.page;
        let Some(mut open) = self.open_page(page)? else {
            return Ok(());
        };
        // The record is named by its bytes, so that this can be repeated.
        let index = witness.position.index as usize;
        if open.get(index) != Some(&witness.bytes) {
            return Ok(());
        }
        open.remove(index);
        let block = lz4_flex::compress_prepend_size(&open.concat());
        transaction
            .prepare_cached("UPDATE outbox SET records = records - 1, block = ?2 WHERE page = ?1")?
            .execute(params![page, block])?;
        transaction
            .prepare_cached("DELETE FROM outbox WHERE page = ?1 AND records <= acknowledged")?
            .execute([page])?;
        Ok(())
    }

    /// Decompresses the records of a page; `None` if it is gone.
    fn open_page(&self, page: i64) -> Result<Option<Vec<Bytes>>, LedgerError> {
        let mut found = self
            .connection
            .prepare_cached("SELECT records, block FROM outbox WHERE page = ?1")?;
        let read =
            |row: &rusqlite::Row<'_>| Ok((row.get(0)?, decompress(row.get_ref(1)?.as_blob()?)));
        let Some((count, bytes)) = found.query_row([page], read).optional()? else {
            return Ok(None);
        };
        let count: u32 = count;
        let damaged =
            |error: &str| LedgerError::Damaged(format!("log records cannot be read: {error}"));
        let bytes = bytes.map_err(|error| damaged(&error))?;
        let mut records = split(bytes.into())
            .filter(|records| records.len() >= count as usize)
            .ok_or_else(|| damaged("one ends early"))?;
        records.truncate(count as usize);
        Ok(Some(records))
    }

    /// Removes what was delivered or rejected.
    pub(super) fn settle(&mut self, settled: &Settled) -> Result<(), LedgerError> {
        let result = self.write_settled(settled);
        if settled.is_witness {
            // Its page may have changed.
            self.open_page = None;
        }
        match &result {
            Ok(evicted) => {
                let left = settled.records.len();
                if settled.rejected.is_some() {
                    self.letters_inserted(left, *evicted);
                }
                self.update_status(|status| {
                    status.commits += 1;
                    status.backlog = status.backlog.saturating_sub(left as u64);
                });
                self.tidy();
            }
            Err(_) => self
                .status
                .send_modify(|status| status.commit_failures += 1),
        }
        result.map(drop)
    }

    /// Returns how many dead letters were deleted to make room.
    fn write_settled(&self, settled: &Settled) -> Result<usize, LedgerError> {
        let transaction = self.begin()?;
        let pages = settled
            .records
            .chunk_by(|one, other| one.position.page == other.position.page);
        for page in pages {
            let Some(last) = page.last() else { continue };
            if settled.is_witness {
                self.take_out(&transaction, last)?;
                continue;
            }
            let position = params![last.position.page, last.position.index + 1];
            transaction
                .prepare_cached("UPDATE outbox SET acknowledged = max(acknowledged, ?2) WHERE page = ?1 AND records > ?2")?
                .execute(position)?;
            // To write the position first would take room that a full disk does not have.
            transaction
                .prepare_cached("DELETE FROM outbox WHERE page = ?1 AND records <= ?2")?
                .execute(position)?;
        }
        let mut evicted = 0;
        if let Some((reason, message)) = &settled.rejected {
            let letters: Vec<DeadLetter> = settled
                .records
                .iter()
                .map(|record| {
                    let (kind, raw) = self.settings.encoder.decode(&record.bytes);
                    DeadLetter {
                        reason: *reason,
                        message: message.clone(),
                        kind,
                        arrived_at: record.arrived_at,
                        raw,
                    }
                })
                .collect();
            evicted = self.insert_letters(&transaction, &letters)?;
        }
        transaction.commit()?;
        Ok(evicted)
    }
}

/// Returns a number that no row of the outbox has.
pub(super) fn next_page(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(page), 0) + 1 FROM outbox", [], |row| {
        row.get(0)
    })
}

/// Splits concatenated fields; `None` if one ends early.
pub(crate) fn split(mut bytes: Bytes) -> Option<Vec<Bytes>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let mut content = bytes.get(1..)?;
        let length = prost::decode_length_delimiter(&mut content).ok()?;
        let start = bytes.len() - content.len();
        let end = start
            .checked_add(length)
            .filter(|end| *end <= bytes.len())?;
        records.push(bytes.split_to(end));
    }
    Some(records)
}

/// Decompresses a block. The size that a damaged block names is not allocated if lz4 could not have produced it.
pub(crate) fn decompress(block: &[u8]) -> Result<Vec<u8>, String> {
    let (size, compressed) =
        lz4_flex::block::uncompressed_size(block).map_err(|error| error.to_string())?;
    if size / MAX_RATIO > compressed.len() {
        return Err(format!("{} bytes cannot hold {size}", compressed.len()));
    }
    let bytes = lz4_flex::block::decompress(compressed, size).map_err(|error| error.to_string())?;
    if bytes.len() == size {
        Ok(bytes)
    } else {
        Err("the block ends early".to_owned())
    }
}
