//! Log records and requests as wire bytes. Numbers of fields are those of `LogRecord` in `logs.proto`.

use std::collections::BTreeMap;

use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::{ScopeLogs, SeverityNumber};
use prost::Message;
use prost::encoding::{fixed32, fixed64, int32};

use crate::encode::{self, Redaction};
use crate::place::{Found, Place, Scalar};

/// The maximum length of an attribute, in bytes. The body has the whole text.
const MAX_ATTRIBUTE: usize = 4096;

/// The field of `ScopeLogs` that holds a record.
const LOG_RECORD: u8 = 2;

/// The W3C trace flag of a sampled trace.
const SAMPLED: u32 = 1;

/// Appends one record to a buffer: the body, the attributes, and [the rest](Self::end).
#[derive(Debug)]
pub struct RecordWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

/// The fields of a record beside body, severity and attributes.
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

/// The resource and scope around the records of every request.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    /// `ResourceLogs.resource`, with tag and length.
    resource: Vec<u8>,
    /// `ScopeLogs.scope`, with tag and length.
    scope: Vec<u8>,
    /// `ScopeLogs.schema_url`, with tag and length.
    schema_url: Vec<u8>,
}

// === impl RecordWriter ===

impl<'o> RecordWriter<'o> {
    /// Begins a record as field 2 of `ScopeLogs`: tag, length, `LogRecord`. `severity` is INFO or WARN.
    pub fn begin(is_warning: bool, out: &'o mut Vec<u8>) -> Self {
        let start = encode::open(LOG_RECORD, out);
        // The time is known after the body.
        fixed64::encode(1, &0, out);
        let (severity, name) = match is_warning {
            false => (SeverityNumber::Info, "INFO"),
            true => (SeverityNumber::Warn, "WARN"),
        };
        int32::encode(2, &(severity as i32), out);
        encode::bytes(3, name.as_bytes(), out);
        Self { out, start }
    }

    /// Writes JSON as the body and returns the scalars at the places. See [`any_value`](crate::any_value).
    pub fn body<'a, P: Place>(
        &mut self,
        json: &'a str,
        redaction: &Redaction,
        repaired: &'a mut String,
    ) -> Found<'a> {
        let body = encode::open(5, self.out);
        let found = encode::any_value::<P>(json, redaction, repaired, self.out);
        encode::close(body, self.out);
        found
    }

    /// Writes an attribute, cut if it is longer than 4 KiB. An absent value is no attribute.
    pub fn attribute(&mut self, key: &str, value: &Scalar<'_>) {
        match value {
            Scalar::Absent => {}
            Scalar::Text(text) => {
                let text = Scalar::Text(encode::shortened(text, MAX_ATTRIBUTE));
                encode::key_value(6, key, &text, self.out);
            }
            value => encode::key_value(6, key, value, self.out),
        }
    }

    /// Ends the record.
    pub fn end(self, meta: &Meta<'_>) {
        let Self { out, start } = self;
        out[start + 1..start + 9].copy_from_slice(&meta.time.to_le_bytes());
        if let Some((trace_id, span_id)) = &meta.trace {
            fixed32::encode(8, &SAMPLED, out);
            encode::bytes(9, trace_id, out);
            encode::bytes(10, span_id, out);
        }
        fixed64::encode(11, &meta.observed, out);
        encode::bytes(12, meta.event_name.as_bytes(), out);
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
pub fn redacted<P: Place>(json: &str, redaction: &Redaction) -> String {
    if redaction.is_empty() {
        return json.to_owned();
    }
    let mut value = Vec::new();
    encode::any_value::<P>(json, redaction, &mut String::new(), &mut value);
    self::json(AnyValue::decode(value.as_slice()).ok()).to_string()
}

pub(crate) fn json(value: Option<AnyValue>) -> serde_json::Value {
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
    /// Returns the envelope of a resource, and of a scope with its name, its version, and the URL of the schema of its records.
    pub fn new(resource: BTreeMap<String, String>, [scope, version, schema]: [&str; 3]) -> Self {
        let mut envelope = Self::default();
        let start = encode::open(1, &mut envelope.resource);
        for (key, value) in resource {
            let value = Scalar::Text(value.into());
            encode::key_value(1, &key, &value, &mut envelope.resource);
        }
        encode::close(start, &mut envelope.resource);
        let start = encode::open(1, &mut envelope.scope);
        encode::bytes(1, scope.as_bytes(), &mut envelope.scope);
        encode::bytes(2, version.as_bytes(), &mut envelope.scope);
        encode::close(start, &mut envelope.scope);
        encode::bytes(3, schema.as_bytes(), &mut envelope.schema_url);
        envelope
    }

    /// Returns an upper bound of the size of a request without records.
    pub fn size(&self) -> usize {
        self.resource.len() + self.scope.len() + self.schema_url.len() + 32
    }

    /// Returns an `ExportLogsServiceRequest` with these encoded records.
    pub fn request<'a>(&self, records: impl Iterator<Item = &'a Bytes> + Clone) -> Bytes {
        let size: usize = records.clone().map(Bytes::len).sum();
        let scope_logs = self.scope.len() + size + self.schema_url.len();
        let resource_logs =
            self.resource.len() + 1 + prost::length_delimiter_len(scope_logs) + scope_logs;
        let mut request = Vec::with_capacity(self.size() + size);
        encode::header(1, resource_logs, &mut request);
        request.extend_from_slice(&self.resource);
        encode::header(2, scope_logs, &mut request);
        request.extend_from_slice(&self.scope);
        records.for_each(|record| request.extend_from_slice(record));
        request.extend_from_slice(&self.schema_url);
        request.into()
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
