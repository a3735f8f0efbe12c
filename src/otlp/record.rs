//! An outbox record as an encoded OTLP log record: the table "Log records" of the public interface.

use jiff::Timestamp;
use opentelemetry_proto::tonic::logs::v1::SeverityNumber;

use super::attributes::{attribute, of_entry, of_gap};
use super::fields::{Field, Fields};
use super::node::{Content, encode};
use super::scrub::Scrubber;
use super::value::Mapped;
use super::wire::{fixed32, fixed64, part, varint};
use crate::api::parse_time;
use crate::ledger::{OutboxRecord, RecordKind};

/// The event name of a hole in the audit trail.
pub const GAP_EVENT: &str = "orgdata.exporter.gap";

/// What event names of audit entries begin with.
const EVENT_PREFIX: &str = "orgdata.audit.";

/// The longest event name: the activity type is an open string of the service.
const MAX_EVENT_NAME: usize = 128;

/// At most the size of a record without its body and its attributes.
const MAX_HEAD_BYTES: usize = 256;

/// W3C trace flags, of a record with a trace: one that is not sampled is none here.
const SAMPLED: u32 = 1;

/// Field numbers of `LogRecord`, under the names they have there.
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

    /// The bytes of a `LogRecord`. JSON that cannot be read becomes a string body: it is delivered all the same.
    pub fn encode(&self, record: &OutboxRecord) -> Vec<u8> {
        let (json, gap) = match record.kind {
            RecordKind::Entry => (self.scrubber.scrub(&record.raw), false),
            RecordKind::Gap => (record.raw.as_str().into(), true),
        };
        let Mapped { nodes, cut } =
            Mapped::from_json(&json).unwrap_or_else(|| Mapped::from_text(&json));
        let fields = Fields::of(&nodes);
        let mut attributes = if gap {
            of_gap(&fields)
        } else {
            of_entry(&fields)
        };
        if cut {
            attributes.push(attribute("orgdata.record.cut", Content::Bool(true)));
        }
        let arrived = nanoseconds(record.arrived_at).unwrap_or_default();
        let times: &[Field] = if gap {
            &[Field::DetectedAt]
        } else {
            &[Field::OccurredAt, Field::CreatedAt]
        };
        let time = times
            .iter()
            .find_map(|field| nanoseconds(parse_time(fields.string((*field, None))?)?))
            .unwrap_or(arrived);
        let (severity_number, severity_text) = if gap {
            (SeverityNumber::Warn, "WARN")
        } else {
            (SeverityNumber::Info, "INFO")
        };

        // In the order of the field numbers, without what is empty: as the protocol's own types write it.
        let len = nodes
            .iter()
            .take(1)
            .chain(&attributes)
            .map(|node| node.encoded_len())
            .sum::<usize>();
        let mut buffer = Vec::with_capacity(len + MAX_HEAD_BYTES);
        if time > 0 {
            fixed64(field::TIME_UNIX_NANO, time, &mut buffer);
        }
        varint(field::SEVERITY_NUMBER, severity_number as u64, &mut buffer);
        part(field::SEVERITY_TEXT, severity_text.as_bytes(), &mut buffer);
        encode(&nodes, field::BODY, &mut buffer);
        for attribute in &attributes {
            attribute.encode(field::ATTRIBUTES, &mut buffer);
        }
        if let Some(trace) = &record.trace {
            fixed32(field::FLAGS, SAMPLED, &mut buffer);
            part(field::TRACE_ID, &trace.trace_id, &mut buffer);
            part(field::SPAN_ID, &trace.span_id, &mut buffer);
        }
        if arrived > 0 {
            fixed64(field::OBSERVED_TIME_UNIX_NANO, arrived, &mut buffer);
        }
        if gap {
            part(field::EVENT_NAME, GAP_EVENT.as_bytes(), &mut buffer);
        } else {
            part(
                field::EVENT_NAME,
                event_name(fields.string((Field::Type, None)).unwrap_or_default()).as_bytes(),
                &mut buffer,
            );
        }
        buffer
    }
}

/// `orgdata.audit.` and the activity type: lower case, with `_` for anything but ASCII letters, digits, `_` and `.`.
fn event_name(activity_type: &str) -> String {
    let tame = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '.' {
            letter.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let activity_type = if activity_type.is_empty() {
        "unknown"
    } else {
        activity_type
    };
    EVENT_PREFIX
        .chars()
        .chain(activity_type.chars().map(tame))
        .take(MAX_EVENT_NAME)
        .collect()
}

/// Nanoseconds since the epoch. 0 means "unknown" in OTLP, and what lies before the epoch cannot be said.
fn nanoseconds(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_nanosecond())
        .ok()
        .filter(|nanoseconds| *nanoseconds > 0)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::AnyValue;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use prost::Message;

    use super::*;
    use crate::ledger::{OutboxPosition, TraceContext};

    const ENTRY: &str = include_str!("../../tests/golden/entry.json");

    fn outbox_record(raw: &str) -> OutboxRecord {
        OutboxRecord {
            position: OutboxPosition { page: 1, index: 0 },
            kind: RecordKind::Entry,
            arrived_at: "2026-03-01T10:00:05Z".parse().expect("a time"),
            trace: Some(TraceContext {
                trace_id: [7; 16],
                span_id: [9; 8],
            }),
            raw: raw.to_owned(),
        }
    }

    /// The record that a collector reads. Its own types write the same bytes.
    fn decoded(mapper: &Mapper, record: &OutboxRecord) -> LogRecord {
        let bytes = mapper.encode(record);
        let decoded = LogRecord::decode(bytes.as_slice()).expect("decodes");
        assert!(decoded.encode_to_vec() == bytes, "{decoded:?}");
        assert!(bytes.capacity() < bytes.len() + MAX_HEAD_BYTES + 1);
        decoded
    }

    fn map(raw: &str) -> LogRecord {
        decoded(&Mapper::default(), &outbox_record(raw))
    }

    fn keys(record: &LogRecord) -> Vec<&str> {
        record
            .attributes
            .iter()
            .map(|attribute| attribute.key.as_str())
            .collect()
    }

    fn show(record: &LogRecord, key: &str) -> String {
        let attribute = record
            .attributes
            .iter()
            .find(|attribute| attribute.key == key);
        attribute
            .map(|attribute| {
                format!(
                    "{:?}",
                    attribute
                        .value
                        .as_ref()
                        .and_then(|value| value.value.as_ref())
                )
            })
            .unwrap_or_default()
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
                        let _ = write!(
                            out,
                            "{}{}: ",
                            if index == 0 { "{" } else { ", " },
                            member.key
                        );
                        value(member.value.as_ref(), out);
                    }
                    write!(out, "}}")
                }
                other => write!(out, "{other:?}"),
            };
        }

        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        let mut out = String::new();
        let _ = writeln!(
            out,
            "Timestamp: {}\nObservedTimestamp: {}",
            record.time_unix_nano, record.observed_time_unix_nano
        );
        let _ = writeln!(
            out,
            "EventName: {}\nSeverity: {} {}",
            record.event_name, record.severity_number, record.severity_text
        );
        let _ = writeln!(
            out,
            "TraceId: {}\nSpanId: {}\nFlags: {}",
            hex(&record.trace_id),
            hex(&record.span_id),
            record.flags
        );
        for attribute in &record.attributes {
            let _ = write!(out, "  {}: ", attribute.key);
            value(attribute.value.as_ref(), &mut out);
            out.push('\n');
        }
        out.push_str("Body:\n");
        let Some(Value::KvlistValue(body)) =
            record.body.as_ref().and_then(|body| body.value.as_ref())
        else {
            return out;
        };
        for member in &body.values {
            let _ = write!(out, "  {}: ", member.key);
            value(member.value.as_ref(), &mut out);
            out.push('\n');
        }
        let bytes = record.encode_to_vec();
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
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
        assert_eq!(
            actual, expected,
            "{name} differs; UPDATE_GOLDEN=1 writes it anew"
        );
    }

    #[test]
    fn a_full_entry_is_the_table_of_the_interface() {
        assert_golden("log-record.txt", &map(ENTRY));
    }

    #[test]
    fn without_user_names_none_is_left_anywhere() {
        let mapper = Mapper::new(Scrubber {
            hide_user_names: true,
            redact: vec!["a.x".to_owned(), "text".to_owned()],
        });
        let record = decoded(&mapper, &outbox_record(ENTRY));
        let shown = format!("{record:?}{}", mapper.scrubbed(&outbox_record(ENTRY)));
        for name in [
            "Ada",
            "Lovelace",
            "img.example",
            "\"B\"",
            "\"C\"",
            "größe",
            "user.full_name",
        ] {
            assert!(!shown.contains(name), "{name}");
        }
        assert_golden("log-record-without-names.txt", &record);
    }

    #[test]
    fn a_gap_is_a_warning_of_its_own() {
        let raw = r#"{"id":"gap-1","type":"gap","detectedAt":"2026-03-01T09:00:00Z","reason":"retention","from":"2026-02-01T00:00:00Z",
            "to":null,"message":"entries were removed by the service before they were read"}"#;
        let record = decoded(
            &Mapper::default(),
            &OutboxRecord {
                kind: RecordKind::Gap,
                ..outbox_record(raw)
            },
        );
        assert_golden("log-record-gap.txt", &record);
    }

    #[test]
    fn null_means_absent_and_ids_are_found_in_either_place() {
        let record = map(
            r#"{"id":"a","type":"X","dealId":null,"deal":{"id":5,"name":null},"actorUser":{"id":1.5},"task":{"id":null}}"#,
        );
        assert_eq!(
            keys(&record),
            [
                "log.record.uid",
                "orgdata.activity.type",
                "user.id",
                "orgdata.deal.id"
            ]
        );
        assert_eq!(show(&record, "orgdata.deal.id"), "Some(IntValue(5))");
        assert_eq!(show(&record, "user.id"), "Some(StringValue(\"1.5\"))");
    }

    #[test]
    fn wrong_types_are_skipped_and_the_body_keeps_them() {
        let record = map(
            r#"{"id":["a"],"type":7,"occurredAt":5,"createdAt":"nonsense","actorUserId":{"x":1},"deal":"none","actorUser":[]}"#,
        );
        assert_eq!(keys(&record), Vec::<&str>::new());
        assert_eq!(
            (record.event_name.as_str(), record.time_unix_nano),
            ("orgdata.audit.unknown", record.observed_time_unix_nano)
        );
        assert!(format!("{:?}", record.body).contains("nonsense"));
    }

    #[test]
    fn an_entry_that_is_no_object_or_no_json_is_delivered_all_the_same() {
        for raw in ["", "[1", "\"x\"", "null", "{\"id\":\"a\""] {
            let record = map(raw);
            assert_eq!(record.event_name, "orgdata.audit.unknown");
            assert!(
                record.body.is_some() && record.observed_time_unix_nano > 0,
                "{raw}"
            );
        }
    }

    #[test]
    fn the_time_is_the_first_that_can_be_read() {
        let time = |raw| map(raw).time_unix_nano;
        assert_eq!(
            time(r#"{"occurredAt":"1970-01-01T00:00:01Z","createdAt":"1970-01-01T00:00:02Z"}"#),
            1_000_000_000
        );
        assert_eq!(
            time(r#"{"occurredAt":null,"createdAt":"1970-01-01T00:00:02Z"}"#),
            2_000_000_000
        );
        assert_eq!(
            time(r#"{"occurredAt":"1969-12-31T00:00:00Z","createdAt":"1970-01-01T00:00:02Z"}"#),
            2_000_000_000
        );
    }

    #[test]
    fn event_names_are_tame_and_bounded() {
        assert_eq!(
            event_name("Task.Moved-to Länder_2"),
            "orgdata.audit.task.moved_to_l_nder_2"
        );
        assert_eq!(event_name(&"x".repeat(1000)).len(), MAX_EVENT_NAME);
    }

    #[test]
    fn a_long_title_is_cut_in_the_attribute_only() {
        let record = map(&format!(
            r#"{{"evaluation":{{"title":"{}"}}}}"#,
            "é".repeat(5000)
        ));
        let shown = show(&record, "orgdata.evaluation.title");
        assert!(
            shown.contains("[cut: 5904 more bytes]"),
            "{}",
            &shown[shown.len() - 60..]
        );
        assert!(!format!("{:?}", record.body).contains("cut"));
        assert!(keys(&record).iter().all(|key| *key != "orgdata.record.cut"));
    }
}
