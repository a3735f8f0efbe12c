//! How full the state file is, known without asking the file.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::Connection;

use super::file::with_suffix;
use super::schema::WAL_BYTES;
use super::{BUSY, Status};
use crate::util::{Repeated, lock};

/// A page of entries is at most this part of the limit.
const PAGE_SHARE: u64 = 64;

/// A page of entries need not be smaller than this, in bytes.
const MIN_PAGE: u64 = 512 * 1024;

/// The limits that follow from `--state.max-size`.
#[derive(Debug)]
pub(super) struct Size {
    max: u64,
    page: u64,
    /// Whether the records that wait are delivered.
    outbox: bool,
    wal: Option<PathBuf>,
    /// How often the log could not be truncated.
    blocked: Mutex<Repeated<()>>,
}

// === impl Size ===

impl Size {
    pub(super) fn new(max: u64, outbox: bool, path: Option<&Path>) -> Self {
        Self {
            max,
            page: (max / PAGE_SHARE).max(MIN_PAGE),
            outbox,
            wal: path.map(|path| with_suffix(path, "-wal")),
            blocked: Mutex::default(),
        }
    }

    /// Returns the size of the largest page that is sure to fit, in bytes.
    pub(super) fn page(&self) -> usize {
        usize::try_from(self.page).unwrap_or(usize::MAX)
    }

    /// Reports whether one more page might not fit. Known ids alone do not fill the file, because they are pruned: reading pauses only
    /// for data that delivery will free. A single record does not pause it, because the sender needs a second one to tell a bad
    /// record from a broken collector.
    pub(super) fn is_full(&self, status: &Status) -> bool {
        let file = (status.size_bytes + 2 * self.page).max(status.file_bytes);
        let log = status.log_bytes.max(self.log());
        ((self.outbox && status.backlog > 1) || self.is_log_large(status)) && file + log > self.max
    }

    /// Space reserved for the write-ahead log: it exceeds the size at which it is written back by one transaction.
    fn log(&self) -> u64 {
        (WAL_BYTES + 2 * self.page).min(self.max / 2)
    }

    fn is_log_large(&self, status: &Status) -> bool {
        status.log_bytes > self.log()
    }

    /// Reads the sizes of the file and of its log, and truncates a log that is large.
    pub(super) fn measure(&self, file: &Connection, status: &mut Status) -> rusqlite::Result<()> {
        self.read(file, status)?;
        match self.is_log_large(status) {
            true => self.truncate_log(file, status),
            false => Ok(()),
        }
    }

    /// Makes the file shorter if much of it is unused: a part at a time, so that no caller waits for long.
    pub(super) fn shrink(&self, file: &Connection, status: &mut Status) -> rusqlite::Result<()> {
        if status.file_bytes.saturating_sub(status.size_bytes) <= self.page {
            return self.measure(file, status);
        }
        let mut step = file.prepare_cached("PRAGMA incremental_vacuum(2048)")?;
        let mut pages = step.query([])?;
        while pages.next()?.is_some() {}
        // The file becomes shorter when the log is written back.
        self.truncate_log(file, status)
    }

    fn read(&self, file: &Connection, status: &mut Status) -> rusqlite::Result<()> {
        let pragma = |name| file.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let (pages, free) = (pragma("page_count")?, pragma("freelist_count")?);
        let size = pragma("page_size")?;
        let wal = self.wal.as_ref().and_then(|wal| wal.metadata().ok());
        status.file_bytes = pages * size;
        status.size_bytes = (pages - free) * size;
        status.log_bytes = wal.map_or(0, |wal| wal.len());
        Ok(())
    }

    fn truncate_log(&self, file: &Connection, status: &mut Status) -> rusqlite::Result<()> {
        // Best effort: if a reader is in the way, the next call truncates the log.
        file.busy_timeout(Duration::ZERO)?;
        let is_blocked = file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        file.busy_timeout(BUSY)?;
        if is_blocked? && let Some(attempts) = lock(&self.blocked).should_log(()) {
            tracing::warn!(
                attempts,
                "a reader prevented WAL truncation; close other programs that have the state file open"
            );
        }
        self.read(file, status)
    }
}
