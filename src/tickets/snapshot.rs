//! What one scan saw: the numbers of its series, and how those that depend on the time change until the next scan.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rust_decimal::Decimal;
use tokio::time::Instant;

use super::pass::Doubt;
use crate::metrics::tickets::{Label, TicketCount, TicketSeries, TicketSource};

/// The values of the label `min_age`, and what they mean.
pub(super) const MIN_AGES: [(&str, SignedDuration); 4] = [
    ("1d", SignedDuration::from_hours(24)),
    ("7d", SignedDuration::from_hours(7 * 24)),
    ("30d", SignedDuration::from_hours(30 * 24)),
    ("90d", SignedDuration::from_hours(90 * 24)),
];

/// All tickets at one moment. Ages and due dates are evaluated when they are asked for; everything else is fixed.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the scan ended, by this machine's clock.
    pub taken_at: Timestamp,
    /// How long the scan took, including repetitions.
    pub duration: Duration,
    /// Why it may not be consistent; `None` if it is.
    pub doubt: Option<Doubt>,
    /// Distinct tickets.
    pub tickets: u64,
    /// Tickets with a field that could not be read.
    pub malformed: u64,
    pub(super) clock: Clock,
    /// By state and type.
    pub(super) by_state: BTreeMap<[Label; 2], Group>,
    /// By type and priority.
    pub(super) open: BTreeMap<[Label; 2], Group>,
    /// By type.
    pub(super) times: BTreeMap<Label, OpenTimes>,
    /// By priority.
    pub(super) deals: BTreeMap<Label, u64>,
}

/// Tickets and the sum of their deal amounts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Group {
    tickets: u64,
    deal_amount: Decimal,
}

/// The open tickets of one type, as far as they depend on the time.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTimes {
    pub(super) overdue: Crossings,
    /// For each of [`MIN_AGES`].
    pub(super) older_than: [Crossings; MIN_AGES.len()],
    pub(super) oldest_created: Option<Timestamp>,
}

/// The number of tickets past some point in time, at each moment until the snapshot expires.
///
/// Most tickets have passed the point already or will not while the snapshot is shown, so they need no memory. The others
/// are counted per second, so that a value is right in the first scrape after midnight, not only after the next scan.
#[derive(Clone, Debug, Default)]
pub(super) struct Crossings {
    passed: u64,
    /// By seconds after the start of the scan, rounded up.
    later: BTreeMap<i64, u64>,
}

/// The API's clock at the start of the scan, continued by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) server: Timestamp,
    /// When it showed that.
    pub(super) at: Instant,
    /// The snapshot is not shown for longer than this after the start of the scan.
    pub(super) lifetime: SignedDuration,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns a snapshot without tickets.
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            taken_at: clock.server,
            duration: Duration::ZERO,
            doubt: None,
            tickets: 0,
            malformed: 0,
            clock,
            by_state: BTreeMap::new(),
            open: BTreeMap::new(),
            times: BTreeMap::new(),
            deals: BTreeMap::new(),
        }
    }

    /// Returns the label values in use: states, types and priorities.
    pub(super) fn labels(&self) -> [Vec<&Label>; 3] {
        let priorities = self.open.keys().map(|[_, priority]| priority);
        [
            self.by_state.keys().map(|[state, _]| state).collect(),
            self.by_state.keys().map(|[_, kind]| kind).collect(),
            priorities.chain(self.deals.keys()).collect(),
        ]
    }
}

impl TicketSource for Snapshot {
    fn series(&self) -> TicketSeries {
        let seconds = i64::try_from(self.clock.at.elapsed().as_secs()).unwrap_or(i64::MAX);
        let groups = |groups: &BTreeMap<[Label; 2], Group>| {
            let groups = groups.iter();
            groups
                .map(|(labels, group)| (labels.clone(), group.count()))
                .collect()
        };
        let times = || self.times.iter();
        let older_than = times().flat_map(|(kind, times)| {
            let ages = MIN_AGES.iter().zip(&times.older_than);
            ages.map(move |((label, _), older)| {
                ([kind.clone(), Label::from(*label)], older.after(seconds))
            })
        });
        let deals = self.deals.iter();
        TicketSeries {
            taken_at: self.taken_at,
            duration: self.duration,
            consistent: self.doubt.is_none(),
            tickets: self.tickets,
            malformed: self.malformed,
            by_state: groups(&self.by_state),
            open: groups(&self.open),
            overdue: times()
                .map(|(kind, times)| ([kind.clone()], times.overdue.after(seconds)))
                .collect(),
            older_than: older_than.collect(),
            oldest_created: times()
                .filter_map(|(kind, times)| Some(([kind.clone()], times.oldest_created?)))
                .collect(),
            deals: deals
                .map(|(priority, deals)| ([priority.clone()], *deals))
                .collect(),
        }
    }
}

// === impl Group ===

impl Group {
    /// Adds a ticket; one without an amount adds nothing to the sum.
    pub(super) fn add(&mut self, amount: Option<Decimal>) {
        self.tickets += 1;
        self.deal_amount = self.deal_amount.saturating_add(amount.unwrap_or_default());
    }

    fn count(&self) -> TicketCount {
        TicketCount {
            tickets: self.tickets,
            // By way of the text, which gives the nearest double.
            deal_amount: self.deal_amount.to_string().parse().unwrap_or_default(),
        }
    }
}

// === impl Crossings ===

impl Crossings {
    /// Adds a ticket that passes the point at `moment`.
    pub(super) fn add(&mut self, moment: Timestamp, clock: &Clock) {
        let left = moment.duration_since(clock.server);
        if !left.is_positive() {
            self.passed += 1;
        } else if left <= clock.lifetime {
            let second = left.as_secs() + i64::from(left.subsec_nanos() > 0);
            *self.later.entry(second).or_default() += 1;
        }
    }

    /// Returns how many have passed the point this many seconds after the start of the scan.
    fn after(&self, seconds: i64) -> u64 {
        self.passed
            + self
                .later
                .range(..=seconds)
                .map(|(_, tickets)| tickets)
                .sum::<u64>()
    }
}
