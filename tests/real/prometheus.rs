//! Real Prometheus servers scrape the built exporter: what they see increase is what the simulator knows to be true. That each family arrives
//! with its value, `formats.rs` tests; that the numbers of tickets are true, `tests/it/tickets`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{Running, Scope};

use crate::support::binary::{event_counts, exporter};
use crate::support::parts::Prometheus;
use crate::support::service;
use crate::support::tap::Tap;

/// Values by label values. Those that are 0 are left out: which label sets exist at 0 is another question.
type Series = BTreeMap<Vec<String>, f64>;

/// A past, tickets on several pages, and a clock that the test advances.
async fn organization(history: u64) -> Running {
    let simulator = service::organization(history, 250).await;
    // All of the past is older than the exporter.
    simulator.advance(Duration::from_secs(60));
    simulator
}

/// Adds up what has the same labels.
fn sums(series: impl Iterator<Item = (Vec<String>, f64)>) -> Series {
    let mut sums = Series::new();
    for (labels, value) in series {
        *sums.entry(labels).or_default() += value;
    }
    sums.retain(|_, value| *value != 0.0);
    sums
}

/// Returns how far each series of an instance rises; each begins at 0 or later, as `begins_at_0` says, and none falls.
async fn increases(server: &Prometheus, instance: &str, begins_at_0: bool) -> Series {
    let query = format!("orgdata_audit_events_total{{instance=\"{instance}\"}}[10m]");
    let series = server.samples(&query, &Timestamp::now().to_string()).await;
    let series = series.into_iter().map(|(labels, samples)| {
        assert!(samples.is_sorted(), "{labels:?} falls: {samples:?}");
        assert!(!begins_at_0 || samples[0] == 0.0, "{labels:?}: {samples:?}");
        (labels, samples[samples.len() - 1] - samples[0])
    });
    sums(series)
}

/// What happens while servers scrape is what they see increase: new series, late rows, a crash, a move to another address.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn increase_sees_every_event() {
    let simulator = organization(20_000).await;
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
        let before_move = increases(server, &first, true).await;
        let after_move = increases(server, &second, false).await;
        assert_eq!(after_move, after);
        assert_eq!(sums(before_move.into_iter().chain(after_move)), truth);
        let late = "max(max_over_time(orgdata_audit_events_late_total[10m]))";
        server.shows(late, 7.0).await;
        let resets = "max(resets(orgdata_audit_events_total[10m]))";
        server.shows(resets, 0.0).await;
        let rising = "increase(orgdata_audit_events_total[10m])";
        let series = format!("count(sum by (activity_type, actor) ({rising}) > 0)");
        server.shows(&series, truth.len() as f64).await;
    }

    // Without a ticket each answer is 0 instead of "no data".
    simulator.clear_tickets();
    let families = "tickets tickets_deal_amount open_tickets open_tickets_overdue deals_with_open_tickets open_tickets{priority=\"BLOCKER\"}";
    for server in &servers {
        for family in families.split(' ') {
            server.shows(&format!("sum(orgdata_{family})"), 0.0).await;
        }
        let up = server
            .by(&["loop"], "sum by (loop) (orgdata_up)", None)
            .await;
        let loops = ["audit", "tickets"].map(|name| (vec![name.to_owned()], 1.0));
        assert_eq!(up, loops.into());
    }
}

/// VictoriaMetrics takes the first value of a young series as its increase, so a new state file has to begin at 0. Its `increase()` does
/// not extrapolate: it is exactly the number of events.
#[tokio::test]
#[ignore = "needs VictoriaMetrics"]
async fn victoriametrics_counts_every_event_once() {
    let simulator = organization(20_000).await;
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
    let series = server.by(&["activity_type", "actor"], increase, None).await;
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    assert_eq!(sums(series.into_iter()), event_counts(&truth));
}
