//! The tables of the state file, and which versions of it this program can read.

use rusqlite::Connection;

/// The version of the schema that this program writes.
pub(super) const VERSION: i64 = 1;

/// The oldest program version, as a schema version, that can still read what this one writes.
pub(super) const OLDEST_READER: i64 = 1;

/// Marks the file as ours in SQLite's header: `orgd`.
pub(super) const APPLICATION_ID: i64 = 0x6f72_6764;

/// Times are microseconds since the epoch; ids are 64-bit hashes, stored as SQLite's signed integers.
const TABLES: &str = "
-- One row: whose file this is, how far the ledger reaches, and the walk under way.
CREATE TABLE state (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version INTEGER NOT NULL,
    oldest_reader  INTEGER NOT NULL,
    base_url       TEXT NOT NULL,
    organization   TEXT,
    instance_id    TEXT NOT NULL,
    filters        TEXT NOT NULL,
    -- When the ledger began, by the service's clock; NULL before the first answer.
    born_at        INTEGER,
    -- Nothing created before it is ever taken; NULL: no such limit.
    start_floor    INTEGER,
    -- Events created before it are delivered but not counted.
    count_floor    INTEGER,
    filter_floor   INTEGER,
    prune_floor    INTEGER,
    -- The frontier: the cursor for newer entries, and the newest creation time taken, never later than the service's clock.
    cursor         TEXT,
    frontier_at    INTEGER,
    frontier_id    INTEGER,
    newest_at      INTEGER,
    reread_at      INTEGER,
    recreated_at   INTEGER,
    walk           TEXT,
    walk_direction TEXT,
    walk_floor     INTEGER,
    -- 1 on the way up where the way down ended on an entry of the ledger.
    walk_joined    INTEGER NOT NULL DEFAULT 0,
    walk_started   INTEGER,
    -- The page a first start began with: it cannot be asked for again.
    walk_top       BLOB
) STRICT;

-- Every entry held, so that none is taken twice. The key begins with the time, so that inserts append.
CREATE TABLE seen (
    created INTEGER NOT NULL,
    id      INTEGER NOT NULL,
    PRIMARY KEY (created, id)
) STRICT, WITHOUT ROWID;

-- Pages passed on the way down, the deepest last.
CREATE TABLE walk_marks (
    depth  INTEGER PRIMARY KEY,
    before TEXT,
    ends   TEXT,
    bottom INTEGER NOT NULL
) STRICT;

-- What was counted, under the label it was counted under; scheme says how the label was made.
CREATE TABLE events (
    scheme        TEXT NOT NULL,
    activity_type TEXT NOT NULL,
    actor         TEXT NOT NULL,
    count         INTEGER NOT NULL,
    PRIMARY KEY (scheme, activity_type, actor)
) STRICT, WITHOUT ROWID;

CREATE TABLE actors (
    scheme  TEXT NOT NULL,
    actor   TEXT NOT NULL,
    name    TEXT,
    last_at INTEGER NOT NULL,
    PRIMARY KEY (scheme, actor)
) STRICT, WITHOUT ROWID;

CREATE TABLE totals (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A row per page: its records as one compressed block, and how many of them were acknowledged.
CREATE TABLE outbox (
    page         INTEGER PRIMARY KEY AUTOINCREMENT,
    arrived      INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    trace        BLOB,
    block        BLOB NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    message TEXT NOT NULL,
    kind    INTEGER NOT NULL,
    raw     TEXT NOT NULL
) STRICT;
";

/// Sets a connection up. A fresh file gets the header and the tables; `auto_vacuum` must come before the first table.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // What Prometheus has seen must survive a power cut: every commit is on disk before anybody is told.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The log beside the file counts for the volume's size too.
    connection.pragma_update(None, "wal_autocheckpoint", super::WAL_BYTES / 4096)?;
    connection.pragma_update(None, "journal_size_limit", super::WAL_BYTES)?;
    connection.pragma_update(None, "cache_size", -2048)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Whether the file has no tables yet.
pub(super) fn is_fresh(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))
}

/// Creates the tables.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.execute_batch(TABLES)
}
