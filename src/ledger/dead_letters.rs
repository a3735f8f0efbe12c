//! Dead letters: entries that cannot be counted and records that the collector rejected, kept for an operator.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::Serialize;

use super::beside::open_beside;
use super::file::OpenError;
use super::open::LedgerOptions;
use super::outbox::{self, Stored};
use super::types::DeadReason;
use super::{micros, timestamp};

/// Dead letters take at most this part of `--state.max-size`.
const SHARE: u64 = 4;

/// A checkpoint names at most so many ranges of dead letters.
const MAX_RANGES: usize = 100;

/// How many dead letters go back to the outbox in one transaction.
const MOVED_AT_ONCE: i64 = 256;

/// A transaction takes no more of them after this many bytes.
const MAX_MOVED_BYTES: usize = 4 << 20;

/// Something that could not be counted or delivered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadLetter {
    /// Why.
    pub(crate) reason: DeadReason,
    /// The message of the collector or the parser.
    pub(crate) message: String,
    /// The record; see [`Stored`].
    #[serde(skip)]
    pub(crate) line: String,
}

/// A dead letter in the state file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredLetter {
    /// Its number.
    pub(crate) id: i64,
    /// When it became a dead letter.
    pub(crate) rejected_at: Timestamp,
    /// The letter.
    #[serde(flatten)]
    pub(crate) letter: DeadLetter,
    /// Whether it will be sent again.
    pub(crate) queued: bool,
}

/// The dead letters of a state file that another process may have open.
#[derive(Debug)]
pub struct DeadLetters {
    connection: Connection,
    path: PathBuf,
}

// === impl DeadLetters ===

impl DeadLetters {
    /// Opens the state file of an exporter, running or not. Nothing is created.
    ///
    /// # Errors
    /// If the file is missing, not ours, of another version, or cannot be read.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            connection: open_beside(path)?,
            path: path.to_owned(),
        })
    }

    /// Returns when the state file was created.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn file_created_at(&self) -> Result<Timestamp, OpenError> {
        const SQL: &str = "SELECT created_at FROM state";
        self.guard(|connection| connection.query_row(SQL, [], |row| row.get(0)))
            .map(timestamp)
    }

    /// Returns the numbers of the letters with this reason, or of all, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn ids(&self, reason: Option<DeadReason>) -> Result<Vec<i64>, OpenError> {
        const SQL: &str = "SELECT id FROM dead_letters WHERE ?1 IS NULL OR reason = ?1 ORDER BY id";
        self.guard(|connection| {
            let mut ids = connection.prepare(SQL)?;
            ids.query_map([reason.map(<&str>::from)], |row| row.get(0))?
                .collect()
        })
    }

    /// Returns the letter with this number, unless it is gone. The exporter cannot shorten its log during a query, so that
    /// a slow reader asks for one letter at a time.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn letter(&self, id: i64) -> Result<Option<StoredLetter>, OpenError> {
        const SQL: &str =
            "SELECT at, reason, message, line, queued FROM dead_letters WHERE id = ?1";
        let read = |row: &Row<'_>| {
            let reason = row.get_ref(1)?.as_str()?.parse();
            Ok(StoredLetter {
                id,
                rejected_at: timestamp(row.get(0)?),
                letter: DeadLetter {
                    reason: reason.unwrap_or(DeadReason::Rejected),
                    message: row.get(2)?,
                    line: row.get(3)?,
                },
                queued: row.get(4)?,
            })
        };
        self.guard(|connection| connection.query_row(SQL, [id], read).optional())
    }

    /// Queues the letters with these numbers to be sent again; a running exporter does so within seconds. Returns how many exist.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn replay(&self, ids: &[i64]) -> Result<usize, OpenError> {
        self.change("UPDATE dead_letters SET queued = 1 WHERE id = ?1", ids)
    }

    /// Deletes the letters with these numbers. Returns how many existed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn drop_letters(&self, ids: &[i64]) -> Result<usize, OpenError> {
        self.change("DELETE FROM dead_letters WHERE id = ?1", ids)
    }

    fn change(&self, sql: &str, ids: &[i64]) -> Result<usize, OpenError> {
        self.guard(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let mut change = transaction.prepare(sql)?;
            let changed = ids.iter().map(|id| change.execute([id]));
            let changed = changed.sum::<rusqlite::Result<usize>>()?;
            drop(change);
            transaction.commit()?;
            Ok(changed)
        })
    }

    fn guard<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, OpenError> {
        f(&self.connection).map_err(|error| OpenError::sqlite(&self.path, error))
    }
}

/// Adds dead letters, and deletes the oldest if there are too many; the newest one always stays. Returns how many were deleted.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    letters: &[DeadLetter],
    options: &LedgerOptions,
) -> rusqlite::Result<u64> {
    if letters.is_empty() {
        return Ok(0);
    }
    for letter in letters {
        transaction
            .prepare_cached(
                "INSERT INTO dead_letters (at, reason, message, sequence, line) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                micros(options.machine.now()),
                letter.reason.as_ref(),
                letter.message,
                Stored::read(letter.line.as_bytes()).sequence,
                letter.line
            ])?;
    }
    let evicted = transaction
        .prepare_cached(
            "DELETE FROM dead_letters WHERE id IN (
                SELECT id FROM (
                    SELECT id, row_number() OVER newest_first AS place,
                           sum(octet_length(line) + octet_length(message)) OVER newest_first AS bytes
                    FROM dead_letters WINDOW newest_first AS (ORDER BY id DESC)
                ) WHERE place > ?1 OR (place > 1 AND bytes > ?2))",
        )?
        .execute(params![options.max_dead_letters, options.max_size / SHARE])?;
    if evicted > 0 {
        tracing::error!(
            dead_letters = evicted,
            "deleting the oldest dead letters to make room; run `orgdata-exporter dead-letters list`"
        );
    }
    Ok(evicted as u64)
}

/// Returns the number of dead letters, and the numbers of their records as ranges, such as `3-5,9`; `None` if there are more than [`MAX_RANGES`].
pub(super) fn sequences(transaction: &Transaction<'_>) -> rusqlite::Result<(u64, Option<String>)> {
    let mut letters = transaction.prepare_cached("SELECT sequence FROM dead_letters ORDER BY 1")?;
    let (mut rows, mut count, mut ranges) = (letters.query([])?, 0, Vec::<(i64, i64)>::new());
    while let Some(row) = rows.next()? {
        count += 1;
        match (row.get::<_, Option<i64>>(0)?, ranges.last_mut()) {
            (Some(sequence), Some((_, last))) if *last + 1 >= sequence => *last = sequence,
            (Some(sequence), _) => ranges.push((sequence, sequence)),
            (None, _) => {}
        }
    }
    let text = |(first, last): &(i64, i64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let few = (ranges.len() <= MAX_RANGES).then(|| ranges.iter().map(text).collect::<Vec<_>>());
    Ok((count, few.map(|ranges| ranges.join(","))))
}

/// Moves some of the queued letters to the outbox, where they wait for nothing. Returns how many.
pub(super) fn move_queued(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    let (mut moved, mut last, mut bytes) = (0, None, 0);
    let mut queued = transaction.prepare_cached(
        "SELECT id, line FROM dead_letters WHERE queued = 1 ORDER BY id LIMIT ?1",
    )?;
    let mut rows = queued.query([MOVED_AT_ONCE])?;
    while bytes < MAX_MOVED_BYTES
        && let Some(row) = rows.next()?
    {
        let line = row.get_ref(1)?.as_str()?;
        moved += outbox::push(transaction, vec![Stored::read(line.as_bytes())])?;
        bytes += line.len();
        last = Some(row.get::<_, i64>(0)?);
    }
    transaction
        .prepare_cached("DELETE FROM dead_letters WHERE queued = 1 AND id <= ?1")?
        .execute([last])?;
    Ok(moved)
}
