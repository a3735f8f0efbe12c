//! A real OpenTelemetry Collector takes what the built exporter sends: compared, record by record, with what the simulated service served.

use crate::support::exporter;
use crate::support::parts;
use crate::support::tap;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use exporter::{Exporter, Setup};
use jiff::Timestamp;
use orgdata_exporter::simulator::{ClockSource, Config, Running, Served, Simulator};
use parts::{Collector, LogRecordJson, Prometheus};
use serde_json::{Map, Value, json};
use tap::Tap;

/// Records of one request in the tests that interrupt one.
const BATCH: usize = 50;

/// How a test ends an exporter.
#[derive(Clone, Copy, Debug)]
enum End {
    Terminate,
    Kill,
}

/// How log records travel.
#[derive(Clone, Copy, Debug)]
struct Way {
    protocol: &'static str,
    gzip: bool,
}

// === impl Way ===

impl Way {
    const GRPC: Self = Self {
        protocol: "grpc",
        gzip: false,
    };
    const HTTP: Self = Self {
        protocol: "http/protobuf",
        gzip: false,
    };

    fn gzip(self) -> Self {
        Self { gzip: true, ..self }
    }

    fn endpoint(self, collector: &Collector) -> String {
        if self.protocol == "grpc" {
            collector.grpc_endpoint()
        } else {
            collector.http_endpoint()
        }
    }

    fn setup(self, simulator: &Running, endpoint: &str) -> Setup {
        Setup::new(simulator)
            .flag("--otlp.endpoint", endpoint)
            .flag("--otlp.protocol", self.protocol)
            .variable(
                "OTEL_EXPORTER_OTLP_COMPRESSION",
                if self.gzip { "gzip" } else { "none" },
            )
    }
}

/// A world with a past, in which nothing happens but what the test does; its clock is the machine's.
async fn world(history: u64) -> Running {
    Simulator::spawn(Config {
        history,
        clock: ClockSource::Real,
        ..Config::quiet()
    })
    .await
    .expect("a free port")
}

/// Where an endpoint is.
fn address(endpoint: &str) -> SocketAddr {
    endpoint
        .strip_prefix("http://")
        .and_then(|address| address.parse().ok())
        .expect("an address after http://")
}

fn uid(record: &LogRecordJson) -> &str {
    record.attributes["log.record.uid"]
        .as_str()
        .expect("an id is a string")
}

fn nanoseconds(time: &Value) -> u64 {
    let time: Timestamp = time
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a time of the service");
    u64::try_from(time.as_nanosecond()).expect("after 1970")
}

/// The attributes of an entry's record, by the table of the documentation: null means absent.
fn attributes(entry: &Value) -> Map<String, Value> {
    let user = |field: &str| entry["actorUser"][field].as_str();
    let names: Vec<&str> = ["firstName", "lastName"]
        .into_iter()
        .filter_map(user)
        .collect();
    let all = [
        ("log.record.uid", entry["id"].clone()),
        ("orgdata.activity.type", entry["type"].clone()),
        (
            "user.id",
            entry["actorUserId"]
                .as_i64()
                .map_or(Value::Null, |id| id.to_string().into()),
        ),
        (
            "user.full_name",
            if names.is_empty() {
                Value::Null
            } else {
                names.join(" ").into()
            },
        ),
        ("orgdata.target_user.id", entry["targetUserId"].clone()),
        (
            "orgdata.modified_target_user.id",
            entry["modifiedTargetUserId"].clone(),
        ),
        ("orgdata.organization.id", entry["organizationId"].clone()),
        (
            "orgdata.organization.name",
            entry["organization"]["name"].clone(),
        ),
        ("orgdata.deal.id", entry["dealId"].clone()),
        ("orgdata.deal.name", entry["deal"]["name"].clone()),
        ("orgdata.evaluation.id", entry["evaluationId"].clone()),
        (
            "orgdata.evaluation.title",
            entry["evaluation"]["title"].clone(),
        ),
        ("orgdata.task.id", entry["task"]["id"].clone()),
        ("orgdata.requirement.id", entry["requirement"]["id"].clone()),
        ("orgdata.meeting.id", entry["meeting"]["id"].clone()),
        ("orgdata.ticket.id", entry["ticket"]["id"].clone()),
        (
            "orgdata.team_request.id",
            entry["teamRequest"]["id"].clone(),
        ),
        (
            "orgdata.team_request.status",
            entry["teamRequest"]["status"].clone(),
        ),
    ];
    all.into_iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A record says all of an entry, and nothing else.
fn assert_says(record: &LogRecordJson, served: &Served) {
    let entry: Value = serde_json::from_str(&served.json).expect("the service serves JSON");
    let id = &served.id;
    assert_eq!(record.body, entry, "{id}");
    assert_eq!(record.attributes, attributes(&entry), "{id}");
    assert_eq!(
        record.event_name,
        format!("orgdata.audit.{}", served.activity_type.to_lowercase()),
        "{id}"
    );
    assert_eq!(
        (record.severity_number, record.severity_text.as_str()),
        (9, "INFO"),
        "{id}"
    );
    assert_eq!(
        record.time_unix_nano,
        nanoseconds(&entry["occurredAt"]),
        "{id}"
    );
    assert_eq!(
        (record.scope_name.as_str(), record.scope_version.as_str()),
        ("orgdata.audit", env!("CARGO_PKG_VERSION")),
        "{id}"
    );
}

/// Every id is among the records, none that the service never served; those that came again, with how often.
fn assert_complete(simulator: &Simulator, records: &[LogRecordJson]) -> BTreeMap<String, usize> {
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    for record in records {
        *came.entry(uid(record).to_owned()).or_default() += 1;
    }
    let served: BTreeSet<String> = simulator.entries().map(|entry| entry.id).collect();
    let missing: Vec<_> = served.iter().filter(|id| !came.contains_key(*id)).collect();
    assert!(
        missing.is_empty(),
        "{} of {} are missing: {missing:?}",
        missing.len(),
        served.len()
    );
    assert_eq!(
        came.len(),
        served.len(),
        "ids that the service never served"
    );
    came.retain(|_, times| *times > 1);
    came
}

/// The first time that each record came, in the order in which they came.
fn first_times(records: &[LogRecordJson]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    records
        .iter()
        .map(uid)
        .filter(|id| seen.insert(*id))
        .collect()
}

fn ids(simulator: &Simulator) -> Vec<String> {
    simulator.entries().map(|entry| entry.id).collect()
}

/// The spans that arrived so far.
fn spans(collector: &Collector) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let requests = collector.traces();
    let scopes = requests
        .iter()
        .flat_map(|request| list(&request["resourceSpans"]))
        .flat_map(|resource| list(&resource["scopeSpans"]));
    scopes.flat_map(|scope| list(&scope["spans"])).collect()
}

async fn every_event_arrives(way: Way) {
    let begun = Timestamp::now();
    let simulator = world(600).await;
    let collector = Collector::start().await;
    let wire = Tap::new(Some(address(&way.endpoint(&collector)))).await;
    let exporter = way
        .setup(&simulator, &format!("http://{}", wire.address()))
        .flag("--audit.start", "oldest")
        .flag("--api.page-size", "90")
        .flag("--otlp.batch-size", "128")
        .variable(
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test,team=a%20b",
        )
        .start()
        .await;
    exporter.born().await;
    simulator.add_events(400);
    let scrape = exporter.settled(400).await;

    let records = collector.records_at_least(1_000).await;
    let served: Vec<Served> = simulator.entries().collect();
    assert_eq!(
        records.iter().map(uid).collect::<Vec<_>>(),
        served
            .iter()
            .map(|entry| entry.id.as_str())
            .collect::<Vec<_>>(),
        "each once, oldest first"
    );
    for (record, entry) in records.iter().zip(&served) {
        assert_says(record, entry);
    }

    let instance = records[0].resource["service.instance.id"]
        .as_str()
        .expect("a string")
        .to_owned();
    assert!(instance.parse::<uuid::Uuid>().is_ok(), "{instance}");
    let resource = json!({
        "service.name": "orgdata-exporter",
        "service.version": env!("CARGO_PKG_VERSION"),
        "service.instance.id": instance,
        "deployment.environment.name": "test",
        "team": "a b",
    });
    assert!(
        records
            .iter()
            .all(|record| Value::from(record.resource.clone()) == resource),
        "{:?}",
        records[0].resource
    );
    let watched = begun.as_nanosecond() as u64..=Timestamp::now().as_nanosecond() as u64;
    assert!(
        records
            .iter()
            .all(|record| watched.contains(&record.observed_time_unix_nano)),
        "when the page arrived"
    );
    assert!(
        records
            .iter()
            .all(|record| record.trace_id.is_empty() && record.span_id.is_empty()),
        "tracing is off"
    );
    assert_eq!(
        scrape.value("orgdata_otlp_records_sent_total"),
        Some(1_000.0)
    );
    assert_eq!(scrape.sum("orgdata_otlp_request_failures_total"), 0.0);

    let plain: usize = served.iter().map(|entry| entry.json.len()).sum();
    let compressed = wire.asked() < plain as u64 / 2;
    assert_eq!(
        compressed,
        way.gzip,
        "{} bytes for {plain} of JSON",
        wire.asked()
    );
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn every_event_arrives_over_grpc() {
    every_event_arrives(Way::GRPC).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn every_event_arrives_over_grpc_with_gzip() {
    every_event_arrives(Way::GRPC.gzip()).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn every_event_arrives_over_http() {
    every_event_arrives(Way::HTTP).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn every_event_arrives_over_http_with_gzip() {
    every_event_arrives(Way::HTTP.gzip()).await;
}

/// The collector dies in the middle of a stream of records, the exporter dies while it is down, events go on throughout.
/// The simulator creates so many events in the milliseconds before now: where others were created meanwhile they would lie among these,
/// and come late.
async fn later(events: u64) {
    tokio::time::sleep(Duration::from_millis(events + 50)).await;
}

async fn an_outage_loses_nothing(way: Way, end: End) {
    let simulator = world(300).await;
    let mut collector = Collector::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let setup = way
        .setup(&simulator, &way.endpoint(&collector))
        .state(&directory.path().join("state.db"))
        .flag("--audit.start", "oldest")
        .flag("--otlp.batch-size", &BATCH.to_string())
        .flag("--shutdown.grace", "1s");
    let mut exporter = setup.start().await;
    collector.records_at_least(300).await;

    simulator.add_events(2_000);
    collector.records_at_least(301).await;
    collector.stop();
    later(500).await;
    simulator.add_events(500);
    let counted = |events: f64| {
        move |scrape: &exporter::Scrape| scrape.sum("orgdata_audit_events_total") == events
    };
    let scrape = exporter
        .until("metrics without a collector", counted(2_500.0))
        .await;
    let waiting = scrape
        .value("orgdata_otlp_backlog_records")
        .expect("always there");
    assert!(
        (500.0..=2_500.0).contains(&waiting),
        "{waiting} records wait"
    );

    match end {
        End::Terminate => assert!(exporter.terminate().await.success()),
        End::Kill => exporter.kill(),
    }
    later(300).await;
    simulator.add_events(300);
    exporter = setup.start().await;
    let scrape = exporter.until("all events", counted(2_800.0)).await;
    let waiting = scrape
        .value("orgdata_otlp_backlog_records")
        .expect("always there");
    assert!(
        (800.0..=2_800.0).contains(&waiting),
        "{waiting} records wait"
    );

    collector.start_again().await;
    exporter.settled(2_800).await;
    let records = collector.records();
    let again = assert_complete(&simulator, &records);
    println!(
        "{way:?}, {end:?}: {} of {} records came twice",
        again.len(),
        records.len()
    );
    // What the collector had written down when it died, and could not acknowledge any more: one request.
    assert!(
        again.len() <= BATCH && again.values().all(|times| *times == 2),
        "{again:?}"
    );
    assert_eq!(first_times(&records), ids(&simulator), "oldest first");
    let instances: BTreeSet<String> = records
        .iter()
        .map(|record| record.resource["service.instance.id"].to_string())
        .collect();
    assert_eq!(
        instances.len(),
        1,
        "one instance over restarts: {instances:?}"
    );
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn an_outage_with_a_restart_loses_nothing() {
    an_outage_loses_nothing(Way::GRPC, End::Terminate).await;
    an_outage_loses_nothing(Way::HTTP.gzip(), End::Terminate).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn an_outage_with_a_crash_loses_nothing() {
    an_outage_loses_nothing(Way::GRPC.gzip(), End::Kill).await;
    an_outage_loses_nothing(Way::HTTP, End::Kill).await;
}

/// Killed while records flow: a request that the collector took and the ledger had not yet noted comes again, and nothing else.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_crash_while_records_flow_sends_at_most_one_request_again() {
    const CRASHES: usize = 5;
    let simulator = world(0).await;
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let setup = Way::HTTP
        .setup(&simulator, &collector.http_endpoint())
        .state(&directory.path().join("state.db"))
        .flag("--otlp.batch-size", &BATCH.to_string());
    let mut exporter = setup.start().await;
    exporter.born().await;
    for crash in 1..=CRASHES {
        let before = collector.records().len();
        simulator.add_events(2_000);
        collector.records_at_least(before + 1).await;
        exporter.kill();
        exporter = setup.start().await;
        exporter.settled(2_000 * crash as u64).await;
    }
    let records = collector.records();
    let again = assert_complete(&simulator, &records);
    println!(
        "{} of {} records came twice after {CRASHES} crashes",
        again.len(),
        records.len()
    );
    assert!(
        records.len() - 2_000 * CRASHES <= CRASHES * BATCH,
        "{again:?}"
    );
    assert_eq!(first_times(&records), ids(&simulator), "oldest first");
}

/// A collector without memory refuses everything: the backlog waits, visibly, and drains into the one that replaces it.
async fn a_refusing_collector_holds_everything(way: Way) {
    let simulator = world(50).await;
    let refusing = Collector::start_refusing().await;
    let wire = Tap::new(Some(address(&way.endpoint(&refusing)))).await;
    let exporter = way
        .setup(&simulator, &format!("http://{}", wire.address()))
        .flag("--audit.start", "oldest")
        .start()
        .await;
    let waits = |records: f64| {
        move |scrape: &exporter::Scrape| {
            scrape.value("orgdata_otlp_backlog_records") == Some(records)
                && scrape.sum("orgdata_otlp_request_failures_total") > 0.0
        }
    };
    exporter.until("a backlog", waits(50.0)).await;
    simulator.add_events(150);
    let scrape = exporter.until("a larger backlog", waits(200.0)).await;
    assert_eq!(scrape.value("orgdata_up{loop=\"otlp\"}"), Some(0.0));
    assert_eq!(
        scrape.sum("orgdata_audit_events_total"),
        150.0,
        "the metrics go on"
    );
    assert!(scrape.has("orgdata_otlp_oldest_unsent_timestamp_seconds"));

    let collector = Collector::start().await;
    wire.lead(Some(address(&way.endpoint(&collector))));
    assert_eq!(refusing.records(), []);
    drop(refusing);
    let scrape = exporter.settled(150).await;
    assert_eq!(
        collector.records().iter().map(uid).collect::<Vec<_>>(),
        ids(&simulator)
    );
    assert_eq!(scrape.value("orgdata_up{loop=\"otlp\"}"), Some(1.0));
    for lost in [
        "orgdata_otlp_records_dead_lettered_total",
        "orgdata_otlp_records_rejected_total",
    ] {
        assert_eq!(scrape.value(lost), Some(0.0), "{lost}");
    }
    assert!(!scrape.has("orgdata_otlp_oldest_unsent_timestamp_seconds"));
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_that_refuses_over_grpc_holds_everything() {
    a_refusing_collector_holds_everything(Way::GRPC).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_collector_that_refuses_over_http_holds_everything() {
    a_refusing_collector_holds_everything(Way::HTTP).await;
}

/// The standard variables alone: records and spans go to one collector.
fn by_variables(simulator: &Running, collector: &Collector, way: Way) -> Setup {
    Setup::new(simulator)
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", &way.endpoint(collector))
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", way.protocol)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "100")
}

async fn delivered(simulator: &Simulator, exporter: &Exporter, events: u64) {
    exporter.born().await;
    simulator.add_events(events);
    exporter.settled(events).await;
}

async fn a_record_belongs_to_the_trace_of_its_poll(way: Way) {
    let simulator = world(10).await;
    let collector = Collector::start().await;
    let mut exporter = by_variables(&simulator, &collector, way).start().await;
    delivered(&simulator, &exporter, 30).await;
    // The last spans are sent when it ends.
    assert!(exporter.terminate().await.success());

    let polls: BTreeSet<(String, String)> = spans(&collector)
        .iter()
        .filter(|span| span["name"] == "poll")
        .map(|span| {
            (
                span["traceId"].as_str().unwrap_or_default().to_owned(),
                span["spanId"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    assert!(!polls.is_empty(), "no spans: {:?}", collector.traces());
    let records = collector.records();
    assert_eq!(records.len(), 30);
    for record in records {
        assert_eq!(record.trace_id.len(), 32);
        assert!(
            polls.contains(&(record.trace_id.clone(), record.span_id.clone())),
            "{record:?} is of no poll that arrived"
        );
    }
    let services: BTreeSet<String> = collector
        .traces()
        .iter()
        .flat_map(|request| {
            request["resourceSpans"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
        .flat_map(|resource| {
            resource["resource"]["attributes"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
        .filter(|attribute| attribute["key"] == "service.name")
        .map(|attribute| attribute["value"]["stringValue"].to_string())
        .collect();
    assert_eq!(
        services,
        BTreeSet::from(["\"orgdata-exporter\"".to_owned()])
    );
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_record_belongs_to_the_trace_of_its_poll_over_grpc() {
    a_record_belongs_to_the_trace_of_its_poll(Way::GRPC).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_record_belongs_to_the_trace_of_its_poll_over_http() {
    a_record_belongs_to_the_trace_of_its_poll(Way::HTTP).await;
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector and Prometheus"]
async fn an_exemplar_leads_to_the_poll_and_to_its_records() {
    let simulator = world(10).await;
    let collector = Collector::start().await;
    let exporter = by_variables(&simulator, &collector, Way::GRPC)
        .start()
        .await;
    let prometheus = Prometheus::start_current(&[&exporter.address().to_string()], "1s").await;
    delivered(&simulator, &exporter, 30).await;

    let traces: BTreeSet<(String, String)> = collector
        .records()
        .into_iter()
        .map(|record| (record.trace_id, record.span_id))
        .collect();
    let exemplars = prometheus
        .exemplars_until("orgdata_audit_events_total", |exemplars| {
            !exemplars.is_empty()
        })
        .await;
    for exemplar in exemplars {
        let label = |name: &str| {
            exemplar["labels"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        assert!(
            traces.contains(&(label("trace_id"), label("span_id"))),
            "{exemplar} leads to none of {traces:?}"
        );
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_dead_endpoint_for_spans_disturbs_nothing() {
    for way in [Way::GRPC, Way::HTTP] {
        let simulator = world(10).await;
        let collector = Collector::start().await;
        let dead = Tap::new(None).await;
        let mut exporter = by_variables(&simulator, &collector, way)
            .variable(
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                &format!("http://{}", dead.address()),
            )
            .start()
            .await;
        delivered(&simulator, &exporter, 30).await;
        let asked = Instant::now();
        assert!(exporter.terminate().await.success());
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "it ended after {:?}",
            asked.elapsed()
        );
        assert_eq!(
            collector.records().iter().map(uid).collect::<Vec<_>>(),
            ids(&simulator)[10..]
        );
        let complaints: Vec<Value> = exporter
            .log()
            .into_iter()
            .filter(|line| line["level"] == "WARN" || line["level"] == "ERROR")
            .collect();
        assert_eq!(
            complaints,
            Vec::<Value>::new(),
            "no log line for each span that was not sent"
        );
    }
}

#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_disabled_sdk_silences_the_spans_and_not_the_records() {
    let simulator = world(10).await;
    let collector = Collector::start().await;
    let mut exporter = by_variables(&simulator, &collector, Way::HTTP)
        .variable("OTEL_SDK_DISABLED", "true")
        .start()
        .await;
    delivered(&simulator, &exporter, 30).await;
    assert!(exporter.terminate().await.success());
    let records = collector.records();
    assert_eq!(
        records.iter().map(uid).collect::<Vec<_>>(),
        ids(&simulator)[10..]
    );
    assert!(records.iter().all(|record| record.trace_id.is_empty()));
    assert_eq!(collector.traces(), Vec::<Value>::new());
}
