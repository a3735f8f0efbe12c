//! Log records and requests as wire bytes: the table "Log records" of the public interface.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use orgdata_api::parse_time;
use prost::Message;

use super::encode::{self, REDACTED, Redaction};
use super::fields::{Fields, Place, Scalar};
use crate::ledger::{Encode, RawRecord, RecordKind};
use crate::metrics::build::VERSION;

/// The scope of every record.
pub const SCOPE: &str = "orgdata.audit";

/// The event name of a gap in the audit trail.
pub const GAP_EVENT: &str = "orgdata.exporter.gap";

/// The beginning of the event names of audit entries.
const EVENT_PREFIX: &str = "orgdata.audit.";

/// The maximum length of an event name. The activity type is an open string.
const MAX_EVENT_NAME: usize = 128;

/// The maximum length of an attribute, in bytes. The body has the whole text.
const MAX_ATTRIBUTE: usize = 4096;

/// The field of `ScopeLogs` that holds a record.
const LOG_RECORD: u8 = 2;

/// The W3C trace flag of a sampled trace.
const SAMPLED: u32 = 1;

/// Field numbers of `LogRecord`.
mod field {
    pub(super) const TIME_UNIX_NANO: u8 = 1;
    pub(super) const SEVERITY_NUMBER: u8 = 2;
    pub(super) const SEVERITY_TEXT: u8 = 3;
    pub(super) const BODY: u8 = 5;
    pub(super) const ATTRIBUTES: u8 = 6;
    pub(super) const FLAGS: u8 = 8;
    pub(super) const TRACE_ID: u8 = 9;
    pub(super) const SPAN_ID: u8 = 10;
    pub(super) const OBSERVED_TIME_UNIX_NANO: u8 = 11;
    pub(super) const EVENT_NAME: u8 = 12;
}

/// Turns entries and gaps into log records, without what the redaction names.
#[derive(Clone, Debug, Default)]
pub struct RecordEncoder(pub Redaction);

/// What surrounds the records of every request: resource and scope.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// `ResourceLogs.resource`, with tag and length.
    resource: Vec<u8>,
    /// `ScopeLogs.scope`, with tag and length.
    scope: Vec<u8>,
}

// === impl RecordEncoder ===

impl RecordEncoder {
    /// Appends the rest of a record: everything that follows from the members of its body.
    fn finish(&self, record: &RawRecord<'_>, fields: &Fields<'_>, out: &mut Vec<u8>) {
        let is_gap = record.kind == RecordKind::Gap;
        let mut add = |key, value: &Scalar<'_>| attribute(key, value, out);
        add("log.record.uid", &as_text(fields.get(Place::Id)));
        if is_gap {
            add("orgdata.gap.reason", fields.get(Place::Reason));
        } else {
            let activity_type = fields.text(Place::Type).map(|text| text.into());
            add(
                "orgdata.activity.type",
                &activity_type.map_or(Scalar::Absent, Scalar::Text),
            );
            add("user.id", &as_text(fields.get(Place::ActorUserId)));
            add("user.full_name", &full_name(fields));
            for (key, place) in Place::ATTRIBUTES {
                add(key, fields.get(*place));
            }
        }
        if fields.is_cut {
            add("orgdata.record.cut", &Scalar::Bool(true));
        }
        if let Some(trace) = &record.trace {
            out.push(field::FLAGS << 3 | 5);
            out.extend_from_slice(&SAMPLED.to_le_bytes());
            encode::bytes(field::TRACE_ID, &trace.trace_id, out);
            encode::bytes(field::SPAN_ID, &trace.span_id, out);
        }
        let arrived = nanoseconds(record.arrived_at).unwrap_or_default();
        encode::fixed64(field::OBSERVED_TIME_UNIX_NANO, arrived, out);
        let name = encode::open(field::EVENT_NAME, out);
        if is_gap {
            out.extend_from_slice(GAP_EVENT.as_bytes());
        } else {
            event_name(fields.text(Place::Type).unwrap_or_default(), out);
        }
        encode::close(name, out);
    }

    /// Appends JSON as an `AnyValue`. What is not JSON becomes a string, so that it is delivered all the same.
    fn body<'a>(
        &self,
        kind: RecordKind,
        json: &'a str,
        repaired: &'a mut String,
        out: &mut Vec<u8>,
    ) -> Fields<'a> {
        let is_redacted = kind == RecordKind::Entry && !self.0.is_empty();
        let redaction = is_redacted.then_some(&self.0);
        if let Some(fields) = encode::json(json, false, redaction, out) {
            return fields;
        }
        *repaired = encode::repair(json);
        encode::json(repaired, true, redaction, out).unwrap_or_else(|| {
            // What cannot be searched is not shown.
            if is_redacted {
                let text = format!("{REDACTED} {} bytes that are not JSON", json.len());
                encode::plain(&text, out)
            } else {
                encode::plain(json, out)
            }
        })
    }
}

impl Encode for RecordEncoder {
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>) {
        let start = encode::open(LOG_RECORD, out);
        // The time is known after the body.
        encode::fixed64(field::TIME_UNIX_NANO, 0, out);
        let time = start + 1..out.len();
        let (severity, name, times): (_, _, &[Place]) = match record.kind {
            RecordKind::Entry => (
                SeverityNumber::Info,
                "INFO",
                &[Place::OccurredAt, Place::CreatedAt],
            ),
            RecordKind::Gap => (SeverityNumber::Warn, "WARN", &[Place::DetectedAt]),
        };
        encode::varint(field::SEVERITY_NUMBER, severity as u64, out);
        encode::bytes(field::SEVERITY_TEXT, name.as_bytes(), out);
        let body = encode::open(field::BODY, out);
        let mut repaired = String::new();
        let fields = self.body(record.kind, record.json, &mut repaired, out);
        encode::close(body, out);
        let nanoseconds = times
            .iter()
            .find_map(|place| nanoseconds(parse_time(&fields.get(*place).to_text()?)?))
            .or_else(|| nanoseconds(record.arrived_at))
            .unwrap_or_default();
        out[time].copy_from_slice(&nanoseconds.to_le_bytes());
        self.finish(record, &fields, out);
        encode::close(start, out);
    }

    fn redact(&self, json: &str) -> String {
        if self.0.is_empty() {
            return json.to_owned();
        }
        let mut value = Vec::new();
        self.body(RecordKind::Entry, json, &mut String::new(), &mut value);
        self::json(AnyValue::decode(value.as_slice()).ok()).to_string()
    }

    fn decode(&self, record: &[u8]) -> (RecordKind, String) {
        let records = ScopeLogs::decode(record).map(|logs| logs.log_records);
        let record = records.unwrap_or_default().pop().unwrap_or_default();
        let kind = if record.event_name == GAP_EVENT {
            RecordKind::Gap
        } else {
            RecordKind::Entry
        };
        (kind, json(record.body).to_string())
    }
}

/// Appends an attribute. Absent means no attribute.
fn attribute(key: &str, value: &Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Absent => {}
        Scalar::Text(text) => {
            let text = Scalar::Text(encode::shortened(text, MAX_ATTRIBUTE));
            encode::key_value(field::ATTRIBUTES, key, &text, out);
        }
        value => encode::key_value(field::ATTRIBUTES, key, value, out),
    }
}

fn as_text<'a>(value: &'a Scalar<'_>) -> Scalar<'a> {
    value.to_text().map_or(Scalar::Absent, Scalar::Text)
}

/// Returns the known ones of first and last name of the actor.
fn full_name<'a>(fields: &'a Fields<'_>) -> Scalar<'a> {
    let name = |place| fields.text(place).map(str::trim).filter(|n| !n.is_empty());
    match (name(Place::ActorFirstName), name(Place::ActorLastName)) {
        (Some(first), Some(last)) => Scalar::Text(format!("{first} {last}").into()),
        (first, last) => first
            .or(last)
            .map_or(Scalar::Absent, |name| Scalar::Text(name.into())),
    }
}

/// Appends `orgdata.audit.` and the activity type in lower case, with `_` for anything but letters, digits, `_` and `.`.
fn event_name(activity_type: &str, out: &mut Vec<u8>) {
    let tame = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.') => c as u8,
        _ => b'_',
    };
    let activity_type = if activity_type.is_empty() {
        "unknown"
    } else {
        activity_type
    };
    out.extend_from_slice(EVENT_PREFIX.as_bytes());
    let room = MAX_EVENT_NAME - EVENT_PREFIX.len();
    out.extend(activity_type.chars().map(tame).take(room));
}

/// Returns nanoseconds since the epoch. OTLP has no times before it, and 0 means unknown.
fn nanoseconds(time: Timestamp) -> Option<u64> {
    let nanoseconds = u64::try_from(time.as_nanosecond()).ok()?;
    (nanoseconds > 0).then_some(nanoseconds)
}

// === impl Envelope ===

impl Envelope {
    /// Returns the envelope of a resource.
    pub fn new(attributes: BTreeMap<String, String>) -> Self {
        let attributes = attributes.into_iter().map(|(key, value)| KeyValue {
            key,
            value: Some(AnyValue {
                value: Some(Value::StringValue(value)),
            }),
            ..KeyValue::default()
        });
        let resource = Resource {
            attributes: attributes.collect(),
            ..Resource::default()
        };
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let (mut resource_bytes, mut scope_bytes) = (Vec::new(), Vec::new());
        encode::bytes(1, &resource.encode_to_vec(), &mut resource_bytes);
        encode::bytes(1, &scope.encode_to_vec(), &mut scope_bytes);
        Self {
            resource: resource_bytes,
            scope: scope_bytes,
        }
    }

    /// Returns an upper bound of the size of a request without records.
    pub fn size(&self) -> usize {
        self.resource.len() + self.scope.len() + 32
    }

    /// Returns an `ExportLogsServiceRequest` with these records, each a field 2 of `ScopeLogs` with tag and length.
    pub fn request<'a>(&self, records: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
        let size: usize = records.clone().map(Bytes::len).sum();
        let scope_logs = self.scope.len() + size;
        let resource_logs =
            self.resource.len() + 1 + prost::length_delimiter_len(scope_logs) + scope_logs;
        let mut request = Vec::with_capacity(self.size() + size);
        encode::header(1, resource_logs, &mut request);
        request.extend_from_slice(&self.resource);
        encode::header(2, scope_logs, &mut request);
        request.extend_from_slice(&self.scope);
        records.for_each(|record| request.extend_from_slice(record));
        request.into()
    }
}

/// Returns a value as JSON. A double that is not finite, which no JSON contains, becomes null.
fn json(value: Option<AnyValue>) -> serde_json::Value {
    match value.and_then(|any| any.value) {
        Some(Value::StringValue(text)) => text.into(),
        Some(Value::BoolValue(value)) => value.into(),
        Some(Value::IntValue(value)) => value.into(),
        Some(Value::DoubleValue(value)) => value.into(),
        Some(Value::ArrayValue(array)) => {
            let elements = array.values.into_iter();
            elements.map(|element| json(Some(element))).collect()
        }
        Some(Value::KvlistValue(map)) => {
            let members = map.values.into_iter();
            members
                .map(|member| (member.key, json(member.value)))
                .collect()
        }
        _ => serde_json::Value::Null,
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
