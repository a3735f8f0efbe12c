//! From a stored entry to the log record that a collector gets: the table "Log records" of the public interface.
//!
//! The body is the entry's text as it is. Attributes are the members that people filter by.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use serde_json::value::RawValue;

use super::MAX_REQUEST;
use crate::audit::{Object, string, user_id};
use crate::ledger::{Checkpoint, RecordKind, Stored};
use crate::metrics::build::VERSION;

/// The scope of every record.
const SCOPE: &str = "orgdata.audit";

/// The version of the semantic conventions that `log.record.uid` and `user.*` are of.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The event name of a gap in the audit trail.
const GAP_EVENT: &str = "orgdata.exporter.gap";

/// The event name of a checkpoint.
const CHECKPOINT_EVENT: &str = "orgdata.exporter.checkpoint";

/// The beginning of the event names of audit entries.
const EVENT_PREFIX: &str = "orgdata.audit.";

/// The maximum length of an event name. The activity type is an open string.
const MAX_EVENT_NAME: usize = 128;

/// The maximum length of an attribute, in bytes. The body has the whole text.
const MAX_ATTRIBUTE: usize = 4096;

/// The maximum length of a body, in bytes: with attributes and resource it fits a request.
const MAX_BODY: usize = 2_750_000;

/// The room that a record takes in a request beside its own bytes.
const OVERHEAD: usize = 8;

/// The W3C trace flag of a sampled trace.
const SAMPLED: u32 = 1;

/// The resource and scope around the records of every request.
#[derive(Clone, Debug)]
pub struct Envelope {
    resource: Resource,
    /// The size of a request without records, in bytes.
    size: usize,
}

/// The attributes of a record.
struct Attributes(Vec<KeyValue>);

/// Returns the record that a collector gets.
pub fn log_record(stored: Stored<'_>) -> LogRecord {
    let mut attributes = Attributes(Vec::with_capacity(16));
    let object = Object::read(&stored.entry).unwrap_or_default();
    let activity_type = object.activity_type.and_then(string);
    let time = object.time().unwrap_or(stored.arrived);
    attributes.text("log.record.uid", object.id_text());
    if let Some(sequence) = stored.sequence {
        attributes.add("orgdata.record.sequence", Value::IntValue(sequence));
    }
    let (event_name, severity, severity_text) = match stored.kind {
        RecordKind::Gap => {
            attributes.scalar("orgdata.gap.reason", [object.reason]);
            (GAP_EVENT.to_owned(), SeverityNumber::Warn, "WARN")
        }
        RecordKind::Checkpoint => {
            attributes.checkpoint(serde_json::from_str(&stored.entry).unwrap_or_default());
            (CHECKPOINT_EVENT.to_owned(), SeverityNumber::Info, "INFO")
        }
        RecordKind::Entry => {
            let name = event_name(activity_type.as_deref().unwrap_or_default());
            attributes.text("orgdata.activity.type", activity_type);
            attributes.entry(&object, stored.hash);
            (name, SeverityNumber::Info, "INFO")
        }
    };
    let is_cut = stored.entry.len() > MAX_BODY;
    if is_cut {
        attributes.add("orgdata.record.cut", Value::BoolValue(true));
    }
    let body = shortened(stored.entry, MAX_BODY);
    let trace = stored.trace.as_deref().and_then(ids);
    let flags = if trace.is_some() { SAMPLED } else { 0 };
    let (trace_id, span_id) = trace.unwrap_or_default();
    LogRecord {
        time_unix_nano: nanoseconds(time),
        observed_time_unix_nano: nanoseconds(stored.arrived),
        severity_number: severity.into(),
        severity_text: severity_text.to_owned(),
        body: Some(text_value(body)),
        attributes: attributes.0,
        flags,
        trace_id,
        span_id,
        event_name,
        ..LogRecord::default()
    }
}

/// Returns a text of at most `max` bytes and a mark that says how much is missing.
fn shortened(text: Cow<'_, str>, max: usize) -> String {
    if text.len() <= max {
        return text.into_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let missing = text.len() - end;
    format!("{}[cut: {missing} more bytes]", &text[..end])
}

fn text_value(text: String) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(text)),
    }
}

/// Returns a number, a text or a truth value. A number that neither 64 bits nor a double hold is a text.
fn scalar(raw: &RawValue) -> Option<Value> {
    let text = raw.get();
    match text.as_bytes().first()? {
        b'"' => Some(Value::StringValue(attribute_text(string(raw)?))),
        b't' | b'f' => Some(Value::BoolValue(text == "true")),
        b'-' | b'0'..=b'9' => {
            let is_whole = !text.contains(['.', 'e', 'E']);
            let value = match is_whole {
                true => text.parse().ok().map(Value::IntValue),
                false => text
                    .parse()
                    .ok()
                    .filter(|value: &f64| value.is_finite())
                    .map(Value::DoubleValue),
            };
            Some(value.unwrap_or_else(|| Value::StringValue(attribute_text(text.into()))))
        }
        _ => None,
    }
}

fn attribute_text(text: Cow<'_, str>) -> String {
    shortened(text, MAX_ATTRIBUTE)
}

/// Returns `orgdata.audit.` and the activity type in lower case, with `_` for anything but letters, digits, `_` and `.`.
fn event_name(activity_type: &str) -> String {
    let tame = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '.') => c,
        _ => '_',
    };
    let known = if activity_type.is_empty() {
        "unknown"
    } else {
        activity_type
    };
    let mut name = EVENT_PREFIX.to_owned();
    name.extend(
        known
            .chars()
            .map(tame)
            .take(MAX_EVENT_NAME - EVENT_PREFIX.len()),
    );
    name
}

/// Returns nanoseconds since the epoch; 0 means unknown.
fn nanoseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

/// Returns the ids of trace and span in a `traceparent`.
fn ids(traceparent: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let trace = u128::from_str_radix(traceparent.get(3..35)?, 16).ok()?;
    let span = u64::from_str_radix(traceparent.get(36..52)?, 16).ok()?;
    Some((trace.to_be_bytes().into(), span.to_be_bytes().into()))
}

// === impl Attributes ===

impl Attributes {
    fn add(&mut self, key: &str, value: Value) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        });
    }

    fn text(&mut self, key: &str, text: Option<Cow<'_, str>>) {
        if let Some(text) = text {
            self.add(key, Value::StringValue(attribute_text(text)));
        }
    }

    /// Adds the first of these members that is a scalar.
    fn scalar<const N: usize>(&mut self, key: &str, places: [Option<&RawValue>; N]) {
        if let Some(value) = places.into_iter().flatten().find_map(scalar) {
            self.add(key, value);
        }
    }

    /// Adds what a checkpoint says.
    fn checkpoint(&mut self, said: Checkpoint) {
        let through = said.complete_through.map(|at| at.to_string().into());
        let dead = i64::try_from(said.dead_letters).unwrap_or(i64::MAX);
        let (last, dead) = (Value::IntValue(said.last_sequence), Value::IntValue(dead));
        self.add("orgdata.checkpoint.last_sequence", last);
        self.text("orgdata.checkpoint.complete_through", through);
        self.add("orgdata.checkpoint.dead_letters", dead);
        if let Some(ranges) = said.dead_letter_sequences.filter(|text| !text.is_empty()) {
            self.add(
                "orgdata.checkpoint.dead_letter_sequences",
                Value::StringValue(ranges),
            );
        }
        self.text("orgdata.checkpoint.version", Some(said.version.into()));
    }

    /// Adds what an entry says. Most ids are at two places: `dealId`, and `id` of `deal`.
    fn entry(&mut self, entry: &Object<'_>, hash: Option<Cow<'_, str>>) {
        let actor = Object::nested(entry.actor_user);
        let target = Object::nested(entry.target_user);
        let modified = Object::nested(entry.modified_target_user);
        let organization = Object::nested(entry.organization);
        let deal = Object::nested(entry.deal);
        let evaluation = Object::nested(entry.evaluation);
        let team_request = Object::nested(entry.team_request);
        // `user.id` is a string in the semantic conventions, so the other ids of users are strings too.
        for (key, id, user) in [
            ("user.id", entry.actor_user_id, &actor),
            ("orgdata.target_user.id", entry.target_user_id, &target),
            (
                "orgdata.modified_target_user.id",
                entry.modified_target_user_id,
                &modified,
            ),
        ] {
            self.text(key, user_id(id, user.id));
        }
        self.text("user.hash", hash);
        self.text("user.full_name", actor.full_name().map(Cow::Owned));
        self.scalar(
            "orgdata.organization.id",
            [entry.organization_id, organization.id],
        );
        self.scalar("orgdata.organization.name", [organization.name]);
        self.scalar("orgdata.deal.id", [entry.deal_id, deal.id]);
        self.scalar("orgdata.deal.name", [deal.name]);
        self.scalar(
            "orgdata.evaluation.id",
            [entry.evaluation_id, evaluation.id],
        );
        self.scalar("orgdata.evaluation.title", [evaluation.title]);
        for (key, object) in [
            ("orgdata.task.id", entry.task),
            ("orgdata.requirement.id", entry.requirement),
            ("orgdata.meeting.id", entry.meeting),
            ("orgdata.ticket.id", entry.ticket),
        ] {
            self.scalar(key, [Object::nested(object).id]);
        }
        self.scalar("orgdata.team_request.id", [team_request.id]);
        self.scalar("orgdata.team_request.status", [team_request.status]);
    }
}

// === impl Envelope ===

impl Envelope {
    /// Returns the envelope of a resource.
    pub fn new(resource: BTreeMap<String, String>) -> Self {
        let attributes = resource.into_iter().map(|(key, value)| KeyValue {
            key,
            value: Some(text_value(value)),
            ..KeyValue::default()
        });
        let resource = Resource {
            attributes: attributes.collect(),
            ..Resource::default()
        };
        let mut envelope = Self { resource, size: 0 };
        // Lengths grow with the records.
        envelope.size = envelope.around(Vec::new()).encoded_len() + OVERHEAD;
        envelope
    }

    /// Returns a request with the first of these lines that fit, but at least one, and their number.
    pub fn request<'a>(
        &self,
        lines: impl Iterator<Item = &'a [u8]>,
    ) -> (ExportLogsServiceRequest, usize) {
        let (mut records, mut size) = (Vec::new(), self.size);
        for line in lines {
            let record = log_record(Stored::read(line));
            size += record.encoded_len() + OVERHEAD;
            if size > MAX_REQUEST && !records.is_empty() {
                break;
            }
            records.push(record);
        }
        let count = records.len();
        (self.around(records), count)
    }

    fn around(&self, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: vec![ScopeLogs {
                    scope: Some(scope),
                    log_records,
                    schema_url: SCHEMA_URL.to_owned(),
                }],
                schema_url: String::new(),
            }],
        }
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
