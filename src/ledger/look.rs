//! Reading a state file from another process.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::open::{OpenError, check_application, damage, is_marked, noted_damage, with_suffix};
use super::{BUSY, schema};

/// What a state file says, read without changing anything, whether an exporter runs with it or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// An exporter runs with it.
    pub held: bool,
    /// What is in it.
    pub content: Content,
}

/// What is in a state file.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing yet, or the file does not exist.
    Nothing,
    /// It is damaged, or its content is lost; with SQLite's message or another reason.
    Damaged(String),
    /// An exporter's state.
    State(Box<Summary>),
}

/// What is known of an exporter's state.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The organization's id, once known.
    pub organization: Option<String>,
    /// Log records that wait for the collector.
    pub waiting: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

// === impl Look ===

impl Look {
    /// Looks into a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a state file that this program can use.
    pub fn at(path: &Path) -> Result<Self, OpenError> {
        // As the exporter does: the lock and the log are beside the target of a symbolic link.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let lock = File::open(with_suffix(path, ".lock")).map(|file| file.try_lock_shared());
        let held = matches!(lock, Ok(Err(TryLockError::WouldBlock)));
        let content = match (std::fs::metadata(path), noted_damage(path)) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => Content::Nothing,
            (Err(error), _) => return Err(OpenError::unwritable(path, &error)),
            (Ok(metadata), _) if !metadata.is_file() => return Err(OpenError::irregular(path)),
            (_, Some(how)) => Content::Damaged(how),
            // SQLite would delete a log that is left over beside an empty file.
            (Ok(metadata), _) if metadata.len() == 0 => empty(path, held),
            _ => match read(path, held) {
                // Without its index, a log is not read: the content may be there.
                Ok(None) if has_log(path) => Content::Nothing,
                Ok(None) => empty(path, held),
                Ok(Some(summary)) => Content::State(Box::new(summary)),
                Err(error) => Content::Damaged(damage(path, error)?),
            },
        };
        Ok(Self { held, content })
    }
}

/// Returns what an empty file says: an exporter that runs may be about to fill it.
fn empty(path: &Path, held: bool) -> Content {
    match !held && is_marked(path) {
        true => Content::Damaged("it was in use before and is empty now".to_owned()),
        false => Content::Nothing,
    }
}

/// Reports whether a write-ahead log is there, or left over.
fn has_log(path: &Path) -> bool {
    let log = with_suffix(path, "-wal").metadata();
    log.is_ok_and(|log| log.len() > 0)
}

/// Reads a file; `None` if it is empty.
fn read(path: &Path, held: bool) -> Result<Option<Summary>, OpenError> {
    let sqlite = |error| OpenError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let connection = connect(path, held).map_err(sqlite)?;
    if schema::is_empty(&connection).map_err(sqlite)? {
        return Ok(None);
    }
    check_application(&connection, path)?;
    let sql = "SELECT organization, (SELECT coalesce(sum(records - acknowledged), 0) FROM outbox),
                (SELECT count(*) FROM dead_letters) FROM state";
    let summary = connection.query_row(sql, [], |row| {
        Ok(Summary {
            organization: row.get(0)?,
            waiting: row.get(1)?,
            dead_letters: row.get(2)?,
        })
    });
    Ok(Some(summary.map_err(sqlite)?))
}

/// Opens a connection that writes nothing. A plain reader creates files beside the database; so without a write-ahead
/// log the file is opened as immutable, and with one its index is only read.
fn connect(path: &Path, held: bool) -> rusqlite::Result<Connection> {
    let logged = (held || has_log(path)) && with_suffix(path, "-shm").exists();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let url = url::Url::from_file_path(&absolute)
        .map_err(|()| rusqlite::Error::InvalidPath(PathBuf::from(path)))?;
    let mode = if logged { "readonly_shm" } else { "immutable" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("{url}?{mode}=1"), flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}
