//! The relay against a scripted sink and an outbox in memory that can fail, on paused time.

use std::collections::BTreeSet;
use std::sync::Mutex;

use bytes::Bytes;
use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::health::{Health, LONGEST_RELAY_ROUND};
use crate::ledger::{Backlog, DeadLetter, DeadReason, OutboxPosition, OutboxRecord, RecordKind};
use crate::otlp::{FailureReason, Flags, Refusal, Verdict};
use crate::telemetry::captured::Captured;

/// Records by their number, which is also their id and their index in page 1.
#[derive(Default)]
struct Memory {
    records: Mutex<Vec<OutboxRecord>>,
    dead: Mutex<Vec<DeadLetter>>,
    changed: Notify,
    /// Writing and reading fail.
    full: Mutex<(bool, bool)>,
    writes: Mutex<usize>,
}

/// A collector.
#[derive(Default)]
struct Sink {
    /// What it says to records of these ids, alone or among others.
    bad: Mutex<BTreeSet<usize>>,
    /// What it says instead of an acknowledgement.
    always: Mutex<Option<Verdict>>,
    refusal: Mutex<Option<Verdict>>,
    largest: Mutex<Option<usize>>,
    /// So many records take longer than the time-out.
    slow: Mutex<Option<usize>>,
    /// The ids of each request, and when it came.
    requests: Mutex<Vec<(Instant, Vec<usize>)>>,
    received: Mutex<Vec<usize>>,
}

struct Bench {
    outbox: Arc<Memory>,
    sink: Arc<Sink>,
    relay: Relay<Arc<Memory>, Arc<Sink>>,
    metrics: Arc<OtlpMetrics>,
    loops: Arc<Loops>,
}

// === impl Memory ===

impl Memory {
    fn add(&self, numbers: std::ops::Range<usize>) {
        let record = |number: usize| OutboxRecord {
            position: OutboxPosition {
                page: 1,
                index: u32::try_from(number).expect("small"),
            },
            kind: RecordKind::Entry,
            arrived_at: Timestamp::now(),
            trace: None,
            raw: format!(r#"{{"id":"{number}","type":"X"}}"#),
        };
        self.records
            .lock()
            .expect("lock")
            .extend(numbers.map(record));
        self.changed.notify_one();
    }

    fn waiting(&self) -> usize {
        self.records.lock().expect("lock").len()
    }

    fn dead_ids(&self) -> Vec<usize> {
        self.dead
            .lock()
            .expect("lock")
            .iter()
            .map(|dead| id(&dead.raw))
            .collect()
    }
}

impl Outbox for Arc<Memory> {
    type Error = &'static str;

    async fn batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, &'static str> {
        if self.full.lock().expect("lock").1 {
            return Err("disk gone");
        }
        let mut bytes = 0;
        let records = self.records.lock().expect("lock");
        let fitting = records
            .iter()
            .take(max_records)
            .enumerate()
            .take_while(|(index, record)| {
                bytes += record.raw.len();
                *index == 0 || bytes <= max_bytes
            });
        Ok(fitting.map(|(_, record)| record.clone()).collect())
    }

    async fn acknowledge(
        &self,
        through: OutboxPosition,
        dead: Vec<DeadLetter>,
    ) -> Result<(), &'static str> {
        *self.writes.lock().expect("lock") += 1;
        if self.full.lock().expect("lock").0 {
            return Err("disk full");
        }
        self.records
            .lock()
            .expect("lock")
            .retain(|record| record.position > through);
        self.dead.lock().expect("lock").extend(dead);
        Ok(())
    }

    fn backlog(&self) -> Backlog {
        let records = self.records.lock().expect("lock");
        Backlog {
            records: records.len() as u64,
            oldest: records.first().map(|record| record.arrived_at),
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }
}

// === impl Sink ===

impl Export for Arc<Sink> {
    async fn export(&self, body: Bytes) -> Verdict {
        let bytes = body.len();
        let request = ExportLogsServiceRequest::decode(body).expect("a request");
        let records = request
            .resource_logs
            .iter()
            .flat_map(|logs| &logs.scope_logs)
            .flat_map(|logs| &logs.log_records);
        let ids: Vec<usize> = records
            .map(|record| id(&format!("{:?}", record.attributes[0].value)))
            .collect();
        assert!(!ids.is_empty(), "an empty envelope");
        self.requests
            .lock()
            .expect("lock")
            .push((Instant::now(), ids.clone()));
        if let Some(verdict) = self.always.lock().expect("lock").clone() {
            return verdict;
        }
        if self
            .largest
            .lock()
            .expect("lock")
            .is_some_and(|largest| bytes > largest)
        {
            return Verdict::TooLarge(Refusal::new(FailureReason::TooLarge, "HTTP 413"));
        }
        if self
            .slow
            .lock()
            .expect("lock")
            .is_some_and(|slow| ids.len() >= slow)
        {
            return Verdict::Hold(Refusal::new(FailureReason::Timeout, "no answer within 10s"));
        }
        if ids
            .iter()
            .any(|id| self.bad.lock().expect("lock").contains(id))
        {
            let verdict = self.refusal.lock().expect("lock").clone();
            return verdict.unwrap_or(Verdict::Suspect(Refusal::new(
                FailureReason::BadRecord,
                "HTTP 400: bad",
            )));
        }
        self.received.lock().expect("lock").extend(ids);
        Verdict::Acknowledged { warning: None }
    }
}

// === impl Bench ===

impl Bench {
    fn new(records: usize, batch_size: usize) -> Self {
        let flags = Flags {
            endpoint: None,
            protocol: None,
            batch_size,
            user_names: true,
            redact: Vec::new(),
        };
        let settings = Settings::stdout(&flags, &|_| None).expect("settings");
        let mut registry = Registry::default();
        let metrics = Arc::new(OtlpMetrics::register(&mut registry));
        let loops = Arc::new(Loops::default());
        let (outbox, sink) = (Arc::new(Memory::default()), Arc::new(Sink::default()));
        outbox.add(0..records);
        let relay = Relay::new(
            outbox.clone(),
            "instance",
            sink.clone(),
            &settings,
            metrics.clone(),
            loops.clone(),
        );
        Self {
            outbox,
            sink,
            relay,
            metrics,
            loops,
        }
    }

    fn bad(self, bad: impl IntoIterator<Item = usize>) -> Self {
        self.sink.bad.lock().expect("lock").extend(bad);
        self
    }

    fn always(self, verdict: Verdict) -> Self {
        *self.sink.always.lock().expect("lock") = Some(verdict);
        self
    }

    fn heal(&self) {
        *self.sink.always.lock().expect("lock") = None;
    }

    /// Rounds until nothing waits, on paused time.
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

    /// Rounds for so long; returns the number of requests.
    async fn run_for(&mut self, time: Duration) -> usize {
        let (before, end) = (self.requests(), Instant::now() + time);
        while Instant::now() < end {
            match self.relay.round().await {
                Next::Now => tokio::time::advance(Duration::from_millis(1)).await,
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::Idle => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        self.requests() - before
    }

    fn requests(&self) -> usize {
        self.sink.requests.lock().expect("lock").len()
    }

    fn received(&self) -> Vec<usize> {
        self.sink.received.lock().expect("lock").clone()
    }

    fn up(&self) -> Option<bool> {
        self.loops.state(Loop::Otlp).up
    }
}

/// The number in a record's id.
fn id(text: &str) -> usize {
    let digits: String = text
        .chars()
        .skip_while(|letter| !letter.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("a number")
}

fn suspect(reason: FailureReason) -> Verdict {
    Verdict::Suspect(Refusal::new(reason, "refused"))
}

#[tokio::test(start_paused = true)]
async fn everything_arrives_once_and_in_order() {
    let mut bench = Bench::new(1000, 300);
    bench.until_idle().await;
    assert_eq!(bench.received(), (0..1000).collect::<Vec<_>>());
    assert_eq!(
        (
            bench.requests(),
            bench.outbox.waiting(),
            bench.metrics.records_sent.get()
        ),
        (4, 0, 1000)
    );
    assert_eq!(bench.up(), Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_warning_that_comes_with_every_request_is_told_once() {
    let log = Captured::begin();
    let mut bench = Bench::new(500, 100).always(Verdict::Acknowledged {
        warning: Some("an old protocol".to_owned()),
    });
    bench.until_idle().await;
    assert_eq!((bench.requests(), bench.outbox.waiting()), (5, 0));
    assert_eq!(
        log.lines()
            .iter()
            .filter(|line| line.contains("an old protocol"))
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_bad_record_is_condemned_with_few_requests_and_no_other() {
    for position in [0, 1, 255, 300, 510, 511] {
        let mut bench = Bench::new(1024, 512).bad([position]);
        bench.until_idle().await;
        assert_eq!(bench.outbox.dead_ids(), [position]);
        assert!(
            bench.requests() <= 16,
            "record {position}: {} requests",
            bench.requests()
        );
        let mut received = bench.received();
        received.sort_unstable();
        assert_eq!(
            received,
            (0..1024).filter(|id| *id != position).collect::<Vec<_>>(),
            "each once"
        );
        let dead = bench.outbox.dead.lock().expect("lock")[0].clone();
        assert_eq!(
            (dead.reason, dead.message.as_str()),
            (DeadReason::Refused, "HTTP 400: bad")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn order_holds_while_a_bad_record_behind_the_first_is_searched() {
    let mut bench = Bench::new(512, 512).bad([300]);
    bench.until_idle().await;
    assert!(bench.received().is_sorted());
}

#[tokio::test(start_paused = true)]
async fn several_bad_records_are_all_found() {
    let bad: Vec<usize> = (0..600).filter(|id| id % 97 < 2).collect();
    let mut bench = Bench::new(600, 256).bad(bad.clone());
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids(), bad);
    assert_eq!(bench.received().len(), 600 - bad.len());
}

#[tokio::test(start_paused = true)]
async fn a_bad_record_is_found_where_each_request_has_one() {
    for position in [0, 10, 59] {
        let mut bench = Bench::new(60, 1).bad([position]);
        // The last record has a witness when there is something new.
        bench.run_for(Duration::from_secs(60)).await;
        bench.outbox.add(60..62);
        bench.until_idle().await;
        assert_eq!(
            (bench.outbox.dead_ids(), bench.received().len()),
            (vec![position], 61)
        );
        assert!(bench.requests() < 75, "{} requests", bench.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_collector_gets_requests_that_it_can_take_in_time() {
    let mut bench = Bench::new(5000, 512);
    *bench.sink.slow.lock().expect("lock") = Some(200);
    bench.until_idle().await;
    assert_eq!(bench.received(), (0..5000).collect::<Vec<_>>());
    // 40 are needed; what takes too long is sent again, so it must be rare.
    assert!(bench.requests() <= 44, "{} requests", bench.requests());
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_was_silent_gets_full_requests_again() {
    let mut bench = Bench::new(5000, 512);
    *bench.sink.slow.lock().expect("lock") = Some(0);
    bench.run_for(Duration::from_secs(3600)).await;
    *bench.sink.slow.lock().expect("lock") = None;
    let before = bench.requests();
    bench.until_idle().await;
    assert_eq!(bench.received(), (0..5000).collect::<Vec<_>>());
    assert!(
        bench.requests() - before <= 45,
        "{} requests",
        bench.requests() - before
    );
}

#[tokio::test(start_paused = true)]
async fn a_quota_condemns_nobody_and_one_record_too_large_costs_few_requests() {
    let refusal = |words| {
        Some(Verdict::TooLarge(Refusal::new(
            FailureReason::TooLarge,
            words,
        )))
    };
    let mut bench = Bench::new(600, 512).bad([100]);
    *bench.sink.refusal.lock().expect("lock") = refusal("ResourceExhausted: rate limit exceeded");
    let requests = bench.run_for(Duration::from_secs(3600)).await;
    assert_eq!(
        (bench.outbox.dead_ids(), bench.received()),
        (vec![], (0..100).collect())
    );
    assert!(requests < 100, "{requests} requests");

    let mut bench = Bench::new(2000, 512).bad([700]);
    *bench.sink.refusal.lock().expect("lock") = refusal("HTTP 413");
    bench.until_idle().await;
    assert_eq!(
        (bench.outbox.dead_ids(), bench.received().len()),
        (vec![700], 1999)
    );
    assert!(bench.requests() < 40, "{} requests", bench.requests());
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_refuses_everything_holds_without_a_storm_and_without_dead_letters() {
    for reason in [FailureReason::BadRecord, FailureReason::ServerError] {
        let mut bench = Bench::new(1000, 512).always(suspect(reason));
        let first = bench.run_for(Duration::from_secs(1)).await;
        assert!(first <= 5, "{first} requests at first");
        let hour = bench.run_for(Duration::from_secs(3600)).await;
        assert!((60..200).contains(&hour), "{hour} requests in an hour");
        assert_eq!(
            (
                bench.outbox.dead_ids().len(),
                bench.outbox.waiting(),
                bench.up()
            ),
            (0, 1000, Some(false))
        );
        bench.heal();
        bench.until_idle().await;
        assert_eq!(
            (
                bench.outbox.dead_ids().len(),
                bench.received().len(),
                bench.up()
            ),
            (0, 1000, Some(true))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_refused_record_waits_for_a_witness() {
    let mut bench = Bench::new(1, 512).bad([0]);
    bench.run_for(Duration::from_secs(600)).await;
    assert_eq!(
        (bench.outbox.dead_ids().len(), bench.outbox.waiting()),
        (0, 1)
    );
    bench.outbox.add(1..3);
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids(), [0]);
    let mut received = bench.received();
    received.sort_unstable();
    assert_eq!(received, [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_server_error_condemns_only_after_several_strikes() {
    let mut bench = Bench::new(64, 64).bad([7]);
    *bench.sink.refusal.lock().expect("lock") = Some(suspect(FailureReason::ServerError));
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids(), [7]);
    let alone = bench
        .sink
        .requests
        .lock()
        .expect("lock")
        .iter()
        .filter(|(_, ids)| *ids == [7])
        .count();
    assert_eq!(alone, 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_large_is_halved_and_stays_smaller() {
    let mut bench = Bench::new(2000, 500);
    *bench.sink.largest.lock().expect("lock") = Some(8 * 1024);
    bench.until_idle().await;
    assert_eq!(bench.received(), (0..2000).collect::<Vec<_>>());
    let refused = bench.requests() as u64
        - bench
            .sink
            .requests
            .lock()
            .expect("lock")
            .iter()
            .filter(|(_, ids)| ids.len() < 150)
            .count() as u64;
    assert!(refused <= 4, "{refused}");
    assert!(bench.outbox.dead_ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_finds_everything_too_large_makes_no_dead_letters() {
    let mut bench = Bench::new(600, 512);
    *bench.sink.largest.lock().expect("lock") = Some(1);
    let requests = bench.run_for(Duration::from_secs(600)).await;
    assert!(requests < 60, "{requests}");
    assert_eq!(
        (bench.outbox.dead_ids().len(), bench.outbox.waiting()),
        (0, 600)
    );
}

#[tokio::test(start_paused = true)]
async fn one_record_larger_than_any_limit_is_a_dead_letter_without_a_witness() {
    let mut bench = Bench::new(1, 512);
    bench.outbox.records.lock().expect("lock")[0].raw =
        format!(r#"{{"id":"0","metadata":"{}"}}"#, "x".repeat(2_000_000));
    *bench.sink.largest.lock().expect("lock") = Some(1_500_000);
    bench.until_idle().await;
    assert_eq!(
        bench.outbox.dead.lock().expect("lock")[0].reason,
        DeadReason::TooLarge
    );
}

#[tokio::test(start_paused = true)]
async fn a_partial_rejection_is_never_sent_again_and_the_next_requests_are_smaller() {
    let rejected = Verdict::PartlyRejected {
        rejected: 2,
        message: "no such index".to_owned(),
    };
    let mut bench = Bench::new(1000, 400).always(rejected);
    assert_eq!(bench.relay.round().await, Next::Now);
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids(), (0..400).collect::<Vec<_>>());
    assert_eq!(bench.received(), (400..1000).collect::<Vec<_>>());
    assert_eq!(bench.sink.requests.lock().expect("lock")[1].1.len(), 100);
    assert_eq!(bench.metrics.records_rejected.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_rejects_part_of_everything_condemns_few() {
    let rejected = Verdict::PartlyRejected {
        rejected: 1,
        message: String::new(),
    };
    let mut bench = Bench::new(5000, 512).always(rejected);
    bench.run_for(Duration::from_secs(3600)).await;
    let dead = bench.outbox.dead_ids().len();
    assert!(dead < 900, "{dead} dead letters in an hour");
    assert_eq!(bench.up(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn what_heals_by_itself_is_tried_again_for_ever_and_nothing_is_lost() {
    let down = Verdict::Hold(Refusal::new(FailureReason::Unavailable, "HTTP 503"));
    let mut bench = Bench::new(30, 20).always(down);
    let day = bench.run_for(Duration::from_secs(86_400)).await;
    assert!((1000..3000).contains(&day), "{day} requests in a day");
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.received(), (0..30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn the_collector_s_own_delay_is_kept() {
    let busy = Refusal {
        retry_after: Some(Duration::from_secs(30)),
        ..Refusal::new(FailureReason::RateLimited, "HTTP 429")
    };
    let mut bench = Bench::new(1, 512).always(Verdict::Hold(busy));
    bench.run_for(Duration::from_secs(300)).await;
    let times: Vec<Instant> = bench
        .sink
        .requests
        .lock()
        .expect("lock")
        .iter()
        .map(|(time, _)| *time)
        .collect();
    assert!(
        times
            .windows(2)
            .all(|pair| (30..34).contains(&(pair[1] - pair[0]).as_secs())),
        "{times:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hold_in_the_middle_of_a_search_condemns_nobody() {
    let mut bench = Bench::new(100, 100).bad([50]);
    for _ in 0..4 {
        bench.relay.round().await;
    }
    *bench.sink.always.lock().expect("lock") = Some(Verdict::Hold(Refusal::new(
        FailureReason::Connect,
        "refused",
    )));
    bench.run_for(Duration::from_secs(60)).await;
    bench.heal();
    bench.until_idle().await;
    assert_eq!(bench.outbox.dead_ids(), [50]);
    let mut received = bench.received();
    received.sort_unstable();
    assert_eq!(
        received,
        (0..100).filter(|id| *id != 50).collect::<Vec<_>>()
    );
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_write_makes_nothing_go_out_twice() {
    let mut bench = Bench::new(1000, 100);
    bench.outbox.full.lock().expect("lock").0 = true;
    bench.run_for(Duration::from_secs(600)).await;
    assert_eq!(bench.received(), (0..1000).collect::<Vec<_>>());
    let writes = *bench.outbox.writes.lock().expect("lock");
    assert!(writes < 30, "{writes} attempts to write in ten minutes");
    assert_eq!((bench.outbox.waiting(), bench.up()), (1000, Some(false)));
    bench.outbox.full.lock().expect("lock").0 = false;
    bench.run_for(Duration::from_secs(120)).await;
    assert_eq!(
        (bench.outbox.waiting(), bench.received().len(), bench.up()),
        (0, 1000, Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_write_bounds_what_is_sent_ahead() {
    let mut bench = Bench::new(5000, 100);
    bench.outbox.full.lock().expect("lock").0 = true;
    bench.run_for(Duration::from_secs(600)).await;
    assert_eq!(bench.received().len(), MAX_REQUESTS_AHEAD * 100);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_read_is_no_hot_loop() {
    let mut bench = Bench::new(10, 100);
    bench.outbox.full.lock().expect("lock").1 = true;
    for _ in 0..10 {
        assert!(
            matches!(bench.relay.round().await, Next::After(wait) if wait >= Duration::from_secs(1))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_what_is_there_and_ends() {
    let bench = Bench::new(1000, 100);
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    bench
        .relay
        .run(Health::default(), shutdown, Duration::from_secs(10))
        .await;
    assert_eq!(
        (
            bench.sink.received.lock().expect("lock").len(),
            bench.outbox.waiting()
        ),
        (1000, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_collector_that_is_down() {
    let bench = Bench::new(1000, 100).always(Verdict::Hold(Refusal::new(
        FailureReason::Connect,
        "refused",
    )));
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(bench.relay.run(
        Health::default(),
        shutdown.clone(),
        Duration::from_secs(10),
    ));
    tokio::time::sleep(Duration::from_secs(90)).await;
    let signal = Instant::now();
    shutdown.cancel();
    task.await.expect("no panic");
    assert!(signal.elapsed() < Duration::from_secs(1));
    assert_eq!(bench.outbox.waiting(), 1000, "what is left stays");
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_has_nothing_to_send_or_a_collector_that_is_down_turns() {
    for always in [
        None,
        Some(Verdict::Hold(Refusal::new(
            FailureReason::Connect,
            "refused",
        ))),
    ] {
        let bench = Bench::new(10, 100);
        *bench.sink.always.lock().expect("lock") = always;
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let task = tokio::spawn(bench.relay.run(
            health.clone(),
            shutdown.clone(),
            Duration::from_secs(10),
        ));
        for _ in 0..48 {
            tokio::time::sleep(Duration::from_secs(1800)).await;
            assert_eq!(health.stuck(), []);
        }
        shutdown.cancel();
        task.await.expect("no panic");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(health.stuck(), [], "it ended as it should");
    }
}

/// A request without an end, which no time-out cuts off.
struct Endless;

impl Export for Endless {
    async fn export(&self, _: Bytes) -> Verdict {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_request_never_ends_is_stuck() {
    let bench = Bench::new(10, 100);
    let flags = Flags {
        endpoint: None,
        protocol: None,
        batch_size: 100,
        user_names: true,
        redact: Vec::new(),
    };
    let settings = Settings::stdout(&flags, &|_| None).expect("settings");
    let relay = Relay::new(
        bench.outbox.clone(),
        "instance",
        Endless,
        &settings,
        bench.metrics.clone(),
        bench.loops.clone(),
    );
    let health = Health::default();
    let task = tokio::spawn(relay.run(
        health.clone(),
        CancellationToken::new(),
        Duration::from_secs(10),
    ));
    tokio::time::sleep(LONGEST_RELAY_ROUND).await;
    assert_eq!(health.stuck(), []);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        health
            .stuck()
            .iter()
            .map(|stuck| stuck.which)
            .collect::<Vec<_>>(),
        [Loop::Otlp]
    );
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn new_records_wake_the_relay() {
    let bench = Bench::new(0, 100);
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(bench.relay.run(
        Health::default(),
        shutdown.clone(),
        Duration::from_secs(10),
    ));
    tokio::time::sleep(Duration::from_secs(5)).await;
    bench.outbox.add(0..3);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.sink.received.lock().expect("lock").len(), 3);
    shutdown.cancel();
    task.await.expect("no panic");
}
