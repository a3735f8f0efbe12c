//! Opening the state file: one process, one organization's file, and a damaged file set aside.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{Settings, schema};

/// `check` shares the lock for a moment; a second attempt after this time tells it from an exporter.
const SECOND_TRY: Duration = Duration::from_millis(50);

/// The maximum time for which a file is checked for damage at the start, while nothing is read and no metrics are shown.
const LONGEST_CHECK: Duration = Duration::from_secs(20);

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

// === impl OpenError ===

impl OpenError {
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            // SQLite does not say why it cannot create a file beside this one.
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                match probe(&path) {
                    Err(why) => Self::io(&path, &why),
                    Ok(()) => Self::unwritable(&path, &error),
                }
            }
            _ => Self::Sqlite { path, error },
        }
    }

    /// The file, or one beside it, could not be opened, locked or renamed.
    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let code = match error.kind() {
            // It stays until the user changes something. Anything else may pass.
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::ReadOnlyFilesystem
            | Kind::InvalidFilename
            | Kind::InvalidInput
            | Kind::Unsupported => return Self::unwritable(path, error),
            // The kind of a loop of symbolic links is not stable.
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Self::unwritable(path, error);
            }
            Kind::StorageFull | Kind::QuotaExceeded => rusqlite::ffi::SQLITE_FULL,
            _ => rusqlite::ffi::SQLITE_IOERR,
        };
        let code = rusqlite::ffi::Error::new(code);
        let error = rusqlite::Error::SqliteFailure(code, Some(error.to_string()));
        let path = path.to_owned();
        Self::Sqlite { path, error }
    }

    /// The file or its directory cannot be written.
    pub(crate) fn unwritable(path: &Path, error: &dyn std::fmt::Display) -> Self {
        Self::Unusable(format!(
            "cannot open state file {}: {error}; set --state.path to a file in a directory that this user can write, or to :memory:",
            path.display()
        ))
    }

    /// It is a file of another program.
    pub(super) fn foreign(path: &Path) -> Self {
        Self::Unusable(format!(
            "{} is not a state file of this program; set --state.path to another file",
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
}

/// Locks the file, and creates it if it is missing. Returns its path, which is not a symbolic link, the lock, and whether
/// the file was in use before: if it is empty now, its content is lost.
pub(super) fn claim(path: &Path) -> Result<(PathBuf, File, bool), OpenError> {
    // A symbolic link and its target are one file, and so have one lock.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // The lock file tells a file that was emptied from one whose creation failed.
    let was_used = path.exists() && is_marked(&path);
    let lock = lock(&path)?;
    // A link stays when the file is set aside, also one whose target was missing.
    let path = path.canonicalize().unwrap_or(path);
    Ok((path, lock, was_used))
}

/// Opens the file, creates what is in it if it is empty, and checks that it is whole. Nothing is written before it is known to be
/// ours.
pub(super) fn open(settings: &Settings, was_used: bool) -> Result<Connection, OpenError> {
    let path = settings.shown_path();
    let sqlite = |error| OpenError::sqlite(path, error);
    let (mut connection, is_empty) = connect(path).map_err(sqlite)?;
    if is_empty {
        schema::create(&connection, settings, was_used).map_err(sqlite)?;
        if was_used {
            tracing::warn!(
                file = %path.display(),
                "the state file was empty; counters start again at 0, and log records that waited are not sent"
            );
        }
        return Ok(connection);
    }
    check_application(&connection, path)?;
    schema::configure(&connection).map_err(sqlite)?;
    schema::check(&mut connection, LONGEST_CHECK).map_err(sqlite)?;
    Ok(connection)
}

/// Connects to a file, and reports whether it is empty.
fn connect(path: &Path) -> rusqlite::Result<(Connection, bool)> {
    let connection = Connection::open(path)?;
    let error = match schema::is_empty(&connection) {
        Err(error) if is_without_index(&error) => error,
        is_empty => return Ok((connection, is_empty?)),
    };
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
    // A reader of a file with a write-ahead log writes too.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .and_then(|connection| {
            connection.busy_timeout(super::BUSY)?;
            Ok(connection)
        })
        .map_err(|error| OpenError::sqlite(path, error))?;
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

/// What is added to the file's name for the note that it was found damaged, and before the time for a copy that was set aside.
const DAMAGED: &str = ".damaged";

/// The number of damaged files that are kept.
const KEPT: usize = 3;

/// What the lock file contains once the state file was created.
const USED: &[u8] = b"The state file beside this one was in use.\n";

/// Takes the lock file beside the state file. SQLite's exclusive mode would keep tools from reading a live file.
fn lock(path: &Path) -> Result<File, OpenError> {
    let io = |error: io::Error| OpenError::io(path, &error);
    let file = private().open(with_suffix(path, ".lock")).map_err(io)?;
    let locked = file.try_lock().or_else(|_| {
        std::thread::sleep(SECOND_TRY);
        file.try_lock()
    });
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    // Created here, because SQLite would make it readable for everybody.
    private().open(path).map_err(io)?;
    Ok(file)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a file beside the state file, and deletes it again.
fn probe(path: &Path) -> io::Result<()> {
    let beside = with_suffix(path, ".probe");
    private().open(&beside)?;
    std::fs::remove_file(beside)
}

/// Reports whether a file that SQLite cannot read is one of ours, by its lock file or its first bytes.
fn is_ours(path: &Path) -> bool {
    let mut header = [0; 72];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let application = schema::APPLICATION_ID.to_be_bytes();
    let has_header = header.starts_with(b"SQLite format 3\0") && header[68..] == application[4..];
    is_marked(path) || (read.is_ok() && has_header)
}

/// Reports whether a state file was created beside the lock file.
pub(super) fn is_marked(path: &Path) -> bool {
    let lock = std::fs::read(with_suffix(path, ".lock"));
    lock.is_ok_and(|text| text == USED)
}

/// Writes to the lock file that the state file beside it was in use, unless it says so.
pub(super) fn mark(path: &Path) -> io::Result<()> {
    if is_marked(path) {
        return Ok(());
    }
    std::fs::write(with_suffix(path, ".lock"), USED)
}

/// Returns why a file of ours cannot be read any more. Any other error, or a file of another program, is an error.
pub(super) fn damage(path: &Path, error: OpenError) -> Result<rusqlite::Error, OpenError> {
    match error {
        OpenError::Sqlite { error, .. } if is_unusable(&error) => match is_ours(path) {
            true => Ok(error),
            false => Err(OpenError::foreign(path)),
        },
        error => Err(error),
    }
}

/// Notes that a running process has found the file damaged, for the next start.
pub(super) fn mark_damaged(path: &Path, why: &str) {
    let mark = with_suffix(path, DAMAGED);
    if let Err(error) = private()
        .open(&mark)
        .and_then(|_| std::fs::write(&mark, why))
    {
        tracing::error!(file = %mark.display(), %error, "cannot note that the state file is damaged");
    }
}

/// Returns why a process found the file damaged while it ran.
pub(super) fn marked_damage(path: &Path) -> Option<String> {
    std::fs::read_to_string(with_suffix(path, DAMAGED)).ok()
}

/// Sets a damaged file aside, and leaves an empty one. No connection to the file may be open.
pub(super) fn set_aside(path: &Path, error: &dyn std::fmt::Display) -> Result<(), OpenError> {
    let aside = replace(path).map_err(|error| OpenError::io(path, &error))?;
    tracing::error!(
        file = %path.display(), aside = %aside.display(), %error,
        "the state file is damaged and was set aside"
    );
    Ok(())
}

/// Renames the file and what SQLite keeps beside it. An empty file takes its place at once, so that the next start reports the loss
/// even if the process is killed on the way.
fn replace(path: &Path) -> io::Result<PathBuf> {
    // The disk may have been full when the process started.
    mark(path)?;
    let now = Timestamp::now().as_microsecond();
    let aside = with_suffix(path, &format!("{DAMAGED}-{now}"));
    // First, because there may be no room for it.
    let empty = with_suffix(path, ".new");
    private().open(&empty)?;
    // Some file systems have no links.
    std::fs::hard_link(path, &aside).or_else(|_| std::fs::rename(path, &aside))?;
    std::fs::rename(empty, path)?;
    for suffix in ["-wal", "-shm"] {
        match std::fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Without the note, the new file would be set aside too.
    if marked_damage(path).is_some() {
        std::fs::remove_file(with_suffix(path, DAMAGED))?;
    }
    forget_old(path);
    Ok(aside)
}

/// Deletes all but the newest damaged files.
fn forget_old(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let prefix = format!("{}{DAMAGED}-", name.to_string_lossy());
    let files = std::fs::read_dir(if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    });
    let names = files
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut copies: Vec<String> = names
        .filter(|name| {
            name.starts_with(&prefix) && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .collect();
    copies.sort_unstable();
    for copy in copies.iter().rev().skip(KEPT) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(directory.join(format!("{copy}{suffix}")));
        }
    }
}

/// Reports whether a file could not be made as large as it has to be, or not be mapped into memory.
fn is_without_index(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull)
    )
}

/// Reports whether SQLite found the file damaged.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Reports whether a file of ours cannot be read although SQLite finds it whole: a table or a value is not what it
/// has to be, and would not be at the next start either.
pub(super) fn is_unusable(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    match error {
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::InvalidColumnType(..)
        | E::QueryReturnedNoRows
        | E::InvalidColumnName(_) => true,
        E::SqliteFailure(_, message) => {
            is_damage(error)
                || message
                    .as_ref()
                    .is_some_and(|message| message.starts_with("no such "))
        }
        E::SqlInputError { msg, .. } => msg.starts_with("no such "),
        _ => false,
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
