//! The outbox: what waits for the collector, and the dead letters.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::block::{BlockError, BlockWriter, OpenPage};
use super::store::{Ledger, gap_record, micros, timestamp, write_transaction};
use super::types::{
    DeadLetter, Gap, GapReason, OutboxPosition, OutboxRecord, RecordKind, TraceContext,
};
use super::{LedgerError, letters};
use crate::metrics::audit::{Delta, Total};

/// Gives up to half a megabyte of free pages back: with what points to the pages that move, as much as the log beside the file holds
/// before it is written back.
const SHRINK: &str = "PRAGMA incremental_vacuum(128)";

/// How often in a row.
const SHRINK_STEPS: usize = 16;

/// A page of the outbox that does not unpack.
struct BadPage {
    page: i64,
    arrived_at: Timestamp,
    error: BlockError,
}

// === impl Ledger ===

impl Ledger {
    /// The oldest records, at most `max_records` and `max_bytes` of JSON, but at least one.
    pub(super) fn batch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        loop {
            match self.read_batch(max_records, max_bytes)? {
                Ok(records) => return Ok(records),
                Err(bad) => self.give_up(&bad)?,
            }
        }
    }

    fn read_batch(
        &mut self,
        max_records: usize,
        max_bytes: usize,
    ) -> rusqlite::Result<Result<Vec<OutboxRecord>, BadPage>> {
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut pages = self.connection.prepare_cached(
            "SELECT page, arrived, acknowledged, trace, block FROM outbox ORDER BY page",
        )?;
        let mut pages = pages.query([])?;
        while let Some(row) = pages.next()? {
            let page: i64 = row.get(0)?;
            let arrived_at = timestamp(row.get(1)?);
            let acknowledged: u32 = row.get(2)?;
            let trace = row
                .get::<_, Option<Vec<u8>>>(3)?
                .and_then(|trace| trace_context(&trace));
            let open = match self.open_page.take().filter(|open| open.page == page) {
                Some(open) => Ok(open),
                None => OpenPage::new(
                    page,
                    row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?,
                ),
            };
            let open = match open {
                Ok(open) => self.open_page.insert(open),
                // What is before it goes first.
                Err(_) if !records.is_empty() => return Ok(Ok(records)),
                Err(error) => {
                    return Ok(Err(BadPage {
                        page,
                        arrived_at,
                        error,
                    }));
                }
            };
            for (index, record) in (0u32..).zip(open.records()) {
                let (kind, raw) = match record {
                    Ok(_) if index < acknowledged => continue,
                    Ok(record) => record,
                    Err(_) if !records.is_empty() => return Ok(Ok(records)),
                    Err(error) => {
                        return Ok(Err(BadPage {
                            page,
                            arrived_at,
                            error,
                        }));
                    }
                };
                if !records.is_empty()
                    && (records.len() >= max_records || bytes + raw.len() > max_bytes)
                {
                    return Ok(Ok(records));
                }
                bytes += raw.len();
                let raw = std::str::from_utf8(raw)
                    .map_or_else(|_| String::from_utf8_lossy(raw).into_owned(), str::to_owned);
                records.push(OutboxRecord {
                    position: OutboxPosition { page, index },
                    kind,
                    arrived_at,
                    trace,
                    raw,
                });
            }
            if records.len() >= max_records {
                break;
            }
        }
        if records.is_empty() {
            self.open_page = None;
        }
        Ok(Ok(records))
    }

    /// The records of a damaged page are lost, and would keep all others from leaving: a gap takes their place.
    fn give_up(&mut self, bad: &BadPage) -> rusqlite::Result<()> {
        self.open_page = None;
        let transaction = self.connection.unchecked_transaction()?;
        let lost: i64 = transaction
            .prepare_cached("DELETE FROM outbox WHERE page = ?1 RETURNING records - acknowledged")?
            .query_row([bad.page], |row| row.get(0))?;
        let gap = Gap {
            reason: GapReason::DamagedPage,
            from: None,
            to: None,
            message: format!(
                "{lost} log records that arrived at {} are lost, since the state file is damaged: {}",
                bad.arrived_at, bad.error
            ),
        };
        let mut block = BlockWriter::default();
        block.push(RecordKind::Gap, &gap_record(&gap, Timestamp::now()));
        // At the end: whoever holds a position inside the lost page must not take the gap for one of its records.
        transaction
            .prepare_cached("INSERT INTO outbox (arrived, records, block) VALUES (?1, 1, ?2)")?
            .execute(params![micros(Timestamp::now()), block.finish()])?;
        transaction.execute(
            "INSERT INTO totals (name, value) VALUES (?1, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1",
            [Total::Gaps.as_str()],
        )?;
        transaction.commit()?;
        tracing::error!(
            reason = gap.reason.as_str(),
            "gap in the log records: {}; their events are counted all the same",
            gap.message
        );
        self.metrics.state.commits.inc();
        self.metrics.audit.publish(Delta {
            totals: vec![(Total::Gaps, 1)],
            ..Delta::default()
        });
        self.backlog_changed(1 - lost);
        Ok(())
    }

    /// Everything through `through` leaves the outbox, and `dead` become dead letters.
    pub(super) fn acknowledge(
        &mut self,
        through: OutboxPosition,
        dead: &[DeadLetter],
    ) -> Result<(), LedgerError> {
        match self.write_acknowledged(through, dead) {
            Ok(left) => {
                // From here on nothing may fail: it would be done, and counted, again.
                self.metrics.state.commits.inc();
                self.backlog_changed(-left);
                self.dead_letters_added(dead.len());
                if let Err(error) = self.shrink() {
                    tracing::debug!(%error, "free pages of the state file are given back later");
                }
                Ok(())
            }
            Err(error) => {
                self.metrics.state.commit_failures.inc();
                Err(error.into())
            }
        }
    }

    /// Returns how many records left.
    fn write_acknowledged(
        &self,
        through: OutboxPosition,
        dead: &[DeadLetter],
    ) -> rusqlite::Result<i64> {
        let transaction = write_transaction(&self.connection)?;
        // The sum visits only the pages that leave, never the whole outbox.
        let left: i64 = transaction
            .prepare_cached(
                "SELECT coalesce(sum(CASE WHEN page < ?1 THEN records - acknowledged ELSE max(min(?2, records) - acknowledged, 0) END), 0)
                 FROM outbox WHERE page <= ?1",
            )?
            .query_row(params![through.page, through.index + 1], |row| row.get(0))?;
        // A page that is done with goes at once: to write its position first would take room, which a full disk has not.
        transaction
            .prepare_cached("DELETE FROM outbox WHERE page < ?1 OR (page = ?1 AND records <= ?2)")?
            .execute(params![through.page, through.index + 1])?;
        transaction
            .prepare_cached(
                "UPDATE outbox SET acknowledged = max(acknowledged, ?2) WHERE page = ?1",
            )?
            .execute(params![through.page, through.index + 1])?;
        letters::write(&transaction, dead)?;
        transaction.commit()?;
        Ok(left)
    }

    /// Counts what waits, once at start: afterwards the number follows the commits, since a long outbox is slow to count.
    pub(super) fn count_backlog(&self) -> rusqlite::Result<()> {
        let records: i64 = self.connection.query_row(
            "SELECT coalesce(sum(records - acknowledged), 0) FROM outbox",
            [],
            |row| row.get(0),
        )?;
        self.backlog_changed(records);
        Ok(())
    }

    /// The number of waiting records changed by `change`, which is on disk.
    pub(super) fn backlog_changed(&self, change: i64) {
        // The number follows whatever happens to the rest: one that stays wrong could hold the tail for ever.
        let mut backlog = self
            .backlog
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        backlog.records = backlog.records.saturating_add_signed(change);
        drop(backlog);
        if let Err(error) = self.look() {
            tracing::warn!(%error, "cannot read the size of the state file; read again with the next commit");
        }
    }

    /// Reads when the oldest waiting record arrived, and how large the file is; cuts the log beside it where that is too long.
    pub(super) fn look(&self) -> rusqlite::Result<()> {
        let blocked = self.fill.look_at_log() && self.cut_log();
        let (pages, free, size) = self.pages()?;
        let used = (pages - free) * size;
        self.metrics.state.size_bytes.set(used);
        self.fill.look(
            (pages * size).cast_unsigned(),
            used.cast_unsigned(),
            blocked,
        );
        let oldest: Option<i64> = self
            .connection
            .prepare_cached("SELECT arrived FROM outbox ORDER BY page LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        let mut backlog = self
            .backlog
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        backlog.oldest = oldest.map(timestamp);
        self.metrics.otlp.backlog(backlog.records, backlog.oldest);
        Ok(())
    }

    /// How many pages the file has, how many of them hold nothing, and the bytes of one.
    fn pages(&self) -> rusqlite::Result<(i64, i64, i64)> {
        let pragma = |name| {
            self.connection
                .pragma_query_value(None, name, |row| row.get(0))
        };
        Ok((
            pragma("page_count")?,
            pragma("freelist_count")?,
            pragma("page_size")?,
        ))
    }

    /// Writes the write-ahead log back and cuts it, and looks how long it is then. Returns whether somebody who still reads what is in it
    /// is in the way.
    fn cut_log(&self) -> bool {
        let cut = || {
            // Not now is soon enough: nobody waits for that reader.
            self.connection.busy_timeout(std::time::Duration::ZERO)?;
            let blocked = self
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            self.connection.busy_timeout(super::BUSY)?;
            blocked
        };
        let blocked = cut().unwrap_or_else(|error: rusqlite::Error| {
            tracing::debug!(%error, "the write-ahead log cannot be written back yet");
            false
        });
        self.fill.look_at_log();
        blocked
    }

    /// Gives free pages back to the file system, beyond those that the next page of entries takes; so many at once that nobody waits for
    /// long.
    pub(super) fn shrink(&self) -> rusqlite::Result<()> {
        let kept = self.fill.page().cast_signed();
        let is_large = || self.pages().map(|(_, free, size)| free * size > kept);
        if !is_large()? {
            return Ok(());
        }
        for _ in 0..SHRINK_STEPS {
            let mut step = self.connection.prepare_cached(SHRINK)?;
            let mut pages = step.query([])?;
            // It gives back a page with each row that is asked for.
            while pages.next()?.is_some() {}
            drop(pages);
            if !is_large()? {
                break;
            }
        }
        // The file itself becomes shorter when the log is written back.
        self.cut_log();
        self.look()
    }
}

fn trace_context(bytes: &[u8]) -> Option<TraceContext> {
    let (trace_id, span_id) = bytes.split_first_chunk::<16>()?;
    Some(TraceContext {
        trace_id: *trace_id,
        span_id: span_id.try_into().ok()?,
    })
}
