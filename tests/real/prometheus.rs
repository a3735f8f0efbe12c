//! Real Prometheus servers scrape the built exporter: their answers are what the simulator knows to be true.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{Config, Fields, Scope, Simulator};
use serde_json::{Value, json};

use crate::support::binary::{event_counts, exporter};
use crate::support::files::text;
use crate::support::parts::{Collector, Prometheus, number, promtool_check_metrics};
use crate::support::tap::Tap;

/// The default of `--tickets.open-states`.
const OPEN: &[&str] = &["OPEN"];

/// Values by label values. Those that are 0 are left out: which label sets exist at 0 is another question.
type Series = BTreeMap<Vec<String>, f64>;

/// The families of tickets with their labels.
const TICKETS: [(&str, &[&str]); 7] = [
    ("orgdata_tickets", &["state", "ticket_type"]),
    ("orgdata_tickets_deal_amount", &["state", "ticket_type"]),
    ("orgdata_open_tickets", &["ticket_type", "priority"]),
    (
        "orgdata_open_tickets_deal_amount",
        &["ticket_type", "priority"],
    ),
    ("orgdata_open_tickets_overdue", &["ticket_type"]),
    (
        "orgdata_open_tickets_older_than",
        &["ticket_type", "min_age"],
    ),
    ("orgdata_deals_with_open_tickets", &["priority"]),
];

const OLDEST: &str = "orgdata_open_tickets_oldest_created_timestamp_seconds";

/// A past, tickets on several pages, and a clock that the test advances.
async fn organization(history: u64) -> orgdata_simulator::Running {
    let quiet = Config::quiet();
    let config = Config {
        history,
        tickets: 250,
        compression: true,
        ..quiet
    };
    let simulator = Simulator::spawn(config).await.unwrap();
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

/// Returns what the ticket metrics have to show, by family; amounts are in cents.
fn tickets(simulator: &Simulator) -> BTreeMap<&'static str, Series> {
    let truth = simulator.ticket_truth(OPEN);
    let mut rows: Vec<(&str, Vec<&str>, u64)> = Vec::new();
    for (group, sums) in &truth.groups {
        let (state, kind) = (group.state.as_str(), group.ticket_type.as_str());
        let priority = group.priority.as_str();
        rows.push(("orgdata_tickets", vec![state, kind], sums.tickets));
        rows.push((
            "orgdata_tickets_deal_amount",
            vec![state, kind],
            sums.cents as u64,
        ));
        if OPEN.contains(&state) {
            rows.push(("orgdata_open_tickets", vec![kind, priority], sums.tickets));
            let cents = sums.cents as u64;
            rows.push((
                "orgdata_open_tickets_deal_amount",
                vec![kind, priority],
                cents,
            ));
            rows.push(("orgdata_open_tickets_overdue", vec![kind], sums.overdue));
        }
    }
    for (priority, deals) in &truth.open_deals {
        rows.push(("orgdata_deals_with_open_tickets", vec![priority], *deals));
    }
    let listing = simulator.tickets();
    let listing: Vec<Value> = listing.iter().map(|row| row.parse().unwrap()).collect();
    for ticket in listing.iter().filter(|ticket| ticket["state"] == "OPEN") {
        let created: Timestamp = text(&ticket["createdAt"]).parse().unwrap();
        let hours = simulator.now().duration_since(created).as_hours();
        let kind = ticket["type"].as_str().unwrap();
        for (days, label) in [(1, "1d"), (7, "7d"), (30, "30d"), (90, "90d")] {
            let older = u64::from(hours >= days * 24);
            rows.push(("orgdata_open_tickets_older_than", vec![kind, label], older));
        }
    }
    let of = |family: &str| {
        let rows = rows.iter().filter(|(of, ..)| *of == family);
        let labels = |labels: &[&str]| labels.iter().map(ToString::to_string).collect();
        sums(rows.map(|(_, values, count)| (labels(values), *count as f64)))
    };
    TICKETS.map(|(family, _)| (family, of(family))).into()
}

async fn assert_tickets(server: &Prometheus, simulator: &Simulator) {
    let truth = simulator.ticket_truth(OPEN);
    server
        .shows("sum(orgdata_tickets)", truth.total as f64)
        .await;
    let wanted = tickets(simulator);
    for (family, labels) in TICKETS {
        let cents = if family.ends_with("_amount") {
            100.0
        } else {
            1.0
        };
        let shown = server.by(labels, family).await;
        let shown = shown.into_iter().map(|(labels, value)| {
            let value = value * cents;
            assert!((value - value.round()).abs() < 1e-3, "{family}: {value}");
            (labels, value.round())
        });
        assert_eq!(sums(shown), wanted[family], "{family}");
    }
    let mut oldest = Series::new();
    for (group, sums) in &truth.groups {
        if let (true, Some(ms)) = (group.state == "OPEN", sums.oldest_created_ms) {
            let kind = vec![group.ticket_type.clone()];
            let seconds = oldest.entry(kind).or_insert(f64::MAX);
            *seconds = seconds.min(ms as f64 / 1000.0);
        }
    }
    assert_eq!(server.by(&["ticket_type"], OLDEST).await, oldest);
    for (question, answer) in [
        ("orgdata_tickets_snapshot_consistent", 1.0),
        ("orgdata_tickets_snapshot_retries_total < bool 10", 1.0),
        ("orgdata_tickets_malformed", 0.0),
        (
            "time() - orgdata_tickets_snapshot_timestamp_seconds < bool 60",
            1.0,
        ),
        ("orgdata_tickets_snapshot_duration_seconds < bool 60", 1.0),
    ] {
        server.shows(question, answer).await;
    }
}

/// Asks a server for every number that the specification lets a client know, before and after changes.
async fn shows_the_true_numbers(program: &str) {
    let simulator = organization(3_000).await;
    let exporter = exporter(&simulator.base_url())
        .flag("--api.page-size", "100")
        .listening()
        .await;
    exporter.synced().await;
    let synced = simulator.mark();
    let wire = Tap::new(Some(exporter.address())).await;
    let server = Prometheus::start(program, &[&wire.address()], "1s").await;
    let labels = ["activity_type", "actor"];
    for round in 0..2 {
        if round == 1 {
            for id in simulator.ticket_ids().into_iter().take(20) {
                simulator.remove_ticket(id).unwrap();
            }
            let fields = Fields::new()
                .with("state", "OPEN")
                .with("dealAmountSum", 1234.56);
            simulator.add_ticket(fields).unwrap();
        }
        simulator.add_events(if round == 0 { 1_500 } else { 7 });
        let truth = simulator.truth_of(Scope::arrived_since(synced));
        server
            .shows("sum(orgdata_audit_events_total)", truth.total as f64)
            .await;
        let shown = server.by(&labels, "orgdata_audit_events_total").await;
        assert_eq!(sums(shown.into_iter()), event_counts(&truth));
        assert_tickets(&server, &simulator).await;
    }

    // Without a ticket each answer is 0 instead of "no data".
    simulator.clear_tickets();
    let families = TICKETS.map(|(family, _)| family);
    for family in families
        .into_iter()
        .chain(["orgdata_open_tickets{priority=\"BLOCKER\"}"])
    {
        server.shows(&format!("sum({family})"), 0.0).await;
    }
    server.shows("min_over_time(up[10m])", 1.0).await;
    let up = server.by(&["loop"], "orgdata_up").await;
    assert_eq!(
        up,
        [("audit", 1.0), ("tickets", 1.0)]
            .map(|(name, up)| (vec![name.to_owned()], up))
            .into()
    );
    let heads = wire.answered();
    assert!(heads.contains("content-encoding: gzip"), "{heads}");
    assert!(
        heads.contains("content-type: application/openmetrics-text"),
        "{heads}"
    );
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn prometheus_shows_the_true_numbers() {
    for program in ["prometheus", "prometheus3"] {
        shows_the_true_numbers(program).await;
    }
}

#[tokio::test]
#[ignore = "needs promtool and the OpenTelemetry Collector"]
async fn promtool_has_no_remark_on_a_scrape() {
    let simulator = organization(1).await;
    let mut collector = Collector::start().await;
    collector.stop();
    let busy = exporter(&simulator.base_url())
        .flag("--api.page-size", "20")
        .flag("--state.max-size", "8MiB")
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .listening()
        .await;
    busy.synced().await;
    // Log records that fill a small state file, of actors with names that need escaping.
    let name = "Zoë \"Zed\" \\ back\nslash {a=\"b\"} # é";
    for user in 0..12 {
        let actor = json!({ "id": user, "firstName": name, "lastName": null });
        for _ in 0..60 {
            let noise = std::iter::repeat_with(fastrand::alphanumeric).take(16_000);
            let metadata = json!({ "noise": noise.collect::<String>() });
            let fields = Fields::new()
                .with("actorUserId", user)
                .with("actorUser", actor.clone());
            simulator
                .add_entry(&fields.with("metadata", metadata))
                .unwrap();
        }
    }
    let families = [
        "orgdata_audit_open_range_age_seconds",
        "orgdata_audit_actor_info",
        "orgdata_otlp_oldest_unsent_timestamp_seconds",
        "orgdata_tickets",
    ];
    let wanted = "a full state file with an open range";
    let busy = busy.until(wanted, |scrape| {
        scrape.value("orgdata_audit_paused") == Some(1.0)
            && families.iter().all(|family| scrape.has(family))
            && scrape.sum("orgdata_otlp_request_failures_total") > 0.0
    });
    let busy = busy.await.0;
    promtool_check_metrics(&busy).expect("no remark on a busy exporter");
    assert!(
        busy.contains(r##"name="Zoë \"Zed\" \\ back\nslash {a=\"b\"} # é""##),
        "{busy}"
    );

    // In a fresh one most families are absent or 0.
    let quiet = Simulator::spawn(Config::quiet()).await.unwrap();
    let fresh = exporter(&quiet.base_url()).listening().await;
    for synced in [false, true] {
        if synced {
            fresh.synced().await;
        }
        let scrape = fresh.metrics().await;
        promtool_check_metrics(&scrape).expect("no remark on a fresh exporter");
    }
}

/// Returns the first sample and the increase of each series of an instance.
async fn first_and_increase(
    server: &Prometheus,
    instance: &str,
) -> BTreeMap<Vec<String>, (f64, f64)> {
    let query = format!("orgdata_audit_events_total{{instance=\"{instance}\"}}[10m]");
    let series = server.samples(&query, &Timestamp::now().to_string()).await;
    let series = series.into_iter().map(|(labels, samples)| {
        assert!(samples.is_sorted(), "{labels:?} falls: {samples:?}");
        (
            labels,
            (samples[0], samples[samples.len() - 1] - samples[0]),
        )
    });
    series.collect()
}

/// What happens while servers scrape is what they see increase: new series, late rows, a crash, a move to another address.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn increase_sees_every_event() {
    let simulator = organization(20_000).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = exporter(&simulator.base_url())
        .state(&directory.path().join("state.db"))
        .flag("--metrics.zero-hold", "4s")
        .flag("--audit.reread-interval", "1s");
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    simulator.advance(Duration::from_secs(60));
    let synced = simulator.mark();
    let (here, there) = (
        Tap::new(Some(exporter.address())).await,
        Tap::new(None).await,
    );
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
        let before_move = first_and_increase(server, &first).await;
        let after_move = first_and_increase(server, &second).await;
        assert!(
            before_move.values().all(|(first, _)| *first == 0.0),
            "{before_move:?}"
        );
        let increases = |series: BTreeMap<Vec<String>, (f64, f64)>| {
            series
                .into_iter()
                .map(|(labels, (_, increase))| (labels, increase))
        };
        assert_eq!(sums(increases(after_move.clone())), after);
        assert_eq!(
            sums(increases(before_move).chain(increases(after_move))),
            truth
        );
        let late = "max_over_time(orgdata_audit_events_late_total[10m])";
        assert_eq!(
            number(&server.query(&format!("max({late})")).await[0]["value"][1]),
            7.0
        );
        server
            .shows("max(resets(orgdata_audit_events_total[10m]))", 0.0)
            .await;
        let rising = "increase(orgdata_audit_events_total[10m])";
        let series = format!("count(sum by (activity_type, actor) ({rising}) > 0)");
        server.shows(&series, truth.len() as f64).await;
    }
}

/// VictoriaMetrics takes the first value of a young series as its increase, so a new state file has to begin at 0. Its `increase()` does
/// not extrapolate: it is exactly the number of events.
#[tokio::test]
#[ignore = "needs VictoriaMetrics"]
async fn victoriametrics_counts_every_event_once() {
    let simulator = organization(20_000).await;
    let directory = tempfile::tempdir().unwrap();
    let setup = exporter(&simulator.base_url())
        .state(&directory.path().join("state.db"))
        .flag("--metrics.zero-hold", "4s");
    let mut exporter = setup.listening().await;
    exporter.synced().await;
    let synced = simulator.mark();
    let wire = Tap::new(Some(exporter.address())).await;
    let server = Prometheus::start("victoria-metrics", &[&wire.address()], "1s").await;
    let increase = "increase(orgdata_audit_events_total[10m])";
    let shown = async |events: f64| {
        server
            .shows("sum(orgdata_audit_events_total)", events)
            .await;
        server.shows(&format!("sum({increase})"), events).await;
    };
    server.shows("up", 1.0).await;
    simulator.add_events(300);
    shown(300.0).await;
    exporter.kill();
    simulator.add_events(200);
    exporter = setup.listening().await;
    wire.lead(Some(exporter.address()));
    shown(500.0).await;
    let series = server.by(&["activity_type", "actor"], increase).await;
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    assert_eq!(sums(series.into_iter()), event_counts(&truth));
}
