//! Dead letters: written with the commit that condemns them, bounded, and handled by an operator from a process of his own.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params, params_from_iter};

use super::block::BlockWriter;
use super::open::{OpenError, open_beside};
use super::store::{Ledger, micros, timestamp};
use super::types::{DeadLetter, DeadReason, RecordKind};
use super::{LedgerError, schema};

/// Dead letters take at most this part of `--state.max-size`.
const SHARE: u64 = 4;

/// How many dead letters go back to the outbox in one transaction.
const REPLAYED_AT_ONCE: usize = 256;

/// How many bytes of them, but at least one letter: all of a transaction is in memory, here and again when its page is sent.
const REPLAYED_BYTES: usize = 4 * 1024 * 1024;

/// A dead letter as the state file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredLetter {
    /// Its number, by which a command names it.
    pub id: i64,
    /// When it was condemned.
    pub condemned_at: Timestamp,
    /// It is to be sent again.
    pub queued: bool,
    /// The letter.
    pub letter: DeadLetter,
}

/// Which dead letters a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Every one.
    All,
    /// Those with these numbers.
    Ids(Vec<i64>),
    /// Those condemned for this reason.
    Reason(DeadReason),
}

/// The dead letters of a state file that another process may have open.
#[derive(Debug)]
pub struct DeadLetters {
    connection: Connection,
    path: PathBuf,
}

// === impl Selection ===

impl Selection {
    /// The condition, and what it is about.
    fn condition(&self) -> (String, Vec<rusqlite::types::Value>) {
        match self {
            Self::All => ("1".to_owned(), Vec::new()),
            Self::Reason(reason) => (
                "reason = ?".to_owned(),
                vec![reason.as_str().to_owned().into()],
            ),
            Self::Ids(ids) => {
                let places = vec!["?"; ids.len()].join(",");
                (
                    format!("id IN ({places})"),
                    ids.iter().map(|id| (*id).into()).collect(),
                )
            }
        }
    }
}

// === impl DeadLetters ===

impl DeadLetters {
    /// Opens the state file of an exporter, running or not. Nothing is created.
    ///
    /// # Errors
    /// Where the file is missing, not ours, of another version, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let sqlite = |error| OpenError::Sqlite {
            path: path.to_owned(),
            error,
        };
        let connection = open_beside(path)?;
        let version: Option<i64> = connection
            .query_row("SELECT schema_version FROM state", [], |row| row.get(0))
            .optional()
            .map_err(sqlite)?;
        match version {
            Some(version) if version < schema::VERSION => Err(OpenError::Older {
                path: path.to_owned(),
                version,
            }),
            _ => Ok(Self {
                connection,
                path: path.to_owned(),
            }),
        }
    }

    /// Gives each selected letter to `each`, the oldest first; stops where it says `false`.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn list(
        &self,
        selection: &Selection,
        mut each: impl FnMut(StoredLetter) -> bool,
    ) -> Result<(), OpenError> {
        let (condition, values) = selection.condition();
        self.guard(|connection| {
            let sql = format!("SELECT id, at, arrived, reason, message, kind, raw, queued FROM dead_letters WHERE {condition} ORDER BY id");
            let mut letters = connection.prepare(&sql)?;
            let mut rows = letters.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let letter = DeadLetter {
                    arrived_at: timestamp(row.get(2)?),
                    reason: DeadReason::parse(&row.get::<_, String>(3)?).unwrap_or(DeadReason::Refused),
                    message: row.get(4)?,
                    kind: RecordKind::from_code(row.get(5)?),
                    raw: row.get(6)?,
                };
                let stored = StoredLetter { id: row.get(0)?, condemned_at: timestamp(row.get(1)?), queued: row.get(7)?, letter };
                if !each(stored) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Queues the selected letters for another delivery; a running exporter carries it out. Returns how many are queued by it.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn replay(&self, selection: &Selection) -> Result<usize, OpenError> {
        self.change("UPDATE dead_letters SET queued = 1", selection)
    }

    /// Deletes the selected letters. Returns how many there were.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn drop_letters(&self, selection: &Selection) -> Result<usize, OpenError> {
        self.change("DELETE FROM dead_letters", selection)
    }

    fn change(&self, what: &str, selection: &Selection) -> Result<usize, OpenError> {
        let (condition, values) = selection.condition();
        self.guard(|connection| {
            connection.execute(
                &format!("{what} WHERE {condition}"),
                params_from_iter(values),
            )
        })
    }

    fn guard<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, OpenError> {
        f(&self.connection).map_err(|error| OpenError::Sqlite {
            path: self.path.clone(),
            error,
        })
    }
}

// === impl Ledger ===

impl Ledger {
    /// How many dead letters are kept.
    pub(super) fn dead_letter_count(&self) -> rusqlite::Result<i64> {
        self.connection
            .prepare_cached("SELECT count(*) FROM dead_letters")?
            .query_row([], |row| row.get(0))
    }

    /// After a commit that added so many dead letters: they are counted, and the oldest leave where there are too many, or where they take too much of the file, which
    /// they could fill for good.
    pub(super) fn dead_letters_added(&self, count: usize) {
        if count == 0 {
            return;
        }
        self.metrics.otlp.records_dead_lettered.inc_by(count as u64);
        match self.trim_dead_letters() {
            Ok(0) => {}
            Ok(evicted) => {
                self.metrics
                    .otlp
                    .dead_letters_evicted
                    .inc_by(evicted as u64);
                tracing::error!(
                    dead_letters = evicted,
                    "the oldest dead letters were deleted to make room for newer ones; see what is wrong with `orgdata-exporter dead-letters list`"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "cannot delete the oldest dead letters; tried again with the next one")
            }
        }
        self.show_dead_letters();
    }

    /// The gauge follows the file.
    pub(super) fn show_dead_letters(&self) {
        match self.dead_letter_count() {
            Ok(count) => drop(self.metrics.otlp.dead_letters.set(count)),
            Err(error) => tracing::debug!(%error, "cannot count the dead letters"),
        }
    }

    /// Returns how many were deleted; the newest one always stays.
    fn trim_dead_letters(&self) -> rusqlite::Result<usize> {
        let max_bytes = i64::try_from(self.settings.max_size / SHARE).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(
                "DELETE FROM dead_letters WHERE id IN (
                    SELECT id FROM (
                        SELECT id, row_number() OVER newest_first AS place,
                               sum(octet_length(raw) + octet_length(message)) OVER newest_first AS bytes
                        FROM dead_letters WINDOW newest_first AS (ORDER BY id DESC)
                    ) WHERE place > ?1 OR (place > 1 AND bytes > ?2))",
            )?
            .execute(params![self.settings.max_dead_letters, max_bytes])
    }

    /// Letters that an operator has queued since the last look go to the end of the outbox. Returns how many.
    pub(super) fn replay_queued(&mut self) -> Result<usize, LedgerError> {
        // It changes only when another connection has written: almost every look ends here.
        let version = self.data_version()?;
        if self.replayed_until == Some(version) {
            return Ok(0);
        }
        let mut replayed = 0;
        loop {
            let moved = self.move_queued()?;
            if moved == 0 {
                break;
            }
            replayed += moved;
            self.metrics.state.commits.inc();
            self.metrics.otlp.records_replayed.inc_by(moved as u64);
            self.backlog_changed(i64::try_from(moved).unwrap_or(i64::MAX));
        }
        self.replayed_until = Some(version);
        self.show_dead_letters();
        // Letters that were deleted made room, and the tail may be waiting for it.
        self.look()?;
        if replayed > 0 {
            tracing::info!(records = replayed, "dead letters are sent again");
        }
        Ok(replayed)
    }

    /// The gauge follows what another process has written.
    pub(super) fn recount_letters(&mut self) -> Result<(), LedgerError> {
        let version = self.data_version()?;
        if self.recounted_at != Some(version) {
            self.show_dead_letters();
            self.recounted_at = Some(version);
        }
        Ok(())
    }

    /// Changes when another connection has written, and only then.
    fn data_version(&self) -> rusqlite::Result<i64> {
        self.connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
    }

    fn move_queued(&self) -> rusqlite::Result<usize> {
        let transaction = self.connection.unchecked_transaction()?;
        let mut letters: Vec<(i64, i64, i64, String)> = Vec::new();
        {
            let mut queued =
                transaction.prepare_cached("SELECT id, arrived, kind, raw FROM dead_letters WHERE queued = 1 ORDER BY id LIMIT ?1")?;
            let mut queued = queued.query([REPLAYED_AT_ONCE as i64])?;
            let mut bytes = 0;
            while bytes < REPLAYED_BYTES
                && let Some(row) = queued.next()?
            {
                letters.push((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
                bytes += letters.last().map_or(0, |(.., raw)| raw.len());
            }
        }
        // A page has one time of arrival.
        for page in letters.chunk_by(|(_, one, ..), (_, other, ..)| one == other) {
            let mut block = BlockWriter::default();
            for (_, _, kind, raw) in page {
                block.push(RecordKind::from_code(*kind), raw);
            }
            transaction
                .prepare_cached("INSERT INTO outbox (arrived, records, block) VALUES (?1, ?2, ?3)")?
                .execute(params![page[0].1, block.records(), block.finish()])?;
        }
        for (id, ..) in &letters {
            transaction
                .prepare_cached("DELETE FROM dead_letters WHERE id = ?1")?
                .execute([id])?;
        }
        transaction.commit()?;
        Ok(letters.len())
    }
}

/// Adds dead letters to what a transaction changes.
pub(super) fn write(transaction: &Transaction<'_>, letters: &[DeadLetter]) -> rusqlite::Result<()> {
    for letter in letters {
        transaction
            .prepare_cached("INSERT INTO dead_letters (at, arrived, reason, message, kind, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
            micros(Timestamp::now()),
            micros(letter.arrived_at),
            letter.reason.as_str(),
            letter.message,
            letter.kind as i64,
            letter.raw
        ])?;
    }
    Ok(())
}
