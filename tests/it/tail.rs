//! The tail against the simulator, on a clock that stands still while it works: each event is counted once, whatever the service does.

use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::audit::{Settings, Start, Tail};
use orgdata_exporter::health::Loop;
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::{Readings, Simulator};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::service::reading;
use crate::support::settings;

/// Twice the interval of polls: what is lost meanwhile is reported.
const SILENCE: Duration = Duration::from_secs(1200);

/// A service, and a tail that reads it.
pub(crate) struct Bench {
    pub(crate) service: Arc<Simulator>,
    pub(crate) tail: Tail,
    ledger: LedgerHandle,
    metrics: Metrics,
    setup: Setup,
}

/// What stays when a process ends.
struct Setup {
    directory: TempDir,
    start: Start,
    page_size: u32,
    poll_interval: Duration,
}

// === impl Bench ===

impl Bench {
    /// A tail that is not polled before its turn.
    async fn with(history: u64, readings: Readings, start: Start, page_size: u32) -> Self {
        let service = Simulator::new(reading(history, readings));
        // An entry of the second before the start may be delivered.
        service.advance(seconds(60));
        let mut bench = Self::new(service, start, page_size, SILENCE / 2);
        if start == Start::Now {
            bench.settle().await;
        }
        bench
    }

    pub(crate) fn new(
        service: Arc<Simulator>,
        start: Start,
        page_size: u32,
        poll_interval: Duration,
    ) -> Self {
        // The service's clock goes with that of the tail.
        let mut last = Instant::now();
        service.on_request(Box::new(move |_, sim| {
            sim.advance(last.elapsed());
            last = Instant::now();
            None
        }));
        // In memory if possible: only a power failure needs a disk.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let setup = Setup {
            directory: directory.unwrap(),
            start,
            page_size,
            poll_interval,
        };
        Self::start(service, setup)
    }

    /// Starts a process.
    fn start(service: Arc<Simulator>, setup: Setup) -> Self {
        let metrics = Metrics::new(Duration::ZERO);
        let path = setup.directory.path().join("state.db");
        let ledger = settings::ledger(Some(path), "http://sim");
        let (ledger, state) = LedgerHandle::open(ledger).unwrap();
        let settings = Settings {
            poll_interval: setup.poll_interval,
            start: setup.start,
            ..settings::tail(setup.page_size)
        };
        let client = settings::simulated(&service);
        let tail = Tail::new(client, ledger.clone(), state, metrics.clone(), settings);
        let tail = tail.unwrap();
        Self {
            service,
            tail,
            ledger,
            metrics,
            setup,
        }
    }

    /// Kills the process, and starts another one.
    fn restarted(self) -> Self {
        drop((self.tail, self.ledger));
        Self::start(self.service, self.setup)
    }

    /// Makes rounds until nothing is left to do.
    async fn settle(&mut self) {
        self.tail.hurry();
        for _ in 0..10_000 {
            let wait = self.tail.round().await;
            if wait > seconds(60) {
                return;
            }
            tokio::time::sleep(wait).await;
        }
        let state = self.metrics.loops.state(Loop::Audit);
        panic!("the tail does not come to rest: {state:?}");
    }

    /// Something happens, and the tail comes to rest.
    async fn after_events(&mut self, count: u64) {
        self.service.add_events(count);
        self.settle().await;
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let wait = self.tail.round().await;
            tokio::time::sleep(wait.min(end.saturating_duration_since(Instant::now()))).await;
        }
    }

    async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            let wait = self.tail.round().await;
            tokio::time::sleep(wait.min(seconds(2))).await;
        }
    }

    /// Polls once, and counts what is new.
    async fn poll(&mut self) {
        self.tail.hurry_sweep();
        self.rounds(2).await;
    }

    fn counted(&self) -> u64 {
        let events = self.metrics.audit.events();
        events.iter().map(|(_, value)| value).sum()
    }

    /// Returns a field of each entry in the outbox.
    async fn field(&self, name: &str) -> Vec<String> {
        let records = self.ledger.outbox_batch(0, usize::MAX, usize::MAX).await;
        let field = |entry: String| {
            let entry: Value = serde_json::from_str(&entry).unwrap();
            entry[name].as_str().unwrap().to_owned()
        };
        let entries = settings::entries(&records.unwrap());
        entries.into_iter().map(field).collect()
    }

    /// Returns how many events were counted, how many entries were delivered, and how many gaps there are.
    pub(crate) async fn taken(&self) -> (u64, u64, u64) {
        let delivered = self.field("id").await.len() as u64;
        let gaps = self.metrics.audit.total(Total::Gaps);
        (self.counted(), delivered, gaps)
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_too_large_is_not_tried_again_and_again() {
    let mut bench = Bench::with(200, Readings::default(), Start::Oldest, 100).await;
    bench.service.fault("too-large=20".parse().unwrap());
    bench.settle().await;
    assert_eq!(bench.taken().await, (0, 200, 0));
    bench.service.clear_requests();
    for _ in 0..65 {
        bench.service.advance(seconds(1));
        bench.service.add_events(1);
        bench.poll().await;
    }
    let failed = bench.service.requests().statuses.get(&500).copied();
    assert!(failed.unwrap_or(0) <= 12, "{failed:?} requests failed");
    assert_eq!(bench.counted(), 65);
}

#[tokio::test(start_paused = true)]
async fn each_page_of_a_long_history_is_requested_once_although_the_process_is_killed() {
    let mut bench = Bench::with(2000, Readings::default(), Start::Oldest, 2).await;
    let mut dice = fastrand::Rng::with_seed(7);
    let mut killed = 0;
    while !bench.tail.state().is_history_complete() {
        bench.rounds(dice.u32(1..100)).await;
        bench = bench.restarted();
        killed += 1;
    }
    let requests = bench.service.requests().audit;
    bench.after_events(3).await;
    let taken = bench.taken().await;
    assert_eq!(taken, (3, 2003, 0), "killed {killed} times");
    // A pass reads two thousand older entries too.
    let is_once = killed > 10 && requests < 2_300;
    assert!(is_once, "{killed} kills, {requests} requests");
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_loses_nothing() {
    const DAY: i64 = 86_400;
    let mut bench = Bench::with(50, Readings::default(), Start::Now, 7).await;
    let mut added = 0;
    for jump in [10 * DAY, -6 * DAY, -DAY / 48, 20 * DAY, -19 * DAY] {
        let jump = jiff::SignedDuration::from_secs(jump);
        bench.service.set_clock(bench.service.now() + jump);
        bench.after_events(30).await;
        bench.settle().await;
        added += 30;
        assert_eq!(bench.taken().await, (added, added, 0), "{jump}");
    }
}
