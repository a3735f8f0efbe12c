//! The tail against the simulator: each event is counted once, whatever the service does.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use orgdata_exporter::api::Client;
use orgdata_exporter::ledger::{Encode, LedgerHandle, OutboxRecord, RecordKind};
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::simulator::{Config, KeyReading, Readings, Running, Simulator};
use orgdata_exporter::tail::{Settings, Start, Tail};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::service::{reading, readings, spawn};
use crate::support::settings::{self, PlainRecords};

/// Twice the interval of polls: what is lost meanwhile is reported.
const SILENCE: Duration = Duration::from_secs(1200);

/// A service, and how an exporter of it is set up.
struct Setup {
    running: Running,
    client: Client,
    directory: TempDir,
    start: Start,
    page_size: u32,
}

/// An exporter's tail and a simulator.
struct Bench {
    setup: Setup,
    tail: Tail,
    ledger: LedgerHandle,
    metrics: Metrics,
}

// === impl Bench ===

impl Bench {
    /// An exporter that starts now, and has done so.
    async fn new(history: u64) -> Self {
        Self::with(history, Readings::default(), Start::Now, 100).await
    }

    async fn with(history: u64, readings: Readings, start: Start, page_size: u32) -> Self {
        let running = spawn(reading(history, readings)).await;
        // The paused clock of the tail goes ahead of the service's.
        running.simulator().advance(seconds(60));
        let client = settings::client(&running.base_url(), &Metrics::new(Duration::ZERO));
        // In memory if possible: only a power failure needs a disk.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let mut bench = Self::start(Setup {
            running,
            client,
            directory: directory.unwrap(),
            start,
            page_size,
        });
        if start == Start::Now {
            bench.settle().await;
        }
        bench
    }

    /// Starts a process.
    fn start(setup: Setup) -> Self {
        let metrics = Metrics::new(Duration::ZERO);
        let path = Some(setup.directory.path().join("state.db"));
        let ledger = settings::ledger(path, setup.running.base_url());
        let (ledger, state) = LedgerHandle::open(ledger).unwrap();
        let settings = Settings {
            // Nothing is polled before its turn.
            poll_interval: SILENCE / 2,
            start: setup.start,
            reread_interval: seconds(3600),
            ..settings::tail(setup.page_size)
        };
        let (client, own) = (setup.client.clone(), ledger.clone());
        let tail = Tail::new(client, own, state, metrics.clone(), settings);
        Self {
            setup,
            tail,
            ledger,
            metrics,
        }
    }

    /// Kills the process, does something to its file, and starts another one.
    fn restarted_after(self, change: impl FnOnce(PathBuf)) -> Self {
        drop((self.tail, self.ledger));
        change(self.setup.directory.path().join("state.db"));
        Self::start(self.setup)
    }

    fn sim(&self) -> &Simulator {
        self.setup.running.simulator()
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
        self.sim().add_events(count);
        self.settle().await;
    }

    async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            let wait = self.tail.round().await;
            tokio::time::sleep(wait.min(seconds(2))).await;
        }
    }

    /// Polls once, and counts what is new.
    async fn poll(&mut self) {
        self.tail.hurry_poll();
        self.rounds(2).await;
    }

    fn total(&self, total: Total) -> u64 {
        self.metrics.audit.total(total)
    }

    fn counted(&self) -> u64 {
        let events = self.metrics.audit.events();
        events.iter().map(|(_, value)| value).sum()
    }

    fn gaps(&self) -> u64 {
        self.total(Total::Gaps)
    }

    async fn records(&self) -> Vec<OutboxRecord> {
        let records = self.ledger.outbox_batch(0, usize::MAX, usize::MAX).await;
        records.unwrap()
    }

    /// Returns a field of each entry in the outbox.
    async fn field(&self, name: &str) -> Vec<String> {
        let field = |entry: String| {
            let entry: Value = serde_json::from_str(&entry).unwrap();
            entry[name].as_str().unwrap().to_owned()
        };
        let entries = settings::entries(&self.records().await);
        entries.into_iter().map(field).collect()
    }

    /// Returns how many events were counted, how many entries were delivered, and how many gaps there are.
    async fn taken(&self) -> (u64, u64, u64) {
        let delivered = settings::entries(&self.records().await).len() as u64;
        (self.counted(), delivered, self.gaps())
    }
}

/// Returns the bodies of the records that are gaps.
fn gap_records(records: &[OutboxRecord]) -> Vec<String> {
    let records = records.iter();
    let decoded = records.map(|record| PlainRecords.decode(&record.bytes));
    let gaps = decoded.filter(|(kind, _)| *kind == RecordKind::Gap);
    gaps.map(|(_, body)| body).collect()
}

/// Returns readings of the specification that matter to the tail.
fn meanings() -> [Readings; 3] {
    let inclusive = readings(|it| it.before_inclusive = true);
    let by_arrival = readings(|it| it.key = KeyReading::Arrival);
    [Readings::default(), inclusive, by_arrival]
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test(start_paused = true)]
async fn a_new_ledger_counts_nothing_of_the_past_and_everything_after_it() {
    use Total::{Duplicate, Gaps, Late, Malformed, Recoveries};
    for (readings, history) in meanings().into_iter().zip([500, 0, 500]) {
        let mut bench = Bench::with(history, readings, Start::Now, 100).await;
        assert_eq!(bench.counted(), 0, "{readings:?}");
        for (added, total) in [(1, 1), (99, 100), (0, 100), (2500, 2600), (100, 2700)] {
            bench.sim().advance(SILENCE);
            bench.after_events(added).await;
            assert_eq!(bench.counted(), total, "{readings:?}");
        }
        let delivered = bench.field("id").await;
        let distinct: BTreeSet<_> = delivered.iter().collect();
        assert_eq!((delivered.len(), distinct.len()), (2700, 2700));
        assert!(bench.field("createdAt").await.is_sorted(), "{readings:?}");
        for total in [Gaps, Recoveries, Duplicate, Late, Malformed] {
            assert_eq!(bench.total(total), 0, "{total:?} {readings:?}");
        }
        bench.sim().clear_requests();
        bench.poll().await;
        let requests = bench.sim().requests().audit;
        assert_eq!(requests, 1, "requests of a quiet poll");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_one_gap() {
    for killed in [false, true] {
        let mut bench = Bench::new(300).await;
        bench.sim().advance(SILENCE);
        bench.sim().add_events(1000);
        bench.sim().retain(400);
        bench.tail.hurry();
        while bench.gaps() == 0 {
            bench.rounds(1).await;
        }
        if killed {
            bench = bench.restarted_after(drop);
        }
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (400, 1));
        let gaps = gap_records(&bench.records().await);
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].contains(r#""reason":"retention""#), "{gaps:?}");
        bench.after_events(5).await;
        assert_eq!((bench.counted(), bench.gaps()), (405, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_ledger_in_place_of_a_damaged_one_reports_one_gap() {
    let starts = [(Start::Now, 2), (Start::Oldest, 37)];
    let both = |left| starts.map(|(start, records)| (start, records, left));
    for (start, expected, left) in both(usize::MAX).into_iter().chain(both(0)) {
        let mut bench = Bench::with(30, Readings::default(), start, 100).await;
        bench.settle().await;
        assert_eq!(bench.gaps(), 0);
        bench.sim().add_events(5);
        bench.sim().advance(seconds(60));
        bench = bench.restarted_after(|path| {
            // The header says whose file it is.
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[100..].fill(0x5a);
            bytes.truncate(left);
            std::fs::write(&path, bytes).unwrap();
        });
        bench.settle().await;
        bench = bench.restarted_after(drop);
        bench.after_events(1).await;
        assert_eq!((bench.counted(), bench.gaps()), (1, 1), "{start}");
        let records = bench.records().await;
        let gaps = gap_records(&records);
        assert_eq!((gaps.len(), records.len()), (1, expected), "{start}");
        assert!(gaps[0].contains("state_recreated"), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_another_organization_are_refused() {
    let mut bench = Bench::new(20).await;
    bench.after_events(3).await;
    let config = Config {
        organization_id: 9,
        ..reading(20, Readings::default())
    };
    bench.setup.running = spawn(config).await;
    bench.setup.client = settings::client(&bench.setup.running.base_url(), &bench.metrics);
    bench = bench.restarted_after(drop);
    for _ in 0..2 {
        bench.sim().add_events(2);
        bench.poll().await;
        let state = bench.metrics.loops.state(Loop::Audit);
        let message = state.last_failure.unwrap().message;
        assert!(message.contains("belongs to organization 9"), "{message}");
        assert_eq!(bench.taken().await, (3, 3, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_too_large_is_not_tried_again_and_again() {
    let mut bench = Bench::with(200, Readings::default(), Start::Oldest, 100).await;
    bench.sim().fault("too-large=20".parse().unwrap());
    bench.settle().await;
    assert_eq!(bench.taken().await, (0, 200, 0));
    bench.sim().clear_requests();
    for _ in 0..65 {
        bench.sim().advance(seconds(1));
        bench.sim().add_events(1);
        bench.poll().await;
    }
    let failed = bench.sim().requests().statuses.get(&500).copied();
    assert!(failed.unwrap_or(0) <= 12, "{failed:?} requests failed");
    assert_eq!(bench.counted(), 65);
}

#[tokio::test(start_paused = true)]
async fn each_page_of_a_long_history_is_requested_once_although_the_process_is_killed() {
    let mut bench = Bench::with(2000, Readings::default(), Start::Oldest, 2).await;
    let mut dice = fastrand::Rng::with_seed(7);
    let mut killed = 0;
    while bench.tail.state().first.is_some() || bench.tail.state().history.is_some() {
        bench.rounds(dice.u32(1..100)).await;
        bench = bench.restarted_after(drop);
        killed += 1;
    }
    let requests = bench.sim().requests().audit;
    bench.after_events(3).await;
    let taken = bench.taken().await;
    assert_eq!(taken, (3, 2003, 0), "killed {killed} times");
    let is_once = killed > 10 && requests < 1_200;
    assert!(is_once, "{killed} kills, {requests} requests");
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_loses_nothing() {
    const DAY: i64 = 86_400;
    let mut bench = Bench::with(50, Readings::default(), Start::Now, 7).await;
    let mut added = 0;
    for jump in [10 * DAY, -6 * DAY, -DAY / 48, 20 * DAY, -19 * DAY] {
        let jump = jiff::SignedDuration::from_secs(jump);
        bench.sim().set_clock(bench.sim().now() + jump);
        bench.after_events(30).await;
        bench.settle().await;
        added += 30;
        assert_eq!(bench.taken().await, (added, added, 0), "{jump}");
    }
}
