//! Opening the state file: one process, one organization's file, and a damaged file set aside.
//!
//! Damage is handled at the start only. The process that finds it, at the start or later, first leaves a note beside the file. A start that finds
//! the note renames the file, creates a new one that says so, and deletes the note: if it is interrupted, the next start does the same.

use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::labels::ActorPrivacy;
use super::outbox::Encode;
use super::{BUSY, schema};

/// What is added to the file's name for the note that it is damaged.
const DAMAGED: &str = ".damaged";

/// What is added to the file's name for the copies that were set aside, newest first.
const ASIDE: [&str; 3] = [".damaged-1", ".damaged-2", ".damaged-3"];

/// What the lock file contains once the state file was created.
const USED: &[u8] = b"The state file beside this one was in use.\n";

/// How the ledger is kept.
#[derive(Clone)]
pub struct LedgerOptions {
    /// `--state.path`; `None` is in memory, gone with the process.
    pub path: Option<PathBuf>,
    /// `--state.max-size`, in bytes.
    pub max_size: u64,
    /// The API's base address.
    pub base_url: String,
    /// The filters' fingerprint.
    pub filters: String,
    /// Whether records are kept for a collector.
    pub outbox: bool,
    /// Makes the log records.
    pub encoder: Arc<dyn Encode>,
    /// `--metrics.actor-label`.
    pub actor_label: ActorPrivacy,
    /// `--metrics.max-actors`.
    pub max_actors: usize,
    /// The maximum number of dead letters; they also take at most a quarter of the file.
    pub max_dead_letters: u32,
}

/// Why the ledger cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "state file {0} is in use by another process; stop that one, or set --state.path to another file"
    )]
    Locked(PathBuf),
    /// It cannot be used as it is; the text says why, and what to do.
    #[error("{0}")]
    Unusable(String),
    /// SQLite failed in another way.
    #[error("cannot use state file {path}: {error}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
}

// === impl LedgerOptions ===

impl LedgerOptions {
    /// Returns the path as SQLite opens it and messages show it.
    pub(crate) fn shown_path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(":memory:"))
    }
}

impl std::fmt::Debug for LedgerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LedgerOptions")
            .field("path", &self.path)
            .field("max_size", &self.max_size)
            .finish_non_exhaustive()
    }
}

// === impl OpenError ===

impl OpenError {
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        Self::Sqlite { path, error }
    }

    /// The file, or one beside it, could not be opened, locked or renamed.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        use rustix::io::Errno as E;
        // They stay until the user changes something. Anything else may pass.
        let lasting = [E::NOENT, E::ACCESS, E::PERM, E::ISDIR, E::NOTDIR, E::ROFS];
        let lasting = lasting.into_iter().chain([E::NAMETOOLONG, E::LOOP]);
        if lasting
            .map(Some)
            .any(|errno| errno == E::from_io_error(error))
        {
            return Self::unwritable(path, error);
        }
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        let error = rusqlite::Error::SqliteFailure(code, Some(error.to_string()));
        Self::sqlite(path, error)
    }

    /// The file or its directory cannot be written.
    pub(crate) fn unwritable(path: &Path, error: &dyn Display) -> Self {
        Self::Unusable(format!(
            "cannot open state file {}: {error}; set --state.path to a file in a directory that this user can write, or to :memory:",
            path.display()
        ))
    }

    /// It is a directory, a device or the like.
    pub(crate) fn irregular(path: &Path) -> Self {
        Self::Unusable(format!(
            "{} is not a regular file; set --state.path to a file, or to :memory:",
            path.display()
        ))
    }

    /// It does not exist.
    pub(crate) fn missing(path: &Path) -> Self {
        Self::Unusable(format!(
            "state file {} does not exist; set --state.path to the exporter's own, or run this in the exporter's directory",
            path.display()
        ))
    }

    fn foreign(path: &Path) -> Self {
        Self::Unusable(format!(
            "{} is not a state file of this program; set --state.path to another file",
            path.display()
        ))
    }
}

/// Locks the file, and creates it if it is missing. Returns the lock, and whether the file was in use before: if it is empty now, its
/// content is lost. SQLite's exclusive mode would keep tools from reading a live file.
pub(super) fn claim(path: &Path) -> Result<(File, bool), OpenError> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(OpenError::irregular(path));
    }
    let io = |error: io::Error| OpenError::io(path, &error);
    // The lock file tells a file that was emptied from one whose creation failed.
    let was_used = path.exists() && is_marked(path);
    let lock = private().open(with_suffix(path, ".lock")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    private().open(path).map_err(io)?;
    probe(path)?;
    Ok((lock, was_used))
}

/// Creates a file beside the state file, and deletes it again: SQLite does not say why it cannot create one.
fn probe(path: &Path) -> Result<(), OpenError> {
    let beside = with_suffix(path, ".probe");
    let created = private().open(&beside);
    created
        .and_then(|_| std::fs::remove_file(beside))
        .map_err(|error| OpenError::io(path, &error))
}

/// Opens the file, creates what is in it if it is empty, checks that it is whole, and writes a new fencing token. Nothing is written before
/// it is known to be ours.
pub(super) fn open(options: &LedgerOptions, was_used: bool) -> Result<Connection, OpenError> {
    let path = options.shown_path();
    let sqlite = |error| OpenError::sqlite(path, error);
    let (connection, is_empty) = connect(path).map_err(sqlite)?;
    if is_empty {
        schema::create(&connection, &options.base_url, &options.filters, was_used)
            .map_err(sqlite)?;
        if was_used {
            tracing::warn!(
                file = %path.display(),
                "the state file was empty; counters start again at 0, and log records that waited are not sent"
            );
        }
        return Ok(connection);
    }
    check_application(&connection, path)?;
    let found: String = connection
        .query_row("SELECT base_url FROM state", [], |row| row.get(0))
        .map_err(sqlite)?;
    if found != options.base_url {
        tracing::info!(
            from = found,
            to = options.base_url,
            "the base address has changed"
        );
    }
    schema::configure(&connection).map_err(sqlite)?;
    schema::check(&connection).map_err(sqlite)?;
    let written = connection.execute(
        "UPDATE state SET fence = ?1, base_url = ?2",
        params![fastrand::i64(1..), options.base_url],
    );
    // A full disk must not prevent the start: the old token stays valid then.
    if let Err(error) = written {
        tracing::warn!(%error, "cannot write the state file; the exporter shows what it has");
    }
    Ok(connection)
}

/// Connects to a file, and reports whether it is empty.
fn connect(path: &Path) -> rusqlite::Result<(Connection, bool)> {
    let connection = Connection::open(path)?;
    let error = match schema::is_empty(&connection) {
        Ok(is_empty) => return Ok((connection, is_empty)),
        Err(error) => error,
    };
    if !matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull)
    ) {
        return Err(error);
    }
    // Processes share an index of SQLite's log in a file of its own, which a full disk has no room for and some file
    // systems cannot map into memory. A process that keeps the others out has it in its own memory.
    drop(connection);
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let is_empty = schema::is_empty(&connection)?;
    tracing::warn!(
        file = %path.display(), %error,
        "the disk is full, or its file system has no shared memory; other commands cannot read the state file while the exporter runs"
    );
    Ok((connection, is_empty))
}

/// Opens the state file of an exporter, running or not, from another process. Nothing is created.
pub(super) fn open_beside(path: &Path) -> Result<Connection, OpenError> {
    // A directory of another user tells nothing about its files.
    if !path.try_exists().unwrap_or(true) {
        return Err(OpenError::missing(path));
    }
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(OpenError::irregular(path));
    }
    let sqlite = |error| OpenError::sqlite(path, error);
    // A reader of a file with a write-ahead log writes too.
    probe(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(BUSY).map_err(sqlite)?;
    check_application(&connection, path)?;
    Ok(connection)
}

/// Checks that a file is one of this program's, in its schema.
pub(super) fn check_application(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::sqlite(path, error);
    let application: i64 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(sqlite)?;
    if application != schema::APPLICATION_ID {
        return Err(OpenError::foreign(path));
    }
    let version: i64 = connection
        .query_row("SELECT schema_version FROM state", [], |row| row.get(0))
        .map_err(sqlite)?;
    if version != schema::VERSION {
        return Err(OpenError::Unusable(format!(
            "state file {} was written by another version of this program (schema {version}, not {}); run that version, or set --state.path to another file",
            path.display(),
            schema::VERSION
        )));
    }
    Ok(())
}

/// Opens a file of this process or one beside it, which no other user may read, and creates it if it is missing.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600);
    options
}

/// Reports whether a state file was created beside the lock file.
pub(super) fn is_marked(path: &Path) -> bool {
    let lock = std::fs::read(with_suffix(path, ".lock"));
    lock.is_ok_and(|text| text == USED)
}

/// Returns why a file of ours cannot be read any more. Any other error, or a file of another program, is an error.
pub(super) fn damage(path: &Path, error: OpenError) -> Result<String, OpenError> {
    use ErrorCode as Code;
    match error {
        OpenError::Sqlite { error, .. }
            if matches!(
                error.sqlite_error_code(),
                // SQLite finds it damaged, or a table or a value is not what it has to be.
                Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::Unknown) | None
            ) =>
        {
            match is_marked(path) {
                true => Ok(error.to_string()),
                false => Err(OpenError::foreign(path)),
            }
        }
        error => Err(error),
    }
}

/// Returns why the file has to be replaced, if its note says so.
pub(super) fn noted_damage(path: &Path) -> Option<String> {
    std::fs::read_to_string(with_suffix(path, DAMAGED)).ok()
}

/// Notes that the file is damaged, for this start or the next one.
pub(super) fn note_damage(path: &Path, why: &str) -> io::Result<()> {
    private().open(with_suffix(path, DAMAGED))?;
    std::fs::write(with_suffix(path, DAMAGED), why)
}

/// Renames a damaged file and what SQLite keeps beside it, and creates an empty one. No connection to it may be open.
pub(super) fn set_aside(path: &Path, why: &str) -> io::Result<()> {
    if path.metadata()?.len() == 0 {
        // A start that was interrupted has done so.
        return Ok(());
    }
    let moves = [(ASIDE[1], ASIDE[2]), (ASIDE[0], ASIDE[1]), ("", ASIDE[0])];
    for (from, to) in moves {
        for part in ["-wal", "-shm", ""] {
            let [from, to] = [from, to].map(|name| with_suffix(path, &format!("{name}{part}")));
            // The log of an older copy must not be taken for that of a newer one without a log.
            let _ = std::fs::remove_file(&to);
            match std::fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    private().open(path)?;
    tracing::error!(
        file = %path.display(), aside = %with_suffix(path, ASIDE[0]).display(), error = why,
        "the state file is damaged and was set aside"
    );
    Ok(())
}

/// After a start: deletes the note, and writes to the lock file that the state file beside it was in use.
pub(super) fn begun(path: &Path) -> io::Result<()> {
    if noted_damage(path).is_some() {
        std::fs::remove_file(with_suffix(path, DAMAGED))?;
    }
    if !is_marked(path) {
        // A full disk must not keep it from starting.
        let _ = std::fs::write(with_suffix(path, ".lock"), USED);
    }
    Ok(())
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
