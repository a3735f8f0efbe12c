//! A real OpenTelemetry Collector reads the lines that the built exporter writes to standard output.

use serde_json::{Value, json};

use crate::collector::assert_holds;
use crate::organization;
use crate::support::binary::{client, exporter};
use crate::support::parts::Collector;

/// Each line is sent to the receiver for OTLP JSON, which decodes it as the Collector's receiver for files of lines does.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector of two versions"]
async fn a_collector_reads_every_record_from_the_lines_on_stdout() {
    let api = organization(1000, 0).await;
    for (program, batch_size) in [("otelcol", "512"), ("otelcol-old", "7")] {
        let mut exporter = exporter(&api.base_url())
            .args(&["--otlp.protocol=stdout", "--audit.start=oldest"])
            .flag("--otlp.batch-size", batch_size)
            .start();
        exporter.synced().await;
        exporter.settled(0).await;
        assert_eq!(exporter.stop().await, Some(0));
        // The queue of the other exporter, which only prints, may be full.
        let collector = Collector::start_with(program, |config| {
            config["service"]["pipelines"]["logs"]["exporters"] = json!(["file/logs"]);
        })
        .await;
        let url = format!("{}/v1/logs", collector.endpoint("http/protobuf"));
        for line in exporter.stdout().text().lines().skip(1) {
            let request = client().post(&url).body(line.to_owned());
            let request = request.header("content-type", "application/json");
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        }
        let mut records = collector.records();
        records.sort_by_key(|record| record["attributes"]["log.record.uid"].to_string());
        let mut served: Vec<_> = api.entries().collect();
        served.sort_by_key(|entry| Value::from(entry.id.as_str()).to_string());
        assert_eq!(records.len(), served.len());
        for (record, entry) in records.iter().zip(&served) {
            assert_holds(record, entry);
        }
    }
}
