//! An outbox record as an OTLP log record: the table "Log records" of the public interface.

use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

use super::scrub::Scrubber;
use super::value::{CUT_MARK, Mapped};
use crate::api::parse_time;
use crate::ledger::{OutboxRecord, RecordKind};

/// The event name of a hole in the audit trail.
pub const GAP_EVENT: &str = "orgdata.exporter.gap";

/// What event names of audit entries begin with.
const EVENT_PREFIX: &str = "orgdata.audit.";

/// The longest event name: the activity type is an open string of the service.
const MAX_EVENT_NAME: usize = 128;

/// The longest attribute, in bytes; the body has the whole text.
const MAX_ATTRIBUTE_BYTES: usize = 4096;

/// Ids and names: the attribute, and where the entry holds it. The first place that is neither null nor missing counts.
const ATTRIBUTES: [(&str, &[&[&str]]); 14] = [
    ("orgdata.target_user.id", &[&["targetUserId"], &["targetUser", "id"]]),
    ("orgdata.modified_target_user.id", &[&["modifiedTargetUserId"], &["modifiedTargetUser", "id"]]),
    ("orgdata.organization.id", &[&["organizationId"], &["organization", "id"]]),
    ("orgdata.organization.name", &[&["organization", "name"]]),
    ("orgdata.deal.id", &[&["dealId"], &["deal", "id"]]),
    ("orgdata.deal.name", &[&["deal", "name"]]),
    ("orgdata.evaluation.id", &[&["evaluationId"], &["evaluation", "id"]]),
    ("orgdata.evaluation.title", &[&["evaluation", "title"]]),
    ("orgdata.task.id", &[&["task", "id"]]),
    ("orgdata.requirement.id", &[&["requirement", "id"]]),
    ("orgdata.meeting.id", &[&["meeting", "id"]]),
    ("orgdata.ticket.id", &[&["ticket", "id"]]),
    ("orgdata.team_request.id", &[&["teamRequest", "id"]]),
    ("orgdata.team_request.status", &[&["teamRequest", "status"]]),
];

/// Turns outbox records into log records.
#[derive(Clone, Debug, Default)]
pub struct Mapper {
    scrubber: Scrubber,
}

// === impl Mapper ===

impl Mapper {
    /// A mapper that leaves out what the scrubber takes.
    pub fn new(scrubber: Scrubber) -> Self {
        Self { scrubber }
    }

    /// The record's JSON as it may leave: for dead letters.
    pub fn scrubbed(&self, record: &OutboxRecord) -> String {
        match record.kind {
            RecordKind::Entry => self.scrubber.scrub(&record.raw).into_owned(),
            RecordKind::Gap => record.raw.clone(),
        }
    }

    /// The log record. JSON that cannot be read becomes a string body: it is delivered all the same.
    pub fn map(&self, record: &OutboxRecord) -> LogRecord {
        let (json, gap) = match record.kind {
            RecordKind::Entry => (self.scrubber.scrub(&record.raw), false),
            RecordKind::Gap => (record.raw.as_str().into(), true),
        };
        let mapped = Mapped::from_json(&json).unwrap_or_else(|| Mapped::from_text(&json));
        let mut attributes = if gap { gap_attributes(&mapped.value) } else { entry_attributes(&mapped.value) };
        if mapped.cut {
            attributes.push(attribute("orgdata.record.cut", Value::BoolValue(true)));
        }
        let times: &[&str] = if gap { &["detectedAt"] } else { &["occurredAt", "createdAt"] };
        let arrived = nanoseconds(record.arrived_at).unwrap_or_default();
        let time = times.iter().find_map(|field| nanoseconds(parse_time(string(&mapped.value, &[field])?)?)).unwrap_or(arrived);
        let (severity_number, severity_text) = if gap { (SeverityNumber::Warn, "WARN") } else { (SeverityNumber::Info, "INFO") };
        LogRecord {
            time_unix_nano: time,
            observed_time_unix_nano: arrived,
            severity_number: severity_number.into(),
            severity_text: severity_text.to_owned(),
            event_name: if gap { GAP_EVENT.to_owned() } else { event_name(string(&mapped.value, &["type"]).unwrap_or_default()) },
            attributes,
            trace_id: record.trace.map(|trace| trace.trace_id.to_vec()).unwrap_or_default(),
            span_id: record.trace.map(|trace| trace.span_id.to_vec()).unwrap_or_default(),
            body: Some(mapped.value),
            dropped_attributes_count: 0,
            flags: 0,
        }
    }
}

fn entry_attributes(entry: &AnyValue) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(ATTRIBUTES.len() + 4);
    let mut add = |key: &str, value: Option<Value>| attributes.extend(value.map(|value| attribute(key, value)));
    add("log.record.uid", scalar(entry, &["id"]).map(into_string));
    add("orgdata.activity.type", string(entry, &["type"]).map(|text| Value::StringValue(text.to_owned())));
    let actor = scalar(entry, &["actorUserId"]).or_else(|| scalar(entry, &["actorUser", "id"]));
    add("user.id", actor.map(into_string));
    add("user.full_name", full_name(entry).map(Value::StringValue));
    for (key, places) in ATTRIBUTES {
        add(key, places.iter().find_map(|place| scalar(entry, place)));
    }
    attributes
}

fn gap_attributes(gap: &AnyValue) -> Vec<KeyValue> {
    let uid = scalar(gap, &["id"]).map(|id| attribute("log.record.uid", into_string(id)));
    let reason = scalar(gap, &["reason"]).map(|reason| attribute("orgdata.gap.reason", reason));
    uid.into_iter().chain(reason).collect()
}

/// First and last name of the actor, as far as they are known.
fn full_name(entry: &AnyValue) -> Option<String> {
    let names: Vec<&str> = ["firstName", "lastName"]
        .iter()
        .filter_map(|field| string(entry, &["actorUser", field]))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// `orgdata.audit.` and the activity type: lower case, with `_` for anything but ASCII letters, digits, `_` and `.`.
fn event_name(activity_type: &str) -> String {
    let tame = |letter: char| if letter.is_ascii_alphanumeric() || letter == '.' { letter.to_ascii_lowercase() } else { '_' };
    let activity_type = if activity_type.is_empty() { "unknown" } else { activity_type };
    EVENT_PREFIX.chars().chain(activity_type.chars().map(tame)).take(MAX_EVENT_NAME).collect()
}

/// What lies at a path of members.
fn at<'a>(value: &'a AnyValue, path: &[&str]) -> Option<&'a Value> {
    let value = value.value.as_ref()?;
    let Some((first, rest)) = path.split_first() else { return Some(value) };
    let Value::KvlistValue(list) = value else { return None };
    at(list.values.iter().find(|member| member.key == *first)?.value.as_ref()?, rest)
}

fn string<'a>(value: &'a AnyValue, path: &[&str]) -> Option<&'a str> {
    match at(value, path)? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// A string, number or truth value; anything else is a mistake of the service that the body shows.
fn scalar(value: &AnyValue, path: &[&str]) -> Option<Value> {
    match at(value, path)? {
        Value::ArrayValue(_) | Value::KvlistValue(_) => None,
        value => Some(value.clone()),
    }
}

fn into_string(value: Value) -> Value {
    Value::StringValue(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::DoubleValue(number) => number.to_string(),
        Value::BoolValue(value) => value.to_string(),
        _ => String::new(),
    })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::StringValue(mut text) if text.len() > MAX_ATTRIBUTE_BYTES => {
            let end = (0..=MAX_ATTRIBUTE_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
            let gone = text.len() - end;
            text.truncate(end);
            text.push_str(&format!("{CUT_MARK}{gone} more bytes]"));
            Value::StringValue(text)
        }
        value => value,
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// Nanoseconds since the epoch. 0 means "unknown" in OTLP, and what lies before the epoch cannot be said.
fn nanoseconds(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_nanosecond()).ok().filter(|nanoseconds| *nanoseconds > 0)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::ledger::{OutboxPosition, TraceContext};

    const ENTRY: &str = include_str!("../../tests/golden/entry.json");

    fn outbox_record(raw: &str) -> OutboxRecord {
        OutboxRecord {
            position: OutboxPosition { page: 1, index: 0 },
            kind: RecordKind::Entry,
            arrived_at: "2026-03-01T10:00:05Z".parse().expect("a time"),
            trace: Some(TraceContext { trace_id: [7; 16], span_id: [9; 8] }),
            raw: raw.to_owned(),
        }
    }

    fn map(raw: &str) -> LogRecord {
        Mapper::default().map(&outbox_record(raw))
    }

    fn keys(record: &LogRecord) -> Vec<&str> {
        record.attributes.iter().map(|attribute| attribute.key.as_str()).collect()
    }

    fn show(record: &LogRecord, key: &str) -> String {
        let attribute = record.attributes.iter().find(|attribute| attribute.key == key);
        attribute.map(|attribute| format!("{:?}", attribute.value.as_ref().and_then(|value| value.value.as_ref()))).unwrap_or_default()
    }

    /// The record as text, a field a line: what a reviewer reads, and bytes that must not change by themselves.
    fn golden(record: &LogRecord) -> String {
        use std::fmt::Write;

        fn value(any: Option<&AnyValue>, out: &mut String) {
            let _ = match any.and_then(|any| any.value.as_ref()) {
                None => write!(out, "null"),
                Some(Value::StringValue(text)) => write!(out, "{text:?}"),
                Some(Value::IntValue(number)) => write!(out, "{number}"),
                Some(Value::DoubleValue(number)) => write!(out, "{number:?} (double)"),
                Some(Value::BoolValue(value)) => write!(out, "{value}"),
                Some(Value::ArrayValue(items)) => {
                    for (index, item) in items.values.iter().enumerate() {
                        out.push_str(if index == 0 { "[" } else { ", " });
                        value(Some(item), out);
                    }
                    write!(out, "]")
                }
                Some(Value::KvlistValue(members)) => {
                    for (index, member) in members.values.iter().enumerate() {
                        let _ = write!(out, "{}{}: ", if index == 0 { "{" } else { ", " }, member.key);
                        value(member.value.as_ref(), out);
                    }
                    write!(out, "}}")
                }
                other => write!(out, "{other:?}"),
            };
        }

        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut out = String::new();
        let _ = writeln!(out, "Timestamp: {}\nObservedTimestamp: {}", record.time_unix_nano, record.observed_time_unix_nano);
        let _ = writeln!(out, "EventName: {}\nSeverity: {} {}", record.event_name, record.severity_number, record.severity_text);
        let _ = writeln!(out, "TraceId: {}\nSpanId: {}", hex(&record.trace_id), hex(&record.span_id));
        for attribute in &record.attributes {
            let _ = write!(out, "  {}: ", attribute.key);
            value(attribute.value.as_ref(), &mut out);
            out.push('\n');
        }
        out.push_str("Body:\n");
        let Some(Value::KvlistValue(body)) = record.body.as_ref().and_then(|body| body.value.as_ref()) else { return out };
        for member in &body.values {
            let _ = write!(out, "  {}: ", member.key);
            value(member.value.as_ref(), &mut out);
            out.push('\n');
        }
        let bytes = record.encode_to_vec();
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let _ = writeln!(out, "Encoded: {} bytes, FNV-1a {sum:016x}", bytes.len());
        out
    }

    #[track_caller]
    fn assert_golden(name: &str, record: &LogRecord) {
        let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
        let actual = golden(record);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &actual).expect("written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(actual, expected, "{name} differs; UPDATE_GOLDEN=1 writes it anew");
    }

    #[test]
    fn a_full_entry_is_the_table_of_the_interface() {
        assert_golden("log-record.txt", &map(ENTRY));
    }

    #[test]
    fn without_user_names_none_is_left_anywhere() {
        let mapper = Mapper::new(Scrubber { hide_user_names: true, redact: vec!["a.x".to_owned(), "text".to_owned()] });
        let record = mapper.map(&outbox_record(ENTRY));
        let shown = format!("{record:?}{}", mapper.scrubbed(&outbox_record(ENTRY)));
        for name in ["Ada", "Lovelace", "img.example", "\"B\"", "\"C\"", "größe", "user.full_name"] {
            assert!(!shown.contains(name), "{name}");
        }
        assert_golden("log-record-without-names.txt", &record);
    }

    #[test]
    fn a_gap_is_a_warning_of_its_own() {
        let raw = r#"{"id":"gap-1","type":"gap","detectedAt":"2026-03-01T09:00:00Z","reason":"retention","from":"2026-02-01T00:00:00Z",
            "to":null,"message":"entries were removed by the service before they were read"}"#;
        let record = Mapper::default().map(&OutboxRecord { kind: RecordKind::Gap, ..outbox_record(raw) });
        assert_golden("log-record-gap.txt", &record);
    }

    #[test]
    fn null_means_absent_and_ids_are_found_in_either_place() {
        let record = map(r#"{"id":"a","type":"X","dealId":null,"deal":{"id":5,"name":null},"actorUser":{"id":1.5},"task":{"id":null}}"#);
        assert_eq!(keys(&record), ["log.record.uid", "orgdata.activity.type", "user.id", "orgdata.deal.id"]);
        assert_eq!(show(&record, "orgdata.deal.id"), "Some(IntValue(5))");
        assert_eq!(show(&record, "user.id"), "Some(StringValue(\"1.5\"))");
    }

    #[test]
    fn wrong_types_are_skipped_and_the_body_keeps_them() {
        let record =
            map(r#"{"id":["a"],"type":7,"occurredAt":5,"createdAt":"nonsense","actorUserId":{"x":1},"deal":"none","actorUser":[]}"#);
        assert_eq!(keys(&record), Vec::<&str>::new());
        assert_eq!((record.event_name.as_str(), record.time_unix_nano), ("orgdata.audit.unknown", record.observed_time_unix_nano));
        assert!(format!("{:?}", record.body).contains("nonsense"));
    }

    #[test]
    fn an_entry_that_is_no_object_or_no_json_is_delivered_all_the_same() {
        for raw in ["", "[1", "\"x\"", "null", "{\"id\":\"a\""] {
            let record = map(raw);
            assert_eq!(record.event_name, "orgdata.audit.unknown");
            assert!(record.body.is_some() && record.observed_time_unix_nano > 0, "{raw}");
        }
    }

    #[test]
    fn the_time_is_the_first_that_can_be_read() {
        let time = |raw| map(raw).time_unix_nano;
        assert_eq!(time(r#"{"occurredAt":"1970-01-01T00:00:01Z","createdAt":"1970-01-01T00:00:02Z"}"#), 1_000_000_000);
        assert_eq!(time(r#"{"occurredAt":null,"createdAt":"1970-01-01T00:00:02Z"}"#), 2_000_000_000);
        assert_eq!(time(r#"{"occurredAt":"1969-12-31T00:00:00Z","createdAt":"1970-01-01T00:00:02Z"}"#), 2_000_000_000);
    }

    #[test]
    fn event_names_are_tame_and_bounded() {
        assert_eq!(event_name("Task.Moved-to Länder_2"), "orgdata.audit.task.moved_to_l_nder_2");
        assert_eq!(event_name(&"x".repeat(1000)).len(), MAX_EVENT_NAME);
    }

    #[test]
    fn a_long_title_is_cut_in_the_attribute_only() {
        let record = map(&format!(r#"{{"evaluation":{{"title":"{}"}}}}"#, "é".repeat(5000)));
        let shown = show(&record, "orgdata.evaluation.title");
        assert!(shown.contains("[cut: 5904 more bytes]"), "{}", &shown[shown.len() - 60..]);
        assert!(!format!("{:?}", record.body).contains("cut"));
        assert!(keys(&record).iter().all(|key| *key != "orgdata.record.cut"));
    }
}
