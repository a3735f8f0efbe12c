//! Dashboards and alerts on real servers: every query has an answer, promtool tests the rules, and alerts arrive.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use orgdata_simulator::{Config, Fields, Scope, Simulator};
use serde_json::{Value, json};

use crate::support::binary::{exporter, launch};
use crate::support::files::{array, file, text, yaml};
use crate::support::parts::{Alertmanager, Collector, Prometheus, number, promtool, tool, until};

const FILES: [&str; 2] = [
    "dashboards/organization-activity.json",
    "dashboards/exporter-health.json",
];

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

/// Returns a query as Grafana sends it.
fn filled_in(query: &Value) -> String {
    let replace = |query: String, (name, value): &(&str, &str)| query.replace(name, value);
    let filled = VARIABLES.iter().fold(text(query), replace);
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// Returns title, query and whether it is about the present alone, of every Prometheus query.
fn targets(dashboard: &Value) -> Vec<(String, String, bool)> {
    let mut targets = Vec::new();
    for panel in array(&dashboard["panels"]) {
        for target in array(&panel["targets"]) {
            if target["datasource"]["type"] == "prometheus" {
                let query = filled_in(&target["expr"]);
                targets.push((text(&panel["title"]), query, target["instant"] == true));
            }
        }
    }
    targets
}

fn panel(dashboard: &Value, title: &str) -> String {
    let mut targets = targets(dashboard).into_iter();
    let panel = targets.find(|(of, ..)| of == title);
    panel.unwrap_or_else(|| panic!("no panel {title}")).1
}

fn is_filled(result: &Value) -> bool {
    !array(result).is_empty()
}

/// Asserts that every query of every panel has an answer and each value is a number.
async fn assert_every_panel_has_data(prometheus: &Prometheus) {
    let scraped = "min(count_over_time(up[1m])) > 8";
    prometheus.query_until(scraped, is_filled).await;
    for dashboard in FILES.map(yaml) {
        for (title, query, instant) in targets(&dashboard) {
            let result = prometheus.query_until(&query, is_filled).await;
            let mut numbers = array(&result)
                .iter()
                .map(|series| number(&series["value"][1]));
            assert!(numbers.all(f64::is_finite), "{title}: {query}: {result}");
            if !instant {
                let now = Timestamp::now().as_second();
                let result = range(prometheus, &query, now - 15, "5").await;
                assert!(is_filled(&result), "{title}: {query} over time");
            }
        }
    }
}

/// Asserts that every variable has values to choose from.
async fn assert_every_variable_has_values(prometheus: &Prometheus) {
    for dashboard in FILES.map(yaml) {
        for variable in array(&dashboard["templating"]["list"]) {
            if variable["type"] == "query" {
                let query = filled_in(&variable["query"]);
                let inside = query.strip_prefix("label_values(").unwrap();
                let (selector, label) = inside.trim_end_matches(')').rsplit_once(", ").unwrap();
                let path = format!("label/{label}/values");
                let values = prometheus.api(&path, &[("match[]", selector)]).await;
                assert!(is_filled(&values), "{query}");
            }
        }
    }
}

/// Runs a query over the time since `start`.
async fn range(prometheus: &Prometheus, query: &str, start: i64, step: &str) -> Value {
    let (start, end) = (start.to_string(), Timestamp::now().as_second().to_string());
    let times = [("start", start.as_str()), ("end", &end), ("step", step)];
    let parameters = [&[("query", query)], &times[..]].concat();
    prometheus.api("query_range", &parameters).await["result"].take()
}

/// In an organization in which something happens, the numbers that people read are the true ones.
async fn shows_a_busy_organization(program: &str) {
    let config = Config {
        history: 500,
        tickets: 120,
        ..Config::quiet()
    };
    let simulator = Simulator::spawn(config).await.unwrap();
    let collector = Collector::start().await;
    let exporter = exporter(&simulator.base_url())
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .flag("--metrics.zero-hold", "6s")
        .listening()
        .await;
    exporter.synced().await;
    let (synced, begun) = (simulator.mark(), Timestamp::now().as_second());
    let address = exporter.address().to_string();
    let prometheus = Prometheus::start(program, &[&address], "1s").await;
    // Prometheus cannot see an increase before its first scrape.
    let up = "min(orgdata_up) == 1";
    prometheus.query_until(up, is_filled).await;
    simulator.add_events(80);
    for sum in [
        "sum(orgdata_audit_events_total)",
        "sum(orgdata_otlp_records_sent_total)",
    ] {
        prometheus.shows(sum, 80.0).await;
    }
    assert_every_panel_has_data(&prometheus).await;
    assert_every_variable_has_values(&prometheus).await;

    let [activity, health] = FILES.map(yaml);
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let people = truth.counts.keys().filter_map(|(_, actor)| *actor);
    let people = people.collect::<BTreeSet<i64>>().len();
    let tickets = simulator.ticket_truth(&["OPEN"]).groups.into_iter();
    let open = tickets.filter(|(group, _)| group.state == "OPEN");
    let open: u64 = open.map(|(_, sums)| sums.tickets).sum();
    for (dashboard, title, value) in [
        (&activity, "Events", 80.0),
        (&activity, "Active people", people as f64),
        (&activity, "Open tickets", open as f64),
        (&activity, "Exporter", 1.0),
        (&health, "Backlog", 0.0),
    ] {
        prometheus.shows(&panel(dashboard, title), value).await;
    }
    let by_activity = prometheus.query(&panel(&activity, "Activities")).await;
    let rows = array(&by_activity).iter();
    let events: f64 = rows.map(|row| number(&row["value"][1])).sum();
    assert_eq!(events, 80.0, "{by_activity}");
    let people = panel(&activity, "Most active people");
    let people = prometheus.query(&people).await;
    let is_named = |row: &&Value| row["metric"]["name"].is_string();
    let named = array(&people).iter().filter(is_named).count();
    // Not everybody has a name.
    assert!(array(&people).len() == 15 && named > 10, "{people}");
    // A bar reaches back to the last scrape of the one before it: nothing is missing from the bars or in two of them. The last bar
    // comes when its time is over.
    let query = panel(&activity, "Events over time by activity");
    until(async || {
        let bars = range(&prometheus, &query, begun, "15").await;
        let bars = array(&bars)
            .iter()
            .flat_map(|series| array(&series["values"]));
        let sum: f64 = bars.map(|sample| number(&sample[1])).sum();
        (sum == 80.0).then_some(()).ok_or(format!("{sum} events"))
    })
    .await;
}

/// In an organization in which nothing ever happened, every panel shows 0.
async fn shows_an_empty_organization(program: &str) {
    let simulator = Simulator::spawn(Config::quiet()).await.unwrap();
    let exporter = exporter(&simulator.base_url()).listening().await;
    exporter.synced().await;
    let address = exporter.address().to_string();
    let prometheus = Prometheus::start(program, &[&address], "1s").await;
    let consistent = "orgdata_tickets_snapshot_consistent";
    prometheus.shows(consistent, 1.0).await;
    assert_every_panel_has_data(&prometheus).await;
    let titles = "Events,Active people,Since the last event,At unusual hours,Gaps,Blockers,Overdue,Oldest open ticket";
    for title in titles.split(',') {
        prometheus.shows(&panel(&yaml(FILES[0]), title), 0.0).await;
    }
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3, and the OpenTelemetry Collector"]
async fn every_panel_shows_data() {
    for program in ["prometheus", "prometheus3"] {
        shows_a_busy_organization(program).await;
        shows_an_empty_organization(program).await;
    }
}

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_only_then() {
    let rules = "dashboards/alerts.yaml";
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", rules]).expect("no remark");
    promtool(&["test", "rules", "dashboards/alerts.test.yaml"]).expect("every alert as expected");
    promtool(&["check", "config", "deploy/prometheus/prometheus.yml"]).expect("it finds the rules");
}

#[test]
#[ignore = "needs Grafana's schema"]
fn grafana_knows_every_key_of_the_dashboards() {
    tool("grafana-schema", &FILES).expect("nothing is lost");
    let directory = tempfile::tempdir().unwrap();
    let unknown = directory.path().join("unknown.json");
    let dashboard = r#"{ "title": "a", "panels": [{ "type": "stat", "span": 4 }] }"#;
    std::fs::write(&unknown, dashboard).unwrap();
    let fault = tool("grafana-schema", &[unknown.to_str().unwrap()]).expect_err("an unknown key");
    assert!(fault.contains(".panels[].span"), "{fault}");
}

/// The alerts that a webhook has received.
type Received = Arc<Mutex<Vec<Value>>>;

/// Starts a webhook and returns its URL.
async fn webhook() -> (String, Received) {
    let received = Received::default();
    let keep = received.clone();
    let take = async move |Json(message): Json<Value>| {
        let alerts = array(&message["alerts"]);
        keep.lock().unwrap().extend_from_slice(alerts);
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", post(take))).await });
    (url, received)
}

/// Waits until an alert arrives with this status and returns it.
async fn arrives(received: &Received, name: &str, status: &str) -> Value {
    let is_it = |alert: &&Value| alert["labels"]["alertname"] == name && alert["status"] == status;
    until(async || {
        let alerts = received.lock().unwrap().clone();
        let alert = alerts.iter().find(is_it).cloned();
        alert.ok_or_else(|| format!("{name} as {status} in {alerts:#?}"))
    })
    .await
}

/// Writes the rules without the time that a state has to last.
fn impatient_rules(directory: &Path) -> std::path::PathBuf {
    let rules = file("dashboards/alerts.yaml");
    let lines = rules
        .lines()
        .filter(|line| !line.trim_start().starts_with("for: "));
    let path = directory.join("alerts.yaml");
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    path
}

#[tokio::test]
#[ignore = "needs Prometheus 3, Alertmanager and the OpenTelemetry Collector"]
async fn alerts_arrive_and_end_when_the_runbook_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        history: 50,
        tickets: 20,
        ..Config::quiet()
    };
    let simulator = Simulator::spawn(config).await.unwrap();
    let [key, state] = ["key", "state.db"].map(|name| directory.path().join(name));
    std::fs::write(&key, "demo-key").unwrap();
    let collector = Collector::start().await;
    let setup = exporter(&simulator.base_url()).state(&state);
    let setup = setup.otlp("http/protobuf", &collector.endpoint("http/protobuf"));
    let setup = setup.flag("--api.key-file", key.to_str().unwrap());
    let mut exporter = setup.listening().await;
    let consistent = "orgdata_tickets_snapshot_consistent";
    exporter.until_value(consistent, 1.0).await;
    exporter.synced().await;

    let (url, received) = webhook().await;
    let alertmanager = Alertmanager::start(&url).await;
    let rules = impatient_rules(directory.path());
    let address = exporter.address().to_string();
    let prometheus = Prometheus::start_alerting(&address, &rules, &alertmanager).await;
    // Even without patience no rule fires on a healthy exporter.
    let several = "count_over_time(up[10m]) > 5";
    prometheus.query_until(several, is_filled).await;
    let firing = "ALERTS{alertname!=\"OrgdataExporterDown\"}";
    let firing = prometheus.query(firing).await;
    assert_eq!(firing, json!([]));

    // An entry that cannot be counted; the runbook's command ends the alert.
    let fields = Fields::new().unchecked().with("type", Value::Null);
    simulator.add_entry(&fields.with("id", "odd")).unwrap();
    let name = "OrgdataExporterDeadLetters";
    let alert = arrives(&received, name, "firing").await;
    assert_eq!(alert["labels"]["severity"], "warning");
    let annotations = &alert["annotations"];
    let page = format!("dashboards/runbooks/{name}.md");
    assert_eq!(annotations["runbook_url"], page);
    let description = text(&annotations["description"]);
    let is_told = description.contains('1') && description.contains(&address);
    assert!(is_told, "{description}");
    let drop = launch(&["dead-letters", "drop", "--reason=malformed"]).state(&state);
    assert_eq!(drop.run().await.status, Some(0));
    arrives(&received, name, "resolved").await;

    // The key is revoked and then replaced in its file.
    std::fs::write(&key, "revoked").unwrap();
    let alert = arrives(&received, "OrgdataExporterKeyRefused", "firing").await;
    assert_eq!(alert["labels"]["severity"], "critical");
    arrives(&received, "OrgdataExporterLoopFailing", "firing").await;
    std::fs::write(&key, "demo-key").unwrap();
    arrives(&received, "OrgdataExporterLoopFailing", "resolved").await;

    exporter.kill();
    let alert = arrives(&received, "OrgdataExporterDown", "firing").await;
    assert_eq!(alert["labels"]["job"], "orgdata-exporter");
}
