//! Reading a state file from another process.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::open::{OpenError, check_application, is_unusable, open_beside, with_suffix};
use super::{BUSY, schema};

/// The maximum time for which a file is checked for damage: `check` waits a few seconds for all of it.
const LONGEST_CHECK: Duration = Duration::from_secs(2);

/// What a state file says, read without changing anything, whether an exporter runs with it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// An exporter runs with it.
    pub held: bool,
    /// What is in it.
    pub content: Content,
}

/// What is in a state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing yet, or the file does not exist.
    Nothing,
    /// It is damaged; with SQLite's message.
    Damaged(String),
    /// An exporter's state.
    State {
        /// The service's base address.
        base_url: String,
        /// The organization's id, once known.
        organization: Option<String>,
        /// The exporter will migrate it when it opens it.
        older: bool,
        /// Log records that wait for the collector.
        waiting: u64,
        /// Dead letters.
        dead_letters: u64,
    },
}

/// The point at which the counters of a state file begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The service's base address.
    pub base_url: String,
    /// The filters' fingerprint.
    pub filters: String,
    /// The first response, by the service's clock.
    pub first_sync_at: Timestamp,
    /// Creation time of the newest entry that existed before and is not counted.
    pub newest_uncounted: Option<Timestamp>,
    /// It took the place of a damaged file, which had counters of its own.
    pub recreated: bool,
}

// === impl Look ===

impl Look {
    /// Looks into a file.
    ///
    /// # Errors
    /// If it cannot be read, or is not a state file that this program can use.
    pub fn at(path: &Path) -> Result<Self, OpenError> {
        let held = is_held(path);
        let unreadable = |error: std::io::Error| OpenError::Unwritable {
            path: path.to_owned(),
            error: error.to_string(),
        };
        let content = match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Content::Nothing,
            Err(error) => return Err(unreadable(error)),
            Ok(metadata) if !metadata.is_file() => {
                return Err(unreadable(std::io::ErrorKind::IsADirectory.into()));
            }
            Ok(_) => match read(path, held) {
                Ok(content) => content,
                Err(OpenError::Sqlite { error, .. }) if is_unusable(&error) => {
                    Content::Damaged(error.to_string())
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Self { held, content })
    }
}

// === impl Beginning ===

impl Beginning {
    /// Reads it from an exporter's state file; `None` if the service has not answered that exporter yet.
    ///
    /// # Errors
    /// If the file is missing, not ours, or cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        let connection = open_beside(path)?;
        let sqlite = |error| OpenError::sqlite(path, error);
        let tail = schema::read_tail(&connection).map_err(sqlite)?;
        let (base_url, recreated): (String, Option<i64>) = connection
            .query_row("SELECT base_url, recreated_at FROM state", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(sqlite)?;
        Ok(tail.first_sync.map(|first| Self {
            base_url,
            filters: tail.filters,
            first_sync_at: first.at,
            newest_uncounted: first.count_floor,
            recreated: recreated.is_some(),
        }))
    }
}

/// Reports whether an exporter has the lock file.
fn is_held(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let lock = File::open(with_suffix(&path, ".lock")).map(|file| file.try_lock_shared());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
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
    let version = check_application(&connection, path)?;
    if !held {
        schema::check(&mut connection, LONGEST_CHECK).map_err(sqlite)?;
    }
    let (base_url, organization) = connection
        .query_row("SELECT base_url, organization FROM state", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(sqlite)?;
    let count = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
            .map_err(sqlite)
    };
    Ok(Content::State {
        base_url,
        organization,
        older: version < schema::VERSION,
        waiting: count("SELECT coalesce(sum(records - acknowledged), 0) FROM outbox")?,
        dead_letters: count("SELECT count(*) FROM dead_letters")?,
    })
}

/// Opens a connection that writes nothing. A plain reader creates files beside the database; so without a write-ahead
/// log the file is opened as immutable, and with one its index is only read.
fn connect(path: &Path, held: bool) -> rusqlite::Result<Connection> {
    let left_over = || {
        with_suffix(path, "-wal")
            .metadata()
            .is_ok_and(|log| log.len() > 0)
    };
    let logged = (held || left_over()) && with_suffix(path, "-shm").exists();
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
