//! The configuration examples of `deploy/`, run by the programs they are for; only their ports are changed, for free ones.

use crate::support::binary;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use binary::{Lines, client, exporter, until};
use orgdata_exporter::simulator::{Config, Simulator};
use serde_json::Value;
use tokio::process::{Child, Command};

/// A file of `deploy/` with each of the words replaced, all of which have to be there.
fn example(path: &str, replaced: &[(&str, String)]) -> String {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("deploy")
            .join(path),
    )
    .expect("the example is there");
    replaced.iter().fold(text, |text, (word, with)| {
        assert!(text.contains(word), "{path} has no {word}");
        text.replace(word, with)
    })
}

/// Addresses on loopback that are free at this moment.
fn free<const N: usize>() -> [String; N] {
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| {
        listener
            .local_addr()
            .expect("a bound socket has an address")
            .to_string()
    })
}

fn run(program: &str, arguments: &[&str], dir: &Path) -> (Child, Lines) {
    let parts = std::env::var_os("ORGDATA_REAL_PARTS")
        .map_or_else(|| PathBuf::from("target/real-parts/bin"), PathBuf::from);
    let program = std::path::absolute(parts.join(program)).expect("a path");
    let mut child = Command::new(&program)
        .args(arguments)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; run .ci/setup", program.display()));
    let said = Lines::read(child.stderr.take().expect("piped"));
    (child, said)
}

#[tokio::test]
#[ignore = "needs Prometheus"]
async fn the_example_for_prometheus_scrapes_and_knows_the_alerts() {
    let sim = Simulator::spawn(Config {
        history: 5,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let exporter = exporter(&sim.base_url()).start();
    let target = exporter.url().await.replace("http://", "");
    for program in ["prometheus", "prometheus3"] {
        let dir = tempfile::tempdir().expect("a directory");
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/dashboards/alerts.yaml").to_owned();
        let replaced = [
            ("localhost:10917", target.clone()),
            ("../../dashboards/alerts.yaml", rules),
            ("scrape_interval: 15s", "scrape_interval: 1s".into()),
        ];
        std::fs::write(
            dir.path().join("prometheus.yml"),
            example("prometheus/prometheus.yml", &replaced),
        )
        .expect("it can be written");
        let [address] = free();
        let arguments = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            &format!("--web.listen-address={address}"),
        ];
        let (_prometheus, said) = run(program, &arguments, dir.path());
        let ask = async |path: &str| -> Option<Value> {
            let text = client()
                .get(format!("http://{address}/api/v1/{path}"))
                .send()
                .await
                .ok()?
                .text()
                .await
                .ok()?;
            serde_json::from_str(&text).ok()
        };
        until(
            &format!("{program} scrapes the exporter: {}", said.text()),
            async || {
                let up = ask("query?query=up{job=\"orgdata-exporter\"}").await?;
                (up["data"]["result"][0]["value"][1] == "1").then_some(())
            },
        )
        .await;
        let rules = ask("rules?type=alert").await.expect("the rules");
        assert_eq!(
            rules["data"]["groups"][0]["rules"].as_array().map(Vec::len),
            Some(26),
            "{program}: {rules}"
        );
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_example_for_the_collector_takes_records_both_ways() {
    let sim = Simulator::spawn(Config {
        history: 5,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let dir = tempfile::tempdir().expect("a directory");
    let [grpc, http] = free();
    let replaced = [
        ("localhost:4317", grpc.clone()),
        ("localhost:4318", http.clone()),
    ];
    std::fs::write(
        dir.path().join("collector.yaml"),
        example("collector/collector.yaml", &replaced),
    )
    .expect("it can be written");
    let (_collector, said) = run("otelcol", &["--config=collector.yaml"], dir.path());
    for (protocol, address) in [("grpc", grpc), ("http/protobuf", http)] {
        let endpoint = format!("--otlp.endpoint=http://{address}");
        let exporter = exporter(&sim.base_url())
            .args(&[
                "--audit.start=oldest",
                &endpoint,
                &format!("--otlp.protocol={protocol}"),
            ])
            .start();
        exporter
            .until_value("orgdata_otlp_records_sent_total", 5.0)
            .await;
    }
    until("the collector prints what it took", async || {
        (said.text().matches("EventName: orgdata.audit.").count() == 10).then_some(())
    })
    .await;
}
