//! The ledger itself: what one transaction changes, on disk first and shown after.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::block::{self, BlockWriter, OpenPage};
use super::fill::Fill;
use super::known::Known;
use super::labels::{self, Changed, Labels};
use super::open::{self, OpenError, Opened, StatePath};
use super::types::{
    Backlog, Birth, Commit, DeadLetter, DeadReason, Direction, Disposition, EventId, Frontier, Gap,
    Mark, RecordKind, Walk, WalkChange, WalkKind,
};
use super::{LedgerError, LedgerState, Settings, letters, schema};
use crate::metrics::Metrics;
use crate::metrics::audit::{Delta, Total, Trace};

/// Ids of this many newest entries are never pruned.
const MIN_IDS: i64 = 10_000;

/// Two clocks that differ by less show the same time: a `Date` is cut to the second, and the answer took a moment.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_millis(2500);

/// How many old ids are pruned in one transaction, roughly.
const PRUNED_AT_ONCE: i64 = 20_000;

/// The open file and what is kept of it in memory.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) connection: Connection,
    /// Held until the file is let go of; the system lets go of it in any case.
    lock: Option<std::fs::File>,
    pub(super) settings: Settings,
    pub(super) metrics: Metrics,
    /// Every id that the table `seen` holds. A look-up on disk would touch the whole tree.
    pub(super) known: Arc<RwLock<Known>>,
    labels: Labels,
    pub(super) backlog: Arc<Mutex<Backlog>>,
    pub(super) fill: Arc<Fill>,
    /// The page that was read last, while records wait: a request rarely ends with a page, and the next one goes on inside it.
    pub(super) open_page: Option<OpenPage>,
    pruned_at: Option<Timestamp>,
    /// The floor that ids were pruned to.
    prune_floor: Option<Timestamp>,
    /// The version of the data, as SQLite counts what others wrote, in which queued dead letters were looked for last.
    pub(super) replayed_until: Option<i64>,
    /// The same of the last count of dead letters without a collector.
    pub(super) recounted_at: Option<i64>,
}

// === impl Ledger ===

impl Ledger {
    /// Opens the file and shows what it holds.
    pub(super) fn open(
        settings: Settings,
        metrics: Metrics,
    ) -> Result<(Self, LedgerState), OpenError> {
        let opened = open::open(&settings.path, &settings.base_url)?;
        let set_aside = opened.set_aside.is_some();
        let failed =
            |settings: &Settings, error| open::sqlite(Path::new(&settings.path.to_string()), error);
        let mut ledger = Self::of(opened, settings, metrics);
        let error = match ledger.load(set_aside) {
            Ok(state) => return Ok((ledger, state)),
            Err(error) => error,
        };
        match (&ledger.settings.path.clone(), ledger.lock.take()) {
            // An exporter that ends at every start on its own state is worse than the loss it fears.
            (StatePath::File(path), Some(lock)) if !set_aside && open::is_unusable(&error) => {
                let Self {
                    connection,
                    settings,
                    metrics,
                    ..
                } = ledger;
                drop(connection);
                let opened = open::begin_afresh(path, &settings.base_url, lock, &error)?;
                let mut ledger = Self::of(opened, settings, metrics);
                let state = ledger
                    .load(true)
                    .map_err(|error| failed(&ledger.settings, error))?;
                Ok((ledger, state))
            }
            _ => Err(failed(&ledger.settings, error)),
        }
    }

    fn of(opened: Opened, settings: Settings, metrics: Metrics) -> Self {
        Self {
            connection: opened.connection,
            lock: opened.lock,
            labels: Labels::new(&settings),
            fill: Arc::new(Fill::new(&settings)),
            settings,
            metrics,
            known: Arc::default(),
            backlog: Arc::default(),
            open_page: None,
            pruned_at: None,
            prune_floor: None,
            replayed_until: None,
            recounted_at: None,
        }
    }

    /// Reads everything, and shows it once all of it could be read.
    fn load(&mut self, set_aside: bool) -> rusqlite::Result<LedgerState> {
        self.found(set_aside)?;
        let state = self.load_state()?;
        self.prune_floor = state.prune_floor;
        self.load_known()?;
        self.restore_metrics()?;
        self.count_backlog()?;
        self.show_dead_letters();
        Ok(state)
    }

    /// Sets the file aside, begins a fresh one, and lets go of both: whoever opens it next goes on with the fresh one.
    pub(super) fn set_aside(&mut self, why: &str) -> Result<(), OpenError> {
        let (StatePath::File(path), Some(lock)) = (self.settings.path.clone(), self.lock.take())
        else {
            return Ok(());
        };
        let failed = |error| open::sqlite(&path, error);
        // Closed before it is renamed: SQLite finds what it keeps beside the file by name.
        self.connection = Connection::open_in_memory().map_err(failed)?;
        let opened = open::begin_afresh(&path, &self.settings.base_url, lock, &why)?;
        self.connection = opened.connection;
        let founded = self.found(true).map_err(failed);
        self.connection = Connection::open_in_memory().map_err(failed)?;
        founded
    }

    /// Writes one commit; nothing of it shows, in memory or on `/metrics`, before it is on disk.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<Option<Timestamp>, LedgerError> {
        let mut changed = Changed::default();
        match self.write(commit, &mut changed) {
            Ok(written) => {
                self.metrics.state.commits.inc();
                self.shown(commit, written);
                // Nothing may fail here any more: the commit is on disk.
                Ok(self.prune_floor)
            }
            Err(error) => {
                self.labels.undo(changed);
                self.metrics.state.commit_failures.inc();
                Err(LedgerError::from(error))
            }
        }
    }

    fn write(&mut self, commit: &Commit, changed: &mut Changed) -> rusqlite::Result<Delta> {
        let mut delta = Delta {
            trace: commit.trace.map(|trace| Trace {
                trace_id: trace.trace_id,
                span_id: trace.span_id,
            }),
            ..Delta::default()
        };
        let transaction = write_transaction(&self.connection)?;
        write_state(&transaction, commit)?;
        write_walk(&transaction, commit.walk.as_ref())?;
        {
            // What is dated before the frontier stands among the newest all the same, where the service's order is that of arrival: it is
            // forgotten with them, or it would pass for new again.
            let frontier_at: Option<i64> = transaction
                .prepare_cached("SELECT frontier_at FROM state")?
                .query_row([], |row| row.get(0))?;
            let reached = frontier_at.map_or(i64::MIN, |at| at.min(micros(commit.server_time)));
            let mut insert = transaction
                .prepare_cached("INSERT OR IGNORE INTO seen (created, id) VALUES (?1, ?2)")?;
            for entry in &commit.entries {
                insert.execute(params![
                    micros(entry.created_at).max(reached),
                    entry.id.0.cast_signed()
                ])?;
            }
        }
        self.labels
            .count(&transaction, commit, &mut delta, changed)?;
        add_totals(&transaction, commit, &mut delta)?;
        if self.settings.outbox {
            write_outbox(&transaction, commit)?;
        }
        letters::write(&transaction, &self.malformed(commit))?;
        transaction.commit()?;
        Ok(delta)
    }

    /// Entries that cannot be read: nothing else holds them from now on.
    fn malformed(&self, commit: &Commit) -> Vec<DeadLetter> {
        unreadable(commit)
            .map(|(entry, message)| DeadLetter {
                reason: DeadReason::Malformed,
                message: message.clone(),
                kind: RecordKind::Entry,
                arrived_at: commit.arrived_at,
                raw: (self.settings.redact)(&entry.raw),
            })
            .collect()
    }

    /// After the transaction: what it changed becomes visible.
    fn shown(&mut self, commit: &Commit, mut delta: Delta) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        commit
            .entries
            .iter()
            .for_each(|entry| known.insert(entry.id));
        drop(known);
        let live = commit
            .entries
            .iter()
            .filter(|entry| entry.disposition == Disposition::Live && entry.event.is_ok());
        let now = present(commit);
        delta.delays = live
            .map(|entry| now.duration_since(entry.created_at).as_secs_f64().max(0.0))
            .collect();
        delta.newest = commit.entries.iter().map(|entry| entry.created_at).max();
        self.metrics.audit.publish(delta);
        self.dead_letters_added(unreadable(commit).count());
        self.backlog_changed(commit.records(self.settings.outbox));
        if let Err(error) = self.prune(commit.server_time) {
            tracing::warn!(%error, "cannot prune old ids; tried again later");
        }
    }

    /// Forgets ids that no re-read will meet again: by age, never inside what the next re-read reaches, never the newest.
    fn prune(&mut self, now: Timestamp) -> rusqlite::Result<()> {
        let hour = SignedDuration::from_hours(1);
        // Also when the clock went back: a jump ahead must not stop the pruning for as long as it was far.
        if self
            .pruned_at
            .is_some_and(|at| now.duration_since(at).abs() < hour)
        {
            return Ok(());
        }
        self.pruned_at = Some(now);
        let window =
            SignedDuration::try_from(self.settings.reread_window).unwrap_or(SignedDuration::MAX);
        let reread_at: Option<i64> = self
            .connection
            .query_row(
                "SELECT coalesce(reread_at, born_at) FROM state",
                [],
                |row| row.get(0),
            )
            .optional()?
            .flatten();
        let reach = reread_at.map_or(now, timestamp);
        let keep = self
            .settings
            .id_retention
            .try_into()
            .unwrap_or(SignedDuration::MAX);
        let cutoff = earlier(now, keep).min(earlier(reach, window));
        let newest: Option<i64> = self
            .connection
            .query_row(
                "SELECT created FROM seen ORDER BY created DESC LIMIT 1 OFFSET ?1",
                [MIN_IDS],
                |row| row.get(0),
            )
            .optional()?;
        let Some(newest) = newest else { return Ok(()) };
        let mut cutoff = micros(cutoff).min(newest);
        // A long absence leaves many: a part of them with each commit, so that no commit, and no memory, is out of proportion.
        let slice: Option<i64> = self
            .connection
            .query_row(
                "SELECT created FROM seen ORDER BY created LIMIT 1 OFFSET ?1",
                [PRUNED_AT_ONCE],
                |row| row.get(0),
            )
            .optional()?;
        if let Some(slice) = slice
            .map(|last| last.saturating_add(1))
            .filter(|slice| *slice < cutoff)
        {
            cutoff = slice;
            self.pruned_at = None;
        }
        let transaction = self.connection.unchecked_transaction()?;
        let gone: Vec<i64> = transaction
            .prepare_cached("DELETE FROM seen WHERE created < ?1 RETURNING id")?
            .query_map([cutoff], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if gone.is_empty() {
            return Ok(());
        }
        transaction.execute(
            "UPDATE state SET prune_floor = max(coalesce(prune_floor, ?1), ?1)",
            [cutoff],
        )?;
        transaction.commit()?;
        self.prune_floor = self.prune_floor.max(Some(timestamp(cutoff)));
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for id in gone {
            known.remove(EventId(id.cast_unsigned()));
        }
        Ok(())
    }

    /// The first row of a fresh file; or what an earlier process left.
    fn found(&self, set_aside: bool) -> rusqlite::Result<()> {
        let now = micros(Timestamp::now());
        self.connection.execute(
            "INSERT OR IGNORE INTO state (one, schema_version, oldest_reader, base_url, instance_id, filters, recreated_at) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                schema::VERSION,
                schema::OLDEST_READER,
                self.settings.base_url,
                uuid::Uuid::new_v4().to_string(),
                self.settings.filters,
                set_aside.then_some(now)
            ],
        )?;
        let recreated: Option<i64> =
            self.connection
                .query_row("SELECT recreated_at FROM state", [], |row| row.get(0))?;
        if let Some(at) = recreated {
            self.metrics.state.recreated(timestamp(at), set_aside);
        }
        Ok(())
    }

    pub(super) fn load_state(&self) -> rusqlite::Result<LedgerState> {
        let mut state = self
            .connection
            .query_row("SELECT * FROM state", [], |row| {
                let born_at = time(row, "born_at")?;
                Ok(LedgerState {
                    instance_id: row.get("instance_id")?,
                    organization: row.get("organization")?,
                    filters: row.get("filters")?,
                    recreated_at: time(row, "recreated_at")?,
                    birth: match born_at {
                        Some(born_at) => Some(Birth {
                            born_at,
                            start_floor: time(row, "start_floor")?,
                            count_floor: time(row, "count_floor")?,
                        }),
                        None => None,
                    },
                    filter_floor: time(row, "filter_floor")?,
                    prune_floor: time(row, "prune_floor")?,
                    frontier: Frontier {
                        cursor: row.get("cursor")?,
                        id: row
                            .get::<_, Option<i64>>("frontier_id")?
                            .map(|id| EventId(id.cast_unsigned())),
                    },
                    frontier_at: time(row, "frontier_at")?,
                    newest_at: time(row, "newest_at")?,
                    reread_at: time(row, "reread_at")?,
                    walk: read_walk(row)?,
                    walk_top: row
                        .get::<_, Option<Vec<u8>>>("walk_top")?
                        .map(|top| block::unpack(&top))
                        .transpose()
                        .map_err(|error| {
                            rusqlite::Error::FromSqlConversionFailure(
                                0,
                                Type::Blob,
                                Box::new(error),
                            )
                        })?,
                })
            })?;
        if let Some(walk) = &mut state.walk {
            let mut marks = self
                .connection
                .prepare("SELECT before, ends, bottom FROM walk_marks ORDER BY depth")?;
            let marks = marks.query_map([], |row| {
                Ok(Mark {
                    before: row.get(0)?,
                    end: row.get(1)?,
                    bottom: EventId(row.get::<_, i64>(2)?.cast_unsigned()),
                })
            })?;
            walk.marks = marks.collect::<Result<_, _>>()?;
        }
        Ok(state)
    }

    fn load_known(&self) -> rusqlite::Result<()> {
        let mut ids = self.connection.prepare("SELECT id FROM seen")?;
        let ids = ids.query_map([], |row| row.get::<_, i64>(0))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for id in ids {
            known.insert(EventId(id?.cast_unsigned()));
        }
        Ok(())
    }

    fn restore_metrics(&mut self) -> rusqlite::Result<()> {
        let mut delta = Delta::default();
        // A full disk must not keep the exporter from its start.
        if let Err(error) = labels::forget_schemes(&self.connection, self.labels.scheme()) {
            tracing::debug!(%error, "counters under labels that are not in use cannot be deleted yet");
        }
        self.metrics
            .audit
            .restore_counted(labels::counted(&self.connection)?);
        self.labels.restore(&self.connection, &mut delta)?;
        delta.newest = self
            .connection
            .query_row("SELECT newest_at FROM state", [], |row| {
                row.get::<_, Option<i64>>(0)
            })?
            .map(timestamp);
        let mut totals = Vec::new();
        for total in Total::ALL {
            let value: Option<i64> = self
                .connection
                .query_row(
                    "SELECT value FROM totals WHERE name = ?1",
                    [total.as_str()],
                    |row| row.get(0),
                )
                .optional()?;
            totals.push((total, value.unwrap_or(0).cast_unsigned()));
        }
        self.metrics.audit.publish(delta);
        for (total, value) in totals {
            self.metrics.audit.restore(total, value);
        }
        Ok(())
    }
}

/// Entries that become dead letters, and what is wrong with each.
fn unreadable(commit: &Commit) -> impl Iterator<Item = (&super::NewEntry, &String)> {
    let taken = commit
        .entries
        .iter()
        .filter(|entry| entry.disposition != Disposition::Baseline);
    taken.filter_map(|entry| Some((entry, entry.event.as_ref().err()?)))
}

/// The present by the service's clock. It tells whole seconds; where this machine's clock agrees with it, that one tells the rest.
fn present(commit: &Commit) -> Timestamp {
    let ahead = commit.arrived_at.duration_since(commit.server_time);
    if ahead >= SignedDuration::ZERO && ahead <= CLOCKS_AGREE {
        commit.arrived_at
    } else {
        commit.server_time
    }
}

/// A transaction that reads before it writes. It takes the right to write first: one that reads first is refused at once where another
/// program is writing, and where it waits it gets its turn.
pub(super) fn write_transaction(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
}

fn write_state(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    if let Some(birth) = &commit.birth {
        transaction
            .prepare_cached("UPDATE state SET born_at = ?1, start_floor = ?2, count_floor = ?3")?
            .execute(params![
                micros(birth.born_at),
                birth.start_floor.map(micros),
                birth.count_floor.map(micros)
            ])?;
    }
    if let Some(organization) = &commit.organization {
        transaction
            .prepare_cached("UPDATE state SET organization = ?1")?
            .execute([organization])?;
    }
    if let Some((filters, floor)) = &commit.filters {
        transaction
            .prepare_cached("UPDATE state SET filters = ?1, filter_floor = ?2")?
            .execute(params![filters, floor.map(micros)])?;
    }
    if let Some(frontier) = &commit.frontier {
        transaction
            .prepare_cached("UPDATE state SET cursor = ?1, frontier_id = ?2")?
            .execute(params![
                frontier.cursor,
                frontier.id.map(|id| id.0.cast_signed())
            ])?;
    }
    if let Some(at) = commit.frontier_at {
        transaction
            .prepare_cached("UPDATE state SET frontier_at = max(coalesce(frontier_at, ?1), ?1)")?
            .execute([micros(at)])?;
    }
    if let Some(at) = commit.entries.iter().map(|entry| entry.created_at).max() {
        transaction
            .prepare_cached("UPDATE state SET newest_at = max(coalesce(newest_at, ?1), ?1)")?
            .execute([micros(at)])?;
    }
    if let Some(at) = commit.reread_at {
        transaction
            .prepare_cached("UPDATE state SET reread_at = ?1")?
            .execute([micros(at)])?;
    }
    Ok(())
}

fn add_totals(
    transaction: &Transaction<'_>,
    commit: &Commit,
    delta: &mut Delta,
) -> rusqlite::Result<()> {
    let count = |f: &dyn Fn(&super::NewEntry) -> bool| {
        commit.entries.iter().filter(|entry| f(entry)).count() as u64
    };
    delta.totals.extend([
        (
            Total::Late,
            count(&|entry| entry.disposition == Disposition::Late),
        ),
        (Total::Duplicate, commit.duplicates),
        (
            Total::Malformed,
            count(&|entry| {
                entry.disposition != Disposition::Baseline
                    && entry.event.as_ref().map_or(true, |event| event.malformed)
            }),
        ),
        (Total::Recoveries, u64::from(commit.recovered)),
        (Total::Gaps, commit.gaps.len() as u64),
    ]);
    delta.totals.retain(|(_, rise)| *rise > 0);
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO totals (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
    )?;
    for (total, rise) in &delta.totals {
        upsert.execute(params![total.as_str(), rise.cast_signed()])?;
    }
    Ok(())
}

fn write_walk(transaction: &Transaction<'_>, change: Option<&WalkChange>) -> rusqlite::Result<()> {
    let Some(change) = change else { return Ok(()) };
    match change {
        WalkChange::Begin { walk, top } => {
            transaction.execute("DELETE FROM walk_marks", [])?;
            transaction
                .prepare_cached(
                    "UPDATE state SET walk = ?1, walk_direction = ?2, walk_floor = ?3, walk_started = ?4, walk_top = ?5, walk_joined = ?6",
                )?
                .execute(params![
                    walk.kind.as_str(),
                    walk.direction.as_str(),
                    walk.floor.map(micros),
                    micros(walk.started_at),
                    top.as_deref().map(block::pack),
                    walk.joined
                ])?;
            for (depth, mark) in walk.marks.iter().enumerate() {
                write_mark(transaction, depth, mark)?;
            }
        }
        WalkChange::Mark { depth, mark } => {
            transaction
                .prepare_cached("DELETE FROM walk_marks WHERE depth > ?1")?
                .execute([*depth as i64])?;
            transaction
                .prepare_cached("UPDATE state SET walk_direction = 'down'")?
                .execute([])?;
            write_mark(transaction, *depth, mark)?;
        }
        WalkChange::Up { depth, joined } => {
            transaction
                .prepare_cached("DELETE FROM walk_marks WHERE depth >= ?1")?
                .execute([*depth as i64])?;
            transaction
                .prepare_cached("UPDATE state SET walk_direction = 'up', walk_joined = ?1")?
                .execute([joined])?;
        }
        WalkChange::End => {
            transaction.execute("DELETE FROM walk_marks", [])?;
            transaction
                .prepare_cached(
                    "UPDATE state SET walk = NULL, walk_direction = NULL, walk_floor = NULL, walk_started = NULL, walk_top = NULL",
                )?
                .execute([])?;
        }
    }
    Ok(())
}

fn write_mark(transaction: &Transaction<'_>, depth: usize, mark: &Mark) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO walk_marks (depth, before, ends, bottom) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![depth as i64, mark.before, mark.end, mark.bottom.0.cast_signed()])?;
    Ok(())
}

fn read_walk(row: &Row<'_>) -> rusqlite::Result<Option<Walk>> {
    let Some(kind) = row.get::<_, Option<String>>("walk")? else {
        return Ok(None);
    };
    let Some(kind) = WalkKind::ALL
        .into_iter()
        .find(|known| known.as_str() == kind)
    else {
        return Ok(None);
    };
    let direction = if row.get::<_, Option<String>>("walk_direction")?.as_deref() == Some("up") {
        Direction::Up
    } else {
        Direction::Down
    };
    let started_at = time(row, "walk_started")?.unwrap_or(Timestamp::UNIX_EPOCH);
    let joined = row.get("walk_joined")?;
    Ok(Some(Walk {
        kind,
        direction,
        floor: time(row, "walk_floor")?,
        started_at,
        joined,
        marks: Vec::new(),
    }))
}

fn write_outbox(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    let mut writer = BlockWriter::default();
    for entry in &commit.entries {
        if entry.is_record() {
            writer.push(RecordKind::Entry, &entry.raw);
        }
    }
    for gap in &commit.gaps {
        writer.push(RecordKind::Gap, &gap_record(gap, commit.server_time));
    }
    if writer.records() == 0 {
        return Ok(());
    }
    let trace = commit
        .trace
        .map(|trace| [trace.trace_id.as_slice(), trace.span_id.as_slice()].concat());
    transaction
        .prepare_cached(
            "INSERT INTO outbox (arrived, records, trace, block) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            micros(commit.arrived_at),
            writer.records(),
            trace,
            writer.finish()
        ])?;
    Ok(())
}

/// A gap as a record of its own.
pub(super) fn gap_record(gap: &Gap, detected_at: Timestamp) -> String {
    serde_json::json!({
        "id": uuid::Uuid::new_v4().to_string(),
        "type": "gap",
        "detectedAt": detected_at.to_string(),
        "reason": gap.reason.as_str(),
        "from": gap.from.map(|at| at.to_string()),
        "to": gap.to.map(|at| at.to_string()),
        "message": gap.message,
    })
    .to_string()
}

fn time(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(timestamp))
}

/// Microseconds since the epoch: what the file holds.
pub(super) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Undoes [`micros`]; a value out of range (a damaged or foreign file) is the nearest time there is.
pub(super) fn timestamp(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(if micros < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// `by` before `at`, or the first time there is.
fn earlier(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
