//! Records on standard output, as lines of OTLP JSON.

use opentelemetry_proto::tonic::logs::v1::LogsData;
use orgdata_simulator::Running;
use tokio::io::AsyncReadExt as _;

use crate::support::binary::{Launch, assert_complete, exporter};
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

/// Runs an exporter until so many events are printed too, and asserts that each record is on standard output once, and the log is not.
async fn assert_printed(api: &Running, launch: &Launch, events: u64) {
    let mut exporter = launch.start();
    exporter.synced().await;
    // An event of the second of the first sync may have been there before.
    api.advance(std::time::Duration::from_secs(1));
    api.add_events(events);
    exporter.settled(events).await;
    assert_eq!(exporter.stop().await, Some(0));
    let text = exporter.stdout().text();
    let lines = text.lines().filter(|line| !line.is_empty());
    let logs = lines.map(|line| serde_json::from_str::<LogsData>(line).expect(line));
    let resources = logs.flat_map(|logs| logs.resource_logs);
    let scopes = resources.flat_map(|logs| logs.scope_logs);
    let records = scopes.flat_map(|logs| logs.log_records);
    let ids: Vec<String> = records.map(|record| record_id(&record)).collect();
    let again = assert_complete(api.entries().map(|entry| entry.id), &ids);
    assert!(again.is_empty(), "each once: {again:?}");
    exporter.logs("standard output").await;
}

/// Records that nobody reads wait in the state file, and delay no stop.
#[tokio::test]
async fn every_record_is_on_stdout_once_although_a_reader_goes_or_sleeps() {
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
        assert_printed(&api, &launch, 3).await;
    }
}
