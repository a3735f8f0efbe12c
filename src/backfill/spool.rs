//! What was read, on disk until all of it is there: the listing goes from the newest entry down, and samples are wanted from the oldest up.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use tokio_util::sync::CancellationToken;

use super::BackfillError;
use super::fold::Fold;
use crate::audit::Event;
use crate::ledger::ActorLabel;

/// A database that is never read again after a crash, so that nothing has to be safe.
const SETUP: &str = "
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA cache_size = -16384;
CREATE TABLE seen (id INTEGER PRIMARY KEY);
CREATE TABLE words (number INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE);
-- actor is NULL where the metric has no such label.
CREATE TABLE events (at INTEGER NOT NULL, id INTEGER NOT NULL, type INTEGER NOT NULL, actor INTEGER, PRIMARY KEY (at, id)) WITHOUT ROWID;
CREATE TABLE series (number INTEGER PRIMARY KEY, type TEXT NOT NULL, actor TEXT NOT NULL, UNIQUE (type, actor));
CREATE TABLE points (series INTEGER NOT NULL, at INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (series, at)) WITHOUT ROWID;
";

/// Types and actors that are looked up in memory before the file is asked.
const WORDS: usize = 10_000;

/// The spool.
#[derive(Debug)]
pub(super) struct Spool {
    connection: Connection,
    path: Option<PathBuf>,
    words: HashMap<String, i64>,
}

/// What is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) events: u64,
    pub(super) oldest: Option<Timestamp>,
    pub(super) newest: Option<Timestamp>,
}

// === impl Spool ===

impl Spool {
    /// A new spool in a file, which goes with this value; or in one of SQLite's own choice.
    pub(super) fn open(path: Option<PathBuf>) -> Result<Self, BackfillError> {
        let failed = |error: &dyn std::fmt::Display| {
            let name = path.as_ref().map_or_else(
                || "a temporary file".to_owned(),
                |path| path.display().to_string(),
            );
            BackfillError::Setting(format!(
                "cannot make {name}: {error}; give a FILE in a directory that this user can write"
            ))
        };
        if let Some(path) = &path {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(&error));
                }
                _ => {}
            }
        }
        // Without a name SQLite keeps the file to itself, and deletes it.
        let open = || {
            let connection = Connection::open(path.as_deref().unwrap_or(Path::new("")))?;
            connection.execute_batch(SETUP)?;
            Ok(connection)
        };
        let connection = open().map_err(|error: rusqlite::Error| failed(&error))?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(Self {
            connection,
            path,
            words: HashMap::new(),
        })
    }

    /// Adds what was read of a page; an entry that is there already is not added again. Returns how many were new.
    pub(super) fn add(
        &mut self,
        events: &[Event],
        label: &ActorLabel,
    ) -> Result<u64, BackfillError> {
        self.begin()?;
        let mut added = 0;
        for event in events {
            let Ok(counted) = &event.event else { continue };
            let id = event.id.0.cast_signed();
            if self
                .connection
                .prepare_cached("INSERT OR IGNORE INTO seen (id) VALUES (?1)")
                .and_then(|mut insert| insert.execute([id]))
                .map_err(failed)?
                == 0
            {
                continue;
            }
            let activity_type = self.word(&counted.activity_type)?;
            let actor = label
                .label(counted.actor.as_ref())
                .map(|actor| self.word(&actor))
                .transpose()?;
            let mut insert = self
                .connection
                .prepare_cached("INSERT INTO events (at, id, type, actor) VALUES (?1, ?2, ?3, ?4)")
                .map_err(failed)?;
            insert
                .execute(params![
                    event.created_at.as_microsecond(),
                    id,
                    activity_type,
                    actor
                ])
                .map_err(failed)?;
            added += 1;
        }
        self.commit()?;
        Ok(added)
    }

    /// How much is in it.
    pub(super) fn contents(&self) -> Result<Contents, BackfillError> {
        let read = |row: &rusqlite::Row<'_>| {
            let time = |at: Option<i64>| at.and_then(|at| Timestamp::from_microsecond(at).ok());
            Ok(Contents {
                events: row.get::<_, i64>(0)?.cast_unsigned(),
                oldest: time(row.get(1)?),
                newest: time(row.get(2)?),
            })
        };
        self.connection
            .query_row("SELECT count(*), min(at), max(at) FROM events", [], read)
            .map_err(failed)
    }

    /// Events by activity type, the most first.
    pub(super) fn by_type(&self, limit: u32) -> Result<Vec<(String, u64)>, BackfillError> {
        let sql = "SELECT word, count(*) AS n FROM events JOIN words ON number = type GROUP BY type ORDER BY n DESC, word LIMIT ?1";
        let mut rows = self.connection.prepare(sql).map_err(failed)?;
        let rows = rows
            .query_map([limit], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
            })
            .map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    /// Goes through all events from the oldest up, and adds each to the series that it counts in, at the time that `place` gives to it.
    pub(super) fn fold(
        &self,
        fold: &mut Fold,
        shutdown: &CancellationToken,
        place: impl Fn(Timestamp) -> i64,
    ) -> Result<(), BackfillError> {
        self.begin()?;
        let sql = "SELECT at, types.word, actors.word FROM events JOIN words AS types ON types.number = type LEFT JOIN words AS actors ON actors.number = actor ORDER BY at, id";
        let mut events = self.connection.prepare(sql).map_err(failed)?;
        let mut rows = events.query([]).map_err(failed)?;
        let mut add = self
            .connection
            .prepare("INSERT INTO points (series, at, count) VALUES (?1, ?2, 1) ON CONFLICT (series, at) DO UPDATE SET count = count + 1")
            .map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            super::openmetrics::check(shutdown)?;
            let at = Timestamp::from_microsecond(row.get(0).map_err(failed)?)
                .unwrap_or(Timestamp::UNIX_EPOCH);
            let (activity_type, actor) = fold.labels(
                row.get_ref(1).and_then(text).map_err(failed)?,
                row.get_ref(2).and_then(optional).map_err(failed)?,
                at,
            );
            let series = self.series(&activity_type, actor.as_deref())?;
            add.execute([series, place(at)]).map_err(failed)?;
        }
        drop(rows);
        self.commit()
    }

    /// Every series with its labels and rises, in the order of the labels. An actor is empty where the metric has no such label.
    pub(super) fn each_series(
        &self,
        mut each: impl FnMut(
            &str,
            &str,
            &mut dyn Iterator<Item = Result<(i64, u64), BackfillError>>,
        ) -> Result<(), BackfillError>,
    ) -> Result<(), BackfillError> {
        let mut all = self
            .connection
            .prepare("SELECT number, type, actor FROM series ORDER BY type, actor")
            .map_err(failed)?;
        let mut points = self
            .connection
            .prepare("SELECT at, count FROM points WHERE series = ?1 ORDER BY at")
            .map_err(failed)?;
        let mut rows = all.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let (number, activity_type, actor): (i64, String, String) = (
                row.get(0).map_err(failed)?,
                row.get(1).map_err(failed)?,
                row.get(2).map_err(failed)?,
            );
            each(&activity_type, &actor, &mut rises(&mut points, number)?)?;
        }
        Ok(())
    }

    fn series(&self, activity_type: &str, actor: Option<&str>) -> Result<i64, BackfillError> {
        let labels = params![activity_type, actor.unwrap_or_default()];
        let find = || {
            self.connection
                .prepare_cached("SELECT number FROM series WHERE type = ?1 AND actor = ?2")
        };
        let found = find()
            .and_then(|mut find| find.query_row(labels, |row| row.get(0)).optional())
            .map_err(failed)?;
        if let Some(found) = found {
            return Ok(found);
        }
        let mut insert = self
            .connection
            .prepare_cached("INSERT INTO series (type, actor) VALUES (?1, ?2)")
            .map_err(failed)?;
        insert.insert(labels).map_err(failed)
    }

    fn word(&mut self, word: &str) -> Result<i64, BackfillError> {
        if let Some(number) = self.words.get(word) {
            return Ok(*number);
        }
        let add = || {
            self.connection
                .prepare_cached("INSERT INTO words (word) VALUES (?1) ON CONFLICT (word) DO UPDATE SET word = word RETURNING number")
        };
        let number = add()
            .and_then(|mut add| add.query_row([word], |row| row.get(0)))
            .map_err(failed)?;
        if self.words.len() < WORDS {
            self.words.insert(word.to_owned(), number);
        }
        Ok(number)
    }

    fn begin(&self) -> Result<(), BackfillError> {
        self.connection.execute_batch("BEGIN").map_err(failed)
    }

    fn commit(&self) -> Result<(), BackfillError> {
        self.connection.execute_batch("COMMIT").map_err(failed)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The next one begins with deleting it.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn rises<'a>(
    points: &'a mut Statement<'_>,
    series: i64,
) -> Result<impl Iterator<Item = Result<(i64, u64), BackfillError>> + use<'a>, BackfillError> {
    let rows = points
        .query_map([series], |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
        })
        .map_err(failed)?;
    Ok(rows.map(|row| row.map_err(failed)))
}

fn text(value: rusqlite::types::ValueRef<'_>) -> rusqlite::Result<&str> {
    Ok(value.as_str()?)
}

fn optional(value: rusqlite::types::ValueRef<'_>) -> rusqlite::Result<Option<&str>> {
    Ok(value.as_str_or_null()?)
}

fn failed(error: rusqlite::Error) -> BackfillError {
    BackfillError::Failed(format!(
        "what was read cannot be kept on disk until it is sorted: {error}"
    ))
}
