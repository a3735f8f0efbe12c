//! Opening the ledger: the tables are created, or what is in the file is checked.
//!
//! A disk that fails is no damage, although SQLite says so of some reads that fail. So a file is damaged only if it can be read from beginning to
//! end, and if a new connection finds it damaged too.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::file::{OpenError, StateFile, other_version};
use super::labels::{ActorPrivacy, LabelsInUse};
use super::outbox;
use super::{BUSY, micros, schema};
use crate::machine::Machine;

/// How the ledger is kept.
#[derive(Clone)]
pub struct LedgerOptions {
    /// `--state.path`; `None` is in memory, gone with the process.
    pub path: Option<PathBuf>,
    /// `--state.max-size`, in bytes.
    pub max_size: u64,
    /// The API's base address.
    pub base_url: String,
    /// Whether records are kept for a collector.
    pub outbox: bool,
    /// `--metrics.actor-label`.
    pub actor_label: ActorPrivacy,
    /// `--metrics.max-actors`.
    pub max_actors: usize,
    /// The maximum number of dead letters; they also take at most a quarter of the file.
    pub max_dead_letters: u32,
    /// The clock, and the threads for calls of SQLite.
    pub machine: Arc<dyn Machine>,
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

/// Connects to the file, creates what is in it if it is empty, checks that it is whole, and writes a new fencing token. Nothing is written
/// before it is known to be ours.
pub(super) fn open(options: &LedgerOptions) -> Result<Connection, OpenError> {
    let path = options.shown_path();
    let sqlite = |error| OpenError::sqlite(path, error);
    let connection = connect(options.path.as_deref()).map_err(sqlite)?;
    if schema::is_empty(&connection).map_err(sqlite)? {
        create(&connection, options).map_err(sqlite)?;
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
    check(&connection).map_err(sqlite)?;
    LabelsInUse::begin(&connection, &options.actor_label).map_err(sqlite)?;
    let update = "UPDATE state SET fence = ?1, base_url = ?2";
    let token = fastrand::i64(1..);
    let written = connection.execute(update, params![token, options.base_url]);
    written.map_err(sqlite)?;
    Ok(connection)
}

/// Creates the tables and what they begin with, in one transaction.
fn create(connection: &Connection, options: &LedgerOptions) -> rusqlite::Result<()> {
    // It has no effect on a file that is not empty.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    schema::configure(connection)?;
    let transaction = connection.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", schema::APPLICATION_ID)?;
    transaction.execute_batch(schema::TABLES)?;
    transaction.execute(
        "INSERT INTO state (one, schema_version, version, base_url, instance_id, created_at, actor_label, fence, tail)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, '')",
        params![
            schema::VERSION,
            schema::PROGRAM_VERSION,
            options.base_url,
            uuid::Uuid::new_v4().to_string(),
            micros(options.machine.now()),
            options.actor_label.scheme(),
            fastrand::i64(1..)
        ],
    )?;
    transaction.commit()?;
    // From now on the header of the file itself says whose it is.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Connects to a file that exists, by its absolute path, or to one in memory. SQLite takes a relative path that begins with `file:` for a URI.
pub(super) fn connect(path: Option<&Path>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match path {
        Some(path) => Connection::open_with_flags(path, flags)?,
        None => Connection::open_in_memory_with_flags(flags)?,
    };
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Checks that what is in the file is whole.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    schema::check(connection)?;
    outbox::check(connection)
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
        let why = format!("its schema is {version}, not {}", schema::VERSION);
        // The first versions did not write it.
        let version: Option<String> = connection
            .query_row("SELECT version FROM state", [], |row| row.get(0))
            .ok();
        return Err(OpenError::Unusable(other_version(
            path,
            version.as_deref(),
            &why,
        )));
    }
    Ok(())
}

/// Returns the error of a file that could not be opened or checked: that it is damaged, only if it really is.
pub(super) fn judge(file: &StateFile, error: OpenError) -> OpenError {
    let error = match error {
        OpenError::Sqlite { error, .. } if is_damage(&error) => error,
        error => return error,
    };
    let path = file.path();
    match is_damaged(file) {
        // It has no header of SQLite.
        Ok(true) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            OpenError::foreign(path)
        }
        Ok(true) => OpenError::Damaged {
            path: path.to_owned(),
            what: error.to_string(),
        },
        Ok(false) => OpenError::sqlite(path, error),
        Err(error) => OpenError::io(path, &error),
    }
}

/// Looks with a new connection whether a file is damaged.
pub(super) fn is_damaged(file: &StateFile) -> io::Result<bool> {
    file.read_through()?;
    let checked = connect(Some(file.path())).and_then(|connection| check(&connection));
    Ok(checked.is_err_and(|error| is_damage(&error)))
}

/// Reports whether SQLite finds the file damaged.
fn is_damage(error: &rusqlite::Error) -> bool {
    use ErrorCode as Code;
    matches!(
        error.sqlite_error_code(),
        Some(Code::DatabaseCorrupt | Code::NotADatabase)
    )
}
