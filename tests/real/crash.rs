//! Chaos on the built binary: killed again and again while the service fails and the collector is gone. At the end every number is true
//! and every record was delivered.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use orgdata_simulator::{ClockSource, Config, Endpoint, Fault, Scope, Simulator};

use crate::sending;
use crate::support::binary::{assert_complete, event_counts};
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

/// What goes wrong on the way to the service, each once in so many requests.
const FAULTS: [(&str, u64); 8] = [
    ("status=500", 17),
    ("retry-after=0", 53),
    ("reset", 31),
    ("reset-body", 19),
    ("truncated-json", 37),
    ("html=502", 47),
    ("status=401", 101),
    ("delay=80ms", 11),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTelemetry Collector and Prometheus"]
async fn crashes_faults_and_outages_change_no_number_and_lose_no_record() {
    let seed = std::env::var("ORGDATA_TEST_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("ORGDATA_TEST_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);

    let config = Config {
        seed,
        history: 2_000,
        tickets: 50,
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let simulator = Simulator::spawn(config).await.unwrap();
    let mut collector = Collector::start().await;
    let setup = sending(&simulator, "grpc", &collector.endpoint("grpc"))
        .on_disk()
        .flag("--audit.reread-interval", "2s")
        .flag("--api.page-size", "100")
        .flag("--api.timeout", "2s")
        .flag("--otlp.batch-size", &BATCH.to_string());
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    let (synced, begun) = (simulator.mark(), Instant::now());
    let wire = Tap::new(Some(exporter.address())).await;
    let prometheus = Prometheus::start("prometheus", &[&wire.address()], "1s").await;
    for (kind, every) in FAULTS {
        let fault: Fault = kind.parse().unwrap();
        simulator.fault(fault.every(every).on(Endpoint::Audit));
    }
    simulator.set_rate(RATE);

    let mut kills = 0;
    for crash in 1..=CRASHES {
        if OUTAGES.iter().any(|outage| *outage.start() == crash) {
            collector.stop();
        }
        if FORGOTTEN.contains(&crash) {
            // A cursor is at fault when it is not even good for one entry.
            let fault: Fault = "expired-cursor=400".parse().unwrap();
            simulator.fault(fault.times(2));
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
    simulator.clear_faults();

    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let scrape = exporter.settled(truth.total).await;
    let zeros = "audit_gaps_total audit_entries_malformed_total otlp_records_rejected_total \
                 dead_letters_stored";
    for never in zeros.split_whitespace() {
        let value = scrape.value(&format!("orgdata_{never}"));
        assert_eq!(value, Some(0.0), "{never}");
    }

    // Every counter, as a server sees it that has watched all along.
    let total = truth.total as f64;
    prometheus
        .shows("sum(orgdata_audit_events_total)", total)
        .await;
    let labels = ["activity_type", "actor"];
    let mut shown = prometheus
        .by(&labels, "orgdata_audit_events_total", None)
        .await;
    shown.retain(|_, count| *count > 0.0);
    assert_eq!(shown, event_counts(&truth));
    let resets = "max(resets(orgdata_audit_events_total[10m]))";
    prometheus.shows(resets, 0.0).await;

    let came = collector.ids();
    let again: usize = assert_complete(simulator.entries().map(|entry| entry.id), &came)
        .values()
        .sum();
    // A record comes again if the acknowledgement of its request was lost: with a killed exporter or a killed collector, a request each.
    let ends = kills + OUTAGES.len();
    assert!(again <= ends * BATCH, "{again} records came again");
}
