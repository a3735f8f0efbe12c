//! Dashboards and alerts on real servers: every query has an answer, promtool tests the rules, and alerts arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{ClockSource, Config, Fields, Scope, Served};
use serde_json::{Value, json};

use crate::support::binary::{exporter, launch};
use crate::support::files::{array, file, named, text, yaml};
use crate::support::parts::{Collector, Prometheus, number, promtool, tool};
use crate::support::scrape::actor;
use crate::support::service::{organization, spawn};

const FILES: [&str; 3] = [
    "dashboards/organization-activity.json",
    "dashboards/exporter-health.json",
    "dashboards/organization-records.json",
];

/// What Grafana puts in place of a variable; every choice is *All* unless a test chooses.
const VARIABLES: &str = "$cluster=.* $namespace=.* $job=.+ $instance=.+ $organization=.* $activity_type=.* $actor=.* \
                         $quiet_from=20 $quiet_until=6 $__rate_interval=16s $__range_s=600 $__range=10m ${__interval}=1h $__interval=15s";

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
type Query = (String, String, bool);

/// Returns the panels that ask Prometheus with their queries, also those in collapsed rows.
fn panels(dashboard: &Value, chosen: &[(&str, &str)]) -> Vec<(String, Vec<Query>)> {
    let mut panels = Vec::new();
    for panel in array(&dashboard["panels"]) {
        let inner = panel["panels"].as_array().into_iter().flatten();
        for panel in inner.chain([panel]) {
            let mut queries = Vec::new();
            for target in panel["targets"].as_array().into_iter().flatten() {
                if target["datasource"]["type"] == "prometheus" {
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
    let mut panels = panels(dashboard, chosen).into_iter();
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
        for (title, queries) in panels(&dashboard, chosen) {
            let (mut names, mut series) = (BTreeSet::new(), 0);
            for (query, legend, is_instant) in queries {
                let now = Timestamp::now().as_second();
                let result = match is_instant {
                    true => prometheus.query(&query).await,
                    false => range(prometheus, &query, now - 15, now, 5).await,
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

/// Runs a query for a time range, in seconds.
async fn range(prometheus: &Prometheus, query: &str, from: i64, until: i64, step: i64) -> Value {
    let [from, until, step] = [from, until, step].map(|at| at.to_string());
    let parameters = [
        ("query", query),
        ("start", &from),
        ("end", &until),
        ("step", &step),
    ];
    prometheus.api("query_range", &parameters).await["result"].take()
}

/// Of an organization in which something happens people read the true numbers, and of one in which nothing ever happened 0, although both are
/// in one Prometheus.
async fn shows_two_organizations(program: &str) {
    let config = Config {
        history: 500,
        tickets: 120,
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let (simulator, empty) = (spawn(config).await, organization(0, 0).await);
    let collector = Collector::start().await;
    let set_up = exporter(&simulator.base_url())
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .flag("--metrics.zero-hold", "6s");
    let busy = set_up.listening().await;
    let quiet = exporter(&empty.base_url()).listening().await;
    busy.synced().await;
    quiet.synced().await;
    let synced = simulator.mark();
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
    // Two hours: the hour may end while this runs.
    let chosen = [
        ("$instance", address.as_str()),
        ("$quiet_from", &begin),
        ("$quiet_until", &end),
        ("$__range_s", "7200"),
        ("$__range", "7200s"),
    ];
    let without = "Why a loop fails,Firing alerts,Certificates expire in";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let (mut people, mut activities) = (BTreeMap::<i64, f64>::new(), BTreeMap::new());
    for ((kind, actor), count) in truth.counts {
        if let Some(actor) = actor {
            *people.entry(actor).or_default() += count as f64;
        }
        *activities.entry(kind).or_default() += count as f64;
    }
    for (title, value) in [
        ("Events", 80.0),
        ("People", people.len() as f64),
        ("Exporter", 1.0),
        ("At unusual hours", 80.0),
        // A row that says that the rules are not loaded.
        ("Detections in the time range", 0.0),
    ] {
        let query = panel(&activity, title, 0, &chosen);
        prometheus.shows(&query, value).await;
    }
    let query = panel(&activity, "Activities", 0, &chosen);
    let rows = prometheus.by(&["activity_type"], &query, None).await;
    let rows = rows.into_iter().filter(|(_, value)| *value != 0.0);
    let shown: BTreeMap<String, f64> = rows
        .map(|(mut kind, value)| (kind.remove(0), value))
        .collect();
    assert_eq!(shown, activities);
    let mut most: Vec<f64> = people.into_values().collect();
    most.sort_by(|one, other| other.total_cmp(one));
    most.truncate(15);
    for title in ["Most active people", "Who at unusual hours"] {
        let query = panel(&activity, title, 0, &chosen);
        let rows = prometheus.query(&query).await;
        let is_named = |row: &&Value| row["metric"]["name"] != row["metric"]["actor"];
        // Not everybody has a name.
        assert!(array(&rows).iter().filter(is_named).count() > 10, "{rows}");
        let counts: Vec<f64> = array(&rows)
            .iter()
            .map(|row| number(&row["value"][1]))
            .collect();
        assert_eq!(counts, most, "{title}");
    }

    let chosen = [("$instance", other.as_str())];
    let without = "Why a loop fails,Firing alerts,Certificates expire in,Last event,Most active people,Activities,Who at unusual hours,Delivered through";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let shows = async |title: &str, value: f64| {
        let query = panel(&activity, title, 0, &chosen);
        prometheus.shows(&query, value).await;
    };
    for title in "Events,People,At unusual hours,Blockers,Overdue".split(',') {
        shows(title, 0.0).await;
    }
    shows("Oldest", -1.0).await;
    drop(quiet);
    shows("Exporter", -1.0).await;
    // Its tickets are missing now, so there is no sum of both; the busy one alone still has one.
    let query = panel(&activity, "Open tickets", 0, &[]);
    prometheus.query_until(&query, |sum| !is_filled(sum)).await;
    let query = panel(&activity, "Open tickets", 0, &[("$instance", &address)]);
    assert!(is_filled(&prometheus.query(&query).await));
    let query = panel(&health, "Exporters", 1, &chosen);
    prometheus.shows(&query, 4.0).await;
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3, and the OpenTelemetry Collector"]
async fn every_panel_shows_data() {
    for program in ["prometheus", "prometheus3"] {
        shows_two_organizations(program).await;
    }
}

/// Returns the counters of these entries in OpenMetrics, without samples for some minutes, and with a new state file at one. There are samples in
/// each minute for 15 minutes before and after each event, because `increase()` uses only those inside its window.
fn history(entries: impl Iterator<Item = Served>, outage: (i64, i64), reset: i64) -> String {
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
            .chain([&outage.0, &outage.1, &reset])
            .flat_map(|minute| minute - 15..=minute + 15);
        let mut value = 0;
        for minute in minutes
            .filter(|minute| *minute <= now)
            .collect::<BTreeSet<_>>()
        {
            if minute == reset {
                value = 0;
            }
            value += increases.get(&minute).unwrap_or(&0);
            if (outage.0..outage.1).contains(&minute) {
                continue;
            }
            let labels = format!(
                r#"activity_type="{activity_type}",actor="{actor}",job="orgdata-exporter",instance="a:1""#
            );
            let at = minute * 60;
            text += &format!("orgdata_audit_events_total{{{labels}}} {value} {at}\n");
        }
    }
    text + "# EOF\n"
}

/// Events over time and at unusual hours, over two weeks of history with an outage of three hours and a new state file, are those of the simulator.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3 with their promtools"]
async fn history_has_the_true_bars_and_unusual_hours() {
    const DAY: i64 = 86_400;
    let config = Config {
        history: 20_000,
        history_span: Duration::from_secs(348 * 3600),
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let simulator = spawn(config).await;
    let directory = tempfile::tempdir().unwrap();
    let [today, minute] = [DAY, 60].map(|unit| Timestamp::now().as_second() / unit * unit);
    let sunday = today - (today / DAY + 4) % 7 * DAY - 7 * DAY;
    // On a Tuesday and a Thursday.
    let outage = [9, 12].map(|hour| sunday + 2 * DAY + hour * 3600 + 300);
    let reset = sunday + 4 * DAY + 14 * 3600 + 1200;
    let file = directory.path().join("history.om").display().to_string();
    let text = history(
        simulator.simulator().entries(),
        (outage[0] / 60, outage[1] / 60),
        reset / 60,
    );
    std::fs::write(&file, text).unwrap();
    let entries = simulator.simulator().entries();
    let created: Vec<i64> = entries.map(|entry| entry.created_at.as_second()).collect();
    let between = |from, until| created.iter().filter(move |at| (from..until).contains(*at));
    // Days since 1970-01-01, a Thursday.
    let is_unusual = |at: &&i64| {
        let is_night = !(6 * 3600..20 * 3600).contains(&(*at % DAY));
        is_night || [2, 3].contains(&(*at / DAY % 7))
    };
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
        for (at, range) in [
            (sunday + DAY / 2 + 425, 900),
            (sunday + 5 * DAY + 20 * 3600 + 425, 900),
            (sunday + DAY / 2 + 95, DAY),
            (minute - 3600, 7 * DAY),
        ] {
            let seconds = format!("{range}s");
            let ask = async |title: &str| {
                let query = panel(&dashboard, title, 0, &[("$__range", &seconds)]);
                let parameters = [("query", &*query), ("time", &at.to_string())];
                server.api("query", &parameters).await["result"].take()
            };
            // Whole hours: those that begin in the time range, or the present one.
            let hour = |at: i64| (at + 3599) / 3600 * 3600;
            let from = hour(at - range).min(at / 3600 * 3600);
            let truth = between(from, hour(at)).filter(is_unusual).count() as f64;
            let shown = number(&ask("At unusual hours").await[0]["value"][1]);
            assert_eq!(shown, truth, "{range} s");
            let who = ask("Who at unusual hours").await;
            let who: f64 = array(&who).iter().map(|row| number(&row["value"][1])).sum();
            assert!(who > truth * 0.4 && who <= shown, "{who} of {shown}");
        }
        let bars = async |title: &str, from: i64, until: i64, step: i64| {
            let interval = format!("{}m", step / 60);
            let chosen = [("${__interval}", &*interval), ("$__interval", &*interval)];
            let query = panel(&dashboard, title, 0, &chosen);
            let result = range(&server, &query, from, until - step, step).await;
            let values = array(&result).iter().flat_map(|one| array(&one["values"]));
            values.map(|value| number(&value[1])).sum::<f64>()
        };
        // Every event is in one bar. The first events of a new state file are estimated.
        for (from, until, step, tolerance) in [
            (sunday + 2 * DAY, sunday + 3 * DAY, 300, 0.0),
            (sunday + 2 * DAY, sunday + 3 * DAY, 3600, 0.0),
            (reset - 4800, reset + 6000, 3600, 0.03),
            (sunday, sunday + 7 * DAY, 7200, 0.01),
        ] {
            let truth = between(from, until).count() as f64;
            let mut titles = vec!["Events over time"];
            titles.extend((step >= 3600).then_some("Usual and unusual hours"));
            for title in titles {
                let shown = bars(title, from, until, step).await;
                let is_true = (shown - truth).abs() <= truth * tolerance;
                assert!(is_true, "{title}: {shown} of {truth} in steps of {step} s");
            }
        }
    }
}

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_only_then() {
    for name in ["alerts", "detections"] {
        let [rules, test] = ["", ".test"].map(|kind| format!("dashboards/{name}{kind}.yaml"));
        promtool(&["check", "rules", "--lint=all", "--lint-fatal", &rules]).expect("no remark");
        promtool(&["test", "rules", &test]).expect("every alert as expected");
    }
    promtool(&["check", "config", "deploy/prometheus/prometheus.yml"]).expect("it finds the rules");
}

#[test]
#[ignore = "needs Grafana's schema"]
fn grafana_knows_every_key_of_the_dashboards() {
    tool("grafana-schema", &FILES).expect("nothing is lost");
}

#[tokio::test]
#[ignore = "needs Prometheus 3 and the OpenTelemetry Collector"]
async fn alerts_fire_and_end_when_the_runbook_is_followed() {
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

    // The rules without the time that a state has to last.
    let rules = file("dashboards/alerts.yaml");
    let lines = rules.split_inclusive('\n');
    let rules: String = lines.filter(|line| !line.contains(" for: ")).collect();
    let success = "orgdata_last_success_timestamp_seconds > ";
    let rules = rules.replace(&format!("{success}300"), &format!("{success}5"));
    let path = directory.path().join("alerts.yaml");
    std::fs::write(&path, rules).unwrap();
    let targets = json!([{ "targets": [exporter.address().to_string()] }]);
    let prometheus = Prometheus::start_with(
        "prometheus3",
        json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "scrape_configs": [{ "job_name": "orgdata-exporter", "static_configs": targets }],
            "rule_files": [path],
        }),
    );
    let prometheus = prometheus.await;
    // Even without patience no rule fires on a healthy exporter.
    let several = "count_over_time(up[10m]) > 5";
    prometheus.query_until(several, is_filled).await;
    let firing = "ALERTS{alertname!=\"OrgdataExporterDown\"}";
    let firing = prometheus.query(firing).await;
    assert_eq!(firing, json!([]));
    let fires = async |name: &str, severity: &str| {
        let alert =
            format!("ALERTS{{alertname=\"{name}\",severity=\"{severity}\",alertstate=\"firing\"}}");
        prometheus.query_until(&alert, is_filled).await;
    };
    let ends = async |name: &str| {
        let alert = format!("ALERTS{{alertname=\"{name}\"}}");
        prometheus
            .query_until(&alert, |alerts| !is_filled(alerts))
            .await;
    };

    // An entry that cannot be counted; the runbook's command ends the alert.
    let fields = Fields::new().unchecked().with("type", Value::Null);
    simulator.add_entry(&fields.with("id", "odd")).unwrap();
    fires("OrgdataExporterDeadLetters", "warning").await;
    let drop = launch(&["dead-letters", "drop", "--reason=malformed"]).state(&state);
    assert_eq!(drop.run().await.status, Some(0));
    ends("OrgdataExporterDeadLetters").await;

    // The key is revoked and then replaced in its file.
    std::fs::write(&key, "revoked").unwrap();
    fires("OrgdataExporterKeyRefused", "critical").await;
    fires("OrgdataExporterLoopFailing", "warning").await;
    std::fs::write(&key, "demo-key").unwrap();
    ends("OrgdataExporterLoopFailing").await;

    exporter.kill();
    fires("OrgdataExporterDown", "critical").await;
}
