//! Log records and requests as wire bytes.

use std::collections::BTreeMap;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use crate::encode::{self, Redaction};
use crate::place::{Found, Place, Scalar};

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

/// Appends one record to a buffer: the body, the attributes, and [the rest](Self::end).
#[derive(Debug)]
pub struct RecordWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

/// What a record has beside body, severity and attributes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta<'m> {
    /// When it happened, in nanoseconds since the epoch.
    pub time: u64,
    /// When it was observed, in nanoseconds since the epoch.
    pub observed: u64,
    /// The name of the event.
    pub event_name: &'m str,
    /// The trace and span that it belongs to.
    pub trace: Option<Trace>,
}

/// The ids of a trace and of a span.
pub type Trace = ([u8; 16], [u8; 8]);

/// What surrounds the records of every request: resource and scope.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// `ResourceLogs.resource`, with tag and length.
    resource: Vec<u8>,
    /// `ScopeLogs.scope`, with tag and length.
    scope: Vec<u8>,
}

// === impl RecordWriter ===

impl<'o> RecordWriter<'o> {
    /// Begins a record as field 2 of `ScopeLogs`: tag, length, `LogRecord`. `severity` is INFO or WARN.
    pub fn begin(is_warning: bool, out: &'o mut Vec<u8>) -> Self {
        let start = encode::open(LOG_RECORD, out);
        // The time is known after the body.
        encode::fixed64(field::TIME_UNIX_NANO, 0, out);
        let (severity, name) = match is_warning {
            false => (SeverityNumber::Info, "INFO"),
            true => (SeverityNumber::Warn, "WARN"),
        };
        encode::varint(field::SEVERITY_NUMBER, severity as u64, out);
        encode::bytes(field::SEVERITY_TEXT, name.as_bytes(), out);
        Self { out, start }
    }

    /// Writes JSON as the body and returns the scalars at the places. See [`any_value`](crate::any_value).
    pub fn body<'a, P: Place>(&mut self, json: &'a str, redaction: &Redaction) -> Found<'a> {
        let body = encode::open(field::BODY, self.out);
        let found = encode::any_value::<P>(json, redaction, self.out);
        encode::close(body, self.out);
        found
    }

    /// Writes an attribute, cut if it is longer than 4 KiB. An absent value is no attribute.
    pub fn attribute(&mut self, key: &str, value: &Scalar<'_>) {
        match value {
            Scalar::Absent => {}
            Scalar::Text(text) => {
                let text = Scalar::Text(encode::shortened(text, MAX_ATTRIBUTE));
                encode::key_value(field::ATTRIBUTES, key, &text, self.out);
            }
            value => encode::key_value(field::ATTRIBUTES, key, value, self.out),
        }
    }

    /// Ends the record.
    pub fn end(self, meta: &Meta<'_>) {
        let Self { out, start } = self;
        out[start + 1..start + 9].copy_from_slice(&meta.time.to_le_bytes());
        if let Some((trace_id, span_id)) = &meta.trace {
            out.push(field::FLAGS << 3 | 5);
            out.extend_from_slice(&SAMPLED.to_le_bytes());
            encode::bytes(field::TRACE_ID, trace_id, out);
            encode::bytes(field::SPAN_ID, span_id, out);
        }
        encode::fixed64(field::OBSERVED_TIME_UNIX_NANO, meta.observed, out);
        encode::bytes(field::EVENT_NAME, meta.event_name.as_bytes(), out);
        encode::close(start, out);
    }
}

/// Returns the event name of an encoded record, and its body as JSON. A double that is not finite, which no JSON contains,
/// becomes null.
pub fn decode(record: &[u8]) -> (String, serde_json::Value) {
    let records = ScopeLogs::decode(record).map(|logs| logs.log_records);
    let record = records.unwrap_or_default().pop().unwrap_or_default();
    (record.event_name, json(record.body))
}

/// Returns JSON without what has to be redacted.
pub fn redacted(json: &str, redaction: &Redaction) -> String {
    if redaction.is_empty() {
        return json.to_owned();
    }
    let mut value = Vec::new();
    encode::any_value::<()>(json, redaction, &mut value);
    self::json(AnyValue::decode(value.as_slice()).ok()).to_string()
}

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

// === impl Envelope ===

impl Envelope {
    /// Returns the envelope of a resource, and of a scope with its name and version.
    pub fn new(resource: BTreeMap<String, String>, scope: &str, version: &str) -> Self {
        let attributes = resource.into_iter().map(|(key, value)| KeyValue {
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
            name: scope.to_owned(),
            version: version.to_owned(),
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

    /// Returns an `ExportLogsServiceRequest` with these encoded records.
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

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
