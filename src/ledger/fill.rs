//! How full the state file is: known without asking it, so that nobody waits for a slow disk to learn that.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Settings, StatePath, WAL_BYTES};

/// A page of entries is at most this part of the limit.
const PAGE_SHARE: u64 = 64;

/// A page of entries need not be smaller than this, in bytes: also beside a small file a long walk must not take a request for each entry.
const MIN_PAGE: u64 = 512 * 1024;

/// As often a commit takes the room of a page: on a first start the page that it began with stands in the row that every commit writes anew.
const PAGES_AT_ONCE: u64 = 2;

/// The size of the file against its limit.
#[derive(Debug)]
pub(super) struct Fill {
    max: u64,
    /// The largest page of entries.
    page: u64,
    /// Whether anybody makes room by taking records.
    outbox: bool,
    /// The write-ahead log; `None` in memory.
    wal: Option<PathBuf>,
    /// Bytes of the file, and how many of them hold something.
    bytes: AtomicU64,
    used: AtomicU64,
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
            page: (settings.max_size / PAGE_SHARE).max(MIN_PAGE),
            outbox: settings.outbox,
            wal,
            bytes: AtomicU64::new(0),
            used: AtomicU64::new(0),
            wal_bytes: AtomicU64::new(0),
            told: AtomicBool::new(false),
        }
    }

    /// The largest page of entries, in bytes.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// Looks at the log beside the file. Returns whether it is longer than what is kept free for it: what a large transaction leaves
    /// stands there, written back or not, until it is cut.
    pub(super) fn look_at_log(&self) -> bool {
        let wal = self
            .wal
            .as_ref()
            .and_then(|wal| std::fs::metadata(wal).ok())
            .map_or(0, |wal| wal.len());
        self.wal_bytes.store(wal, Ordering::Relaxed);
        self.is_held()
    }

    /// The file has `bytes` now, of which `used` hold something. Somebody `blocked` the cutting of the log beside it: he reads what is in it.
    pub(super) fn look(&self, bytes: u64, used: u64, blocked: bool) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        let held = self.is_held() && blocked;
        if held && !self.told.swap(held, Ordering::Relaxed) {
            tracing::warn!(
                bytes = self.wal_bytes.load(Ordering::Relaxed),
                "the write-ahead log beside the state file grows: another program holds on to an old moment of the file (an open transaction of a database tool?); close it"
            );
        } else if !held {
            self.told.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the write-ahead log could not be cut: it grows beyond what is kept free for it.
    pub(super) fn is_held(&self) -> bool {
        self.wal_bytes.load(Ordering::Relaxed) > self.log()
    }

    /// Whether one more page might not fit below the limit, with so many records waiting.
    pub(super) fn is_full(&self, waiting: u64) -> bool {
        // Ids alone do not fill the file for long: they are pruned. Only what goes away again holds the tail: records that a collector
        // takes, or a log that is written back.
        let passes = (self.outbox && waiting > 0) || self.is_held();
        // A page is in the log first, and then in the file too.
        let file = self
            .used
            .load(Ordering::Relaxed)
            .saturating_add(self.page * PAGES_AT_ONCE)
            .max(self.bytes.load(Ordering::Relaxed));
        passes
            && file.saturating_add(self.wal_bytes.load(Ordering::Relaxed).max(self.log()))
                > self.max
    }

    /// Space kept free for the write-ahead log: it grows by a transaction beyond the size at which it is written back.
    fn log(&self) -> u64 {
        (WAL_BYTES.cast_unsigned() + self.page * PAGES_AT_ONCE).min(self.max / 2)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ledger::ActorLabel;
    use crate::telemetry::captured::Captured;

    const MIB: u64 = 1 << 20;

    /// Of a state file in this directory, with 64 MiB, so pages of 1 and a log of 3.
    fn fill(directory: &Path) -> Fill {
        let day = Duration::from_secs(86_400);
        Fill::new(&Settings {
            path: StatePath::File(directory.join("state.db")),
            max_size: 64 * MIB,
            base_url: String::new(),
            filters: String::new(),
            outbox: true,
            actor_label: ActorLabel::Id,
            max_actors: 1,
            actor_idle: day,
            reread_window: day,
            id_retention: day,
            max_dead_letters: 1,
            redact: Arc::new(str::to_owned),
        })
    }

    #[test]
    fn it_is_full_where_another_page_and_the_log_have_no_room_and_something_waits() {
        let directory = tempfile::tempdir().expect("a directory");
        let fill = fill(directory.path());
        assert_eq!(fill.page(), MIB);
        for (bytes, used, waiting, full) in [
            (59, 59, 1, false),
            (60, 60, 1, true),
            (60, 60, 0, false),
            // Free pages take the next page of entries; they do not take the log.
            (61, 40, 1, false),
            (62, 40, 1, true),
        ] {
            fill.look(bytes * MIB, used * MIB, false);
            assert_eq!(fill.is_full(waiting), full, "{bytes} {used} {waiting}");
        }
    }

    #[test]
    fn another_program_is_named_once_and_only_where_one_is_in_the_way() {
        let directory = tempfile::tempdir().expect("a directory");
        let fill = fill(directory.path());
        let lines = Captured::begin();
        std::fs::File::create(directory.path().join("state.db-wal"))
            .and_then(|log| log.set_len(9 * MIB))
            .expect("written");
        assert!(fill.look_at_log());
        fill.look(MIB, MIB, false);
        assert!(fill.is_held() && lines.lines().is_empty());
        fill.look(MIB, MIB, true);
        fill.look(MIB, MIB, true);
        assert_eq!(
            lines
                .lines()
                .iter()
                .filter(|line| line.contains("another program"))
                .count(),
            1
        );
    }
}
