//! Real Prometheus servers scrape the built exporter: what they answer is what the simulated service knows to be true.

use crate::support::exporter;
use crate::support::parts;
use crate::support::tap;

use std::collections::BTreeMap;
use std::time::Duration;

use exporter::{Setup, event_counts};
use orgdata_exporter::simulator::{Config, Fields, Scope, Simulator};
use parts::{Collector, Prometheus, number, promtool_check_metrics};
use serde_json::{Value, json};
use tap::Tap;

/// `--tickets.open-states`, as it is by default.
const OPEN: &[&str] = &["OPEN"];

/// The count of series in an answer without labels.
fn one(value: f64) -> impl Fn(&Value) -> bool {
    move |result| {
        result
            .as_array()
            .is_some_and(|series| series.len() == 1 && number(&series[0]["value"][1]) == value)
    }
}

/// A world with a past, in which nothing happens but what the test does.
fn history(events: u64) -> Config {
    Config {
        history: events,
        tickets: 250,
        compression: true,
        ..Config::quiet()
    }
}

fn sums(groups: impl Iterator<Item = (Vec<String>, f64)>) -> BTreeMap<Vec<String>, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in groups {
        *sums.entry(labels).or_default() += value;
    }
    without_zeros(sums)
}

/// Which label sets exist at 0 is another question.
fn without_zeros(mut series: BTreeMap<Vec<String>, f64>) -> BTreeMap<Vec<String>, f64> {
    series.retain(|_, value| *value != 0.0);
    series
}

/// In whole cents: the service's sums are exact, and a double holds them to far below a cent.
fn cents(series: BTreeMap<Vec<String>, f64>) -> BTreeMap<Vec<String>, f64> {
    for amount in series.values() {
        assert!(
            (amount * 100.0 - (amount * 100.0).round()).abs() < 1e-3,
            "{amount} is no amount of whole cents"
        );
    }
    without_zeros(
        series
            .into_iter()
            .map(|(labels, amount)| (labels, (amount * 100.0).round()))
            .collect(),
    )
}

async fn assert_events(prometheus: &Prometheus, expected: &BTreeMap<Vec<String>, f64>) {
    let total: f64 = expected.values().sum();
    prometheus
        .query_until("sum(orgdata_audit_events_total)", one(total))
        .await;
    let shown = prometheus
        .by(&["activity_type", "actor"], "orgdata_audit_events_total")
        .await;
    assert_eq!(&without_zeros(shown), expected);
}

/// Every ticket metric that there is.
async fn assert_tickets(prometheus: &Prometheus, simulator: &Simulator) {
    let truth = simulator.ticket_truth(OPEN);
    prometheus
        .query_until("sum(orgdata_tickets)", one(truth.total as f64))
        .await;
    let by_state = |value: fn(&orgdata_exporter::simulator::TicketSums) -> f64| {
        sums(truth.groups.iter().map(|(group, sums)| {
            (
                vec![group.state.clone(), group.ticket_type.clone()],
                value(sums),
            )
        }))
    };
    let open = || {
        truth
            .groups
            .iter()
            .filter(|(group, _)| OPEN.contains(&group.state.as_str()))
    };
    let by_priority = |value: fn(&orgdata_exporter::simulator::TicketSums) -> f64| {
        sums(open().map(|(group, sums)| {
            (
                vec![group.ticket_type.clone(), group.priority.clone()],
                value(sums),
            )
        }))
    };

    let shown = prometheus
        .by(&["state", "ticket_type"], "orgdata_tickets")
        .await;
    assert_eq!(without_zeros(shown), by_state(|sums| sums.tickets as f64));
    let shown = prometheus
        .by(&["state", "ticket_type"], "orgdata_tickets_deal_amount")
        .await;
    assert_eq!(cents(shown), by_state(|sums| sums.cents as f64));
    let shown = prometheus
        .by(&["ticket_type", "priority"], "orgdata_open_tickets")
        .await;
    assert_eq!(
        without_zeros(shown),
        by_priority(|sums| sums.tickets as f64)
    );
    let shown = prometheus
        .by(
            &["ticket_type", "priority"],
            "orgdata_open_tickets_deal_amount",
        )
        .await;
    assert_eq!(cents(shown), by_priority(|sums| sums.cents as f64));
    let shown = prometheus
        .by(&["ticket_type"], "orgdata_open_tickets_overdue")
        .await;
    assert_eq!(
        without_zeros(shown),
        sums(open().map(|(group, sums)| (vec![group.ticket_type.clone()], sums.overdue as f64)))
    );
    let shown = prometheus
        .by(&["priority"], "orgdata_deals_with_open_tickets")
        .await;
    assert_eq!(
        without_zeros(shown),
        sums(
            truth
                .open_deals
                .iter()
                .map(|(priority, deals)| (vec![priority.clone()], *deals as f64))
        )
    );
    let shown = prometheus
        .by(
            &["ticket_type"],
            "orgdata_open_tickets_oldest_created_timestamp_seconds",
        )
        .await;
    let mut oldest: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for (group, sums) in open() {
        if let Some(created) = sums.oldest_created_ms {
            let created = created as f64 / 1000.0;
            oldest
                .entry(vec![group.ticket_type.clone()])
                .and_modify(|oldest| *oldest = oldest.min(created))
                .or_insert(created);
        }
    }
    assert_eq!(shown, oldest);
    let shown = prometheus
        .by(
            &["ticket_type", "min_age"],
            "orgdata_open_tickets_older_than",
        )
        .await;
    assert_eq!(without_zeros(shown), older_than(simulator));

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
        prometheus.query_until(question, one(answer)).await;
    }
}

/// Open tickets by type and least age, from the listing itself.
fn older_than(simulator: &Simulator) -> BTreeMap<Vec<String>, f64> {
    let mut older = BTreeMap::new();
    for ticket in simulator.tickets() {
        let ticket: Value = serde_json::from_str(&ticket).expect("JSON");
        let text = |field: &str| ticket[field].as_str().unwrap_or_default().to_owned();
        let created: jiff::Timestamp = text("createdAt").parse().expect("a time");
        let hours = simulator.now().duration_since(created).as_hours();
        for days in [1, 7, 30, 90]
            .into_iter()
            .filter(|days| OPEN.contains(&text("state").as_str()) && hours >= days * 24)
        {
            *older
                .entry(vec![text("type"), format!("{days}d")])
                .or_default() += 1.0;
        }
    }
    older
}

/// Every number that the specification lets a client know, by way of a server's own queries, before and after a change.
async fn shows_the_true_numbers(start: impl AsyncFn(&str) -> Prometheus) {
    let simulator = Simulator::spawn(history(3_000)).await.expect("a free port");
    // Tickets on several pages.
    let exporter = Setup::new(&simulator)
        .flag("--api.page-size", "100")
        .start()
        .await;
    exporter.born().await;
    let born = simulator.mark();
    // Prometheus asks through a wire that is listened to.
    let wire = Tap::new(Some(exporter.address())).await;
    let prometheus = start(&wire.address()).await;
    simulator.add_events(1_500);

    assert_events(
        &prometheus,
        &event_counts(&simulator.truth_of(Scope::arrived_since(born))),
    )
    .await;
    assert_tickets(&prometheus, &simulator).await;

    for id in simulator.ticket_ids().into_iter().take(20) {
        simulator.remove_ticket(id).expect("it is there");
    }
    simulator
        .add_ticket(
            Fields::new()
                .with("state", "OPEN")
                .with("dealAmountSum", 1234.56),
        )
        .expect("valid fields");
    simulator.add_events(7);
    assert_events(
        &prometheus,
        &event_counts(&simulator.truth_of(Scope::arrived_since(born))),
    )
    .await;
    assert_tickets(&prometheus, &simulator).await;

    // Without a ticket each answer is 0, and not no data.
    simulator.clear_tickets();
    prometheus
        .query_until("sum(orgdata_tickets)", one(0.0))
        .await;
    for family in [
        "orgdata_tickets_deal_amount",
        "orgdata_open_tickets",
        "orgdata_open_tickets_deal_amount",
        "orgdata_open_tickets_overdue",
        "orgdata_open_tickets_older_than",
        "orgdata_deals_with_open_tickets",
        "orgdata_open_tickets{priority=\"BLOCKER\"}",
        "orgdata_tickets{state=\"OPEN\"}",
    ] {
        assert_eq!(
            prometheus
                .by(&[], &format!("sum({family})"))
                .await
                .into_values()
                .collect::<Vec<_>>(),
            [0.0],
            "{family}"
        );
    }

    assert_eq!(
        prometheus
            .by(&[], "up")
            .await
            .into_values()
            .collect::<Vec<_>>(),
        [1.0]
    );
    assert_eq!(
        prometheus
            .by(&[], "min_over_time(up[10m])")
            .await
            .into_values()
            .collect::<Vec<_>>(),
        [1.0],
        "no scrape ever failed"
    );
    let up = prometheus.by(&["loop"], "orgdata_up").await;
    assert_eq!(
        up,
        [("audit", 1.0), ("tickets", 1.0)]
            .map(|(name, up)| (vec![name.to_owned()], up))
            .into()
    );
    let heads = wire.answered();
    assert!(
        heads.contains("content-encoding: gzip")
            && heads.contains("content-type: application/openmetrics-text"),
        "{heads}"
    );
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42"]
async fn the_oldest_supported_prometheus_shows_the_true_numbers() {
    shows_the_true_numbers(async |target| Prometheus::start(&[target], "1s").await).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 3"]
async fn the_current_prometheus_shows_the_true_numbers() {
    shows_the_true_numbers(async |target| Prometheus::start_current(&[target], "1s").await).await;
}

#[tokio::test]
#[ignore = "needs promtool"]
async fn promtool_has_no_remark_on_the_scrape_of_a_busy_exporter() {
    let simulator = Simulator::spawn(history(0)).await.expect("a free port");
    // Log records that fill a small state file, of actors with names that need escaping.
    let name = "Zoë \"Zed\" \\ back\nslash {a=\"b\"} # é";
    for user in 0..12 {
        let actor =
            json!({ "id": user, "firstName": name, "lastName": null, "profileImageUrl": null });
        for _ in 0..60 {
            let noise: String = std::iter::repeat_with(fastrand::alphanumeric)
                .take(16_000)
                .collect();
            let fields = Fields::new()
                .with("actorUserId", user)
                .with("actorUser", actor.clone());
            simulator
                .add_entry(&fields.with("metadata", json!({ "noise": noise })))
                .expect("valid fields");
        }
    }
    let mut collector = Collector::start().await;
    collector.stop();
    let exporter = Setup::new(&simulator)
        .flag("--audit.start", "oldest")
        .flag("--api.page-size", "20")
        .flag("--state.max-size", "8MiB")
        .flag("--otlp.endpoint", &collector.http_endpoint())
        .start()
        .await;

    let scrape = exporter
        .until("a full state file in the middle of a walk", |scrape| {
            scrape.value("orgdata_audit_paused") == Some(1.0)
                && [
                    "orgdata_audit_walk_pages",
                    "orgdata_audit_actor_info",
                    "orgdata_otlp_oldest_unsent_timestamp_seconds",
                    "orgdata_tickets",
                ]
                .iter()
                .all(|name| scrape.has(name))
                && scrape.sum("orgdata_otlp_request_failures_total") > 0.0
        })
        .await;
    promtool_check_metrics(&scrape.0).expect("no remark");
    assert!(
        scrape
            .0
            .contains(r##"name="Zoë \"Zed\" \\ back\nslash {a=\"b\"} # é""##),
        "{}",
        scrape.0
    );

    // And a fresh one, where most is absent or 0.
    let quiet = Simulator::spawn(Config::quiet())
        .await
        .expect("a free port");
    let exporter = Setup::new(&quiet).start().await;
    promtool_check_metrics(&exporter.scrape().await.0).expect("no remark");
    promtool_check_metrics(&exporter.born().await.0).expect("no remark");
}

/// The first and the last sample of each series of the last minutes, summed over instances: how far `increase()` can see it rise, and
/// how high it began.
async fn first_and_rise(
    prometheus: &Prometheus,
    instance: &str,
) -> BTreeMap<Vec<String>, (f64, f64)> {
    let mut series: BTreeMap<Vec<String>, (f64, f64)> = BTreeMap::new();
    let selector = format!("orgdata_audit_events_total{{instance=\"{instance}\"}}[10m]");
    for one in prometheus
        .query(&selector)
        .await
        .as_array()
        .expect("a matrix")
    {
        let samples: Vec<f64> = one["values"]
            .as_array()
            .expect("samples")
            .iter()
            .map(|sample| number(&sample[1]))
            .collect();
        let labels = ["activity_type", "actor"]
            .map(|label| one["metric"][label].as_str().unwrap_or_default().to_owned());
        assert!(samples.is_sorted(), "{labels:?} falls: {samples:?}");
        series.insert(
            labels.into(),
            (samples[0], samples[samples.len() - 1] - samples[0]),
        );
    }
    series
}

/// The rise of a counter without labels, over both addresses.
async fn rise_of(prometheus: &Prometheus, name: &str) -> f64 {
    let answer = prometheus.query(&format!("{name}[10m]")).await;
    let series = answer.as_array().expect("a matrix").iter().map(|one| {
        let samples: Vec<f64> = one["values"]
            .as_array()
            .expect("samples")
            .iter()
            .map(|sample| number(&sample[1]))
            .collect();
        assert!(samples.is_sorted(), "{name} falls: {samples:?}");
        samples[samples.len() - 1] - samples[0]
    });
    series.sum()
}

/// What happened while a server watched is what it has seen rise: series born live, late rows, a crash, a move to another address. Two
/// servers with intervals of their own.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn increase_sees_every_event() {
    let simulator = Simulator::spawn(history(20_000))
        .await
        .expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(&simulator)
        .state(&directory.path().join("state.db"))
        .flag("--metrics.zero-hold", "4s")
        .flag("--audit.reread-interval", "1s");
    let mut exporter = setup.start().await;
    exporter.born().await;
    simulator.advance(Duration::from_secs(60));
    let born = simulator.mark();
    let (here, there) = (
        Tap::new(Some(exporter.address())).await,
        Tap::new(None).await,
    );
    let targets = [here.address(), there.address()];
    let targets = [targets[0].as_str(), targets[1].as_str()];
    let servers = [
        Prometheus::start(&targets, "1s").await,
        Prometheus::start_current(&targets, "3s").await,
    ];
    let rises = async |events: f64, instance: &str| {
        for server in &servers {
            server
                .query_until(
                    &format!("sum(orgdata_audit_events_total{{instance=\"{instance}\"}})"),
                    one(events),
                )
                .await;
        }
    };

    // Series that nobody has seen yet are born with many events at once; others rise a second time.
    rises(0.0, targets[0]).await;
    simulator.add_events(300);
    rises(300.0, targets[0]).await;
    simulator.add_events(50);
    rises(350.0, targets[0]).await;
    simulator.add_late(7, Duration::from_secs(1));
    rises(357.0, targets[0]).await;

    // A crash; the next process finds new events before anybody asks it.
    exporter.kill();
    here.lead(None);
    simulator.add_events(400);
    exporter = setup.start().await;
    exporter.born().await;
    here.lead(Some(exporter.address()));
    rises(757.0, targets[0]).await;

    // A pod that moves: another instance, with events on the way.
    let moved = simulator.mark();
    assert!(exporter.terminate().await.success());
    here.lead(None);
    simulator.add_events(250);
    exporter = setup.start().await;
    exporter.born().await;
    there.lead(Some(exporter.address()));
    rises(1007.0, targets[1]).await;

    let truth = event_counts(&simulator.truth_of(Scope::arrived_since(born)));
    let after = event_counts(&simulator.truth_of(Scope::arrived_since(moved)));
    for server in &servers {
        let (first, second) = (
            first_and_rise(server, targets[0]).await,
            first_and_rise(server, targets[1]).await,
        );
        assert!(
            first.values().all(|(began, _)| *began == 0.0),
            "a fresh ledger is no burst: {first:?}"
        );
        let rise = |series: &BTreeMap<Vec<String>, (f64, f64)>| -> BTreeMap<Vec<String>, f64> {
            series
                .iter()
                .map(|(labels, (_, rise))| (labels.clone(), *rise))
                .collect()
        };
        let second = rise(&second);
        assert_eq!(without_zeros(second.clone()), after);
        assert_eq!(
            rise_of(server, "orgdata_audit_events_late_total").await,
            7.0
        );
        assert_eq!(sums(rise(&first).into_iter().chain(second)), truth);
        server
            .query_until("max(resets(orgdata_audit_events_total[10m]))", one(0.0))
            .await;
        server
            .query_until("count(sum by (activity_type, actor) (increase(orgdata_audit_events_total[10m])) > 0)", one(truth.len() as f64))
            .await;
    }
}

/// What was counted after the last scrape before a pod moves, or was still held back then, is seen to rise at its new address.
#[tokio::test]
#[ignore = "needs Prometheus 2.42"]
async fn a_move_loses_nothing_that_the_last_scrape_did_not_see() {
    let simulator = Simulator::spawn(history(1_000)).await.expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    let setup = Setup::new(&simulator)
        .state(&state)
        .flag("--metrics.zero-hold", "5s");
    let mut exporter = setup.start().await;
    exporter.born().await;
    let born = simulator.mark();
    let (here, there) = (
        Tap::new(Some(exporter.address())).await,
        Tap::new(None).await,
    );
    let server = Prometheus::start(&[&here.address(), &there.address()], "1s").await;
    let of = |tap: &Tap| {
        format!(
            "sum(orgdata_audit_events_total{{instance=\"{}\"}})",
            tap.address()
        )
    };
    // Nobody else scrapes from here on: the exporter cannot know who its scrapers are.
    server.query_until(&of(&here), one(0.0)).await;
    simulator.add_events(40);
    server.query_until(&of(&here), one(40.0)).await;

    for events in [60, 200] {
        simulator.add_events(events);
        let counted = 40 + if events == 60 { 60 } else { 260 };
        let file = rusqlite::Connection::open(&state).expect("opens");
        // The server has seen the new label sets at 0, or nothing of them yet.
        while file
            .query_row("SELECT sum(count) FROM events", [], |row| {
                row.get::<_, i64>(0)
            })
            .expect("a row")
            < counted
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(exporter.terminate().await.success());
    here.lead(None);
    exporter = setup.start().await;
    there.lead(Some(exporter.address()));
    server.query_until(&of(&there), one(300.0)).await;

    let (first, second) = (
        first_and_rise(&server, &here.address()).await,
        first_and_rise(&server, &there.address()).await,
    );
    let rises = first
        .iter()
        .chain(&second)
        .map(|(labels, (_, rise))| (labels.clone(), *rise));
    assert_eq!(
        sums(rises),
        event_counts(&simulator.truth_of(Scope::arrived_since(born)))
    );
    assert!(
        second.values().any(|(_, rise)| *rise > 0.0),
        "the move came too late"
    );
}

/// VictoriaMetrics takes the first value of a young series as its rise, so what a fresh ledger shows first has to be 0; and it
/// extrapolates nothing, so its `increase()` is the very number of events.
#[tokio::test]
#[ignore = "needs VictoriaMetrics"]
async fn a_fresh_ledger_is_no_burst_on_victoriametrics() {
    let simulator = Simulator::spawn(history(20_000))
        .await
        .expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let setup = Setup::new(&simulator)
        .state(&directory.path().join("state.db"))
        .flag("--metrics.zero-hold", "4s");
    let mut exporter = setup.start().await;
    exporter.born().await;
    let born = simulator.mark();
    let here = Tap::new(Some(exporter.address())).await;
    let server = Prometheus::start_victoria_metrics(&[&here.address()], "1s").await;
    let increase = "sum(increase(orgdata_audit_events_total[10m]))";
    server
        .query_until("count(orgdata_audit_events_total) > 0", |result| {
            *result != json!([])
        })
        .await;
    server.query_until(increase, one(0.0)).await;

    simulator.add_events(300);
    server
        .query_until("sum(orgdata_audit_events_total)", one(300.0))
        .await;
    server.query_until(increase, one(300.0)).await;

    exporter.kill();
    simulator.add_events(200);
    exporter = setup.start().await;
    here.lead(Some(exporter.address()));
    server
        .query_until("sum(orgdata_audit_events_total)", one(500.0))
        .await;
    server.query_until(increase, one(500.0)).await;
    let shown = server
        .by(
            &["activity_type", "actor"],
            "increase(orgdata_audit_events_total[10m])",
        )
        .await;
    assert_eq!(
        without_zeros(shown),
        event_counts(&simulator.truth_of(Scope::arrived_since(born)))
    );
}
