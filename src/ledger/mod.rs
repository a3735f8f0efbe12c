//! The ledger: one SQLite file with known ids, counters, outbox and the tail's state, changed in one transaction per
//! page.
//!
//! Counters are published only after the commit that holds them. After any crash the file holds an earlier
//! consistent state, and the API replays the rest.
//!
//! Each file uses only those before it: `types` and `tail_state` are what goes in and out, `schema` has the tables; `known`,
//! `labels` and `outbox` each keep one of them with what is in memory of it; `open` locks the file and replaces a damaged one; then
//! come `dead_letters`, `size`, and `page` with the transaction; `look` is for other processes, and `handle` for everybody else.

mod dead_letters;
mod handle;
mod known;
mod labels;
mod look;
mod open;
mod outbox;
mod page;
mod schema;
mod size;
mod tail_state;
mod types;

use std::time::Duration;

use jiff::Timestamp;

pub use dead_letters::{DeadLetter, DeadLetters, StoredLetter};
pub use handle::LedgerHandle;
pub use labels::{ActorPrivacy, MAX_ACTIVITY_TYPES, MAX_LABEL};
pub use look::{Content, Look, Summary};
pub use open::{LedgerOptions, OpenError};
pub use outbox::{Encode, OutboxPosition, OutboxRecord, RawRecord, Settled};
pub use page::LedgerState;
pub use tail_state::{FirstPass, History, OpenSweep, TailState};
pub use types::{
    ActorRef, Changes, Commit, DeadReason, Disposition, EventId, EventLabels, Gap, GapReason,
    NewEntry, NewEvent, OtherOrganization, RecordKind, SharedText, Standing, Total, TraceContext,
};

pub(crate) use labels::label_value;
#[cfg(any(test, fuzzing))]
pub(crate) use outbox::{decompress, split};
pub(crate) use types::EventIds;

/// How long to wait for a lock that another program holds on the file.
const BUSY: Duration = Duration::from_secs(5);

/// The state of the file, for metrics. Counts are since the process started unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Transactions committed.
    pub commits: u64,
    /// Transactions that failed.
    pub commit_failures: u64,
    /// Bytes of the file that are in use.
    pub size_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of its write-ahead log.
    pub log_bytes: u64,
    /// Log records that wait for the collector.
    pub backlog: u64,
    /// When the oldest of them arrived.
    pub oldest: Option<Timestamp>,
    /// The records of all entries that were created up to this time are delivered.
    pub delivered_through: Option<Timestamp>,
    /// Dead letters in the file.
    pub dead_letters: u64,
    /// Records that became dead letters, in the order of [`DeadReason::ALL`].
    pub dead_lettered: [u64; DeadReason::ALL.len()],
    /// Dead letters deleted to make room.
    pub evicted: u64,
    /// Dead letters sent again.
    pub replayed: u64,
    /// The organization's id and name, once known.
    pub organization: Option<(String, Option<String>)>,
}

/// Why the ledger could not do what was asked; nothing of it happened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file system is full.
    #[error(
        "the disk of the state file is full; free some space, the exporter continues by itself"
    )]
    DiskFull,
    /// The file is damaged.
    #[error("the state file is damaged: {0}")]
    Damaged(String),
    /// Another process has opened the file.
    #[error("another process uses the state file; stop one of the two")]
    Fenced,
    /// Anything else.
    #[error("cannot use the state file: {0}")]
    Other(String),
}

// === impl LedgerError ===

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Self::DiskFull,
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => Self::Damaged(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
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
mod ledger_tests;
#[cfg(test)]
mod outbox_tests;
