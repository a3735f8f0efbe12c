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
