//! The outbox: encoded log records that wait for the collector.
//!
//! A row holds the records of one page as an lz4 block. Rows are sent in ascending order of their places; a row is
//! deleted when all of its records are delivered or rejected, and otherwise remembers how many were. While a range is
//! open, rows above its lowest place wait, so that records leave in order of creation.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::commit::{Ledger, add_totals};
use super::dead_letters::{DeadLetter, DeadReason};
use super::types::{Gap, GapReason, RecordKind};
use super::{LedgerError, Settings, micros, timestamp};
use crate::util;
use crate::util::changes::{Total, TraceContext};

/// lz4 compresses no better than this.
const MAX_RATIO: usize = 255;

/// The form of rows whose records are encoded.
const ENCODED: i64 = 3;

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
    /// When the entry was created. One without a readable time is as old as the one above it, if that is still known.
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
}

/// A page that cannot be read.
struct DamagedPage {
    page: i64,
    arrived_at: Timestamp,
    error: String,
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
    }

    pub(super) fn records(&self) -> u32 {
        self.records
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>, place: i64) -> rusqlite::Result<()> {
        transaction
            .prepare_cached(
                "INSERT INTO outbox (page, arrived, records, block) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![
                place,
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
        skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        self.check_fence()?;
        loop {
            match self.read_batch(skip, max_records, max_bytes)? {
                Ok(records) => return Ok(records),
                Err(damaged) => self.replace_by_gap(&damaged)?,
            }
        }
    }

    fn read_batch(
        &mut self,
        mut skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> rusqlite::Result<Result<Vec<OutboxRecord>, DamagedPage>> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let mut cached = self.open_page.take();
        // Without the blocks, so that those of skipped pages are not read.
        let mut pages = self.connection.prepare_cached(
            "SELECT page, arrived, acknowledged, records FROM outbox WHERE page <= ?1 ORDER BY page",
        )?;
        let mut rows = pages.query([self.held_above.unwrap_or(i64::MAX)])?;
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
                None => match self.open_page(page)? {
                    Ok(open) => open,
                    Err(_) if !records.is_empty() => break,
                    Err(damaged) => return Ok(Err(damaged)),
                },
            };
            for (index, record) in (0..end).zip(&open).skip(first) {
                let full = records.len() >= max_records || bytes + record.len() > max_bytes;
                if full && !records.is_empty() {
                    self.open_page = Some((page, open));
                    return Ok(Ok(records));
                }
                bytes += record.len();
                records.push(OutboxRecord {
                    position: OutboxPosition { page, index },
                    arrived_at,
                    bytes: record.clone(),
                });
            }
        }
        Ok(Ok(records))
    }

    /// Takes out a record that left before its turn: its page is written again.
    fn take_out(
        &self,
        transaction: &Transaction<'_>,
        witness: &OutboxRecord,
    ) -> Result<(), LedgerError> {
        let page = witness.position.page;
        let Some(Ok(mut open)) = self.open_page(page).optional()? else {
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
            .prepare_cached(
                "UPDATE outbox SET records = records - 1, form = ?2, trace = NULL, block = ?3 WHERE page = ?1",
            )?
            .execute(params![page, ENCODED, block])?;
        transaction
            .prepare_cached("DELETE FROM outbox WHERE page = ?1 AND records <= acknowledged")?
            .execute([page])?;
        Ok(())
    }

    /// Decompresses the records of a page; those of an older form are encoded.
    fn open_page(&self, page: i64) -> rusqlite::Result<Result<Vec<Bytes>, DamagedPage>> {
        let mut found = self.connection.prepare_cached(
            "SELECT arrived, records, form, trace, block FROM outbox WHERE page = ?1",
        )?;
        found.query_row([page], |row| {
            let arrived_at = timestamp(row.get(0)?);
            let (count, form): (u32, i64) = (row.get(1)?, row.get(2)?);
            let trace: Option<Vec<u8>> = row.get(3)?;
            let encode = |kind, json: &str| {
                let mut out = Vec::new();
                let record = RawRecord {
                    kind,
                    json,
                    created_at: arrived_at,
                    arrived_at,
                    trace: trace.as_deref().and_then(trace_context),
                };
                self.settings.encoder.encode(&record, &mut out);
                out.into()
            };
            let records = decompress(row.get_ref(4)?.as_blob()?).and_then(|bytes| {
                let records = match form {
                    ENCODED => split(bytes.into()),
                    _ => split_json(&bytes, encode),
                };
                let mut records = records
                    .filter(|records| records.len() >= count as usize)
                    .ok_or("a record ends early")?;
                records.truncate(count as usize);
                Ok(records)
            });
            Ok(records.map_err(|error| DamagedPage {
                page,
                arrived_at,
                error,
            }))
        })
    }

    /// The records of a damaged page are lost; a gap at the end of the outbox takes their place.
    fn replace_by_gap(&mut self, damaged: &DamagedPage) -> Result<(), LedgerError> {
        let transaction = self.begin()?;
        let lost: i64 = transaction
            .prepare_cached("DELETE FROM outbox WHERE page = ?1 RETURNING records - acknowledged")?
            .query_row([damaged.page], |row| row.get(0))?;
        let gap = Gap {
            reason: GapReason::DamagedPage,
            from: None,
            to: None,
            message: format!(
                "{lost} log records that arrived at {} are lost, because the state file is damaged: {}",
                damaged.arrived_at, damaged.error
            ),
        };
        let now = util::now();
        let mut page = PageWriter::new(&self.settings, now, None);
        page.push(RecordKind::Gap, &gap.to_json(now), now);
        page.write(&transaction, end(&transaction)?)?;
        add_totals(&transaction, &[(Total::Gaps, 1)])?;
        transaction.commit()?;
        tracing::error!(
            reason = gap.reason.as_str(),
            "gap in the log records: {}; their events are counted",
            gap.message
        );
        self.update_status(|status| {
            status.commits += 1;
            status.gaps += 1;
            status.backlog = status.backlog.saturating_add_signed(1 - lost);
        });
        Ok(())
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

/// Returns the place after everything in the outbox.
pub(super) fn end(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .query_row("SELECT max(page) FROM outbox", [], |row| {
            row.get::<_, Option<i64>>(0)
        })
        .optional()
        .map(|last| last.flatten().unwrap_or(0) + 1)
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

/// Splits a block of schema 2: kind, length and JSON of each record.
pub(crate) fn split_json(
    mut bytes: &[u8],
    mut each: impl FnMut(RecordKind, &str) -> Bytes,
) -> Option<Vec<Bytes>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_first_chunk::<5>()?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (json, rest) = rest.split_at_checked(length)?;
        let kind = RecordKind::from_code(head[0].into());
        records.push(each(kind, &String::from_utf8_lossy(json)));
        bytes = rest;
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

fn trace_context(bytes: &[u8]) -> Option<TraceContext> {
    let (trace_id, span_id) = bytes.split_first_chunk::<16>()?;
    Some(TraceContext {
        trace_id: *trace_id,
        span_id: span_id.try_into().ok()?,
    })
}
