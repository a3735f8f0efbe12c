use opentelemetry_proto::tonic::logs::v1::{LogRecord, ScopeLogs};
use prost::Message;

use super::*;
use crate::ledger::TraceContext;

const ENTRY: &str = include_str!("../../tests/golden/entry.json");

fn raw(json: &str) -> RawRecord<'_> {
    RawRecord {
        kind: RecordKind::Entry,
        json,
        created_at: Timestamp::UNIX_EPOCH,
        arrived_at: "2026-03-01T10:00:05Z".parse().expect("a time"),
        trace: Some(TraceContext {
            trace_id: [7; 16],
            span_id: [9; 8],
        }),
    }
}

/// The record that a collector reads. The types of the protocol write the same bytes.
fn decoded(encoder: &RecordEncoder, record: &RawRecord<'_>) -> LogRecord {
    let mut bytes = Vec::new();
    encoder.encode(record, &mut bytes);
    let mut scope = ScopeLogs::decode(bytes.as_slice()).expect("decodes");
    assert!(scope.encode_to_vec() == bytes, "{scope:?}");
    scope.log_records.pop().expect("a record")
}

fn map(json: &str) -> LogRecord {
    decoded(&RecordEncoder::default(), &raw(json))
}

fn keys(record: &LogRecord) -> Vec<&str> {
    let attributes = record.attributes.iter();
    attributes.map(|attribute| attribute.key.as_str()).collect()
}

fn show(record: &LogRecord, key: &str) -> String {
    let mut attributes = record.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.clone()?.value);
    value.map_or_else(String::new, |value| format!("{value:?}"))
}

/// Compares a record, a field a line, with a file that a reviewer reads.
#[track_caller]
fn assert_golden(name: &str, record: &LogRecord) {
    let mut actual = format!(
        "Timestamp: {}\nObservedTimestamp: {}\nEventName: {}\nSeverity: {} {}\nTraceId: {:02x?}\nSpanId: {:02x?}\nFlags: {}\n",
        record.time_unix_nano,
        record.observed_time_unix_nano,
        record.event_name,
        record.severity_number,
        record.severity_text,
        record.trace_id,
        record.span_id,
        record.flags
    );
    for key in keys(record) {
        actual += &format!("  {key}: {}\n", show(record, key));
    }
    let scope = ScopeLogs {
        log_records: vec![record.clone()],
        ..ScopeLogs::default()
    };
    let (_, body) = RecordEncoder::default().decode(&scope.encode_to_vec());
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    for (key, value) in body.as_object().unwrap() {
        actual += &format!("Body {key}: {value}\n");
    }
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name}: UPDATE_GOLDEN=1 writes it anew");
}

#[test]
fn a_full_entry_is_the_table_of_the_interface() {
    assert_golden("log-record.txt", &map(ENTRY));
}

#[test]
fn without_users_none_is_left_anywhere() {
    let paths = ["a.x".to_owned(), "metadata.text".to_owned()];
    let encoder = RecordEncoder::new(ActorPrivacy::None, &paths);
    let record = decoded(&encoder, &raw(ENTRY));
    let wrapped = format!(r#"[{{"entry":{ENTRY}}}]"#);
    let shown = [ENTRY, &wrapped].map(|json| encoder.redact(json)).concat();
    let shown = format!("{record:?}{shown}");
    let names = "Ada Lovelace img.example \"B\" \"C\" größe user.full_name";
    for name in names.split(' ') {
        assert!(!shown.contains(name), "{name}");
    }
    assert_golden("log-record-without-users.txt", &record);
}

/// Asserts what a record and a dead letter of an entry say, and that an encoder without redaction changes nothing.
#[track_caller]
fn assert_redacted(encoder: &RecordEncoder, json: &str, expected: &str) {
    let mut record = Vec::new();
    encoder.encode(&raw(json), &mut record);
    assert_eq!(encoder.decode(&record).1, expected, "the record of {json}");
    assert_eq!(encoder.redact(json), expected, "the dead letter of {json}");
    assert_eq!(RecordEncoder::default().redact(json), json);
}

/// The rules of redaction are tested in `otlp-logs`; here it is the table of an entry's fields that they are applied to.
#[test]
fn without_users_only_what_the_specification_names_is_left() {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a secret of enough bytes");
    for actor in [ActorPrivacy::None, ActorPrivacy::Hash(key)] {
        let encoder = RecordEncoder::new(actor, &[]);
        for (json, expected) in [
            (
                r#"{"actorUser":{"id":1,"firstName":"A"},"targetUser":{"id":1},"modifiedTargetUser":"Ada"}"#,
                r#"{"actorUser":null,"targetUser":null,"modifiedTargetUser":null}"#,
            ),
            (
                r#"{"actorUserId":1,"targetUserId":2,"modifiedTargetUserId":"Ada"}"#,
                r#"{"actorUserId":null,"targetUserId":null,"modifiedTargetUserId":null}"#,
            ),
            // New fields beside a user, in an entry and in nested objects.
            (
                r#"{"actorUserEmail":"z@x.test","actor":{"email":"z@x.test"},"type":"X"}"#,
                r#"{"type":"X"}"#,
            ),
            (
                r#"{"evaluation":{"id":1,"title":"E","deal":{"id":2,"name":"D","owner":"Ada"}}}"#,
                r#"{"evaluation":{"id":1,"title":"E","deal":{"id":2,"name":"D"}}}"#,
            ),
            (
                r#"{"teamRequest":{"id":1,"status":"O","teamRequestType":{"id":2,"name":"L","by":"Ada"},"by":"Ada"}}"#,
                r#"{"teamRequest":{"id":1,"status":"O","teamRequestType":{"id":2,"name":"L"}}}"#,
            ),
            // metadata is free of form.
            (
                r#"{"metadata":{"actorUser":{"email":"z@x.test"}}}"#,
                r#"{"metadata":{"actorUser":{"email":"z@x.test"}}}"#,
            ),
        ] {
            assert_redacted(&encoder, json, expected);
        }
    }
}

#[test]
fn a_path_is_redacted_in_metadata_and_may_be_all_of_it() {
    for (path, expected) in [
        (
            "contact.email",
            r#"{"email":1,"metadata":{"contact":{"email":"[REDACTED]"}}}"#,
        ),
        ("metadata", r#"{"email":1,"metadata":"[REDACTED]"}"#),
    ] {
        let encoder = RecordEncoder::new(ActorPrivacy::Full, &[path.to_owned()]);
        let json = r#"{"email":1,"metadata":{"contact":{"email":2}}}"#;
        assert_redacted(&encoder, json, expected);
    }
}

#[test]
fn a_gap_is_a_warning_of_its_own() {
    let json = r#"{"id":"gap-1","type":"gap","detectedAt":"2026-03-01T09:00:00Z","reason":"retention","from":"2026-02-01T00:00:00Z",
            "to":null,"message":"entries were removed by the service before they were read"}"#;
    let gap = RawRecord {
        kind: RecordKind::Gap,
        ..raw(json)
    };
    let record = decoded(&RecordEncoder::default(), &gap);
    assert_golden("log-record-gap.txt", &record);
}

#[test]
fn a_dead_letter_is_encoded_again_as_the_same_record() {
    let encoder = RecordEncoder::default();
    for (kind, json) in [
        (RecordKind::Entry, ENTRY),
        (RecordKind::Gap, r#"{"id":"gap-1","reason":"retention"}"#),
        (
            RecordKind::Entry,
            r#"{"a":[1.0,1e300,null],"b":"\ud800","c":12345678901234567890}"#,
        ),
        (RecordKind::Entry, "not JSON"),
    ] {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        encoder.encode(&RawRecord { kind, ..raw(json) }, &mut first);
        let (kind_again, body) = encoder.decode(&first);
        assert_eq!(kind_again, kind);
        encoder.encode(&RawRecord { kind, ..raw(&body) }, &mut second);
        assert_eq!(first, second, "{body}");
    }
}

#[test]
fn null_means_absent_and_ids_are_found_in_either_place() {
    let record = map(
        r#"{"id":"a","type":"X","dealId":null,"deal":{"id":5,"name":null},"actorUser":{"id":1.5},"targetUserId":14,"task":{"id":null}}"#,
    );
    let expected =
        "log.record.uid orgdata.activity.type user.id orgdata.target_user.id orgdata.deal.id";
    assert_eq!(keys(&record).join(" "), expected);
    assert_eq!(show(&record, "orgdata.deal.id"), "IntValue(5)");
    assert_eq!(show(&record, "user.id"), "StringValue(\"1.5\")");
    let target = show(&record, "orgdata.target_user.id");
    assert_eq!(target, "StringValue(\"14\")");
}

#[test]
fn wrong_types_are_skipped_and_the_body_keeps_them() {
    let record = map(
        r#"{"id":["a"],"type":7,"occurredAt":true,"createdAt":"nonsense","actorUserId":{"x":1},"deal":"none","actorUser":[]}"#,
    );
    assert_eq!(keys(&record), Vec::<&str>::new());
    assert_eq!(
        (record.event_name.as_str(), record.time_unix_nano),
        ("orgdata.audit.unknown", record.observed_time_unix_nano)
    );
    assert!(format!("{:?}", record.body).contains("nonsense"));
}

#[test]
fn the_time_is_the_first_that_can_be_read() {
    for (occurred, seconds) in [
        ("\"1970-01-01T00:00:01Z\"", 1),
        ("null", 2),
        ("\"1969-12-31T00:00:00Z\"", 2),
    ] {
        let entry = format!(r#"{{"occurredAt":{occurred},"createdAt":"1970-01-01T00:00:02Z"}}"#);
        assert_eq!(map(&entry).time_unix_nano, seconds * 1_000_000_000);
    }
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
    assert!(shown.contains("[cut: 5904 more bytes]"), "{shown}");
    assert!(!format!("{:?}", record.body).contains("cut"));
    assert!(keys(&record).iter().all(|key| *key != "orgdata.record.cut"));
}
