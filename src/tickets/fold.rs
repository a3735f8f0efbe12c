//! Folds tickets into the numbers of a snapshot while their pages arrive; of the tickets themselves only the ids stay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::amount::Amount;
use super::ids::IdMap;
use super::labels::{NONE, UNKNOWN, Vocabulary};
use super::row::{Row, deal_key};
use super::snapshot::{Clock, Group, MIN_AGES, OpenTimes, Snapshot, millis};
use super::walk::Doubt;
use super::{MAX_SCAN, Settings};
use crate::api::{LinkedDeal, Text, Ticket, parse_time};

/// One scan's numbers, growing.
#[derive(Debug)]
pub struct Fold {
    clock: Clock,
    /// No snapshot of this scan is shown later than this, in milliseconds since the epoch.
    horizon: i64,
    states: Vocabulary,
    types: Vocabulary,
    priorities: Vocabulary,
    ids: IdMap<()>,
    /// Deals of open tickets, each with the number of its highest priority.
    deals: IdMap<u8>,
    by_state: BTreeMap<(u8, u8), Group>,
    open: BTreeMap<(u8, u8), Group>,
    open_times: BTreeMap<u8, OpenTimes>,
    malformed: u64,
    /// What was wrong with the first of them.
    example: Option<String>,
    unknown_fields: u64,
    fingerprint: u64,
}

/// What adding a row showed.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The ticket's identity.
    pub key: u64,
    /// Whether it is the first row with this identity.
    pub new: bool,
}

// === impl Fold ===

impl Fold {
    /// An empty one. `now` is the service's clock; the label values of an `earlier` snapshot are kept before new ones.
    pub fn new(settings: &Settings, earlier: Option<&Snapshot>, now: Timestamp) -> Self {
        let clock = Clock::new(now);
        let seen =
            |which: fn(&Snapshot) -> Vec<&str>| earlier.map(which).unwrap_or_default().into_iter();
        Self {
            clock,
            horizon: clock
                .start()
                .saturating_add(millis(MAX_SCAN))
                .saturating_add(millis(settings.max_age)),
            states: Vocabulary::new(UNKNOWN, &settings.open_states, seen(Snapshot::states)),
            types: Vocabulary::new(UNKNOWN, &[], seen(Snapshot::types)),
            priorities: Vocabulary::new(NONE, &settings.priorities, seen(Snapshot::priorities)),
            ids: IdMap::new(),
            deals: IdMap::new(),
            by_state: BTreeMap::new(),
            open: BTreeMap::new(),
            open_times: BTreeMap::new(),
            malformed: 0,
            example: None,
            unknown_fields: 0,
            fingerprint: 0,
        }
    }

    /// Adds a row as the service wrote it; a repeated one changes nothing.
    pub fn add(&mut self, raw: &str) -> Seen {
        let row = Row::read(raw);
        let seen = Seen {
            key: row.key,
            new: self.ids.insert(row.key, ()).is_none(),
        };
        if !seen.new {
            return seen;
        }
        // The order of the rows does not matter to it.
        self.fingerprint = self
            .fingerprint
            .wrapping_add(row.key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ row.key.rotate_left(32));
        self.unknown_fields += row.unknown_fields;
        let mut problem = row.malformed;
        self.count(&row.ticket, row.key, &mut problem);
        if let Some(problem) = problem {
            self.malformed += 1;
            let id = row.ticket.id.map_or_else(
                || "a ticket without an id".to_owned(),
                |id| format!("ticket {id}"),
            );
            self.example
                .get_or_insert_with(|| format!("{id}: {problem}"));
        }
        seen
    }

    /// Distinct tickets so far.
    pub fn tickets(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Distinct deals of open tickets so far.
    pub fn deals(&self) -> u64 {
        self.deals.len() as u64
    }

    /// Fields that the specification does not name.
    pub fn unknown_fields(&self) -> u64 {
        self.unknown_fields
    }

    /// What was wrong with the first ticket that could not be read as documented; nothing of what it holds but its id.
    pub fn example(&self) -> Option<&str> {
        self.example.as_deref()
    }

    /// The same for the same tickets in any order.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The snapshot of what was folded: every combination of an open state or a priority of the settings with a type of its tickets is there,
    /// at 0 if need be; without a single ticket the type is [`UNKNOWN`].
    pub fn finish(mut self, duration: Duration, doubt: Option<Doubt>) -> Snapshot {
        if self.by_state.is_empty() && self.states.configured().is_empty() {
            // Without a single series a query would say "no data" where the answer is 0.
            self.by_state.entry((0, 0)).or_default();
        }
        let mut types: Vec<u8> = self.by_state.keys().map(|(_, kind)| *kind).collect();
        if types.is_empty() {
            types.push(0);
        }
        types.sort_unstable();
        types.dedup();
        let priorities: Vec<u8> = self
            .priorities
            .configured()
            .iter()
            .copied()
            .chain([0])
            .collect();
        for kind in types {
            for state in self.states.configured() {
                self.by_state.entry((*state, kind)).or_default();
            }
            for priority in &priorities {
                self.open.entry((kind, *priority)).or_default();
            }
            self.open_times.entry(kind).or_default();
        }
        let mut deals: BTreeMap<u8, u64> = priorities
            .into_iter()
            .map(|priority| (priority, 0))
            .collect();
        for priority in self.deals.values() {
            *deals.entry(priority).or_default() += 1;
        }
        let (states, types, priorities) = (self.states, self.types, self.priorities);
        let pair = |a: &Vocabulary, x, b: &Vocabulary, y| -> (Arc<str>, Arc<str>) {
            (a.value(x).clone(), b.value(y).clone())
        };
        Snapshot {
            taken_at: Timestamp::now(),
            duration,
            doubt,
            tickets: self.ids.len() as u64,
            malformed: self.malformed,
            folded: [&states, &types, &priorities]
                .into_iter()
                .any(Vocabulary::folded),
            clock: self.clock,
            by_state: self
                .by_state
                .into_iter()
                .map(|((state, kind), group)| (pair(&states, state, &types, kind), group))
                .collect(),
            open: self
                .open
                .into_iter()
                .map(|((kind, priority), group)| (pair(&types, kind, &priorities, priority), group))
                .collect(),
            open_times: self
                .open_times
                .into_iter()
                .map(|(kind, times)| (types.value(kind).clone(), times))
                .collect(),
            deals: deals
                .into_iter()
                .map(|(priority, deals)| (priorities.value(priority).clone(), deals))
                .collect(),
        }
    }

    fn count(&mut self, ticket: &Ticket<'_>, key: u64, problem: &mut Option<String>) {
        let state = self.states.index(ticket.state.as_deref());
        let kind = self.types.index(ticket.r#type.as_deref());
        let amount = ticket.deal_amount_sum.and_then(|number| {
            let amount = Amount::new(number);
            if amount.is_none() {
                problem.get_or_insert_with(|| {
                    format!(
                        "dealAmountSum {number:e} is no amount of money",
                        number = number.as_f64()
                    )
                });
            }
            amount
        });
        self.by_state.entry((state, kind)).or_default().add(amount);
        if !self.states.configured().contains(&state) {
            return;
        }
        let priority = self.link(ticket.linked_deals.as_deref().unwrap_or_default(), key);
        self.open.entry((kind, priority)).or_default().add(amount);
        let (now, horizon) = (self.clock.start(), self.horizon);
        let times = self.open_times.entry(kind).or_default();
        if let Some(due) = moment(ticket.target_due_date.as_ref(), "targetDueDate", problem) {
            times.overdue.add(due, now, horizon);
        }
        if let Some(created) = moment(ticket.created_at.as_ref(), "createdAt", problem) {
            for ((_, min_age), older) in MIN_AGES.iter().zip(&mut times.older_than) {
                older.add(created.saturating_add(millis(*min_age)), now, horizon);
            }
            times.oldest_created = Some(
                times
                    .oldest_created
                    .map_or(created, |oldest| oldest.min(created)),
            );
        }
    }

    /// Notes the deals of an open ticket; returns the highest of their priorities.
    fn link(&mut self, deals: &[LinkedDeal<'_>], ticket: u64) -> u8 {
        let mut highest = 0;
        for (position, deal) in deals.iter().enumerate() {
            let priority = self.priorities.index(deal.priority.as_deref());
            if self.priorities.rank(priority) < self.priorities.rank(highest) {
                highest = priority;
            }
            // A deal is counted once, under the highest priority that any open ticket gives it.
            if let Some(known) = self
                .deals
                .insert(deal_key(deal, ticket, position), priority)
                && self.priorities.rank(priority) < self.priorities.rank(*known)
            {
                *known = priority;
            }
        }
        highest
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn states(&self) -> Vec<&str> {
        self.by_state.keys().map(|(state, _)| &**state).collect()
    }

    fn types(&self) -> Vec<&str> {
        self.by_state.keys().map(|(_, kind)| &**kind).collect()
    }

    fn priorities(&self) -> Vec<&str> {
        self.open
            .keys()
            .map(|(_, priority)| &**priority)
            .chain(self.deals.keys().map(|priority| &**priority))
            .collect()
    }
}

/// A moment in milliseconds since the epoch. The epoch itself, what lies before it, and the last day of the year 9999 are some system's way to
/// say that there is no date.
fn moment(text: Option<&Text<'_>>, field: &str, problem: &mut Option<String>) -> Option<i64> {
    let text = text
        .filter(|text| !text.trim().is_empty() && !text.trim_start().starts_with("9999-12-31"))?;
    let Some(time) = parse_time(text) else {
        problem.get_or_insert_with(|| format!("{field} is no time"));
        return None;
    };
    Some(time.as_millisecond()).filter(|moment| *moment > 0)
}
