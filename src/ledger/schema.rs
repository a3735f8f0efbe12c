//! The tables of the state file.
//!
//! Times are microseconds since the epoch. Ids are 64-bit hashes, stored as SQLite's signed integers. There is one schema: a file of another
//! version is refused.

use rusqlite::Connection;

/// The version of the schema.
pub(super) const VERSION: i64 = 9;

/// The version of this program.
pub(super) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Marks the file as ours in SQLite's header: `orgd`.
pub(super) const APPLICATION_ID: i64 = 0x6f72_6764;

/// The write-ahead log is written back, and truncated, at this size, in bytes.
pub(super) const WAL_BYTES: u64 = 1024 * 1024;

/// What creates the tables.
pub(super) const TABLES: &str = "
-- One row: whose file this is, and the tail's state as JSON.
CREATE TABLE state (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version    INTEGER NOT NULL,
    -- The version of the program that wrote the tail's state.
    version           TEXT NOT NULL,
    base_url          TEXT NOT NULL,
    organization      TEXT,
    organization_name TEXT,
    instance_id       TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    -- How the labels of actors are made.
    actor_label       TEXT NOT NULL,
    -- The newest creation time of an entry, and of an entry whose id was pruned.
    newest_at         INTEGER,
    pruned_at         INTEGER,
    -- Changes with each process that opens the file; a process that finds another value stops.
    fence             INTEGER NOT NULL,
    -- The records of all entries that were created up to this time were delivered when the row was written.
    delivered_through INTEGER,
    -- The number of the last sweep.
    settled           INTEGER NOT NULL DEFAULT 0,
    -- Since when log records wait for older entries that are still to be read.
    held_since        INTEGER,
    -- The oldest and the newest creation time of the entries that were read while no collector was configured; the oldest one is absent once
    -- they are reported as a gap.
    unrecorded_from   INTEGER,
    unrecorded_to     INTEGER,
    -- The number of the last log record, and when the last checkpoint was made.
    sequence          INTEGER NOT NULL DEFAULT 0,
    checkpoint_at     INTEGER,
    tail              TEXT NOT NULL
) STRICT;

-- The known ids, a row per page: 8 bytes each, little-endian.
CREATE TABLE pages (
    page   INTEGER PRIMARY KEY,
    -- The newest creation time in it.
    newest INTEGER NOT NULL,
    -- The number of the sweep that settles them.
    sweep  INTEGER NOT NULL,
    ids    BLOB NOT NULL
) STRICT;

-- The log records that wait, a row per page: an lz4 frame of lines of JSON, one a record, and how many were acknowledged.
CREATE TABLE outbox (
    -- No number is used twice.
    page         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Rows are sent in the order of their oldest creation time, and of the newest one if that is the same.
    oldest       INTEGER NOT NULL,
    newest       INTEGER NOT NULL,
    arrived      INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    block        BLOB NOT NULL
) STRICT;
CREATE INDEX outbox_order ON outbox (oldest, newest, page);
CREATE INDEX outbox_arrived ON outbox (arrived);

-- What was counted, under the label it was counted under.
CREATE TABLE events (
    activity_type TEXT NOT NULL,
    actor         TEXT NOT NULL,
    count         INTEGER NOT NULL,
    first_at      INTEGER NOT NULL,
    PRIMARY KEY (actor, activity_type)
) STRICT, WITHOUT ROWID;

CREATE TABLE actors (
    actor   TEXT PRIMARY KEY,
    name    TEXT,
    last_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (
    name     TEXT PRIMARY KEY,
    value    INTEGER NOT NULL,
    first_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    message  TEXT NOT NULL,
    -- The number of its record, if it has one.
    sequence INTEGER,
    -- A line, as in the outbox.
    line     TEXT NOT NULL,
    -- 1 if an operator wants it sent again.
    queued   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX dead_letters_queued ON dead_letters (queued);
";

/// Configures a connection, without writing to a file that is there.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(super::BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A value that Prometheus has seen must survive a power failure.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", WAL_BYTES / 4096)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
    connection.pragma_update(None, "cache_size", -2048)?;
    // A container may have no directory for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Reports whether the file has no tables yet. A file without tables but with a version or an application id belongs to another program.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema) AND user_version = 0 AND application_id = 0
         FROM pragma_user_version, pragma_application_id",
        [],
        |row| row.get(0),
    )
}

/// Checks that tables and indexes are whole; an error says what is damaged. A quick check would leave out what a commit would meet later.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "PRAGMA integrity_check(1)";
    let found: String = connection.query_row(sql, [], |row| row.get(0))?;
    match &*found {
        "ok" => Ok(()),
        _ => Err(corrupt(found)),
    }
}

/// The error of SQLite for damage.
pub(super) fn corrupt(what: String) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(what))
}
