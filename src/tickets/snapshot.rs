//! What one scan saw, complete: every number that the gauges show, and how those move that depend on the time of day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::amount::Amount;
use super::walk::Doubt;

/// The values of the label `min_age` and what they mean.
pub const MIN_AGES: [(&str, Duration); 4] = [
    ("1d", days(1)),
    ("7d", days(7)),
    ("30d", days(30)),
    ("90d", days(90)),
];

/// Tickets and the sum of their deal amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many.
    pub tickets: u64,
    /// The sum of `dealAmountSum`; a ticket without one adds nothing.
    pub deal_amount: Amount,
}

/// A ticket type's open tickets, as far as they depend on the time.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenTimes {
    /// By `targetDueDate`.
    pub(super) overdue: Crossings,
    /// By `createdAt` and each of [`MIN_AGES`].
    pub(super) older_than: [Crossings; MIN_AGES.len()],
    /// The smallest `createdAt`, in milliseconds since the epoch.
    pub(super) oldest_created: Option<i64>,
}

/// How many tickets are past some point in time, now and at each moment until the snapshot expires.
///
/// A snapshot is shown for minutes, so nearly every ticket has either passed the point or will not while the snapshot lives: those need no
/// memory. The few between are counted by the second, and so the number is right in the scrape after midnight, not in the next scan. That
/// these need not be few (a million tickets imported in one hour grow a day old in one hour) is why it is seconds, and not moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crossings {
    passed: u64,
    /// By whole seconds after the beginning of the scan, rounded up.
    later: BTreeMap<u32, u32>,
}

/// The clock by which a scan decides what is overdue: the service's at the beginning of the scan, carried on by this process's monotonic one.
/// Setting this machine's clock changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Milliseconds since the epoch.
    server: i64,
    at: Instant,
}

/// One picture of all tickets.
///
/// Ages and due dates are reckoned when they are asked for, from the moments kept here; all else is fixed.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the scan ended, by this machine's clock.
    pub taken_at: Timestamp,
    /// How long the scan took, repeats included.
    pub duration: Duration,
    /// Why it may not be consistent; `None`: it is.
    pub doubt: Option<Doubt>,
    /// Distinct tickets.
    pub tickets: u64,
    /// Tickets with something in them that could not be read.
    pub malformed: u64,
    /// Whether there were more states, types or priorities than are shown, so that some are counted as `other`.
    pub folded: bool,
    pub(super) clock: Clock,
    pub(super) by_state: BTreeMap<(Arc<str>, Arc<str>), Group>,
    pub(super) open: BTreeMap<(Arc<str>, Arc<str>), Group>,
    pub(super) open_times: BTreeMap<Arc<str>, OpenTimes>,
    pub(super) deals: BTreeMap<Arc<str>, u64>,
}

// === impl Snapshot ===

impl Snapshot {
    /// Tickets by state and type.
    pub fn by_state(&self) -> impl Iterator<Item = ((&str, &str), Group)> {
        self.by_state
            .iter()
            .map(|((state, kind), group)| ((&**state, &**kind), *group))
    }

    /// Open tickets by type and priority.
    pub fn open(&self) -> impl Iterator<Item = ((&str, &str), Group)> {
        self.open
            .iter()
            .map(|((kind, priority), group)| ((&**kind, &**priority), *group))
    }

    /// Distinct deals with open tickets, by priority.
    pub fn deals(&self) -> impl Iterator<Item = (&str, u64)> {
        self.deals
            .iter()
            .map(|(priority, deals)| (&**priority, *deals))
    }

    /// Open tickets whose due date has passed by now, by type.
    pub fn overdue(&self) -> impl Iterator<Item = (&str, u64)> {
        let seconds = self.clock.seconds();
        self.open_times
            .iter()
            .map(move |(kind, times)| (&**kind, times.overdue.after(seconds)))
    }

    /// Open tickets that are at least so old by now, by type and the label of [`MIN_AGES`].
    pub fn older_than(&self) -> impl Iterator<Item = (&str, &'static str, u64)> {
        let seconds = self.clock.seconds();
        self.open_times.iter().flat_map(move |(kind, times)| {
            MIN_AGES
                .iter()
                .zip(&times.older_than)
                .map(move |((label, _), older)| (&**kind, *label, older.after(seconds)))
        })
    }

    /// When the oldest open ticket was created, in seconds since the epoch, by type; types without one are left out.
    pub fn oldest_created(&self) -> impl Iterator<Item = (&str, f64)> {
        self.open_times
            .iter()
            .filter_map(|(kind, times)| Some((&**kind, times.oldest_created? as f64 / 1000.0)))
    }

    /// All open tickets.
    pub fn open_total(&self) -> Group {
        let mut total = Group::default();
        for group in self.open.values() {
            total.tickets += group.tickets;
            total.deal_amount.add(group.deal_amount);
        }
        total
    }

    /// All open tickets whose due date has passed by now.
    pub fn overdue_total(&self) -> u64 {
        self.overdue().map(|(_, tickets)| tickets).sum()
    }
}

// === impl Group ===

impl Group {
    pub(super) fn add(&mut self, amount: Option<Amount>) {
        self.tickets += 1;
        if let Some(amount) = amount {
            self.deal_amount.add(amount);
        }
    }
}

// === impl Crossings ===

impl Crossings {
    /// One more ticket, which passes the point at `moment`; past the `horizon` nobody will ask.
    pub(super) fn add(&mut self, moment: i64, now: i64, horizon: i64) {
        if moment <= now {
            self.passed += 1;
        } else if moment <= horizon {
            let second =
                u32::try_from((moment - now).saturating_add(999) / 1000).unwrap_or(u32::MAX);
            *self.later.entry(second).or_default() += 1;
        }
    }

    /// How many have passed so many whole seconds after the beginning of the scan.
    fn after(&self, seconds: u32) -> u64 {
        self.passed
            + self
                .later
                .range(..=seconds)
                .map(|(_, tickets)| u64::from(*tickets))
                .sum::<u64>()
    }
}

// === impl Clock ===

impl Clock {
    /// The service's clock shows `server` now.
    pub(super) fn new(server: Timestamp) -> Self {
        Self {
            server: server.as_millisecond(),
            at: Instant::now(),
        }
    }

    /// What it showed at the beginning.
    pub(super) fn start(&self) -> i64 {
        self.server
    }

    /// Whole seconds since then.
    fn seconds(&self) -> u32 {
        u32::try_from(self.at.elapsed().as_secs()).unwrap_or(u32::MAX)
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 60 * 60)
}
