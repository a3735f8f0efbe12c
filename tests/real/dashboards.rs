//! Dashboards and alerts on real servers: every query shows data, the rules are tested by promtool, and alerts arrive.

use crate::support::exporter;
use crate::support::parts;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use exporter::Setup;
use orgdata_exporter::simulator::{Config, Fields, Scope, Simulator};
use parts::{Alertmanager, Collector, Prometheus, number, promtool, tool};
use serde_json::{Value, json};

/// What Grafana puts in place of a variable; every choice is *All*.
const VARIABLES: [(&str, &str); 9] = [
    ("$job", ".+"),
    ("$instance", ".+"),
    ("$activity_type", ".*"),
    ("$actor", ".*"),
    ("$quiet_from", "20"),
    ("$quiet_until", "6"),
    ("$__rate_interval", "16s"),
    ("$__range", "10m"),
    ("$__interval", "15s"),
];

/// How often a message is waited for: a minute and a half.
const TRIES: usize = 900;

fn dashboards() -> [Value; 2] {
    ["organization-activity", "exporter-health"].map(|name| {
        let path = format!("{}/dashboards/{name}.json", env!("CARGO_MANIFEST_DIR"));
        serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
    })
}

/// A query as Grafana would send it.
fn filled_in(query: &str) -> String {
    let filled = VARIABLES
        .iter()
        .fold(query.to_owned(), |query, (name, value)| {
            query.replace(name, value)
        });
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// Title, query, and whether it is about the present alone, of every target of Prometheus.
fn targets(dashboard: &Value) -> Vec<(String, String, bool)> {
    let mut targets = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|target| target["datasource"]["type"] == "prometheus")
        {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            targets.push((
                text(&panel["title"]),
                filled_in(&text(&target["expr"])),
                target["instant"] == true,
            ));
        }
    }
    targets
}

/// The query of a panel.
fn panel(dashboard: &Value, title: &str) -> String {
    targets(dashboard)
        .into_iter()
        .find(|(of, ..)| of == title)
        .unwrap_or_else(|| panic!("no panel {title}"))
        .1
}

fn is_filled(result: &Value) -> bool {
    result.as_array().is_some_and(|series| !series.is_empty())
}

/// Every query of every panel has an answer, and each value is a number.
async fn every_panel_has_data(prometheus: &Prometheus) -> usize {
    prometheus
        .query_until("min(count_over_time(up[1m])) > 8", is_filled)
        .await;
    let mut queries = 0;
    for dashboard in dashboards() {
        for (title, query, instant) in targets(&dashboard) {
            let result = prometheus.query_until(&query, is_filled).await;
            for series in result.as_array().expect("a vector") {
                assert!(
                    number(&series["value"][1]).is_finite(),
                    "{title}: {query}: {result}"
                );
            }
            if !instant {
                let now = jiff::Timestamp::now();
                let (start, end) = (
                    (now.as_second() - 15).to_string(),
                    now.as_second().to_string(),
                );
                let range = [
                    ("query", query.as_str()),
                    ("start", start.as_str()),
                    ("end", end.as_str()),
                    ("step", "5"),
                ];
                let result = prometheus.api("query_range", &range).await;
                assert!(
                    is_filled(&result["result"]),
                    "{title}: {query} over time: {result}"
                );
            }
            queries += 1;
        }
    }
    queries
}

/// Every variable that asks Prometheus has values.
async fn every_variable_has_values(prometheus: &Prometheus) {
    for dashboard in dashboards() {
        for variable in dashboard["templating"]["list"]
            .as_array()
            .expect("variables")
            .iter()
            .filter(|variable| variable["type"] == "query")
        {
            let query = filled_in(variable["query"].as_str().expect("text"));
            let inside = query
                .strip_prefix("label_values(")
                .and_then(|query| query.strip_suffix(')'))
                .expect("a query of label values");
            let (selector, label) = inside.rsplit_once(", ").expect("a selector and a label");
            let values = prometheus
                .api(&format!("label/{label}/values"), &[("match[]", selector)])
                .await;
            assert!(is_filled(&values), "{query}: {values}");
        }
    }
}

fn one(value: f64) -> impl Fn(&Value) -> bool {
    move |result| {
        result
            .as_array()
            .is_some_and(|series| series.len() == 1 && number(&series[0]["value"][1]) == value)
    }
}

/// A bar reaches back to the last scrape of the one before it: nothing counts twice, and nothing falls between two bars.
async fn bars_add_up(prometheus: &Prometheus, query: &str, begun: i64, events: f64) {
    let mut bars = Value::Null;
    for _ in 0..TRIES {
        let (start, end) = (
            begun.to_string(),
            jiff::Timestamp::now().as_second().to_string(),
        );
        let range = [
            ("query", query),
            ("start", &start),
            ("end", &end),
            ("step", "15"),
        ];
        bars = prometheus.api("query_range", &range).await["result"].take();
        let values = bars
            .as_array()
            .expect("series")
            .iter()
            .flat_map(|series| series["values"].as_array().expect("values"));
        // The last bars come when their time is over.
        if values.map(|sample| number(&sample[1])).sum::<f64>() == events {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{events} events, and the bars are {bars}");
}

/// An organization in which something happens: every panel has data, and the numbers that a person counts are the true ones.
async fn shows_a_busy_organization(start: impl AsyncFn(&str) -> Prometheus) {
    let simulator = Simulator::spawn(Config {
        history: 500,
        tickets: 120,
        ..Config::quiet()
    })
    .await
    .expect("a free port");
    let collector = Collector::start().await;
    let exporter = Setup::new(&simulator)
        .flag("--otlp.endpoint", &collector.http_endpoint())
        .flag("--metrics.zero-hold", "6s")
        .start()
        .await;
    exporter.born().await;
    let (born, begun) = (simulator.mark(), jiff::Timestamp::now().as_second());
    let prometheus = start(&exporter.address().to_string()).await;
    // Prometheus takes its time until the first scrape, and what it has not seen before it rose it cannot see rise.
    prometheus
        .query_until("min(orgdata_up) == 1", is_filled)
        .await;
    simulator.add_events(80);
    prometheus
        .query_until("sum(orgdata_audit_events_total)", one(80.0))
        .await;
    prometheus
        .query_until("sum(orgdata_otlp_records_sent_total)", one(80.0))
        .await;

    let queries = every_panel_has_data(&prometheus).await;
    assert!(queries > 80, "{queries} queries");
    every_variable_has_values(&prometheus).await;

    let [activity, health] = dashboards();
    let truth = simulator.truth_of(Scope::arrived_since(born));
    let people: BTreeSet<i64> = truth
        .counts
        .keys()
        .filter_map(|(_, actor)| *actor)
        .collect();
    let open = simulator.ticket_truth(&["OPEN"]);
    let open_tickets: u64 = open
        .groups
        .iter()
        .filter(|(group, _)| group.state == "OPEN")
        .map(|(_, sums)| sums.tickets)
        .sum();
    prometheus
        .query_until(&panel(&activity, "Events"), one(80.0))
        .await;
    prometheus
        .query_until(&panel(&activity, "Active people"), one(people.len() as f64))
        .await;
    prometheus
        .query_until(&panel(&activity, "Open tickets"), one(open_tickets as f64))
        .await;
    prometheus
        .query_until(&panel(&activity, "Exporter"), one(1.0))
        .await;
    prometheus
        .query_until(&panel(&health, "Backlog"), one(0.0))
        .await;
    bars_add_up(
        &prometheus,
        &panel(&activity, "Events over time by activity"),
        begun,
        80.0,
    )
    .await;
    let by_activity = prometheus.query(&panel(&activity, "Activities")).await;
    let sum: f64 = by_activity
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| number(&row["value"][1]))
        .sum();
    assert_eq!(sum, 80.0, "{by_activity}");
    let named = prometheus
        .query(&panel(&activity, "Most active people"))
        .await;
    let rows = named.as_array().expect("rows");
    // Not everybody has a name.
    assert!(
        rows.len() == 15
            && rows
                .iter()
                .filter(|row| row["metric"]["name"].is_string())
                .count()
                > 10,
        "{named}"
    );
}

/// An organization in which nothing ever happened, and an exporter that sends nothing: every panel reads 0, or what is there.
async fn shows_an_empty_organization(start: impl AsyncFn(&str) -> Prometheus) {
    let simulator = Simulator::spawn(Config {
        history: 0,
        tickets: 0,
        ..Config::quiet()
    })
    .await
    .expect("a free port");
    let exporter = Setup::new(&simulator).start().await;
    exporter.born().await;
    let prometheus = start(&exporter.address().to_string()).await;
    prometheus
        .query_until("orgdata_tickets_snapshot_consistent", one(1.0))
        .await;
    every_panel_has_data(&prometheus).await;
    let [activity, _] = dashboards();
    for title in [
        "Events",
        "Active people",
        "Since the last event",
        "At unusual hours",
        "Holes in the trail",
        "Blockers",
        "Overdue",
        "Oldest open ticket",
    ] {
        prometheus
            .query_until(&panel(&activity, title), one(0.0))
            .await;
    }
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and the OpenTelemetry Collector"]
async fn every_panel_shows_data_on_the_oldest_supported_prometheus() {
    shows_a_busy_organization(async |target| Prometheus::start(&[target], "1s").await).await;
    shows_an_empty_organization(async |target| Prometheus::start(&[target], "1s").await).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 3 and the OpenTelemetry Collector"]
async fn every_panel_shows_data_on_the_current_prometheus() {
    shows_a_busy_organization(async |target| Prometheus::start_current(&[target], "1s").await)
        .await;
    shows_an_empty_organization(async |target| Prometheus::start_current(&[target], "1s").await)
        .await;
}

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_on_nothing_else() {
    promtool(&[
        "check",
        "rules",
        "--lint=all",
        "--lint-fatal",
        "dashboards/alerts.yaml",
    ])
    .expect("no remark");
    promtool(&["test", "rules", "dashboards/alerts.test.yaml"]).expect("every alert as expected");
    promtool(&["check", "config", "deploy/prometheus/prometheus.yml"])
        .expect("the example finds the rules");
}

#[test]
#[ignore = "needs Grafana's schema"]
fn grafana_knows_every_key_of_the_dashboards() {
    tool(
        "grafana-schema",
        &[
            "dashboards/organization-activity.json",
            "dashboards/exporter-health.json",
        ],
    )
    .expect("nothing is lost");
    let directory = tempfile::tempdir().expect("a directory");
    let unknown = directory.path().join("unknown.json");
    std::fs::write(
        &unknown,
        r#"{ "title": "a", "panels": [{ "type": "stat", "span": 4 }] }"#,
    )
    .expect("the directory is writable");
    let fault = tool("grafana-schema", &[unknown.to_str().expect("text")])
        .expect_err("a key that Grafana does not know");
    assert!(fault.contains(".panels[].span"), "{fault}");
}

/// Keeps every alert that it is told of.
async fn webhook() -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let take = async move |Json(message): Json<Value>| {
        let alerts = message["alerts"].as_array().cloned().unwrap_or_default();
        keep.lock()
            .expect("no panic while it is held")
            .extend(alerts);
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(take))).await });
    (address, told)
}

/// Waits until an alert was told with this status, and gives it.
async fn arrived(told: &Mutex<Vec<Value>>, name: &str, status: &str) -> Value {
    for _ in 0..TRIES {
        let alerts = told.lock().expect("no panic while it is held").clone();
        if let Some(alert) = alerts
            .into_iter()
            .find(|alert| alert["labels"]["alertname"] == name && alert["status"] == status)
        {
            return alert;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!(
        "{name} never arrived as {status}: {:#?}",
        told.lock().expect("no panic while it is held")
    );
}

/// The rules as they are, but without the time that a state has to last.
fn impatient_rules(directory: &Path) -> std::path::PathBuf {
    let rules = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/dashboards/alerts.yaml"
    ))
    .expect("a file");
    let at_once = |line: &str| {
        if line.trim_start().starts_with("for: ") {
            String::new()
        } else {
            format!("{line}\n")
        }
    };
    let file = directory.join("alerts.yaml");
    std::fs::write(&file, rules.lines().map(at_once).collect::<String>())
        .expect("the directory is writable");
    file
}

#[tokio::test]
#[ignore = "needs Prometheus 3, Alertmanager and the OpenTelemetry Collector"]
async fn alerts_arrive_through_an_alertmanager_and_end_when_the_runbook_is_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let simulator = Simulator::spawn(Config {
        history: 50,
        tickets: 20,
        ..Config::quiet()
    })
    .await
    .expect("a free port");
    let (key, state) = (
        directory.path().join("key"),
        directory.path().join("state.db"),
    );
    std::fs::write(&key, "demo-key").expect("the directory is writable");
    let collector = Collector::start().await;
    let setup = Setup::new(&simulator)
        .state(&state)
        .flag("--otlp.endpoint", &collector.http_endpoint());
    let mut exporter = setup
        .flag("--api.key-file", key.to_str().expect("text"))
        .start()
        .await;
    exporter
        .until("a snapshot", |scrape| {
            scrape.value("orgdata_tickets_snapshot_consistent") == Some(1.0)
        })
        .await;
    exporter.born().await;

    let (address, told) = webhook().await;
    let alertmanager = Alertmanager::start(&format!("http://{address}/")).await;
    let prometheus = Prometheus::start_alerting(
        &exporter.address().to_string(),
        &impatient_rules(directory.path()),
        &alertmanager,
    )
    .await;
    // Healthy: all rules were looked at, and not even an impatient one fires.
    prometheus
        .query_until("count_over_time(up[10m]) > 5", is_filled)
        .await;
    assert_eq!(
        prometheus
            .query("ALERTS{alertname!=\"OrgdataExporterDown\"}")
            .await,
        json!([])
    );

    // An entry that nobody can read; the runbook's command ends the alert.
    let unreadable = Fields::new()
        .unchecked()
        .with("type", Value::Null)
        .with("id", "odd");
    simulator.add_entry(&unreadable).expect("unchecked");
    let alert = arrived(&told, "OrgdataExporterDeadLetters", "firing").await;
    assert_eq!(alert["labels"]["severity"], "warning");
    assert_eq!(
        alert["annotations"]["runbook_url"],
        "dashboards/runbooks/OrgdataExporterDeadLetters.md"
    );
    let description = alert["annotations"]["description"].as_str().expect("text");
    assert!(
        description.starts_with("1 dead letters wait in the state file of 127.0.0.1:"),
        "{description}"
    );
    let dropped = Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"))
        .args([
            "dead-letters",
            "drop",
            "--reason",
            "malformed",
            "--state.path",
        ])
        .arg(&state)
        .output()
        .expect("it can be run");
    assert!(dropped.status.success(), "{dropped:?}");
    arrived(&told, "OrgdataExporterDeadLetters", "resolved").await;

    // A key that was revoked, and then another one in its file.
    std::fs::write(&key, "revoked").expect("the directory is writable");
    let alert = arrived(&told, "OrgdataExporterKeyRefused", "firing").await;
    assert_eq!(alert["labels"]["severity"], "critical");
    arrived(&told, "OrgdataExporterLoopFailing", "firing").await;
    std::fs::write(&key, "demo-key").expect("the directory is writable");
    arrived(&told, "OrgdataExporterLoopFailing", "resolved").await;

    exporter.kill();
    let alert = arrived(&told, "OrgdataExporterDown", "firing").await;
    assert_eq!(alert["labels"]["job"], "orgdata-exporter");
    let named: BTreeSet<String> = told
        .lock()
        .expect("no panic while it is held")
        .iter()
        .map(|alert| alert["labels"]["alertname"].to_string())
        .collect();
    assert!(named.len() >= 4, "{named:?}");
}
