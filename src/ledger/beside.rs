//! The state file of an exporter, running or not, opened by another command.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::file::{OpenError, StateFile, check_regular, probe, with_suffix};
use super::open::{self, check_application, connect};

/// What is known of a state file that the exporter may have open.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// Another process has it.
    pub(crate) is_locked: bool,
    /// The bytes that it can have: those it has, and those that are free on its disk. `None` if the disk does not say.
    pub(crate) room: Option<u64>,
    /// The free bytes of the disk.
    pub(crate) free: Option<u64>,
    /// What is in it; `None` if it is missing or empty and can be created.
    pub(crate) content: Option<Summary>,
}

/// The contents of a state file, for a user.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The organization's id, once known.
    pub(crate) organization: Option<String>,
    /// Log records that wait for the collector.
    pub(crate) waiting: u64,
    /// Dead letters.
    pub(crate) dead_letters: u64,
}

// === impl Inspection ===

impl Inspection {
    /// Looks at a file, and creates, locks and writes another one beside it for a moment.
    ///
    /// # Errors
    /// If it cannot be read, written or created, is not a state file that this program can use, or is damaged.
    pub(crate) fn at(path: &Path) -> Result<Self, OpenError> {
        let is_missing = match path.metadata() {
            Ok(file) => file.is_file() && file.len() == 0,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        let (mut is_locked, mut content) = (false, None);
        if is_missing {
            probe(path)?;
        } else {
            is_locked = is_claimed(path)?;
            content = Some(Summary::read(path, !is_locked)?);
        }
        let free = free_bytes(path);
        let own = ["", "-wal"].map(|suffix| with_suffix(path, suffix).metadata());
        let own: u64 = own.iter().flatten().map(|file| file.len()).sum();
        Ok(Self {
            is_locked,
            room: free.map(|free| free.saturating_add(own)),
            free,
            content,
        })
    }
}

// === impl Summary ===

impl Summary {
    /// Reads a file. One that no exporter uses is checked as by the next start.
    fn read(path: &Path, is_checked: bool) -> Result<Self, OpenError> {
        // The write-ahead log of a killed exporter stays as it is.
        let has_log = with_suffix(path, "-wal").exists();
        let read = || {
            let connection = open_beside(path)?;
            let sqlite = |error| OpenError::sqlite(path, error);
            let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            connection.set_db_config(keep, has_log).map_err(sqlite)?;
            if is_checked {
                open::check(&connection).map_err(sqlite)?;
            }
            let sql = "SELECT organization, (SELECT coalesce(sum(records - acknowledged), 0) FROM outbox),
                        (SELECT count(*) FROM dead_letters) FROM state";
            let summary = connection.query_row(sql, [], |row| {
                Ok(Self {
                    organization: row.get(0)?,
                    waiting: row.get(1)?,
                    dead_letters: row.get(2)?,
                })
            });
            summary.map_err(sqlite)
        };
        match read() {
            Err(error) if is_checked => Err(match StateFile::claim(path) {
                Ok(file) => open::judge(&file, error),
                Err(_) => error,
            }),
            summary => summary,
        }
    }
}

/// Reports whether another process has a file that exists. Call it before SQLite opens the file.
fn is_claimed(path: &Path) -> Result<bool, OpenError> {
    match StateFile::claim(path) {
        Ok(_) => Ok(false),
        Err(OpenError::Locked(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the free bytes of the disk that a file is on, or will be.
fn free_bytes(path: &Path) -> Option<u64> {
    let path = path.canonicalize().unwrap_or(path.to_owned());
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    let disk = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))).ok()?;
    // Some file systems do not know their size.
    (disk.f_blocks > 0).then(|| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Opens a file that exists.
pub(super) fn open_beside(path: &Path) -> Result<Connection, OpenError> {
    check_regular(path)?;
    let io = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => OpenError::missing(path),
        _ => OpenError::io(path, &error),
    };
    // SQLite would open a file that this user cannot write for reading, and says little about one that it cannot open.
    File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(io)?;
    let path = &path.canonicalize().map_err(io)?;
    // A reader of a file with a write-ahead log writes too.
    probe(path)?;
    let connection = connect(Some(path)).map_err(|error| OpenError::sqlite(path, error))?;
    check_application(&connection, path)?;
    Ok(connection)
}
