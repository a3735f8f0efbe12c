//! A real OpenTelemetry Collector receives what the built exporter sends: every record is compared with what the simulator served.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::Served;
use serde_json::{Value, json};

use crate::support::binary::{Exporter, Scrape, assert_complete, exporter};
use crate::support::files::{assert_has, text};
use crate::support::parts::Collector;
use crate::{organization, sending};

/// The number of records of a request in the tests that interrupt one.
const BATCH: usize = 50;

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

/// Waits until the simulator's next events are newer than all others: it creates them in the milliseconds before now.
async fn later(events: u64) {
    tokio::time::sleep(Duration::from_millis(events + 50)).await;
}

/// The collector dies in the middle of a stream of records and the exporter while it is down; events go on throughout.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn an_outage_with_a_restart_or_a_crash_loses_nothing() {
    for (protocol, crash) in [("grpc", true), ("http/protobuf", false)] {
        let simulator = organization(300, 0).await;
        let mut collector = Collector::start().await;
        let setup = sending(&simulator, protocol, &collector.endpoint(protocol))
            .on_disk()
            .flag("--otlp.batch-size", &BATCH.to_string())
            .flag("--shutdown.grace", "1s");
        let mut exporter = setup.listening().await;
        collector.records_at_least(300).await;

        simulator.add_events(2_000);
        collector.records_at_least(301).await;
        collector.stop();
        later(500).await;
        simulator.add_events(500);
        let waits = async |exporter: &Exporter, events: f64, at_least: f64| {
            let is_all = |scrape: &Scrape| {
                let waiting = scrape.value("orgdata_otlp_backlog_records").unwrap();
                scrape.sum("orgdata_audit_events_total") == events
                    && (at_least..=events + 1.0).contains(&waiting)
            };
            exporter.until("events without a collector", is_all).await;
        };
        waits(&exporter, 2_500.0, 500.0).await;
        match crash {
            true => exporter.kill(),
            false => assert_eq!(exporter.stop().await, Some(0)),
        }
        later(300).await;
        simulator.add_events(300);
        exporter = setup.listening().await;
        waits(&exporter, 2_800.0, 800.0).await;

        collector.start_again().await;
        exporter.settled(2_800).await;
        let came = collector.ids();
        let again = assert_complete(simulator.entries().map(|entry| entry.id), &came);
        let mut seen = BTreeSet::new();
        let first = came.iter().filter(|id| seen.insert(*id));
        let created: Vec<String> = simulator.entries().map(|entry| entry.id).collect();
        assert!(first.eq(&created), "in another order");
        // The request that the collector had written when it died, but not acknowledged.
        let is_one = again.len() <= BATCH && again.values().all(|times| *times == 1);
        assert!(is_one, "{again:?}");
        let records = collector.records();
        let instance = |record: &Value| text(&record["resource"]["service.instance.id"]);
        let instances: BTreeSet<String> = records.iter().map(instance).collect();
        assert_eq!(instances.len(), 1, "it survives a restart");
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
