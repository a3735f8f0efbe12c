//! Tickets as the last scan saw them: one snapshot, shown completely or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::{SignedDuration, Timestamp};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use rust_decimal::Decimal;
use tokio::time::Instant;

use super::family::{Writer, descriptors, seconds};

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

/// The values of the label `percentile`, and the same as numbers.
pub const PERCENTILES: [(&str, usize); 2] = [("50", 50), ("90", 90)];

/// A label value.
pub type Label = Arc<str>;

descriptors! {
    /// Scans repeated because tickets moved between two pages, or because their number did not match totalCount.
    RETRIES = "orgdata_tickets_snapshot_retries";
    /// When the scan of the last ticket snapshot ended, in seconds since the epoch; 0 before the first. If it is older than
    /// --tickets.max-age, all other series of the snapshot are absent.
    TIMESTAMP = "orgdata_tickets_snapshot_timestamp_seconds";
    /// How long the scan of the ticket snapshot took, including repetitions.
    DURATION = "orgdata_tickets_snapshot_duration_seconds";
    /// 1 if no ticket moved during the scan and every ticket is in the snapshot exactly once; 0 if tickets moved in every
    /// attempt or their number did not match totalCount, so that some may be missing.
    CONSISTENT = "orgdata_tickets_snapshot_consistent";
    /// Tickets with a field that could not be read; orgdata_tickets includes them.
    MALFORMED = "orgdata_tickets_malformed";
    /// Tickets by state and type; unknown if the ticket has none.
    TICKETS = "orgdata_tickets" ["state", "ticket_type"];
    /// Sum of the deal amounts of tickets (dealAmountSum), in the currency of the organization, which the API does not name.
    /// A deal linked to two tickets is included in both.
    DEAL_AMOUNT = "orgdata_tickets_deal_amount" ["state", "ticket_type"];
    /// Open tickets by type and by the highest priority of the deals they are linked to; none without a priority.
    /// --tickets.open-states sets which states are open.
    OPEN = "orgdata_open_tickets" ["ticket_type", "priority"];
    /// Sum of the deal amounts of open tickets (dealAmountSum), in the currency of the organization, which the API does not
    /// name. A deal linked to two tickets is included in both.
    OPEN_DEAL_AMOUNT = "orgdata_open_tickets_deal_amount" ["ticket_type", "priority"];
    /// Open tickets whose due date (targetDueDate) had passed at the time of the scan. A date without a time passes at its end.
    OVERDUE = "orgdata_open_tickets_overdue" ["ticket_type"];
    /// Open tickets created at least this many days of 24 hours before the scan. Cumulative: a ticket counted in 30d is
    /// also counted in 7d and 1d, so do not sum over min_age.
    OLDER_THAN = "orgdata_open_tickets_older_than" ["ticket_type", "min_age"];
    /// When the oldest open ticket was created, in seconds since the epoch; absent for a type without open tickets.
    OLDEST_CREATED = "orgdata_open_tickets_oldest_created_timestamp_seconds" ["ticket_type"];
    /// Distinct deals linked to open tickets, by the highest priority that any of these tickets gives the deal; none without
    /// a priority.
    DEALS = "orgdata_deals_with_open_tickets" ["priority"];
    /// Tickets created (createdAt) in the time window before the scan. A longer window includes the shorter ones, so do not
    /// sum over window.
    OPENED = "orgdata_tickets_opened_within" ["window", "ticket_type"];
    /// Tickets closed (closedAt) in the time window before the scan that are not open again. A longer window includes the
    /// shorter ones, so do not sum over window.
    CLOSED = "orgdata_tickets_closed_within" ["window", "ticket_type"];
    /// Percentiles of the time from creation to closing of the tickets closed in the time window before the scan; absent for a
    /// type without a closed ticket.
    TIME_TO_CLOSE = "orgdata_tickets_time_to_close_seconds" ["window", "ticket_type", "percentile"];
}

/// The families `orgdata_tickets*`, `orgdata_open_tickets*` and `orgdata_deals_with_open_tickets`.
///
/// Before the first snapshot, and after `--tickets.max-age` without a new one, only the timestamp of the snapshot is shown:
/// a gauge is true or absent.
#[derive(Debug, Default)]
pub struct TicketMetrics {
    current: ArcSwapOption<Published>,
    retries: Counter,
    /// A loop that is switched off does not even show the timestamp.
    running: AtomicBool,
}

/// All tickets at one moment, as the loop of tickets counted them.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the scan ended, by this machine's clock.
    pub(crate) taken_at: Timestamp,
    /// How long the scan took, including repetitions.
    pub(crate) duration: Duration,
    /// Whether every ticket is in it exactly once.
    pub consistent: bool,
    /// Distinct tickets.
    pub tickets: u64,
    /// Tickets with a field that could not be read.
    pub malformed: u64,
    /// Tickets by `state` and `ticket_type`.
    pub by_state: BTreeMap<[Label; 2], Group>,
    /// Open tickets by `ticket_type` and `priority`.
    pub open: BTreeMap<[Label; 2], Group>,
    /// Open tickets by `ticket_type`.
    pub times: BTreeMap<Label, OpenTimes>,
    /// Distinct deals with open tickets, by `priority`.
    pub deals: BTreeMap<Label, u64>,
    /// Tickets opened and closed before the scan, by `ticket_type`.
    pub flow: BTreeMap<Label, Flow>,
}

/// Tickets, and the sum of their deal amounts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The number of tickets.
    pub tickets: u64,
    deal_amount: Decimal,
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

/// The tickets of one type that were opened and closed within each of the [`WINDOWS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// By `createdAt`.
    pub opened: [u64; WINDOWS.len()],
    /// By `closedAt`.
    pub closed: [u64; WINDOWS.len()],
    /// Seconds from `createdAt` to `closedAt` of those closed, for each of the [`PERCENTILES`]; `None` without one.
    pub time_to_close: [[Option<u32>; PERCENTILES.len()]; WINDOWS.len()],
}

#[derive(Debug)]
struct Published {
    snapshot: Arc<Snapshot>,
    /// By the monotonic clock, so that setting the machine's clock does not change the age of a snapshot.
    at: Instant,
    max_age: Duration,
}

// === impl Snapshot ===

impl Snapshot {
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

// === impl TicketMetrics ===

impl TicketMetrics {
    /// Reports that the loop runs.
    pub(crate) fn start(&self) {
        self.running.store(true, Ordering::Relaxed);
    }

    /// Replaces the snapshot. A scrape shows either the old one or this one.
    pub fn publish(&self, snapshot: Arc<Snapshot>, max_age: Duration) {
        self.start();
        self.current.store(Some(Arc::new(Published {
            snapshot,
            at: Instant::now(),
            max_age,
        })));
    }

    /// Returns the counter of repeated scans.
    pub fn retries(&self) -> &Counter {
        &self.retries
    }

    /// Returns the snapshot that is shown now; `None` before the first and if the last one is too old.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let current = self.current.load_full()?;
        current.left().map(|_| current.snapshot.clone())
    }

    /// Returns until when the snapshot is shown if no other one follows; `None` if none is shown.
    pub(crate) fn shown_until(&self) -> Option<Timestamp> {
        let left = self.current.load_full()?.left()?;
        Some(Timestamp::now().checked_add(left).unwrap_or(Timestamp::MAX))
    }
}

impl Collector for TicketMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Writer(encoder);
        families.one(RETRIES, &self.retries)?;
        if !self.running.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Loaded once: a snapshot published meanwhile waits for the next scrape.
        let current = self.current.load_full();
        let taken_at = current.as_ref().map(|current| current.snapshot.taken_at);
        families.gauge(TIMESTAMP, taken_at.map_or(0.0, seconds))?;
        let Some(current) = current.filter(|current| current.left().is_some()) else {
            return Ok(());
        };
        let snapshot = &current.snapshot;
        families.gauge(DURATION, snapshot.duration.as_secs_f64())?;
        families.gauge(CONSISTENT, u32::from(snapshot.consistent))?;
        families.gauge(MALFORMED, snapshot.malformed)?;
        for (tickets, deal_amount, groups) in [
            (TICKETS, DEAL_AMOUNT, &snapshot.by_state),
            (OPEN, OPEN_DEAL_AMOUNT, &snapshot.open),
        ] {
            let groups = || groups.iter();
            let counts = groups().map(|(labels, group)| (labels.each_ref(), group.tickets));
            families.gauges(tickets, counts)?;
            let amounts = groups().map(|(labels, group)| (labels.each_ref(), group.deal_amount()));
            families.gauges(deal_amount, amounts)?;
        }
        let times = || snapshot.times.iter();
        let overdue = times().map(|(kind, times)| ([kind], times.overdue));
        families.gauges(OVERDUE, overdue)?;
        let older_than = times().flat_map(|(kind, times)| {
            let ages = MIN_AGES.iter().zip(&times.older_than);
            ages.map(move |((age, _), older)| ([&**kind, *age], *older))
        });
        families.gauges(OLDER_THAN, older_than)?;
        let oldest =
            times().filter_map(|(kind, times)| Some(([kind], seconds(times.oldest_created?))));
        families.gauges(OLDEST_CREATED, oldest)?;
        let deals = snapshot.deals.iter();
        let deals = deals.map(|(priority, count)| ([priority], *count));
        families.gauges(DEALS, deals)?;
        let windows = || {
            let windows = WINDOWS.iter().enumerate();
            windows.flat_map(|(at, (window, _))| {
                let flow = snapshot.flow.iter();
                flow.map(move |(kind, flow)| (at, [*window, &**kind], flow))
            })
        };
        let opened = windows().map(|(at, labels, flow)| (labels, flow.opened[at]));
        families.gauges(OPENED, opened)?;
        let closed = windows().map(|(at, labels, flow)| (labels, flow.closed[at]));
        families.gauges(CLOSED, closed)?;
        let times = windows().filter(|(at, ..)| *at > 0);
        let times = times.flat_map(|(at, [window, kind], flow)| {
            let percentiles = PERCENTILES.iter().zip(flow.time_to_close[at]);
            percentiles
                .filter_map(move |((name, _), seconds)| Some(([window, kind, *name], seconds?)))
        });
        families.gauges(TIME_TO_CLOSE, times)
    }
}

// === impl Published ===

impl Published {
    /// Returns how much longer the snapshot is shown.
    fn left(&self) -> Option<Duration> {
        let left = self.max_age.checked_sub(self.at.elapsed());
        left.filter(|left| !left.is_zero())
    }
}
