//! What must be true: at every commit, and in the end. It judges by the state file, `/metrics` and the requests, as another program could.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::error::Error;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::audit::Start;
use orgdata_exporter::ledger::{EventId, LedgerHandle, LedgerOptions};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::simulator::{KeyReading, Scope, TotalCount};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::Value;

use super::support::scrape::Scrape;
use super::world::{Row, State, World, rendered};

/// The longest time of the request of the first sync.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// Records wait in the outbox.
pub(super) const WAITS: &str = "records wait";

type Counts = BTreeMap<(String, String), u64>;
type Letters = (HashMap<String, String>, u64, HashSet<i64>);

/// What the file holds.
struct Held {
    tail: Tail,
    created_at: Timestamp,
    counts: Counts,
    totals: BTreeMap<String, u64>,
    known: HashSet<EventId>,
    waiting: u64,
    /// The number of the last record.
    sequence: i64,
    delivered_through: Option<Timestamp>,
}

/// What a restart of the exporter continues from, as far as it is judged by.
#[derive(Default, Deserialize)]
struct Tail {
    filters: String,
    is_synced: bool,
    watermark: Option<Timestamp>,
    since: Option<Timestamp>,
    marks: Vec<Mark>,
    has_unsettled: bool,
    held_since: Option<Timestamp>,
    was_empty: bool,
    behind: Option<Behind>,
    pass: Option<Pass>,
    complete_through: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Mark {
    at: Timestamp,
}

#[derive(Deserialize)]
struct Behind {}

#[derive(Deserialize)]
struct Pass {
    behind_since: Option<Timestamp>,
}

impl Tail {
    /// Some entries are known to be missing.
    fn is_behind(&self) -> bool {
        let covers = |pass: &Pass| pass.behind_since.is_some();
        self.behind.is_some() || self.pass.as_ref().is_some_and(covers)
    }
}

impl Held {
    fn total(&self, name: &str) -> u64 {
        self.totals.get(name).copied().unwrap_or(0)
    }
}

impl World {
    /// Looks at the file if something was committed since the last time.
    pub(super) fn look(&self, state: &mut State) {
        if !state.files.path.exists() {
            return;
        }
        let last = state.files.version;
        let reader = state.files.reader();
        let version = reader.pragma_query_value(None, "data_version", |row| row.get(0));
        let version: Option<i64> = version.ok();
        if version.is_none() || version == last {
            return;
        }
        // There are no tables until the file was begun.
        let Ok(held) = held(reader) else { return };
        state.files.version = version;
        if state.files.is_taken {
            let failure = "a commit to a file that another exporter has taken over";
            return self.fail(state, failure.to_owned());
        }
        let what = format!(
            "commit: {} late, behind {}, pass {}",
            held.total("late"),
            held.tail.is_behind(),
            held.tail.pass.is_some()
        );
        state.note(&what, held.waiting, held.known.len() as u64);
        *state.counts.entry("commits").or_default() += 1;
        if let Err(failure) = self.check(state, held) {
            self.fail(state, failure);
        }
    }

    fn check(&self, state: &mut State, held: Held) -> Result<(), String> {
        let filters = held.tail.is_synced.then(|| held.tail.filters.clone());
        let is_resynced = filters.is_some() && state.synced_filters != filters;
        if state.begun && is_resynced {
            // What came before the first page with these filters is not counted any more.
            let there = state.beginnings.last().map_or(0, |begun| begun.rows);
            for row in state.rows.iter_mut().filter(|row| !row.fate.known) {
                let is_met = held.known.contains(&row.event);
                // One that is dated ahead is newer than they.
                let is_before = row.number < there && Some(row.created) <= held.tail.watermark;
                row.fate.only_sent |= row.fate.live && (is_met || is_before);
                row.fate.live &= !row.fate.only_sent;
                row.leaves_no_trace |= row.gone;
                // An import that is older than the history of these filters need not be delivered.
                let is_older = row.number < there && Some(row.created) < held.tail.since;
                let is_older = is_older || (is_met && row.is_import);
                row.fate.may_be_sent |= row.fate.only_sent && is_older;
                row.fate.only_sent &= !row.fate.may_be_sent;
            }
            // An entry, or a whole page, was dated ahead. It was not known which of the clocks is wrong.
            let begun = state.beginnings.last().map(|begun| begun.at);
            state.uncounted_through = held.tail.watermark.filter(|at| Some(*at) > begun);
            state.taken_since = state.taken_since.min(held.tail.since);
            state.note("other filters", 0, 0);
        }
        state.synced_filters = filters;
        // A restored copy of the file forgets it.
        state.uncounted_through = state.uncounted_through.min(held.tail.watermark);
        for row in state.rows.iter_mut().filter(|row| !row.fate.known) {
            row.fate.known = held.known.contains(&row.event);
            row.fate.only_sent |=
                row.fate.live && row.fate.known && Some(row.created) <= state.uncounted_through;
            row.fate.live &= !row.fate.only_sent;
        }
        if !state.begun && held.tail.is_synced {
            state.begun = true;
            let first = held.tail.marks.first().ok_or("a first sync of no time")?;
            let begun = held.created_at.min(first.at);
            state.history_from = match self.plan.start {
                Start::Now => None,
                Start::Oldest => Some(Timestamp::MIN),
                Start::Ago(ago) => Some(begun - ago),
                Start::At(at) => Some(at),
            };
            state.taken_since = held.tail.since;
            let there = state.beginnings.last().map_or(0, |begun| begun.rows);
            for row in &mut state.rows {
                row.fate.live = !row.fate.known && row.number >= there;
                // What was deleted before it was read leaves no trace.
                row.leaves_no_trace |= row.fate.live && row.gone;
            }
            // After requests that failed, the first page is a smaller one.
            let is_small = held.known.len() < self.plan.page_size as usize;
            // No entry of a page that is dated ahead is ground.
            let is_past = |row: &Row| row.fate.known && row.created <= first.at;
            state.is_short_sync = is_small || !state.rows.iter().any(is_past);
            state.note("first sync", 0, 0);
        }
        state.was_empty = held.tail.was_empty || !state.begun;
        let now = state.epoch + state.now();
        let is_long = |at: Timestamp| now.duration_since(at) >= SignedDuration::from_mins(10);
        state.has_released |= held.tail.held_since.is_some_and(is_long);
        // After a sweep was cut, what it left out may be on a page with newer entries.
        state.has_released |= held.tail.is_behind();
        // What a pass finds above all that is settled has older ones below it.
        state.has_released |= held.tail.pass.is_some() && held.tail.has_unsettled;
        // A restart forgets that a sweep was under way.
        state.is_mid_sweep = held.tail.has_unsettled;
        // Every known event that came since the first page is counted once, and nothing else is.
        let mut counts = Counts::new();
        let is_counted = |row: &&Row| row.fate.live && row.fate.known && !row.malformed;
        for row in state.rows.iter().filter(is_counted) {
            *counts.entry(row.series.clone()).or_default() += 1;
        }
        if counts != held.counts {
            return Err(format!("counted: {}", difference(&held.counts, &counts)));
        }
        if let Some(metrics) = &state.metrics {
            for (series, value) in published(metrics) {
                if value > held.counts.get(&series).copied().unwrap_or(0) {
                    return Err(format!("{series:?} is published before it is on the disk"));
                }
            }
        }
        // What is missing lies above the newest known entry, or a sweep or a pass is to read it.
        let is_behind = held.tail.is_behind() || state.is_mid_sweep;
        if state.begun && !is_behind && self.plan.retention.is_none() {
            let rows = state.rows.iter();
            let mut rows: Vec<&Row> = rows.filter(|row| row.fate.live && row.in_order).collect();
            if self.plan.readings.key == KeyReading::CreatedAt {
                rows.sort_by_key(|row| row.created);
            }
            let missing = rows.iter().skip_while(|row| row.fate.known);
            if let Some(above) = missing.clone().find(|row| row.fate.known) {
                let missing = missing.take_while(|row| !row.fate.known);
                let missing: Vec<&str> = missing.map(|row| &*row.id).collect();
                let above = &above.id;
                return Err(format!("{above} was taken before {missing:?} below it"));
            }
        }
        self.check_watermarks(state, &held)?;
        let gaps = held.total("gaps");
        if self.plan.retention.is_none() && gaps > 0 {
            return Err("a gap is reported, but nothing was lost".to_owned());
        }
        let checkpoints = state.now().as_secs() / 3600 + 2;
        if held.waiting > 2 * state.rows.len() as u64 + gaps + checkpoints {
            return Err(format!("{} records wait in the outbox", held.waiting));
        }
        let bytes = state.files.bytes();
        if bytes > self.plan.max_size {
            return Err(format!("the file has {bytes} bytes"));
        }
        state.files.counted = held.counts;
        Ok(())
    }

    /// What was listed by the time of a watermark, and is no documented exception, is counted or delivered; and watermarks never fall.
    fn check_watermarks(&self, state: &mut State, held: &Held) -> Result<(), String> {
        let watermarks = [held.tail.complete_through, held.delivered_through];
        let last = std::mem::replace(&mut state.watermarks, watermarks);
        if watermarks[0] < last[0] || watermarks[1] < last[1] {
            return Err(format!("a watermark fell: {last:?}, {watermarks:?}"));
        }
        // Between the clocks, and the whole seconds of `Date`.
        let apart = SignedDuration::from_millis(self.plan.ahead.abs() + 1000);
        let collector = &state.collector;
        // Late ones are an exception, wherever they are listed.
        let is_punctual = |row: &&Row| row.in_order && !row.is_late && !row.gone;
        for row in state.rows.iter().filter(is_punctual) {
            let is_by = |through: Option<Timestamp>| Some(row.created + apart) < through;
            if row.fate.live && is_by(watermarks[0]) && !row.fate.known && !state.is_misled {
                return Err(format!("{} is not known: {watermarks:?}", row.id));
            }
            let is_wanted = row.fate.live || row.fate.only_sent || self.is_history(state, row);
            let is_settled = collector.taken.contains_key(&row.id)
                || collector.refused.contains(&row.id)
                || collector.partly.contains(&row.id);
            let is_missing = !is_settled && !row.malformed && !state.is_misled;
            if is_wanted && is_by(watermarks[1]) && is_missing {
                return Err(format!("{} is not delivered: {watermarks:?}", row.id));
            }
        }
        Ok(())
    }

    /// Records leave in the order of their creation, unless a sweep was open for too long or the file was full (guarantees, "Not in order"). Returns the
    /// newest one of a request, or what is wrong.
    pub(super) fn check_order(
        &self,
        state: &State,
        ids: &[String],
    ) -> Result<Option<Timestamp>, String> {
        let collector = &state.collector;
        let mut newest = collector.newest;
        // What is sent alone may be a witness. A page leaves when its oldest entry is due, and a late one may stand beside newer ones.
        // What a collector rejects is overtaken, and a page that fails is read around entries that a poll has taken.
        // A small file is full, and its records leave at once, as soon as two of them wait in it.
        let is_sorted = self.plan.collector_trouble == 0.0
            && !self.plan.is_small()
            // What is dated ahead of the exporter leaves in the order of arrival.
            && self.plan.ahead <= 0
            && self.plan.api_trouble == 0.0
            && self.plan.poison == 0.0
            && self.plan.readings.key == KeyReading::CreatedAt
            && state.rows.iter().all(|row| row.in_order || !row.fate.live);
        if ids.len() < 2 || state.has_released || !is_sorted {
            return Ok(newest);
        }
        for id in ids {
            let row = state.rows.iter().find(|row| row.id == *id);
            let Some(row) = row.filter(|row| row.fate.live && row.in_order && !row.malformed)
            else {
                continue;
            };
            // A dead letter that is sent again comes when it is.
            let was_letter = collector.refused.contains(id) || collector.partly.contains(id);
            if was_letter || collector.came_before(id) {
                continue;
            }
            // The listing and the file have no more than milliseconds.
            if newest.is_some_and(|newest| row.created.as_millisecond() < newest.as_millisecond()) {
                let created = row.created;
                return Err(format!(
                    "{id} leaves after a newer record, {created:?} after {newest:?}"
                ));
            }
            newest = Some(row.created);
        }
        Ok(newest)
    }

    /// Says what is still to be done.
    pub(super) fn is_at_rest(
        &self,
        state: &mut State,
        since: Duration,
    ) -> Result<(), &'static str> {
        let Some(metrics) = state.metrics.clone() else {
            return Err("the exporter does not run");
        };
        let at = state.epoch + since + jiff::SignedDuration::from_millis(self.plan.ahead());
        let Ok(held) = held(state.files.reader()) else {
            return Err("the file cannot be read");
        };
        // Late rows that the service deletes are not missed.
        let mut rows = state.rows.iter().filter(|row| row.fate.live);
        let is_read = rows.all(|row| row.fate.known || row.gone);
        let is_shown = state.shown == held.counts;
        for (is_done, what) in [
            (held.waiting == 0, WAITS),
            (!held.tail.is_behind(), "it is behind"),
            (held.tail.complete_through > Some(at), "no sweep since"),
            (state.begun, "no first page"),
            (is_read, "entries are not read"),
            (is_shown, "the zero hold goes on"),
        ] {
            if !is_done {
                return Err(what);
            }
        }
        let scrape = rendered(&metrics);
        let scanned = scrape.value("orgdata_tickets_snapshot_timestamp_seconds");
        if scanned <= Some((state.epoch + since).as_duration().as_secs_f64()) {
            return Err("no ticket scan since");
        }
        self.check_tickets(&scrape)
    }

    fn check_tickets(&self, scrape: &Scrape) -> Result<(), &'static str> {
        let (tickets, now) = (self.sim.tickets(), self.sim.now());
        let is_consistent = scrape.value("orgdata_tickets_snapshot_consistent");
        let is_consistent = is_consistent.ok_or("no tickets")? == 1.0;
        let mut by_state: BTreeMap<Vec<String>, (u64, i128)> = BTreeMap::new();
        let mut overdue: BTreeMap<String, u64> = BTreeMap::new();
        for ticket in &tickets {
            let text = |field: &str| ticket[field].as_str().unwrap_or("none").to_owned();
            let (state, kind) = (text("state"), text("type"));
            let due = text("targetDueDate").parse::<Timestamp>();
            if state == "OPEN" && due.is_ok_and(|due| due < now) {
                *overdue.entry(kind.clone()).or_default() += 1;
            }
            let amount = ticket["dealAmountSum"].as_f64().unwrap_or(0.0);
            let counted = by_state.entry(vec![state, kind]).or_default();
            *counted = (counted.0 + 1, counted.1 + (amount * 100.0).round() as i128);
        }
        let amounts = scrape.series("orgdata_tickets_deal_amount");
        let amounts: BTreeMap<_, _> = amounts.collect();
        let shown_groups = scrape.series("orgdata_tickets").map(|(group, count)| {
            let cents = (amounts[&group] * 100.0).round() as i128;
            (group, (count as u64, cents))
        });
        let shown_groups: BTreeMap<_, _> = shown_groups.filter(|(_, count)| count.0 > 0).collect();
        let shown_overdue = scrape.series("orgdata_open_tickets_overdue");
        let shown_overdue = shown_overdue.map(|(labels, count)| (labels.concat(), count as u64));
        let shown_overdue: BTreeMap<_, _> = shown_overdue.filter(|(_, count)| *count > 0).collect();
        let certain = self.plan.readings.total_count == TotalCount::Right
            && self.plan.readings.page_cap != Some(1);
        if shown_groups != by_state {
            return Err("the groups of tickets are wrong");
        }
        // They are as old as the service's clock, not the exporter's.
        if self.plan.ahead == 0 && shown_overdue != overdue {
            return Err("the overdue tickets are wrong");
        }
        if certain && !is_consistent {
            return Err("the snapshot is not consistent");
        }
        Ok(())
    }

    /// Everything has happened and the exporter has ended: all is where it must be.
    pub(super) fn check_end(&self, settings: &LedgerOptions) -> Result<(), String> {
        let state = &mut *self.state();
        state.files.close();
        let error = |error: Box<dyn Error>| error.to_string();
        let (letters, gaps, mut numbers) = self::letters(state.files.reader()).map_err(error)?;
        // No number of a record is missing.
        let held = held(state.files.reader()).map_err(error)?;
        let last = held.sequence;
        numbers.extend(state.collector.numbers.keys());
        if let Some(number) = (1..=last).find(|number| !numbers.contains(number)) {
            return Err(format!("the record {number} of {last} is missing"));
        }
        state.files.close();
        // It can be opened once more.
        LedgerHandle::open(settings.clone()).map_err(|error| error.to_string())?;
        // Counters are those of the service.
        let mut truth = Counts::new();
        let removed = Scope {
            removed: true,
            ..Scope::default()
        };
        for entry in self.sim.entries_of(removed) {
            let row = state.rows.iter().find(|row| row.id == entry.id);
            let is_counted = row.is_some_and(|row| row.fate.live && (row.fate.known || !row.gone));
            if is_counted && !entry.activity_type.is_empty() {
                let actor = entry.actor.map_or("none".to_owned(), |id| id.to_string());
                *truth.entry((entry.activity_type, actor)).or_default() += 1;
            }
        }
        if held.counts != truth {
            let missing = state
                .rows
                .iter()
                .filter(|row| row.fate.live && !row.fate.known);
            let missing = missing.map(|row| (&row.id, row.created, row.in_order));
            let missing: Vec<_> = missing.collect();
            return Err(format!(
                "in the end, counted: {}; not known: {missing:?}",
                difference(&held.counts, &truth)
            ));
        }
        let malformed = state.rows.iter().filter(|row| row.malformed);
        let live = malformed
            .clone()
            .filter(|row| row.fate.live && row.fate.known)
            .count() as u64;
        let old = malformed
            .filter(|row| self.may_be_history(state, row))
            .count() as u64;
        let counted = held.total("malformed");
        if !(live..=live + old).contains(&counted) {
            return Err(format!(
                "{counted} malformed, not {live} and those of {old} in the history"
            ));
        }
        let (taken, reported) = (state.collector.gaps.len() as u64, held.total("gaps"));
        if taken > reported || taken + gaps < reported {
            return Err(format!(
                "{taken} gaps are delivered, {gaps} are dead letters, but {reported} were reported"
            ));
        }
        // Every entry is delivered, or a dead letter for a reason, or gone and reported.
        let is_wanted =
            |row: &&Row| row.fate.live || row.fate.only_sent || self.is_history(state, row);
        for row in state.rows.iter().filter(is_wanted) {
            let taken = state.collector.taken.contains_key(&row.id);
            match letters.get(&row.id).map(String::as_str) {
                Some("malformed") if row.malformed => {}
                Some("partly_rejected") if state.collector.partly.contains(&row.id) => {}
                Some("rejected" | "too_large") if state.collector.refused.contains(&row.id) => {}
                Some(reason) => return Err(format!("{} is a dead letter: {reason}", row.id)),
                // A dead letter without a type can be sent again, too.
                None if taken => {}
                // Not everything that the service deletes before it is read is missed (guarantees): no late row, and no history.
                None if row.gone
                    && !row.fate.known
                    && (row.leaves_no_trace
                        || !row.in_order
                        || !row.fate.live
                        || self.is_hidden(state, row)
                        || held.total("gaps") > 0) => {}
                None => {
                    let (id, known, gone) = (&row.id, row.fate.known, row.gone);
                    return Err(format!("{id} is lost; known: {known}, gone: {gone}"));
                }
            }
        }
        let mut rows = state.rows.iter();
        let was_there = rows.find(|row| {
            let may_be = row.fate.live || row.fate.only_sent || self.may_be_history(state, row);
            !may_be
                && (state.collector.taken.contains_key(&row.id) || letters.contains_key(&row.id))
        });
        if let Some(row) = was_there {
            return Err(format!("{} is delivered, but was there before", row.id));
        }
        Ok(())
    }

    /// Returns whether nothing shows that a row was deleted before it was read (guarantees, "Gaps"): an older one that was late and was
    /// read, or an exporter whose clock is ahead and stands for the service's.
    fn is_hidden(&self, state: &State, row: &Row) -> bool {
        let is_late = |late: &Row| !late.in_order && late.fate.known && late.created < row.created;
        self.plan.no_date && self.plan.ahead < 0 || state.rows.iter().any(is_late)
    }

    /// Returns whether a row that was there before the first sync is delivered.
    fn is_history(&self, state: &State, row: &Row) -> bool {
        // The first answer may have taken long.
        let is_since = |from: Timestamp| row.created >= from.saturating_add(SLACK).unwrap_or(from);
        !row.fate.live && !row.fate.may_be_sent && state.history_from.is_some_and(is_since)
    }

    /// Returns whether it may be delivered.
    fn may_be_history(&self, state: &State, row: &Row) -> bool {
        let is_since = state.taken_since.is_some_and(|since| row.created >= since);
        row.fate.may_be_sent || !row.fate.live && (is_since || state.is_short_sync)
    }
}

/// Reads the file as another process does.
fn held(reader: &Connection) -> Result<Held, Box<dyn Error>> {
    let query = |sql| reader.prepare_cached(sql);
    let (tail, delivered, created, sequence): (String, Option<i64>, i64, i64) =
        query("SELECT tail, delivered_through, created_at, sequence FROM state")?
            .query_row([], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
    let tail = match &*tail {
        "" => Tail::default(),
        tail => serde_json::from_str(tail)?,
    };
    let mut counts = Counts::new();
    let mut events = query("SELECT activity_type, actor, count FROM events")?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        let count: i64 = row.get(2)?;
        counts.insert((row.get(0)?, row.get(1)?), count.unsigned_abs());
    }
    let mut totals = query("SELECT name, value FROM totals")?;
    let totals = totals.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut known = HashSet::new();
    let mut pages = query("SELECT ids FROM pages")?;
    let mut rows = pages.query([])?;
    while let Some(row) = rows.next()? {
        let ids: Vec<u8> = row.get(0)?;
        let (ids, _) = ids.as_chunks::<8>();
        known.extend(ids.iter().map(|id| EventId(u64::from_le_bytes(*id))));
    }
    let waiting = "SELECT coalesce(sum(records - acknowledged), 0) FROM outbox";
    Ok(Held {
        tail,
        created_at: Timestamp::from_microsecond(created)?,
        counts,
        totals: totals.collect::<rusqlite::Result<_>>()?,
        known,
        waiting: query(waiting)?.query_row([], |row| row.get(0))?,
        sequence,
        delivered_through: delivered.map(Timestamp::from_microsecond).transpose()?,
    })
}

/// Returns the ids of the entries among the dead letters with the reason of each, the number of gaps among them, and the numbers of all of them.
fn letters(reader: &Connection) -> Result<Letters, Box<dyn Error>> {
    let (mut entries, mut gaps, mut numbers) = (HashMap::new(), 0, HashSet::new());
    let mut query = reader.prepare("SELECT reason, line FROM dead_letters")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(1)?;
        let line: Value = serde_json::from_str(&line)?;
        let record = &line["record"];
        match record["kind"].as_str() {
            Some("entry") => {
                let id = line["entry"]["id"].as_str().unwrap_or_default();
                entries.insert(id.to_owned(), row.get(0)?);
            }
            Some("gap") => gaps += 1,
            _ => {}
        }
        numbers.extend(record["sequence"].as_i64());
    }
    Ok((entries, gaps, numbers))
}

/// Returns what the metrics have counted.
fn published(metrics: &Metrics) -> Counts {
    let events = metrics.audit.events().into_iter();
    let events = events
        .filter(|(_, count)| *count > 0)
        .map(|(labels, count)| {
            let actor = labels.actor.map(|actor| actor.to_string());
            let actor = actor.unwrap_or_else(|| "none".to_owned());
            ((labels.activity_type.to_string(), actor), count)
        });
    events.collect()
}

fn difference(found: &Counts, truth: &Counts) -> String {
    let keys: BTreeSet<_> = found.keys().chain(truth.keys()).collect();
    let keys = keys.into_iter();
    let differs = keys.filter(|key| found.get(*key) != truth.get(*key));
    let differs =
        differs.map(|key| format!("{key:?} is {:?}, not {:?}", found.get(key), truth.get(key)));
    differs.collect::<Vec<_>>().join("; ")
}
