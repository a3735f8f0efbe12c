//! How full the state file is, known without asking the file.

use std::path::PathBuf;

use super::page::Ledger;
use super::schema::WAL_BYTES;
use super::{Settings, Status, open};

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
}

// === impl Size ===

impl Size {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            max: settings.max_size,
            page: (settings.max_size / PAGE_SHARE).max(MIN_PAGE),
            outbox: settings.outbox,
            wal: settings
                .path
                .as_ref()
                .map(|path| open::with_suffix(path, "-wal")),
        }
    }

    pub(super) fn page(&self) -> usize {
        usize::try_from(self.page).unwrap_or(usize::MAX)
    }

    /// Reports whether the write-ahead log is larger than the space reserved for it.
    pub(super) fn is_log_large(&self, status: &Status) -> bool {
        status.log_bytes > self.log()
    }

    /// Reports whether one more page might not fit. Known ids alone do not fill the file, because they are pruned: only what goes
    /// away again may pause the tail. A single record does not: if it is bad, the relay needs another one to tell that from a
    /// collector that is broken.
    pub(super) fn is_full(&self, status: &Status) -> bool {
        let file = (status.size_bytes + 2 * self.page).max(status.file_bytes);
        let log = status.log_bytes.max(self.log());
        ((self.outbox && status.backlog > 1) || self.is_log_large(status)) && file + log > self.max
    }

    /// Space reserved for the write-ahead log: it exceeds the size at which it is written back by one transaction.
    fn log(&self) -> u64 {
        (WAL_BYTES.cast_unsigned() + 2 * self.page).min(self.max / 2)
    }
}

// === impl Ledger ===

impl Ledger {
    /// Makes the file shorter where possible.
    pub(super) fn tidy(&self) {
        let (is_loose, is_log_large) = {
            let status = self.status.borrow();
            let unused = status.file_bytes.saturating_sub(status.size_bytes);
            (unused > self.size.page, self.size.is_log_large(&status))
        };
        let shrink = || -> rusqlite::Result<()> {
            // A part at a time, so that no caller waits for long.
            let mut step = self
                .connection
                .prepare_cached("PRAGMA incremental_vacuum(2048)")?;
            let mut pages = step.query([])?;
            while pages.next()?.is_some() {}
            Ok(())
        };
        if is_loose && let Err(error) = shrink() {
            tracing::debug!(%error, "cannot shrink the state file yet");
        }
        // The file becomes shorter when the log is written back.
        if is_loose || is_log_large {
            self.truncate_log();
        }
    }

    /// Reads the sizes of the file and of its write-ahead log.
    pub(super) fn update_sizes(&self) -> rusqlite::Result<()> {
        let pragma = |name| {
            self.connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
        };
        let (pages, free) = (pragma("page_count")?, pragma("freelist_count")?);
        let size = pragma("page_size")?;
        let wal = self.size.wal.as_ref().and_then(|wal| wal.metadata().ok());
        self.status.send_modify(|status| {
            status.file_bytes = pages * size;
            status.size_bytes = (pages - free) * size;
            status.log_bytes = wal.map_or(0, |wal| wal.len());
        });
        Ok(())
    }

    pub(super) fn truncate_log(&self) {
        let truncate = || -> rusqlite::Result<bool> {
            // Not now is soon enough.
            self.connection.busy_timeout(std::time::Duration::ZERO)?;
            let blocked = self
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            self.connection.busy_timeout(super::BUSY)?;
            blocked
        };
        match truncate() {
            Ok(false) => drop(self.update_sizes()),
            Ok(true) => tracing::warn!(
                "a reader prevented WAL truncation; close other programs that have the state file open"
            ),
            Err(error) => tracing::debug!(%error, "cannot truncate the write-ahead log yet"),
        }
    }
}
