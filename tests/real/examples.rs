//! The configuration examples of `deploy/` and the files of the compose set, read by the programs they are for. Only ports are changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orgdata_simulator::Fields;
use serde_json::{Value, json};

use crate::organization;
use crate::support::binary::exporter;
use crate::support::files::{array, file, path, yaml};
use crate::support::http_peer::{Peer, answer};
use crate::support::parts::{Collector, Prometheus, promtool, tool, until};

const SENT: &str = "orgdata_otlp_records_sent_total";

/// Returns the queries of the documentation.
fn queries() -> Vec<String> {
    let page = file("docs/metrics.md");
    let rows = page.lines().filter(|row| !row.starts_with("| `"));
    let rows = rows.filter_map(|row| row.strip_suffix("` |"));
    let queries = rows.filter_map(|row| Some(row.split_once(" | `")?.1.to_owned()));
    queries.collect()
}

/// Starts a collector with an example, on ports of its own and with a health check, after a change.
async fn collector(name: &str, change: impl Fn(&mut Value)) -> Collector {
    let with_ports = |config: &mut Value| {
        let usual = config.take();
        *config = yaml(name);
        for protocol in ["grpc", "http"] {
            let at = format!("/receivers/otlp/protocols/{protocol}/endpoint");
            *config.pointer_mut(&at).unwrap() = usual.pointer(&at).unwrap().clone();
        }
        config["extensions"] = usual["extensions"].clone();
        for key in ["extensions", "telemetry"] {
            config["service"][key] = usual["service"][key].clone();
        }
        change(config);
    };
    Collector::start_with(with_ports).await
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn the_prometheus_example_scrapes_and_has_the_alerts() {
    let simulator = organization(5, 0).await;
    let exporter = exporter(&simulator.base_url()).listening().await;
    exporter.synced().await;
    simulator.add_events(10);
    let by_none = Fields::new().with("actorUserId", Value::Null);
    let by_none = by_none.with("actorUser", Value::Null);
    simulator.add_entry(&by_none).unwrap();
    let mut config = yaml("deploy/prometheus/prometheus.yml");
    let targets = &mut config["scrape_configs"][0]["static_configs"][0]["targets"];
    assert_eq!(*targets, json!(["localhost:10917"]));
    *targets = json!([exporter.address().to_string()]);
    config["global"]["scrape_interval"] = json!("1s");
    // The path from the directory of the example.
    let rules = json!(["../../dashboards/alerts.yaml"]);
    assert_eq!(config["rule_files"], rules);
    config["rule_files"] = json!([path("dashboards/alerts.yaml")]);
    let alerts = yaml("dashboards/alerts.yaml")["groups"][0]["rules"].clone();
    for program in ["prometheus", "prometheus3"] {
        let prometheus = Prometheus::start_with(program, config.clone()).await;
        prometheus.shows("up{job=\"orgdata-exporter\"}", 1.0).await;
        let rules = prometheus.api("rules", &[("type", "alert")]).await;
        let rules = &rules["groups"][0]["rules"];
        assert_eq!(array(rules).len(), array(&alerts).len(), "{program}");
        let is_none = |one: &Value| one["metric"]["actor"] == "none";
        let has_none = |found: &Value| array(found).iter().any(is_none);
        let counts = "increase(orgdata_audit_events_total[24h])";
        prometheus.query_until(counts, has_none).await;
        for query in queries() {
            // An actor is a person.
            let found = prometheus.query(&query).await;
            let is_filled = !query.contains("actor") || !array(&found).is_empty();
            assert!(is_filled && !has_none(&found), "{query}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_collector_example_takes_records_over_both_protocols() {
    let simulator = organization(5, 0).await;
    let collector = collector("deploy/collector/collector.yaml", |_| {}).await;
    for protocol in ["grpc", "http/protobuf"] {
        let launch = exporter(&simulator.base_url()).flag("--audit.start", "oldest");
        let exporter = launch.otlp(protocol, &collector.endpoint(protocol)).start();
        exporter.until_value(SENT, 5.0).await;
    }
    until(async || {
        let printed = collector.printed("EventName: orgdata.audit.");
        (printed == 10).then_some(()).ok_or(printed)
    })
    .await;
}

#[test]
#[ignore = "needs promtool and the OpenTelemetry Collector"]
fn the_servers_take_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = yaml("deploy/compose/prometheus.yaml");
    // The path on this machine instead of the one in the container.
    let rules = json!(["/etc/prometheus/rules/alerts.yaml"]);
    assert_eq!(config["rule_files"], rules);
    config["rule_files"] = json!([path("dashboards/alerts.yaml")]);
    let prometheus = dir.path().join("prometheus.yaml");
    std::fs::write(&prometheus, config.to_string()).unwrap();
    promtool(&["check", "config", prometheus.to_str().unwrap()]).unwrap();
    let validate = |config: &str| tool("otelcol", &["validate", "--config", config]);
    validate("deploy/helm/orgdata-exporter/files/collector.yaml").unwrap();
    validate("deploy/compose/collector.yaml").unwrap();
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_compose_set_acknowledges_a_record_when_loki_has_it() {
    let works = Arc::new(AtomicBool::new(false));
    let loki_works = works.clone();
    let loki = Peer::start(move |_, _| match loki_works.load(Ordering::SeqCst) {
        true => answer("204 No Content", &[], ""),
        false => answer("503 Service Unavailable", &[], ""),
    });
    let loki = loki.await;
    let to_loki = json!(format!("{}/otlp", loki.url()));
    let collector = collector("deploy/compose/collector.yaml", |config| {
        config["exporters"]["otlp_http/loki"]["endpoint"] = to_loki.clone();
    });
    let collector = collector.await;

    let simulator = organization(20, 0).await;
    let launch = exporter(&simulator.base_url()).flag("--audit.start", "oldest");
    let exporter = launch.otlp("grpc", &collector.endpoint("grpc")).start();
    until(async || (loki.count() >= 2).then_some(()).ok_or("no requests")).await;
    for request in loki.seen() {
        assert_eq!(request.target(), "/otlp/v1/logs");
    }
    let backlog = "orgdata_otlp_backlog_records";
    assert_eq!(exporter.value(SENT).await, Some(0.0));
    exporter.until_value(backlog, 20.0).await;
    works.store(true, Ordering::SeqCst);
    exporter.until_value(SENT, 20.0).await;
    exporter.until_value(backlog, 0.0).await;
    let dead = "orgdata_dead_letters_total";
    assert_eq!(exporter.sum(dead).await, 0.0);
}
