//! Dashboards and alerts on real servers: every query has an answer, promtool tests the rules, and alerts arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use orgdata_simulator::{ClockSource, Config, Fields, Scope, Served};
use serde_json::{Value, json};

use crate::support::binary::{exporter, launch};
use crate::support::files::{array, file, named, text, yaml};
use crate::support::parts::{Alertmanager, Collector, Prometheus, number, promtool, tool, until};
use crate::support::scrape::actor;
use crate::support::service::{organization, spawn};

pub(crate) const FILES: [&str; 3] = [
    "dashboards/organization-activity.json",
    "dashboards/exporter-health.json",
    "dashboards/organization-records.json",
];

/// What Grafana puts in place of a variable; every choice is *All* unless a test chooses.
const VARIABLES: &str = "$cluster=.* $namespace=.* $job=.+ $instance=.+ $organization=.* $activity_type=.* $actor=.* \
                         $quiet_from=20 $quiet_until=6 $__rate_interval=16s $__range_s=600 $__range=10m $__interval_ms=15000 $__interval=15s";

/// Returns a query as Grafana sends it, with these choices.
fn filled_in(query: &Value, chosen: &[(&str, &str)]) -> String {
    let others = VARIABLES.split(' ').filter_map(|pair| pair.split_once('='));
    let replace = |query: String, (name, value): (&str, &str)| query.replace(name, value);
    let filled = chosen
        .iter()
        .copied()
        .chain(others)
        .fold(text(query), replace);
    assert!(!filled.replace("$1", "").contains('$'), "{filled}");
    filled
}

/// A query's text, its legend and whether it is about the present alone.
pub(crate) type Query = (String, String, bool);

/// Returns the panels of a kind of data source with their queries, also those in collapsed rows.
pub(crate) fn panels(
    dashboard: &Value,
    source: &str,
    chosen: &[(&str, &str)],
) -> Vec<(String, Vec<Query>)> {
    let mut panels = Vec::new();
    for panel in array(&dashboard["panels"]) {
        let inner = panel["panels"].as_array().into_iter().flatten();
        for panel in inner.chain([panel]) {
            let mut queries = Vec::new();
            for target in panel["targets"].as_array().into_iter().flatten() {
                if target["datasource"]["type"] == source {
                    let query = filled_in(&target["expr"], chosen);
                    let legend = text(&target["legendFormat"]);
                    queries.push((query, legend, target["instant"] == true));
                }
            }
            panels.push((text(&panel["title"]), queries));
        }
    }
    panels.retain(|(_, queries)| !queries.is_empty());
    panels
}

/// Returns a query of a panel.
fn panel(dashboard: &Value, title: &str, at: usize, chosen: &[(&str, &str)]) -> String {
    let mut panels = panels(dashboard, "prometheus", chosen).into_iter();
    let panel = panels.find(|(of, _)| of == title);
    let panel = panel.unwrap_or_else(|| panic!("no panel {title}"));
    panel.1[at].0.clone()
}

fn is_filled(result: &Value) -> bool {
    !array(result).is_empty()
}

/// Asserts that every panel but these has an answer, and that each series has a number and a name of its own.
async fn assert_panels_have_data(prometheus: &Prometheus, chosen: &[(&str, &str)], empty: &str) {
    for dashboard in FILES.map(yaml) {
        for (title, queries) in panels(&dashboard, "prometheus", chosen) {
            let (mut names, mut series) = (BTreeSet::new(), 0);
            for (query, legend, is_instant) in queries {
                let start = Timestamp::now().as_second() - 15;
                let result = match is_instant {
                    true => prometheus.query(&query).await,
                    false => range(prometheus, &query, start, "5").await,
                };
                for one in array(&result) {
                    let mut name = legend.clone();
                    for (label, value) in one["metric"].as_object().unwrap() {
                        name = name.replace(&format!("{{{{{label}}}}}"), &text(value));
                    }
                    // The series of a table have columns instead, and a sparkline ends with its present value.
                    let is_new = legend.is_empty() || names.insert((is_instant, name.clone()));
                    let is_named = legend.is_empty() || !name.trim().is_empty();
                    assert!(is_new && is_named, "{title}: {}", one["metric"]);
                    let values = array(&one["values"]).iter().chain([&one["value"]]);
                    let mut values = values.filter(|value| value.is_array());
                    assert!(values.all(|value| number(&value[1]).is_finite()), "{one}");
                    series += 1;
                }
            }
            let may_be_empty = empty.split(',').any(|panel| panel == title);
            assert_eq!(series == 0, may_be_empty, "{title}");
        }
    }
}

/// Returns what a variable offers: values of a label, or labels of a result.
async fn choices(prometheus: &Prometheus, name: &str, chosen: &[(&str, &str)]) -> Vec<Value> {
    let dashboard = yaml(FILES[2]);
    let query = &named(&dashboard["templating"]["list"], name)["query"];
    let query = filled_in(query, chosen);
    let (function, inside) = query.trim_end_matches(')').split_once('(').unwrap();
    if function == "query_result" {
        let result = prometheus.query(&query["query_result".len()..]).await;
        return array(&result)
            .iter()
            .map(|one| one["metric"].clone())
            .collect();
    }
    let (selector, label) = inside.rsplit_once(", ").unwrap();
    let path = format!("label/{label}/values");
    array(&prometheus.api(&path, &[("match[]", selector)]).await).to_vec()
}

/// Runs a query over the time since `start`.
async fn range(prometheus: &Prometheus, query: &str, start: i64, step: &str) -> Value {
    let (start, end) = (start.to_string(), Timestamp::now().as_second().to_string());
    let times = [("start", start.as_str()), ("end", &end), ("step", step)];
    let parameters = [&[("query", query)], &times[..]].concat();
    prometheus.api("query_range", &parameters).await["result"].take()
}

/// Of an organization in which something happens people read the true numbers, and of one in which nothing ever happened 0, although both are
/// in one Prometheus.
async fn shows_two_organizations(program: &str) {
    let (simulator, empty) = (organization(500, 120).await, organization(0, 0).await);
    let collector = Collector::start().await;
    let set_up = exporter(&simulator.base_url())
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .flag("--metrics.zero-hold", "6s");
    let busy = set_up.listening().await;
    let quiet = exporter(&empty.base_url()).listening().await;
    busy.synced().await;
    quiet.synced().await;
    let (synced, begun) = (simulator.mark(), Timestamp::now().as_second());
    let [address, other] = [&busy, &quiet].map(|exporter| exporter.address().to_string());
    let prometheus = Prometheus::start(program, &[&address, &other], "1s").await;
    // Prometheus cannot see an increase before its first scrape.
    prometheus.shows("sum(orgdata_up)", 5.0).await;
    simulator.add_events(80);
    prometheus
        .shows("sum(orgdata_audit_events_total)", 80.0)
        .await;
    let sent = "sum(orgdata_otlp_records_sent_total)";
    prometheus.shows(sent, 80.0).await;
    let scraped = "min(count_over_time(up[1m])) > 16";
    prometheus.query_until(scraped, is_filled).await;

    // An exporter that does not know its organization yet is among all, and in none.
    let instances = choices(&prometheus, "instance", &[]).await;
    assert_eq!(instances.len(), 2, "{instances:?}");
    let organization = choices(&prometheus, "organization", &[]).await[0]["organization_id"].take();
    let selected = text(&organization);
    let instances = choices(&prometheus, "instance", &[("$organization", &selected)]).await;
    assert_eq!(instances, [address.as_str()]);
    assert_eq!(
        choices(&prometheus, "organization_of", &[("$instance", &address)]).await,
        [organization]
    );
    let actors = choices(&prometheus, "actor", &[]).await;
    let is_named = |id: &str, name: &str| actors.contains(&json!({ "actor": id, "name": name }));
    assert!(
        is_named("none", "no user (system)") && is_named("1001", "Ada Berg"),
        "{actors:?}"
    );

    let [activity, health, _] = FILES.map(yaml);
    // Whatever the time of day, it is an unusual hour.
    let hour = Timestamp::now().as_second() / 3600 % 24;
    let [begin, end] = [hour + 22, hour + 2].map(|hour| (hour % 24).to_string());
    let chosen = [
        ("$instance", address.as_str()),
        ("$quiet_from", &begin),
        ("$quiet_until", &end),
    ];
    let without = "Why a loop fails,Firing alerts,Firing detections,Certificates expire in";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let people = truth.counts.keys().filter_map(|(_, actor)| *actor);
    let people = people.collect::<BTreeSet<i64>>().len();
    let mut tickets = simulator.tickets();
    tickets.retain(|ticket| ticket["state"] == "OPEN");
    for (dashboard, title, value) in [
        (&activity, "Events", 80.0),
        (&activity, "Active people", people as f64),
        (&activity, "Open tickets", tickets.len() as f64),
        (&activity, "Exporter", 1.0),
        (&health, "Backlog", 0.0),
    ] {
        let query = panel(dashboard, title, 0, &chosen);
        prometheus.shows(&query, value).await;
    }
    let by_activity = panel(&activity, "Activities", 0, &chosen);
    let by_activity = prometheus.query(&by_activity).await;
    let rows = array(&by_activity).iter();
    let events: f64 = rows.map(|row| number(&row["value"][1])).sum();
    assert_eq!(events, 80.0, "{by_activity}");
    let people = panel(&activity, "Most active people", 0, &chosen);
    let people = prometheus.query(&people).await;
    let is_named = |row: &&Value| row["metric"]["name"].is_string();
    let named = array(&people).iter().filter(is_named).count();
    // Not everybody has a name.
    assert!(array(&people).len() == 15 && named > 10, "{people}");
    // A bar reaches back to the last scrape of the one before it: nothing is missing from the bars or in two of them. The last bar
    // comes when its time is over. The most frequent activities and the others are all of them.
    let bars = [0, 1].map(|at| panel(&activity, "Events over time by activity", at, &chosen));
    until(async || {
        let mut sum = 0.0;
        for query in &bars {
            for series in array(&range(&prometheus, query, begun, "15").await) {
                let samples = array(&series["values"]).iter();
                sum += samples.map(|sample| number(&sample[1])).sum::<f64>();
            }
        }
        (sum == 80.0).then_some(()).ok_or(format!("{sum} events"))
    })
    .await;

    let chosen = [("$instance", other.as_str())];
    let without = "Why a loop fails,Firing alerts,Firing detections,Certificates expire in,Since the last event,Most active people,Activities,Who at unusual hours,Organizations,Delivered through";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let shows = async |title: &str, value: f64| {
        let query = panel(&activity, title, 0, &chosen);
        prometheus.shows(&query, value).await;
    };
    for title in "Events,Active people,At unusual hours,Gaps,Blockers,Overdue".split(',') {
        shows(title, 0.0).await;
    }
    shows("Oldest open ticket", -1.0).await;
    drop(quiet);
    shows("Exporter", -1.0).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3, and the OpenTelemetry Collector"]
async fn every_panel_shows_data() {
    for program in ["prometheus", "prometheus3"] {
        shows_two_organizations(program).await;
    }
}

/// Returns the counters of these entries in OpenMetrics. There are samples in each minute for 15 minutes before and after each event, because
/// `increase()` uses only those inside its window.
fn history(entries: impl Iterator<Item = Served>) -> String {
    let now = Timestamp::now().as_second() / 60;
    let mut series: BTreeMap<(String, String), BTreeMap<i64, u64>> = BTreeMap::new();
    for entry in entries {
        let minute = entry.created_at.as_second() / 60 + 1;
        let labels = (entry.activity_type, actor(entry.actor));
        *series.entry(labels).or_default().entry(minute).or_default() += 1;
    }
    let mut text = "# TYPE orgdata_audit_events counter\n".to_owned();
    for ((activity_type, actor), increases) in series {
        let minutes = increases
            .keys()
            .flat_map(|minute| minute - 15..=minute + 15);
        let mut value = 0;
        for minute in minutes
            .filter(|minute| *minute <= now)
            .collect::<BTreeSet<_>>()
        {
            value += increases.get(&minute).unwrap_or(&0);
            let labels = format!(
                r#"activity_type="{activity_type}",actor="{actor}",job="orgdata-exporter",instance="a:1""#
            );
            let at = minute * 60;
            text += &format!("orgdata_audit_events_total{{{labels}}} {value} {at}\n");
        }
    }
    text + "# EOF\n"
}

/// Events at unusual hours and the mean of the weeks before, over two weeks of history, are those of the simulator.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3 with their promtools"]
async fn history_has_the_true_unusual_hours_and_weeks() {
    const DAY: i64 = 86_400;
    let config = Config {
        history: 20_000,
        history_span: Duration::from_secs(348 * 3600),
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let simulator = spawn(config).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.om").display().to_string();
    std::fs::write(&file, history(simulator.simulator().entries())).unwrap();
    let entries = simulator.simulator().entries();
    let created: Vec<i64> = entries.map(|entry| entry.created_at.as_second()).collect();
    let between = |from, until| created.iter().filter(move |at| (from..until).contains(*at));
    // Days since 1970-01-01, a Thursday.
    let is_unusual = |at: &&i64| {
        let is_night = !(6 * 3600..20 * 3600).contains(&(*at % DAY));
        is_night || [2, 3].contains(&(*at / DAY % 7))
    };
    let [today, minute] = [DAY, 60].map(|unit| Timestamp::now().as_second() / unit * unit);
    let sunday = today - (today / DAY + 4) % 7 * DAY - 7 * DAY;
    let dashboard = yaml(FILES[0]);
    for (program, promtool) in [("prometheus", "promtool"), ("prometheus3", "promtool3")] {
        let server = Prometheus::start(program, &[], "1m").await;
        let data = server.data().display().to_string();
        let create = "tsdb create-blocks-from --max-block-duration=744h openmetrics";
        let create = create.split(' ').chain([&*file, &*data]);
        tool(promtool, &create.collect::<Vec<_>>()).expect("blocks");
        // The server finds the blocks without a restart, within minutes.
        let all = "sum(increase(orgdata_audit_events_total[16d])) > 19000";
        for _ in 0..240 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if is_filled(&server.query(all).await) {
                break;
            }
        }
        let ask = async |title: &str, query: usize, at: i64, range: i64| {
            let (seconds, range) = (range.to_string(), format!("{range}s"));
            let steps = [("$__rate_interval", "360s"), ("$__interval", "300s")];
            let ranges = [("$__range_s", &*seconds), ("$__range", &*range)];
            let chosen = [&ranges[..], &steps[..]].concat();
            let query = panel(&dashboard, title, query, &chosen);
            let parameters = [("query", &*query), ("time", &at.to_string())];
            server.api("query", &parameters).await["result"].take()
        };
        for (at, range) in [
            (sunday + DAY / 2 + 425, 900),
            (sunday + 5 * DAY + 20 * 3600 + 425, 900),
            (sunday + DAY / 2 + 95, DAY),
            (minute - 3600, 7 * DAY),
        ] {
            let truth = between(at - range, at).filter(is_unusual).count() as f64;
            let shown = number(&ask("At unusual hours", 0, at, range).await[0]["value"][1]);
            let is_true = (shown - truth).abs() <= 3.0 + truth * 0.02;
            assert!(is_true, "{shown} of {truth} in {range} s");
            let who = ask("Who at unusual hours", 0, at, range).await;
            let who: f64 = array(&who).iter().map(|row| number(&row["value"][1])).sum();
            assert!(who > truth * 0.4 && who <= shown + 3.0, "{who} of {shown}");
        }
        // There are two weeks before now, and none before the first.
        let title = "An hour, and the same hour in other weeks";
        let weeks = [1, 2].map(|week| minute - week * 7 * DAY);
        let weeks = weeks.map(|end| between(end - 3600, end).count() as f64);
        let mean = number(&ask(title, 1, minute, DAY).await[0]["value"][1]);
        let truth = (weeks[0] + weeks[1]) / 2.0;
        assert!((mean - truth).abs() < 5.0, "{mean} of {truth}");
        assert_eq!(ask(title, 1, minute - 9 * DAY, DAY).await, json!([]));
    }
}

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_only_then() {
    let rules = "dashboards/alerts.yaml";
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", rules]).expect("no remark");
    promtool(&["test", "rules", "dashboards/alerts.test.yaml"]).expect("every alert as expected");
    let detections = "dashboards/detections.yaml";
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", detections]).expect("no remark");
    promtool(&["test", "rules", "dashboards/detections.test.yaml"])
        .expect("every detection as expected");
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
    let lines = rules.split_inclusive('\n');
    let rules: String = lines.filter(|line| !line.contains(" for: ")).collect();
    let path = directory.join("alerts.yaml");
    // The last success of a loop that a key stops.
    let rules = rules.replace(
        "orgdata_last_success_timestamp_seconds > 300",
        "orgdata_last_success_timestamp_seconds > 5",
    );
    std::fs::write(&path, rules).unwrap();
    path
}

#[tokio::test]
#[ignore = "needs Prometheus 3, Alertmanager and the OpenTelemetry Collector"]
async fn alerts_arrive_and_end_when_the_runbook_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let simulator = organization(50, 20).await;
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
