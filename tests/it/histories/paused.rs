//! Histories that take longer than a test may: the tail on a clock that stands still while it works.

use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::{ExpiredReading, Fault, Readings, Simulator};
use orgdata_exporter::tail::Tail;
use tokio::time::Instant;

use crate::support::service::{reading, readings};
use crate::support::settings;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A service, and a tail that reads it.
struct Paused {
    service: Arc<Simulator>,
    tail: Tail,
    metrics: Metrics,
}

// === impl Paused ===

impl Paused {
    /// Returns a tail that counts.
    async fn with(history: u64, readings: Readings) -> Self {
        let service = Simulator::new(reading(history, readings));
        // The service's clock goes with that of the tail.
        let mut last = Instant::now();
        service.on_request(Box::new(move |_, sim| {
            sim.advance(last.elapsed());
            last = Instant::now();
            None
        }));
        let metrics = Metrics::new(Duration::ZERO);
        let (ledger, state) = LedgerHandle::open(settings::ledger(None, "http://sim")).unwrap();
        let client = settings::simulated(&service);
        let tail = Tail::new(client, ledger, state, metrics.clone(), settings::tail(10));
        let mut paused = Self {
            service,
            tail,
            metrics,
        };
        paused.pass(Duration::from_secs(120)).await;
        assert!(paused.tail.state().first.is_none());
        paused
    }

    /// Lets time pass.
    async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let wait = self.tail.round().await;
            tokio::time::sleep(wait.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// Returns the number of events that are counted, and of gaps.
    fn totals(&self) -> (u64, u64) {
        let events = self.metrics.audit.events();
        let events = events.iter().map(|(_, count)| count).sum();
        (events, self.metrics.audit.total(Total::Gaps))
    }
}

#[tokio::test(start_paused = true)]
async fn cursors_that_expire_during_a_pause_are_no_end() {
    let readings = readings(|it| (it.cursor_ttl, it.expired) = (Some(60), ExpiredReading::Empty));
    let mut paused = Paused::with(200, readings).await;
    paused.service.add_events(100);
    let polls = paused.service.requests().audit;
    while paused.service.requests().audit < polls + 4 {
        paused.tail.hurry_poll();
        paused.tail.round().await;
    }
    let pause: Fault = "retry-after=90".parse().unwrap();
    paused.service.fault(pause.once());
    paused.pass(Duration::from_secs(600)).await;
    assert_eq!(paused.totals(), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_first_entry_after_weeks_without_any_is_no_gap() {
    let mut paused = Paused::with(20, Readings::default()).await;
    paused.service.retain(0);
    paused.pass(15 * DAY).await;
    paused.service.add_events(1);
    paused.pass(Duration::from_secs(60)).await;
    assert_eq!(paused.totals(), (1, 0));
}
