//! Records on standard output, as lines of OTLP JSON.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::logs::v1::LogsData;
use orgdata_simulator::Running;
use tokio::io::AsyncReadExt as _;

use crate::support::binary::{Launch, assert_complete, exporter, until};
use crate::support::collector_peer::record_id;
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
    let lines = lines.lines().filter(|line| !line.is_empty());
    let logs = lines.map(|line| serde_json::from_str::<LogsData>(line).expect(line));
    let resources = logs.flat_map(|logs| logs.resource_logs);
    let scopes = resources.flat_map(|logs| logs.scope_logs);
    let records = scopes.flat_map(|logs| logs.log_records);
    records.map(|record| record_id(&record)).collect()
}

#[tokio::test]
async fn every_record_is_on_stdout_once_and_the_log_is_on_stderr() {
    let api = organization(HISTORY, 0).await;
    let mut exporter = launch(&api).start();
    exporter.synced().await;
    api.add_events(3);
    exporter.settled(3).await;
    assert_eq!(exporter.stop().await, Some(0));
    let again = assert_complete(&api, &ids(&exporter.stdout().text()));
    assert!(again.is_empty(), "each once: {again:?}");
    exporter.logs("standard output").await;
}

/// Records that nobody reads wait in the state file, and delay no stop.
#[tokio::test]
async fn a_reader_that_goes_or_sleeps_loses_nothing() {
    let api = organization(HISTORY, 0).await;
    for goes in [true, false] {
        let launch = launch(&api);
        let (mut exporter, mut out) = launch.piped();
        if goes {
            drop(out);
            let words = "cannot write to standard output | unavailable";
            exporter.logs(words).await;
            assert_eq!(exporter.stop().await, Some(0));
        } else {
            // The rest of the line fits into no pipe.
            out.read_exact(&mut [0; 10]).await.unwrap();
            assert_eq!(exporter.stop().await, Some(0));
        }
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
