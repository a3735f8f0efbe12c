//! A real OpenTelemetry Collector receives what the built exporter sends: every record is compared with what the simulator served.

use std::collections::BTreeSet;

use jiff::Timestamp;
use orgdata_simulator::{Served, Simulator};
use serde_json::{Map, Value, json};

use crate::organization;
use crate::support::binary::exporter;
use crate::support::files::{array, assert_has, text};
use crate::support::parts::{Collector, Prometheus};

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// The attributes of a record and where the entry has them.
const ATTRIBUTES: &str = "
log.record.uid /id
orgdata.activity.type /type
orgdata.target_user.id /targetUserId
orgdata.modified_target_user.id /modifiedTargetUserId
orgdata.organization.id /organizationId
orgdata.organization.name /organization/name
orgdata.deal.id /dealId
orgdata.deal.name /deal/name
orgdata.evaluation.id /evaluationId
orgdata.evaluation.title /evaluation/title
orgdata.task.id /task/id
orgdata.requirement.id /requirement/id
orgdata.meeting.id /meeting/id
orgdata.ticket.id /ticket/id
orgdata.team_request.id /teamRequest/id
orgdata.team_request.status /teamRequest/status
";

pub(crate) fn attributes(entry: &Value) -> Value {
    let name = ["/actorUser/firstName", "/actorUser/lastName"];
    let name = name.map(|path| entry.pointer(path).map(text));
    let name: Vec<String> = name
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    let user = entry["actorUserId"].as_i64().map(|id| id.to_string());
    let mut attributes = Map::new();
    attributes.insert("user.id".to_owned(), user.into());
    attributes.insert("user.full_name".to_owned(), name.join(" ").into());
    for line in ATTRIBUTES.trim().lines() {
        let (attribute, path) = line.split_once(' ').unwrap();
        let value = entry.pointer(path).cloned();
        attributes.insert(attribute.to_owned(), value.unwrap_or_default());
    }
    attributes.retain(|_, value| !value.is_null() && value != "");
    attributes.into()
}

/// Asserts that a record has everything of an entry and nothing else.
pub(crate) fn assert_holds(record: &Value, served: &Served) {
    let entry: Value = serde_json::from_str(&served.json).unwrap();
    let occurred: Timestamp = text(&entry["occurredAt"]).parse().unwrap();
    let kind = served.activity_type.to_lowercase();
    assert_has!(*record, {
        "scope": { "name": "orgdata.audit", "version": env!("CARGO_PKG_VERSION") },
        "eventName": format!("orgdata.audit.{kind}"),
        "timeUnixNano": occurred.as_nanosecond().to_string(),
        "severityNumber": 9, "severityText": "INFO",
    });
    assert_eq!(record["attributes"], attributes(&entry));
    assert_eq!(record["body"], entry);
    // Tracing is off.
    assert_eq!(trace(record), Default::default());
}

/// Returns the trace id and the span id of a record in lower-case hex; empty if there are none.
fn trace(record: &Value) -> (String, String) {
    (text(&record["traceId"]), text(&record["spanId"]))
}

fn ids(simulator: &Simulator) -> Vec<String> {
    simulator.entries().map(|entry| entry.id).collect()
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
        let collector = Collector::start_program(program, |_| {}).await;
        let exporter = exporter(&simulator.base_url())
            .otlp(protocol, &collector.endpoint(protocol))
            .flag("--audit.start", "oldest")
            .flag("--api.page-size", "90")
            .flag("--otlp.batch-size", "128")
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
            .env("OTEL_RESOURCE_ATTRIBUTES", "team=a%20b")
            .listening()
            .await;
        exporter.synced().await;
        simulator.add_events(400);
        let scrape = exporter.settled(400).await;

        let records = collector.records_at_least(1_000).await;
        let served: Vec<Served> = simulator.entries().collect();
        let order = "each once, in order of creation";
        assert_eq!(collector.ids(), ids(&simulator), "{order}");
        let instance = text(&records[0]["resource"]["service.instance.id"]);
        assert!(instance.parse::<uuid::Uuid>().is_ok(), "{instance}");
        let resource = json!({
            "service.name": "orgdata-exporter", "service.version": env!("CARGO_PKG_VERSION"),
            "service.instance.id": instance, "team": "a b",
        });
        let watched = begun.as_nanosecond() as u64..=Timestamp::now().as_nanosecond() as u64;
        for (record, entry) in records.iter().zip(&served) {
            assert_holds(record, entry);
            assert_eq!(record["resource"], resource);
            let observed = text(&record["observedTimeUnixNano"]).parse().unwrap();
            assert!(watched.contains(&observed), "the arrival of the page");
        }
        assert_eq!(scrape.sum("orgdata_otlp_records_sent_total"), 1_000.0);
        assert_eq!(scrape.sum("orgdata_otlp_request_failures_total"), 0.0);
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector and Prometheus 3"]
async fn a_record_and_an_exemplar_belong_to_the_trace_of_their_poll() {
    for protocol in PROTOCOLS {
        let simulator = organization(10, 0).await;
        let collector = Collector::start().await;
        // By the standard variables alone.
        let mut exporter = exporter(&simulator.base_url())
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint(protocol))
            .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            .env("OTEL_BSP_SCHEDULE_DELAY", "100")
            .listening()
            .await;
        let address = exporter.address().to_string();
        let prometheus = Prometheus::start("prometheus3", &[&address], "1s").await;
        exporter.synced().await;
        simulator.add_events(30);
        exporter.settled(30).await;
        let exemplars = prometheus.exemplars("orgdata_audit_events_total").await;
        // The last spans are sent when it ends.
        assert_eq!(exporter.stop().await, Some(0));

        let mut polls = BTreeSet::new();
        for request in collector.traces() {
            for resource in array(&request["resourceSpans"]) {
                let service = json!({ "key": "service.name", "value": { "stringValue": "orgdata-exporter" } });
                let attributes = array(&resource["resource"]["attributes"]);
                assert!(attributes.contains(&service), "{resource}");
                for span in array(&resource["scopeSpans"])
                    .iter()
                    .flat_map(|scope| array(&scope["spans"]))
                {
                    if span["name"] == "poll" {
                        polls.insert((text(&span["traceId"]), text(&span["spanId"])));
                    }
                }
            }
        }
        let records = collector.records();
        assert_eq!(records.len(), 30);
        let traces: BTreeSet<_> = records.iter().map(trace).collect();
        assert!(traces.is_subset(&polls), "{traces:?} in {polls:?}");
        for exemplar in exemplars {
            let labels = &exemplar["labels"];
            let trace = (text(&labels["trace_id"]), text(&labels["span_id"]));
            assert!(traces.contains(&trace), "{exemplar} in {traces:?}");
        }
    }
}
