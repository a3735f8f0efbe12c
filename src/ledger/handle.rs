//! The handle that the other modules have of an open ledger.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, SetOnce, watch};

use super::commit::{Ledger, LedgerState};
use super::file::{OpenError, StateFile, damage, probe};
use super::known::Known;
use super::open::{self, LedgerOptions};
use super::outbox::{OutboxRecord, Settled};
use super::size::Size;
use super::types::{Changes, Commit, EventId, Seen};
use super::{LedgerError, Status};
use crate::machine::{Machine, blocking};
use crate::util::lock;

/// The interval at which queued dead letters are looked for.
const REPLAY_INTERVAL: Duration = Duration::from_secs(2);

/// A handle to the open ledger; cheap to clone. Calls run outside the runtime's threads.
#[derive(Clone, Debug)]
pub struct LedgerHandle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    ledger: Mutex<Ledger>,
    machine: Arc<dyn Machine>,
    known: Arc<Mutex<Known>>,
    status: watch::Receiver<Status>,
    size: Arc<Size>,
    outbox_grew: Notify,
    /// Nothing is read any more, so records need not wait for older ones.
    has_ended: AtomicBool,
    instance_id: String,
    /// Unlocked after the ledger is closed; `None` in memory.
    file: Option<StateFile>,
    /// Why this process must end.
    fatal: SetOnce<LedgerError>,
}

// === impl LedgerHandle ===

impl LedgerHandle {
    /// Opens the ledger.
    ///
    /// # Errors
    /// If it is in use, not ours, or cannot be written; see [`OpenError`].
    pub fn open(mut options: LedgerOptions) -> Result<(Self, LedgerState), OpenError> {
        let machine = options.machine.clone();
        let ((ledger, state), file) = match options.path.take() {
            Some(path) => open_file(&path, options)?,
            None => (Ledger::load(options)?, None),
        };
        let inner = Inner {
            known: ledger.known.clone(),
            status: ledger.status.subscribe(),
            size: ledger.size.clone(),
            ledger: Mutex::new(ledger),
            machine,
            file,
            outbox_grew: Notify::new(),
            has_ended: AtomicBool::new(false),
            instance_id: state.instance_id.clone(),
            fatal: SetOnce::new(),
        };
        let inner = Arc::new(inner);
        Ok((Self { inner }, state))
    }

    /// Writes one commit: when this returns, all of it is on disk; or nothing is.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn commit(&self, commit: Commit) -> Result<Changes, LedgerError> {
        let changes = self.call(move |ledger| ledger.counted(|ledger| ledger.commit(commit)));
        let changes = changes.await?;
        self.inner.outbox_grew.notify_one();
        Ok(changes)
    }

    /// Adds a [`Checkpoint`](super::Checkpoint) to the outbox if the last one is an hour old.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) async fn checkpoint(
        &self,
        complete_through: Option<Timestamp>,
    ) -> Result<(), LedgerError> {
        let made =
            move |ledger: &mut Ledger| ledger.counted(|ledger| ledger.checkpoint(complete_through));
        if self.call(made).await? {
            self.inner.outbox_grew.notify_one();
        }
        Ok(())
    }

    /// Returns what the ledger knows of an entry.
    pub(crate) fn seen(&self, id: EventId) -> Seen {
        lock(&self.inner.known).seen(id)
    }

    /// Reads the file again after a commit that failed, without the series.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) async fn reload(&self) -> Result<LedgerState, LedgerError> {
        self.call(Ledger::reload).await
    }

    /// Lets all records leave, because nothing is read any more.
    pub(crate) fn end_reading(&self) {
        self.inner.has_ended.store(true, Ordering::Relaxed);
        self.inner.outbox_grew.notify_one();
    }

    /// Reports whether there is no room for the ids of a catch-up.
    pub(crate) fn is_full_of_ids(&self) -> bool {
        lock(&self.inner.known).is_full()
    }

    /// Reports whether one more page might not fit below `--state.max-size`, although free pages at the end of the file were cut off.
    pub(crate) async fn is_full(&self) -> bool {
        let looks_full = || self.inner.size.is_full(&self.inner.status.borrow());
        if looks_full() {
            let _ = self.call(Ledger::tidy).await;
        }
        looks_full()
    }

    /// Returns the size of the largest page that is sure to fit below `--state.max-size`, in bytes.
    pub(crate) fn max_page_bytes(&self) -> usize {
        self.inner.size.page()
    }

    /// Completes when this process must end, and returns why: the file is damaged, another process has opened it, or it was deleted or
    /// replaced. In the last case, its records can still be sent.
    pub(crate) async fn fatal_error(&self) -> LedgerError {
        self.inner.fatal.wait().await.clone()
    }

    /// Reads the oldest records that may be sent, after the first `skip` ones: at most `max_records` and `max_bytes`, but at
    /// least one. Empty if none waits there.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) async fn outbox_batch(
        &self,
        skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        let is_urgent = self.inner.has_ended.load(Ordering::Relaxed);
        self.call(move |ledger| ledger.batch(is_urgent, skip, max_records, max_bytes))
            .await
    }

    /// Removes what was delivered or rejected from the outbox, and keeps the rejected records as dead letters, in one
    /// transaction.
    ///
    /// # Errors
    /// If the transaction fails.
    pub(crate) async fn outbox_settle(&self, settled: Settled) -> Result<(), LedgerError> {
        self.call(move |ledger| ledger.counted(|ledger| ledger.settle(&settled)))
            .await
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
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.inner.status.clone()
    }

    /// Moves the dead letters that an operator queues to the outbox, every few seconds. Never returns.
    pub(crate) async fn replay_dead_letters(&self) -> Infallible {
        loop {
            if let Err(error) = self.replay_queued().await {
                tracing::debug!(%error, "cannot look for queued dead letters");
            }
            tokio::time::sleep(REPLAY_INTERVAL).await;
        }
    }

    /// Moves the dead letters that are queued to the end of the outbox, and counts those that are left. Cheap if no other process has
    /// written. Returns how many were moved.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub(super) async fn replay_queued(&self) -> Result<u64, LedgerError> {
        let replayed = self.call(Ledger::replay_queued).await?;
        if replayed > 0 {
            self.inner.outbox_grew.notify_one();
        }
        Ok(replayed)
    }

    /// Completes when the outbox has changed since the last call.
    pub(crate) async fn outbox_changed(&self) {
        self.inner.outbox_grew.notified().await;
    }

    /// Returns `service.instance.id`: made once, kept in the file.
    pub(crate) fn instance_id(&self) -> String {
        self.inner.instance_id.clone()
    }

    /// Returns the machine that it runs on.
    pub(crate) fn machine(&self) -> Arc<dyn Machine> {
        self.inner.machine.clone()
    }

    /// Returns the present by the clock of that machine.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.machine.now()
    }

    /// Runs a call. Each one also finds out whether the path still names the file, and one comes every few seconds.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Ledger) -> Result<T, LedgerError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        if let Some(error @ (LedgerError::Damaged(_) | LedgerError::Fenced)) =
            self.inner.fatal.get()
        {
            return Err(error.clone());
        }
        let inner = self.inner.clone();
        let call = move || {
            inner.look();
            let mut ledger = lock(&inner.ledger);
            inner.machine.before_use(&mut ledger.connection);
            f(&mut ledger).map_err(|error| inner.judge(error))
        };
        let called = blocking(self.inner.machine.clone(), call).await;
        called.unwrap_or_else(|error| Err(LedgerError::Internal(error)))
    }
}

// === impl Inner ===

impl Inner {
    fn look(&self) {
        if let Some(file) = &self.file
            && !file.is_in_place()
        {
            // The first reason stays.
            let _ = self.fatal.set(LedgerError::Moved(file.path().to_owned()));
        }
    }

    /// Returns the error of a call. It is fatal if the file really is damaged, or another process has it.
    fn judge(&self, error: LedgerError) -> LedgerError {
        let error = match (error, &self.file) {
            (LedgerError::Damaged(what), Some(file)) => match open::is_damaged(file) {
                Ok(true) => LedgerError::Damaged(damage(file.path(), &what)),
                Ok(false) => LedgerError::Read(what),
                Err(error) => LedgerError::Read(error.to_string()),
            },
            (error, _) => error,
        };
        if matches!(error, LedgerError::Damaged(_) | LedgerError::Fenced) {
            let _ = self.fatal.set(error.clone());
        }
        error
    }
}

/// Opens a file.
fn open_file(
    path: &Path,
    mut options: LedgerOptions,
) -> Result<((Ledger, LedgerState), Option<StateFile>), OpenError> {
    let file = StateFile::claim(path)?;
    probe(file.path())?;
    options.path = Some(file.path().to_owned());
    let loaded = Ledger::load(options).map_err(|error| open::judge(&file, error))?;
    Ok((loaded, Some(file)))
}

#[cfg(test)]
impl LedgerHandle {
    /// Reads or changes the file.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        f: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, LedgerError> {
        self.call(move |ledger| Ok(f(&ledger.connection)?)).await
    }
}
