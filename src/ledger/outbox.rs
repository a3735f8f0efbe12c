//! The outbox: what waits for the collector, and the dead letters.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction, params};

use super::block::OpenPage;
use super::store::{Ledger, micros, timestamp};
use super::types::{DeadLetter, OutboxPosition, OutboxRecord, TraceContext};
use super::{LedgerError, Settings, WAL_BYTES};

// === impl Ledger ===

impl Ledger {
    /// The oldest records, at most `max_records` and `max_bytes` of JSON, but at least one.
    pub(super) fn batch(&mut self, max_records: usize, max_bytes: usize) -> Result<Vec<OutboxRecord>, LedgerError> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut pages = self.connection.prepare_cached("SELECT page, arrived, acknowledged, trace, block FROM outbox ORDER BY page")?;
        let mut pages = pages.query([])?;
        while let Some(row) = pages.next()? {
            let page: i64 = row.get(0)?;
            let arrived_at = timestamp(row.get(1)?);
            let acknowledged: u32 = row.get(2)?;
            let trace = row.get::<_, Option<Vec<u8>>>(3)?.and_then(|trace| trace_context(&trace));
            let open = match self.open_page.take().filter(|open| open.page == page) {
                Some(open) => open,
                None => OpenPage::new(page, row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?)?,
            };
            for (index, record) in (0u32..).zip(self.open_page.insert(open).records()) {
                let (kind, raw) = record?;
                if index < acknowledged {
                    continue;
                }
                if !records.is_empty() && (records.len() >= max_records || bytes + raw.len() > max_bytes) {
                    return Ok(records);
                }
                bytes += raw.len();
                let raw = std::str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw).into_owned(), str::to_owned);
                records.push(OutboxRecord { position: OutboxPosition { page, index }, kind, arrived_at, trace, raw });
            }
            if records.len() >= max_records {
                break;
            }
        }
        if records.is_empty() {
            self.open_page = None;
        }
        Ok(records)
    }

    /// Everything through `through` leaves the outbox, and `dead` become dead letters.
    pub(super) fn acknowledge(&mut self, through: OutboxPosition, dead: &[DeadLetter]) -> Result<(), LedgerError> {
        match self.write_acknowledged(through, dead) {
            Ok(left) => {
                self.metrics.state.commits.inc();
                self.metrics.otlp.records_dead_lettered.inc_by(dead.len() as u64);
                self.refresh_backlog(-left)?;
                Ok(())
            }
            Err(error) => {
                self.metrics.state.commit_failures.inc();
                Err(error.into())
            }
        }
    }

    /// Returns how many records left.
    fn write_acknowledged(&self, through: OutboxPosition, dead: &[DeadLetter]) -> rusqlite::Result<i64> {
        let transaction = self.connection.unchecked_transaction()?;
        // The sum visits only the pages that leave, never the whole outbox.
        let left: i64 = transaction
            .prepare_cached(
                "SELECT coalesce(sum(CASE WHEN page < ?1 THEN records - acknowledged ELSE max(min(?2, records) - acknowledged, 0) END), 0)
                 FROM outbox WHERE page <= ?1",
            )?
            .query_row(params![through.page, through.index + 1], |row| row.get(0))?;
        transaction.prepare_cached("DELETE FROM outbox WHERE page < ?1")?.execute([through.page])?;
        transaction
            .prepare_cached("UPDATE outbox SET acknowledged = max(acknowledged, ?2) WHERE page = ?1")?
            .execute(params![through.page, through.index + 1])?;
        transaction.prepare_cached("DELETE FROM outbox WHERE page = ?1 AND acknowledged >= records")?.execute([through.page])?;
        for letter in dead {
            write_dead_letter(&transaction, letter, &self.settings)?;
        }
        transaction.commit()?;
        Ok(left)
    }

    /// Counts what waits, once at start: afterwards the number follows the commits, since a long outbox is slow to count.
    pub(super) fn count_backlog(&self) -> rusqlite::Result<()> {
        let records: i64 =
            self.connection.query_row("SELECT coalesce(sum(records - acknowledged), 0) FROM outbox", [], |row| row.get(0))?;
        self.refresh_backlog(records)
    }

    /// The number of waiting records changed by `change`; reads when the oldest arrived, and how large the file is.
    pub(super) fn refresh_backlog(&self, change: i64) -> rusqlite::Result<()> {
        let oldest: Option<i64> = self
            .connection
            .prepare_cached("SELECT arrived FROM outbox ORDER BY page LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let mut backlog = self.backlog.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        backlog.records = backlog.records.saturating_add_signed(change);
        backlog.oldest = oldest.map(timestamp);
        self.metrics.otlp.backlog(backlog.records, backlog.oldest);
        drop(backlog);
        self.metrics.state.size_bytes.set(self.size()?);
        Ok(())
    }

    /// Bytes in use: pages of the file that hold something.
    fn size(&self) -> rusqlite::Result<i64> {
        let pages: i64 = self.connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let free: i64 = self.connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        let size: i64 = self.connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        Ok((pages - free) * size)
    }

    /// Whether one more page might not fit below `--state.max-size`.
    pub(super) fn is_full(&self) -> bool {
        let backlog = self.backlog.lock().unwrap_or_else(std::sync::PoisonError::into_inner).records;
        let size = u64::try_from(self.metrics.state.size_bytes.get()).unwrap_or(0);
        // Ids alone do not fill the file for long: they are pruned. Only what waits for the collector holds the tail.
        backlog > 0 && size + headroom(&self.settings) > self.settings.max_size
    }

    /// Gives free pages back to the file system, a few at a time.
    pub(super) fn shrink(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("PRAGMA incremental_vacuum(256)")
    }

    /// The stored dead letters, oldest first.
    pub(super) fn dead_letter_count(&self) -> rusqlite::Result<u64> {
        self.connection
            .query_row("SELECT count(*) FROM dead_letters", [], |row| row.get::<_, i64>(0))
            .optional()
            .map(|count| count.unwrap_or(0).cast_unsigned())
    }
}

/// Space kept free below the limit: the write-ahead log, which grows by a transaction beyond the size at which it is written back, and
/// a page of entries.
fn headroom(settings: &Settings) -> u64 {
    (WAL_BYTES.cast_unsigned() * 4).min(settings.max_size / 2)
}

/// Adds a dead letter; the oldest leave when there are too many.
pub(super) fn write_dead_letter(transaction: &Transaction<'_>, letter: &DeadLetter, settings: &Settings) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO dead_letters (at, arrived, reason, message, kind, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![
            micros(Timestamp::now()),
            micros(letter.arrived_at),
            letter.reason.as_str(),
            letter.message,
            letter.kind as i64,
            letter.raw
        ])?;
    transaction
        .prepare_cached("DELETE FROM dead_letters WHERE id <= (SELECT max(id) FROM dead_letters) - ?1")?
        .execute([i64::from(settings.max_dead_letters)])?;
    Ok(())
}

fn trace_context(bytes: &[u8]) -> Option<TraceContext> {
    let (trace_id, span_id) = bytes.split_first_chunk::<16>()?;
    Some(TraceContext { trace_id: *trace_id, span_id: span_id.try_into().ok()? })
}
