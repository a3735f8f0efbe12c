//! The configuration files of the compose set, as the servers themselves read them.

// A test fails by panicking, also in its helpers.

use crate::support::binary;
use crate::support::http_peer;
use crate::support::parts;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use binary::until;
use http_peer::{Peer, answer};
use orgdata_exporter::simulator::{Config, Simulator};
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/compose")
        .join(name)
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(file(name)).unwrap()).unwrap()
}

#[test]
#[ignore = "needs promtool of Prometheus 2.42 and 3, and the OpenTelemetry Collector"]
fn the_servers_take_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = yaml("prometheus.yaml");
    // Where it lies on this machine and not in the container.
    assert_eq!(
        config["rule_files"],
        json!(["/etc/prometheus/rules/alerts.yaml"])
    );
    config["rule_files"] = json!([file("../../dashboards/alerts.yaml")]);
    let path = dir.path().join("prometheus.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    for promtool in ["promtool", "promtool3"] {
        parts::tool(promtool, &["check", "config", path.to_str().unwrap()]).unwrap();
    }
    parts::tool(
        "otelcol",
        &[
            "validate",
            "--config",
            file("collector.yaml").to_str().unwrap(),
        ],
    )
    .unwrap();
    // It would say so otherwise.
    let broken = dir.path().join("broken.yaml");
    std::fs::write(
        &broken,
        std::fs::read_to_string(file("collector.yaml"))
            .unwrap()
            .replace("http:\n", "htpt:\n"),
    )
    .unwrap();
    assert!(
        parts::tool(
            "otelcol",
            &["validate", "--config", broken.to_str().unwrap()]
        )
        .is_err()
    );
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_record_waits_in_the_exporter_until_loki_has_it() {
    let there = Arc::new(AtomicBool::new(false));
    let open = there.clone();
    let loki = Peer::start(move |_, _| {
        if open.load(Ordering::SeqCst) {
            answer("204 No Content", &[], "")
        } else {
            answer("503 Service Unavailable", &[], "")
        }
    })
    .await;

    let dir = tempfile::tempdir().unwrap();
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string()
    };
    let (grpc, mut config) = (free(), yaml("collector.yaml"));
    config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] = json!(grpc);
    config["receivers"]["otlp"]["protocols"]["http"]["endpoint"] = json!(free());
    config["exporters"]["otlp_http/loki"]["endpoint"] = json!(format!("{}/otlp", loki.url()));
    config["service"]["telemetry"] = json!({ "metrics": { "level": "none" } });
    let path = dir.path().join("collector.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let _collector = tokio::process::Command::new(parts::binary("otelcol"))
        .arg("--config")
        .arg(&path)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    let simulator = Simulator::spawn(Config {
        history: 20,
        ..Config::quiet()
    })
    .await
    .unwrap();
    let exporter = binary::exporter(&simulator.base_url())
        .args(&[
            "--audit.start=oldest",
            "--otlp.protocol=grpc",
            "--otlp.endpoint",
            &format!("http://{grpc}"),
        ])
        .start();
    let refused = async || (loki.count() >= 2).then_some(());
    until(
        &format!(
            "two attempts; {}",
            std::fs::read_to_string(dir.path().join("log")).unwrap()
        ),
        refused,
    )
    .await;
    assert!(
        loki.seen()
            .iter()
            .all(|request| request.target() == "/otlp/v1/logs")
    );
    assert_eq!(
        exporter.value("orgdata_otlp_records_sent_total").await,
        Some(0.0)
    );
    exporter
        .until_value("orgdata_otlp_backlog_records", 20.0)
        .await;
    there.store(true, Ordering::SeqCst);
    exporter
        .until_value("orgdata_otlp_records_sent_total", 20.0)
        .await;
    exporter
        .until_value("orgdata_otlp_backlog_records", 0.0)
        .await;
    assert_eq!(exporter.sum("orgdata_otlp_dead_lettered_total").await, 0.0);
}
