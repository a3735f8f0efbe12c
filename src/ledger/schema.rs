//! The tables of the state file, and the migration from older schemas.
//!
//! Times are microseconds since the epoch. Ids are 64-bit hashes, stored as SQLite's signed integers.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};

use super::tail_state::{FirstSync, STRIDE, TailState};
use super::types::EventId;
use super::{Settings, micros, pack_ids, timestamp, unpack_text};
use crate::util;

/// The version of the schema that this program writes.
pub(super) const VERSION: i64 = 3;

/// The oldest program, as a schema version, that can read what this one writes.
pub(super) const OLDEST_READER: i64 = 3;

/// Marks the file as ours in SQLite's header: `orgd`.
pub(super) const APPLICATION_ID: i64 = 0x6f72_6764;

/// The write-ahead log is written back, and truncated, at this size, in bytes.
pub(super) const WAL_BYTES: i64 = 1024 * 1024;

/// Ids in one row of `pages` after a migration.
const IDS_PER_ROW: usize = 1000;

/// What versions 2 and 3 share.
const COUNTERS: &str = "
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

CREATE TABLE dead_letters (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    arrived INTEGER NOT NULL,
    reason  TEXT NOT NULL,
    message TEXT NOT NULL,
    kind    INTEGER NOT NULL,
    raw     TEXT NOT NULL,
    -- 1 if an operator wants it sent again.
    queued  INTEGER NOT NULL DEFAULT 0
) STRICT;
";

/// What version 3 added.
const THIRD: &str = "
-- One row: whose file this is, and the tail's state as JSON.
CREATE TABLE state (
    one               INTEGER PRIMARY KEY CHECK (one = 1),
    schema_version    INTEGER NOT NULL,
    oldest_reader     INTEGER NOT NULL,
    base_url          TEXT NOT NULL,
    organization      TEXT,
    organization_name TEXT,
    instance_id       TEXT NOT NULL,
    created_at        INTEGER NOT NULL,
    -- When it took the place of a damaged file.
    recreated_at      INTEGER,
    newest_at         INTEGER,
    -- No late row is older than the ids that are kept.
    prune_floor       INTEGER,
    -- Changes with each process that opens the file; a process that finds another value stops.
    fence             INTEGER NOT NULL,
    tail              TEXT NOT NULL
) STRICT;

-- The ids of the last page of each open range.
CREATE TABLE ranges (
    id   INTEGER PRIMARY KEY,
    page BLOB NOT NULL
) STRICT;

-- The known ids, a row per page: 8 bytes each, little-endian.
CREATE TABLE pages (
    place  INTEGER PRIMARY KEY,
    -- The service's clock when the page was committed.
    at     INTEGER NOT NULL,
    -- The newest creation time in it.
    newest INTEGER NOT NULL,
    -- 0 for history and late rows: they never stand at the top of the listing.
    top    INTEGER NOT NULL,
    ids    BLOB NOT NULL
) STRICT;

-- A row per page in the order of delivery: its records as one lz4 block, and how many were acknowledged.
CREATE TABLE outbox (
    page         INTEGER PRIMARY KEY,
    arrived      INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    acknowledged INTEGER NOT NULL DEFAULT 0,
    -- 3: encoded log records; older: JSON, encoded when it is read.
    form         INTEGER NOT NULL DEFAULT 3,
    trace        BLOB,
    block        BLOB NOT NULL
) STRICT;

-- Pages below an open range arrive later than those above them.
CREATE INDEX outbox_arrived ON outbox (arrived);
";

/// Configures a connection, without writing to a file that is there.
pub(super) fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(super::BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // What Prometheus has seen must survive a power failure.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", WAL_BYTES / 4096)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
    connection.pragma_update(None, "cache_size", -2048)?;
    // A container may have no directory for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

/// Reports whether the file has no tables yet. What has a version or an application is another program's also without
/// them: ours begins with neither.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema) AND user_version = 0 AND application_id = 0
         FROM pragma_user_version, pragma_application_id",
        [],
        |row| row.get(0),
    )
}

/// Checks that the pages of the file are whole, for at most `longest`; an error says what is damaged. Damage in a page that
/// was not checked is found when it is read.
pub(super) fn check(connection: &mut Connection, longest: Duration) -> rusqlite::Result<()> {
    let begun = Instant::now();
    connection.progress_handler(100, Some(move || begun.elapsed() >= longest))?;
    let result = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
    connection.progress_handler(0, None::<fn() -> bool>)?;
    let result: String = match result {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::info!(
                "the state file is large and only a part was checked for damage; the rest is checked when it is read"
            );
            return Ok(());
        }
        result => result?,
    };
    if result == "ok" {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
        Some(result),
    ))
}

/// Creates the tables and what they begin with, in one transaction.
pub(super) fn create(
    connection: &Connection,
    settings: &Settings,
    recreated: bool,
) -> rusqlite::Result<()> {
    // It has no effect on a file that is not empty.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    configure(connection)?;
    let transaction = connection.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(COUNTERS)?;
    transaction.execute_batch(THIRD)?;
    let now = micros(util::now());
    transaction.execute(
        "INSERT INTO state (one, schema_version, oldest_reader, base_url, instance_id, created_at, recreated_at, fence, tail)
         VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, 0, '')",
        params![
            VERSION,
            OLDEST_READER,
            settings.base_url,
            uuid::Uuid::new_v4().to_string(),
            now,
            recreated.then_some(now)
        ],
    )?;
    let tail = TailState {
        filters: settings.filters.clone(),
        ..TailState::default()
    };
    write_tail(&transaction, &tail)?;
    transaction.commit()
}

/// Migrates an older file in one transaction: a crash or a full disk leaves the older file.
pub(super) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    let found: Option<i64> = connection
        .query_row("SELECT schema_version FROM state", [], |row| row.get(0))
        .optional()?;
    let Some(found) = found.filter(|found| *found < VERSION) else {
        return Ok(());
    };
    let transaction = connection.unchecked_transaction()?;
    if found < 2 {
        transaction.execute_batch(
            "ALTER TABLE dead_letters ADD COLUMN queued INTEGER NOT NULL DEFAULT 0",
        )?;
    }
    migrate_to_third(&transaction)?;
    transaction.commit()?;
    tracing::info!(from = found, to = VERSION, "state file migrated");
    Ok(())
}

fn migrate_to_third(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(
        "DROP TABLE IF EXISTS shown;
         ALTER TABLE state RENAME TO old_state;
         ALTER TABLE outbox RENAME TO old_outbox;",
    )?;
    transaction.execute_batch(THIRD)?;
    transaction.execute_batch(
        "INSERT INTO outbox (page, arrived, records, acknowledged, form, trace, block)
             SELECT page, arrived, records, acknowledged, 2, trace, block FROM old_outbox;
         INSERT INTO state (one, schema_version, oldest_reader, base_url, organization, instance_id, created_at,
                            recreated_at, newest_at, prune_floor, fence, tail)
             SELECT 1, 3, 3, base_url, organization, instance_id, coalesce(recreated_at, born_at, 0), recreated_at,
                    newest_at, prune_floor, 0, '' FROM old_state;",
    )?;
    let mut tail = old_tail(transaction)?;
    move_ids(transaction)?;
    let last: i64 = transaction.query_row(
        "SELECT max(coalesce((SELECT max(page) FROM outbox), 0), coalesce((SELECT max(place) FROM pages), 0))",
        [],
        |row| row.get(0),
    )?;
    tail.next_place = (last / STRIDE + 1) * STRIDE;
    write_tail(transaction, &tail)?;
    transaction.execute_batch(
        "DROP TABLE old_state; DROP TABLE old_outbox; DROP TABLE seen; DROP TABLE walk_marks;",
    )
}

/// Reads the tail's state from schema 2. An unfinished catch-up is dropped, because the next poll opens a range.
fn old_tail(transaction: &Transaction<'_>) -> rusqlite::Result<TailState> {
    transaction
        .query_row(
            "SELECT filters, born_at, count_floor, start_floor, filter_floor, reread_at, walk, walk_top, frontier_at FROM old_state",
            [],
            |row| {
                let time = |column| -> rusqlite::Result<_> {
                    Ok(row.get::<_, Option<i64>>(column)?.map(timestamp))
                };
                let at: Option<Timestamp> = time(1)?;
                let (count_floor, history_floor) = (time(2)?, time(3)?);
                let first_page = (row.get::<_, Option<String>>(6)?.as_deref() == Some("first_start"))
                    .then(|| row.get::<_, Option<Vec<u8>>>(7))
                    .transpose()?
                    .flatten();
                Ok(TailState {
                    first_sync: at.map(|at| FirstSync { at, count_floor, history_floor, history_until: None, live_after: None }),
                    filters: row.get(0)?,
                    filter_floor: time(4)?,
                    last_poll_at: time(8)?,
                    reread_at: time(5)?,
                    first_page: first_page.and_then(|page| unpack_text(&page).ok()),
                    ..TailState::default()
                })
            },
        )
        .optional()
        .map(Option::unwrap_or_default)
}

/// Moves the known ids into rows of many.
fn move_ids(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut seen = transaction.prepare("SELECT created, id FROM seen ORDER BY created")?;
    let mut rows = seen.query([])?;
    let mut insert = transaction
        .prepare("INSERT INTO pages (place, at, newest, top, ids) VALUES (?1, ?2, ?2, 1, ?3)")?;
    let (mut place, mut newest) = (1_i64, 0_i64);
    let mut ids = Vec::with_capacity(IDS_PER_ROW);
    loop {
        let row = rows.next()?;
        if ids.len() == IDS_PER_ROW || (row.is_none() && !ids.is_empty()) {
            insert.execute(params![place, newest, pack_ids(&ids)])?;
            place += 1;
            ids.clear();
        }
        let Some(row) = row else { return Ok(()) };
        newest = row.get(0)?;
        ids.push(EventId(row.get::<_, i64>(1)?.cast_unsigned()));
    }
}

/// Writes the tail's state.
pub(super) fn write_tail(connection: &Connection, tail: &TailState) -> rusqlite::Result<()> {
    let json = serde_json::to_string(tail)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    connection
        .prepare_cached("UPDATE state SET tail = ?1")?
        .execute([json])?;
    connection
        .prepare_cached("DELETE FROM ranges")?
        .execute([])?;
    let mut insert = connection.prepare_cached("INSERT INTO ranges (id, page) VALUES (?1, ?2)")?;
    for range in &tail.ranges {
        insert.execute(params![range.id, pack_ids(&range.page)])?;
    }
    Ok(())
}

/// Reads the tail's state.
pub(super) fn read_tail(connection: &Connection) -> rusqlite::Result<TailState> {
    let json: String = connection.query_row("SELECT tail FROM state", [], |row| row.get(0))?;
    let mut tail: TailState = serde_json::from_str(&json).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
    })?;
    for range in &mut tail.ranges {
        let page: Option<Vec<u8>> = connection
            .query_row("SELECT page FROM ranges WHERE id = ?1", [range.id], |row| {
                row.get(0)
            })
            .optional()?;
        range.page = super::unpack_ids(&page.unwrap_or_default());
    }
    Ok(tail)
}
