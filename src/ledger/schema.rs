//! The tables of the state file, and which versions of it this program can read.

use rusqlite::{Connection, OptionalExtension};

/// The version of the schema that this program writes.
pub(super) const VERSION: i64 = 2;

/// The oldest program version, as a schema version, that can still read what this one writes.
pub(super) const OLDEST_READER: i64 = 1;

/// One step on the way from an older schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// The version it leads to, from the one before.
    pub(super) version: i64,
    /// The oldest program, as a schema version, that can read the file afterwards.
    pub(super) oldest_reader: i64,
    /// What it changes.
    pub(super) sql: &'static str,
}

/// Every step there ever was, oldest first: a file of any version becomes one of this version.
pub(super) const STEPS: &[Step] = &[Step {
    version: 2,
    oldest_reader: 1,
    sql: SECOND,
}];

/// What version 2 added.
const SECOND: &str = "
-- Counters of which the last scrape did not see all: only while no process has the file, and only where the last one ended in order.
-- A counter without labels has neither scheme nor actor.
CREATE TABLE shown (
    scheme TEXT NOT NULL,
    name   TEXT NOT NULL,
    actor  TEXT NOT NULL,
    value  INTEGER NOT NULL,
    -- When it was remembered, by this machine's clock.
    at     INTEGER NOT NULL,
    PRIMARY KEY (scheme, name, actor)
) STRICT, WITHOUT ROWID;

-- 1 where an operator wants it sent again.
ALTER TABLE dead_letters ADD COLUMN queued INTEGER NOT NULL DEFAULT 0;
";

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
    connection.busy_timeout(super::BUSY)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // What Prometheus has seen must survive a power cut: every commit is on disk before anybody is told.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The log beside the file counts for the volume's size too.
    connection.pragma_update(None, "wal_autocheckpoint", super::WAL_BYTES / 4096)?;
    connection.pragma_update(None, "journal_size_limit", super::WAL_BYTES)?;
    connection.pragma_update(None, "cache_size", -2048)?;
    // A container may have no directory for temporary files.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Whether the file has no tables yet.
pub(super) fn is_fresh(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)",
        [],
        |row| row.get(0),
    )
}

/// Creates the tables, all or none: half of them would be refused at every start from then on.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = connection.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute_batch(SECOND)?;
    transaction.commit()
}

/// Brings an older file to the version of the last step; a newer one, and one without its row yet, stays as it is. All in one
/// transaction: a full disk or a crash leaves the older file.
pub(super) fn migrate(connection: &Connection, steps: &[Step]) -> rusqlite::Result<()> {
    let found: Option<i64> = connection
        .query_row("SELECT schema_version FROM state", [], |row| row.get(0))
        .optional()?;
    let Some(found) = found else { return Ok(()) };
    let transaction = connection.unchecked_transaction()?;
    for step in steps.iter().filter(|step| step.version > found) {
        transaction.execute_batch(step.sql)?;
        transaction.execute(
            "UPDATE state SET schema_version = ?1, oldest_reader = ?2",
            [step.version, step.oldest_reader],
        )?;
        tracing::info!(
            from = found,
            to = step.version,
            "the state file was brought to a newer schema"
        );
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::ledger::{
        ActorLabel, ActorRef, Birth, Commit, Direction, Disposition, EventId, Frontier, Gap,
        GapReason, LedgerHandle, LedgerState, Mark, NewEntry, NewEvent, Settings, StatePath, Walk,
        WalkChange, WalkKind,
    };
    use crate::metrics::Metrics;

    /// Schemas that do not exist: one before this program's first, and one after its last.
    const PAST: &str = "
        ALTER TABLE outbox RENAME TO outbox_now;
        CREATE TABLE outbox (page INTEGER PRIMARY KEY AUTOINCREMENT, arrived_ms INTEGER NOT NULL, records INTEGER NOT NULL,
                             acknowledged INTEGER NOT NULL DEFAULT 0, block BLOB NOT NULL) STRICT;
        INSERT INTO outbox SELECT page, arrived / 1000, records, acknowledged, block FROM outbox_now;
        DROP TABLE outbox_now;
        DROP TABLE shown;
        ALTER TABLE state DROP COLUMN recreated_at;
        ALTER TABLE dead_letters DROP COLUMN queued;
        UPDATE state SET schema_version = 0, oldest_reader = 0;";
    const FROM_PAST: Step = Step {
        version: 1,
        oldest_reader: 1,
        sql: "
        ALTER TABLE state ADD COLUMN recreated_at INTEGER;
        ALTER TABLE outbox RENAME TO outbox_then;
        CREATE TABLE outbox (page INTEGER PRIMARY KEY AUTOINCREMENT, arrived INTEGER NOT NULL, records INTEGER NOT NULL,
                             acknowledged INTEGER NOT NULL DEFAULT 0, trace BLOB, block BLOB NOT NULL) STRICT;
        INSERT INTO outbox SELECT page, arrived_ms * 1000, records, acknowledged, NULL, block FROM outbox_then;
        DROP TABLE outbox_then;",
    };
    const TO_FUTURE: Step = Step {
        version: 3,
        oldest_reader: 1,
        sql: "
        ALTER TABLE outbox ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE notes (page INTEGER PRIMARY KEY, note TEXT) STRICT;
        INSERT INTO notes SELECT page, 'old' FROM outbox;",
    };
    const BROKEN: Step = Step {
        version: 9,
        oldest_reader: 2,
        sql: "DELETE FROM events; DROP TABLE seen; CREATE TABLE seen (no such type) STRICT;",
    };

    fn open(path: &Path) -> (LedgerHandle, LedgerState, Metrics) {
        let metrics = Metrics::new(Duration::ZERO);
        let settings = Settings {
            path: StatePath::File(path.to_owned()),
            max_size: 8 << 20,
            base_url: "https://api.example".to_owned(),
            filters: "[]".to_owned(),
            outbox: true,
            actor_label: ActorLabel::Id,
            max_actors: 10,
            actor_idle: Duration::from_secs(86_400),
            reread_window: Duration::from_secs(3600),
            id_retention: Duration::from_secs(86_400),
            max_dead_letters: 100,
            redact: Arc::new(str::to_owned),
        };
        let (ledger, state) = LedgerHandle::open(settings, metrics.clone()).expect("opens");
        (ledger, state, metrics)
    }

    fn page(first: u64, count: u64) -> Commit {
        let mut commit = Commit::new(Timestamp::from_second(1_800_000_000).expect("in range"));
        commit.arrived_at = commit.server_time;
        commit.entries = (first..first + count)
            .map(|number| NewEntry {
                id: EventId(number),
                created_at: commit.server_time,
                disposition: Disposition::Live,
                event: match number % 10 {
                    9 => Err("unreadable".to_owned()),
                    other => Ok(NewEvent {
                        activity_type: format!("TYPE_{}", number % 3),
                        actor: Some(ActorRef {
                            id: other.to_string(),
                            name: None,
                        }),
                        malformed: false,
                    }),
                },
                raw: number.to_string(),
            })
            .collect();
        commit
    }

    /// A ledger with something in every table, in the middle of everything.
    async fn fill(path: &Path) {
        let (ledger, ..) = open(path);
        let mut commit = page(0, 100);
        commit.birth = Some(Birth {
            born_at: commit.server_time,
            start_floor: None,
            count_floor: Some(Timestamp::UNIX_EPOCH),
        });
        commit.organization = Some("7".to_owned());
        commit.frontier = Some(Frontier {
            cursor: Some("c1".to_owned()),
            id: Some(EventId(99)),
        });
        commit.frontier_at = Some(commit.server_time);
        commit.reread_at = Some(commit.server_time);
        commit.gaps = vec![Gap {
            reason: GapReason::NoProgress,
            from: None,
            to: None,
            message: "round and round".to_owned(),
        }];
        let marks = vec![Mark {
            before: None,
            end: Some("e1".to_owned()),
            bottom: EventId(3),
        }];
        let walk = Walk {
            kind: WalkKind::CatchUp,
            direction: Direction::Down,
            floor: None,
            started_at: commit.server_time,
            joined: false,
            marks,
        };
        commit.walk = Some(WalkChange::Begin {
            walk,
            top: Some("[]".to_owned()),
        });
        ledger.commit(commit).await.expect("written");
        ledger.commit(page(100, 100)).await.expect("written");
        let batch = ledger.outbox_batch(30, usize::MAX).await.expect("readable");
        ledger
            .outbox_acknowledge(batch[29].position, Vec::new())
            .await
            .expect("written");
    }

    /// All that a ledger holds, for comparison; what waits is read and stays.
    async fn all(ledger: &LedgerHandle, state: &LedgerState, metrics: &Metrics) -> String {
        let waiting: Vec<_> = ledger
            .outbox_batch(usize::MAX, usize::MAX)
            .await
            .expect("readable");
        let totals = crate::metrics::audit::Total::ALL.map(|total| metrics.audit.total(total));
        let known = ledger
            .holds((0..1000).map(EventId))
            .into_iter()
            .filter(|known| *known)
            .count();
        let (backlog, dead) = (ledger.backlog(), ledger.dead_letters().expect("readable"));
        format!(
            "{state:?} {:?} {totals:?} {known} {backlog:?} {dead} {waiting:?}",
            metrics.audit.events()
        )
    }

    fn steps(path: &Path, steps: &[Step]) -> rusqlite::Result<()> {
        migrate(&Connection::open(path)?, steps)
    }

    fn version(path: &Path) -> (i64, i64) {
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        Connection::open(path)
            .and_then(|file| {
                file.query_row("SELECT schema_version, oldest_reader FROM state", [], row)
            })
            .expect("a row")
    }

    #[tokio::test]
    async fn an_older_file_with_a_full_outbox_loses_nothing_on_the_way_here() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state.db");
        fill(&path).await;
        let (ledger, state, metrics) = open(&path);
        let before = all(&ledger, &state, &metrics).await;
        drop(ledger);

        Connection::open(&path)
            .expect("opens")
            .execute_batch(PAST)
            .expect("runs");
        steps(&path, &[FROM_PAST]).expect("migrates");
        assert_eq!(version(&path), (1, 1));
        // The rest of the way is taken when it is opened.
        let (ledger, state, metrics) = open(&path);
        assert_eq!(all(&ledger, &state, &metrics).await, before);
        assert_eq!(version(&path), (VERSION, OLDEST_READER));
        ledger.commit(page(200, 10)).await.expect("written");
        assert_eq!(ledger.backlog().records, 151 + 9);
    }

    #[tokio::test]
    async fn to_a_newer_schema_and_back_and_to_the_newer_one_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state.db");
        fill(&path).await;
        let (ledger, state, metrics) = open(&path);
        let before = all(&ledger, &state, &metrics).await;
        drop(ledger);

        // The newer program comes by way of both steps, and is rolled back.
        Connection::open(&path)
            .expect("opens")
            .execute_batch(PAST)
            .expect("runs");
        let all_steps = [&[FROM_PAST], STEPS, &[TO_FUTURE]].concat();
        steps(&path, &all_steps).expect("migrates");
        assert_eq!(version(&path), (3, 1));
        let (ledger, state, metrics) = open(&path);
        assert_eq!(all(&ledger, &state, &metrics).await, before);
        ledger.commit(page(200, 10)).await.expect("written");
        let after = all(&ledger, &ledger.state().await.expect("readable"), &metrics).await;
        drop(ledger);

        // And comes again: the step is not taken twice, and what this program wrote is there.
        assert_eq!(version(&path), (3, 1), "what the newer one said stays");
        steps(&path, &all_steps).expect("nothing to do");
        let notes: i64 = Connection::open(&path)
            .and_then(|file| file.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)))
            .expect("a row");
        assert_eq!(notes, 2);
        let (ledger, state, metrics) = open(&path);
        assert_eq!(all(&ledger, &state, &metrics).await, after);
    }

    #[tokio::test]
    async fn a_step_that_fails_leaves_the_older_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("state.db");
        fill(&path).await;
        let (ledger, state, metrics) = open(&path);
        let before = all(&ledger, &state, &metrics).await;
        drop(ledger);
        steps(&path, &[BROKEN]).expect_err("it fails");
        assert_eq!(version(&path), (VERSION, OLDEST_READER));
        let (ledger, state, metrics) = open(&path);
        assert_eq!(all(&ledger, &state, &metrics).await, before);
    }

    #[test]
    fn the_steps_lead_to_this_version_without_a_hole() {
        assert!(
            (2..)
                .zip(STEPS)
                .all(|(version, step)| step.version == version && step.oldest_reader <= version)
        );
        let last = STEPS
            .last()
            .map_or((1, 1), |last| (last.version, last.oldest_reader));
        assert_eq!(last, (VERSION, OLDEST_READER));
    }

    #[test]
    fn half_of_the_tables_are_none() {
        let connection = Connection::open_in_memory().expect("opens");
        connection
            .execute_batch("CREATE TABLE dead_letters (theirs)")
            .expect("runs");
        create(&connection).expect_err("one is there already");
        let tables: i64 = connection
            .query_row(
                "SELECT count(*) FROM sqlite_schema WHERE type = 'table'",
                [],
                |row| row.get(0),
            )
            .expect("a row");
        assert_eq!(tables, 1);
    }
}
