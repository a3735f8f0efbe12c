//! `verify` with the exports of real programs, also while entries arrive.

use std::fs;
use std::path::Path;

use orgdata_simulator::Running;
use serde_json::Value;

use crate::organization;
use crate::support::binary::{KEY, Launch, exporter, launch};
use crate::support::parts::{Collector, VictoriaLogs, until};

fn verify(api: &Running, export: &Path) -> Launch {
    launch(&["verify", "--from=oldest", "--until=now", "--format=json"])
        .args(&["--api.max-requests-per-second=1000", "--api.page-size=100"])
        .arg(export.to_str().unwrap())
        .env("ORGDATA_API_BASE_URL", &api.base_url())
        .env("ORGDATA_API_KEY", KEY)
}

/// Runs it, and returns its exit status and its summary.
async fn run(launch: Launch) -> (Option<i32>, Value) {
    let finished = launch.run().await;
    let last = finished.stdout.lines().last();
    let last = last.unwrap_or_else(|| panic!("{finished:?}"));
    (finished.status, serde_json::from_str(last).unwrap())
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_file_of_a_collector_has_everything_also_while_entries_arrive() {
    let api = organization(2_000, 0).await;
    let collector = Collector::start().await;
    let launch = exporter(&api.base_url()).flag("--audit.start", "oldest");
    let exporter = launch.otlp("grpc", &collector.endpoint("grpc")).start();
    exporter.synced().await;
    exporter.settled(0).await;
    api.set_rate(50.0);
    // The end of the window is before what arrives now.
    let found = run(verify(&api, &collector.file()).flag("--until", "1m")).await;
    assert_eq!(found.0, Some(0), "{}", found.1);
    assert!(found.1["listed"].as_u64() >= Some(1_990), "{}", found.1);
    assert_eq!(found.1["repeated"], 0, "{}", found.1);
    api.set_rate(0.0);

    // Retention deletes the beginning of the window.
    api.retain(500);
    let found = run(verify(&api, &collector.file()).flag("--until", "1m")).await;
    let (status, summary) = (found.0, &found.1);
    assert_eq!(
        (status, &summary["missing"]),
        (Some(0), &0.into()),
        "{summary}"
    );
    assert!(summary["listed"].as_u64() < Some(501), "{summary}");
}

#[tokio::test]
#[ignore = "needs VictoriaLogs"]
async fn victoria_logs_exports_ids_in_one_of_the_three_forms() {
    let api = organization(500, 0).await;
    let store = VictoriaLogs::start().await;
    let launch = exporter(&api.base_url()).flag("--audit.start", "oldest");
    let launch = launch.otlp("http/protobuf", "http://127.0.0.1:1");
    let launch = launch.flag("--otlp.endpoint", &store.endpoint());
    let _exporter = launch.start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("export");
    for query in [
        "*",
        r#"_time:8d {service.name="orgdata-exporter"} | fields _time, log.record.uid"#,
    ] {
        // Just after the delivery, a query may find a part of it.
        let found = until(async || {
            let found = store.query(query).await;
            let count = found.len();
            (count == 500).then_some(found).ok_or(count)
        });
        let lines = found.await.into_iter().map(|record| format!("{record}\n"));
        let mut lines: Vec<String> = lines.collect();
        fs::write(&file, lines.concat()).unwrap();
        let (status, summary) = run(verify(&api, &file)).await;
        assert_eq!(status, Some(0), "{query}: {summary}");
        lines.truncate(493);
        lines.push(lines[0].clone());
        fs::write(&file, lines.concat()).unwrap();
        let (status, summary) = run(verify(&api, &file)).await;
        assert_eq!(status, Some(1), "{query}: {summary}");
        let numbers = ["missing", "repeated", "unknown", "outside"].map(|key| &summary[key]);
        assert_eq!(numbers, [7, 1, 0, 0], "{query}: {summary}");
    }
}
