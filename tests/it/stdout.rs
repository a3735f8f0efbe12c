//! Records on standard output, as lines of OTLP JSON.

use std::collections::BTreeSet;
use std::process::Stdio;

use orgdata_simulator::Running;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::support::binary::{Launch, PATIENCE, exporter, until};
use crate::support::files::{array, text};
use crate::support::service::organization;

/// Enough records for a line that no pipe takes without a reader.
const HISTORY: u64 = 300;

fn launch(api: &Running) -> Launch {
    exporter(&api.base_url()).on_disk().args(&[
        "--otlp.protocol=stdout",
        "--audit.start=oldest",
        "--shutdown.grace=300ms",
    ])
}

fn served(api: &Running) -> BTreeSet<String> {
    api.entries().map(|entry| entry.id).collect()
}

/// Returns the ids of the records in lines of OTLP JSON.
fn ids(lines: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for line in lines.lines().filter(|line| !line.is_empty()) {
        let request: Value = serde_json::from_str(line).expect(line);
        assert_eq!(array(&request["resourceLogs"]).len(), 1, "{line}");
        let logs = array(&request["resourceLogs"]).iter();
        let scopes = logs.flat_map(|logs| array(&logs["scopeLogs"]));
        for record in scopes.flat_map(|scope| array(&scope["logRecords"])) {
            let mut attributes = array(&record["attributes"]).iter();
            let id = attributes.find(|attribute| attribute["key"] == "log.record.uid");
            ids.push(text(&id.unwrap()["value"]["stringValue"]));
        }
    }
    ids
}

#[tokio::test]
async fn every_record_is_on_stdout_once_and_the_log_is_on_stderr() {
    let api = organization(HISTORY, 0).await;
    let mut exporter = launch(&api).start();
    exporter.synced().await;
    api.add_events(3);
    let settled = exporter.settled(3).await;
    assert_eq!(
        settled.value("orgdata_otlp_records_sent_total"),
        Some(HISTORY as f64 + 3.0)
    );
    assert_eq!(exporter.stop().await, Some(0));
    let ids = ids(&exporter.stdout().text());
    assert_eq!(ids.len() as u64, HISTORY + 3);
    assert_eq!(BTreeSet::from_iter(ids), served(&api));
    exporter.logs("standard output").await;
}

/// Records that nobody reads wait in the state file, and delay no stop.
#[tokio::test]
async fn a_reader_that_goes_or_sleeps_loses_nothing() {
    let api = organization(HISTORY, 0).await;
    for goes in [true, false] {
        let launch = launch(&api);
        let (mut child, _dir) = launch.clone().spawn();
        let mut out = child.stdout.take().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        if goes {
            drop(out);
            let said = async {
                while let Some(line) = log.next_line().await.unwrap() {
                    if line.contains("cannot write to standard output") {
                        return line;
                    }
                }
                panic!("it does not say that nobody reads")
            };
            let line = tokio::time::timeout(PATIENCE, said).await.unwrap();
            assert!(line.contains("(unavailable)") || line.contains("reason=unavailable"));
        } else {
            // The rest of the line fits into no pipe.
            out.read_exact(&mut [0; 10]).await.unwrap();
            Box::leak(Box::new(out));
        }
        let pid = child.id().unwrap().to_string();
        let mut kill = tokio::process::Command::new("kill");
        kill.args(["-TERM", &pid]).stdout(Stdio::null());
        assert!(kill.status().await.unwrap().success());
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        assert_eq!(ended.unwrap().unwrap().code(), Some(0));
        let mut again = launch.start();
        let all = async || {
            let ids = ids(&again.stdout().text());
            (BTreeSet::from_iter(ids) == served(&api)).then_some(())
        };
        until("every record", all).await;
        again.settled(0).await;
        assert_eq!(again.stop().await, Some(0));
    }
}
