//! The ledger: one SQLite file with known ids, counters, outbox and the tail's state, changed in one transaction per
//! page.
//!
//! Counters are published only after the commit that holds them. After any crash the file holds an earlier
//! consistent state, and the API replays the rest.
//!
//! Each file uses only those before it: `types` is what goes in and out, `schema` has the tables; `known`,
//! `labels` and `outbox` each keep one of them with what is in memory of it; `file` is the file with its lock, `open` creates the tables or
//! checks what is in it, and `beside` opens it beside a running exporter; then come `dead_letters`, `size`, and `commit` with the transaction;
//! `handle` is for the rest of the program.

mod beside;
mod commit;
mod dead_letters;
mod file;
mod handle;
mod known;
mod labels;
mod open;
mod outbox;
mod schema;
mod size;
mod types;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use strum::VariantArray as _;

pub use beside::{Inspection, Summary};
pub use commit::LedgerState;
pub use dead_letters::{DeadLetter, DeadLetters, StoredLetter};
pub use file::OpenError;
pub use handle::LedgerHandle;
pub use labels::{ActorPrivacy, MAX_ACTIVITY_TYPES, MAX_LABEL};
pub use open::LedgerOptions;
pub use outbox::{OutboxPosition, OutboxRecord, Settled, Stored};
// Public for the fuzz targets.
#[doc(hidden)]
pub use outbox::{compress, decompress};
pub use types::{
    ActorRef, Changes, Checkpoint, Commit, DeadReason, Disposition, EventId, EventLabels, Gap,
    GapReason, NewEntry, OtherOrganization, Prune, RecordKind, Seen, SharedText, Total,
};

pub(crate) use labels::label_value;
pub(crate) use types::{CHECKPOINT_ID, EventIds, OWN_ID};

/// How long to wait for a lock that another program holds on the file.
const BUSY: Duration = Duration::from_secs(5);

/// The state of the file, for metrics. Counts are since the process started unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Transactions committed.
    pub(crate) commits: u64,
    /// Transactions that failed.
    pub(crate) commit_failures: u64,
    /// Bytes of the file that are in use.
    pub(crate) size_bytes: u64,
    /// Bytes of the file.
    pub(crate) file_bytes: u64,
    /// Bytes of its write-ahead log.
    pub(crate) log_bytes: u64,
    /// Log records that wait for the collector.
    pub backlog: u64,
    /// When the oldest of them arrived.
    pub(crate) oldest: Option<Timestamp>,
    /// The records of all entries that were created up to this time are delivered.
    pub(crate) delivered_through: Option<Timestamp>,
    /// Dead letters in the file.
    pub dead_letters: u64,
    /// Records that became dead letters, in the order of [`DeadReason`]'s variants.
    pub(crate) dead_lettered: [u64; DeadReason::VARIANTS.len()],
    /// Dead letters deleted to make room.
    pub(crate) evicted: u64,
    /// Dead letters sent again.
    pub(crate) replayed: u64,
    /// The organization's id and name, once known.
    pub(crate) organization: Option<(String, Option<String>)>,
}

/// Why the ledger could not do what was asked; nothing of it happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file could not be read.
    #[error("cannot read the state file: {0}")]
    Read(String),
    /// The file could not be written; its disk is full, for example.
    #[error("cannot write the state file: {0}")]
    Write(String),
    /// The file is damaged; the text says what to do.
    #[error("{0}")]
    Damaged(String),
    /// Another version wrote a state that this one cannot read; the text names it, and says what to do.
    #[error("{0}")]
    Unreadable(String),
    /// Another process has opened the file.
    #[error("another process uses the state file; stop one of the two")]
    Fenced,
    /// The path names no file any more, or another one.
    #[error(
        "state file {} was deleted or replaced while it was in use; put it back, or the next start uses the file that is there now",
        .0.display()
    )]
    Moved(PathBuf),
    /// A defect of this program.
    #[error("internal error: {0}; please report it")]
    Internal(String),
}

// === impl LedgerError ===

impl LedgerError {
    /// Returns the error of a call that writes.
    fn of_write(self) -> Self {
        match self {
            Self::Read(why) => Self::Write(why),
            other => other,
        }
    }
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Read(format!("{error}; {}", way_out(&error))),
        }
    }
}

/// Returns what an operator can do about an error.
fn way_out(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode as Code;
    match error.sqlite_error_code() {
        Some(Code::DiskFull) => "free some space on its disk",
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => "close the program that has it open",
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
            "let this user write it and files beside it"
        }
        Some(Code::NotADatabase) => "set --state.path to another file",
        _ => "check its disk",
    }
}

/// Returns what the file stores of a time.
fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Returns the time that the file stores; the nearest possible one if it is out of range.
fn timestamp(micros: i64) -> Timestamp {
    let (min, max) = (Timestamp::MIN, Timestamp::MAX);
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 { min } else { max })
}

#[cfg(test)]
mod labels_tests;
#[cfg(test)]
pub(crate) mod ledger_tests;
#[cfg(test)]
mod outbox_tests;
