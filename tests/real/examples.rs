//! The configuration examples of `deploy/` and the files of the compose set, read by the programs they are for. Only ports are changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orgdata_simulator::Fields;
use serde_json::{Value, json};

use crate::support::binary::exporter;
use crate::support::files::{array, file, path, yaml};
use crate::support::http_peer::{Peer, answer};
use crate::support::parts::{Collector, Prometheus, promtool, run, until};
use crate::{organization, sending};

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
    Collector::start_with("otelcol", with_ports).await
}

/// The alerts of the example, but without the time that a state has to last.
#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3, and the OpenTelemetry Collector"]
async fn the_prometheus_example_answers_queries_and_its_alerts_fire_and_end() {
    let simulator = organization(50, 20).await;
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let [key, rules] = ["key", "alerts.yaml"].map(|name| directory.path().join(name));
    std::fs::write(&key, "demo-key").unwrap();
    let mut exporter = exporter(&simulator.base_url())
        .otlp("grpc", &collector.endpoint("grpc"))
        .flag("--api.key-file", key.to_str().unwrap())
        .listening()
        .await;
    exporter.synced().await;
    let consistent = "orgdata_tickets_snapshot_consistent";
    exporter.until_value(consistent, 1.0).await;

    let mut config = yaml("deploy/prometheus/prometheus.yml");
    let targets = &mut config["scrape_configs"][0]["static_configs"][0]["targets"];
    *targets = json!([exporter.address().to_string()]);
    config["global"] = json!({ "scrape_interval": "1s", "evaluation_interval": "1s" });
    let alerts = file("dashboards/alerts.yaml");
    let lines = alerts.split_inclusive('\n');
    let alerts: String = lines.filter(|line| !line.contains(" for: ")).collect();
    std::fs::write(&rules, alerts).unwrap();
    config["rule_files"] = json!([rules]);
    let servers = [
        Prometheus::start_with("prometheus", config.clone()).await,
        Prometheus::start_with("prometheus3", config).await,
    ];
    let is_some = |found: &Value| !array(found).is_empty();
    for server in &servers {
        // Even without patience no rule fires on a healthy exporter.
        server
            .query_until("count_over_time(up[10m]) > 5", is_some)
            .await;
        let firing = server.query("ALERTS{alertname!=\"OrgdataExporterDown\"}");
        assert_eq!(firing.await, json!([]));
    }

    simulator.add_events(10);
    let by_none = Fields::new().with("actorUserId", Value::Null);
    let by_none = by_none.with("actorUser", Value::Null);
    simulator.add_entry(&by_none).unwrap();
    let is_none = |one: &Value| one["metric"]["actor"] == "none";
    let has_none = |found: &Value| array(found).iter().any(is_none);
    for server in &servers {
        let counts = "increase(orgdata_audit_events_total[24h])";
        server.query_until(counts, has_none).await;
        for query in queries() {
            // An actor is a person.
            let found = server.query(&query).await;
            let is_filled = !query.contains("actor") || is_some(&found);
            assert!(is_filled && !has_none(&found), "{query}");
        }
    }

    let fires = async |name: &str| {
        let alert = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}");
        for server in &servers {
            server.query_until(&alert, is_some).await;
        }
    };
    // The key is revoked, and then replaced in its file.
    std::fs::write(&key, "revoked").unwrap();
    fires("OrgdataExporterKeyRefused").await;
    std::fs::write(&key, "demo-key").unwrap();
    for server in &servers {
        let alert = "ALERTS{alertname=\"OrgdataExporterKeyRefused\"}";
        server.query_until(alert, |found| !is_some(found)).await;
    }
    exporter.kill();
    fires("OrgdataExporterDown").await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_collector_example_takes_records_over_both_protocols() {
    let simulator = organization(5, 0).await;
    let collector = collector("deploy/collector/collector.yaml", |_| {}).await;
    for protocol in ["grpc", "http/protobuf"] {
        let exporter = sending(&simulator, protocol, &collector.endpoint(protocol)).start();
        exporter.until_value(SENT, 6.0).await;
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
    promtool(&["check", "config", "deploy/prometheus/prometheus.yml"], "");
    for name in ["compose", "recipes/organizations"] {
        let mut config = yaml(&format!("deploy/{name}/prometheus.yaml"));
        // The path on this machine instead of the one in the container.
        config["rule_files"] = json!([path("dashboards/alerts.yaml")]);
        promtool(&["check", "config", "/dev/stdin"], &config.to_string());
    }
    for name in ["helm/orgdata-exporter/files", "compose"] {
        let config = format!("deploy/{name}/collector.yaml");
        run("otelcol", &["validate", "--config", &config], "").unwrap();
    }
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
    let exporter = sending(&simulator, "grpc", &collector.endpoint("grpc")).start();
    until(async || (loki.count() >= 2).then_some(()).ok_or("no requests")).await;
    let backlog = "orgdata_otlp_backlog_records";
    exporter.until_value(backlog, 21.0).await;
    works.store(true, Ordering::SeqCst);
    exporter.until_value(SENT, 21.0).await;
    exporter.until_value(backlog, 0.0).await;
    assert_eq!(exporter.sum("orgdata_dead_letters_total").await, 0.0);
}
