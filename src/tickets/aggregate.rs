//! Adds up tickets while their pages arrive; of the tickets themselves only hashes of their ids are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use rust_decimal::Decimal;
use rust_decimal::prelude::{FromPrimitive as _, ToPrimitive as _};

use super::Settings;
use super::flow::Counts;
use super::labels::{LabelValues, NONE, UNKNOWN};
use super::row::Row;
use crate::metrics::snapshot::{Group, Label, MIN_AGES, Snapshot};
use crate::util::{self, shown_id};

/// The maximum number of tickets, which bounds the memory of a scan.
pub const MAX_TICKETS: u64 = 2_000_000;

/// The maximum duration of reading the listing once.
pub const MAX_SCAN: Duration = Duration::from_secs(6 * 60 * 60);

/// The numbers of one scan so far.
#[derive(Debug)]
pub struct Aggregate {
    snapshot: Snapshot,
    states: LabelValues,
    types: LabelValues,
    priorities: LabelValues,
    ids: HashSet<u64>,
    flow: BTreeMap<Label, Counts>,
    /// Deals of open tickets.
    deals: HashMap<u64, Deal>,
    /// The priorities of these deals.
    deal_priorities: Vec<Label>,
    /// The first ticket that could not be read as documented, and why, without its data.
    pub(crate) example: Option<String>,
}

/// A deal of open tickets; small, because there may be a million.
#[derive(Debug)]
struct Deal {
    /// The place of the highest priority that a ticket gives it, in [`Aggregate::deal_priorities`].
    priority: u16,
    /// Its share of a ticket's amount, and among how many deals that was split.
    share: f64,
    split: u32,
}

// === impl Aggregate ===

impl Aggregate {
    /// Returns an empty one. `now` is the API's clock, `expected` the number of tickets to expect.
    pub fn new(settings: &Settings, now: Timestamp, expected: u64) -> Self {
        let expected = usize::try_from(expected.min(MAX_TICKETS)).unwrap_or_default();
        Self {
            snapshot: Snapshot::new(now),
            states: LabelValues::new(UNKNOWN, &settings.open_states),
            types: LabelValues::new(UNKNOWN, &[]),
            priorities: LabelValues::new(NONE, &settings.priorities),
            // Growing a set of a million ids would need twice the memory.
            ids: HashSet::with_capacity(expected),
            flow: BTreeMap::new(),
            deals: HashMap::new(),
            deal_priorities: Vec::new(),
            example: None,
        }
    }

    /// Adds a row as the API wrote it, unless its id is known. Returns a hash of the id.
    pub fn add(&mut self, raw: &str) -> u64 {
        let mut row = Row::read(raw);
        if self.ids.insert(row.key) {
            self.count(&mut row);
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
            snapshot.times.entry(kind.clone()).or_default();
            let flow = self.flow.remove(&kind).unwrap_or_default();
            snapshot.flow.insert(kind, flow.finish());
        }
        let priorities = priorities.into_iter();
        snapshot.deals = priorities
            .map(|priority| (priority, Group::default()))
            .collect();
        for deal in self.deals.into_values() {
            let priority = &self.deal_priorities[usize::from(deal.priority)];
            let group = snapshot.deals.entry(priority.clone()).or_default();
            group.add(Decimal::from_f64(deal.share));
        }
        snapshot.taken_at = util::now();
        (snapshot.duration, snapshot.consistent) = (duration, consistent);
        snapshot.tickets = self.ids.len() as u64;
        self.snapshot
    }

    fn count(&mut self, row: &mut Row<'_>) {
        let state = self.states.label(row.state.value.as_deref());
        let kind = self.types.label(row.r#type.value.as_deref());
        let amount = row.deal_amount_sum.value.as_ref().map(|amount| amount.0);
        let is_open = self.states.configured().contains(&state);
        let group = self.snapshot.by_state.entry([state, kind.clone()]);
        group.or_default().add(amount);
        let (created, mut closed) = (row.created_at.time(), row.closed_at.time());
        if is_open && closed.take().is_some() {
            row.unreadable.push("closedAt, because the ticket is open");
        }
        let flow = self.flow.entry(kind.clone()).or_default();
        flow.add(created, closed, self.snapshot.as_of);
        if !is_open {
            return;
        }
        let priority = self.link(row, amount);
        let group = self.snapshot.open.entry([kind.clone(), priority]);
        group.or_default().add(amount);
        let now = self.snapshot.as_of;
        let times = self.snapshot.times.entry(kind).or_default();
        let due = row.target_due_date.time();
        times.overdue += u64::from(due.is_some_and(|due| due <= now));
        if let Some(created) = created {
            for ((_, min_age), older) in MIN_AGES.iter().zip(&mut times.older_than) {
                *older += u64::from(now.duration_since(created) >= *min_age);
            }
            let oldest = times.oldest_created.get_or_insert(created);
            *oldest = created.min(*oldest);
        }
    }

    /// Notes the deals of an open ticket; returns the highest of their priorities.
    fn link(&mut self, row: &Row<'_>, amount: Option<Decimal>) -> Label {
        let mut highest = self.priorities.missing();
        let deals: Vec<_> = row.deals().collect();
        let distinct: BTreeSet<u64> = deals.iter().map(|(key, _)| *key).collect();
        let split = u32::try_from(distinct.len()).unwrap_or(u32::MAX);
        let amount = amount.and_then(|amount| amount.to_f64());
        let share = amount.map(|amount| amount / f64::from(split));
        for (key, priority) in deals {
            let priority = self.priorities.label(priority);
            let place = place(&mut self.deal_priorities, &priority);
            // A deal is counted once, with the highest priority that any open ticket gives it.
            let deal = self.deals.entry(key).or_insert(Deal {
                priority: place,
                share: 0.0,
                split: u32::MAX,
            });
            let known = &self.deal_priorities[usize::from(deal.priority)];
            if self.priorities.rank(&priority) < self.priorities.rank(known) {
                deal.priority = place;
            }
            // The fewer deals share an amount, the better the share is known; the larger one does not depend on the order.
            if let Some(share) = share
                && (split < deal.split || split == deal.split && share > deal.share)
            {
                (deal.share, deal.split) = (share, split);
            }
            if self.priorities.rank(&priority) < self.priorities.rank(&highest) {
                highest = priority;
            }
        }
        highest
    }
}

/// Returns the place of a label in a list, where it is added if it is new.
fn place(labels: &mut Vec<Label>, label: &Label) -> u16 {
    let place = labels.iter().position(|known| known == label);
    let place = place.unwrap_or_else(|| {
        labels.push(label.clone());
        labels.len() - 1
    });
    u16::try_from(place).unwrap_or_default()
}
