//! JSON text straight to an OTLP `AnyValue`: order, nulls and exact integers kept, depth and size bounded.

use std::cell::Cell;
use std::fmt;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// How deep maps and arrays may nest; what lies deeper becomes a string that holds its JSON. A map costs three messages of
/// nesting, and protobuf decoders commonly stop at a hundred.
pub const MAX_DEPTH: usize = 30;

/// The encoded size to which a value is cut. With attributes and envelope it stays below the 3 MiB of a request, and that below the
/// 4 MiB which a gRPC server takes by default.
pub const MAX_VALUE_BYTES: usize = 2_750_000;

/// Stands where something was cut; what was cut follows.
pub const CUT_MARK: &str = "[cut: ";

/// An upper bound of what one value costs beside its text: tags and lengths of four nested messages.
const OVERHEAD: usize = 24;

/// The smallest double beyond which neighbouring integers are the same double.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// A JSON text as an OTLP value.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapped {
    /// The value.
    pub value: AnyValue,
    /// Whether something was cut from it.
    pub cut: bool,
}

/// What one conversion has left, and what it has found.
struct Context {
    remaining: Cell<usize>,
    cut: Cell<bool>,
    /// A number was met that a double may have changed.
    inexact: Cell<bool>,
    /// Numbers are read from their text.
    exact: bool,
}

#[derive(Clone, Copy)]
struct Seed<'c> {
    context: &'c Context,
    depth: usize,
}

// === impl Mapped ===

impl Mapped {
    /// Reads a JSON text. `None` when it is no JSON.
    pub fn from_json(json: &str) -> Option<Self> {
        let fast = Context::new(false);
        let value = fast.read(json, 0);
        if let (Ok(value), false) = (value, fast.inexact.get()) {
            return Some(Self { value, cut: fast.cut.get() });
        }
        // A number that a double cannot hold, or text that is no Unicode: read again, slower, from the source's own digits.
        let exact = Context::new(true);
        let value = exact.read(json, 0).ok()?;
        Some(Self { value, cut: exact.cut.get() })
    }

    /// A text that is no JSON, as a string.
    pub fn from_text(text: &str) -> Self {
        let context = Context::new(false);
        let value = context.string(text.to_owned());
        Self { value: any(value), cut: context.cut.get() }
    }
}

// === impl Context ===

impl Context {
    fn new(exact: bool) -> Self {
        Self { remaining: Cell::new(MAX_VALUE_BYTES), cut: Cell::new(false), inexact: Cell::new(false), exact }
    }

    fn read(&self, json: &str, depth: usize) -> Result<AnyValue, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let value = Seed { context: self, depth }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }

    /// Takes what a value costs from what is left; `false` when there is not enough.
    fn take(&self, bytes: usize) -> bool {
        let remaining = self.remaining.get();
        let cost = bytes.saturating_add(OVERHEAD);
        if cost > remaining {
            return false;
        }
        self.remaining.set(remaining - cost);
        true
    }

    /// A string, cut to what is left, at a character's boundary.
    fn string(&self, mut text: String) -> Value {
        if self.take(text.len()) {
            return Value::StringValue(text);
        }
        let mut end = self.remaining.get().saturating_sub(OVERHEAD).min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let gone = text.len() - end;
        self.cut.set(true);
        text.truncate(end);
        text.push_str(&format!("{CUT_MARK}{gone} more bytes]"));
        self.remaining.set(0);
        Value::StringValue(text)
    }

    /// A number from its own digits: an integer that does not fit 64 bits, and what no double can hold, stay text.
    fn number(&self, text: &str) -> Value {
        let integer = !text.contains(['.', 'e', 'E']);
        match (integer, text.parse::<i64>(), text.parse::<f64>()) {
            (true, Ok(number), _) => Value::IntValue(number),
            (false, _, Ok(number)) if number.is_finite() => Value::DoubleValue(number),
            _ => self.string(text.to_owned()),
        }
    }
}

// === impl Seed ===

impl Seed<'_> {
    fn deeper(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    /// A value from its own text: where numbers must be exact, and where it may be too deep.
    fn raw<E: de::Error>(self, raw: &str) -> Result<AnyValue, E> {
        let context = self.context;
        match raw.as_bytes().first() {
            Some(b'{' | b'[') if self.depth >= MAX_DEPTH => {
                context.cut.set(true);
                Ok(any(context.string(format!("{CUT_MARK}nested deeper than {MAX_DEPTH} levels] {raw}"))))
            }
            Some(b'-' | b'0'..=b'9') => Ok(any(context.number(raw))),
            Some(b'"') => {
                // An escape that is half a character is no text: then the escapes themselves are kept.
                let text = serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.trim_matches('"').to_owned());
                Ok(any(context.string(text)))
            }
            _ => serde_json::Deserializer::from_str(raw).deserialize_any(self).map_err(E::custom),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = AnyValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AnyValue, D::Error> {
        if self.context.exact || self.depth >= MAX_DEPTH {
            let raw = <&RawValue>::deserialize(deserializer)?;
            return self.raw(raw.get());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = AnyValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<AnyValue, E> {
        Ok(AnyValue { value: None })
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<AnyValue, E> {
        Ok(any(Value::BoolValue(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<AnyValue, E> {
        Ok(any(Value::IntValue(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<AnyValue, E> {
        Ok(any(i64::try_from(value).map_or_else(|_| Value::StringValue(value.to_string()), Value::IntValue)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<AnyValue, E> {
        if value.abs() >= EXACT_INTEGERS {
            self.context.inexact.set(true);
        }
        Ok(any(Value::DoubleValue(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<AnyValue, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<AnyValue, E> {
        Ok(any(self.context.string(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<AnyValue, A::Error> {
        let mut values = Vec::new();
        while self.context.take(0) {
            match items.next_element_seed(self.deeper())? {
                Some(value) => values.push(value),
                None => return Ok(any(Value::ArrayValue(ArrayValue { values }))),
            }
        }
        let mut gone = 0_usize;
        while items.next_element::<IgnoredAny>()?.is_some() {
            gone += 1;
        }
        if gone > 0 {
            self.context.cut.set(true);
            values.push(any(Value::StringValue(format!("{CUT_MARK}{gone} more values]"))));
        }
        Ok(any(Value::ArrayValue(ArrayValue { values })))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<AnyValue, A::Error> {
        let mut values = Vec::new();
        let mut gone = 0_usize;
        while let Some(key) = members.next_key::<String>()? {
            if gone > 0 || !self.context.take(key.len()) {
                members.next_value::<IgnoredAny>()?;
                gone += 1;
                continue;
            }
            let value = Some(members.next_value_seed(self.deeper())?);
            values.push(KeyValue { key, value, ..KeyValue::default() });
        }
        if gone > 0 {
            self.context.cut.set(true);
            let value = Some(any(Value::StringValue(format!("{CUT_MARK}{gone} more values]"))));
            values.push(KeyValue { key: "…".to_owned(), value, ..KeyValue::default() });
        }
        Ok(any(Value::KvlistValue(KeyValueList { values })))
    }
}

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn map(json: &str) -> AnyValue {
        Mapped::from_json(json).expect("JSON").value
    }

    /// The value as text: maps in braces, strings in quotes, absent values as null.
    fn show(value: &AnyValue) -> String {
        match &value.value {
            None => "null".to_owned(),
            Some(Value::StringValue(text)) => format!("{text:?}"),
            Some(Value::BoolValue(value)) => value.to_string(),
            Some(Value::IntValue(value)) => value.to_string(),
            Some(Value::DoubleValue(value)) => format!("{value:?}f"),
            Some(Value::ArrayValue(array)) => format!("[{}]", array.values.iter().map(show).collect::<Vec<_>>().join(",")),
            Some(Value::KvlistValue(list)) => {
                let members: Vec<_> = list
                    .values
                    .iter()
                    .map(|member| format!("{}:{}", member.key, show(&member.value.clone().unwrap_or_default())))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn order_nulls_nesting_and_unicode_are_kept() {
        let json = r#"{"z":null,"a":[1,null,{"b":true,"a":"ä\u00e9😀"}],"m":{},"e":[]}"#;
        assert_eq!(show(&map(json)), r#"{z:null,a:[1,null,{b:true,a:"äé😀"}],m:{},e:[]}"#);
    }

    #[test]
    fn an_integer_that_does_not_fit_stays_as_its_digits() {
        for (json, shown) in [
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("9223372036854775808", "\"9223372036854775808\""),
            ("18446744073709551615", "\"18446744073709551615\""),
            ("123456789012345678901234567890", "\"123456789012345678901234567890\""),
            ("-9223372036854775809", "\"-9223372036854775809\""),
            ("1.5", "1.5f"),
            ("1e300", "1e300f"),
            ("1e400", "\"1e400\""),
        ] {
            assert_eq!(show(&map(json)), shown);
            assert_eq!(show(&map(&format!("{{\"a\":[{json}]}}"))), format!("{{a:[{shown}]}}"));
        }
    }

    #[test]
    fn half_a_character_keeps_its_escapes_and_spoils_nothing_else() {
        assert_eq!(show(&map(r#"{"a":"x\ud800y","b":1}"#)), r#"{a:"x\\ud800y",b:1}"#);
    }

    #[test]
    fn what_is_too_deep_is_a_string_of_its_json() {
        let depth = 5000;
        let json = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let mapped = Mapped::from_json(&json).expect("JSON");
        assert!(mapped.cut);
        let shown = show(&mapped.value);
        assert!(shown.contains("cut: nested deeper than 30 levels] [[["), "{}", &shown[..200]);
        // Decoders, prost among them, refuse a hundred levels; the record itself is five deep.
        let nested = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        let record = opentelemetry_proto::tonic::logs::v1::LogRecord {
            body: Some(Mapped::from_json(&nested).expect("JSON").value),
            ..Default::default()
        };
        let bytes = record.encode_to_vec();
        assert_eq!(opentelemetry_proto::tonic::logs::v1::LogRecord::decode(bytes.as_slice()).expect("decodes"), record);
    }

    #[test]
    fn what_is_too_large_is_cut_where_it_stands_and_says_so() {
        let json = format!(r#"{{"a":1,"big":"{}","c":[1,2],"d":2}}"#, "é".repeat(3_000_000));
        let mapped = Mapped::from_json(&json).expect("JSON");
        assert!(mapped.cut && mapped.value.encoded_len() < 3_000_000, "{}", mapped.value.encoded_len());
        let shown = show(&mapped.value);
        assert!(shown.starts_with("{a:1,big:\"éé"));
        assert!(shown.ends_with(" more bytes]\",…:\"[cut: 2 more values]\"}"), "{}", &shown[shown.len() - 90..]);
    }

    #[test]
    fn many_small_values_stay_below_the_bound() {
        let json = format!("[{}1]", "1,".repeat(2_000_000));
        let mapped = Mapped::from_json(&json).expect("JSON");
        assert!(mapped.cut && mapped.value.encoded_len() < MAX_VALUE_BYTES);
    }

    #[test]
    fn what_is_no_json_is_none_and_as_text_a_string() {
        for text in ["", "{", "{\"a\":1} x", "nope"] {
            assert_eq!(Mapped::from_json(text), None, "{text}");
            assert_eq!(show(&Mapped::from_text(text).value), format!("{text:?}"));
        }
    }
}
