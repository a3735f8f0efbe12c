//! A real OpenTelemetry Collector receives what the built exporter sends: every record is compared with what the simulator served.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_simulator::{Running, Served, Simulator};
use serde_json::{Map, Value, json};

use crate::organization;
use crate::support::binary::{Exporter, Launch, Scrape, assert_complete, exporter};
use crate::support::files::{array, assert_has, text};
use crate::support::parts::Collector;
use crate::support::tap::Tap;

/// The number of records of a request in the tests that interrupt one.
const BATCH: usize = 50;

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// The attributes of a record and where the entry has them.
const ATTRIBUTES: [(&str, &str); 16] = [
    ("log.record.uid", "/id"),
    ("orgdata.activity.type", "/type"),
    ("orgdata.target_user.id", "/targetUserId"),
    ("orgdata.modified_target_user.id", "/modifiedTargetUserId"),
    ("orgdata.organization.id", "/organizationId"),
    ("orgdata.organization.name", "/organization/name"),
    ("orgdata.deal.id", "/dealId"),
    ("orgdata.deal.name", "/deal/name"),
    ("orgdata.evaluation.id", "/evaluationId"),
    ("orgdata.evaluation.title", "/evaluation/title"),
    ("orgdata.task.id", "/task/id"),
    ("orgdata.requirement.id", "/requirement/id"),
    ("orgdata.meeting.id", "/meeting/id"),
    ("orgdata.ticket.id", "/ticket/id"),
    ("orgdata.team_request.id", "/teamRequest/id"),
    ("orgdata.team_request.status", "/teamRequest/status"),
];

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
    for (attribute, path) in ATTRIBUTES {
        let mut value = entry.pointer(path).cloned().unwrap_or_default();
        if attribute.ends_with("user.id") && !value.is_null() {
            value = value.to_string().into();
        }
        attributes.insert(attribute.to_owned(), value);
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

/// Asserts that every entry arrived, in order of creation, and returns how often each came again that came more than once.
fn assert_in_order(simulator: &Simulator, came: &[String]) -> BTreeMap<String, usize> {
    let again = assert_complete(simulator, came);
    let mut seen = BTreeSet::new();
    let first = came.iter().filter(|id| seen.insert(*id));
    assert!(first.eq(&ids(simulator)), "in another order");
    again
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

/// Waits until the simulator's next events are newer than all others: it creates them in the milliseconds before now.
async fn later(events: u64) {
    tokio::time::sleep(Duration::from_millis(events + 50)).await;
}

/// The collector dies in the middle of a stream of records and the exporter while it is down; events go on throughout.
async fn an_outage_loses_nothing(protocol: &str, crash: bool) {
    let simulator = organization(300, 0).await;
    let mut collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let setup = exporter(&simulator.base_url())
        .otlp(protocol, &collector.endpoint(protocol))
        .state(&directory.path().join("state.db"))
        .flag("--audit.start", "oldest")
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
                && (at_least..=events).contains(&waiting)
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
    let again = assert_in_order(&simulator, &collector.ids());
    // The request that the collector had written when it died, but not acknowledged.
    let is_one = again.len() <= BATCH && again.values().all(|times| *times == 1);
    assert!(is_one, "{again:?}");
    let records = collector.records();
    let instance = |record: &Value| text(&record["resource"]["service.instance.id"]);
    let instances: BTreeSet<String> = records.iter().map(instance).collect();
    assert_eq!(instances.len(), 1, "it survives a restart");
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn an_outage_with_a_restart_or_a_crash_loses_nothing() {
    for protocol in PROTOCOLS {
        for crash in [false, true] {
            an_outage_loses_nothing(protocol, crash).await;
        }
    }
}

/// Sends records and spans to one collector by the standard variables alone.
fn by_variables(simulator: &Running, collector: &Collector, protocol: &str) -> Launch {
    exporter(&simulator.base_url())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint(protocol))
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
}

async fn deliver(simulator: &Simulator, exporter: &Exporter, events: u64) {
    exporter.synced().await;
    simulator.add_events(events);
    exporter.settled(events).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_record_belongs_to_the_trace_of_its_poll() {
    for protocol in PROTOCOLS {
        let simulator = organization(10, 0).await;
        let collector = Collector::start().await;
        let setup = by_variables(&simulator, &collector, protocol);
        let mut exporter = setup.listening().await;
        deliver(&simulator, &exporter, 30).await;
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
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn without_spans_or_their_endpoint_records_arrive() {
    let dead = Tap::new(None).await;
    let cases = [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &dead.url()),
    ];
    for (protocol, (variable, value)) in PROTOCOLS
        .iter()
        .flat_map(|protocol| cases.map(|case| (protocol, case)))
    {
        let simulator = organization(10, 0).await;
        let collector = Collector::start().await;
        let setup = by_variables(&simulator, &collector, protocol).env(variable, value);
        let mut exporter = setup.listening().await;
        deliver(&simulator, &exporter, 30).await;
        assert_eq!(exporter.stop().await, Some(0));
        assert_eq!(collector.ids(), ids(&simulator)[10..]);
        assert_eq!(collector.traces(), Vec::<Value>::new());
        let has_trace = |record: &Value| !trace(record).0.is_empty();
        let is_traced = collector.records().iter().any(has_trace);
        assert!(!is_traced || variable != "OTEL_SDK_DISABLED");
        // At most one throttled warning.
        let log = exporter.stderr();
        let complaints = log.count("level=warn") + log.count("level=error");
        assert!(complaints <= 1, "{}", log.text());
    }
}
