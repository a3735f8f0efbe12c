//! Tickets, as the last scan saw them: one snapshot, shown whole or not at all.

use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::{SignedDuration, Timestamp};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::tickets::Snapshot;

/// The families `orgdata_tickets*`, `orgdata_open_tickets*` and `orgdata_deals_with_open_tickets`.
///
/// Before the first snapshot, and when the last one is older than its maximum age, there are no series of it: a gauge is true or absent. What
/// says so is always there once the loop runs: `orgdata_tickets_snapshot_timestamp_seconds`, 0 before the first snapshot. Duration and
/// consistency belong to the snapshot and go with it.
#[derive(Debug)]
pub struct TicketMetrics {
    current: ArcSwapOption<Published>,
    retries: Counter,
    /// A loop that is switched off has no snapshot to be missed, so not even the timestamp.
    running: AtomicBool,
}

/// What the landing page tells of the tickets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TicketSummary {
    /// All tickets, whatever their state.
    pub tickets: u64,
    /// Open tickets.
    pub open: u64,
    /// Sum of the deal amounts of the open tickets.
    pub open_deal_amount: f64,
    /// Open tickets whose due date has passed by now.
    pub overdue: u64,
    /// When the scan ended.
    pub taken_at: Timestamp,
    /// Whether nothing moved during the scan.
    pub consistent: bool,
}

#[derive(Debug)]
struct Published {
    snapshot: Arc<Snapshot>,
    /// By the monotonic clock: setting the machine's clock does not make a snapshot older.
    at: Instant,
    max_age: Duration,
}

/// Writes families one after the other.
struct Families<'a>(DescriptorEncoder<'a>);

// === impl TicketMetrics ===

impl TicketMetrics {
    /// Registers the families; there is nothing to show but the counter yet.
    pub fn register(registry: &mut Registry) -> Arc<Self> {
        let metrics = Arc::new(Self {
            current: ArcSwapOption::empty(),
            retries: Counter::default(),
            running: AtomicBool::new(false),
        });
        registry.register(
            "orgdata_tickets_snapshot_retries",
            "Scans begun again because tickets moved between two pages, or their number did not agree with the service's",
            metrics.retries.clone(),
        );
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// The loop runs from now on.
    pub fn start(&self) {
        self.running.store(true, Ordering::Relaxed);
    }

    /// Replaces the snapshot; a scrape sees all of the old one or all of this one.
    pub fn publish(&self, snapshot: Arc<Snapshot>, max_age: Duration) {
        self.start();
        self.current.store(Some(Arc::new(Published {
            snapshot,
            at: Instant::now(),
            max_age,
        })));
    }

    /// Counts scans that were begun again.
    pub fn retries(&self) -> &Counter {
        &self.retries
    }

    /// The snapshot that is shown; `None` before the first one and when it has grown too old.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.current
            .load()
            .as_ref()
            .filter(|published| published.is_fresh())
            .map(|published| published.snapshot.clone())
    }

    /// The numbers of the snapshot that is shown.
    pub fn summary(&self) -> Option<TicketSummary> {
        let snapshot = self.snapshot()?;
        let open = snapshot.open_total();
        Some(TicketSummary {
            tickets: snapshot.tickets,
            open: open.tickets,
            open_deal_amount: open.deal_amount.as_f64(),
            overdue: snapshot.overdue_total(),
            taken_at: snapshot.taken_at,
            consistent: snapshot.doubt.is_none(),
        })
    }

    /// When the last snapshot was taken, also when it is not shown any more.
    pub fn taken_at(&self) -> Option<Timestamp> {
        self.current
            .load()
            .as_ref()
            .map(|published| published.snapshot.taken_at)
    }

    /// Until when the snapshot is shown if no other one comes; `None` when none is shown.
    pub fn shown_until(&self) -> Option<Timestamp> {
        let current = self.current.load();
        let published = current.as_ref().filter(|published| published.is_fresh())?;
        let left = SignedDuration::try_from(published.max_age.checked_sub(published.at.elapsed())?)
            .ok()?;
        Some(Timestamp::now().checked_add(left).unwrap_or(Timestamp::MAX))
    }
}

impl Collector for TicketMetrics {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        if !self.running.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Loaded once: a snapshot that is published meanwhile waits for the next scrape.
        let current = self.current.load_full();
        let mut families = Families(encoder);
        families.one(
            "orgdata_tickets_snapshot_timestamp_seconds",
            "When the scan that took the last ticket snapshot ended, in seconds since the epoch; 0 before the first. \
             When it is older than --tickets.max-age every other series of the snapshot is absent",
            current.as_ref().map_or(0.0, |published| published.snapshot.taken_at.as_duration().as_secs_f64()),
        )?;
        match current.filter(|published| published.is_fresh()) {
            Some(published) => families.snapshot(&published.snapshot),
            None => Ok(()),
        }
    }
}

// === impl Published ===

impl Published {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < self.max_age
    }
}

// === impl Families ===

impl Families<'_> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.one(
            "orgdata_tickets_snapshot_duration_seconds",
            "How long the scan took that made the ticket snapshot, repeats included",
            snapshot.duration.as_secs_f64(),
        )?;
        self.one(
            "orgdata_tickets_snapshot_consistent",
            "1 when nothing moved during the scan and every ticket is in the snapshot exactly once; \
             0 when tickets moved in every attempt, or the service's count does not agree, so that some may be missing",
            u64::from(snapshot.doubt.is_none()),
        )?;
        self.one(
            "orgdata_tickets_malformed",
            "Tickets with something in them that could not be read; they are counted in orgdata_tickets by what could be",
            snapshot.malformed,
        )?;
        self.by_state(snapshot)?;
        self.open(snapshot)?;
        self.by_time(snapshot)?;
        self.many(
            "orgdata_deals_with_open_tickets",
            "Distinct deals linked to open tickets, by the highest priority that any of those tickets gives the deal; none: it has no priority",
            snapshot.deals().map(|(priority, deals)| ([("priority", priority)], deals)),
        )
    }

    fn by_state(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.many(
            "orgdata_tickets",
            "Tickets by state and type; unknown: the ticket has none",
            snapshot.by_state().map(|((state, kind), group)| {
                ([("state", state), ("ticket_type", kind)], group.tickets)
            }),
        )?;
        self.many(
            "orgdata_tickets_deal_amount",
            "Sum of the deal amounts of the tickets (dealAmountSum), in the currency of the service, which it does not name; \
             a deal linked to two tickets is in both",
            snapshot.by_state().map(|((state, kind), group)| ([("state", state), ("ticket_type", kind)], group.deal_amount.as_f64())),
        )
    }

    fn open(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.many(
            "orgdata_open_tickets",
            "Open tickets by type and by the highest priority among the deals they are linked to; none: no deal, or none with a priority. \
             Which states are open is set by --tickets.open-states",
            snapshot.open().map(|((kind, priority), group)| ([("ticket_type", kind), ("priority", priority)], group.tickets)),
        )?;
        self.many(
            "orgdata_open_tickets_deal_amount",
            "Sum of the deal amounts of the open tickets (dealAmountSum), in the currency of the service, which it does not name; \
             a deal linked to two tickets is in both",
            snapshot.open().map(|((kind, priority), group)| ([("ticket_type", kind), ("priority", priority)], group.deal_amount.as_f64())),
        )
    }

    fn by_time(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.many(
            "orgdata_open_tickets_overdue",
            "Open tickets whose due date (targetDueDate) has passed at the time of the scrape",
            snapshot
                .overdue()
                .map(|(kind, tickets)| ([("ticket_type", kind)], tickets)),
        )?;
        self.many(
            "orgdata_open_tickets_older_than",
            "Open tickets created at least so many days of 24 hours before the scrape; cumulative: a ticket in 30d is in 7d and 1d too, so do not sum over min_age",
            snapshot.older_than().map(|(kind, min_age, tickets)| ([("ticket_type", kind), ("min_age", min_age)], tickets)),
        )?;
        self.many(
            "orgdata_open_tickets_oldest_created_timestamp_seconds",
            "When the oldest open ticket was created, in seconds since the epoch; absent for a type without an open ticket",
            snapshot.oldest_created().map(|(kind, created)| ([("ticket_type", kind)], created)),
        )
    }

    fn one(
        &mut self,
        name: &'static str,
        help: &'static str,
        value: impl EncodeGaugeValue,
    ) -> Result<(), Error> {
        ConstGauge::new(value).encode(self.0.encode_descriptor(
            name,
            &format!("{help}."),
            None,
            MetricType::Gauge,
        )?)
    }

    /// A family with labels; without a series not even its description is written.
    fn many<L: EncodeLabelSet, N: EncodeGaugeValue>(
        &mut self,
        name: &'static str,
        help: &'static str,
        series: impl Iterator<Item = (L, N)>,
    ) -> Result<(), Error> {
        let mut series = series.peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut family =
            self.0
                .encode_descriptor(name, &format!("{help}."), None, MetricType::Gauge)?;
        for (labels, value) in series {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
