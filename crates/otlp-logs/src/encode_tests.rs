use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use proptest::prelude::*;
use prost::Message;
use serde_json::Value as Json;

use super::*;

crate::places! {
    Nothing {
        Unused: Root b"",
    }
}

/// Any JSON but what has to be repaired or cut.
fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-300_i64..300).prop_map(Json::from),
        any::<i32>().prop_map(|number| Json::from(f64::from(number) / 1024.0)),
        ".{0,20}".prop_map(Json::from),
        "[a-z]{120,140}".prop_map(Json::from),
    ];
    leaf.prop_recursive(8, 64, 8, |inner| {
        let members = proptest::collection::vec(("[a-c\"é]{0,2}", inner.clone()), 0..8);
        prop_oneof![
            proptest::collection::vec(inner, 0..8).prop_map(Json::from),
            members.prop_map(|members| Json::Object(members.into_iter().collect()))
        ]
    })
}

fn expected(json: Json) -> AnyValue {
    let value = match json {
        Json::Null => return AnyValue { value: None },
        Json::Bool(value) => Value::BoolValue(value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::IntValue(number),
            None => Value::DoubleValue(number.as_f64().expect("a double")),
        },
        Json::String(text) => Value::StringValue(text),
        Json::Array(items) => Value::ArrayValue(ArrayValue {
            values: items.into_iter().map(expected).collect(),
        }),
        Json::Object(members) => {
            let member = |(key, value)| KeyValue {
                key,
                value: Some(expected(value)),
                ..KeyValue::default()
            };
            Value::KvlistValue(KeyValueList {
                values: members.into_iter().map(member).collect(),
            })
        }
    };
    AnyValue { value: Some(value) }
}

/// Encodes, and returns the value that a collector reads and whether something was cut.
fn written(json: &str, redaction: &Redaction) -> (AnyValue, bool) {
    let mut bytes = Vec::new();
    let mut repaired = String::new();
    let found = any_value::<Nothing>(json, redaction, &mut repaired, &mut bytes);
    let value = AnyValue::decode(bytes.as_slice()).expect("decodes");
    assert!(value.encode_to_vec() == bytes, "{value:?}");
    (value, found.is_cut)
}

fn map(json: &str) -> AnyValue {
    written(json, &Redaction::default()).0
}

/// Returns the value as JSON.
fn show(value: AnyValue) -> String {
    crate::record::json(Some(value)).to_string()
}

#[test]
fn a_large_number_keeps_its_digits_and_half_a_surrogate_pair_is_replaced() {
    for line in [
        "9223372036854775807 => 9223372036854775807",
        "9223372036854775808 => \"9223372036854775808\"",
        "-9223372036854775809 => \"-9223372036854775809\"",
        "1e400 => \"1e400\"",
        "\"x\\ud800y\" => \"x\u{fffd}y\"",
        "\"Launch \\ud83d\" => \"Launch \u{fffd}\"",
        "\"\\udc00\\ud83d\\ude00\\ud800\\ud800\" => \"\u{fffd}😀\u{fffd}\u{fffd}\"",
        "\"\\\\ud800 \\\"\\ud800\\u00e9\" => \"\\\\ud800 \\\"\u{fffd}é\"",
        "\"1 12345678901234567890 \\ud800\" => \"1 12345678901234567890 \u{fffd}\"",
        "{\"\\ud800\":1} => {\"\u{fffd}\":1}",
    ] {
        let (json, shown) = line.split_once(" => ").expect(line);
        assert_eq!(show(map(json)), shown);
        assert_eq!(
            show(map(&format!(r#"{{"a":[{json}],"b":1e400,"c":2.5}}"#))),
            format!(r#"{{"a":[{shown}],"b":"1e400","c":2.5}}"#)
        );
    }
}

#[test]
fn what_is_too_deep_or_too_large_is_cut_where_it_stands() {
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let maps = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
    let key = |length| format!(r#"{{"{}":1}}"#, "k".repeat(length));
    let text = |length| format!("\"{}\"", "a".repeat(length));
    let member = format!(r#"{{"a":1,"b":"{}","c":2}}"#, "é".repeat(3_000_000));
    let elements = format!("[{}1]", "1,".repeat(2_000_000));
    for (name, json, is_cut, part) in [
        ("30 levels", nested(30), false, "[[1]]"),
        ("31 levels", nested(31), true, "deeper than 30 levels] [1]"),
        ("5000 levels", nested(5000), true, "30 levels] [["),
        ("5000 objects", maps, true, "30 levels] {"),
        ("a long key", key(2_000_000), false, "k\":1}"),
        ("a key that is too long", key(2_800_000), true, "{}"),
        ("a long text", text(2_000_000), false, "aaa\""),
        ("a text that is too long", text(2_800_000), true, "bytes]\""),
        (
            "what is before it",
            member.clone(),
            true,
            r#"{"a":1,"b":"éé"#,
        ),
        ("what is after it", member, true, " more bytes]\"}"),
        ("many elements", elements, true, "1,1]"),
        ("not JSON", "a".repeat(MAX_BYTES), false, "aaa\""),
        ("too much", "a".repeat(MAX_BYTES + 1), true, "a[cut: 1 more"),
    ] {
        let (value, found) = written(&json, &Redaction::default());
        assert_eq!(found, is_cut, "{name}");
        assert!(value.encoded_len() < 2_800_000, "{name}");
        // Decoders refuse a hundred levels; the record itself is five deep.
        let record = LogRecord {
            body: Some(value.clone()),
            ..LogRecord::default()
        };
        let decoded = LogRecord::decode(record.encode_to_vec().as_slice());
        assert!(decoded.is_ok(), "{name}");
        assert!(show(value).contains(part), "{name}");
    }
}

#[test]
fn what_is_not_json_is_a_string_of_it() {
    for text in ["", "{", "{\"a\":1} x", "nope", "{\"a\":\"\\ud800", "\"\\u"] {
        assert_eq!(show(map(text)), serde_json::json!(text).to_string());
    }
}

fn redacted(json: &str, paths: &str) -> String {
    let redaction = Redaction {
        replaced: paths.split(' ').map(str::to_owned).collect(),
        ..Redaction::default()
    };
    show(written(json, &redaction).0)
}

#[test]
fn what_is_on_a_path_is_redacted() {
    for line in [
        // At any depth, and in every element of an array.
        r#"{"m":[{"contact":{"email":"a"}},[{"contact":{"email":null}}],7],"email":2} => {"m":[{"contact":{"email":"[REDACTED]"}},[{"contact":{"email":"[REDACTED]"}}],7],"email":2}"#,
        r#"{"page":[{"m":{"contact":{"email":1}}}]} => {"page":[{"m":{"contact":{"email":"[REDACTED]"}}}]}"#,
        // Keys with dots and escapes.
        r#"{"m":{"contact.email":1,"contact":{"\u0065mail":{"x":1}}}} => {"m":{"contact.email":"[REDACTED]","contact":{"email":"[REDACTED]"}}}"#,
        // A key that continues the path.
        r#"{"m":{"contact.email.work":1}} => {"m":{"contact.email.work":"[REDACTED]"}}"#,
        r#"{"m.contact":{"\u0065mail.work":1}} => {"m.contact":{"email.work":"[REDACTED]"}}"#,
        r#"{"m.contact.email.work":1} => {"m.contact.email.work":"[REDACTED]"}"#,
        // A string before the end of the path may contain the value, as JSON or as text.
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
        assert_eq!(redacted(json, "m.contact.email"), expected, "{json}");
    }
    let json = r#"{"m":{"contact.email":1,"a":{"b.c":{"d":2}},"z":{"b.c":{"d":2}}}}"#;
    let paths = "m.contact.email m.a.b.c.d m.a m.z.b.c.d";
    let expected =
        r#"{"m":{"contact.email":"[REDACTED]","a":"[REDACTED]","z":{"b.c":{"d":"[REDACTED]"}}}}"#;
    assert_eq!(redacted(json, paths), expected, "paths may overlap");
    // What is too deep to search is redacted as a whole.
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(redacted(&deep, "a").contains("[[\"[REDACTED]\"]]"));
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
        assert_eq!(show(written(json, &redaction).0), expected);
    }
}

proptest! {
    #[test]
    fn every_json_is_what_the_types_of_the_protocol_write(json in any_json()) {
        for text in [json.to_string(), format!("{json:#}")] {
            prop_assert_eq!(map(&text), expected(json.clone()));
        }
    }
}
