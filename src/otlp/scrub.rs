//! Takes user names and the values of named metadata paths out of an entry's JSON, leaving every other byte as it was.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::Text;

/// What stands for the value of a redacted path.
pub const REDACTED: &str = "[REDACTED]";

/// How deep a path is followed, arrays counted; what lies deeper on its way goes as a whole.
const MAX_DEPTH: usize = 64;

/// The users of an entry (specification, section 2.1).
const USERS: [&str; 3] = ["actorUser", "targetUser", "modifiedTargetUser"];

/// What a user summary tells of a person beside the id. All are nullable, so that an entry without them still keeps the contract.
const PERSONAL: [&str; 3] = ["firstName", "lastName", "profileImageUrl"];

/// What has to go from entries before they leave, as records or as dead letters.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    /// `--otlp.user-names=false`: names and pictures of users become null.
    pub hide_user_names: bool,
    /// `--otlp.redact`: paths below `metadata`, their parts joined by dots. Every element of an array is visited.
    pub redact: Vec<String>,
}

/// A part of the text and what takes its place.
struct Replacement {
    start: usize,
    end: usize,
    with: &'static str,
}

/// An object's members, or an array's elements under empty names, in order.
type Parts<'a> = Vec<(Text<'a>, &'a RawValue)>;

struct PartsVisitor;

// === impl Scrubber ===

impl Scrubber {
    /// The entry without what has to go. A text that is no JSON cannot be searched, so that nothing of it is shown.
    pub fn scrub<'a>(&self, json: &'a str) -> Cow<'a, str> {
        if !self.hide_user_names && self.redact.is_empty() {
            return Cow::Borrowed(json);
        }
        if serde_json::from_str::<&RawValue>(json).is_err() {
            return Cow::Owned(format!("{REDACTED} {} bytes that are no JSON", json.len()));
        }
        let mut found = Vec::new();
        for (name, value) in parts(json) {
            if self.hide_user_names && USERS.contains(&&*name) {
                if value.get().starts_with(['"', '[']) {
                    // Not what the contract says a user is: it may be the name itself.
                    found.push(Replacement::new(json, value, "null"));
                    continue;
                }
                for (field, value) in parts(value.get()) {
                    if PERSONAL.contains(&&*field) {
                        found.push(Replacement::new(json, value, "null"));
                    }
                }
            }
            if &*name == "metadata" {
                for path in &self.redact {
                    self.visit(
                        json,
                        value,
                        path.strip_prefix("metadata.").unwrap_or(path),
                        0,
                        &mut found,
                    );
                }
            }
        }
        apply(json, found)
    }

    fn visit(
        &self,
        json: &str,
        value: &RawValue,
        path: &str,
        depth: usize,
        found: &mut Vec<Replacement>,
    ) {
        if depth > MAX_DEPTH {
            found.push(Replacement::new(json, value, "\"[REDACTED]\""));
            return;
        }
        let is_array = value.get().starts_with('[');
        for (name, part) in parts(value.get()) {
            if is_array {
                self.visit(json, part, path, depth + 1, found);
            } else if &*name == path {
                found.push(Replacement::new(json, part, "\"[REDACTED]\""));
            } else if let Some(rest) = path
                .strip_prefix(&*name)
                .and_then(|rest| rest.strip_prefix('.'))
            {
                self.visit(json, part, rest, depth + 1, found);
            }
        }
    }
}

// === impl Replacement ===

impl Replacement {
    /// `part` is borrowed from `json`, so that its address is its place.
    fn new(json: &str, part: &RawValue, with: &'static str) -> Self {
        let start = part.get().as_ptr() as usize - json.as_ptr() as usize;
        Self {
            start,
            end: start + part.get().len(),
            with,
        }
    }
}

fn apply(json: &str, mut found: Vec<Replacement>) -> Cow<'_, str> {
    if found.is_empty() {
        return Cow::Borrowed(json);
    }
    // Of two that overlap, one contains the other: the outer one comes first and the inner one is skipped.
    found.sort_by_key(|replacement| (replacement.start, std::cmp::Reverse(replacement.end)));
    let mut text = String::with_capacity(json.len());
    let mut position = 0;
    for replacement in found {
        if replacement.start >= position {
            text.push_str(&json[position..replacement.start]);
            text.push_str(replacement.with);
            position = replacement.end;
        }
    }
    text.push_str(&json[position..]);
    Cow::Owned(text)
}

/// The parts of a map or an array; of anything else, none.
fn parts(json: &str) -> Parts<'_> {
    serde_json::Deserializer::from_str(json)
        .deserialize_any(PartsVisitor)
        .unwrap_or_default()
}

// === impl PartsVisitor ===

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = Parts<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = members.next_entry()? {
            parts.push(part);
        }
        Ok(parts)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = items.next_element()? {
            parts.push((Text::default(), part));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(paths: &[&str]) -> Scrubber {
        Scrubber {
            hide_user_names: false,
            redact: paths.iter().map(|path| (*path).to_owned()).collect(),
        }
    }

    #[test]
    fn without_a_rule_nothing_is_touched() {
        assert!(matches!(
            Scrubber::default().scrub("no JSON at all"),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn a_path_is_replaced_and_every_other_byte_stays() {
        let json = r#"{ "id":"a", "metadata": {"n": 1.0e3, "contact": {"email":"x@example.com" , "age": 12345678901234567890123}}}"#;
        assert_eq!(
            redact(&["contact.email"]).scrub(json),
            r#"{ "id":"a", "metadata": {"n": 1.0e3, "contact": {"email":"[REDACTED]" , "age": 12345678901234567890123}}}"#
        );
        assert_eq!(
            redact(&["metadata.contact.email"]).scrub(json),
            redact(&["contact.email"]).scrub(json)
        );
        assert!(matches!(
            redact(&["email", "contact.mail"]).scrub(json),
            Cow::Borrowed(_)
        ));
    }

    #[test]
    fn every_element_of_an_array_is_visited() {
        let json =
            r#"{"metadata":{"people":[{"email":"a"},[{"email":null}],7,{"email":{"x":1}}]}}"#;
        assert_eq!(
            redact(&["people.email"]).scrub(json),
            r#"{"metadata":{"people":[{"email":"[REDACTED]"},[{"email":"[REDACTED]"}],7,{"email":"[REDACTED]"}]}}"#
        );
    }

    #[test]
    fn a_key_with_a_dot_or_an_escape_is_found_and_paths_may_overlap() {
        let json = r#"{"metadata":{"contact.email":1,"a":{"b.c":{"d":2}},"\u0065mail":3}}"#;
        assert_eq!(
            redact(&["contact.email", "a.b.c.d", "a", "email"]).scrub(json),
            r#"{"metadata":{"contact.email":"[REDACTED]","a":"[REDACTED]","\u0065mail":"[REDACTED]"}}"#
        );
    }

    #[test]
    fn names_and_pictures_of_all_users_become_null_and_ids_stay() {
        let json = include_str!("../../tests/golden/entry.json");
        let scrubbed = Scrubber {
            hide_user_names: true,
            redact: Vec::new(),
        }
        .scrub(json);
        for gone in ["Ada", "img.example", "\"B\"", "\"C\""] {
            assert!(!scrubbed.contains(gone), "{gone}: {scrubbed}");
        }
        let (entry, unknown) = crate::api::Entry::parse(&scrubbed).expect("still an entry");
        assert_eq!(
            (
                unknown,
                entry.actor_user.expect("kept").id.to_string().as_str()
            ),
            (0, "13")
        );
    }

    #[test]
    fn a_user_who_is_no_object_goes_as_a_whole() {
        let json = r#"{"actorUser": "Ada","targetUser":[{"firstName":"B"}],"modifiedTargetUser":null,"task":"Ada"}"#;
        assert_eq!(
            Scrubber {
                hide_user_names: true,
                redact: Vec::new()
            }
            .scrub(json),
            r#"{"actorUser": null,"targetUser":null,"modifiedTargetUser":null,"task":"Ada"}"#
        );
    }

    #[test]
    fn text_that_cannot_be_searched_is_not_shown() {
        let shown = redact(&["email"]).scrub(r#"{"metadata":{"email":"secret""#);
        assert!(
            !shown.contains("secret") && shown.starts_with(REDACTED),
            "{shown}"
        );
    }

    #[test]
    fn depth_is_no_danger() {
        let json = format!(
            r#"{{"metadata":{}1{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(redact(&["a"]).scrub(&json).contains("[[\"[REDACTED]\"]]"));
    }
}
