//! A real OpenTelemetry Collector receives what the built exporter sends: every record is compared with what the simulator served.

use std::collections::BTreeSet;

use jiff::Timestamp;
use orgdata_simulator::Served;
use serde_json::{Value, json};

use crate::support::binary::exporter;
use crate::support::files::{assert_has, text};
use crate::support::parts::Collector;
use crate::{organization, sending};

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// Asserts that a record has everything of an entry. Its other attributes `src/records/record_tests.rs` compares with a golden file.
pub(crate) fn assert_holds(record: &Value, served: &Served) {
    let entry: Value = serde_json::from_str(&served.json).unwrap();
    let occurred: Timestamp = text(&entry["occurredAt"]).parse().unwrap();
    let kind = served.activity_type.to_lowercase();
    let user = served.actor.map(|id| id.to_string());
    assert_has!(*record, {
        "scope": { "name": "orgdata.audit", "version": env!("CARGO_PKG_VERSION") },
        "eventName": format!("orgdata.audit.{kind}"),
        "timeUnixNano": occurred.as_nanosecond().to_string(),
        "severityNumber": 9, "severityText": "INFO",
        "attributes": { "log.record.uid": served.id, "user.id": user },
    });
    assert_eq!(record["body"], served.json);
    // Tracing is off.
    assert_eq!(trace(record), Default::default());
}

/// Returns the trace id and the span id of a record in lower-case hex; empty if there are none.
fn trace(record: &Value) -> (String, String) {
    (text(&record["traceId"]), text(&record["spanId"]))
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector of two versions"]
async fn every_event_arrives() {
    let [grpc, http] = PROTOCOLS;
    for (program, protocol, compression) in [
        ("otelcol", grpc, "none"),
        ("otelcol", grpc, "gzip"),
        ("otelcol", http, "none"),
        ("otelcol", http, "gzip"),
        // A year older.
        ("otelcol-old", grpc, "gzip"),
        ("otelcol-old", http, "none"),
    ] {
        let begun = Timestamp::now();
        let simulator = organization(600, 0).await;
        let collector = Collector::start_with(program, |_| {}).await;
        let exporter = sending(&simulator, protocol, &collector.endpoint(protocol))
            .flag("--api.page-size", "90")
            .flag("--otlp.batch-size", "128")
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
            .env("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b")
            .start();
        exporter.synced().await;
        simulator.add_events(400);
        exporter.settled(400).await;

        let records = collector.records_at_least(1_000).await;
        let served: Vec<Served> = simulator.entries().collect();
        assert_eq!(records.len(), served.len());
        let instance = text(&records[0]["resource"]["service.instance.id"]);
        assert!(instance.parse::<uuid::Uuid>().is_ok(), "{instance}");
        let resource = json!({
            "service.name": "orgdata-exporter", "service.version": env!("CARGO_PKG_VERSION"),
            "service.instance.id": instance, "team": "a b",
        });
        let watched = begun.as_nanosecond() as u64..=Timestamp::now().as_nanosecond() as u64;
        // Each once, in order of creation.
        for (record, entry) in records.iter().zip(&served) {
            assert_holds(record, entry);
            assert_eq!(record["resource"], resource);
            let observed = text(&record["observedTimeUnixNano"]).parse().unwrap();
            assert!(watched.contains(&observed), "the arrival of the page");
        }
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_record_belongs_to_the_trace_of_its_poll_unless_spans_are_off() {
    for (protocol, is_off) in PROTOCOLS.map(|it| [(it, "false"), (it, "true")]).concat() {
        let simulator = organization(10, 0).await;
        let collector = Collector::start().await;
        // The standard variables alone.
        let mut exporter = exporter(&simulator.base_url())
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint(protocol))
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_SDK_DISABLED", is_off)
            .start();
        exporter.synced().await;
        simulator.add_events(30);
        exporter.settled(30).await;
        // The last spans are sent when it ends.
        assert_eq!(exporter.stop().await, Some(0));

        let records = collector.records();
        assert_eq!(records.len(), 30);
        let traces: BTreeSet<_> = records.iter().map(trace).collect();
        let mut spans = collector.spans();
        if is_off == "true" {
            assert_eq!((traces, spans.len()), ([Default::default()].into(), 0));
            continue;
        }
        spans.retain(|span| span["name"] == "poll");
        let polls: BTreeSet<_> = spans.iter().map(trace).collect();
        assert!(traces.is_subset(&polls), "{traces:?} in {polls:?}");
    }
}
