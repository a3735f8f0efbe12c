//! Tickets as the last scan saw them: one snapshot, shown completely or not at all.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::family::{Writer, descriptors, seconds};
use crate::util;

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
    /// Open tickets whose due date (targetDueDate) has passed at the time of the scrape.
    OVERDUE = "orgdata_open_tickets_overdue" ["ticket_type"];
    /// Open tickets created at least this many days of 24 hours before the scrape. Cumulative: a ticket counted in 30d is
    /// also counted in 7d and 1d, so do not sum over min_age.
    OLDER_THAN = "orgdata_open_tickets_older_than" ["ticket_type", "min_age"];
    /// When the oldest open ticket was created, in seconds since the epoch; absent for a type without open tickets.
    OLDEST_CREATED = "orgdata_open_tickets_oldest_created_timestamp_seconds" ["ticket_type"];
    /// Distinct deals linked to open tickets, by the highest priority that any of these tickets gives the deal; none without
    /// a priority.
    DEALS = "orgdata_deals_with_open_tickets" ["priority"];
}

/// A label value.
pub type Label = Arc<str>;

/// A snapshot that computes its series for the moment of a scrape.
pub trait TicketSource: fmt::Debug + Send + Sync {
    /// Returns the series as they are now.
    fn series(&self) -> TicketSeries;
}

/// The series of a snapshot at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketSeries {
    /// When the scan ended.
    pub taken_at: Timestamp,
    /// How long the scan took, including repetitions.
    pub duration: Duration,
    /// Whether every ticket is in the snapshot exactly once.
    pub consistent: bool,
    /// Distinct tickets.
    pub tickets: u64,
    /// Tickets with a field that could not be read.
    pub malformed: u64,
    /// Tickets by `state` and `ticket_type`.
    pub by_state: Vec<([Label; 2], TicketCount)>,
    /// Open tickets by `ticket_type` and `priority`.
    pub open: Vec<([Label; 2], TicketCount)>,
    /// Open tickets past their due date, by `ticket_type`.
    pub overdue: Vec<([Label; 1], u64)>,
    /// Open tickets by `ticket_type` and `min_age`.
    pub older_than: Vec<([Label; 2], u64)>,
    /// When the oldest open ticket was created, by `ticket_type`.
    pub oldest_created: Vec<([Label; 1], Timestamp)>,
    /// Distinct deals with open tickets, by `priority`.
    pub deals: Vec<([Label; 1], u64)>,
}

/// A number of tickets and the sum of their deal amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TicketCount {
    /// The number of tickets.
    pub tickets: u64,
    /// The sum of `dealAmountSum`.
    pub deal_amount: f64,
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

#[derive(Debug)]
struct Published {
    snapshot: Arc<dyn TicketSource>,
    taken_at: Timestamp,
    /// By the monotonic clock, so that setting the machine's clock does not change the age of a snapshot.
    at: Instant,
    max_age: Duration,
}

// === impl TicketSeries ===

impl TicketSeries {
    /// Returns the number of all open tickets and the sum of their deal amounts.
    pub fn open_total(&self) -> TicketCount {
        let groups = || self.open.iter().map(|(_, group)| group);
        TicketCount {
            tickets: groups().map(|group| group.tickets).sum(),
            deal_amount: groups().map(|group| group.deal_amount).sum(),
        }
    }

    /// Returns the number of all open tickets past their due date.
    pub fn overdue_total(&self) -> u64 {
        self.overdue.iter().map(|(_, tickets)| tickets).sum()
    }
}

// === impl TicketMetrics ===

impl TicketMetrics {
    /// Reports that the loop runs.
    pub fn start(&self) {
        self.running.store(true, Ordering::Relaxed);
    }

    /// Replaces the snapshot. A scrape shows either the old one or this one.
    pub fn publish(&self, snapshot: Arc<dyn TicketSource>, max_age: Duration) {
        self.start();
        self.current.store(Some(Arc::new(Published {
            taken_at: snapshot.series().taken_at,
            snapshot,
            at: Instant::now(),
            max_age,
        })));
    }

    /// Returns the counter of repeated scans.
    pub fn retries(&self) -> &Counter {
        &self.retries
    }

    /// Returns the series that are shown now; `None` before the first snapshot and if the last one is too old.
    pub fn series(&self) -> Option<TicketSeries> {
        let current = self.current.load_full()?;
        current.left().map(|_| current.snapshot.series())
    }

    /// Returns until when the snapshot is shown if no other one follows; `None` if none is shown.
    pub fn shown_until(&self) -> Option<Timestamp> {
        let left = self.current.load_full()?.left()?;
        Some(util::now().checked_add(left).unwrap_or(Timestamp::MAX))
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
        let taken_at = current.as_ref().map(|current| current.taken_at);
        families.gauge(TIMESTAMP, taken_at.map_or(0.0, seconds))?;
        let Some(current) = current.filter(|current| current.left().is_some()) else {
            return Ok(());
        };
        let series = current.snapshot.series();
        families.gauge(DURATION, series.duration.as_secs_f64())?;
        families.gauge(CONSISTENT, u32::from(series.consistent))?;
        families.gauge(MALFORMED, series.malformed)?;
        for (tickets, deal_amount, groups) in [
            (TICKETS, DEAL_AMOUNT, series.by_state),
            (OPEN, OPEN_DEAL_AMOUNT, series.open),
        ] {
            let groups = || groups.iter().cloned();
            families.gauges(
                tickets,
                groups().map(|(labels, group)| (labels, group.tickets)),
            )?;
            let amounts = groups().map(|(labels, group)| (labels, group.deal_amount));
            families.gauges(deal_amount, amounts)?;
        }
        families.gauges(OVERDUE, series.overdue)?;
        families.gauges(OLDER_THAN, series.older_than)?;
        let oldest_created = series.oldest_created.into_iter();
        let oldest_created = oldest_created.map(|(labels, at)| (labels, seconds(at)));
        families.gauges(OLDEST_CREATED, oldest_created)?;
        families.gauges(DEALS, series.deals)
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
