//! A look at a state file that changes nothing, not even what SQLite keeps beside it, while an exporter has it or none does.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::open::{OpenError, check_application, is_unusable, sqlite, with_suffix};
use super::{BUSY, schema};

/// What a state file says of itself.
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
    /// Nothing yet, or there is no such file.
    Nothing,
    /// It is damaged: an exporter would set it aside and begin afresh. With what SQLite says.
    Damaged(String),
    /// An exporter's state.
    State {
        /// The service that it belongs to.
        base_url: String,
        /// The organization that it belongs to, once known.
        organization: Option<String>,
        /// Its schema is older than this program's: it is brought up to date when the exporter opens it.
        older: bool,
        /// Log records that wait for the collector.
        waiting: u64,
        /// Dead letters.
        dead_letters: u64,
    },
}

// === impl Look ===

impl Look {
    /// Looks into a file.
    ///
    /// # Errors
    /// Where it cannot be read, or is no state file that this program can use.
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
                Err(OpenError::Sqlite { error, .. }) => return Err(sqlite(path, error)),
                Err(error) => return Err(error),
            },
        };
        Ok(Self { held, content })
    }
}

/// Whether an exporter has the lock file. Where none has, the lock is shared for a moment, and nothing is written.
fn is_held(path: &Path) -> bool {
    match File::open(with_suffix(path, ".lock")).map(|file| file.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => true,
        Ok(Ok(()) | Err(TryLockError::Error(_))) | Err(_) => false,
    }
}

fn read(path: &Path, held: bool) -> Result<Content, OpenError> {
    let failed = |error| OpenError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let connection = connect(path, held).map_err(failed)?;
    if schema::is_fresh(&connection).map_err(failed)? {
        return Ok(Content::Nothing);
    }
    check_application(&connection, path)?;
    if !held {
        // As the exporter does at its start; beside a running one it would only be work.
        let verdict: String = connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .map_err(failed)?;
        if verdict != "ok" {
            return Ok(Content::Damaged(verdict));
        }
    }
    let owner = connection
        .query_row(
            "SELECT base_url, organization, schema_version FROM state",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)),
        )
        .optional();
    let Some((base_url, organization, version)) = owner.map_err(failed)? else {
        return Ok(Content::Nothing);
    };
    let count = |sql: &str| {
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
            .map_err(failed)
    };
    Ok(Content::State {
        base_url,
        organization,
        older: version < schema::VERSION,
        waiting: count("SELECT coalesce(sum(records - acknowledged), 0) FROM outbox")?,
        dead_letters: count("SELECT count(*) FROM dead_letters")?,
    })
}

/// A connection that writes nothing. A plain reader makes files beside the database; so where there is no write-ahead log the file is read
/// as one that nobody changes, and where there is one its index is only read.
fn connect(path: &Path, held: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let left_over = || std::fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let logged = (held || left_over()) && with_suffix(path, "-shm").exists();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let url = url::Url::from_file_path(&absolute)
        .map_err(|()| rusqlite::Error::InvalidPath(PathBuf::from(path)))?;
    let connection = Connection::open_with_flags(
        format!(
            "{url}?{}",
            if logged {
                "readonly_shm=1"
            } else {
                "immutable=1"
            }
        ),
        flags,
    )?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}
