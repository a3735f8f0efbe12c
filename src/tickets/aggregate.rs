//! Adds up tickets to a snapshot while their pages arrive; of the tickets themselves only hashes of their ids are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::ScanSettings;
use super::flow::Counts;
use super::ticket::Ticket;
use super::values::{LabelValues, NONE, UNKNOWN};
use crate::metrics::tickets::{Label, MIN_AGES, Snapshot};
use crate::util::shown_id;

/// The maximum number of tickets, which bounds the memory of a scan.
pub const MAX_TICKETS: u64 = 2_000_000;

/// The maximum duration of reading the listing once.
pub const MAX_SCAN: Duration = Duration::from_secs(6 * 60 * 60);

/// The numbers of one scan so far.
#[derive(Debug)]
pub struct Aggregate {
    snapshot: Snapshot,
    /// The API's clock at the start of the scan, to which ages, due dates and windows refer.
    now: Timestamp,
    states: LabelValues,
    types: LabelValues,
    priorities: LabelValues,
    ids: HashSet<u64>,
    flow: BTreeMap<Label, Counts>,
    /// Deals of open tickets, each with the highest priority that one of them gives it.
    deals: HashMap<u64, Label>,
    /// The first ticket that could not be read as documented, and why, without its data.
    pub(super) example: Option<String>,
}

// === impl Aggregate ===

impl Aggregate {
    /// Returns an empty one. `now` is the API's clock, `expected` the number of tickets to expect.
    pub fn new(settings: &ScanSettings, now: Timestamp, expected: u64) -> Self {
        let expected = usize::try_from(expected.min(MAX_TICKETS)).unwrap_or_default();
        Self {
            snapshot: Snapshot::default(),
            now,
            states: LabelValues::new(UNKNOWN, &settings.open_states),
            types: LabelValues::new(UNKNOWN, &[]),
            priorities: LabelValues::new(NONE, &settings.priorities),
            // Growing a set of a million ids would need twice the memory.
            ids: HashSet::with_capacity(expected),
            flow: BTreeMap::new(),
            deals: HashMap::new(),
            example: None,
        }
    }

    /// Gives the values of a snapshot the first places among those that have a label of their own, so that they keep it
    /// whatever the order of the listing.
    pub(super) fn keep_labels(&mut self, last: &Snapshot) {
        let used = last.by_state.iter().filter(|(_, group)| group.tickets > 0);
        for ([state, kind], _) in used {
            self.states.label(Some(state));
            self.types.label(Some(kind));
        }
        for (priority, _) in last.deals.iter().filter(|(_, deals)| **deals > 0) {
            self.priorities.label(Some(priority));
        }
    }

    /// Adds a ticket as the API wrote it, unless its id is known. Returns a hash of the id.
    pub fn add(&mut self, raw: &str) -> u64 {
        self.add_ticket(Ticket::read(raw))
    }

    /// The same for a ticket that has been read.
    pub(super) fn add_ticket(&mut self, ticket: Ticket<'_>) -> u64 {
        if self.ids.insert(ticket.key) {
            self.count(&ticket);
            if !ticket.unreadable.is_empty() {
                self.snapshot.malformed += 1;
                let fields = ticket.unreadable.join(", ");
                let example = || format!("ticket {}: cannot read {fields}", shown_id(ticket.id()));
                self.example.get_or_insert_with(example);
            }
        }
        ticket.key
    }

    /// Returns the number of distinct tickets.
    pub fn tickets(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Returns the number of distinct deals of open tickets.
    pub(crate) fn deals(&self) -> u64 {
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
            snapshot.times.entry(kind.clone()).or_default();
            let flow = self.flow.remove(&kind).unwrap_or_default();
            snapshot.flow.insert(kind, flow.finish());
        }
        let priorities = priorities.into_iter();
        snapshot.deals = priorities.map(|priority| (priority, 0)).collect();
        for priority in self.deals.into_values() {
            *snapshot.deals.entry(priority).or_default() += 1;
        }
        (snapshot.duration, snapshot.consistent) = (duration, consistent);
        snapshot.tickets = self.ids.len() as u64;
        self.snapshot
    }

    fn count(&mut self, ticket: &Ticket<'_>) {
        let state = self.states.label(ticket.state.value.as_deref());
        let kind = self.types.label(ticket.r#type.value.as_deref());
        let amount = ticket.deal_amount_sum.value.as_ref().map(|amount| amount.0);
        let is_open = self.states.configured().contains(&state);
        let group = self.snapshot.by_state.entry([state, kind.clone()]);
        group.or_default().add(amount);
        let created = ticket.created_at.time();
        // One that was opened again may keep the time.
        let closed = ticket.closed_at.time().filter(|_| !is_open);
        let flow = self.flow.entry(kind.clone()).or_default();
        flow.add(created, closed, self.now);
        if !is_open {
            return;
        }
        let priority = self.link(ticket);
        let group = self.snapshot.open.entry([kind.clone(), priority]);
        group.or_default().add(amount);
        let times = self.snapshot.times.entry(kind).or_default();
        let due = ticket.target_due_date.end();
        times.overdue += u64::from(due.is_some_and(|due| due <= self.now));
        if let Some(created) = created {
            for ((_, min_age), older) in MIN_AGES.iter().zip(&mut times.older_than) {
                *older += u64::from(self.now.duration_since(created) >= *min_age);
            }
            let oldest = times.oldest_created.get_or_insert(created);
            *oldest = created.min(*oldest);
        }
    }

    /// Notes the deals of an open ticket; returns the highest of their priorities.
    fn link(&mut self, ticket: &Ticket<'_>) -> Label {
        let mut highest = self.priorities.missing();
        for (key, priority) in ticket.deals() {
            let priority = self.priorities.label(priority);
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
