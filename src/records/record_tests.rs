use std::sync::Arc;

use super::super::Redaction;
use super::*;
use crate::audit::{Entry, Privacy, Redact};
use crate::ledger::ActorPrivacy;

const ENTRY: &str = include_str!("../../tests/golden/entry.json");

/// What `--otlp.actor` and `--otlp.redact` make.
fn privacy(actor: &ActorPrivacy, paths: &[&str]) -> Privacy {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let redaction = Redaction::new(matches!(actor, ActorPrivacy::Full), &paths);
    Privacy {
        redact: redaction.map(|redaction| Arc::new(redaction) as Arc<dyn Redact>),
        hash: Some(actor.clone()).filter(|actor| matches!(actor, ActorPrivacy::Hash(_))),
    }
}

/// Returns the record of an entry that was stored, and is read again.
fn record(privacy: &Privacy, json: &str) -> LogRecord {
    let entry = Entry::read(json);
    let stored = Stored {
        arrived: "2026-03-01T10:00:05Z".parse().expect("a time"),
        trace: Some("00-07070707070707070707070707070707-0909090909090909-01".into()),
        hash: privacy.hash(entry.actor().as_ref()).map(Cow::Owned),
        entry: privacy.text(json),
        ..Stored::default()
    };
    let line = stored.line();
    assert!(!line.contains('\n'), "{line}");
    assert_eq!(Stored::read(line.as_bytes()), stored);
    let record = log_record(Stored::read(line.as_bytes()));
    let decoded = LogRecord::decode(&*record.encode_to_vec());
    assert_eq!(decoded.as_ref(), Ok(&record), "a collector can read it");
    record
}

fn map(json: &str) -> LogRecord {
    record(&Privacy::default(), json)
}

fn body(record: &LogRecord) -> &str {
    match record.body.as_ref().and_then(|body| body.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn show(attribute: &KeyValue) -> String {
    match attribute
        .value
        .as_ref()
        .and_then(|value| value.value.as_ref())
    {
        Some(Value::StringValue(text)) => format!("{}={text:?}", attribute.key),
        Some(Value::IntValue(value)) => format!("{}={value}", attribute.key),
        Some(Value::DoubleValue(value)) => format!("{}={value:?}", attribute.key),
        Some(Value::BoolValue(value)) => format!("{}={value}", attribute.key),
        other => panic!("{other:?}"),
    }
}

fn attributes(record: &LogRecord) -> String {
    let shown = record.attributes.iter().map(show);
    shown.collect::<Vec<_>>().join(" ")
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
    for attribute in &record.attributes {
        actual += &format!("  {}\n", show(attribute));
    }
    actual += &format!("Body: {}\n", body(record).trim_end());
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name}: UPDATE_GOLDEN=1 writes it anew");
}

#[test]
fn a_full_entry_is_the_table_of_the_interface() {
    let record = map(ENTRY);
    assert_eq!(body(&record), ENTRY, "byte for byte");
    assert_golden("log-record.txt", &record);
}

#[test]
fn without_users_none_is_left_anywhere() {
    let privacy = privacy(&ActorPrivacy::None, &["a.x", "metadata.text"]);
    let record = record(&privacy, ENTRY);
    let shown = format!("{record:?}");
    let names = "Ada Lovelace img.example \"B\" \"C\" größe user.full_name";
    for name in names.split(' ') {
        assert!(!shown.contains(name), "{name}");
    }
    assert_golden("log-record-without-users.txt", &record);
}

#[test]
fn a_gap_is_a_warning_of_its_own() {
    let time = "2026-03-01T09:00:00Z".parse().expect("a time");
    let gap = Stored {
        kind: RecordKind::Gap,
        arrived: time,
        entry: r#"{"id":"gap-1","type":"gap","detectedAt":"2026-03-01T09:00:00Z","reason":"retention","from":"2026-02-01T00:00:00Z","to":null,"message":"entries were removed by the service before they were read"}"#.into(),
        ..Stored::default()
    };
    assert_golden("log-record-gap.txt", &log_record(gap));
}

#[test]
fn a_checkpoint_says_how_far_the_records_go() {
    let time = "2026-03-01T09:00:00Z".parse().expect("a time");
    let checkpoint = Stored {
        sequence: Some(4712),
        kind: RecordKind::Checkpoint,
        arrived: time,
        entry: r#"{"id":"orgdata.exporter.checkpoint-1","lastSequence":4711,"completeThrough":"2026-03-01T08:59:57Z","deadLetters":4,"deadLetterSequences":"17-19,23","version":"0.1.0"}"#.into(),
        ..Stored::default()
    };
    assert_golden("log-record-checkpoint.txt", &log_record(checkpoint));
}

/// Entries, and the attributes behind the body, which is the entry as it is.
const ENTRIES: [&str; 8] = [
    // Null means absent, and ids are found in either place.
    r#"{"id":"a","type":"X","dealId":null,"deal":{"id":5,"name":null},"actorUser":{"id":5.0},"targetUserId":14,"task":{"id":null}} => log.record.uid="a" orgdata.activity.type="X" user.id="5" orgdata.target_user.id="14" orgdata.deal.id=5"#,
    // Wrong types are skipped, or keep their type.
    r#"{"id":["a"],"type":7,"actorUserId":{"x":1},"deal":"none","actorUser":[],"evaluation":{"title":true,"id":"e"},"ticket":{"id":[1]}} => orgdata.evaluation.id="e" orgdata.evaluation.title=true"#,
    // Beyond 53 and 64 bits, and beyond a double.
    r#"{"id":9007199254740993,"dealId":9007199254740993,"task":{"id":12345678901234567890},"meeting":{"id":1e400},"ticket":{"id":1.50}} => log.record.uid="9007199254740993" orgdata.deal.id=9007199254740993 orgdata.task.id="12345678901234567890" orgdata.meeting.id="1e400" orgdata.ticket.id=1.5"#,
    // Halves of surrogate pairs, in a value and in a key.
    r#"{"id":"x\ud800y","type":"L\ud83d","\ud800":1,"deal":{"name":"\ud83d\ude00","\udc00":2}} => log.record.uid="x�y" orgdata.activity.type="L�" orgdata.deal.name="😀""#,
    // Of equal keys, the first.
    r#"{"id":"a","id":"b","type":null,"type":"X","deal":{"id":1},"deal":{"id":2},"metadata":{"k":1,"k":2}} => log.record.uid="a" orgdata.activity.type="X" orgdata.deal.id=1"#,
    // White space, escapes and fields that are not known.
    "{ \"id\" :\t\"\\u0061\",\r\n \"actor\": {\"email\": \"z@x.test\"}, \"type\": \"X\" } => log.record.uid=\"a\" orgdata.activity.type=\"X\"",
    "[1] => ",
    "not JSON => ",
];

#[test]
fn the_body_is_the_entry_byte_for_byte_and_attributes_are_what_can_be_read() {
    for line in ENTRIES {
        let (json, expected) = line.split_once(" => ").expect(line);
        let record = map(json);
        assert_eq!(body(&record), json);
        assert_eq!(attributes(&record), expected, "{json}");
    }
    let deep = format!("{}1{}", "{\"a\":[".repeat(20), "]}".repeat(20));
    let deep = format!(r#"{{"id":"a","metadata":{deep},"deal":{{"id":5}}}}"#);
    let expected = r#"log.record.uid="a" orgdata.deal.id=5"#;
    assert_eq!(
        (body(&map(&deep)), &*attributes(&map(&deep))),
        (&*deep, expected)
    );
}

/// Entries, what `--otlp.actor=none --otlp.redact=a.x` leaves of them, and the attributes.
const REDACTED: [&str; 7] = [
    r#"{"id":"a","type":"X","actorUserId":1,"dealId":9007199254740993,"metadata":{"n":12345678901234567890.10,"a":{"x":1e400}}} => {"id":"a","type":"X","actorUserId":null,"dealId":9007199254740993,"metadata":{"n":12345678901234567890.10,"a":{"x":"[REDACTED]"}}} => log.record.uid="a" orgdata.activity.type="X" orgdata.deal.id=9007199254740993"#,
    r#"{"id":"\ud800","metadata":{"a":{"x":"\ud800","\ud800":"\udc00"}},"actorUser":{"firstName":"\ud83d"}} => {"id":"\ud800","metadata":{"a":{"x":"[REDACTED]","\ud800":"\udc00"}},"actorUser":null} => log.record.uid="�""#,
    r#"{"actorUser":{"id":1},"actorUser":{"id":2},"id":"a","metadata":{"a":{"x":1},"a":{"x":2}}} => {"actorUser":null,"actorUser":null,"id":"a","metadata":{"a":{"x":"[REDACTED]"},"a":{"x":"[REDACTED]"}}} => log.record.uid="a""#,
    // A field that the specification does not name, at the beginning, between others, and at the end.
    r#"{ "email": 1, "id" : "a" , "actorUserEmail":"z@x.test", "more":2, "deal" : {"owner":"Ada"}, "last":[3] } => { "id" : "a", "deal" : {} } => log.record.uid="a""#,
    r#"{"id":{"id":1},"type":["X"],"deal":"Ada","evaluation":{"id":1,"title":"E","deal":{"id":2,"name":"D","owner":"Ada"}},"metadata":"x"} => {"id":null,"type":null,"deal":null,"evaluation":{"id":1,"title":"E","deal":{"id":2,"name":"D"}},"metadata":"[REDACTED]"} => orgdata.evaluation.id=1 orgdata.evaluation.title="E""#,
    r#"["Ada",{"id":"a"}] => null => "#,
    r#"{"id":"a","actorUser":{"firstName":"Ada => "[REDACTED] 39 bytes that are not JSON" => "#,
];

#[test]
fn what_is_redacted_is_gone_and_every_other_byte_is_there() {
    let redacting = privacy(&ActorPrivacy::None, &["a.x"]);
    for line in REDACTED {
        let cells: Vec<&str> = line.split(" => ").collect();
        let record = record(&redacting, cells[0]);
        assert_eq!(body(&record), cells[1], "{line}");
        assert_eq!(attributes(&record), cells[2], "{line}");
    }
    let nested = |last: &str| {
        let levels = "{\"a\":[".repeat(20) + last + &"]}".repeat(20);
        format!(r#"{{"metadata":{levels}}}"#)
    };
    let deep = record(&redacting, &nested(r#"{"metadata":{"a":{"x":1}},"y":2}"#));
    assert_eq!(
        body(&deep),
        nested(r#"{"metadata":{"a":{"x":"[REDACTED]"}},"y":2}"#)
    );
    let bottomless = format!(
        r#"{{"id":"a","metadata":{}1{}}}"#,
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let bottomless = record(&redacting, &bottomless);
    assert!(body(&bottomless).contains("[[\"[REDACTED]\"]]"));
}

#[test]
fn an_actor_is_shown_hashed_or_absent() {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a secret of enough bytes");
    let json = r#"{"id":"a","actorUserId":13,"actorUser":{"id":13,"firstName":" Ada","lastName":" "},"targetUserId":14}"#;
    for (actor, expected) in [
        (
            ActorPrivacy::Full,
            r#"log.record.uid="a" user.id="13" orgdata.target_user.id="14" user.full_name="Ada""#,
        ),
        (ActorPrivacy::None, r#"log.record.uid="a""#),
        (
            ActorPrivacy::Hash(key),
            r#"log.record.uid="a" user.hash="469047da2d1ddf9a""#,
        ),
    ] {
        let record = record(&privacy(&actor, &[]), json);
        assert_eq!(attributes(&record), expected, "{actor:?}");
        assert_eq!(
            body(&record).contains("Ada"),
            matches!(actor, ActorPrivacy::Full)
        );
    }
}

#[test]
fn the_time_is_the_first_that_a_store_can_hold() {
    const ARRIVED: u64 = 1_772_359_205;
    for (occurred, created, seconds) in [
        ("\"1970-01-01T00:00:01Z\"", "\"1970-01-01T00:00:02Z\"", 1),
        ("null", "\"1970-01-01T00:00:02Z\"", 2),
        ("\"1969-12-31T00:00:00Z\"", "\"1970-01-01T00:00:02Z\"", 2),
        ("\"2262-04-12T00:00:00Z\"", "\"1970-01-01T00:00:02Z\"", 2),
        ("\"2500-01-01T00:00:00Z\"", "\"1970-01-01T00:00:02Z\"", 2),
        ("true", "\"nonsense\"", ARRIVED),
        ("16725225600", "\"2500-01-01T00:00:00Z\"", ARRIVED),
    ] {
        let json = format!(r#"{{"occurredAt":{occurred},"createdAt":{created}}}"#);
        let record = map(&json);
        assert_eq!(record.time_unix_nano, seconds * 1_000_000_000, "{json}");
        assert_eq!(body(&record), json);
    }
}

#[test]
fn a_long_title_is_cut_in_the_attribute_and_a_huge_entry_in_the_body() {
    let long = map(&format!(
        r#"{{"evaluation":{{"title":"{}"}}}}"#,
        "é".repeat(5000)
    ));
    let shown = attributes(&long);
    assert!(shown.contains("[cut: 5904 more bytes]"), "{shown}");
    assert!(!shown.contains("orgdata.record.cut") && !body(&long).contains("cut"));
    let huge = format!(r#"{{"id":"a","metadata":"{}"}}"#, "é".repeat(1_500_000));
    let huge = map(&huge);
    assert_eq!(
        attributes(&huge),
        r#"log.record.uid="a" orgdata.record.cut=true"#
    );
    assert!(body(&huge).ends_with("é[cut: 250024 more bytes]"));
    assert!(huge.encoded_len() < MAX_REQUEST);
}

#[test]
fn a_request_has_as_many_records_as_fit_but_at_least_one() {
    let line = |size| {
        Stored {
            entry: "x".repeat(size).into(),
            ..Stored::default()
        }
        .line()
    };
    let envelope = Envelope::new([("service.name".to_owned(), "x".to_owned())].into());
    for (lines, expected) in [
        (vec![line(10); 3], 3),
        (vec![line(1_000_000); 5], 3),
        (vec![line(5_000_000), line(1_000_000)], 1),
        (vec![], 0),
    ] {
        let (request, count) = envelope.request(lines.iter().map(String::as_bytes));
        assert_eq!(count, expected);
        let logs = &request.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(logs.len(), count);
        assert!(request.encoded_len() <= MAX_REQUEST);
    }
}

#[test]
fn event_names_are_tame_and_bounded() {
    assert_eq!(
        event_name("Task.Moved-to Länder_2"),
        "orgdata.audit.task.moved_to_l_nder_2"
    );
    assert_eq!(event_name(""), "orgdata.audit.unknown");
    assert_eq!(event_name(&"x".repeat(1000)).len(), MAX_EVENT_NAME);
}
