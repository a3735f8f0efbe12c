//! The relay against a scripted collector and a ledger in memory that can fail, on paused time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prometheus_client::registry::Registry;
use prost::Message;

use super::*;
use crate::entry::RecordEncoder;
use crate::health::LONGEST_RELAY_ROUND;
use crate::ledger::{Commit, Disposition, EventId, NewEntry, NewEvent};
use crate::relay::OtlpFlags;
use crate::support::settings;
use crate::telemetry::captured::Captured;

/// Makes each outcome of a request fail to be written.
const REFUSE: &str =
    "CREATE TRIGGER refuse BEFORE UPDATE ON outbox BEGIN SELECT RAISE(ABORT, 'injected'); END";

/// Records with a number, which is their id.
struct Outbox {
    ledger: LedgerHandle,
    pages: i64,
}

/// A collector.
#[derive(Default)]
struct Collector {
    /// Records that it refuses with `refusal`, alone or among others.
    bad: Mutex<BTreeSet<usize>>,
    refusal: Mutex<Option<Verdict>>,
    /// The answer to every request.
    always: Mutex<Option<Verdict>>,
    /// It does not answer.
    is_silent: Mutex<bool>,
    panics: Mutex<bool>,
    /// The ids of each request, and when it came.
    requests: Mutex<Vec<(Instant, Vec<usize>)>>,
    received: Mutex<Vec<usize>>,
}

/// The relay's side of it.
struct Shared(Arc<Collector>);

struct Bench {
    outbox: Outbox,
    collector: Arc<Collector>,
    relay: Relay<Shared>,
    metrics: Arc<OtlpMetrics>,
    loops: Arc<Loops>,
}

// === impl Outbox ===

impl Outbox {
    fn new() -> Self {
        let settings = crate::ledger::Settings {
            encoder: Arc::new(RecordEncoder::default()),
            max_dead_letters: u32::MAX,
            ..settings::ledger(None, "http://localhost")
        };
        let (ledger, _) = LedgerHandle::open(settings).expect("a ledger");
        Self { ledger, pages: 0 }
    }

    async fn add(&mut self, numbers: Range<usize>) {
        self.add_with(numbers, "").await;
    }

    /// Adds a page of records that contain this text.
    async fn add_with(&mut self, numbers: Range<usize>, text: &str) {
        let entry = |number| NewEntry {
            id: EventId(number as u64),
            created_at: Timestamp::UNIX_EPOCH,
            disposition: Disposition::History,
            event: Ok(NewEvent {
                activity_type: "X".to_owned(),
                actor: None,
                malformed: false,
            }),
            raw: settings::alone(format!(r#"{{"id":"{number}","type":"X","text":"{text}"}}"#)),
        };
        self.pages += 1;
        let commit = Commit {
            entries: numbers.map(entry).collect(),
            ..Commit::new(Timestamp::now())
        };
        self.ledger.commit(commit).await.expect("committed");
    }

    fn waiting(&self) -> u64 {
        self.ledger.backlog()
    }

    /// Runs SQL on the state file.
    async fn execute(&self, sql: &'static str) {
        let done = self.ledger.with(|file| file.execute_batch(sql));
        done.await.expect("executed");
    }

    /// Returns the reasons and the numbers of the dead letters.
    async fn dead(&self) -> Vec<(String, usize)> {
        let sql = "SELECT reason, raw FROM dead_letters ORDER BY id";
        let dead = self.ledger.with(move |file| {
            let mut dead = file.prepare(sql)?;
            let rows = dead.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(_, String)>>>()
        });
        let number = |raw: String| {
            let record: serde_json::Value = serde_json::from_str(&raw).expect("JSON");
            record["id"].as_str().and_then(|id| id.parse().ok())
        };
        let dead = dead.await.expect("read").into_iter();
        dead.map(|(reason, raw)| (reason, number(raw).expect("a number")))
            .collect()
    }

    async fn dead_ids(&self) -> Vec<usize> {
        self.dead().await.into_iter().map(|(_, id)| id).collect()
    }
}

// === impl Collector ===

impl Export for Shared {
    async fn export(&self, body: Bytes) -> Verdict {
        self.0.answer(body)
    }
}

impl Collector {
    fn answer(&self, body: Bytes) -> Verdict {
        let bytes = body.len();
        let request = ExportLogsServiceRequest::decode(body).expect("a request");
        let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
        let ids: Vec<usize> = scopes
            .flat_map(|scope| &scope.log_records)
            .map(|record| {
                let id = format!("{:?}", record.attributes[0].value);
                let digits = id.chars().filter(char::is_ascii_digit);
                digits.collect::<String>().parse().expect("a number")
            })
            .collect();
        assert!(!ids.is_empty() || bytes == 0, "an envelope without records");
        let is_probe = ids.is_empty();
        let request = (Instant::now(), ids.clone());
        self.requests.lock().expect("lock").push(request);
        assert!(!*self.panics.lock().expect("lock"), "a library panics");
        if let Some(verdict) = self.always.lock().expect("lock").clone() {
            return verdict;
        }
        if *self.is_silent.lock().expect("lock") && !is_probe {
            return refused(Reason::Timeout);
        }
        let bad = self.bad.lock().expect("lock");
        if ids.iter().any(|id| bad.contains(id)) {
            let refusal = self.refusal.lock().expect("lock").clone();
            return refusal.unwrap_or(refused(Reason::BadRecord));
        }
        self.received.lock().expect("lock").extend(ids);
        Verdict::Accepted
    }
}

// === impl Bench ===

impl Bench {
    async fn new(records: usize, batch_size: usize) -> Self {
        let delivery = delivery(batch_size);
        let mut registry = Registry::default();
        let metrics = Arc::new(OtlpMetrics::register(&mut registry));
        let loops = Arc::new(Loops::default());
        let (mut outbox, collector) = (Outbox::new(), Arc::new(Collector::default()));
        if records > 0 {
            outbox.add(0..records).await;
        }
        let relay = Relay::new(
            outbox.ledger.clone(),
            Shared(collector.clone()),
            &delivery,
            metrics.clone(),
            loops.clone(),
        );
        Self {
            outbox,
            collector,
            relay,
            metrics,
            loops,
        }
    }

    fn bad(self, bad: impl IntoIterator<Item = usize>) -> Self {
        self.collector.bad.lock().expect("lock").extend(bad);
        self
    }

    fn always(self, verdict: impl Into<Option<Verdict>>) -> Self {
        *self.collector.always.lock().expect("lock") = verdict.into();
        self
    }

    fn refuses_with(self, verdict: Verdict) -> Self {
        *self.collector.refusal.lock().expect("lock") = Some(verdict);
        self
    }

    fn heal(&self) {
        *self.collector.always.lock().expect("lock") = None;
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
        self.collector.requests.lock().expect("lock").clone()
    }

    fn received(&self) -> Vec<usize> {
        self.collector.received.lock().expect("lock").clone()
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

fn refused(reason: Reason) -> Verdict {
    Verdict::Refused(Refusal::new(reason, "HTTP 503"))
}

fn delivery(batch_size: usize) -> Delivery {
    let flags = OtlpFlags {
        endpoint: None,
        protocol: None,
        batch_size: batch_size as u32,
        user_names: true,
        redact: Vec::new(),
    };
    Delivery::to_stdout(otlp_logs::json_line, &flags, &|_| None).expect("settings")
}

fn partly(rejected: u64) -> Verdict {
    let message = "no such index".to_owned();
    Verdict::PartlyRejected { rejected, message }
}

fn all_but(records: usize, bad: &[usize]) -> Vec<usize> {
    (0..records).filter(|id| !bad.contains(id)).collect()
}

#[tokio::test(start_paused = true)]
async fn everything_arrives_once_and_in_order() {
    let mut bench = Bench::new(1000, 300).await;
    bench.until_idle().await;
    assert_eq!(bench.received(), all_but(1000, &[]));
    assert_eq!((bench.requests().len(), bench.outbox.waiting()), (4, 0));
    assert_eq!(
        (bench.metrics.records_sent.get(), bench.up()),
        (1000, Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn bad_records_become_dead_letters_and_no_other() {
    for (reason, dead) in [
        (Reason::BadRecord, "refused"),
        (Reason::ServerError, "refused"),
        (Reason::TooLarge, "too_large"),
    ] {
        let bad = [0, 1, 255, 300, 510, 511];
        let mut bench = Bench::new(1024, 512)
            .await
            .bad(bad)
            .refuses_with(refused(reason));
        bench.until_idle().await;
        assert_eq!(
            bench.outbox.dead().await,
            bad.map(|id| (dead.to_owned(), id))
        );
        assert_eq!(bench.received_sorted(), all_but(1024, &bad), "each once");
        assert_eq!(bench.up(), Some(true));
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_refused_record_waits_for_a_witness() {
    for verdict in [
        refused(Reason::BadRecord),
        refused(Reason::ServerError),
        refused(Reason::TooLarge),
    ] {
        let mut bench = Bench::new(1, 512).await.bad([0]).refuses_with(verdict);
        bench.run_for(600).await;
        assert_eq!((bench.outbox.waiting(), bench.up()), (1, Some(false)));
        bench.outbox.add(1..3).await;
        bench.until_idle().await;
        assert_eq!(bench.outbox.dead_ids().await, [0]);
        assert_eq!(bench.received_sorted(), [1, 2]);
    }
}

/// Requests without records succeed.
#[tokio::test(start_paused = true)]
async fn a_collector_that_rejects_all_records_never_looks_as_if_it_works() {
    let log = Captured::begin();
    let mut bench = Bench::new(1, 1).await.bad(0..10).refuses_with(partly(1));
    bench.until_idle().await;
    for id in 1..10 {
        bench.outbox.add(id..id + 1).await;
        bench.until_idle().await;
        tokio::time::sleep(PROBE_INTERVAL * 2).await;
        bench.until_idle().await;
        assert_eq!(bench.up(), Some(false), "{id}");
    }
    let again = |line: &String| line.contains("delivered again");
    assert!(!log.lines().iter().any(again));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_refuses_everything_rejects_nothing() {
    for verdict in [
        refused(Reason::BadRecord),
        refused(Reason::ServerError),
        refused(Reason::TooLarge),
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
        assert!(bench.requests().len() - before < 15);
        assert_eq!(bench.outbox.dead_ids().await, Vec::<usize>::new());
        assert_eq!(
            (bench.received_sorted(), bench.up()),
            (all_but(1000, &[]), Some(true))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_witness_that_is_partly_rejected_leaves_the_others_in_their_place() {
    let mut bench = Bench::new(3, 1).await.bad([0]);
    bench.relay.round().await;
    let mut bench = bench.always(partly(1));
    bench.relay.round().await;
    assert_eq!(bench.outbox.dead_ids().await, [1]);
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids().await, [1, 0]);
    assert_eq!(bench.received(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_request_has_at_most_three_mebibytes() {
    let mut bench = Bench::new(0, 512).await;
    let text = "a".repeat(1_200_000);
    bench.outbox.add_with(0..7, &text).await;
    bench.until_idle().await;
    let requests = bench.requests();
    let records: Vec<usize> = requests.iter().map(|(_, ids)| ids.len()).collect();
    assert_eq!(records, [2, 2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn after_silence_or_a_quota_requests_are_full_again() {
    for (silent, most) in [(true, 30), (false, 10)] {
        let mut bench = Bench::new(5000, 512).await;
        if silent {
            *bench.collector.is_silent.lock().expect("lock") = true;
        } else {
            bench = bench.always(refused(Reason::RateLimited));
        }
        bench.run_for(3600).await;
        *bench.collector.is_silent.lock().expect("lock") = false;
        bench.heal();
        let before = bench.requests().len();
        bench.until_idle().await;
        assert_eq!(bench.received(), all_but(5000, &[]));
        let requests = bench.requests().len() - before;
        assert!(requests <= most, "{requests} requests");
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
    assert_eq!(bench.requests()[1].1.len(), 100);
    let metrics = &bench.metrics;
    let (sent, rejected) = (metrics.records_sent.get(), metrics.records_rejected.get());
    assert_eq!((sent, rejected), (998, 2));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_always_rejects_a_part_makes_few_dead_letters() {
    let mut bench = Bench::new(5000, 512).await.always(partly(1));
    bench.run_for(3600).await;
    let dead = bench.outbox.dead_ids().await.len();
    assert!(dead < 1000, "{dead} dead letters in an hour");
    assert_eq!(bench.up(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_retried_forever_and_nothing_is_lost() {
    let log = Captured::begin();
    let mut bench = Bench::new(30, 20)
        .await
        .always(refused(Reason::Unavailable));
    let day = bench.run_for(86_400).await;
    assert!((2800..6000).contains(&day), "{day} requests in a day");
    let shown = bench.loops.state(Loop::Otlp).last_failure.expect("failed");
    assert_eq!(
        shown.message,
        "cannot deliver log records: HTTP 503 (unavailable)"
    );
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.received(), all_but(30, &[]));
    let lines = log.lines();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    let message = "cannot deliver log records: HTTP 503; what waits stays";
    assert_eq!(count(message), 1);
    assert_eq!(count("log records are delivered again"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_whose_status_changes_is_logged_again() {
    let log = Captured::begin();
    let bench = Bench::new(1, 20).await;
    let mut bench = bench.always(refused(Reason::Unavailable));
    bench.run_for(600).await;
    let refusal = Refusal::new(Reason::Unavailable, "HTTP 502");
    let mut bench = bench.always(Verdict::Refused(refusal));
    bench.run_for(600).await;
    let lines = log.lines();
    let failed = |line: &&String| line.contains("WARN") && line.contains("cannot deliver");
    assert_eq!(lines.iter().filter(failed).count(), 2, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_library_is_a_failed_request() {
    let mut bench = Bench::new(30, 20).await;
    *bench.collector.panics.lock().expect("lock") = true;
    bench.run_for(60).await;
    assert_eq!((bench.outbox.waiting(), bench.up()), (30, Some(false)));
    *bench.collector.panics.lock().expect("lock") = false;
    bench.until_idle().await;
    assert_eq!(bench.received(), all_but(30, &[]));
}

#[tokio::test(start_paused = true)]
async fn the_delay_of_the_server_wins() {
    let mut busy = Refusal::new(Reason::RateLimited, "HTTP 429");
    busy.retry_after = Some(Duration::from_secs(300));
    let mut bench = Bench::new(1, 512).await.always(Verdict::Refused(busy));
    bench.run_for(3000).await;
    for pair in bench.requests().windows(2) {
        let delay = (pair[1].0 - pair[0].0).as_secs();
        assert!((300..330).contains(&delay), "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_request_shows_whether_the_collector_answers() {
    for (verdict, up) in [
        (None, true),
        (Some(refused(Reason::BadRecord)), true),
        (Some(refused(Reason::TooLarge)), true),
        (Some(refused(Reason::Connect)), false),
        // It would answer a request with records like this, too.
        (Some(refused(Reason::ServerError)), false),
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
    let writes = bench.outbox.ledger.status().commit_failures;
    assert!(writes < 60, "{writes} attempts to write in ten minutes");
    assert_eq!((bench.outbox.waiting(), bench.up()), (1000, Some(false)));
    bench.outbox.execute("DROP TRIGGER refuse").await;
    bench.run_for(60).await;
    assert_eq!(
        (bench.received(), bench.up()),
        (all_but(1000, &[]), Some(true))
    );
    let lines = log.lines();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        count("cannot deliver log records: cannot use the state file: injected"),
        1
    );
    assert_eq!(count("the state file works again"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_state_file_that_cannot_be_read_is_read_again_after_a_delay() {
    let mut bench = Bench::new(10, 100).await;
    let rename = "ALTER TABLE outbox RENAME TO gone";
    bench.outbox.execute(rename).await;
    for _ in 0..10 {
        let next = bench.relay.round().await;
        assert!(matches!(next, Next::After(wait) if wait >= Duration::from_secs(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_what_is_there() {
    let bench = Bench::new(1000, 100).await;
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let grace = Duration::from_secs(10);
    bench.relay.run(Health::default(), shutdown, grace).await;
    assert_eq!(bench.collector.received.lock().expect("lock").len(), 1000);
    assert_eq!(bench.outbox.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_collector_that_is_down() {
    let bench = Bench::new(1000, 100).await.always(refused(Reason::Connect));
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let run = bench
        .relay
        .run(health, shutdown.clone(), Duration::from_secs(10));
    let task = tokio::spawn(run);
    tokio::time::sleep(Duration::from_secs(90)).await;
    let signal = Instant::now();
    shutdown.cancel();
    task.await.expect("no panic");
    assert!(signal.elapsed() < Duration::from_secs(1));
    assert_eq!(bench.outbox.waiting(), 1000, "what is left stays");
}

#[tokio::test(start_paused = true)]
async fn an_idle_relay_and_an_outage_are_healthy() {
    for always in [None, Some(refused(Reason::Connect))] {
        let bench = Bench::new(10, 100).await.always(always);
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let grace = Duration::from_secs(10);
        let run = bench.relay.run(health.clone(), shutdown.clone(), grace);
        let task = tokio::spawn(run);
        for _ in 0..48 {
            tokio::time::sleep(Duration::from_secs(1800)).await;
            assert_eq!(health.stuck(), []);
        }
        shutdown.cancel();
        task.await.expect("no panic");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(health.stuck(), [], "a loop that ended is healthy");
    }
}

/// A request that never ends.
struct Endless;

impl Export for Endless {
    async fn export(&self, _: Bytes) -> Verdict {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_request_never_ends_is_stuck() {
    let bench = Bench::new(10, 100).await;
    let (metrics, loops) = (bench.metrics.clone(), bench.loops.clone());
    let relay = Relay::new(bench.outbox.ledger, Endless, &delivery(100), metrics, loops);
    let health = Health::default();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(relay.run(health.clone(), shutdown, Duration::from_secs(10)));
    tokio::time::sleep(LONGEST_RELAY_ROUND).await;
    assert_eq!(health.stuck(), []);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(health.stuck().len(), 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn new_records_wake_the_relay() {
    let mut bench = Bench::new(0, 100).await;
    let shutdown = CancellationToken::new();
    let run = bench
        .relay
        .run(Health::default(), shutdown.clone(), Duration::from_secs(10));
    let task = tokio::spawn(run);
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.outbox.add(0..3).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.collector.received.lock().expect("lock").len(), 3);
    shutdown.cancel();
    task.await.expect("no panic");
}
