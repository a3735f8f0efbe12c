//! The fields of JSON objects without their values, and the names that the specification documents for an entry.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::text::Text;

/// Calls a function with the name and the JSON of each field of an object.
struct EachField<F>(F);

/// Calls `field` with the name and the JSON of each field of an object. The values are not parsed, so that a bad one
/// does not hide the others.
///
/// # Errors
/// Returns an error if `json` is not an object.
pub fn each_field<'a>(
    json: &'a str,
    field: impl FnMut(&str, &'a str),
) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    EachField(field).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Returns whether a field of an audit log entry is documented (specification, section 2.1).
pub fn is_entry_field(name: &str) -> bool {
    matches!(
        name,
        "id" | "type"
            | "occurredAt"
            | "createdAt"
            | "updatedAt"
            | "organizationId"
            | "dealId"
            | "evaluationId"
            | "actorUserId"
            | "targetUserId"
            | "modifiedTargetUserId"
            | "metadata"
            | "organization"
            | "evaluation"
            | "deal"
            | "actorUser"
            | "targetUser"
            | "modifiedTargetUser"
            | "task"
            | "requirement"
            | "meeting"
            | "ticket"
            | "teamRequest"
    )
}

/// Returns the kind of a JSON value with its article, for messages that must not show the value.
pub(crate) fn kind(json: &str) -> &'static str {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        _ => "invalid JSON",
    }
}

// === impl EachField ===

impl<'de, F: FnMut(&str, &'de str)> DeserializeSeed<'de> for EachField<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&str, &'de str)> Visitor<'de> for EachField<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        while let Some((name, value)) = object.next_entry::<Text<'_>, &RawValue>()? {
            (self.0)(&name, value.get());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_parsed_hides_no_other() {
        let json = r#"{"a":"\ud83d","\u0062":1e400, "\ud800":{"x":[1]} ,"id":"i"}"#;
        let mut fields = Vec::new();
        each_field(json, |name, value| fields.push((name.to_owned(), value))).expect("an object");
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, v)| (&**name, *v)).collect();
        assert_eq!(
            fields,
            [
                ("a", r#""\ud83d""#),
                ("b", "1e400"),
                ("\u{fffd}", r#"{"x":[1]}"#),
                ("id", r#""i""#)
            ]
        );
        for other in ["[1]", "7", "null", r#"{"a":1} x"#, r#"{"a":1"#] {
            assert!(each_field(other, |_, _| ()).is_err(), "{other}");
        }
    }
}
