//! Dashboards and alerts on real servers: every query has an answer with the numbers of the simulator, and promtool tests the rules.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{ClockSource, Config, Scope};
use serde_json::{Value, json};

use crate::support::binary::exporter;
use crate::support::files::{array, named, text, yaml};
use crate::support::parts::{Collector, Prometheus, number, promtool, run};
use crate::support::service::spawn;

const FILES: [&str; 3] = [
    "dashboards/organization-activity.json",
    "dashboards/exporter-health.json",
    "dashboards/organization-records.json",
];

/// What Grafana puts in place of a variable; every choice is *All* unless a test chooses.
const VARIABLES: &str = "$cluster=.* $namespace=.* $job=.+ $instance=.+ $organization=.* $activity_type=.* $actor=.* \
                         $reset=.* $quiet_from=20 $quiet_until=6 $__rate_interval=16s ${__range_ms}=600000 $__range_s=600 $__range=10m \
                         ${__interval}=1h $__interval=15s";

/// Returns a query as Grafana sends it, with these choices.
fn filled_in(query: &Value, chosen: &[(&str, &str)]) -> String {
    let others = VARIABLES.split(' ').filter_map(|pair| pair.split_once('='));
    let mut filled = text(query);
    for (name, value) in chosen.iter().copied().chain(others) {
        filled = filled.replace(name, value);
    }
    assert!(!filled.replace("$1", "").contains('$'), "{filled}");
    filled
}

/// Returns the queries of Prometheus with the titles of their panels, and whether a query is about the present alone.
fn queries(dashboard: &Value, chosen: &[(&str, &str)]) -> Vec<(String, String, bool)> {
    let rows = array(&dashboard["panels"]).iter();
    let mut queries = Vec::new();
    for panel in rows.flat_map(|row| array(&row["panels"]).iter().chain([row])) {
        for target in array(&panel["targets"]) {
            if target["datasource"]["type"] == "prometheus" {
                let query = filled_in(&target["expr"], chosen);
                queries.push((text(&panel["title"]), query, target["instant"] == true));
            }
        }
    }
    queries
}

/// Returns the first query of a panel.
fn panel(dashboard: &Value, title: &str, chosen: &[(&str, &str)]) -> String {
    column(dashboard, title, 0, chosen)
}

/// Returns a query of a panel, by its position.
fn column(dashboard: &Value, title: &str, position: usize, chosen: &[(&str, &str)]) -> String {
    let of_panel = queries(dashboard, chosen).into_iter();
    let mut of_panel = of_panel.filter(|(of, ..)| of == title);
    let query = of_panel.nth(position);
    query.unwrap_or_else(|| panic!("no panel {title}")).1
}

fn is_filled(result: &Value) -> bool {
    !array(result).is_empty()
}

/// Asserts that every panel but these has an answer of numbers.
async fn assert_panels_have_data(prometheus: &Prometheus, chosen: &[(&str, &str)], empty: &str) {
    let mut series: BTreeMap<String, usize> = BTreeMap::new();
    for (title, query, is_instant) in FILES.map(yaml).iter().flat_map(|it| queries(it, chosen)) {
        let now = Timestamp::now().as_second();
        let result = match is_instant {
            true => prometheus.query(&query).await,
            false => range(prometheus, &query, now - 15, now, 5).await,
        };
        for one in array(&result) {
            let values = array(&one["values"]).iter().chain([&one["value"]]);
            let mut values = values.filter(|value| value.is_array());
            assert!(values.all(|value| number(&value[1]).is_finite()), "{one}");
        }
        *series.entry(title).or_default() += array(&result).len();
    }
    series.retain(|_, count| *count == 0);
    assert!(series.keys().eq(empty.split(',')), "empty: {series:?}");
}

/// Returns what a variable offers: values of a label, or labels of a result.
async fn choices(prometheus: &Prometheus, name: &str, chosen: &[(&str, &str)]) -> Vec<Value> {
    let dashboard = yaml(FILES[2]);
    let query = &named(&dashboard["templating"]["list"], name)["query"];
    let query = filled_in(query, chosen);
    let (function, inside) = query.trim_end_matches(')').split_once('(').unwrap();
    if function == "query_result" {
        let result = prometheus.query(&query["query_result".len()..]).await;
        let labels = array(&result).iter().map(|one| one["metric"].clone());
        return labels.collect();
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
    let (simulator, empty) = (spawn(config).await, crate::organization(0, 0).await);
    let collector = Collector::start().await;
    let busy = exporter(&simulator.base_url())
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .flag("--metrics.zero-hold", "6s")
        .listening()
        .await;
    let quiet = exporter(&empty.base_url()).listening().await;
    busy.synced().await;
    quiet.synced().await;
    let synced = simulator.mark();
    let [address, other] = [&busy, &quiet].map(|exporter| exporter.address().to_string());
    let prometheus = Prometheus::start(program, &[&address, &other], "1s").await;
    // Prometheus cannot see an increase before its first scrape.
    prometheus.shows("sum(orgdata_up)", 5.0).await;
    simulator.add_events(80);
    let sent = "sum(orgdata_otlp_records_sent_total)";
    prometheus.shows(sent, 81.0).await;
    let scraped = "min(count_over_time(up[1m])) > 16";
    prometheus.query_until(scraped, is_filled).await;

    // An exporter that does not know its organization yet is among all, and in none.
    let instances = choices(&prometheus, "instance", &[]).await;
    assert_eq!(instances.len(), 2, "{instances:?}");
    let organization = choices(&prometheus, "organization", &[]).await[0]["organization_id"].take();
    let selected = text(&organization);
    let instances = choices(&prometheus, "instance", &[("$organization", &selected)]).await;
    assert_eq!(instances, [address.as_str()]);
    let of = choices(&prometheus, "organization_of", &[("$instance", &address)]).await;
    assert_eq!(of, [organization]);
    let actors = choices(&prometheus, "actor", &[]).await;
    for (id, name) in [("none", "no user (system)"), ("1001", "Ada Berg")] {
        let actor = json!({ "actor": id, "name": name });
        assert!(actors.contains(&actor), "{actors:?}");
    }

    let activity = yaml(FILES[0]);
    // Whatever the time of day, it is an unusual hour.
    let hour = Timestamp::now().as_second() / 3600 % 24;
    let [begin, end] = [hour + 22, hour + 2].map(|hour| (hour % 24).to_string());
    let chosen = [
        ("$instance", address.as_str()),
        ("$quiet_from", &begin),
        ("$quiet_until", &end),
        // The hour may end while this runs.
        ("${__range_ms}", "7200000"),
        ("$__range_s", "7200"),
        ("$__range", "7200s"),
    ];
    let without = "Certificates expire in,Firing alerts,Why a loop fails";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    let (mut people, mut activities) = (BTreeMap::<_, f64>::new(), BTreeMap::new());
    for ((kind, actor), count) in truth.counts {
        if let Some(actor) = actor {
            *people.entry(actor).or_default() += count as f64;
        }
        *activities.entry(vec![kind]).or_default() += count as f64;
    }
    for (title, value) in [
        ("Events", 80.0),
        ("People", people.len() as f64),
        ("Exporter", 1.0),
        // A row that says that the rules are not loaded.
        ("Detections in the time range", 0.0),
    ] {
        let query = panel(&activity, title, &chosen);
        prometheus.shows(&query, value).await;
    }
    let query = panel(&activity, "Activities", &chosen);
    let mut shown = prometheus.by(&["activity_type"], &query, None).await;
    shown.retain(|_, count| *count != 0.0);
    assert_eq!(shown, activities);
    let mut most: Vec<f64> = people.into_values().collect();
    most.sort_by(|one, other| other.total_cmp(one));
    most.truncate(15);
    for title in ["Most active people", "Who at unusual hours"] {
        let query = panel(&activity, title, &chosen);
        let rows = prometheus.query(&query).await;
        let is_named = |row: &&Value| row["metric"]["name"] != row["metric"]["actor"];
        // Not everybody has a name.
        assert!(array(&rows).iter().filter(is_named).count() > 10, "{rows}");
        let counts = array(&rows).iter().map(|row| number(&row["value"][1]));
        assert_eq!(counts.collect::<Vec<_>>(), most, "{title}");
    }

    let chosen = [("$instance", other.as_str())];
    let without = "Activities,Certificates expire in,Delivered through,Firing alerts,Most active people,Who at unusual hours,Why a loop fails";
    assert_panels_have_data(&prometheus, &chosen, without).await;
    let shows = async |title: &str, value: f64| {
        let query = panel(&activity, title, &chosen);
        prometheus.shows(&query, value).await;
    };
    for title in "Events,People,At unusual hours,Blockers,Overdue".split(',') {
        shows(title, 0.0).await;
    }
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

/// Returns a Prometheus that has these samples.
async fn backfilled(program: &str, promtool: &str, samples: &Path) -> Prometheus {
    let mut server = Prometheus::start(program, &[], "1m").await;
    let data = server.data().display().to_string();
    let create = "tsdb create-blocks-from --max-block-duration=744h openmetrics";
    let create = create.split(' ').chain([samples.to_str().unwrap(), &data]);
    run(promtool, &create.collect::<Vec<_>>(), "").unwrap();
    server.restart().await;
    server
}

/// Returns what three exporters showed in each of the last 180 minutes in OpenMetrics, and the last of these minutes: `a` imports 20,000 entries
/// within 40 minutes, `b` is down for five minutes and begins with a new state file, whose counter soon passes the old value, and `c`
/// has no snapshot of its tickets in the first hour, and its target vanishes after two.
fn three_exporters() -> (String, i64) {
    let mut text = String::new();
    let now = Timestamp::now().as_second() / 60 * 60;
    for minute in 0..=180 {
        let at = now - (180 - minute) * 60;
        for (instance, days) in [("a", 10), ("b", 20), ("c", 30)] {
            let (events, created) = match (instance, minute) {
                ("a", _) => ((minute >= 140).then(|| (minute - 140) * 500), 1000),
                ("b", ..90) => (Some(40), 1000),
                ("b", 95..) => (Some(60.min((minute - 95) * 4)), now - 5400),
                ("b", _) | (_, 120..) => continue,
                _ => (Some(5), 1000),
            };
            let scanned = instance != "c" || minute >= 60;
            let organization =
                format!("info{{organization_id=\"{days}\",organization_name=\"{days}\",api=\"h\"");
            let samples = [
                ("up{", Some(1)),
                ("orgdata_up{loop=\"audit\"", Some(1)),
                ("orgdata_up{loop=\"tickets\"", Some(1)),
                (&format!("orgdata_organization_{organization}"), Some(1)),
                ("orgdata_audit_paused{", Some(0)),
                ("orgdata_state_created_timestamp_seconds{", Some(created)),
                (
                    "orgdata_audit_events_total{activity_type=\"A\",actor=\"1\"",
                    events,
                ),
                ("orgdata_tickets_snapshot_consistent{", scanned.then_some(1)),
                (
                    "orgdata_open_tickets{ticket_type=\"BUG\",priority=\"P1\"",
                    scanned.then_some(7),
                ),
                ("orgdata_deals_with_open_tickets{priority=\"P1\"", Some(7)),
                (
                    "orgdata_tickets_time_to_close_seconds{window=\"30d\",percentile=\"50\",ticket_type=\"BUG\"",
                    Some(days * 86_400),
                ),
            ];
            for (series, value) in samples {
                if let Some(value) = value {
                    let comma = if series.ends_with('{') { "" } else { "," };
                    text += &format!(
                        "{series}{comma}job=\"j\",instance=\"{instance}\"}} {value} {at}\n"
                    );
                }
            }
        }
    }
    (text + "# EOF\n", now)
}

/// An import, a new state file and a target that has vanished distort no figure, and each organization has its own row.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3 with their promtools"]
async fn figures_are_those_of_each_organization_after_an_import_a_new_state_file_and_a_lost_target()
{
    let (text, now) = three_exporters();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    let (activity, health) = (yaml(FILES[0]), yaml(FILES[1]));
    let range_of = [
        ("${__range_ms}", "7200000"),
        ("$__range_s", "7200"),
        ("$__range", "7200s"),
    ];
    for (program, promtool) in [("prometheus", "promtool"), ("prometheus3", "promtool3")] {
        let server = backfilled(program, promtool, file.path()).await;
        let shown = async |dashboard: &Value, title: &str, position, labels: &[&str]| {
            let query = column(dashboard, title, position, &range_of);
            server.by(labels, &query, Some(&now.to_string())).await
        };
        for (title, position, label, expected) in [
            ("Events", 0, None, &[("", 20_060.0)][..]),
            ("People", 0, None, &[("", 2.0)]),
            ("Open tickets", 0, None, &[("", 21.0)]),
            ("Exporter", 0, None, &[("", -2.0)]),
            ("Activities", 0, Some("activity_type"), &[("A", 20_060.0)]),
            (
                "Most active people",
                0,
                Some("instance"),
                &[("a", 20_000.0), ("b", 60.0)],
            ),
            (
                "Organizations",
                1,
                Some("organization_id"),
                &[("10", 20_000.0), ("20", 60.0), ("30", 0.0)],
            ),
            (
                "Organizations",
                4,
                Some("organization_id"),
                &[("10", 7.0), ("20", 7.0), ("30", 7.0)],
            ),
            (
                "Organizations",
                9,
                Some("organization_id"),
                &[("10", 1.0), ("20", 1.0), ("30", -3.0)],
            ),
            (
                "Tickets by type and time to close",
                5,
                Some("organization_name"),
                &[("10", 10.0), ("20", 20.0)],
            ),
        ] {
            let labels: Vec<&str> = label.into_iter().collect();
            let figures = shown(&activity, title, position, &labels).await;
            let names = figures.keys().map(|key| key.concat());
            assert!(
                names.eq(expected.iter().map(|it| it.0)),
                "{title}: {figures:?}"
            );
            for (figure, (_, truth)) in figures.values().zip(expected) {
                // increase() estimates the events of the new state file.
                assert!(
                    (figure - truth).abs() <= truth.abs() / 50.0,
                    "{title}: {figures:?}"
                );
            }
        }
        // While one of them has no snapshot, there is no sum.
        let query = panel(&activity, "Open tickets", &[]);
        for (minute, tickets) in [(30, None), (100, Some(21.0))] {
            let at = (now - (180 - minute) * 60).to_string();
            let sum = server.by(&[], &query, Some(&at)).await;
            assert_eq!(sum.get(&vec![]).copied(), tickets, "{minute}");
        }
        for position in 1..=3 {
            let states = shown(&health, "Exporters", position, &["instance"]).await;
            assert_eq!(states[&vec!["c".to_owned()]], 5.0, "{states:?}");
        }
        let alerts = shown(&health, "Firing alerts", 0, &["instance", "rank"]).await;
        assert!(
            alerts.keys().eq([&["c".to_owned(), "1".to_owned()]]),
            "{alerts:?}"
        );
        // The first of the priorities that are configured is not BLOCKER.
        let query = panel(&activity, "Blockers", &[("$instance", "a")]);
        let blockers = server.by(&[], &query, Some(&now.to_string())).await;
        assert_eq!(blockers[&vec![]], -1.0);
        let chosen = [
            ("$instance", "b"),
            ("${__interval}", "30m"),
            ("$__interval", "30m"),
        ];
        let query = panel(
            &activity,
            "Events over time",
            &[&chosen[..], &range_of].concat(),
        );
        // A bar may begin at any minute before, in, or after the five minutes without a sample.
        for minute in 0..30 {
            let begin = now - 7200 - minute * 60;
            let result = range(&server, &query, begin, now, 1800).await;
            let bars = array(&result).iter().flat_map(|one| array(&one["values"]));
            let sum = bars.map(|bar| number(&bar[1])).sum::<f64>();
            assert!((58.0..=62.0).contains(&sum), "minute {minute}: {result}");
        }
    }
}

/// Returns the counters of these events in OpenMetrics, with a sample each minute, but none in an outage, and with a new state file at a minute.
fn history(created: &[i64], outage: Range<i64>, reset: i64) -> String {
    let mut text = "# TYPE orgdata_audit_events counter\n".to_owned();
    let begun = created[0] / 60 - 15;
    for actor in 0..3 {
        let events = created.iter().skip(actor).step_by(3);
        let mut minutes = events.map(|at| at / 60 + 1).peekable();
        let mut value = 0;
        for minute in begun..=Timestamp::now().as_second() / 60 {
            if minute == reset {
                value = 0;
            }
            while minutes.next_if_eq(&minute).is_some() {
                value += 1;
            }
            let at = minute * 60;
            if !outage.contains(&at) {
                let labels =
                    format!("activity_type=\"A\",actor=\"{actor}\",job=\"j\",instance=\"a:1\"");
                text += &format!("orgdata_audit_events_total{{{labels}}} {value} {at}\n");
            }
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
    let created: Vec<i64> = simulator
        .entries()
        .map(|it| it.created_at.as_second())
        .collect();
    let [today, minute] = [DAY, 60].map(|unit| Timestamp::now().as_second() / unit * unit);
    let sunday = today - (today / DAY + 4) % 7 * DAY - 7 * DAY;
    // On a Tuesday and a Thursday.
    let [down, up] = [9, 12].map(|hour| sunday + 2 * DAY + hour * 3600 + 300);
    let reset = sunday + 4 * DAY + 14 * 3600 + 1200;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, history(&created, down..up, reset / 60)).unwrap();
    let between = |from, until| created.iter().filter(move |at| (from..until).contains(*at));
    // Days since 1970-01-01, a Thursday.
    let is_unusual = |at: &&i64| {
        let is_night = !(6 * 3600..20 * 3600).contains(&(*at % DAY));
        is_night || [2, 3].contains(&(*at / DAY % 7))
    };
    let dashboard = yaml(FILES[0]);
    for (program, promtool) in [("prometheus", "promtool"), ("prometheus3", "promtool3")] {
        let server = backfilled(program, promtool, file.path()).await;
        let query = panel(&dashboard, "At unusual hours", &[("$__range", "RANGE")]);
        for (at, range) in [
            (sunday + DAY / 2 + 425, 900),
            (sunday + 5 * DAY + 20 * 3600 + 425, 900),
            (sunday + DAY / 2 + 95, DAY),
            (minute - 3600, 7 * DAY),
        ] {
            // Whole hours: those that begin in the time range, or the present one.
            let hour = |at: i64| (at + 3599) / 3600 * 3600;
            let from = hour(at - range).min(at / 3600 * 3600);
            let truth = between(from, hour(at)).filter(is_unusual).count() as f64;
            let query = query.replace("RANGE", &format!("{range}s"));
            let shown = server.by(&[], &query, Some(&at.to_string())).await;
            assert_eq!(shown[&vec![]], truth, "{range} s");
        }
        let bars = async |title: &str, from: i64, until: i64, step: i64| {
            let interval = format!("{}m", step / 60);
            let chosen = [("${__interval}", &*interval), ("$__interval", &*interval)];
            let query = panel(&dashboard, title, &chosen);
            let result = range(&server, &query, from, until - step, step).await;
            let values = array(&result).iter().flat_map(|one| array(&one["values"]));
            values.map(|value| number(&value[1])).sum::<f64>()
        };
        // Every event is in one bar. The first events of a new state file are estimated.
        for (title, from, until, step, tolerance) in [
            (
                "Events over time",
                sunday + 2 * DAY,
                sunday + 3 * DAY,
                300,
                0.0,
            ),
            ("Events over time", reset - 4800, reset + 6000, 3600, 0.03),
            (
                "Usual and unusual hours",
                sunday + 2 * DAY,
                sunday + 3 * DAY,
                3600,
                0.0,
            ),
            (
                "Usual and unusual hours",
                sunday,
                sunday + 7 * DAY,
                7200,
                0.01,
            ),
        ] {
            let truth = between(from, until).count() as f64;
            let shown = bars(title, from, until, step).await;
            let is_true = (shown - truth).abs() <= truth * tolerance;
            assert!(is_true, "{title}: {shown} of {truth} in steps of {step} s");
        }
    }
}

#[test]
#[ignore = "needs promtool"]
fn every_alert_fires_when_it_should_and_only_then() {
    for name in ["alerts", "detections"] {
        let [rules, test] = ["", ".test"].map(|kind| format!("dashboards/{name}{kind}.yaml"));
        promtool(
            &["check", "rules", "--lint=all", "--lint-fatal", &rules],
            "",
        );
        promtool(&["test", "rules", &test], "");
    }
}

#[test]
#[ignore = "needs Grafana's schema"]
fn grafana_knows_every_key_of_the_dashboards() {
    run("grafana-schema", &FILES, "").unwrap();
}
