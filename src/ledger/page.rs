//! One transaction per page.
//!
//! Before the transaction, records are encoded. In it, the known ids, the tail's state, the counters, the outbox and
//! the dead letters change together. After it, memory follows, and the caller publishes the returned [`Changes`]. If
//! it fails, neither file nor memory has changed. A crash leaves the file before or after the transaction.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::sync::watch;

use super::actors::Labels;
use super::changes::{Changes, Total};
use super::dead_letters::{DeadLetter, DeadReason};
use super::known::{Hold, Known};
use super::open::{self, OpenError};
use super::outbox::{self, PageWriter};
use super::prune::{Pruned, prune};
use super::tail_state::TailState;
use super::types::{Commit, Disposition, EventId, NewEntry, RecordKind};
use super::{LedgerError, Settings, Size, Status, micros, pack_ids, schema, timestamp, unpack_ids};

/// What an open ledger holds for the tail.
#[derive(Clone, Debug)]
pub struct LedgerState {
    /// `service.instance.id`.
    pub instance_id: String,
    /// The organization's id, once known.
    pub organization: Option<String>,
    /// When the file was created.
    pub created_at: Timestamp,
    /// When it took the place of a damaged file.
    pub recreated_at: Option<Timestamp>,
    /// The newest creation time of the ids that were pruned so far.
    pub pruned: Option<Timestamp>,
    /// The tail's state.
    pub tail: TailState,
    /// Everything that was counted, to be published.
    pub counted: Changes,
    /// The number of events counted, under labels that are shown or not.
    pub events: u64,
}

/// The open file and what is kept of it in memory.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) connection: Connection,
    lock: Option<std::fs::File>,
    pub(super) settings: Settings,
    pub(super) known: Arc<RwLock<Known>>,
    /// `None` after a transaction that failed: the next one reads them again.
    labels: Option<Labels>,
    pub(super) status: watch::Sender<Status>,
    pub(super) size: Arc<Size>,
    pub(super) hold: Hold,
    /// The file was full while records were held back.
    pub(super) is_released: bool,
    /// The page of the outbox that was read last: a request may end within it.
    pub(super) open_page: Option<(i64, Vec<Bytes>)>,
    /// SQLite's version of the data when queued dead letters were looked for last.
    pub(super) looked_at: Option<i64>,
    fence: i64,
    /// The number of the next row of the outbox: none is used twice while the process runs.
    pub(super) next_page: i64,
    pruned: Option<Timestamp>,
}

// === impl Ledger ===

impl Ledger {
    pub(super) fn open(mut settings: Settings) -> Result<(Self, LedgerState), OpenError> {
        let Some(path) = &settings.path else {
            return Self::read(settings, false);
        };
        let (path, lock, was_used) = open::claim(path)?;
        settings.path = Some(path.clone());
        let noted = open::marked_damage(&path);
        if let Some(why) = &noted {
            open::set_aside(&path, why)?;
        }
        let was_used = was_used || noted.is_some();
        let (mut ledger, state) = match Self::read(settings.clone(), was_used) {
            Ok(opened) => opened,
            Err(error) => {
                open::set_aside(&path, &open::damage(&path, error)?)?;
                Self::read(settings, true)?
            }
        };
        // A full disk must not keep it from starting.
        let _ = open::mark(&path);
        ledger.lock = Some(lock);
        Ok((ledger, state))
    }

    /// Reads a file that may be empty, although it `was_used`.
    fn read(settings: Settings, was_used: bool) -> Result<(Self, LedgerState), OpenError> {
        let path = settings.shown_path().to_owned();
        let sqlite = |error| OpenError::sqlite(&path, error);
        let connection = open::open(&settings, was_used)?;
        let found: String = connection
            .query_row("SELECT base_url FROM state", [], |row| row.get(0))
            .map_err(sqlite)?;
        settings.check_owner(&found)?;
        if found != settings.base_url {
            tracing::info!(
                from = found,
                to = settings.base_url,
                "the base address has changed"
            );
        }
        let mut ledger = Self {
            connection,
            lock: None,
            labels: None,
            size: Arc::new(Size::new(&settings)),
            settings,
            known: Arc::default(),
            status: watch::Sender::default(),
            hold: Hold::default(),
            is_released: false,
            open_page: None,
            looked_at: None,
            fence: 0,
            next_page: 1,
            pruned: None,
        };
        let state = ledger.load().map_err(sqlite)?;
        Ok((ledger, state))
    }

    /// Reads everything into memory, and writes a new fencing token.
    fn load(&mut self) -> rusqlite::Result<LedgerState> {
        let base_url = &self.settings.base_url;
        // A full disk must not prevent the start: the old token stays valid then.
        let fence = fastrand::i64(1..);
        let written = self.connection.execute(
            "UPDATE state SET fence = ?1, base_url = ?2",
            params![fence, base_url],
        );
        self.fence = match written {
            Ok(_) => fence,
            Err(error) if open::is_damage(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot write the state file; the exporter shows what it has");
                self.connection
                    .query_row("SELECT fence FROM state", [], |row| row.get(0))?
            }
        };
        let (labels, counted) = Labels::restore(&self.settings, &self.connection)?;
        self.labels = Some(labels);
        let mut state = self.read_state()?;
        state.counted.introduced = counted.introduced;
        state.counted.names = counted.names;
        self.hold = Hold::of(&state.tail);
        self.pruned = state.pruned;
        self.next_page = outbox::next_page(&self.connection)?;
        let mut known = Known::default();
        let mut pages = self.connection.prepare("SELECT sweep, ids FROM pages")?;
        let mut rows = pages.query([])?;
        while let Some(row) = rows.next()? {
            let ids = row.get_ref(1)?;
            let ids = ids.as_blob().map_err(rusqlite::Error::from)?;
            known.learn(unpack_ids(ids).into_iter(), row.get(0)?);
        }
        drop(rows);
        drop(pages);
        known.settle(state.tail.number);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        self.count_dead_letters();
        self.update_status(|_| {});
        Ok(state)
    }

    /// Reads the tail's state and the newest time of a pruned id.
    pub(super) fn tail_state(&mut self) -> Result<(TailState, Option<Timestamp>), LedgerError> {
        Ok((schema::read_tail(&self.connection)?, self.pruned))
    }

    /// Reads what the tail needs, and shows the rest in the status.
    pub(super) fn read_state(&self) -> rusqlite::Result<LedgerState> {
        let mut counted = Changes::default();
        let mut totals = self.connection.prepare("SELECT name, value FROM totals")?;
        let mut rows = totals.query([])?;
        while let Some(row) = rows.next()? {
            let (name, value): (String, i64) = (row.get(0)?, row.get(1)?);
            let total = Total::parse(&name);
            counted
                .totals
                .extend(total.map(|total| (total, value.cast_unsigned())));
        }
        let tail = schema::read_tail(&self.connection)?;
        self.connection.query_row(
            "SELECT instance_id, organization, created_at, recreated_at, pruned_at, newest_at,
                    (SELECT coalesce(sum(count), 0) FROM events), organization_name,
                    (SELECT coalesce(sum(records - acknowledged), 0) FROM outbox) FROM state",
            [],
            |row| {
                let time = |column| -> rusqlite::Result<_> {
                    Ok(row.get::<_, Option<i64>>(column)?.map(timestamp))
                };
                counted.newest = time(5)?;
                let organization: Option<String> = row.get(1)?;
                let (name, backlog) = (row.get(7)?, row.get::<_, i64>(8)?);
                self.status.send_modify(|status| {
                    status.organization = organization.clone().map(|id| (id, name));
                    status.backlog = backlog.cast_unsigned();
                });
                Ok(LedgerState {
                    instance_id: row.get(0)?,
                    organization,
                    created_at: timestamp(row.get(2)?),
                    recreated_at: time(3)?,
                    pruned: time(4)?,
                    tail,
                    counted,
                    events: row.get::<_, i64>(6)?.cast_unsigned(),
                })
            },
        )
    }

    /// Writes one commit.
    pub(super) fn commit(&mut self, commit: Commit) -> Result<Changes, LedgerError> {
        let mut changes = self.changes(&commit);
        match self.write(&commit, &mut changes) {
            Ok((records, pruned)) => {
                self.committed(commit, records, pruned);
                changes.pruned = self.pruned;
                Ok(changes)
            }
            Err(error) => {
                self.status
                    .send_modify(|status| status.commit_failures += 1);
                Err(error)
            }
        }
    }

    /// Returns the changes that do not depend on the file.
    fn changes(&mut self, commit: &Commit) -> Changes {
        let count = |f: &dyn Fn(&NewEntry) -> bool| {
            commit.entries.iter().filter(|entry| f(entry)).count() as u64
        };
        let is_malformed = |entry: &NewEntry| {
            entry.is_taken() && entry.event.as_ref().map_or(true, |event| event.malformed)
        };
        let mut totals = vec![
            (
                Total::Late,
                count(&|entry| entry.disposition == Disposition::Late),
            ),
            (
                Total::Backdated,
                count(&|entry| entry.disposition == Disposition::Backdated),
            ),
            (Total::Duplicate, commit.duplicates),
            (Total::Malformed, count(&is_malformed)),
            (Total::Recoveries, u64::from(commit.recovered)),
            (Total::Gaps, commit.gaps.len() as u64),
            (Total::Filtered, commit.filtered),
        ];
        totals.retain(|(_, increase)| *increase > 0);
        let now = commit.present();
        let live = commit
            .entries
            .iter()
            .filter(|entry| entry.disposition == Disposition::Live && entry.event.is_ok());
        Changes {
            totals,
            newest: commit.entries.iter().map(|entry| entry.created_at).max(),
            delays: live
                .map(|entry| now.duration_since(entry.created_at).as_secs_f64().max(0.0))
                .collect(),
            trace: commit.trace,
            ..Changes::default()
        }
    }

    /// Returns how many records were added to the outbox, and which ids were pruned.
    fn write(
        &mut self,
        commit: &Commit,
        changes: &mut Changes,
    ) -> Result<(u64, Pruned), LedgerError> {
        let page = self.encode(commit);
        let transaction = begin(&self.connection, self.fence)?;
        if let Some(tail) = &commit.tail {
            schema::write_tail(&transaction, tail)?;
        }
        if let Some((id, name)) = &commit.organization {
            transaction
                .prepare_cached("UPDATE state SET organization = ?1, organization_name = ?2")?
                .execute(params![id, name])?;
        }
        write_ids(&transaction, commit)?;
        let pruned = match (commit.prune_before, &commit.tail) {
            (Some(before), Some(tail)) => prune(&transaction, before, tail.number)?,
            _ => Pruned::default(),
        };
        let mut labels = match self.labels.take() {
            Some(labels) => labels,
            None => Labels::restore(&self.settings, &transaction)?.0,
        };
        labels.count(&transaction, commit, changes)?;
        add_totals(&transaction, &changes.totals, commit.server_time)?;
        if let Some(page) = page.as_ref().filter(|page| page.records() > 0) {
            let sweep = if commit.is_history {
                outbox::HISTORY
            } else {
                commit.sweep
            };
            page.write(&transaction, self.next_page, sweep)?;
        }
        let unusable: Vec<DeadLetter> = commit
            .entries
            .iter()
            .filter(|entry| entry.is_taken())
            .filter_map(|entry| Some((entry, entry.event.as_ref().err()?)))
            .map(|(entry, message)| DeadLetter {
                reason: DeadReason::Malformed,
                message: message.clone(),
                kind: RecordKind::Entry,
                arrived_at: commit.arrived_at,
                raw: self.settings.encoder.redact(&entry.raw),
            })
            .collect();
        let evicted = self.insert_letters(&transaction, &unusable)?;
        transaction.commit()?;
        self.labels = Some(labels);
        self.letters_inserted(unusable.len(), evicted);
        let records = page.map_or(0, |page| page.records().into());
        Ok((records, pruned))
    }

    fn encode(&self, commit: &Commit) -> Option<PageWriter> {
        if !self.settings.outbox {
            return None;
        }
        let mut page = PageWriter::new(&self.settings, commit.arrived_at, commit.trace);
        page.reserve(commit.entries.iter().map(|entry| entry.raw.len()).sum());
        for entry in &commit.entries {
            if entry.is_taken() && entry.event.is_ok() {
                page.push(RecordKind::Entry, &entry.raw, entry.created_at);
            }
        }
        let now = commit.server_time;
        for gap in &commit.gaps {
            page.push(RecordKind::Gap, &gap.to_json(now), now);
        }
        Some(page)
    }

    /// After the transaction: memory follows the file.
    fn committed(&mut self, commit: Commit, records: u64, pruned: Pruned) {
        if let Some(tail) = &commit.tail {
            self.hold = Hold::of(tail);
            self.is_released &= tail.sweep.is_some() || tail.history.is_some();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.learn(commit.entries.iter().map(|entry| entry.id), commit.sweep);
        known.settle(self.hold.sweep);
        known.forget(&pruned.ids);
        drop(known);
        self.pruned = self.pruned.max(pruned.newest);
        self.next_page += i64::from(records > 0);
        self.update_status(|status| {
            status.commits += 1;
            status.backlog += records;
            if commit.organization.is_some() {
                status.organization = commit.organization;
            }
        });
    }

    /// Begins a transaction of the relay.
    pub(super) fn begin(&self) -> Result<Transaction<'_>, LedgerError> {
        begin(&self.connection, self.fence)
    }

    /// Checks that no other process has opened the file.
    pub(super) fn check_fence(&self) -> Result<(), LedgerError> {
        check_fence(&self.connection, self.fence)
    }

    /// Changes the status, and reads the size of the file and the age of the outbox.
    pub(super) fn update_status(&self, change: impl FnOnce(&mut Status)) {
        let read = || -> rusqlite::Result<_> {
            self.update_sizes()?;
            let oldest: Option<i64> = self
                .connection
                .prepare_cached("SELECT min(arrived) FROM outbox")?
                .query_row([], |row| row.get(0))?;
            Ok(oldest.map(timestamp))
        };
        let oldest = read();
        if let Err(error) = &oldest {
            tracing::warn!(%error, "cannot read the size of the state file");
        }
        self.status.send_modify(|status| {
            change(status);
            status.oldest = oldest.unwrap_or(status.oldest);
        });
        if self.size.is_log_large(&self.status.borrow()) {
            self.truncate_log();
        }
    }
}

/// Begins a transaction that may write, and checks the fencing token in it.
fn begin(connection: &Connection, fence: i64) -> Result<Transaction<'_>, LedgerError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    check_fence(&transaction, fence)?;
    Ok(transaction)
}

fn check_fence(connection: &Connection, fence: i64) -> Result<(), LedgerError> {
    let found: i64 = connection
        .prepare_cached("SELECT fence FROM state")?
        .query_row([], |row| row.get(0))?;
    if found == fence {
        Ok(())
    } else {
        Err(LedgerError::Fenced)
    }
}

fn write_ids(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    let Some(newest) = commit.entries.iter().map(|entry| entry.created_at).max() else {
        return Ok(());
    };
    let ids: Vec<EventId> = commit.entries.iter().map(|entry| entry.id).collect();
    transaction
        .prepare_cached("INSERT INTO pages (sweep, newest, ids) VALUES (?1, ?2, ?3)")?
        .execute(params![commit.sweep, micros(newest), pack_ids(&ids)])?;
    transaction
        .prepare_cached("UPDATE state SET newest_at = max(coalesce(newest_at, ?1), ?1)")?
        .execute([micros(newest)])?;
    Ok(())
}

pub(super) fn add_totals(
    transaction: &Transaction<'_>,
    totals: &[(Total, u64)],
    now: Timestamp,
) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO totals (name, value, first_at) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
    )?;
    for (total, increase) in totals {
        upsert.execute(params![total.as_str(), increase.cast_signed(), micros(now)])?;
    }
    Ok(())
}
