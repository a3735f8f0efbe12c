//! How full the state file is: known without asking it, so that nobody waits for a slow disk to learn that.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Settings, StatePath, WAL_BYTES};

/// The size of the file against its limit.
#[derive(Debug)]
pub(super) struct Fill {
    max: u64,
    /// Space kept free below the limit: the write-ahead log, which grows by a transaction beyond the size at which it is written back,
    /// and a page of entries.
    headroom: u64,
    /// Whether anybody makes room by taking records.
    outbox: bool,
    /// The write-ahead log; `None` in memory.
    wal: Option<PathBuf>,
    bytes: AtomicU64,
    wal_bytes: AtomicU64,
    told: AtomicBool,
}

// === impl Fill ===

impl Fill {
    /// Nothing is in the file yet.
    pub(super) fn new(settings: &Settings) -> Self {
        let wal = match &settings.path {
            StatePath::Memory => None,
            StatePath::File(path) => Some(super::open::with_suffix(path, "-wal")),
        };
        Self {
            max: settings.max_size,
            headroom: (WAL_BYTES.cast_unsigned() * 4).min(settings.max_size / 2),
            outbox: settings.outbox,
            wal,
            bytes: AtomicU64::new(0),
            wal_bytes: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// The file holds `bytes` now; the log beside it is looked at.
    pub(super) fn look(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        let wal = self.wal.as_ref().and_then(|wal| std::fs::metadata(wal).ok()).map_or(0, |wal| wal.len());
        self.wal_bytes.store(wal, Ordering::Relaxed);
        let held = self.is_held();
        if held && !self.told.swap(held, Ordering::Relaxed) {
            tracing::warn!(
                bytes = wal,
                "the write-ahead log beside the state file grows: another program holds on to an old moment of the file (an open transaction of a database tool?); close it"
            );
        } else if !held {
            self.told.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the write-ahead log cannot be written back: it grows beyond what is kept free for it.
    pub(super) fn is_held(&self) -> bool {
        self.wal_bytes.load(Ordering::Relaxed) > self.headroom
    }

    /// Whether one more page might not fit below the limit, with so many records waiting.
    pub(super) fn is_full(&self, waiting: u64) -> bool {
        let wal = self.wal_bytes.load(Ordering::Relaxed).max(self.headroom);
        // Ids alone do not fill the file for long: they are pruned. Only what goes away again holds the tail: records that a collector
        // takes, or a log that is written back.
        let passes = (self.outbox && waiting > 0) || self.is_held();
        passes && self.bytes.load(Ordering::Relaxed).saturating_add(wal) > self.max
    }
}
