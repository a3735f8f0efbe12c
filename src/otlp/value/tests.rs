use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::otlp::node::encode;

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
                let member = |(key, value): (String, Self)| KeyValue {
                    key,
                    value: Some(value.expected()),
                    ..KeyValue::default()
                };
                Value::KvlistValue(KeyValueList {
                    values: members.into_iter().map(member).collect(),
                })
            }
        };
        AnyValue { value: Some(value) }
    }
}

/// The value that a collector reads. Its own types write the same bytes.
fn decoded(mapped: &Mapped<'_>) -> AnyValue {
    let mut bytes = Vec::new();
    encode(&mapped.nodes, 1, &mut bytes);
    let mut array = ArrayValue::decode(bytes.as_slice()).expect("decodes");
    assert!(array.encode_to_vec() == bytes, "{array:?}");
    assert_eq!(
        (array.values.len(), bytes.len()),
        (1, mapped.nodes[0].encoded_len())
    );
    array.values.remove(0)
}

fn map(json: &str) -> AnyValue {
    decoded(&Mapped::from_json(json).expect("JSON"))
}

/// The value as text: maps in braces, strings in quotes, absent values as null.
fn show(value: &AnyValue) -> String {
    match &value.value {
        None => "null".to_owned(),
        Some(Value::StringValue(text)) => format!("{text:?}"),
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => format!("{value:?}f"),
        Some(Value::ArrayValue(array)) => format!(
            "[{}]",
            array.values.iter().map(show).collect::<Vec<_>>().join(",")
        ),
        Some(Value::KvlistValue(list)) => {
            let members: Vec<_> = list
                .values
                .iter()
                .map(|member| {
                    format!(
                        "{}:{}",
                        member.key,
                        show(&member.value.clone().unwrap_or_default())
                    )
                })
                .collect();
            format!("{{{}}}", members.join(","))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn order_nulls_nesting_and_unicode_are_kept() {
    let json = r#"{"z":null,"a":[1,null,{"b":true,"a":"ä\u00e9😀"}],"m":{},"e":[]}"#;
    assert_eq!(
        show(&map(json)),
        r#"{z:null,a:[1,null,{b:true,a:"äé😀"}],m:{},e:[]}"#
    );
}

#[test]
fn an_integer_that_does_not_fit_stays_as_its_digits() {
    for (json, shown) in [
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("9223372036854775808", "\"9223372036854775808\""),
        ("18446744073709551615", "\"18446744073709551615\""),
        (
            "123456789012345678901234567890",
            "\"123456789012345678901234567890\"",
        ),
        ("-9223372036854775809", "\"-9223372036854775809\""),
        ("1.5", "1.5f"),
        ("1e300", "1e300f"),
        ("1e400", "\"1e400\""),
    ] {
        assert_eq!(show(&map(json)), shown);
        assert_eq!(
            show(&map(&format!("{{\"a\":[{json}]}}"))),
            format!("{{a:[{shown}]}}")
        );
    }
}

#[test]
fn a_lone_surrogate_becomes_a_replacement_character() {
    assert_eq!(
        show(&map(r#"{"a":"x\ud800y","b":1}"#)),
        "{a:\"x\u{fffd}y\",b:1}"
    );
}

#[test]
fn what_is_too_deep_is_a_string_of_its_json() {
    let depth = 5000;
    let json = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let mapped = Mapped::from_json(&json).expect("JSON");
    assert!(mapped.cut);
    let shown = show(&decoded(&mapped));
    assert!(
        shown.contains("cut: nested deeper than 30 levels] [[["),
        "{}",
        &shown[..200]
    );
    // Decoders, prost among them, refuse a hundred levels; the record itself is five deep.
    let nested = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let record = LogRecord {
        body: Some(map(&nested)),
        ..Default::default()
    };
    let bytes = record.encode_to_vec();
    assert_eq!(
        LogRecord::decode(bytes.as_slice()).expect("decodes"),
        record
    );
}

#[test]
fn what_is_too_large_is_cut_where_it_stands_and_says_so() {
    let json = format!(
        r#"{{"a":1,"big":"{}","c":[1,2],"d":2}}"#,
        "é".repeat(3_000_000)
    );
    let mapped = Mapped::from_json(&json).expect("JSON");
    assert!(
        mapped.cut && mapped.nodes[0].encoded_len() < 3_000_000,
        "{}",
        mapped.nodes[0].encoded_len()
    );
    let shown = show(&decoded(&mapped));
    assert!(shown.starts_with("{a:1,big:\"éé"));
    assert!(
        shown.ends_with(" more bytes]\",…:\"[cut: 2 more values]\"}"),
        "{}",
        &shown[shown.len() - 90..]
    );
}

#[test]
fn many_small_values_stay_below_the_bound() {
    let json = format!("[{}1]", "1,".repeat(2_000_000));
    let mapped = Mapped::from_json(&json).expect("JSON");
    assert!(mapped.cut && mapped.nodes[0].encoded_len() < MAX_VALUE_BYTES);
}

#[test]
fn what_is_no_json_is_none_and_as_text_a_string() {
    for text in ["", "{", "{\"a\":1} x", "nope"] {
        assert_eq!(Mapped::from_json(text), None, "{text}");
        assert_eq!(
            show(&decoded(&Mapped::from_text(text))),
            format!("{text:?}")
        );
    }
}

proptest! {
    #[test]
    fn every_json_is_what_the_protocol_s_own_types_hold_and_write(json in Json::any()) {
        let mapped = json.text();
        prop_assert_eq!(map(&mapped), json.expected());
    }
}
