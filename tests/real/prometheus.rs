//! Real Prometheus servers scrape the built exporter: what they see increase is what the simulator knows to be true. That each family arrives
//! with its value, `formats.rs` tests; that the numbers of tickets are true, `tests/it/tickets`.

use std::collections::BTreeMap;
use std::time::Duration;

use orgdata_simulator::Scope;

use crate::support::binary::{event_counts, exporter};
use crate::support::files::{array, text};
use crate::support::parts::{Prometheus, number};
use crate::support::service::organization;
use crate::support::tap::Tap;

const LABELS: [&str; 2] = ["activity_type", "actor"];

/// Returns how far each series of an instance rises, if it does. Each begins at 0 or later, as `begins_at_0` says, and none falls.
async fn increases(
    server: &Prometheus,
    instance: &str,
    begins_at_0: bool,
) -> BTreeMap<Vec<String>, f64> {
    let query = format!("orgdata_audit_events_total{{instance=\"{instance}\"}}[10m]");
    let mut increases = BTreeMap::new();
    for one in array(&server.query(&query).await) {
        let samples = array(&one["values"]).iter();
        let samples: Vec<f64> = samples.map(|sample| number(&sample[1])).collect();
        assert!(samples.is_sorted(), "it falls: {one}");
        assert!(!begins_at_0 || samples[0] == 0.0, "{one}");
        let labels = LABELS.map(|label| text(&one["metric"][label]));
        increases.insert(labels.into(), samples[samples.len() - 1] - samples[0]);
    }
    increases.retain(|_, increase| *increase != 0.0);
    increases
}

/// What happens while servers scrape is what they see increase: new series, late rows, a crash, a move to another address.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn increase_sees_every_event() {
    let simulator = organization(20_000, 0).await;
    // All of the past is older than the exporter.
    simulator.advance(Duration::from_secs(60));
    let setup = exporter(&simulator.base_url())
        .on_disk()
        .flag("--metrics.zero-hold", "4s")
        .flag("--audit.reread-interval", "1s");
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    simulator.advance(Duration::from_secs(60));
    let synced = simulator.mark();
    let here = Tap::new(Some(exporter.address())).await;
    let there = Tap::new(None).await;
    let (first, second) = (here.address(), there.address());
    let servers = [
        Prometheus::start("prometheus", &[&first, &second], "1s").await,
        Prometheus::start("prometheus3", &[&first, &second], "3s").await,
    ];
    let shown = async |events: f64, instance: &str| {
        let sum = format!("sum(orgdata_audit_events_total{{instance=\"{instance}\"}})");
        for server in &servers {
            server.shows(&sum, events).await;
        }
    };

    for server in &servers {
        let up = format!("up{{instance=\"{first}\"}}");
        server.shows(&up, 1.0).await;
    }
    // New series appear with many events at once, and others increase a second time.
    simulator.add_events(300);
    shown(300.0, &first).await;
    simulator.add_events(50);
    shown(350.0, &first).await;
    simulator.add_late(7, Duration::from_secs(1));
    shown(357.0, &first).await;

    // After a crash the next process finds new events before it is scraped.
    exporter.kill();
    here.lead(None);
    simulator.add_events(400);
    exporter = setup.listening().await;
    exporter.synced().await;
    here.lead(Some(exporter.address()));
    shown(757.0, &first).await;

    // A pod moves: another instance, and events happen meanwhile.
    let moved = simulator.mark();
    assert_eq!(exporter.stop().await, Some(0));
    here.lead(None);
    simulator.add_events(250);
    exporter = setup.listening().await;
    exporter.synced().await;
    there.lead(Some(exporter.address()));
    shown(1007.0, &second).await;

    let truth = event_counts(&simulator.truth_of(Scope::arrived_since(synced)));
    let after = event_counts(&simulator.truth_of(Scope::arrived_since(moved)));
    for server in &servers {
        let mut seen = increases(server, &first, true).await;
        let after_move = increases(server, &second, false).await;
        assert_eq!(after_move, after);
        for (labels, increase) in after_move {
            *seen.entry(labels).or_default() += increase;
        }
        assert_eq!(seen, truth);
        let late = "max(max_over_time(orgdata_audit_events_late_total[10m]))";
        server.shows(late, 7.0).await;
        let resets = "max(resets(orgdata_audit_events_total[10m]))";
        server.shows(resets, 0.0).await;
    }
}

/// VictoriaMetrics takes the first value of a young series as its increase, so a new state file has to begin at 0. Its `increase()` does
/// not extrapolate: it is exactly the number of events.
#[tokio::test]
#[ignore = "needs VictoriaMetrics"]
async fn victoriametrics_counts_every_event_once() {
    let simulator = organization(20_000, 0).await;
    let setup = exporter(&simulator.base_url())
        .on_disk()
        .flag("--metrics.zero-hold", "4s");
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    let synced = simulator.mark();
    let wire = Tap::new(Some(exporter.address())).await;
    let server = Prometheus::start("victoria-metrics", &[&wire.address()], "1s").await;
    let increase = "increase(orgdata_audit_events_total[10m])";
    let shown = async |events: f64| {
        for series in ["orgdata_audit_events_total", increase] {
            server.shows(&format!("sum({series})"), events).await;
        }
    };
    server.shows("up", 1.0).await;
    simulator.add_events(300);
    shown(300.0).await;
    exporter.kill();
    simulator.add_events(200);
    exporter = setup.listening().await;
    wire.lead(Some(exporter.address()));
    shown(500.0).await;
    let mut series = server.by(&LABELS, increase, None).await;
    series.retain(|_, increase| *increase != 0.0);
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    assert_eq!(series, event_counts(&truth));
}
