//! Chaos on the built binary: killed again and again while the service fails and the collector is gone. At the end every number is true
//! and every record was delivered.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use http::StatusCode;
use orgdata_simulator::{
    ClockSource, Config, Endpoint, Fault, FaultKind, RetryAfter, Scope, Simulator,
};

use crate::support::binary::{assert_complete, event_counts, exporter};
use crate::support::parts::{Collector, Prometheus};
use crate::support::tap::Tap;

/// How often the exporter is killed.
const CRASHES: u32 = 30;

/// Between these crashes there is no collector.
const OUTAGES: [RangeInclusive<u32>; 2] = [6..=12, 20..=22];

/// Before these crashes the service forgets its cursors: in the middle of the history, and later.
const FORGOTTEN: [u32; 3] = [2, 11, 24];

/// Events per second, without the bursts.
const RATE: f64 = 150.0;

/// Records of one request.
const BATCH: usize = 100;

/// How far behind the newest entry late rows appear; also how long it takes until one of them can be behind the first sync.
const LATE: Duration = Duration::from_secs(1);

/// What goes wrong on the way to the service, each with its probability.
fn faults() -> Vec<Fault> {
    [
        (FaultKind::Status(StatusCode::INTERNAL_SERVER_ERROR), 0.06),
        (FaultKind::TooManyRequests(RetryAfter::Seconds(0)), 0.02),
        (FaultKind::Reset, 0.03),
        (FaultKind::ResetBody, 0.06),
        (FaultKind::TruncatedJson, 0.03),
        (FaultKind::Html(StatusCode::BAD_GATEWAY), 0.02),
        (FaultKind::Status(StatusCode::UNAUTHORIZED), 0.01),
        (FaultKind::Delay(Duration::from_millis(80)), 0.1),
    ]
    .into_iter()
    .map(|(kind, chance)| Fault::new(kind).on(Endpoint::Audit).chance(chance))
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTelemetry Collector and Prometheus"]
async fn crashes_faults_and_outages_change_no_number_and_lose_no_record() {
    let seed = std::env::var("ORGDATA_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("ORGDATA_TEST_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);

    let config = Config {
        seed,
        history: 2_000,
        tickets: 50,
        clock: ClockSource::Real,
        compression: true,
        ..Config::quiet()
    };
    let simulator = Simulator::spawn(config).await.unwrap();
    let mut collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let setup = exporter(&simulator.base_url())
        .state(&directory.path().join("state.db"))
        .flag("--audit.start", "oldest")
        .flag("--audit.reread-interval", "2s")
        .flag("--api.page-size", "100")
        .flag("--api.timeout", "2s")
        .otlp("grpc", &collector.endpoint("grpc"))
        .flag("--otlp.batch-size", &BATCH.to_string());
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    let (synced, begun) = (simulator.mark(), Instant::now());
    let wire = Tap::new(Some(exporter.address())).await;
    let prometheus = Prometheus::start("prometheus", &[&wire.address()], "1s").await;
    for fault in faults() {
        simulator.fault(fault);
    }
    simulator.set_rate(RATE);

    let mut kills = 0;
    for crash in 1..=CRASHES {
        if OUTAGES.iter().any(|outage| *outage.start() == crash) {
            collector.stop();
        }
        if FORGOTTEN.contains(&crash) {
            // A cursor is at fault when it is not even good for one entry.
            simulator.fault(
                Fault::new(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST))
                    .on(Endpoint::Audit)
                    .times(2),
            );
        }
        if dice.u8(..4) > 0 {
            simulator.add_events(dice.u64(..900));
        }
        if begun.elapsed() > 3 * LATE {
            simulator.add_late(dice.u64(..3), LATE);
        }
        // A moment, not a condition.
        tokio::time::sleep(Duration::from_millis(dice.u64(..1_500))).await;
        exporter.kill();
        kills += 1;
        if dice.u8(..3) == 0 {
            // Also before it has begun to work.
            let mut early = setup.start();
            tokio::time::sleep(Duration::from_millis(dice.u64(..100))).await;
            early.kill();
            kills += 1;
        }
        if OUTAGES.iter().any(|outage| *outage.end() == crash) {
            collector.start_again().await;
        }
        exporter = setup.listening().await;
        wire.lead(Some(exporter.address()));
    }
    simulator.set_rate(0.0);
    let requests = simulator.requests();
    simulator.clear_faults();

    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let scrape = exporter.settled(truth.total).await;
    for never in [
        "orgdata_audit_gaps_total",
        "orgdata_audit_entries_malformed_total",
        "orgdata_state_recreated_total",
        "orgdata_otlp_records_rejected_total",
        "orgdata_otlp_records_dead_lettered_total",
    ] {
        assert_eq!(scrape.value(never), Some(0.0), "{never}");
    }

    // Every counter, as a server sees it that has watched all along.
    let expected = event_counts(&truth);
    prometheus
        .shows("sum(orgdata_audit_events_total)", truth.total as f64)
        .await;
    let labels = ["activity_type", "actor"];
    let mut shown = prometheus.by(&labels, "orgdata_audit_events_total").await;
    shown.retain(|_, count| *count > 0.0);
    assert_eq!(shown, expected);
    prometheus
        .shows("max(resets(orgdata_audit_events_total[10m]))", 0.0)
        .await;

    let came = collector.ids();
    let again: usize = assert_complete(&simulator, &came).values().sum();
    // A record comes again if the acknowledgement of its request was lost: with a killed exporter or a killed collector, a request each.
    let ends = kills + OUTAGES.len();
    println!(
        "{kills} kills, {} requests for audit logs: {} events, {} records, {again} of them again",
        requests.audit,
        truth.total,
        came.len()
    );
    assert!(again <= ends * BATCH, "{again} records came again");
}
