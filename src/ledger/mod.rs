//! The ledger: one SQLite file with known ids, counters, outbox and the tail's state, changed in one transaction per
//! page.
//!
//! Counters are published only after the commit that holds them. After any crash the file holds an earlier
//! consistent state, and the API replays the rest.

mod actors;
mod changes;
mod dead_letters;
mod known;
mod look;
mod open;
mod outbox;
mod page;
mod prune;
mod schema;
mod size;
mod tail_state;
mod types;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, SetOnce, watch};
use tokio_util::sync::CancellationToken;

pub use actors::{ActorLabel, MAX_ACTIVITY_TYPES, MAX_LABEL, NO_ACTOR, OTHER_ACTORS, UNKNOWN_TYPE};
pub use changes::{Changes, EventLabels, Total, TraceContext};
pub use dead_letters::{DeadLetter, DeadLetters, DeadReason, StoredLetter};
pub use look::{Content, Look, Summary};
pub use open::OpenError;
pub use outbox::{Encode, OutboxPosition, OutboxRecord, RawRecord, Settled};
pub use page::LedgerState;
pub use tail_state::{FirstPass, History, OpenSweep, TailState};
pub use types::{
    ActorRef, Commit, Disposition, EventId, Gap, GapReason, NewEntry, NewEvent, OtherOrganization,
    RecordKind, SharedText, Standing,
};

pub(crate) use actors::{label_value, type_label};
#[cfg(any(test, fuzzing))]
pub(crate) use outbox::{decompress, split};
pub(crate) use types::EventIds;

use crate::util::{blocking, lock, sanitize};
use known::Known;
use page::Ledger;
use size::Size;

/// How long to wait for a lock that another program holds on the file.
const BUSY: Duration = Duration::from_secs(5);

/// How [`Settings::base_url`] of a backfill begins.
pub const BACKFILL: &str = "backfill ";

/// How the ledger is kept.
#[derive(Clone)]
pub struct Settings {
    /// `--state.path`; `None` is in memory, gone with the process.
    pub path: Option<PathBuf>,
    /// `--state.max-size`, in bytes.
    pub max_size: u64,
    /// The service's base address; for a backfill [`BACKFILL`] with its arguments in front of it.
    pub base_url: String,
    /// The filters' fingerprint.
    pub filters: String,
    /// Whether records are kept for a collector.
    pub outbox: bool,
    /// Makes the log records.
    pub encoder: Arc<dyn Encode>,
    /// `--metrics.actor-label`.
    pub actor_label: ActorLabel,
    /// `--metrics.max-actors`.
    pub max_actors: usize,
    /// `--metrics.actor-idle`.
    pub actor_idle: Duration,
    /// `--audit.reread-window`: ids inside it are kept.
    pub reread_window: Duration,
    /// The maximum number of dead letters; they also take at most a quarter of the file.
    pub max_dead_letters: u32,
}

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
    /// Dead letters in the file.
    pub dead_letters: u64,
    /// Records that became dead letters.
    pub dead_lettered: u64,
    /// Dead letters deleted to make room.
    pub evicted: u64,
    /// Dead letters sent again.
    pub replayed: u64,
    /// The organization's id and name, once known.
    pub organization: Option<(String, Option<String>)>,
}

/// A handle to the open ledger; cheap to clone. Calls run outside the runtime's threads.
#[derive(Clone, Debug)]
pub struct LedgerHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Mutex<Ledger>,
    known: Arc<RwLock<Known>>,
    status: watch::Receiver<Status>,
    size: Arc<Size>,
    outbox_grew: Notify,
    instance_id: String,
    path: Option<PathBuf>,
    /// What SQLite reported when it found the file damaged.
    damage: SetOnce<String>,
    fenced: CancellationToken,
}

/// Why the ledger could not do what was asked; nothing of it happened.
#[derive(Debug, thiserror::Error)]
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

// === impl Settings ===

impl Settings {
    /// Returns the path as SQLite opens it and messages show it.
    pub(crate) fn shown_path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(":memory:"))
    }

    /// Checks that the file of a backfill is used by the same backfill alone; `found` is the file's base URL.
    ///
    /// # Errors
    /// If it is another's.
    pub fn check_owner(&self, found: &str) -> Result<(), OpenError> {
        let urls = [found, &self.base_url];
        if found == self.base_url || !urls.iter().any(|url| url.starts_with(BACKFILL)) {
            return Ok(());
        }
        // The filters of a backfill may be e-mail addresses.
        Err(OpenError::Unusable(format!(
            "state file {} belongs to {}, not to {}; set --state.path to another file",
            self.shown_path().display(),
            sanitize(found, &[]),
            sanitize(&self.base_url, &[]),
        )))
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("path", &self.path)
            .field("max_size", &self.max_size)
            .finish_non_exhaustive()
    }
}

// === impl LedgerHandle ===

impl LedgerHandle {
    /// Opens the ledger.
    ///
    /// # Errors
    /// If it is in use, not ours, or cannot be written; see [`OpenError`].
    pub fn open(settings: Settings) -> Result<(Self, LedgerState), OpenError> {
        let (ledger, state) = Ledger::open(settings)?;
        let inner = Inner {
            known: ledger.known.clone(),
            status: ledger.status.subscribe(),
            size: ledger.size.clone(),
            path: ledger.settings.path.clone(),
            ledger: Mutex::new(ledger),
            outbox_grew: Notify::new(),
            instance_id: state.instance_id.clone(),
            damage: SetOnce::new(),
            fenced: CancellationToken::new(),
        };
        let inner = Arc::new(inner);
        Ok((Self { inner }, state))
    }

    /// Writes one commit: when this returns, all of it is on disk; or nothing is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn commit(&self, commit: Commit) -> Result<Changes, LedgerError> {
        let changes = self.call(move |ledger| ledger.commit(commit)).await?;
        self.inner.outbox_grew.notify_one();
        Ok(changes)
    }

    /// Returns what the ledger knows of these entries while the sweep of this number is the current one.
    pub fn standing(&self, ids: impl IntoIterator<Item = EventId>, sweep: i64) -> Vec<Standing> {
        let known = self
            .inner
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        ids.into_iter()
            .map(|id| known.standing(id, sweep))
            .collect()
    }

    /// Reads the tail's state and the newest time of a pruned id again.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn tail_state(&self) -> Result<(TailState, Option<Timestamp>), LedgerError> {
        self.call(|ledger| ledger.tail_state()).await
    }

    /// Reports whether one more page might not fit below `--state.max-size`, although free pages at the end of the file were cut off.
    pub async fn is_full(&self) -> bool {
        let looks_full = || self.inner.size.is_full(&self.inner.status.borrow());
        let tidy = |ledger: &mut Ledger| {
            ledger.tidy();
            Ok(())
        };
        looks_full() && (self.call(tidy).await.is_err() || looks_full())
    }

    /// Returns the size of the largest page that is sure to fit below `--state.max-size`, in bytes.
    pub fn max_page_bytes(&self) -> usize {
        self.inner.size.page()
    }

    /// Completes when the file was found damaged, and returns how: this process must end. The next [`open`](Self::open) sets the file
    /// aside.
    pub async fn damaged(&self) -> String {
        self.inner.damage.wait().await.clone()
    }

    /// Completes when another process has opened the file: this one must stop.
    pub async fn fenced(&self) {
        self.inner.fenced.cancelled().await;
    }

    /// Reads the oldest records that may be sent, after the first `skip` ones: at most `max_records` and `max_bytes`, but at
    /// least one. Empty if none waits there.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn outbox_batch(
        &self,
        skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        self.call(move |ledger| ledger.batch(skip, max_records, max_bytes))
            .await
    }

    /// Removes what was delivered or rejected from the outbox, and keeps the rejected records as dead letters, in one
    /// transaction.
    ///
    /// # Errors
    /// If the transaction fails.
    pub async fn outbox_settle(&self, settled: Settled) -> Result<(), LedgerError> {
        self.call(move |ledger| ledger.settle(&settled)).await
    }

    /// Returns the current state of the file.
    pub fn status(&self) -> Status {
        self.inner.status.borrow().clone()
    }

    /// Returns how many log records wait for the collector.
    pub fn backlog(&self) -> u64 {
        self.inner.status.borrow().backlog
    }

    /// Returns a receiver that is notified of each change of the [`Status`].
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.inner.status.clone()
    }

    /// Moves the dead letters that an operator has queued to the end of the outbox, and counts those that are left.
    /// Cheap if no other process has written. Returns how many were moved.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub async fn replay_dead_letters(&self) -> Result<u64, LedgerError> {
        let replayed = self.call(Ledger::replay_queued).await?;
        if replayed > 0 {
            self.inner.outbox_grew.notify_one();
        }
        Ok(replayed)
    }

    /// Completes when the outbox has changed since the last call.
    pub async fn outbox_changed(&self) {
        self.inner.outbox_grew.notified().await;
    }

    /// Returns `service.instance.id`: made once, kept in the file.
    pub fn instance_id(&self) -> String {
        self.inner.instance_id.clone()
    }

    async fn call<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Ledger) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        if let Some(damage) = self.inner.damage.get() {
            return Err(LedgerError::Damaged(damage.clone()));
        }
        let this = self.clone();
        let result = blocking(move || f(&mut this.lock()))
            .await
            .unwrap_or_else(|error| Err(LedgerError::Other(format!("internal error: {error}"))));
        match &result {
            Err(LedgerError::Damaged(damage)) => {
                if let Some(path) = &self.inner.path {
                    open::mark_damaged(path, damage);
                }
                // The first message stays.
                let _ = self.inner.damage.set(damage.clone());
            }
            Err(LedgerError::Fenced) => self.inner.fenced.cancel(),
            _ => {}
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.inner.ledger)
    }
}

// === impl LedgerError ===

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull,
            _ if open::is_damage(&error) => Self::Damaged(error.to_string()),
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
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

fn pack_ids(ids: &[EventId]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.0.to_le_bytes()).collect()
}

fn unpack_ids(bytes: &[u8]) -> Vec<EventId> {
    let ids = bytes.as_chunks::<8>().0.iter();
    ids.map(|id| EventId(u64::from_le_bytes(*id))).collect()
}

#[cfg(test)]
mod actors_tests;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod outbox_tests;
