//! What one scan saw: the numbers of its series, and how those that depend on the time change until the next scan.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rust_decimal::Decimal;
use tokio::time::Instant;

use super::pass::Doubt;
use crate::metrics::tickets::{Label, TicketCount, TicketSeries, TicketSource};

/// The values of the label `min_age`, and what they mean.
pub(super) const MIN_AGES: [(&str, Duration); 4] = [
    ("1d", days(1)),
    ("7d", days(7)),
    ("30d", days(30)),
    ("90d", days(90)),
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
    /// Whether some states, types or priorities are shown as `other`.
    pub folded: bool,
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
    later: BTreeMap<u64, u64>,
}

/// The API's clock at the start of the scan, continued by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    server: Timestamp,
    at: Instant,
    /// The snapshot is not shown for longer than this after the start of the scan.
    lifetime: Duration,
}

// === impl Snapshot ===

impl Snapshot {
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
        let seconds = self.clock.at.elapsed().as_secs();
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
            deals: self
                .deals
                .iter()
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
        match Duration::try_from(left) {
            Ok(left) if left > clock.lifetime => {}
            Ok(left) if !left.is_zero() => {
                let second = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                *self.later.entry(second).or_default() += 1;
            }
            _ => self.passed += 1,
        }
    }

    /// Returns how many have passed the point this many seconds after the start of the scan.
    fn after(&self, seconds: u64) -> u64 {
        self.passed
            + self
                .later
                .range(..=seconds)
                .map(|(_, tickets)| tickets)
                .sum::<u64>()
    }
}

// === impl Clock ===

impl Clock {
    /// Starts a clock that shows `server` now.
    pub(super) fn new(server: Timestamp, lifetime: Duration) -> Self {
        Self {
            server,
            at: Instant::now(),
            lifetime,
        }
    }
}

const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 60 * 60)
}
