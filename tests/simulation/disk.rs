//! The disk: calls that take time, statements that fail, a full file system, and what a crash leaves of the file.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use orgdata_exporter::machine::Machine;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, OpenFlags};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::plan::{End, spread};
use super::world::{World, lock};

/// Never, for a call after a crash.
const NEVER: Duration = Duration::MAX;

/// Tables that the exporter writes to.
const TABLES: &str = "state pages events actors totals outbox dead_letters";

/// The bytes of the file and of its write-ahead log.
pub(super) type Copy = (Vec<u8>, Vec<u8>);

#[derive(Default)]
pub(super) struct Files {
    pub(super) path: PathBuf,
    rng: Rng,
    /// Another process that reads the file.
    reader: Option<Connection>,
    pub(super) version: Option<i64>,
    pub(super) heal_at: Option<Duration>,
    slow: bool,
    is_full: bool,
    is_broken: bool,
    /// What a running exporter is still to notice.
    pub(super) changes: Vec<Change>,
    has_triggers: bool,
    /// The files before the call that was interrupted by a power cut.
    torn: Option<Copy>,
    /// Another exporter has taken the file over.
    pub(super) is_taken: bool,
    /// What the file holds, as seen last.
    pub(super) counted: BTreeMap<(String, String), u64>,
}

/// A change of the disk below an open file.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// The file cannot grow any more, or can again.
    Full(bool),
    /// Every statement fails, reads too, or works again.
    Broken(bool),
}

impl Change {
    /// Lets the exporter's connection notice it.
    fn apply(self, file: &mut Connection) -> rusqlite::Result<()> {
        match self {
            Self::Full(is_full) => {
                let pages = if is_full { 1 } else { u32::MAX - 1 };
                let limit = format!("PRAGMA max_page_count = {pages}");
                file.query_row(&limit, [], |_| Ok(()))
            }
            Self::Broken(is_broken) => {
                let refuse = |context: AuthContext<'_>| match context.action {
                    AuthAction::Transaction { .. } => Authorization::Allow,
                    _ => Authorization::Deny,
                };
                file.authorizer(is_broken.then_some(refuse))
            }
        }
    }
}

impl Files {
    pub(super) fn new(path: PathBuf, rng: Rng) -> Self {
        Self {
            path,
            rng,
            ..Self::default()
        }
    }

    /// Returns the connection of the other process.
    pub(super) fn reader(&mut self) -> &Connection {
        let path = &self.path;
        self.reader.get_or_insert_with(|| {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(path, flags).unwrap()
        })
    }

    /// Something is wrong with the disk until then.
    pub(super) fn fail(&mut self, until: Duration, kind: u8) -> u64 {
        if self.heal_at.is_some() || !self.path.exists() {
            return 99;
        }
        self.heal_at = Some(until);
        match kind % 10 {
            0..3 => {
                self.is_full = true;
                self.changes.push(Change::Full(true));
            }
            3..5 => self.slow = true,
            5..7 => {
                self.is_broken = true;
                self.changes.push(Change::Broken(true));
            }
            _ => {
                let tables: Vec<&str> = TABLES.split(' ').collect();
                let table = tables[self.rng.usize(0..tables.len())];
                for on in ["INSERT", "UPDATE", "DELETE"] {
                    let trigger = format!(
                        "CREATE TRIGGER fail_{on} BEFORE {on} ON {table} BEGIN SELECT RAISE(ABORT, 'injected'); END"
                    );
                    // There is no table yet if the file was not begun.
                    self.has_triggers |= self.reader().execute_batch(&trigger).is_ok();
                }
            }
        }
        (kind % 10).into()
    }

    pub(super) fn heal(&mut self) {
        if std::mem::take(&mut self.is_full) {
            self.changes.push(Change::Full(false));
        }
        if std::mem::take(&mut self.is_broken) {
            self.changes.push(Change::Broken(false));
        }
        if std::mem::take(&mut self.has_triggers) {
            let drop = "DROP TRIGGER IF EXISTS fail_INSERT; DROP TRIGGER IF EXISTS fail_UPDATE; DROP TRIGGER IF EXISTS fail_DELETE";
            self.reader().execute_batch(drop).unwrap();
        }
        (self.slow, self.heal_at) = (false, None);
    }

    /// An operator wants dead letters to be sent again.
    pub(super) fn replay(&mut self) -> usize {
        if !self.path.exists() {
            return 0;
        }
        let queue = "UPDATE dead_letters SET queued = 1";
        // There is no table yet if the file was not begun, and the table may be one that fails.
        self.reader().execute(queue, []).unwrap_or(0)
    }

    fn wait(&mut self) -> Duration {
        if self.slow {
            return spread(&mut self.rng, 10, 20_000);
        }
        Duration::from_millis(self.rng.u64(0..4))
    }

    /// Returns the size of the files.
    pub(super) fn bytes(&self) -> u64 {
        let size = |path: &Path| path.metadata().map_or(0, |file| file.len());
        size(&self.path) + size(&self.log())
    }

    fn log(&self) -> PathBuf {
        with_suffix(&self.path, "-wal")
    }

    /// Another exporter opens the file, which a volume that knows no locks allows. It leaves its token, and does nothing else.
    pub(super) fn take_over(&mut self) {
        let token = "UPDATE state SET fence = fence - 1";
        // There is no table yet if the file was not begun, and the table may be one that fails.
        self.is_taken = self.path.exists() && self.reader().execute(token, []).is_ok();
    }

    /// Copies the file and its log while no exporter runs. A table that fails is no part of a backup.
    pub(super) fn copy(&self) -> Option<Copy> {
        if self.has_triggers { None } else { self.read() }
    }

    fn read(&self) -> Option<Copy> {
        let file = std::fs::read(&self.path).ok()?;
        Some((file, std::fs::read(self.log()).unwrap_or_default()))
    }

    /// Returns what a crash leaves: the files as they are, and after a power cut a part of the last transaction.
    pub(super) fn remains(&mut self) -> Option<Copy> {
        self.reader = None;
        let (file, mut log) = self.read()?;
        // What was copied from the log to the file was safe in the log before.
        if let Some((file_before, log_before)) = self.torn.take()
            && file == file_before
            && log.starts_with(&log_before)
            && log_before.len() < log.len()
        {
            log.truncate(self.rng.usize(log_before.len()..log.len()));
        }
        Some((file, log))
    }

    /// After the exporter is gone: the files are what the crash left.
    pub(super) fn put_back(&mut self, remains: Option<Copy>) {
        (self.version, self.is_taken) = (None, false);
        let Some((file, log)) = remains else { return };
        std::fs::write(&self.path, file).unwrap();
        std::fs::write(self.log(), log).unwrap();
        let _ = std::fs::remove_file(with_suffix(&self.path, "-shm"));
    }

    /// The exporter ended by itself.
    pub(super) fn close(&mut self) {
        (self.reader, self.version, self.torn) = (None, None, None);
        self.is_taken = false;
        // Only a running exporter notices that the file system is full, or that statements fail.
        self.changes.clear();
        (self.is_full, self.is_broken) = (false, false);
    }

    pub(super) fn remove(&mut self) {
        self.reader = None;
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(with_suffix(&self.path, suffix));
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl Machine for World {
    fn now(&self) -> Timestamp {
        let clock = *lock(&self.clock);
        clock.map_or_else(Timestamp::now, |(begun, at)| at + begun.elapsed())
    }

    fn start(self: Arc<Self>, call: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
        tokio::spawn(async move {
            sleep(self.before()).await;
            sleep(self.make(call)).await;
        })
    }

    fn before_use(&self, file: &mut Connection) {
        for change in lock(&self.changes).drain(..) {
            // One that fails is undone when the disk heals, as any other.
            let _ = change.apply(file);
        }
    }
}

impl World {
    /// How long the disk takes before it makes a call.
    fn before(&self) -> Duration {
        let state = &mut *self.state();
        if self.point(state) {
            return NEVER;
        }
        state.files.wait()
    }

    /// Makes a call, and returns how long it takes.
    fn make(&self, call: Box<dyn FnOnce() + Send>) -> Duration {
        let state = &mut *self.state();
        if state.has_crashed {
            return NEVER;
        }
        let is_power_cut = matches!(state.end, End::PowerCut(_));
        let before = is_power_cut.then(|| state.files.read()).flatten();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
            self.fail(state, "a call of the ledger panicked".to_owned());
            resume_unwind(panic);
        }
        if self.point(state) {
            state.files.torn = before;
            return NEVER;
        }
        self.look(state);
        state.files.wait()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
