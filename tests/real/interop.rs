//! Another vendor's store has every field of a record as it was served.

use std::collections::BTreeMap;

use jiff::Timestamp;
use orgdata_simulator::Running;
use serde_json::{Value, json};

use crate::collector::attributes;
use crate::organization;
use crate::support::binary::exporter;
use crate::support::files::text;
use crate::support::parts::VictoriaLogs;

/// Delivers a hundred records of a new organization.
pub(crate) async fn delivered(endpoint: &str) -> Running {
    let simulator = organization(40, 0).await;
    let exporter = exporter(&simulator.base_url())
        .otlp("http/protobuf", endpoint)
        .flag("--audit.start", "oldest")
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .listening()
        .await;
    exporter.synced().await;
    simulator.add_events(60);
    exporter.settled(60).await;
    simulator
}

/// Returns the value that VictoriaLogs shows as an object with a field for each type, of which one is set.
fn shown(any: &Value) -> Value {
    let mut fields = any.as_object().unwrap().iter();
    match fields.find(|(_, value)| !value.is_null()) {
        None => Value::Null,
        Some((kind, list)) if kind == "ArrayValue" => values(list).iter().map(shown).collect(),
        Some((kind, list)) if kind == "KeyValueList" => shown_map(values(list)),
        Some((_, value)) => value.clone(),
    }
}

fn values(list: &Value) -> &[Value] {
    list["Values"].as_array().map_or(&[], Vec::as_slice)
}

fn shown_map(pairs: &[Value]) -> Value {
    let pair = |pair: &Value| (text(&pair["Key"]), shown(&pair["Value"]));
    Value::Object(pairs.iter().map(pair).collect())
}

#[tokio::test]
#[ignore = "needs VictoriaLogs"]
async fn victoria_logs_stores_every_field_that_it_knows() {
    let logs = VictoriaLogs::start().await;
    let simulator = delivered(&logs.endpoint()).await;
    let stored = logs.records_at_least(100).await;
    assert_eq!(stored.len(), 100);
    let id = |record: &Value| text(&record["log.record.uid"]);
    let stored = stored.into_iter().map(|record| (id(&record), record));
    let mut stored: BTreeMap<String, Value> = stored.collect();
    for served in simulator.entries() {
        let entry: Value = serde_json::from_str(&served.json).unwrap();
        let mut record = stored.remove(&served.id).unwrap();
        let mut take = |name: &str| text(&record.as_object_mut().unwrap().remove(name).unwrap());
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(time(&take("_time")), time(&text(&entry["occurredAt"])));
        let body: Vec<Value> = serde_json::from_str(&take("_msg")).unwrap();
        assert_eq!(shown_map(&body), entry);
        let fixed = ["severity", "service.name", "service.version"].map(&mut take);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(fixed, ["INFO", "orgdata-exporter", version]);
        for name in ["_stream", "_stream_id", "service.instance.id"] {
            assert!(!take(name).is_empty());
        }
        assert_eq!(record, texts(attributes(&entry)));
    }
    assert!(stored.is_empty(), "more than was served");
}

/// Returns an object whose members are texts, as stores have them.
fn texts(mut object: Value) -> Value {
    for value in object.as_object_mut().unwrap().values_mut() {
        if !value.is_string() {
            *value = json!(value.to_string());
        }
    }
    object
}
