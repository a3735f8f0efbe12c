//! Adds up tickets while their pages arrive; of the tickets themselves only hashes of their ids are kept.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Settings;
use super::labels::{LabelValues, NONE, UNKNOWN};
use super::row::Row;
use super::scan::{MAX_SCAN, MAX_TICKETS};
use crate::metrics::snapshot::{Clock, Label, MIN_AGES, Snapshot};
use crate::util::{self, shown_id};

/// The numbers of one scan so far.
#[derive(Debug)]
pub struct Aggregate {
    snapshot: Snapshot,
    states: LabelValues,
    types: LabelValues,
    priorities: LabelValues,
    ids: HashSet<u64>,
    /// Deals of open tickets, each with its highest priority.
    deals: HashMap<u64, Label>,
    /// The first ticket that could not be read as documented, and why, without its data.
    pub(crate) example: Option<String>,
}

// === impl Aggregate ===

impl Aggregate {
    /// Returns an empty one. `now` is the API's clock, `expected` the number of tickets to expect. The label values of an
    /// `earlier` snapshot are kept before new ones.
    pub fn new(
        settings: &Settings,
        earlier: Option<&Snapshot>,
        now: Timestamp,
        expected: u64,
    ) -> Self {
        let [states, types, priorities] = earlier.map(Snapshot::labels).unwrap_or_default();
        let expected = usize::try_from(expected.min(MAX_TICKETS)).unwrap_or_default();
        let lifetime = MAX_SCAN.saturating_add(settings.max_age);
        let clock = Clock {
            server: now,
            at: Instant::now(),
            lifetime: SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX),
        };
        Self {
            snapshot: Snapshot::new(clock),
            states: LabelValues::new(UNKNOWN, &settings.open_states, states),
            types: LabelValues::new(UNKNOWN, &[], types),
            priorities: LabelValues::new(NONE, &settings.priorities, priorities),
            // Growing a set of a million ids would need twice the memory.
            ids: HashSet::with_capacity(expected),
            deals: HashMap::new(),
            example: None,
        }
    }

    /// Adds a row as the API wrote it, unless its id is known. Returns a hash of the id.
    pub fn add(&mut self, raw: &str) -> u64 {
        let row = Row::read(raw);
        if self.ids.insert(row.key) {
            self.count(&row);
            if !row.unreadable.is_empty() {
                self.snapshot.malformed += 1;
                let fields = row.unreadable.join(", ");
                let example = || format!("ticket {}: cannot read {fields}", shown_id(row.id()));
                self.example.get_or_insert_with(example);
            }
        }
        row.key
    }

    /// Returns the number of distinct tickets.
    pub fn tickets(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Returns the number of distinct deals of open tickets.
    pub fn deals(&self) -> u64 {
        self.deals.len() as u64
    }

    /// Returns the snapshot. Each combination of a type with an open state or a priority of the settings has a series, so
    /// that a query answers 0 and not "no data"; without any ticket the type is [`UNKNOWN`].
    pub fn finish(mut self, duration: Duration, consistent: bool) -> Snapshot {
        let snapshot = &mut self.snapshot;
        let mut states = self.states.configured().to_vec();
        let types = snapshot.by_state.keys().map(|[_, kind]| kind.clone());
        let mut types: BTreeSet<Label> = types.collect();
        if types.is_empty() {
            types.insert(self.types.missing());
            if states.is_empty() {
                states.push(self.states.missing());
            }
        }
        let mut priorities = self.priorities.configured().to_vec();
        priorities.push(self.priorities.missing());
        for kind in types {
            for state in &states {
                let labels = [state.clone(), kind.clone()];
                snapshot.by_state.entry(labels).or_default();
            }
            for priority in &priorities {
                let labels = [kind.clone(), priority.clone()];
                snapshot.open.entry(labels).or_default();
            }
            snapshot.times.entry(kind).or_default();
        }
        let priorities = priorities.into_iter();
        snapshot.deals = priorities.map(|priority| (priority, 0)).collect();
        for priority in self.deals.into_values() {
            *snapshot.deals.entry(priority).or_default() += 1;
        }
        snapshot.taken_at = util::now();
        (snapshot.duration, snapshot.consistent) = (duration, consistent);
        snapshot.tickets = self.ids.len() as u64;
        self.snapshot
    }

    fn count(&mut self, row: &Row<'_>) {
        let state = self.states.label(row.state.value.as_deref());
        let kind = self.types.label(row.r#type.value.as_deref());
        let amount = row.deal_amount_sum.value.as_ref().map(|amount| amount.0);
        let is_open = self.states.configured().contains(&state);
        let group = self.snapshot.by_state.entry([state, kind.clone()]);
        group.or_default().add(amount);
        if !is_open {
            return;
        }
        let priority = self.link(row);
        let group = self.snapshot.open.entry([kind.clone(), priority]);
        group.or_default().add(amount);
        let (clock, times) = (&self.snapshot.clock, &mut self.snapshot.times);
        let times = times.entry(kind).or_default();
        if let Some(due) = row.target_due_date.time() {
            times.overdue.add(due, clock);
        }
        if let Some(created) = row.created_at.time() {
            for ((_, min_age), older) in MIN_AGES.iter().zip(&mut times.older_than) {
                let moment = created.saturating_add(*min_age);
                older.add(moment.unwrap_or(Timestamp::MAX), clock);
            }
            let oldest = times.oldest_created.get_or_insert(created);
            *oldest = created.min(*oldest);
        }
    }

    /// Notes the deals of an open ticket; returns the highest of their priorities.
    fn link(&mut self, row: &Row<'_>) -> Label {
        let mut highest = self.priorities.missing();
        for (key, priority) in row.deals() {
            let priority = self.priorities.label(priority);
            // A deal is counted once, with the highest priority that any open ticket gives it.
            let known = self.deals.entry(key).or_insert_with(|| priority.clone());
            if self.priorities.rank(&priority) < self.priorities.rank(known) {
                known.clone_from(&priority);
            }
            if self.priorities.rank(&priority) < self.priorities.rank(&highest) {
                highest = priority;
            }
        }
        highest
    }
}
