//! Dead letters: entries that cannot be counted and records that the collector rejected, kept for an operator.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::Serialize;

use super::open::{OpenError, open_beside};
use super::outbox::PageWriter;
use super::page::Ledger;
use super::types::RecordKind;
use super::{LedgerError, micros, timestamp};
use crate::util::{self, labels};

/// Dead letters take at most this part of `--state.max-size`.
const SHARE: u64 = 4;

/// How many dead letters go back to the outbox in one transaction.
const REPLAYED_AT_ONCE: i64 = 256;

/// A transaction takes no more of them after this many bytes.
const MAX_REPLAYED_BYTES: usize = 4 << 20;

labels! {
    /// Why something is a dead letter; as text, its name in the file and in listings.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    DeadReason {
        /// An entry that cannot be counted.
        Malformed => "malformed",
        /// The collector rejected this record.
        Refused => "refused",
        /// The record alone is larger than the collector accepts.
        TooLarge => "too_large",
        /// The collector rejected a part of the request without saying which.
        PartlyRejected => "partly_rejected",
    }
}

/// Something that could not be counted or delivered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadLetter {
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// Why.
    pub reason: DeadReason,
    /// What the collector or the parser said.
    pub message: String,
    /// What the record stands for.
    pub kind: RecordKind,
    /// The JSON, redacted like records.
    #[serde(skip)]
    pub raw: String,
}

/// A dead letter in the state file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredLetter {
    /// Its number.
    pub id: i64,
    /// When it became a dead letter.
    pub rejected_at: Timestamp,
    /// The letter.
    #[serde(flatten)]
    pub letter: DeadLetter,
    /// Whether it will be sent again.
    pub queued: bool,
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
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self {
            connection: open_beside(path)?,
            path: path.to_owned(),
        })
    }

    /// Returns the numbers of the letters with this reason, or of all, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn ids(&self, reason: Option<DeadReason>) -> Result<Vec<i64>, OpenError> {
        const SQL: &str = "SELECT id FROM dead_letters WHERE ?1 IS NULL OR reason = ?1 ORDER BY id";
        self.guard(|connection| {
            let mut ids = connection.prepare(SQL)?;
            ids.query_map([reason.map(DeadReason::as_str)], |row| row.get(0))?
                .collect()
        })
    }

    /// Returns the letter with this number, unless it is gone. The exporter cannot shorten its log during a query, so that
    /// a slow reader asks for one letter at a time.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn letter(&self, id: i64) -> Result<Option<StoredLetter>, OpenError> {
        const SQL: &str = "SELECT at, arrived, reason, message, kind, raw, queued FROM dead_letters WHERE id = ?1";
        let read = |row: &Row<'_>| {
            let reason: String = row.get(2)?;
            Ok(StoredLetter {
                id,
                rejected_at: timestamp(row.get(0)?),
                letter: DeadLetter {
                    arrived_at: timestamp(row.get(1)?),
                    reason: DeadReason::parse(&reason).unwrap_or(DeadReason::Refused),
                    message: row.get(3)?,
                    kind: RecordKind::from_code(row.get(4)?),
                    raw: row.get(5)?,
                },
                queued: row.get(6)?,
            })
        };
        self.guard(|connection| connection.query_row(SQL, [id], read).optional())
    }

    /// Queues the letters with these numbers to be sent again; a running exporter does so within seconds. Returns how many exist.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn replay(&self, ids: &[i64]) -> Result<usize, OpenError> {
        self.change("UPDATE dead_letters SET queued = 1 WHERE id = ?1", ids)
    }

    /// Deletes the letters with these numbers. Returns how many existed.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn drop_letters(&self, ids: &[i64]) -> Result<usize, OpenError> {
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

// === impl Ledger ===

impl Ledger {
    /// Adds dead letters to a transaction, and deletes the oldest if there are too many; the newest one always stays. Returns how many were
    /// deleted.
    pub(super) fn insert_letters(
        &self,
        transaction: &Transaction<'_>,
        letters: &[DeadLetter],
    ) -> rusqlite::Result<usize> {
        if letters.is_empty() {
            return Ok(0);
        }
        for letter in letters {
            transaction
                .prepare_cached("INSERT INTO dead_letters (at, arrived, reason, message, kind, raw) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![
                    micros(util::now()),
                    micros(letter.arrived_at),
                    letter.reason.as_str(),
                    letter.message,
                    letter.kind as i64,
                    letter.raw
                ])?;
        }
        let max_bytes = i64::try_from(self.settings.max_size / SHARE).unwrap_or(i64::MAX);
        transaction
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

    /// After a transaction that added dead letters.
    pub(super) fn letters_inserted(&self, count: usize, evicted: usize) {
        if count == 0 {
            return;
        }
        if evicted > 0 {
            tracing::error!(
                dead_letters = evicted,
                "deleted the oldest dead letters to make room; run `orgdata-exporter dead-letters list`"
            );
        }
        self.status.send_modify(|status| {
            status.dead_lettered += count as u64;
            status.evicted += evicted as u64;
        });
        self.count_dead_letters();
    }

    /// Reads how many dead letters there are.
    pub(super) fn count_dead_letters(&self) {
        let count = self
            .connection
            .prepare_cached("SELECT count(*) FROM dead_letters")
            .and_then(|mut count| count.query_row([], |row| row.get::<_, i64>(0)));
        match count {
            Ok(count) => self
                .status
                .send_modify(|status| status.dead_letters = count.cast_unsigned()),
            Err(error) => tracing::debug!(%error, "cannot count the dead letters"),
        }
    }

    /// Moves queued letters to the outbox.
    pub(super) fn replay_queued(&mut self) -> Result<u64, LedgerError> {
        // Changes only if another connection has written.
        let version: i64 = self
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.looked_at == Some(version) {
            return Ok(0);
        }
        let mut replayed = 0;
        loop {
            let moved = if self.settings.outbox {
                self.move_queued()? as u64
            } else {
                0
            };
            if moved == 0 {
                break;
            }
            replayed += moved;
            self.update_status(|status| {
                status.commits += 1;
                status.replayed += moved;
                status.backlog += moved;
            });
        }
        self.looked_at = Some(version);
        self.count_dead_letters();
        // Deleted letters made room, and the tail may be waiting for it.
        self.update_status(|_| {});
        if replayed > 0 {
            tracing::info!(records = replayed, "sending dead letters again");
        }
        Ok(replayed)
    }

    fn move_queued(&mut self) -> Result<usize, LedgerError> {
        let mut next_page = self.next_page;
        let transaction = self.begin()?;
        let mut letters: Vec<(i64, i64, String)> = Vec::new();
        let (mut last, mut bytes) = (None, 0);
        {
            let mut queued = transaction.prepare_cached(
                "SELECT id, arrived, kind, raw FROM dead_letters WHERE queued = 1 ORDER BY id LIMIT ?1",
            )?;
            let mut rows = queued.query([REPLAYED_AT_ONCE])?;
            while bytes < MAX_REPLAYED_BYTES
                && let Some(row) = rows.next()?
            {
                let raw: String = row.get(3)?;
                bytes += raw.len();
                last = Some(row.get::<_, i64>(0)?);
                letters.push((row.get(1)?, row.get(2)?, raw));
            }
        }
        transaction
            .prepare_cached("DELETE FROM dead_letters WHERE queued = 1 AND id <= ?1")?
            .execute([last])?;
        // A page has one time of arrival.
        for page in letters.chunk_by(|(one, ..), (other, ..)| one == other) {
            let arrived_at = timestamp(page[0].0);
            let mut writer = PageWriter::new(&self.settings, arrived_at, None);
            for (_, kind, json) in page {
                writer.push(RecordKind::from_code(*kind), json, arrived_at);
            }
            writer.write(&transaction, next_page, 0)?;
            next_page += 1;
        }
        transaction.commit()?;
        self.next_page = next_page;
        Ok(letters.len())
    }
}
