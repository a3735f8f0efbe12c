//! The relay against a scripted collector and a ledger in memory that can fail, on paused time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use tokio::task::JoinHandle;

use super::super::record::log_record;
use super::*;
use crate::health::LONGEST_RELAY_ROUND;
use crate::ledger::ledger_tests::{live, options};
use crate::ledger::{Commit, Disposition, NewEntry, Stored};
use crate::telemetry::captured::Captured;
use crate::util::lock;

/// Makes each outcome of a request fail to be written.
const REFUSE: &str =
    "CREATE TRIGGER refuse BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'injected'); END";

/// Records with a number, which is their id.
struct Outbox(LedgerHandle);

/// What a collector does, and what it has seen.
#[derive(Default)]
struct Script {
    /// Records that it rejects with `rejection`, alone or among others.
    bad: BTreeSet<usize>,
    rejection: Option<Verdict>,
    /// The answer to every request.
    always: Option<Verdict>,
    panics: bool,
    /// No request ends.
    hangs: bool,
    /// The ids of each request, and when it came.
    requests: Vec<(Instant, Vec<usize>)>,
    received: Vec<usize>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Script>>);

struct Bench {
    outbox: Outbox,
    collector: Collector,
    relay: Relay<Collector>,
    metrics: Arc<OtlpMetrics>,
    loops: Arc<Loops>,
}

// === impl Outbox ===

impl Outbox {
    fn new() -> Self {
        let settings = crate::ledger::LedgerOptions {
            max_dead_letters: u32::MAX,
            ..options(None)
        };
        let (ledger, _) = LedgerHandle::open(settings).unwrap();
        Self(ledger)
    }

    /// Adds a page of records.
    async fn add(&self, numbers: Range<usize>) {
        let text = |number| format!(r#"{{"id":"{number}","type":"X"}}"#);
        let entry = |number| NewEntry {
            disposition: Disposition::Backdated,
            ..live(number as u64, text(number))
        };
        let commit = Commit {
            entries: numbers.map(entry).collect(),
            ..Commit::new(Timestamp::now())
        };
        self.0.commit(commit).await.unwrap();
    }

    fn waiting(&self) -> u64 {
        self.0.backlog()
    }

    /// Runs SQL on the state file.
    async fn execute(&self, sql: &'static str) {
        let done = self.0.with(|file| file.execute_batch(sql));
        done.await.unwrap();
    }

    /// Returns the reasons and the numbers of the dead letters.
    async fn dead(&self) -> Vec<(String, usize)> {
        let sql = "SELECT reason, line FROM dead_letters ORDER BY id";
        let dead = self.0.with(move |file| {
            let mut dead = file.prepare(sql)?;
            let rows = dead.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        });
        let dead = dead.await.unwrap().into_iter();
        let number = |line: String| {
            let record = log_record(Stored::read(line.as_bytes()));
            number(&record)
        };
        dead.map(|(reason, line)| (reason, number(line))).collect()
    }

    async fn dead_ids(&self) -> Vec<usize> {
        self.dead().await.into_iter().map(|(_, id)| id).collect()
    }
}

// === impl Collector ===

impl Export for Collector {
    async fn export(&self, request: ExportLogsServiceRequest) -> Verdict {
        if lock(&self.0).hangs {
            std::future::pending::<()>().await;
        }
        let is_empty = request == ExportLogsServiceRequest::default();
        let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
        let records = scopes.flat_map(|scope| &scope.log_records);
        let ids: Vec<usize> = records.map(number).collect();
        assert!(!ids.is_empty() || is_empty, "an envelope without records");
        let script = &mut *lock(&self.0);
        script.requests.push((Instant::now(), ids.clone()));
        assert!(!script.panics, "a library panics");
        if let Some(verdict) = script.always.clone() {
            return verdict;
        }
        if ids.iter().any(|id| script.bad.contains(id)) {
            let rejection = script.rejection.clone();
            return rejection.unwrap_or(rejected(Reason::BadRecord));
        }
        script.received.extend(ids);
        Verdict::Accepted
    }
}

// === impl Bench ===

impl Bench {
    async fn new(records: usize, batch_size: usize) -> Self {
        let delivery = delivery(batch_size);
        let metrics = Arc::new(OtlpMetrics::default());
        let (outbox, loops) = (Outbox::new(), Arc::new(Loops::default()));
        let collector = Collector::default();
        if records > 0 {
            outbox.add(0..records).await;
        }
        let (ledger, sender) = (outbox.0.clone(), collector.clone());
        let relay = Relay::new(ledger, sender, &delivery, metrics.clone(), loops.clone());
        Self {
            outbox,
            collector,
            relay,
            metrics,
            loops,
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.collector.0)
    }

    /// The collector rejects these records.
    fn bad(self, bad: impl IntoIterator<Item = usize>, rejection: Verdict) -> Self {
        self.script().bad.extend(bad);
        self.script().rejection = Some(rejection);
        self
    }

    fn always(self, verdict: impl Into<Option<Verdict>>) -> Self {
        self.script().always = verdict.into();
        self
    }

    /// The collector accepts everything.
    fn heal(&self) {
        let script = &mut *self.script();
        (script.always, script.panics) = (None, false);
        script.bad.clear();
    }

    async fn until_idle(&mut self) {
        for _ in 0..10_000 {
            match self.relay.round().await {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::Idle => return,
            }
        }
        panic!("never idle");
    }

    /// Runs rounds for so long, and returns the number of requests.
    async fn run_for(&mut self, seconds: u64) -> usize {
        let end = Instant::now() + Duration::from_secs(seconds);
        let before = self.requests().len();
        while Instant::now() < end {
            match self.relay.round().await {
                Next::Now => tokio::time::advance(Duration::from_millis(1)).await,
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::Idle => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        self.requests().len() - before
    }

    fn requests(&self) -> Vec<(Instant, Vec<usize>)> {
        self.script().requests.clone()
    }

    fn received(&self) -> Vec<usize> {
        self.script().received.clone()
    }

    fn received_sorted(&self) -> Vec<usize> {
        let mut received = self.received();
        received.sort_unstable();
        received
    }

    fn up(&self) -> Option<bool> {
        self.loops.state(Loop::Otlp).up
    }
}

/// Returns the number of a record.
fn number(record: &LogRecord) -> usize {
    let id = format!("{:?}", record.attributes[0].value);
    let digits = id.chars().filter(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap()
}

fn rejected(reason: Reason) -> Verdict {
    Verdict::Rejected(Rejection::new(reason, "HTTP 503"))
}

fn delivery(batch_size: usize) -> Delivery {
    let target = otlp_logs::Target::Stdout(otlp_logs::json_line);
    Delivery::new(target, batch_size as u32, &|_| None)
}

fn partly(rejected: u64) -> Verdict {
    let message = "no such index".to_owned();
    Verdict::PartlyRejected { rejected, message }
}

fn all_but(records: usize, bad: &[usize]) -> Vec<usize> {
    (0..records).filter(|id| !bad.contains(id)).collect()
}

#[tokio::test(start_paused = true)]
async fn bad_records_become_dead_letters_and_no_other_when_a_good_one_was_accepted() {
    for (reason, dead) in [
        (Reason::BadRecord, "rejected"),
        (Reason::ServerError, "rejected"),
        (Reason::TooLarge, "too_large"),
    ] {
        let bad = [0, 1, 255, 300, 510, 511, 1023];
        let mut bench = Bench::new(1024, 512).await.bad(bad, rejected(reason));
        bench.run_for(1800).await;
        assert_eq!((bench.outbox.waiting(), bench.up()), (1, Some(false)));
        bench.outbox.add(1024..1040).await;
        bench.run_for(600).await;
        let letters = bad.map(|id| (dead.to_owned(), id));
        assert_eq!(bench.outbox.dead().await, letters);
        assert_eq!(bench.received_sorted(), all_but(1040, &bad), "each once");
        assert_eq!(bench.up(), Some(true));
    }
}

/// Requests without records succeed.
#[tokio::test(start_paused = true)]
async fn a_collector_that_rejects_all_records_never_looks_as_if_it_works() {
    let log = Captured::begin();
    let mut bench = Bench::new(1, 1).await.bad(0..10, partly(1));
    bench.until_idle().await;
    for id in 1..10 {
        bench.outbox.add(id..id + 1).await;
        bench.until_idle().await;
        tokio::time::sleep(PROBE_INTERVAL * 2).await;
        bench.until_idle().await;
        assert_eq!(bench.up(), Some(false), "{id}");
    }
    assert_eq!(log.count("delivered again"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_rejects_everything_makes_no_dead_letter() {
    for verdict in [
        rejected(Reason::BadRecord),
        rejected(Reason::ServerError),
        rejected(Reason::TooLarge),
    ] {
        let mut bench = Bench::new(1000, 512).await.always(verdict);
        let first = bench.run_for(1).await;
        assert!(first <= 24, "{first} requests at first");
        let hour = bench.run_for(3600).await;
        assert!((60..500).contains(&hour), "{hour} requests in an hour");
        assert_eq!((bench.outbox.waiting(), bench.up()), (1000, Some(false)));
        bench.heal();
        let before = bench.requests().len();
        bench.until_idle().await;
        assert!(bench.requests().len() - before < 25);
        assert_eq!(bench.outbox.dead_ids().await, Vec::<usize>::new());
        assert_eq!(
            (bench.received_sorted(), bench.up()),
            (all_but(1000, &[]), Some(true))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_partial_rejection_is_never_sent_again_and_the_next_request_is_smaller() {
    let mut bench = Bench::new(1000, 400).await.always(partly(2));
    assert_eq!(bench.relay.round().await, Next::Now);
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids().await, (0..400).collect::<Vec<_>>());
    assert_eq!(bench.received(), (400..1000).collect::<Vec<_>>());
    assert_eq!(bench.requests()[1].1.len(), 200);
    let metrics = &bench.metrics;
    let (sent, rejected) = (metrics.records_sent.get(), metrics.records_rejected.get());
    assert_eq!((sent, rejected), (998, 2));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_always_rejects_a_part_makes_few_dead_letters() {
    let mut bench = Bench::new(5000, 512).await.always(partly(1));
    bench.run_for(3600).await;
    let dead = bench.outbox.dead_ids().await.len();
    assert!(dead < 1500, "{dead} dead letters in an hour");
    assert_eq!(bench.up(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_retried_forever_and_nothing_is_lost() {
    let log = Captured::begin();
    let mut bench = Bench::new(30, 20)
        .await
        .always(rejected(Reason::Unavailable));
    let day = bench.run_for(86_400).await;
    assert!((2800..6000).contains(&day), "{day} requests in a day");
    let shown = bench.loops.state(Loop::Otlp).last_failure.unwrap();
    assert_eq!((shown.reason, &*shown.message), ("unavailable", "HTTP 503"));
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.received(), all_but(30, &[]));
    // The 1st, 2nd, 4th and so on, and one an hour.
    let logged = log.count("delivery failed; log records wait");
    assert!((30..36).contains(&logged), "{logged} lines");
    assert_eq!(log.count("log records are delivered again"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_library_is_a_failed_request() {
    let mut bench = Bench::new(30, 20).await;
    bench.script().panics = true;
    bench.run_for(60).await;
    assert_eq!((bench.outbox.waiting(), bench.up()), (30, Some(false)));
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.received(), all_but(30, &[]));
}

#[tokio::test(start_paused = true)]
async fn an_empty_request_shows_whether_the_collector_is_there() {
    for (verdict, up) in [
        (None, true),
        (Some(rejected(Reason::BadRecord)), true),
        (Some(rejected(Reason::ServerError)), true),
        (Some(rejected(Reason::Unavailable)), true),
        (Some(rejected(Reason::Connect)), false),
        (Some(rejected(Reason::Timeout)), false),
        (Some(rejected(Reason::Unauthorized)), false),
        (Some(rejected(Reason::WrongEndpoint)), false),
    ] {
        let mut bench = Bench::new(0, 512).await.always(verdict);
        bench.relay.round().await;
        assert_eq!((bench.requests().len(), bench.up()), (1, Some(up)));
        let hour = bench.run_for(3600).await;
        let expected = if up { 59..=60 } else { 110..=300 };
        assert!(expected.contains(&hour), "{hour} requests in an hour");
        bench.heal();
        bench.run_for(60).await;
        assert_eq!(bench.up(), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_file_that_cannot_be_written_makes_nothing_go_out_twice() {
    let log = Captured::begin();
    let mut bench = Bench::new(1000, 100).await;
    bench.outbox.execute(REFUSE).await;
    bench.run_for(600).await;
    assert_eq!(bench.received(), all_but(100, &[]), "one request");
    let writes = bench.outbox.0.status().commit_failures;
    assert!(writes < 60, "{writes} attempts to write in ten minutes");
    assert_eq!((bench.outbox.waiting(), bench.up()), (1000, Some(false)));
    bench.outbox.execute("DROP TRIGGER refuse").await;
    bench.run_for(60).await;
    assert_eq!(
        (bench.received(), bench.up()),
        (all_but(1000, &[]), Some(true))
    );
    let message = "cannot write the state file: injected";
    assert_eq!(log.count(message), 1);
    assert_eq!(log.count("the state file works again"), 1);
}

/// Starts the loop with a grace period of ten seconds.
fn start(relay: Relay<Collector>) -> (Health, CancellationToken, JoinHandle<()>) {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let run = relay.run(health.clone(), shutdown.clone(), Duration::from_secs(10));
    (health, shutdown, tokio::spawn(run))
}

#[tokio::test(start_paused = true)]
async fn new_records_wake_the_relay_and_a_shutdown_sends_what_is_there() {
    let bench = Bench::new(0, 100).await;
    let (_, shutdown, task) = start(bench.relay);
    let received = || lock(&bench.collector.0).received.len();
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.outbox.add(0..3).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(received(), 3);
    bench.outbox.add(3..1000).await;
    shutdown.cancel();
    task.await.unwrap();
    assert_eq!((received(), bench.outbox.waiting()), (1000, 0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_relay_and_an_outage_are_healthy_and_a_shutdown_waits_for_neither() {
    for (always, left) in [(None, 0), (Some(rejected(Reason::Connect)), 10)] {
        let bench = Bench::new(10, 100).await.always(always);
        let (health, shutdown, task) = start(bench.relay);
        for _ in 0..48 {
            tokio::time::sleep(Duration::from_secs(1800)).await;
            assert_eq!(health.stuck(), []);
        }
        let signal = Instant::now();
        shutdown.cancel();
        task.await.unwrap();
        assert!(signal.elapsed() < Duration::from_secs(1));
        assert_eq!(bench.outbox.waiting(), left, "what is left stays");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(health.stuck(), [], "a loop that ended is healthy");
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_request_never_ends_is_stuck() {
    let bench = Bench::new(10, 100).await;
    bench.script().hangs = true;
    let (health, _shutdown, task) = start(bench.relay);
    tokio::time::sleep(LONGEST_RELAY_ROUND).await;
    assert_eq!(health.stuck(), []);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(health.stuck().len(), 1);
    task.abort();
}
