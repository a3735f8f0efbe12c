//! The tail against the simulator: each event is counted once, whatever the service does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use orgdata_exporter::api::Client;
use orgdata_exporter::audit::{Settings, Start, Tail};
use orgdata_exporter::ledger::{Encode, LedgerHandle, OutboxRecord, RecordKind, StatePath};
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::simulator::{
    Config, Fault, FaultKind, Fields, KeyReading, Readings, Running, Simulator,
};
use serde_json::json;

use crate::support::captured::Captured;
use crate::support::settings::{self, PlainRecords};

/// An exporter's tail and a simulator.
struct Bench {
    running: Running,
    client: Client,
    tail: Tail,
    ledger: LedgerHandle,
    metrics: Metrics,
    wish: Wish,
}

#[derive(Clone)]
struct Wish {
    start: Start,
    page_size: u32,
    path: StatePath,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            start: Start::Now,
            page_size: 100,
            path: StatePath::Memory,
        }
    }
}

// === impl Wish ===

impl Wish {
    fn oldest() -> Self {
        Self {
            start: Start::Oldest,
            ..Self::default()
        }
    }

    fn page_size(self, page_size: u32) -> Self {
        Self { page_size, ..self }
    }

    /// With a state file in `directory`.
    fn file(self, directory: &tempfile::TempDir) -> Self {
        let path = StatePath::File(directory.path().join("state.db"));
        Self { path, ..self }
    }
}

// === impl Bench ===

impl Bench {
    async fn new(history: u64, readings: Readings, wish: Wish) -> Self {
        let config = Config {
            history,
            readings,
            ..Config::quiet()
        };
        let running = Simulator::spawn(config).await.unwrap();
        let client = settings::client(&running.base_url(), &Metrics::new(Duration::ZERO));
        Self::start(running, client, wish)
    }

    /// Starts a process.
    fn start(running: Running, client: Client, wish: Wish) -> Self {
        let metrics = Metrics::new(Duration::ZERO);
        let mut ledger_settings = settings::ledger(wish.path.clone(), running.base_url());
        ledger_settings.filters = client.settings().filters.fingerprint();
        let (ledger, state) = LedgerHandle::open(ledger_settings).unwrap();
        let settings = Settings {
            poll_interval: Duration::from_secs(3600),
            start: wish.start,
            reread_interval: Duration::from_secs(3600),
            reread_window: Duration::from_secs(3600),
            page_size: wish.page_size,
        };
        let tail = Tail::new(
            client.clone(),
            ledger.clone(),
            state,
            metrics.clone(),
            settings,
        );
        Self {
            running,
            client,
            tail,
            ledger,
            metrics,
            wish,
        }
    }

    /// Kills the process, and starts another one.
    fn restarted(self) -> Self {
        let Self {
            running,
            client,
            tail,
            ledger,
            wish,
            ..
        } = self;
        drop((tail, ledger));
        Self::start(running, client, wish)
    }

    fn sim(&self) -> &Simulator {
        self.running.simulator()
    }

    /// Makes rounds until nothing is left to do.
    async fn settle(&mut self) {
        self.tail.hurry();
        for _ in 0..10_000 {
            if self.tail.round().await > Duration::from_secs(60) {
                return;
            }
        }
        let state = self.metrics.loops.state(Loop::Audit);
        panic!("the tail does not come to rest: {state:?}");
    }

    async fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            self.tail.round().await;
        }
    }

    /// Polls once, and counts what is new.
    async fn poll(&mut self) {
        self.tail.hurry_poll();
        self.rounds(2).await;
    }

    fn counted(&self) -> u64 {
        let events = self.metrics.audit.events();
        events.iter().map(|(_, value)| value).sum()
    }

    fn gaps(&self) -> u64 {
        self.metrics.audit.total(Total::Gaps)
    }

    async fn records(&self) -> Vec<OutboxRecord> {
        let records = self.ledger.outbox_batch(usize::MAX, usize::MAX).await;
        records.unwrap()
    }

    /// Returns a field of each entry in the outbox.
    async fn field(&self, name: &str) -> Vec<String> {
        let entries = settings::entries(&self.records().await);
        let values = entries
            .iter()
            .map(|entry| serde_json::from_str::<serde_json::Value>(entry).unwrap());
        values
            .map(|entry| entry[name].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    async fn delivered(&self) -> usize {
        self.field("id").await.len()
    }

    fn requests(&self) -> u64 {
        self.sim().requests().audit
    }

    fn fault(&self, fault: &str) {
        self.sim().fault(fault.parse().unwrap());
    }
}

/// Returns a directory in memory if there is one: only a power failure needs a disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Returns the bodies of the records that are gaps.
fn gap_records(records: &[OutboxRecord]) -> Vec<String> {
    let records = records.iter();
    let decoded = records.map(|record| PlainRecords.decode(&record.bytes));
    let gaps = decoded.filter(|(kind, _)| *kind == RecordKind::Gap);
    gaps.map(|(_, body)| body).collect()
}

/// Returns readings of the specification that matter to the tail.
fn readings() -> [Readings; 3] {
    let inclusive = Readings {
        before_inclusive: true,
        ..Readings::default()
    };
    [Readings::default(), inclusive, by_arrival()]
}

fn by_arrival() -> Readings {
    Readings {
        key: KeyReading::Arrival,
        ..Readings::default()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test]
async fn a_new_ledger_counts_nothing_of_the_past_and_everything_after_it() {
    for readings in readings() {
        let mut bench = Bench::new(500, readings, Wish::default()).await;
        bench.settle().await;
        assert_eq!(bench.counted(), 0, "{readings:?}");
        for (added, total) in [(1, 1), (99, 100), (0, 100), (2500, 2600), (100, 2700)] {
            bench.sim().add_events(added);
            bench.settle().await;
            assert_eq!(bench.counted(), total, "{readings:?}");
        }
        let delivered = bench.field("id").await;
        let distinct: BTreeSet<_> = delivered.iter().collect();
        assert_eq!((delivered.len(), distinct.len()), (2700, 2700));
        for total in [
            Total::Gaps,
            Total::Recoveries,
            Total::Duplicate,
            Total::Late,
            Total::Malformed,
        ] {
            let value = bench.metrics.audit.total(total);
            assert_eq!(value, 0, "{total:?} {readings:?}");
        }
        let before = bench.requests();
        bench.poll().await;
        assert_eq!(bench.requests() - before, 1, "requests of a quiet poll");
    }
}

#[tokio::test]
async fn history_is_delivered_and_not_counted_and_everything_leaves_oldest_first() {
    for readings in readings() {
        let mut bench = Bench::new(1234, readings, Wish::oldest()).await;
        bench.settle().await;
        assert_eq!((bench.counted(), bench.delivered().await), (0, 1234));
        bench.sim().add_events(1010);
        bench.settle().await;
        assert_eq!((bench.counted(), bench.delivered().await), (1010, 2244));
        assert!(bench.field("createdAt").await.is_sorted(), "{readings:?}");
    }
}

#[tokio::test]
async fn pages_that_are_empty_by_accident_end_nothing() {
    for fault in ["empty-page,times=1", "empty-page,every=3"] {
        for readings in readings() {
            let mut bench = Bench::new(334, readings, Wish::oldest()).await;
            bench.fault(fault);
            bench.settle().await;
            let taken = (bench.counted(), bench.delivered().await);
            assert_eq!(taken, (0, 334), "{fault}, {readings:?}");
            bench.sim().clear_faults();
            bench.sim().add_events(150);
            bench.settle().await;
            assert_eq!((bench.counted(), bench.gaps()), (150, 0), "{fault}");
        }
    }
}

#[tokio::test]
async fn small_and_capped_pages_lose_nothing() {
    for readings in readings() {
        let capped = Readings {
            page_cap: Some(7),
            ..readings
        };
        for (page_size, readings) in [(1, readings), (100, capped)] {
            let wish = Wish::oldest().page_size(page_size);
            let mut bench = Bench::new(20, readings, wish).await;
            bench.settle().await;
            bench.sim().add_events(45);
            bench.settle().await;
            let taken = (bench.counted(), bench.delivered().await);
            assert_eq!(taken, (45, 65), "{page_size} {readings:?}");
        }
    }
}

#[tokio::test]
async fn late_rows_are_counted_once_and_as_late() {
    for readings in &readings()[..2] {
        let mut bench = Bench::new(300, *readings, Wish::default()).await;
        bench.settle().await;
        bench.sim().add_events(250);
        bench.settle().await;
        bench.sim().advance(seconds(60));
        bench.sim().add_events(1);
        bench.settle().await;
        bench.sim().add_late(3, seconds(30));
        bench.settle().await;
        bench.settle().await;
        let late = bench.metrics.audit.total(Total::Late);
        let taken = (bench.counted(), late, bench.delivered().await);
        assert_eq!(taken, (254, 3, 254), "{readings:?}");
    }
}

#[tokio::test]
async fn an_organization_without_events_starts_with_its_first() {
    for readings in readings() {
        let mut bench = Bench::new(0, readings, Wish::default()).await;
        bench.settle().await;
        for (added, total) in [(1, 1), (1000, 1001)] {
            bench.sim().advance(seconds(120));
            bench.sim().add_events(added);
            bench.settle().await;
            assert_eq!((bench.counted(), bench.gaps()), (total, 0), "{readings:?}");
        }
    }
}

/// Also if the process is killed just after the gap was written.
#[tokio::test]
async fn a_loss_is_one_gap() {
    for killed in [false, true] {
        let directory = directory();
        let wish = Wish::default().file(&directory);
        let mut bench = Bench::new(300, Readings::default(), wish).await;
        bench.settle().await;
        bench.sim().advance(seconds(120));
        bench.sim().add_events(1000);
        bench.sim().retain(400);
        bench.tail.hurry();
        while bench.gaps() == 0 {
            bench.tail.round().await;
        }
        if killed {
            bench = bench.restarted();
        }
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (400, 1));
        let gaps = gap_records(&bench.records().await);
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].contains(r#""reason":"retention""#), "{gaps:?}");
        bench.sim().add_events(5);
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (405, 1));
    }
}

#[tokio::test]
async fn a_gap_is_logged_and_counted_once_however_often_its_commit_fails() {
    let log = Captured::begin();
    let directory = directory();
    let wish = Wish::default().file(&directory);
    let mut bench = Bench::new(300, Readings::default(), wish).await;
    bench.settle().await;
    bench.sim().advance(seconds(120));
    bench.sim().add_events(30);
    bench.sim().retain(20);
    // One poll and the newest page: the end of the listing is not confirmed yet.
    bench.poll().await;
    let file = rusqlite::Connection::open(directory.path().join("state.db")).unwrap();
    file.execute_batch(
        "CREATE TRIGGER no BEFORE INSERT ON outbox BEGIN SELECT raise(ABORT, 'no'); END",
    )
    .unwrap();
    bench.rounds(6).await;
    let logged = || {
        let lines = log.lines();
        let gaps = lines
            .iter()
            .filter(|line| line.contains("gap in the audit logs"));
        gaps.count() as u64
    };
    assert_eq!((logged(), bench.gaps()), (0, 0));
    file.execute_batch("DROP TRIGGER no").unwrap();
    bench.settle().await;
    assert_eq!((logged(), bench.gaps(), bench.counted()), (1, 1, 20));
}

#[tokio::test]
async fn a_ledger_in_place_of_a_damaged_one_reports_one_gap() {
    for start in [Start::Now, Start::Oldest] {
        let directory = directory();
        let wish = Wish {
            start,
            ..Wish::default().file(&directory)
        };
        let mut bench = Bench::new(30, Readings::default(), wish).await;
        bench.settle().await;
        assert_eq!(bench.gaps(), 0);
        // Damages the file, except for its header.
        let path = directory.path().join("state.db");
        let sim = bench.sim();
        sim.add_events(5);
        let Bench {
            running,
            client,
            tail,
            ledger,
            wish,
            ..
        } = bench;
        drop((tail, ledger));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100..].fill(0x5a);
        std::fs::write(&path, bytes).unwrap();
        let mut bench = Bench::start(running, client, wish);
        bench.settle().await;
        bench = bench.restarted();
        bench.sim().add_events(1);
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (1, 1), "{start}");
        let records = bench.records().await;
        let gaps = gap_records(&records);
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].contains("state_recreated"), "{gaps:?}");
        assert_eq!(records.len(), if start == Start::Now { 2 } else { 37 });
    }
}

#[tokio::test]
async fn an_odd_organization_of_one_entry_does_not_stop_the_tail() {
    for (odd, malformed) in [(json!("odd"), 0), (json!(12.5), 0), (json!(99), 0)] {
        let mut bench = Bench::new(20, Readings::default(), Wish::default()).await;
        bench.settle().await;
        for more in [0, 3] {
            bench.sim().advance(seconds(1));
            let fields = Fields::new()
                .unchecked()
                .with("organizationId", odd.clone());
            bench.sim().add_entry(&fields).unwrap();
            bench.sim().add_events(more);
            bench.settle().await;
        }
        let counted = bench.metrics.audit.total(Total::Malformed);
        assert_eq!((bench.counted(), counted), (5, malformed), "{odd}");
    }
}

#[tokio::test]
async fn expired_cursors_lose_nothing_and_are_no_gap() {
    for fault in ["expired-cursor-empty,times=1", "expired-cursor=410,times=3"] {
        let wish = Wish::oldest().page_size(10);
        let mut bench = Bench::new(400, Readings::default(), wish).await;
        bench.rounds(15).await;
        bench.fault(fault);
        bench.settle().await;
        let there: Vec<String> = bench.sim().entries().map(|entry| entry.id).collect();
        assert_eq!(
            (bench.field("id").await, bench.gaps()),
            (there, 0),
            "{fault}"
        );
    }
}

/// Also after a restart: the new events stand above the place that has to be found again.
#[tokio::test]
async fn events_during_a_history_whose_cursors_expire_are_counted() {
    for (added, restart) in [(300, false), (300, true), (1, false), (1, true)] {
        let directory = directory();
        let wish = Wish::oldest().file(&directory);
        let mut bench = Bench::new(2000, Readings::default(), wish).await;
        bench.rounds(5).await;
        bench.sim().advance(seconds(5));
        bench.sim().add_events(added);
        let expired = Fault::new(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST));
        let fault = bench.sim().fault(expired);
        bench.rounds(8).await;
        assert!(bench.sim().remove_fault(fault));
        if restart {
            bench = bench.restarted();
        }
        bench.settle().await;
        let taken = (
            bench.counted(),
            bench.delivered().await as u64,
            bench.gaps(),
        );
        assert_eq!(taken, (added, 2000 + added, 0), "restarted: {restart}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_too_large_is_not_tried_again_and_again() {
    let mut bench = Bench::new(200, Readings::default(), Wish::oldest()).await;
    bench.fault("too-large=20");
    bench.settle().await;
    assert_eq!(bench.delivered().await, 200);
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

#[tokio::test]
async fn an_event_dated_long_ago_is_counted_once_wherever_it_stands() {
    let wish = Wish::oldest().page_size(1000);
    let mut bench = Bench::new(10_500, by_arrival(), wish).await;
    bench.settle().await;
    // More ids than are always kept, and the time to prune some.
    bench.sim().advance(seconds(2 * 3600));
    let fields = Fields::new()
        .unchecked()
        .with("createdAt", "2001-01-01T00:00:00.000Z");
    bench.sim().add_entry(&fields).unwrap();
    for _ in 0..3 {
        bench.settle().await;
        bench.sim().advance(seconds(2 * 3600));
        assert_eq!((bench.counted(), bench.delivered().await), (1, 10_501));
    }
}

#[tokio::test]
async fn a_restart_continues_where_the_last_process_was_killed() {
    for readings in readings() {
        let directory = directory();
        let wish = Wish::oldest().page_size(20).file(&directory);
        let mut bench = Bench::new(190, readings, wish).await;
        let mut added = 0;
        for round in 0..60u64 {
            bench.tail.hurry();
            bench.rounds(3).await;
            if round % 3 == 0 && round < 40 {
                added += round;
                bench.sim().add_events(round);
            }
            bench = bench.restarted();
        }
        bench.settle().await;
        let taken = (
            bench.counted(),
            bench.delivered().await as u64,
            bench.gaps(),
        );
        assert_eq!(taken, (added, 190 + added, 0), "{readings:?}");
    }
}

#[tokio::test]
async fn each_page_of_a_long_history_is_requested_once_although_the_process_is_killed() {
    let directory = directory();
    let wish = Wish::oldest().page_size(2).file(&directory);
    let mut bench = Bench::new(2000, Readings::default(), wish).await;
    let mut dice = fastrand::Rng::with_seed(7);
    let mut killed = 0;
    while bench.tail.state().first_sync.is_none() || !bench.tail.state().ranges.is_empty() {
        bench.rounds(dice.u32(1..100)).await;
        bench = bench.restarted();
        killed += 1;
    }
    bench.sim().add_events(3);
    bench.settle().await;
    let taken = (bench.counted(), bench.delivered().await, bench.gaps());
    assert_eq!(taken, (3, 2003, 0), "killed {killed} times");
    let requests = bench.requests();
    assert!(
        killed > 10 && requests < 1_200,
        "{killed} kills, {requests} requests"
    );
}

#[tokio::test]
async fn a_jump_of_the_clock_loses_nothing() {
    const DAY: i64 = 86_400;
    let mut bench = Bench::new(50, Readings::default(), Wish::default().page_size(7)).await;
    bench.settle().await;
    let mut added = 0;
    for jump in [10 * DAY, -6 * DAY, -DAY / 48, 20 * DAY, -19 * DAY] {
        let now = bench.sim().now();
        bench
            .sim()
            .set_clock(now + jiff::SignedDuration::from_secs(jump));
        bench.sim().add_events(30);
        added += 30;
        bench.settle().await;
        bench.settle().await;
        let taken = (bench.counted(), bench.delivered().await as u64);
        assert_eq!(taken, (added, added), "{jump}");
    }
    assert_eq!(bench.gaps(), 0);
}

#[tokio::test]
async fn counters_carry_type_and_actor() {
    let mut bench = Bench::new(50, Readings::default(), Wish::default()).await;
    bench.settle().await;
    bench.sim().add_events(500);
    bench.settle().await;
    let mut truth: BTreeMap<(String, String), u64> = BTreeMap::new();
    for entry in settings::entries(&bench.records().await) {
        let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
        let actor = entry["actorUserId"].as_i64();
        let actor = actor.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let activity_type = entry["type"].as_str().unwrap().to_owned();
        *truth.entry((activity_type, actor)).or_default() += 1;
    }
    let events = bench.metrics.audit.events().into_iter();
    let shown = events
        .filter(|(_, value)| *value > 0)
        .map(|(labels, value)| {
            let actor = labels.actor.unwrap().to_string();
            ((labels.activity_type.to_string(), actor), value)
        });
    assert_eq!(shown.collect::<BTreeMap<_, _>>(), truth);
}

/// Pages below the newest fail for eight minutes: nothing is lost, and live events are counted meanwhile.
#[tokio::test(start_paused = true)]
async fn eight_minutes_of_failing_pages_lose_nothing() {
    for history in [0, 3000] {
        let wish = if history > 0 {
            Wish::oldest()
        } else {
            Wish::default()
        };
        let mut bench = Bench::new(history.max(100), Readings::default(), wish).await;
        if history == 0 {
            bench.settle().await;
        } else {
            bench.rounds(3).await;
        }
        let until = bench.sim().now() + seconds(480);
        bench.sim().add_events(5000);
        bench.sim().on_request(Box::new(move |request, sim| {
            let is_deep = request.param("before").is_some();
            (is_deep && sim.now() < until).then(|| Fault::status(StatusCode::BAD_GATEWAY))
        }));
        for minute in 1..=8 {
            bench.sim().advance(seconds(60));
            bench.sim().add_events(1);
            bench.poll().await;
            bench.rounds(5).await;
            assert!(bench.counted() >= minute, "live events wait");
        }
        bench.settle().await;
        let taken = (
            bench.counted(),
            bench.delivered().await as u64,
            bench.gaps(),
        );
        assert_eq!(taken, (5008, history + 5008, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_re_read_that_fails_is_not_complete() {
    let mut bench = Bench::new(50, Readings::default(), Wish::default().page_size(10)).await;
    bench.settle().await;
    for _ in 0..60 {
        bench.sim().advance(seconds(10));
        bench.sim().add_events(1);
    }
    bench.settle().await;
    bench.sim().add_late(2, seconds(500));
    let deep = bench.sim().now() - seconds(300);
    bench.sim().on_request(Box::new(move |request, sim| {
        let is_early = sim.now() < deep + seconds(360);
        (is_early && request.param("before").is_some())
            .then(|| Fault::status(StatusCode::BAD_GATEWAY))
    }));
    let before = bench.tail.state().reread_at;
    bench.tail.hurry();
    bench.rounds(40).await;
    assert_eq!(bench.tail.state().reread_at, before);
    bench.sim().advance(seconds(120));
    bench.settle().await;
    assert!(bench.tail.state().reread_at > before);
    assert_eq!(
        (bench.counted(), bench.metrics.audit.total(Total::Late)),
        (62, 2)
    );
}

/// Ten events a second, and one more between any two requests.
#[tokio::test]
async fn a_re_read_completes_while_events_arrive() {
    let mut bench = Bench::new(50, Readings::default(), Wish::default().page_size(100)).await;
    bench.settle().await;
    bench.sim().add_events(200);
    bench.sim().advance(seconds(60));
    bench.sim().add_events(1);
    bench.settle().await;
    bench.sim().add_late(1, seconds(59));
    bench.sim().on_request(Box::new(|_, sim| {
        sim.advance(Duration::from_millis(100));
        sim.add_events(1);
        None
    }));
    let before = bench.tail.state().reread_at;
    bench.tail.hurry();
    for _ in 0..40 {
        bench.sim().advance(seconds(15));
        bench.sim().add_events(150);
        bench.tail.hurry_poll();
        bench.rounds(8).await;
    }
    assert!(bench.tail.state().reread_at > before, "the re-read starves");
    assert_eq!(bench.metrics.audit.total(Total::Late), 1);
}

#[tokio::test]
async fn an_import_of_old_rows_hides_no_live_events() {
    let mut bench = Bench::new(100, by_arrival(), Wish::default()).await;
    bench.settle().await;
    let old = Fields::new()
        .unchecked()
        .with("createdAt", "2020-01-01T00:00:00.000Z");
    for _ in 0..300 {
        bench.sim().add_entry(&old).unwrap();
    }
    bench.sim().add_events(500);
    for _ in 0..300 {
        bench.sim().add_entry(&old).unwrap();
    }
    bench.settle().await;
    assert_eq!((bench.counted(), bench.gaps()), (1100, 0));
}

#[tokio::test]
async fn a_long_history_does_not_delay_live_events() {
    let mut bench = Bench::new(2000, Readings::default(), Wish::oldest().page_size(10)).await;
    bench.rounds(2).await;
    for total in 1..=20 {
        bench.sim().add_events(1);
        bench.poll().await;
        assert_eq!(bench.counted(), total);
        bench.rounds(2).await;
    }
    assert_eq!(
        bench.tail.state().ranges.len(),
        1,
        "the history is still read"
    );
}

#[tokio::test]
async fn a_service_whose_clock_is_behind_its_entries_is_caught_up_with() {
    let mut bench = Bench::new(100, Readings::default(), Wish::default()).await;
    bench.settle().await;
    for round in 1..=5u64 {
        for _ in 0..120 {
            let created: Timestamp = bench.sim().now() + seconds(600);
            let fields = Fields::new().with("createdAt", created.to_string());
            bench.sim().advance(seconds(1));
            bench.sim().add_entry(&fields).unwrap();
        }
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (120 * round, 0));
    }
}

/// Retention has deleted every known entry; then there is one new event. Polls are 15 seconds apart.
#[tokio::test]
async fn a_quiet_organization_has_no_false_gap() {
    let mut bench = Bench::new(20, Readings::default(), Wish::default()).await;
    bench.settle().await;
    for total in 1..=3 {
        bench.sim().retain(0);
        for _ in 0..30 {
            bench.sim().advance(seconds(15));
            bench.poll().await;
        }
        bench.sim().add_events(1);
        bench.sim().advance(seconds(15));
        bench.settle().await;
        assert_eq!((bench.counted(), bench.gaps()), (total, 0));
    }
}
