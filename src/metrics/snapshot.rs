//! What one scan of the tickets saw, and how the numbers that depend on the time change until the next scan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rust_decimal::Decimal;
use tokio::time::Instant;

/// A label value.
pub type Label = Arc<str>;

/// The values of the label `min_age`, and what they mean.
pub(crate) const MIN_AGES: [(&str, SignedDuration); 4] = [
    ("1d", SignedDuration::from_hours(24)),
    ("7d", SignedDuration::from_hours(7 * 24)),
    ("30d", SignedDuration::from_hours(30 * 24)),
    ("90d", SignedDuration::from_hours(90 * 24)),
];

/// The values of the label `window`: time before the scan. The time to close is not shown for the first.
pub const WINDOWS: [(&str, SignedDuration); 3] = [
    ("1d", SignedDuration::from_hours(24)),
    ("7d", SignedDuration::from_hours(7 * 24)),
    ("30d", SignedDuration::from_hours(30 * 24)),
];

/// The values of the label `quantile`, and the same in percent.
pub const QUANTILES: [(&str, usize); 2] = [("0.5", 50), ("0.9", 90)];

/// All tickets at one moment. Ages and due dates are evaluated when they are asked for; everything else is fixed.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the scan ended, by this machine's clock.
    pub taken_at: Timestamp,
    /// How long the scan took, including repetitions.
    pub duration: Duration,
    /// Whether every ticket is in it exactly once.
    pub consistent: bool,
    /// Distinct tickets.
    pub tickets: u64,
    /// Tickets with a field that could not be read.
    pub malformed: u64,
    pub(crate) clock: Clock,
    /// Tickets by `state` and `ticket_type`.
    pub by_state: BTreeMap<[Label; 2], Group>,
    /// Open tickets by `ticket_type` and `priority`.
    pub open: BTreeMap<[Label; 2], Group>,
    /// Open tickets by `ticket_type`.
    pub times: BTreeMap<Label, OpenTimes>,
    /// Distinct deals with open tickets, by `priority`.
    pub deals: BTreeMap<Label, Group>,
    /// Tickets opened and closed before the scan, by `ticket_type`.
    pub flow: BTreeMap<Label, Flow>,
}

/// Tickets or deals, and the sum of their deal amounts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The number of tickets or deals.
    pub tickets: u64,
    deal_amount: Decimal,
}

/// The tickets of one type that were opened and closed within each of the [`WINDOWS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// By `createdAt`.
    pub opened: [u64; WINDOWS.len()],
    /// By `closedAt`.
    pub closed: [u64; WINDOWS.len()],
    /// Seconds from `createdAt` to `closedAt` of those closed, for each of the [`QUANTILES`]; `None` without one.
    pub time_to_close: [[Option<u32>; QUANTILES.len()]; WINDOWS.len()],
}

/// The open tickets of one type, as far as they depend on the time.
#[derive(Clone, Debug, Default)]
pub struct OpenTimes {
    /// Past their due date.
    pub overdue: Crossings,
    /// At least as old as each value of `min_age`.
    pub older_than: [Crossings; MIN_AGES.len()],
    /// When the oldest was created.
    pub oldest_created: Option<Timestamp>,
}

/// The number of tickets past some point in time, at each moment until the snapshot expires.
///
/// Most tickets have passed the point already or will not while the snapshot is shown, so they need no memory. The others
/// are counted per second, so that a value is right in the first scrape after midnight, not only after the next scan.
#[derive(Clone, Debug, Default)]
pub struct Crossings {
    passed: u64,
    /// By seconds after the start of the scan, rounded up.
    later: BTreeMap<i64, u64>,
}

/// The API's clock at the start of the scan, continued by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) server: Timestamp,
    /// When it showed that.
    pub(crate) at: Instant,
    /// The snapshot is not shown for longer than this after the start of the scan.
    pub(crate) lifetime: SignedDuration,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns a snapshot without tickets.
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            taken_at: clock.server,
            duration: Duration::ZERO,
            consistent: true,
            tickets: 0,
            malformed: 0,
            clock,
            by_state: BTreeMap::new(),
            open: BTreeMap::new(),
            times: BTreeMap::new(),
            deals: BTreeMap::new(),
            flow: BTreeMap::new(),
        }
    }

    /// Returns the states that tickets are in.
    pub(crate) fn states(&self) -> BTreeSet<Label> {
        let groups = self.by_state.iter();
        let used = groups.filter(|(_, group)| group.tickets > 0);
        used.map(|([state, _], _)| state.clone()).collect()
    }

    /// Returns the number of open tickets.
    pub fn open_total(&self) -> u64 {
        self.open.values().map(|group| group.tickets).sum()
    }

    /// Returns the number of open tickets past their due date.
    pub fn overdue_total(&self) -> u64 {
        let times = self.times.values();
        times.map(|times| self.passed(&times.overdue)).sum()
    }

    /// Returns how many tickets have passed a point in time by now.
    pub fn passed(&self, point: &Crossings) -> u64 {
        let seconds = i64::try_from(self.clock.at.elapsed().as_secs()).unwrap_or(i64::MAX);
        point.passed + point.later.range(..=seconds).map(|(_, n)| n).sum::<u64>()
    }
}

// === impl Group ===

impl Group {
    /// Adds a ticket; one without an amount adds nothing to the sum.
    pub(crate) fn add(&mut self, amount: Option<Decimal>) {
        self.tickets += 1;
        self.deal_amount = self.deal_amount.saturating_add(amount.unwrap_or_default());
    }

    /// Returns the sum of `dealAmountSum`.
    pub fn deal_amount(&self) -> f64 {
        // By way of the text, which gives the nearest double.
        self.deal_amount.to_string().parse().unwrap_or_default()
    }
}

// === impl Crossings ===

impl Crossings {
    /// Adds a ticket that passes the point at `moment`.
    pub(crate) fn add(&mut self, moment: Timestamp, clock: &Clock) {
        let left = moment.duration_since(clock.server);
        if !left.is_positive() {
            self.passed += 1;
        } else if left <= clock.lifetime {
            let second = left.as_secs() + i64::from(left.subsec_nanos() > 0);
            *self.later.entry(second).or_default() += 1;
        }
    }
}
