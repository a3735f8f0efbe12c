use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use proptest::prelude::*;
use prost::Message;

use super::*;

crate::places! {
    Nothing {
        Unused: Root b"",
    }
}

/// A JSON value that is known to be mapped as [`Json::expected`].
#[derive(Clone, Debug)]
enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// An integer that no 64 bits hold.
    Digits(String),
    Text(String),
    Array(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Json {
    fn any() -> impl Strategy<Value = Self> {
        let leaf = prop_oneof![
            Just(Self::Null),
            any::<bool>().prop_map(Self::Bool),
            any::<i64>().prop_map(Self::Int),
            (-300_i64..300).prop_map(Self::Int),
            any::<i32>().prop_map(|number| Self::Double(f64::from(number) / 1024.0)),
            "-?[1-9][0-9]{19,30}"
                .prop_filter("too small", |digits| digits.parse::<i64>().is_err())
                .prop_map(Self::Digits),
            ".{0,20}".prop_map(Self::Text),
            "[a-z]{120,140}".prop_map(Self::Text),
        ];
        leaf.prop_recursive(8, 64, 8, |inner| {
            let members = proptest::collection::vec(("[a-c\"é]{0,2}", inner.clone()), 0..8);
            prop_oneof![
                proptest::collection::vec(inner, 0..8).prop_map(Self::Array),
                members.prop_map(Self::Map)
            ]
        })
    }

    fn text(&self) -> String {
        let quoted = |text: &String| serde_json::to_string(text).expect("text");
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Double(number) => format!("{number:?}"),
            Self::Digits(digits) => digits.clone(),
            Self::Text(text) => quoted(text),
            Self::Array(items) => format!(
                "[{}]",
                items.iter().map(Self::text).collect::<Vec<_>>().join(" , ")
            ),
            Self::Map(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(key, value)| format!("{} : {}", quoted(key), value.text()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    fn expected(self) -> AnyValue {
        let value = match self {
            Self::Null => return AnyValue { value: None },
            Self::Bool(value) => Value::BoolValue(value),
            Self::Int(number) => Value::IntValue(number),
            Self::Double(number) => Value::DoubleValue(number),
            Self::Digits(text) | Self::Text(text) => Value::StringValue(text),
            Self::Array(items) => Value::ArrayValue(ArrayValue {
                values: items.into_iter().map(Self::expected).collect(),
            }),
            Self::Map(members) => {
                let mut keys = BTreeSet::new();
                let members = members.into_iter();
                // The first of equal keys is kept.
                let members = members.filter(|(key, _)| keys.insert(key.clone()));
                let member = |(key, value): (String, Self)| KeyValue {
                    key,
                    value: Some(value.expected()),
                    ..KeyValue::default()
                };
                Value::KvlistValue(KeyValueList {
                    values: members.map(member).collect(),
                })
            }
        };
        AnyValue { value: Some(value) }
    }
}

/// Encodes, and returns the value that a collector reads and whether something was cut.
fn written(json: &str) -> (AnyValue, bool) {
    written_without(json, &Redaction::default())
}

fn written_without(json: &str, redaction: &Redaction) -> (AnyValue, bool) {
    let mut bytes = Vec::new();
    let mut repaired = String::new();
    let found = any_value::<Nothing>(json, redaction, &mut repaired, &mut bytes);
    let value = AnyValue::decode(bytes.as_slice()).expect("decodes");
    assert!(value.encode_to_vec() == bytes, "{value:?}");
    (value, found.is_cut)
}

fn map(json: &str) -> AnyValue {
    written(json).0
}

/// Returns the value as JSON.
fn show(value: &AnyValue) -> String {
    crate::record::json(Some(value.clone())).to_string()
}

#[test]
fn an_integer_that_does_not_fit_stays_as_its_digits() {
    for (json, shown) in [
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "\"9223372036854775808\""),
        ("-9223372036854775809", "\"-9223372036854775809\""),
        ("1e400", "\"1e400\""),
    ] {
        assert_eq!(show(&map(json)), shown);
        assert_eq!(
            show(&map(&format!("{{\"a\":[{json}]}}"))),
            format!(r#"{{"a":[{shown}]}}"#)
        );
    }
}

#[test]
fn half_a_surrogate_pair_becomes_a_replacement_character() {
    for (json, shown) in [
        (r#""x\ud800y""#, "x\u{fffd}y"),
        (r#""Launch \ud83d""#, "Launch \u{fffd}"),
        (
            r#""\udc00\ud83d\ude00\ud800\ud800""#,
            "\u{fffd}😀\u{fffd}\u{fffd}",
        ),
        (r#""\\ud800 \"\ud800\u00e9""#, "\\ud800 \"\u{fffd}é"),
        (
            r#""1 12345678901234567890 \ud800""#,
            "1 12345678901234567890 \u{fffd}",
        ),
    ] {
        let shown = serde_json::json!(shown);
        assert_eq!(show(&map(json)), shown.to_string());
        assert_eq!(
            show(&map(&format!(r#"{{"a":{json},"b":1e400,"c":[2.5]}}"#))),
            format!(r#"{{"a":{shown},"b":"1e400","c":[2.5]}}"#)
        );
    }
    assert_eq!(show(&map(r#"{"\ud800":1}"#)), "{\"\u{fffd}\":1}");
}

#[test]
fn what_is_too_deep_is_a_string_of_its_json() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let json = format!("{}1{}", open.repeat(5000), close.repeat(5000));
        let (value, is_cut) = written(&json);
        assert!(is_cut && show(&value).contains("cut: nested deeper than 30 levels] "));
        // Decoders refuse a hundred levels; the record itself is five deep.
        let body = Some(value);
        let record = LogRecord {
            body,
            ..Default::default()
        };
        assert!(LogRecord::decode(record.encode_to_vec().as_slice()).is_ok());
    }
}

#[test]
fn what_fits_is_not_cut() {
    for (levels, expected) in [(30, false), (31, true)] {
        let json = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        let (_, is_cut) = written(&json);
        assert_eq!(is_cut, expected, "{levels} levels");
    }
    for (length, expected) in [(MAX_BYTES, false), (MAX_BYTES + 1, true)] {
        let (_, is_cut) = written(&"a".repeat(length));
        assert_eq!(is_cut, expected, "{length} bytes that are not JSON");
    }
    // Between two characters.
    assert!(shortened("aéé", 2).starts_with("a["));
    for (length, expected) in [(2_000_000, false), (2_800_000, true)] {
        let json = format!(r#"{{"{}":1}}"#, "k".repeat(length));
        assert_eq!(written(&json).1, expected, "a key");
        let json = format!("\"{}\"", "a".repeat(length));
        assert_eq!(written(&json).1, expected, "a text");
    }
}

#[test]
fn what_is_too_large_is_cut_where_it_stands() {
    let big = "é".repeat(3_000_000);
    let json = format!(r#"{{"a":1,"big":"{big}","c":[1,2],"d":2}}"#);
    let (value, is_cut) = written(&json);
    assert!(is_cut && value.encoded_len() < 2_800_000);
    let shown = show(&value);
    assert!(shown.starts_with(r#"{"a":1,"big":"éé"#));
    assert!(shown.ends_with(" more bytes]\"}"));

    let (value, is_cut) = written(&format!("[{}1]", "1,".repeat(2_000_000)));
    assert!(is_cut && value.encoded_len() < 2_800_000);
}

#[test]
fn what_is_not_json_is_a_string_of_it() {
    for text in [
        "",
        "{",
        "{\"a\":1} x",
        "nope",
        "{\"a\":\"\\ud800",
        "\"\\",
        "\"\\u",
    ] {
        assert_eq!(show(&map(text)), serde_json::json!(text).to_string());
    }
}

fn redacted(json: &str, replaced: &[&str]) -> String {
    let redaction = Redaction {
        replaced: replaced.iter().map(|path| (*path).to_owned()).collect(),
        ..Redaction::default()
    };
    show(&written_without(json, &redaction).0)
}

#[test]
fn a_path_is_redacted_at_any_depth_and_in_every_element_of_an_array() {
    let json = r#"{"people":[{"email":"a"},[{"email":null}],7,{"email":{"x":1}}],"email":2}"#;
    let expected = r#"{"people":[{"email":"[REDACTED]"},[{"email":"[REDACTED]"}],7,{"email":"[REDACTED]"}],"email":2}"#;
    assert_eq!(redacted(json, &["people.email"]), expected);
    let wrapped = |json| format!(r#"{{"page":[{json}]}}"#);
    assert_eq!(
        redacted(&wrapped(json), &["people.email"]),
        wrapped(expected)
    );
    assert_eq!(redacted(json, &["people.mail"]), show(&map(json)));
}

#[test]
fn keys_with_dots_and_escapes_are_found_and_paths_may_overlap() {
    for (json, expected) in [
        (
            r#"{"m":{"contact.email":1,"a":{"b.c":{"d":2}},"\u0065mail":3}}"#,
            r#"{"m":{"contact.email":"[REDACTED]","a":"[REDACTED]","email":"[REDACTED]"}}"#,
        ),
        (
            r#"{"m":{"z":{"b.c":{"d":2}}}}"#,
            r#"{"m":{"z":{"b.c":{"d":"[REDACTED]"}}}}"#,
        ),
    ] {
        let paths = [
            "m.contact.email",
            "m.a.b.c.d",
            "m.a",
            "m.email",
            "m.z.b.c.d",
        ];
        assert_eq!(redacted(json, &paths), expected);
    }
}

#[test]
fn a_string_before_the_end_of_a_path_and_a_key_that_continues_it_are_redacted() {
    for line in [
        r#"{"m":{"contact.email.work":1}} => {"m":{"contact.email.work":"[REDACTED]"}}"#,
        r#"{"m":{"contact":{"email.work":{"x":1}}}} => {"m":{"contact":{"email.work":"[REDACTED]"}}}"#,
        r#"{"m.contact":{"\u0065mail.work":1}} => {"m.contact":{"email.work":"[REDACTED]"}}"#,
        r#"{"m.contact.email.work":1} => {"m.contact.email.work":"[REDACTED]"}"#,
        // It may contain the value, as JSON or as text.
        r#"{"m":{"contact":"{\"email\":\"z@x.test\"}"}} => {"m":{"contact":"[REDACTED]"}}"#,
        r#"{"m":{"contact":["{\"email\":1}",[["z@x.test"]],{"email":1,"a":"b"}]}} => {"m":{"contact":["[REDACTED]",[["[REDACTED]"]],{"email":"[REDACTED]","a":"b"}]}}"#,
        r#"{"m":"z@x.test","a":"b"} => {"m":"[REDACTED]","a":"b"}"#,
        r#"{"m.contact":"\ud800"} => {"m.contact":"[REDACTED]"}"#,
        r#""z@x.test" => "[REDACTED]""#,
        r#"["z@x.test",{"a":"b","m":["c"]}] => ["[REDACTED]",{"a":"b","m":["[REDACTED]"]}]"#,
        // Of two equal keys, each is redacted by itself.
        r#"{"m":{"contact":1,"contact":"z@x.test"}} => {"m":{"contact":1}}"#,
        r#"{"m":{"contact":"z@x.test","contact":{"email":"y@x.test"}}} => {"m":{"contact":"[REDACTED]"}}"#,
        // Only a string can contain the value.
        r#"{"m":{"contact":[null,7,1.5,true,{},[]]}} => {"m":{"contact":[null,7,1.5,true,{},[]]}}"#,
        // Other keys.
        r#"{"m":{"contact":{"emails":"a","e":"b","":"c"},"contact.e":"d"}} => {"m":{"contact":{"emails":"a","e":"b","":"c"},"contact.e":"d"}}"#,
        r#"{"m":{"contacts":"a","contact.":"b"},"m.c":"d"} => {"m":{"contacts":"a","contact.":"b"},"m.c":"d"}"#,
    ] {
        let (json, expected) = line.split_once(" => ").expect(line);
        assert_eq!(redacted(json, &["m.contact.email"]), expected, "{json}");
    }
}

#[test]
fn only_what_is_allowed_is_written() {
    const USER: Allowed = Allowed::Members(&[("id", Allowed::Scalar), ("name", Allowed::Null)]);
    let redaction = Redaction {
        allowed: Allowed::Members(&[
            ("user", USER),
            ("name", Allowed::Scalar),
            ("any", Allowed::All),
        ]),
        replaced: vec!["any.x".to_owned()],
    };
    for line in [
        r#"{"user":{"id":1,"name":{"first":"A"},"email":"E"},"name":"T","more":[1]} => {"user":{"id":1,"name":null},"name":"T"}"#,
        r#"{"any":{"x":1,"user":{"email":"E"}},"\u006eame":1.5} => {"any":{"x":"[REDACTED]","user":{"email":"E"}},"name":1.5}"#,
        // Not what it should be: it may be anything.
        r#"{"user":"Ada","name":["T"]} => {"user":null,"name":null}"#,
        r#"{"user":[{"id":1}],"name":{"a":"T"}} => {"user":null,"name":null}"#,
        r#"{"user":1,"user.id":2,"":3} => {"user":null}"#,
        r#"{"user":{"id":{"id":1}}} => {"user":{"id":null}}"#,
        r#""{\"user\":{\"name\":\"Ada\"}}" => null"#,
        r#"["Ada",{"user":{"id":1}}] => null"#,
        r#"{"user":{"name":"Ada" => "[REDACTED] 21 bytes that are not JSON""#,
    ] {
        let (json, expected) = line.split_once(" => ").expect(line);
        assert_eq!(show(&written_without(json, &redaction).0), expected);
    }
}

#[test]
fn what_is_too_deep_to_search_is_redacted_as_a_whole() {
    let json = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(redacted(&json, &["a"]).contains("[[\"[REDACTED]\"]]"));
}

proptest! {
    #[test]
    fn every_json_is_what_the_types_of_the_protocol_write(json in Json::any()) {
        // No object in it is a place.
        let json = Json::Array(vec![json]);
        prop_assert_eq!(map(&json.text()), json.expected());
    }
}
