//! The ledger: one SQLite file that holds cursor, seen ids, counters and outbox, and changes them together or not at all.
//!
//! A counter is published only after the transaction that holds it is on disk; after any crash the file is an earlier
//! consistent moment, and the service replays the rest.

mod actors;
mod beginning;
mod block;
mod fill;
mod known;
mod labels;
mod letters;
mod look;
pub mod next;
mod open;
mod outbox;
mod schema;
mod store;
mod types;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use actors::{ActorLabel, MAX_LABEL, NO_ACTOR, OTHER_ACTORS, UNKNOWN_TYPE};
pub(crate) use actors::{Slot, Slots, cut, is_reserved};
pub use beginning::Beginning;
pub(crate) use labels::MAX_ACTIVITY_TYPES;
pub use letters::{DeadLetters, Selection, StoredLetter};
pub use look::{Content, Look};
pub use open::{OpenError, StatePath};
pub use types::{
    ActorRef, Backlog, Birth, Commit, DeadLetter, DeadReason, Direction, Disposition, EventId,
    Frontier, Gap, GapReason, Mark, NewEntry, NewEvent, OutboxPosition, OutboxRecord, RecordKind,
    TraceContext, Walk, WalkChange, WalkKind,
};

use crate::metrics::Metrics;
use fill::Fill;
use known::Known;
use store::Ledger;

/// The write-ahead log beside the file is written back, and cut, at this size, in bytes.
const WAL_BYTES: i64 = 1024 * 1024;

/// How long a lock that another program holds on the file is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// How the ledger is kept.
#[derive(Clone)]
pub struct Settings {
    /// `--state.path`.
    pub path: StatePath,
    /// `--state.max-size`, in bytes.
    pub max_size: u64,
    /// The service whose file it is.
    pub base_url: String,
    /// The filters' fingerprint.
    pub filters: String,
    /// Whether records are kept for a collector.
    pub outbox: bool,
    /// `--metrics.actor-label`.
    pub actor_label: ActorLabel,
    /// `--metrics.max-actors`.
    pub max_actors: usize,
    /// `--metrics.actor-idle`.
    pub actor_idle: Duration,
    /// `--audit.reread-window`: ids inside it are never forgotten.
    pub reread_window: Duration,
    /// How long ids are kept.
    pub id_retention: Duration,
    /// How many dead letters are kept, within a quarter of the limit.
    pub max_dead_letters: u32,
    /// Takes out of an entry what must not be stored in a dead letter.
    pub redact: Arc<dyn Fn(&str) -> String + Send + Sync>,
}

/// What an open ledger holds for the tail.
#[derive(Clone, Debug)]
pub struct LedgerState {
    /// `service.instance.id`.
    pub instance_id: String,
    /// The organization whose file it is, once known.
    pub organization: Option<String>,
    /// The filters it was kept with last.
    pub filters: String,
    /// When it took the place of a damaged one.
    pub recreated_at: Option<Timestamp>,
    /// How it began; `None` before the first answer of the service.
    pub birth: Option<Birth>,
    /// No late row is older than the last change of the filters.
    pub filter_floor: Option<Timestamp>,
    /// No late row is older than the ids that are kept.
    pub prune_floor: Option<Timestamp>,
    /// Where the next poll goes on.
    pub frontier: Frontier,
    /// Creation time of the newest entry taken, never later than the service's clock was.
    pub frontier_at: Option<Timestamp>,
    /// Creation time of the newest entry taken, as the service wrote it.
    pub newest_at: Option<Timestamp>,
    /// When the last complete re-read began.
    pub reread_at: Option<Timestamp>,
    /// The walk under way.
    pub walk: Option<Walk>,
    /// The body of the page that a first start began with.
    pub walk_top: Option<String>,
}

/// A handle to the open ledger; cheap to clone. Calls run off the runtime's threads.
#[derive(Clone, Debug)]
pub struct LedgerHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Mutex<Ledger>,
    known: Arc<RwLock<Known>>,
    backlog: Arc<Mutex<Backlog>>,
    fill: Arc<Fill>,
    /// The file and the log beside it are being made shorter.
    tidying: AtomicBool,
    outbox_grew: Notify,
    instance_id: String,
    /// What SQLite said when it found the file damaged.
    damage: OnceLock<String>,
    damaged: CancellationToken,
}

/// Why the ledger could not do what was asked; nothing of it happened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file system is full.
    #[error(
        "the disk of the state file is full; free some space there, the exporter goes on by itself"
    )]
    DiskFull,
    /// The file is damaged.
    #[error("the state file is damaged: {0}; the exporter sets it aside and begins a fresh one")]
    Damaged(String),
    /// Anything else.
    #[error("the state file cannot be used: {0}")]
    Other(String),
}

// === impl Settings ===

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
    /// Opens the ledger and shows its counters.
    ///
    /// # Errors
    /// Where it is in use, not ours, or cannot be written; see [`OpenError`].
    pub fn open(settings: Settings, metrics: Metrics) -> Result<(Self, LedgerState), OpenError> {
        metrics
            .state
            .max_size_bytes
            .set(i64::try_from(settings.max_size).unwrap_or(i64::MAX));
        let (ledger, state) = Ledger::open(settings, metrics)?;
        let inner = Inner {
            known: ledger.known.clone(),
            backlog: ledger.backlog.clone(),
            fill: ledger.fill.clone(),
            tidying: AtomicBool::new(false),
            ledger: Mutex::new(ledger),
            outbox_grew: Notify::new(),
            instance_id: state.instance_id.clone(),
            damage: OnceLock::new(),
            damaged: CancellationToken::new(),
        };
        Ok((
            Self {
                inner: Arc::new(inner),
            },
            state,
        ))
    }

    /// Writes one commit: all of it is on disk, and shown, when this returns; or nothing is. Returns [`LedgerState::prune_floor`].
    ///
    /// # Errors
    /// Where it cannot be written: then nothing of it happened.
    pub async fn commit(&self, commit: Commit) -> Result<Option<Timestamp>, LedgerError> {
        let grew = !commit.entries.is_empty() || !commit.gaps.is_empty();
        let prune_floor = self.call(move |ledger| ledger.commit(&commit)).await?;
        if grew {
            self.inner.outbox_grew.notify_one();
        }
        Ok(prune_floor)
    }

    /// What the ledger holds for the tail.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn state(&self) -> Result<LedgerState, LedgerError> {
        self.call(|ledger| Ok(ledger.load_state()?)).await
    }

    /// Which of these entries the ledger holds.
    pub fn holds(&self, ids: impl IntoIterator<Item = EventId>) -> Vec<bool> {
        let known = self
            .inner
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        ids.into_iter().map(|id| known.contains(id)).collect()
    }

    /// Whether it holds any entry at all.
    pub fn holds_any(&self) -> bool {
        !self
            .inner
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// Whether one more page might not fit below `--state.max-size`. It waits for nothing, not even for a disk that hangs.
    pub fn is_full(&self) -> bool {
        let full = self.inner.fill.is_full(self.backlog().records);
        if full || self.inner.fill.is_held() {
            self.tidy();
        }
        full
    }

    /// The largest page of entries, in bytes, that is sure to fit below `--state.max-size` where the ledger is not full.
    pub fn max_page_bytes(&self) -> usize {
        usize::try_from(self.inner.fill.page()).unwrap_or(usize::MAX)
    }

    /// For tests: lets the file take no further page, as on a full disk, or lets it grow again.
    ///
    /// # Errors
    /// Where SQLite does not do it.
    #[doc(hidden)]
    pub async fn pretend_full(&self, full: bool) -> Result<(), LedgerError> {
        // SQLite takes the size that the file has already for a limit below it.
        let pages = if full { 1 } else { u32::MAX - 1 };
        self.call(move |ledger| {
            Ok(ledger.connection.query_row(
                &format!("PRAGMA max_page_count = {pages}"),
                [],
                |_| Ok(()),
            )?)
        })
        .await
    }

    /// Completes when the file was found damaged: nothing can be written or read any more, until it was
    /// [set aside](Self::set_aside) and the ledger is opened again.
    pub async fn damaged(&self) {
        self.inner.damaged.cancelled().await;
    }

    /// Sets a damaged file aside, leaves a fresh one in its place, and lets go of both: it can be opened again, by this process too.
    ///
    /// # Errors
    /// Where the file cannot be renamed, or no fresh one be made.
    pub async fn set_aside(&self) -> Result<(), OpenError> {
        let this = self.clone();
        let why = self.inner.damage.get().cloned().unwrap_or_default();
        tokio::task::spawn_blocking(move || this.lock().set_aside(&why))
            .await
            .unwrap_or(Ok(()))
    }

    /// The oldest records of the outbox: at most `max_records`, and no more than `max_bytes` of JSON (but at least one record). Empty when nothing waits.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn outbox_batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        self.call(move |ledger| ledger.batch(max_records, max_bytes))
            .await
    }

    /// In one transaction: everything through `through` leaves the outbox, and `dead` become dead letters.
    ///
    /// # Errors
    /// Where the transaction cannot be written: then nothing of it happened.
    pub async fn outbox_acknowledge(
        &self,
        through: OutboxPosition,
        dead: Vec<DeadLetter>,
    ) -> Result<(), LedgerError> {
        self.call(move |ledger| ledger.acknowledge(through, &dead))
            .await
    }

    /// Remembers which counters the last scrape did not see in full, so that the next process shows their rise, perhaps under another
    /// instance label. It is the last thing to do: nothing may be scraped any more.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub async fn remember_shown(&self) -> Result<(), LedgerError> {
        self.call(|ledger| ledger.remember_shown()).await
    }

    /// How much waits.
    pub fn backlog(&self) -> Backlog {
        *self
            .inner
            .backlog
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many dead letters are kept. It reads the file: call it off the runtime's threads.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn dead_letters(&self) -> Result<u64, LedgerError> {
        Ok(self.lock().dead_letter_count()?.cast_unsigned())
    }

    /// Puts the dead letters that an operator has queued at the end of the outbox; cheap where nobody has. Returns how many.
    ///
    /// # Errors
    /// Where the file cannot be read or written: then they stay queued.
    pub async fn replay_dead_letters(&self) -> Result<usize, LedgerError> {
        let replayed = self.call(Ledger::replay_queued).await?;
        if replayed > 0 {
            self.inner.outbox_grew.notify_one();
        }
        Ok(replayed)
    }

    /// Shows how many dead letters there are, where another process has changed the file; cheap where none has.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn recount_dead_letters(&self) -> Result<(), LedgerError> {
        self.call(Ledger::recount_letters).await
    }

    /// Completes when records were added to the outbox since the last call (or at once when that happened already).
    pub async fn outbox_changed(&self) {
        self.inner.outbox_grew.notified().await;
    }

    /// `service.instance.id`: made once, kept in the file.
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
        match tokio::task::spawn_blocking(move || f(&mut this.lock())).await {
            Ok(Err(LedgerError::Damaged(damage))) => {
                // Whatever the first one was.
                let _ = self.inner.damage.set(damage.clone());
                self.inner.damaged.cancel();
                Err(LedgerError::Damaged(damage))
            }
            Ok(result) => result,
            Err(error) => Err(LedgerError::Other(format!("the call did not end: {error}"))),
        }
    }

    /// Makes the file and the log beside it shorter where that is possible, off the runtime's threads: where nothing is committed any more,
    /// nobody else does.
    fn tidy(&self) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.inner.tidying.swap(true, Ordering::Relaxed)
        {
            let this = self.clone();
            runtime.spawn_blocking(move || {
                let ledger = this.lock();
                if let Err(error) = ledger.shrink().and_then(|()| ledger.look()) {
                    tracing::debug!(%error, "the state file cannot be made shorter yet");
                }
                this.inner.tidying.store(false, Ordering::Relaxed);
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.inner
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
