//! The configuration examples of `deploy/` and the files of the compose set, read by the programs they are for. Only ports are changed.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::organization;
use crate::support::binary::{Lines, exporter};
use crate::support::files::{array, file, path, yaml};
use crate::support::http_peer::{Peer, answer};
use crate::support::parts::{binary, client, free_ports, promtool, tool, until};

const SENT: &str = "orgdata_otlp_records_sent_total";

/// Writes an example with each of the words replaced, all of which have to be there.
fn example(name: &str, to: &Path, replaced: &[(&str, &str)]) {
    let text = replaced.iter().fold(file(name), |text, (word, with)| {
        assert!(text.contains(word), "{name} has no {word}");
        text.replace(word, with)
    });
    std::fs::write(to, text).unwrap();
}

/// Starts a program in a directory and returns it with what it prints.
fn run(program: &str, arguments: &[&str], dir: &Path) -> (Child, Lines) {
    let mut command = Command::new(binary(program));
    command.args(arguments).current_dir(dir).kill_on_drop(true);
    let log = Lines::default();
    command.stdout(Stdio::null()).stderr(log.file());
    (command.spawn().unwrap(), log)
}

#[tokio::test]
#[ignore = "needs Prometheus 2.42 and 3"]
async fn the_prometheus_example_scrapes_and_has_the_alerts() {
    let simulator = organization(5, 0).await;
    let exporter = exporter(&simulator.base_url()).start();
    let target = exporter.url().await.replace("http://", "");
    let alerts = yaml("dashboards/alerts.yaml")["groups"][0]["rules"].clone();
    for program in ["prometheus", "prometheus3"] {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("prometheus.yml");
        let rules = path("dashboards/alerts.yaml").display().to_string();
        let replaced = [
            ("localhost:10917", target.as_str()),
            ("../../dashboards/alerts.yaml", &rules),
            ("scrape_interval: 15s", "scrape_interval: 1s"),
        ];
        example("deploy/prometheus/prometheus.yml", &config, &replaced);
        let [port] = free_ports();
        let listen = format!("--web.listen-address=127.0.0.1:{port}");
        let arguments = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &listen,
        ];
        let (_prometheus, log) = run(program, &arguments, dir.path());
        let ask = async |path: &str| -> Option<Value> {
            let answer = client().get(format!("http://127.0.0.1:{port}/api/v1/{path}"));
            serde_json::from_str(&answer.send().await.ok()?.text().await.ok()?).ok()
        };
        until(async || {
            let up = ask("query?query=up{job=\"orgdata-exporter\"}").await;
            let up = up.is_some_and(|up| up["data"]["result"][0]["value"][1] == "1");
            up.then_some(()).ok_or(log.text())
        })
        .await;
        let rules = ask("rules?type=alert").await.unwrap();
        let rules = &rules["data"]["groups"][0]["rules"];
        assert_eq!(array(rules).len(), array(&alerts).len(), "{program}");
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_collector_example_takes_records_over_both_protocols() {
    let simulator = organization(5, 0).await;
    let dir = tempfile::tempdir().unwrap();
    let [grpc, http] = free_ports().map(|port: u16| format!("127.0.0.1:{port}"));
    let config = dir.path().join("collector.yaml");
    let replaced = [("localhost:4317", grpc.as_str()), ("localhost:4318", &http)];
    example("deploy/collector/collector.yaml", &config, &replaced);
    let (_collector, log) = run("otelcol", &["--config=collector.yaml"], dir.path());
    for (protocol, address) in [("grpc", &grpc), ("http/protobuf", &http)] {
        let endpoint = format!("--otlp.endpoint=http://{address}");
        let protocol = format!("--otlp.protocol={protocol}");
        let arguments = ["--audit.start=oldest", &endpoint, &protocol];
        let exporter = exporter(&simulator.base_url()).args(&arguments).start();
        exporter.until_value(SENT, 5.0).await;
    }
    until(async || {
        let printed = log.text().matches("EventName: orgdata.audit.").count();
        (printed == 10).then_some(()).ok_or(log.text())
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
    let file = dir.path().join("prometheus.yaml");
    std::fs::write(&file, config.to_string()).unwrap();
    promtool(&["check", "config", file.to_str().unwrap()]).unwrap();
    let validate = |config: &str| tool("otelcol", &["validate", "--config", config]);
    validate("deploy/kubernetes/components/collector/collector.yaml").unwrap();
    let collector = "deploy/compose/collector.yaml";
    validate(collector).unwrap();
    let broken = dir.path().join("broken.yaml");
    example(collector, &broken, &[("http:\n", "htpt:\n")]);
    validate(broken.to_str().unwrap()).expect_err("a wrong key");
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
    let dir = tempfile::tempdir().unwrap();
    let [grpc, http] = free_ports().map(|port: u16| format!("127.0.0.1:{port}"));
    let mut config = yaml("deploy/compose/collector.yaml");
    let protocols = &mut config["receivers"]["otlp"]["protocols"];
    protocols["grpc"]["endpoint"] = json!(grpc);
    protocols["http"]["endpoint"] = json!(http);
    config["exporters"]["otlp_http/loki"]["endpoint"] = json!(format!("{}/otlp", loki.url()));
    config["service"]["telemetry"] = json!({ "metrics": { "level": "none" } });
    std::fs::write(dir.path().join("collector.yaml"), config.to_string()).unwrap();
    let (_collector, log) = run("otelcol", &["--config=collector.yaml"], dir.path());

    let simulator = organization(20, 0).await;
    let endpoint = format!("--otlp.endpoint=http://{grpc}");
    let arguments = ["--audit.start=oldest", "--otlp.protocol=grpc", &endpoint];
    let exporter = exporter(&simulator.base_url()).args(&arguments).start();
    until(async || (loki.count() >= 2).then_some(()).ok_or(log.text())).await;
    for request in loki.seen() {
        assert_eq!(request.target(), "/otlp/v1/logs");
    }
    let backlog = "orgdata_otlp_backlog_records";
    assert_eq!(exporter.value(SENT).await, Some(0.0));
    exporter.until_value(backlog, 20.0).await;
    works.store(true, Ordering::SeqCst);
    exporter.until_value(SENT, 20.0).await;
    exporter.until_value(backlog, 0.0).await;
    let dead = "orgdata_otlp_records_dead_lettered_total";
    assert_eq!(exporter.sum(dead).await, 0.0);
}
