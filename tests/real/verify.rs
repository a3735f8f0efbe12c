//! `verify` with the exports of real programs. What it finds in an export, `tests/it/verify.rs` tests.

use std::path::Path;

use orgdata_simulator::Running;
use serde_json::Value;

use crate::support::binary::{KEY, launch};
use crate::support::parts::{Collector, VictoriaLogs};
use crate::{organization, sending};

/// Verifies the entries until a time, and returns the exit status and the summary.
async fn verify(api: &Running, export: &Path, until: &str) -> (Option<i32>, Value) {
    let verify = launch(&["verify", "--from=oldest", "--format=json"])
        .args(&["--api.max-requests-per-second=1000", "--api.page-size=100"])
        .flag("--until", until)
        .arg(export.to_str().unwrap())
        .env("ORGDATA_API_BASE_URL", &api.base_url())
        .env("ORGDATA_API_KEY", KEY);
    let finished = verify.run().await;
    let last = finished.stdout.lines().last();
    let last = last.unwrap_or_else(|| panic!("{finished:?}"));
    (finished.status, serde_json::from_str(last).unwrap())
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn the_file_of_a_collector_has_everything_also_while_entries_arrive() {
    let api = organization(2_000, 0).await;
    let collector = Collector::start().await;
    let exporter = sending(&api, "grpc", &collector.endpoint("grpc")).start();
    exporter.synced().await;
    exporter.settled(0).await;
    api.set_rate(50.0);
    // The end of the window is before what arrives now.
    let (status, summary) = verify(&api, &collector.file(), "1m").await;
    assert_eq!(status, Some(0), "{summary}");
    assert!(summary["listed"].as_u64() >= Some(1_990), "{summary}");
    assert_eq!(summary["repeated"], 0, "{summary}");
}

#[tokio::test]
#[ignore = "needs VictoriaLogs"]
async fn victoria_logs_exports_ids_in_one_of_the_three_forms() {
    let api = organization(500, 0).await;
    let store = VictoriaLogs::start().await;
    let _exporter = sending(&api, "http/protobuf", &store.endpoint()).start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("export");
    for query in [
        "*",
        r#"_time:8d {service.name="orgdata-exporter"} | fields _time, log.record.uid"#,
    ] {
        // One is a checkpoint.
        let lines = store.finds(query, 501).await.into_iter();
        let mut lines: Vec<String> = lines.map(|record| format!("{record}\n")).collect();
        lines.sort_by_key(|line| line.contains("orgdata.exporter.checkpoint"));
        if query == "*" {
            std::fs::write(&file, lines.concat()).unwrap();
            for (left, status) in [(501, 0), (500, 1)] {
                // In the order of numbers, the second one of the records is taken out.
                let mut kept = lines.clone();
                let is_second = |line: &String| line.contains(r#""orgdata.record.sequence":"2""#);
                kept.retain(|line| left == 501 || !is_second(line));
                std::fs::write(&file, kept.concat()).unwrap();
                let offline = launch(&["verify", "--offline"]).arg(file.to_str().unwrap());
                let offline = offline.run().await;
                assert_eq!(offline.status, Some(status), "{offline:?}");
            }
        }
        // The missing ones are among its numbers, so it reads the ids.
        for (left, missing, status) in [(500, 0, 0), (493, 7, 1)] {
            lines.truncate(left);
            std::fs::write(&file, lines.concat()).unwrap();
            let (found, summary) = verify(&api, &file, "now").await;
            assert_eq!(found, Some(status), "{query}: {summary}");
            let numbers = ["missing", "repeated", "unknown", "outside"].map(|key| &summary[key]);
            assert_eq!(numbers, [missing, 0, 0, 0], "{query}: {summary}");
        }
    }
}
