//! Opening the state file: one process, one organization's file, and a damaged one set aside.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::schema;

/// How long somebody may look at the lock.
const GLANCE: Duration = Duration::from_millis(50);

/// Where the ledger lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatePath {
    /// In memory: gone with the process.
    Memory,
    /// In a file.
    File(PathBuf),
}

/// Why the ledger cannot be opened; each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "state file {0} is in use by another process; stop that one, or give this one a --state.path of its own"
    )]
    Locked(PathBuf),
    /// The file or its directory cannot be written.
    #[error(
        "cannot open state file {path}: {error}; give --state.path a file in a directory that this user can write, or :memory:"
    )]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: String,
    },
    /// It belongs to another service.
    #[error(
        "state file {path} belongs to the service at {found}, not to {wanted}; give --state.path another file for this one"
    )]
    OtherService {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Whose it would have to be.
        wanted: String,
    },
    /// It is a database of another program.
    #[error("{0} is a database of another program; give --state.path another file")]
    Foreign(PathBuf),
    /// There is none.
    #[error(
        "there is no state file {0}; give --state.path the exporter's own, or run this in the directory that the exporter runs in"
    )]
    Missing(PathBuf),
    /// It waits for its exporter to bring it up to date.
    #[error(
        "state file {path} was last written by an older version (schema {version}); start this version of the exporter with it first"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema.
        version: i64,
    },
    /// A newer program wrote it in a way that this one cannot read.
    #[error(
        "state file {path} was written by a newer version (schema {version}); run that version, or give --state.path another file"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        version: i64,
    },
    /// SQLite failed in some other way.
    #[error("state file {path}: {error}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
}

/// An open file that is ours.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// Held until the process ends; the system lets go of it in any case.
    pub(super) lock: Option<File>,
    /// Where a damaged file was put.
    pub(super) set_aside: Option<PathBuf>,
}

// === impl StatePath ===

impl StatePath {
    /// Reads `--state.path`.
    pub fn parse(text: &str) -> Self {
        if text == ":memory:" {
            Self::Memory
        } else {
            Self::File(PathBuf::from(text))
        }
    }
}

impl std::fmt::Display for StatePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str(":memory:"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Opens the file, creates it where it is missing, and checks that it is whole and ours.
pub(super) fn open(path: &StatePath, base_url: &str) -> Result<Opened, OpenError> {
    let path = match path {
        StatePath::Memory => {
            let error = |error| OpenError::Sqlite {
                path: ":memory:".into(),
                error,
            };
            let connection = Connection::open_in_memory().map_err(error)?;
            schema::configure(&connection)
                .and_then(|()| schema::create(&connection))
                .map_err(error)?;
            return Ok(Opened {
                connection,
                lock: None,
                set_aside: None,
            });
        }
        StatePath::File(path) => path,
    };
    let lock = lock(path)?;
    match open_whole(path, base_url) {
        Ok(connection) => Ok(Opened {
            connection,
            lock: Some(lock),
            set_aside: None,
        }),
        Err(Failure::Sqlite(error)) if is_unusable(&error) => {
            begin_afresh(path, base_url, lock, &error)
        }
        Err(Failure::Sqlite(error)) => Err(sqlite(path, error)),
        Err(Failure::Refused(error)) => Err(error),
    }
}

/// Sets a damaged file aside and begins a fresh one. No connection to the file may be open.
pub(super) fn begin_afresh(
    path: &Path,
    base_url: &str,
    lock: File,
    error: &dyn std::fmt::Display,
) -> Result<Opened, OpenError> {
    let aside = put_aside(path).map_err(|error| unwritable(path, &error))?;
    tracing::error!(
        file = %path.display(), aside = %aside.display(), %error,
        "the state file is damaged; it was set aside and a fresh one is begun: counters start again at 0, and log records that waited in it are lost"
    );
    match open_whole(path, base_url) {
        Ok(connection) => Ok(Opened {
            connection,
            lock: Some(lock),
            set_aside: Some(aside),
        }),
        Err(Failure::Sqlite(error)) => Err(sqlite(path, error)),
        Err(Failure::Refused(error)) => Err(error),
    }
}

/// Why a file that can be locked cannot be used.
enum Failure {
    Sqlite(rusqlite::Error),
    Refused(OpenError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Nothing is written before the file is known to be ours.
fn open_whole(path: &Path, base_url: &str) -> Result<Connection, Failure> {
    let connection = Connection::open(path)?;
    let fresh = schema::is_fresh(&connection)?;
    if !fresh {
        check_owner(&connection, path, base_url)?;
    }
    schema::configure(&connection)?;
    if fresh {
        schema::create(&connection)?;
    }
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Err(damage(&verdict).into());
    }
    if !fresh {
        schema::migrate(&connection, schema::STEPS)?;
    }
    Ok(connection)
}

/// Opens the state file of an exporter, running or not, from another process. Nothing is created.
pub(super) fn open_beside(path: &Path) -> Result<Connection, OpenError> {
    let sqlite = |error| OpenError::Sqlite {
        path: path.to_owned(),
        error,
    };
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    // Readable and writable: also a reader of a file with a write-ahead log writes beside it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(super::BUSY).map_err(sqlite)?;
    check_application(&connection, path)?;
    Ok(connection)
}

/// Whether it is a file of this program, in a schema that it can read.
pub(super) fn check_application(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let application: i64 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(sqlite)?;
    if application != schema::APPLICATION_ID {
        return Err(OpenError::Foreign(path.to_owned()));
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let versions: Option<(i64, i64)> = connection
        .query_row("SELECT schema_version, oldest_reader FROM state", [], read)
        .optional()
        .map_err(sqlite)?;
    match versions {
        Some((version, oldest_reader)) if oldest_reader > schema::VERSION => {
            Err(OpenError::Newer {
                path: path.to_owned(),
                version,
            })
        }
        _ => Ok(()),
    }
}

fn check_owner(connection: &Connection, path: &Path, wanted: &str) -> Result<(), Failure> {
    match check_application(connection, path) {
        Ok(()) => {}
        Err(OpenError::Sqlite { error, .. }) => return Err(Failure::Sqlite(error)),
        Err(error) => return Err(Failure::Refused(error)),
    }
    let found: Option<String> = connection
        .query_row("SELECT base_url FROM state", [], |row| row.get(0))
        .optional()?;
    match found {
        Some(found) if found != wanted => Err(Failure::Refused(OpenError::OtherService {
            path: path.to_owned(),
            found,
            wanted: wanted.to_owned(),
        })),
        _ => Ok(()),
    }
}

/// Takes the lock file beside the state file. SQLite's own exclusive mode would keep the tools from reading a live ledger.
fn lock(path: &Path) -> Result<File, OpenError> {
    let lock_path = with_suffix(path, ".lock");
    let file = private()
        .open(&lock_path)
        .map_err(|error| unwritable(path, &error))?;
    // `check` shares the lock for an instant, to see whether it is free.
    let second = || {
        std::thread::sleep(GLANCE);
        file.try_lock()
    };
    match file.try_lock().or_else(|_| second()) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(unwritable(path, &error)),
    }
    // The file is made here, since SQLite would make it readable for everybody.
    private()
        .open(path)
        .map_err(|error| unwritable(path, &error))?;
    Ok(file)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Renames the file and what SQLite keeps beside it.
fn put_aside(path: &Path) -> io::Result<PathBuf> {
    let second = Timestamp::now().as_second();
    let mut aside = with_suffix(path, &format!(".damaged-{second}"));
    // Another one may have been set aside in the same second.
    for number in 2.. {
        if !aside.exists() {
            break;
        }
        aside = with_suffix(path, &format!(".damaged-{second}-{number}"));
    }
    std::fs::rename(path, &aside)?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    private().open(path)?;
    Ok(aside)
}

pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Whether a file that is ours cannot be read although it is whole for SQLite: a table or a value is not what it has to be. It would be so
/// at every start.
pub(super) fn is_unusable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    let missing = |message: &Option<String>| {
        message
            .as_ref()
            .is_some_and(|message| message.starts_with("no such "))
    };
    match error {
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::InvalidColumnName(_) => true,
        E::SqliteFailure(_, message) => is_damage(error) || missing(message),
        E::SqlInputError { msg, .. } => msg.starts_with("no such "),
        _ => false,
    }
}

fn damage(verdict: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
        Some(verdict.to_owned()),
    )
}

pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure,
        ) => OpenError::Unwritable {
            path: path.to_owned(),
            error: error.to_string(),
        },
        _ => OpenError::Sqlite {
            path: path.to_owned(),
            error,
        },
    }
}

fn unwritable(path: &Path, error: &io::Error) -> OpenError {
    OpenError::Unwritable {
        path: path.to_owned(),
        error: error.to_string(),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
