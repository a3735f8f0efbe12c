//! What one scan of the tickets saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rust_decimal::Decimal;

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

/// All tickets at one moment.
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
    /// The API's clock at the start of the scan, to which ages, due dates and windows refer.
    pub as_of: Timestamp,
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

/// The open tickets of one type by their times.
#[derive(Clone, Debug, Default)]
pub struct OpenTimes {
    /// Past their due date.
    pub overdue: u64,
    /// At least as old as each value of `min_age`.
    pub older_than: [u64; MIN_AGES.len()],
    /// When the oldest was created.
    pub oldest_created: Option<Timestamp>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Returns a snapshot without tickets.
    pub(crate) fn new(as_of: Timestamp) -> Self {
        Self {
            taken_at: as_of,
            duration: Duration::ZERO,
            consistent: true,
            tickets: 0,
            malformed: 0,
            as_of,
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
        self.times.values().map(|times| times.overdue).sum()
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
