//! One transaction per page.
//!
//! In the transaction, the known ids, the tail's state, the counters, the outbox and
//! the dead letters change together. After it, memory follows, and the caller publishes the returned [`Changes`]. If
//! it fails, neither file nor memory has changed. A crash leaves the file before or after the transaction.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::sync::watch;

use super::dead_letters::{self, DeadLetter};
use super::file::{OpenError, other_version};
use super::known::{self, Known, Pruned};
use super::labels::LabelsInUse;
use super::open::{LedgerOptions, open};
use super::outbox::{self, Outbox, OutboxRecord, Settled, Stored};
use super::schema::PROGRAM_VERSION;
use super::size::Size;
use super::types::{
    CHECKPOINT_ID, Changes, Checkpoint, Commit, DeadReason, Disposition, Gap, NewEntry, RecordKind,
    Total,
};
use super::{LedgerError, Status, micros, timestamp};
use crate::util::lock;

/// The interval of checkpoints.
const CHECKPOINT_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// What an open ledger holds for the tail.
#[derive(Clone, Debug)]
pub struct LedgerState {
    /// `service.instance.id`.
    pub(crate) instance_id: String,
    /// The organization's id and name, once known.
    pub(crate) organization: Option<(String, Option<String>)>,
    /// When the file was created.
    pub(crate) created_at: Timestamp,
    /// The newest creation time of the ids that were pruned so far.
    pub(crate) pruned: Option<Timestamp>,
    /// The records of all entries up to this time are delivered.
    pub(crate) delivered_through: Option<Timestamp>,
    /// The state of the tail, as JSON; empty in a new file.
    pub(crate) tail: String,
    /// The version of the program that wrote it.
    pub(crate) version: String,
    /// The file.
    pub(crate) path: PathBuf,
    /// Everything that was counted, to be published.
    pub(crate) counted: Changes,
    /// The number of events counted, under labels that are shown or not.
    pub(crate) events: u64,
    /// What changed when the file was opened.
    pub(crate) opening: Changes,
}

// === impl LedgerState ===

impl LedgerState {
    /// Returns the error if this version cannot read the state of the tail.
    pub(crate) fn unreadable(&self, error: impl Display) -> LedgerError {
        let why = format!("the state of the audit tail: {error}");
        LedgerError::Unreadable(other_version(&self.path, Some(&self.version), &why))
    }
}

/// The open file and what is kept of it in memory.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) connection: Connection,
    options: LedgerOptions,
    fence: i64,
    pub(super) known: Arc<Mutex<Known>>,
    /// `None` after a transaction that failed: the next one reads them again.
    labels: Option<LabelsInUse>,
    outbox: Outbox,
    pub(super) size: Arc<Size>,
    pub(super) status: watch::Sender<Status>,
    /// The records of entries up to this time were not made.
    unrecorded_to: Option<Timestamp>,
    /// When the last checkpoint was made.
    checkpoint_at: Option<Timestamp>,
    /// SQLite's version of the data when queued dead letters were looked for last.
    looked_at: Option<i64>,
}

// === impl Ledger ===

impl Ledger {
    /// Opens a file, which may be empty, and reads it.
    pub(super) fn load(options: LedgerOptions) -> Result<(Self, LedgerState), OpenError> {
        let connection = open(&options)?;
        let path = options.shown_path().to_owned();
        let loaded = Self::read(connection, options);
        loaded.map_err(|error| OpenError::sqlite(&path, error))
    }

    fn read(
        connection: Connection,
        options: LedgerOptions,
    ) -> rusqlite::Result<(Self, LedgerState)> {
        let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let time = |sql| -> rusqlite::Result<_> {
            let at = connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0))?;
            Ok(at.map(timestamp))
        };
        let mut state = state(&connection)?;
        if options.outbox {
            state.opening = report_unrecorded(&connection, &options)?;
        }
        let (labels, counted) = labels(&options, &connection)?;
        state.counted.introduced = counted.introduced;
        state.counted.names = counted.names;
        let backlog = number("SELECT coalesce(sum(records - acknowledged), 0) FROM outbox")?;
        let status = Status {
            organization: state.organization.clone(),
            backlog: backlog.cast_unsigned(),
            delivered_through: state.delivered_through.filter(|_| options.outbox),
            ..Status::default()
        };
        let size = Size::new(options.max_size, options.outbox, options.path.as_deref());
        let ledger = Self {
            fence: number("SELECT fence FROM state")?,
            unrecorded_to: time("SELECT unrecorded_to FROM state")?,
            checkpoint_at: time("SELECT checkpoint_at FROM state")?,
            known: Arc::new(Mutex::new(Known::load(&connection)?)),
            labels: Some(labels),
            outbox: Outbox::default(),
            size: Arc::new(size),
            status: watch::Sender::new(status),
            looked_at: None,
            options,
            connection,
        };
        ledger.update_status(|_| {});
        Ok((ledger, state))
    }

    /// Writes one commit.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<Changes, LedgerError> {
        let mut changes = changes(&commit);
        let transaction = begin(&self.connection, self.fence)?;
        if let Some((id, name)) = &commit.organization {
            transaction
                .prepare_cached("UPDATE state SET organization = ?1, organization_name = ?2")?
                .execute(params![id, name])?;
        }
        let pruned = match &commit.prune {
            Some(prune) => known::prune(&transaction, prune)?,
            None => Pruned::default(),
        };
        let is_crowded = lock(&self.known).is_crowded();
        let kept = known::write(&transaction, &commit, is_crowded)?;
        let mut labels = match self.labels.take() {
            Some(labels) => labels,
            None => labels(&self.options, &transaction)?.0,
        };
        labels.count(&transaction, &commit, &mut changes)?;
        add_totals(&transaction, &changes.totals, commit.server_time)?;
        let mut waiting = 0;
        if self.options.outbox {
            let gaps = commit.gaps.iter();
            let gaps: Vec<String> = gaps.map(|gap| gap.to_json(commit.server_time)).collect();
            waiting = outbox::push(&transaction, records(&commit, &gaps).collect())?;
        } else {
            note_unrecorded(&transaction, &commit)?;
        }
        let mut delivered = self.status.borrow().delivered_through;
        if let Some(tail) = &commit.tail {
            if self.options.outbox {
                let through = outbox::delivered_through(&transaction, commit.complete_through)?;
                delivered = delivered.max(through.filter(|at| Some(*at) > self.unrecorded_to));
            }
            transaction
                .prepare_cached(
                    "UPDATE state SET tail = ?1, delivered_through = ?2, settled = ?3, held_since = ?4, version = ?5",
                )?
                .execute(params![
                    tail,
                    delivered.map(micros),
                    commit.settled,
                    commit.held_since.map(micros),
                    PROGRAM_VERSION
                ])?;
        }
        let letters = unreadable(&transaction, &commit, self.options.outbox)?;
        let evicted = dead_letters::insert(&transaction, &letters, &self.options)?;
        transaction.commit()?;

        self.labels = Some(labels);
        lock(&self.known).follow(&commit, &kept, &pruned);
        changes.pruned = pruned.newest;
        self.update_status(|status| {
            status.commits += 1;
            status.backlog += waiting;
            status.delivered_through = delivered;
            for letter in &letters {
                status.dead_lettered[letter.reason as usize] += 1;
            }
            status.evicted += evicted;
            status.organization = commit.organization.or(status.organization.take());
        });
        Ok(changes)
    }

    /// Adds a [`Checkpoint`] to the outbox if the last one is an hour old. Reports whether it did.
    pub(super) fn checkpoint(
        &mut self,
        complete_through: Option<Timestamp>,
    ) -> Result<bool, LedgerError> {
        let now = self.options.machine.now();
        let is_recent = |last| now.duration_since(last).abs() < CHECKPOINT_INTERVAL;
        if !self.options.outbox || self.checkpoint_at.is_some_and(is_recent) {
            return Ok(false);
        }
        let transaction = begin(&self.connection, self.fence)?;
        let (dead_letters, dead_letter_sequences) = dead_letters::sequences(&transaction)?;
        let checkpoint = Checkpoint {
            id: format!("{CHECKPOINT_ID}{}", uuid::Uuid::new_v4()),
            last_sequence: outbox::last_sequence(&transaction)?,
            complete_through,
            dead_letters,
            dead_letter_sequences,
            version: PROGRAM_VERSION.to_owned(),
        };
        let record = Stored {
            kind: RecordKind::Checkpoint,
            created: now,
            arrived: now,
            entry: serde_json::json!(checkpoint).to_string().into(),
            ..Stored::default()
        };
        let waiting = outbox::push(&transaction, vec![record])?;
        transaction.execute("UPDATE state SET checkpoint_at = ?1", [micros(now)])?;
        transaction.commit()?;
        self.checkpoint_at = Some(now);
        self.update_status(|status| {
            status.commits += 1;
            status.backlog += waiting;
        });
        Ok(true)
    }

    /// Reads the file again after a commit that failed, without the series.
    pub(super) fn reload(&mut self) -> Result<LedgerState, LedgerError> {
        let (state, known) = (state(&self.connection)?, Known::load(&self.connection)?);
        *lock(&self.known) = known;
        Ok(state)
    }

    /// Reads the oldest records that may be sent, without the first `skip`; see [`Outbox::batch`].
    pub(super) fn batch(
        &mut self,
        is_urgent: bool,
        skip: usize,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        check_fence(&self.connection, self.fence)?;
        let held_since: Option<i64> = self
            .connection
            .prepare_cached("SELECT held_since FROM state")?
            .query_row([], |row| row.get(0))?;
        let held_since = held_since.map(timestamp);
        let now = self.options.machine.now();
        let is_long = |since| now.duration_since(since).abs() >= outbox::MAX_WAIT;
        let is_full = self.size.is_full(&self.status.borrow());
        self.outbox.batch(
            &self.connection,
            held_since,
            is_urgent || is_full || held_since.is_some_and(is_long),
            skip,
            max_records,
            max_bytes,
        )
    }

    /// Removes what was delivered or rejected from the outbox.
    pub(super) fn settle(&mut self, settled: &Settled) -> Result<(), LedgerError> {
        let transaction = begin(&self.connection, self.fence)?;
        self.outbox.remove(&transaction, settled)?;
        let mut letters = Vec::new();
        if let Some((reason, message)) = &settled.rejected {
            letters.extend(settled.records.iter().map(|record| DeadLetter {
                reason: *reason,
                message: message.clone(),
                line: String::from_utf8_lossy(&record.line).into_owned(),
            }));
        }
        let evicted = dead_letters::insert(&transaction, &letters, &self.options)?;
        transaction.commit()?;
        self.update_status(|status| {
            status.commits += 1;
            status.backlog = status.backlog.saturating_sub(settled.records.len() as u64);
            for letter in &letters {
                status.dead_lettered[letter.reason as usize] += 1;
            }
            status.evicted += evicted;
        });
        // Best effort; the next call retries.
        let _ = self.tidy();
        Ok(())
    }

    /// Moves queued dead letters to the outbox. Returns how many.
    pub(super) fn replay_queued(&mut self) -> Result<u64, LedgerError> {
        // Changes only if another connection has written.
        let version = self
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.looked_at == Some(version) {
            return Ok(0);
        }
        let (mut replayed, mut moved) = (0, u64::from(self.options.outbox));
        while moved > 0 {
            let transaction = begin(&self.connection, self.fence)?;
            moved = dead_letters::move_queued(&transaction)?;
            transaction.commit()?;
            replayed += moved;
            self.update_status(|status| {
                status.commits += u64::from(moved > 0);
                status.replayed += moved;
                status.backlog += moved;
            });
        }
        self.looked_at = Some(version);
        // Deleted letters made room, and the tail may be waiting for it.
        self.update_status(|_| {});
        if replayed > 0 {
            tracing::info!(records = replayed, "sending dead letters again");
        }
        Ok(replayed)
    }

    /// Makes the file shorter where possible.
    pub(super) fn tidy(&mut self) -> Result<(), LedgerError> {
        let mut status = self.status.borrow().clone();
        self.size.shrink(&self.connection, &mut status)?;
        self.status.send_replace(status);
        Ok(())
    }

    /// Changes the status, and reads what the file says of it.
    fn update_status(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.borrow().clone();
        change(&mut status);
        let mut read = || -> rusqlite::Result<()> {
            let mut counts = self.connection.prepare_cached(
                "SELECT (SELECT min(arrived) FROM outbox), (SELECT count(*) FROM dead_letters)",
            )?;
            let (oldest, letters) =
                counts.query_row([], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?)))?;
            status.oldest = oldest.map(timestamp);
            status.dead_letters = letters;
            self.size.measure(&self.connection, &mut status)
        };
        if let Err(error) = read() {
            tracing::warn!(%error, "cannot read the size of the state file");
        }
        self.status.send_replace(status);
    }

    /// Writes, and counts what fails.
    pub(super) fn counted<T>(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        write(self).map_err(|error| {
            self.status
                .send_modify(|status| status.commit_failures += 1);
            error.of_write()
        })
    }
}

/// Returns the log records of a commit.
fn records<'a>(commit: &'a Commit, gaps: &'a [String]) -> impl Iterator<Item = Stored<'a>> {
    let entries = commit.entries.iter();
    let entries = entries.filter(|entry| entry.is_record() && !entry.is_unsent);
    let gap = |json: &'a String| Stored {
        kind: RecordKind::Gap,
        created: commit.server_time,
        arrived: commit.arrived_at,
        trace: commit.trace.as_deref().map(Cow::Borrowed),
        entry: Cow::Borrowed(json),
        ..Stored::default()
    };
    entries
        .map(|entry| stored(commit, entry))
        .chain(gaps.iter().map(gap))
}

/// Returns the log record of an entry.
fn stored<'a>(commit: &'a Commit, entry: &'a NewEntry) -> Stored<'a> {
    Stored {
        sequence: None,
        kind: RecordKind::Entry,
        // One that is dated ahead is delivered with what arrives with it. If all that arrives later were in front of it, it would never be found
        // out to be a bad record.
        created: (entry.created_at).min(commit.arrived_at.max(commit.server_time)),
        arrived: commit.arrived_at,
        trace: commit.trace.as_deref().map(Cow::Borrowed),
        hash: entry.hash.as_deref().map(Cow::Borrowed),
        entry: Cow::Borrowed(&entry.text),
    }
}

/// Notes when the entries were created whose records are not made, because no collector is configured.
fn note_unrecorded(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    let times = || records(commit, &[]).map(|record| record.created);
    let Some((oldest, newest)) = times().min().zip(times().max()) else {
        return Ok(());
    };
    transaction
        .prepare_cached(
            "UPDATE state SET unrecorded_from = min(coalesce(unrecorded_from, ?1), ?1), unrecorded_to = max(coalesce(unrecorded_to, ?2), ?2)",
        )?
        .execute(params![micros(oldest), micros(newest)])?;
    Ok(())
}

/// Reports the entries that were read while no collector was configured as a gap, once, in one transaction. Returns what changed.
fn report_unrecorded(
    connection: &Connection,
    options: &LedgerOptions,
) -> rusqlite::Result<Changes> {
    let transaction = connection.unchecked_transaction()?;
    let noted = transaction.query_row(
        "SELECT unrecorded_from, unrecorded_to FROM state",
        [],
        |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
    )?;
    let (Some(from), Some(to)) = noted else {
        return Ok(Changes::default());
    };
    let (from, to) = (timestamp(from), timestamp(to));
    let now = options.machine.now();
    let gap = Gap::not_recorded(from, to);
    let changes = Changes {
        totals: vec![(Total::Gaps, 1)],
        ..Changes::default()
    };
    outbox::push(
        &transaction,
        records(&Commit::new(now), &[gap.to_json(now)]).collect(),
    )?;
    add_totals(&transaction, &changes.totals, now)?;
    transaction.execute("UPDATE state SET unrecorded_from = NULL", [])?;
    transaction.commit()?;
    // The end of a window does not belong to it.
    let until = to + SignedDuration::from_micros(1);
    tracing::warn!(
        reason = gap.reason.as_ref(),
        %from,
        %to,
        command = format!("orgdata-exporter verify --from {from} --until {until} --send-missing /dev/null"),
        "gap in the audit logs: no collector was configured when these entries were read; to send their log records, run the command with the exporter's flags"
    );
    Ok(changes)
}

/// Returns the dead letters of a commit: entries that cannot be counted. Their records have numbers if there is a collector.
fn unreadable(
    transaction: &Transaction<'_>,
    commit: &Commit,
    is_numbered: bool,
) -> rusqlite::Result<Vec<DeadLetter>> {
    let entries = commit.entries.iter();
    let entries = entries.filter(|entry| entry.is_taken() && entry.activity_type.is_none());
    let mut records: Vec<_> = entries.clone().map(|entry| stored(commit, entry)).collect();
    if is_numbered {
        outbox::number(transaction, &mut records)?;
    }
    let letter = |(entry, record): (&NewEntry, Stored<'_>)| DeadLetter {
        reason: DeadReason::Malformed,
        message: entry.problem.unwrap_or_default().to_owned(),
        line: record.line(),
    };
    Ok(entries.zip(records).map(letter).collect())
}

/// Returns the changes that do not depend on the file.
fn changes(commit: &Commit) -> Changes {
    let entries = || commit.entries.iter();
    let count =
        |is_one: fn(&NewEntry) -> bool| entries().filter(|entry| is_one(entry)).count() as u64;
    let totals = [
        (
            Total::Late,
            count(|entry| entry.is_counted() && entry.disposition == Disposition::Late),
        ),
        (
            Total::Backdated,
            count(|entry| entry.disposition == Disposition::Backdated),
        ),
        (
            Total::Uncounted,
            count(|entry| entry.is_event() && entry.is_uncounted),
        ),
        (
            Total::Unsent,
            count(|entry| entry.is_record() && entry.is_unsent),
        ),
        (
            Total::Malformed,
            count(|entry| entry.is_taken() && entry.problem.is_some()),
        ),
        (Total::Duplicate, commit.duplicates),
        (Total::Cut, u64::from(commit.is_cut)),
        (Total::Gaps, commit.gaps.len() as u64),
        (
            Total::Filtered,
            count(|entry| entry.disposition == Disposition::Filtered),
        ),
    ];
    let now = commit.present();
    let live =
        entries().filter(|entry| entry.is_counted() && entry.disposition == Disposition::Live);
    let delay = |created_at| now.duration_since(created_at).as_secs_f64().max(0.0);
    Changes {
        totals: totals.into_iter().filter(|(_, count)| *count > 0).collect(),
        newest: entries().map(|entry| entry.created_at).max(),
        delays: live.map(|entry| delay(entry.created_at)).collect(),
        ..Changes::default()
    }
}

/// Begins a transaction that may write, and checks the fencing token in it.
fn begin(connection: &Connection, fence: i64) -> Result<Transaction<'_>, LedgerError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    check_fence(&transaction, fence)?;
    Ok(transaction)
}

/// Checks that no other process has opened the file.
fn check_fence(connection: &Connection, fence: i64) -> Result<(), LedgerError> {
    let found: i64 = connection
        .prepare_cached("SELECT fence FROM state")?
        .query_row([], |row| row.get(0))?;
    match found == fence {
        true => Ok(()),
        false => Err(LedgerError::Fenced),
    }
}

fn add_totals(
    transaction: &Transaction<'_>,
    totals: &[(Total, u64)],
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO totals (name, value, first_at) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
    )?;
    for (total, increase) in totals {
        upsert.execute(params![total.as_ref(), increase, micros(now)])?;
    }
    Ok(())
}

/// Reads the labels in use, and the series to publish.
fn labels(options: &LedgerOptions, file: &Connection) -> rusqlite::Result<(LabelsInUse, Changes)> {
    LabelsInUse::load(file, &options.actor_label, options.max_actors)
}

/// Reads what the tail needs, without the series.
fn state(file: &Connection) -> rusqlite::Result<LedgerState> {
    let mut counted = Changes::default();
    let mut totals = file.prepare("SELECT name, value FROM totals")?;
    let mut rows = totals.query([])?;
    while let Some(row) = rows.next()? {
        if let Ok(total) = row.get_ref(0)?.as_str()?.parse() {
            counted.totals.push((total, row.get(1)?));
        }
    }
    file.query_row(
        "SELECT instance_id, organization, organization_name, created_at, pruned_at, newest_at,
                (SELECT coalesce(sum(count), 0) FROM events), delivered_through, tail, version FROM state",
        [],
        |row| {
            let time = |at: Option<i64>| at.map(timestamp);
            counted.newest = time(row.get(5)?);
            let (organization, name): (Option<String>, _) = (row.get(1)?, row.get(2)?);
            Ok(LedgerState {
                instance_id: row.get(0)?,
                organization: organization.map(|id| (id, name)),
                created_at: timestamp(row.get(3)?),
                pruned: time(row.get(4)?),
                tail: row.get(8)?,
                version: row.get(9)?,
                path: file.path().map(PathBuf::from).unwrap_or_default(),
                counted,
                events: row.get(6)?,
                delivered_through: time(row.get(7)?),
                opening: Changes::default(),
            })
        },
    )
}
