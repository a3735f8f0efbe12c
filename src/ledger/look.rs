//! Reading a state file from another process.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::open::{OpenError, check_application, damage, is_marked, marked_damage, with_suffix};
use super::{BUSY, TailState, schema};

/// The maximum time for which a file is checked for damage: `check` waits a few seconds for all of it.
const LONGEST_CHECK: Duration = Duration::from_secs(2);

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
    /// The service's base address.
    pub base_url: String,
    /// The organization's id, once known.
    pub organization: Option<String>,
    /// It took the place of a damaged file, which had counters of its own.
    pub recreated: bool,
    /// The tail's state.
    pub tail: TailState,
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
        let held = is_held(path);
        let unreadable = |error: std::io::Error| OpenError::unwritable(path, &error);
        let noted = marked_damage(path);
        let content = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Content::Nothing,
            Err(error) => return Err(unreadable(error)),
            Ok(metadata) if !metadata.is_file() => {
                return Err(unreadable(std::io::ErrorKind::IsADirectory.into()));
            }
            Ok(_) if noted.is_some() => Content::Damaged(noted.unwrap_or_default()),
            // SQLite would delete a log that is left over beside it.
            Ok(metadata) if metadata.len() == 0 => empty(path, held),
            Ok(_) => match read(path, held) {
                // Without its index, a log is not read: the content may be there.
                Ok(Content::Nothing) if !has_log(path) => empty(path, held),
                Ok(content) => content,
                Err(error) => Content::Damaged(damage(path, error)?.to_string()),
            },
        };
        Ok(Self { held, content })
    }
}

/// Reports whether an exporter has the lock file.
fn is_held(path: &Path) -> bool {
    let lock = File::open(with_suffix(path, ".lock")).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
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

fn read(path: &Path, held: bool) -> Result<Content, OpenError> {
    let sqlite = |error| OpenError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let mut connection = connect(path, held).map_err(sqlite)?;
    if schema::is_empty(&connection).map_err(sqlite)? {
        return Ok(Content::Nothing);
    }
    check_application(&connection, path)?;
    if !held {
        schema::check(&mut connection, LONGEST_CHECK).map_err(sqlite)?;
    }
    let tail = schema::read_tail(&connection).map_err(sqlite)?;
    let sql = "SELECT base_url, organization, recreated_at IS NOT NULL,
                (SELECT coalesce(sum(records - acknowledged), 0) FROM outbox), (SELECT count(*) FROM dead_letters) FROM state";
    let summary = connection.query_row(sql, [], |row| {
        Ok(Summary {
            base_url: row.get(0)?,
            organization: row.get(1)?,
            recreated: row.get(2)?,
            tail,
            waiting: row.get::<_, i64>(3)?.unsigned_abs(),
            dead_letters: row.get::<_, i64>(4)?.unsigned_abs(),
        })
    });
    Ok(Content::State(Box::new(summary.map_err(sqlite)?)))
}

/// Opens a connection that writes nothing. A plain reader creates files beside the database; so without a write-ahead
/// log the file is opened as immutable, and with one its index is only read.
fn connect(path: &Path, held: bool) -> rusqlite::Result<Connection> {
    let logged = (held || has_log(path)) && with_suffix(path, "-shm").exists();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let url = url::Url::from_file_path(&absolute)
        .map_err(|()| rusqlite::Error::InvalidPath(PathBuf::from(path)))?;
    let mode = if logged {
        "readonly_shm=1"
    } else {
        "immutable=1"
    };
    let connection = Connection::open_with_flags(
        format!("{url}?{mode}"),
        OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}
