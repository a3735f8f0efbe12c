//! An entry as the API wrote it (specification, section 2.1), read once: for its identity, its time, its labels and the filters.
//!
//! Only these fields are interpreted, so a bad value elsewhere does not affect counting.

use std::borrow::Cow;
use std::hash::Hasher as _;

use jiff::Timestamp;
use orgdata_api::{Filters, Text, parse_json_time};
use serde::Deserialize;
use serde_json::value::RawValue;
use siphasher::sip::SipHasher13;

use crate::ledger::{ActorRef, EventId, Seen};
use crate::util::shown_id;

/// An entry. Fields that only an unknown entry needs are interpreted later.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its identity: that of its id as written, or of its bytes.
    pub(crate) id: EventId,
    /// When it was created, if it has a readable time.
    pub(crate) created_at: Option<Timestamp>,
    /// The same, or the time of the entry before it in the walk.
    pub(super) at: Timestamp,
    /// What the ledger knows of it.
    pub(super) seen: Seen,
    /// Its index in the response.
    pub(super) index: usize,
    /// `None` if it is not an object.
    fields: Option<Fields<'a>>,
}

/// The fields in use; null is as if it were missing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    activity_type: Option<&'a RawValue>,
    #[serde(borrow)]
    created_at: Option<&'a RawValue>,
    #[serde(borrow)]
    occurred_at: Option<&'a RawValue>,
    #[serde(borrow)]
    updated_at: Option<&'a RawValue>,
    #[serde(borrow)]
    organization_id: Option<&'a RawValue>,
    #[serde(borrow)]
    organization: Option<&'a RawValue>,
    #[serde(borrow)]
    actor_user_id: Option<&'a RawValue>,
    #[serde(borrow)]
    actor_user: Option<&'a RawValue>,
    #[serde(borrow)]
    deal_id: Option<&'a RawValue>,
    #[serde(borrow)]
    deal: Option<&'a RawValue>,
    #[serde(borrow)]
    evaluation: Option<&'a RawValue>,
}

/// An object within an entry.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Nested<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    first_name: Option<&'a RawValue>,
    #[serde(borrow)]
    last_name: Option<&'a RawValue>,
    #[serde(borrow)]
    deal: Option<&'a RawValue>,
}

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Reads an entry.
    pub fn read(raw: &'a str) -> Self {
        // serde would read an array as the fields in their order.
        let object = raw.starts_with('{').then_some(raw);
        let fields: Option<Fields<'_>> = object.and_then(|raw| serde_json::from_str(raw).ok());
        let id = match fields.as_ref().and_then(Fields::id) {
            Some(id) => Self::identity_of(&id),
            None => identity(b"bytes", raw),
        };
        let created_at = fields.as_ref().and_then(Fields::created_at);
        Self {
            fields,
            ..Self::new(id, created_at)
        }
    }

    /// Returns an entry of which nothing but this is known.
    pub(super) fn new(id: EventId, created_at: Option<Timestamp>) -> Self {
        Self {
            id,
            created_at,
            at: created_at.unwrap_or(Timestamp::MAX),
            seen: Seen::Unknown,
            index: 0,
            fields: None,
        }
    }

    /// Returns the identity of an entry with this id.
    pub(crate) fn identity_of(id: &str) -> EventId {
        identity(b"id", id)
    }

    /// Returns its id, if it has one.
    pub(crate) fn id_text(&self) -> Option<Cow<'a, str>> {
        self.fields.as_ref().and_then(Fields::id)
    }

    /// Returns its id for a log line.
    pub fn shown_id(&self) -> String {
        shown_id(&self.id_text().unwrap_or("none".into()))
    }

    /// Returns the id of its organization.
    pub(crate) fn organization_id(&self) -> Option<i64> {
        self.fields.as_ref()?.organization_id.and_then(whole_number)
    }

    /// Returns the name of its organization.
    pub(super) fn organization_name(&self) -> Option<String> {
        let organization = nested(self.fields.as_ref()?.organization);
        Some(organization.name.and_then(string)?.into_owned())
    }

    /// Returns its type; without one it cannot be counted.
    pub fn activity_type(&self) -> Option<Cow<'a, str>> {
        self.fields.as_ref()?.activity_type.and_then(string)
    }

    /// Returns who did it; `None` if it does not say so.
    pub fn actor(&self) -> Option<ActorRef> {
        let fields = self.fields.as_ref()?;
        let user = nested(fields.actor_user);
        let id = fields.actor_user_id.and_then(number);
        let id = id.or_else(|| user.id.and_then(number))?;
        let names = [user.first_name, user.last_name].into_iter().flatten();
        let names: Vec<Cow<'_, str>> = names.filter_map(string).collect();
        let names = names.iter().map(|name| name.trim());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        Some(ActorRef {
            id: id.into_owned(),
            name: (!names.is_empty()).then(|| names.join(" ")),
        })
    }

    /// Returns how the entry violates the specification.
    pub fn problem(&self) -> Option<&'static str> {
        let Some(fields) = &self.fields else {
            return Some("the entry is not a JSON object");
        };
        let (actor, organization) = (fields.actor_user_id, fields.organization_id);
        let problems = [
            (
                !fields.activity_type.is_some_and(is_string),
                "the entry has no type",
            ),
            (fields.id().is_none(), "the entry has no id"),
            (self.created_at.is_none(), "the entry has no readable time"),
            (
                actor.is_some_and(|raw| number(raw).is_none()),
                "actorUserId is not an id",
            ),
            (
                organization.is_some_and(|raw| whole_number(raw).is_none()),
                "organizationId is not a number",
            ),
        ];
        let problem = problems.into_iter().find(|(is_there, _)| *is_there);
        problem.map(|(_, problem)| problem)
    }

    /// Reports whether it is inside the filters for activity types and deals. Those for e-mail addresses cannot be checked: entries have no
    /// addresses.
    pub(crate) fn matches(&self, filters: &Filters) -> bool {
        let Filters {
            activity_types,
            deal_ids,
            ..
        } = filters;
        let activity_type = self.activity_type();
        let is_type = |one: &String| Some(&**one) == activity_type.as_deref();
        let is_deal =
            |raw: &RawValue| number(raw).is_some_and(|id| deal_ids.iter().any(|one| *one == id));
        let Some(fields) = &self.fields else {
            return true;
        };
        let deals = || {
            let evaluated = nested(nested(fields.evaluation).deal);
            [fields.deal_id, nested(fields.deal).id, evaluated.id]
        };
        (activity_types.is_empty() || activity_types.iter().any(is_type))
            && (deal_ids.is_empty() || deals().into_iter().flatten().any(is_deal))
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    fn id(&self) -> Option<Cow<'a, str>> {
        self.id.and_then(id_text)
    }

    fn created_at(&self) -> Option<Timestamp> {
        let times = [self.created_at, self.occurred_at, self.updated_at];
        let mut times = times.into_iter().flatten();
        let time = times.find_map(|raw| parse_json_time(raw.get()));
        time.map(whole_microseconds)
    }
}

/// Cuts a time to what the state file holds. A finer one would be newer than its own copy there, and the entry late.
fn whole_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// Returns a nested object; an empty one if it is missing or something else.
fn nested(raw: Option<&RawValue>) -> Nested<'_> {
    let object = raw.filter(|raw| raw.get().starts_with('{'));
    let object = object.and_then(|raw| serde_json::from_str(raw.get()).ok());
    object.unwrap_or_default()
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// Returns the text of a JSON string. A lone surrogate becomes U+FFFD.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let decoded = serde_json::from_str::<Text<'_>>(raw.get());
    decoded.ok().map(|text| text.0)
}

/// Returns an id as it was written; `None` if there is none.
fn id_text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match raw.get().as_bytes().first() {
        Some(b'"') => string(raw).filter(|text| !text.is_empty()),
        Some(b'-' | b'0'..=b'9') => Some(Cow::Borrowed(raw.get())),
        _ => None,
    }
}

/// Returns the text of a number, whole numbers without a fraction, or of a string that is not empty.
fn number(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = id_text(raw)?;
    if raw.get().starts_with('"') || !text.contains(['.', 'e', 'E']) {
        return Some(text);
    }
    let value: f64 = text.parse().ok()?;
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    Some(if is_whole {
        format!("{value:.0}").into()
    } else {
        text
    })
}

/// Returns a whole number that is written as a number.
fn whole_number(raw: &RawValue) -> Option<i64> {
    number(raw)
        .filter(|_| !raw.get().starts_with('"'))?
        .parse()
        .ok()
}

/// Returns the same identity on every machine and in every version: the ledger stores it.
fn identity(kind: &[u8], text: &str) -> EventId {
    let mut hasher = SipHasher13::new_with_keys(0x6f72_6764_6174_6131, 0x6175_6469_742d_6964);
    hasher.write(kind);
    hasher.write_u8(0xff);
    hasher.write(text.as_bytes());
    EventId(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(fields: &str) -> Option<ActorRef> {
        let raw = format!(r#"{{"id":"a","type":"X","createdAt":"2026-01-01T00:00:00Z"{fields}}}"#);
        Entry::read(&raw).actor()
    }

    #[test]
    fn whatever_a_documented_field_is_an_entry_with_a_type_is_counted() {
        let entry: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(include_str!("../../tests/golden/entry.json")).expect("JSON");
        let id = Entry::read(&serde_json::to_string(&entry).expect("JSON")).id;
        for name in entry.keys().filter(|name| *name != "type") {
            for odd in [r#""\ud83d""#, "1e400", "[]", "{}", "true", "null"] {
                let mut entry = entry.clone();
                entry.insert(name.clone(), "HERE".into());
                let raw = serde_json::to_string(&entry).expect("JSON");
                let raw = raw.replace("\"HERE\"", odd);
                let entry = Entry::read(&raw);
                assert!(entry.activity_type().is_some(), "{name}: {odd}");
                assert!(entry.id == id || name == "id", "{name}: {odd}");
            }
        }
    }

    #[test]
    fn a_time_has_whole_microseconds_and_may_stand_in_another_field() {
        let expected: Timestamp = "2026-03-01T10:00:00Z".parse().expect("a time");
        for (text, time) in [
            (r#""2026-03-01T10:00:00.000000999Z""#, Some(expected)),
            ("1772359200", Some(expected)),
            (r#""soon""#, None),
        ] {
            let raw = format!(r#"{{"id":"a","type":"X","createdAt":{text}}}"#);
            let entry = Entry::read(&raw);
            assert_eq!(entry.created_at, time, "{text}");
            let problem = time.is_none().then_some("the entry has no readable time");
            assert_eq!(entry.problem(), problem, "{text}");
        }
        let raw = r#"{"id":"a","createdAt":"soon","occurredAt":"2026-03-01T10:00:00Z"}"#;
        assert_eq!(Entry::read(raw).created_at, Some(expected));
    }

    #[test]
    fn without_a_type_it_cannot_be_counted() {
        for raw in [
            "null",
            "[]",
            "\"x\"",
            r#"["a","X"]"#,
            r#"{"id":"a"}"#,
            r#"{"type":null}"#,
        ] {
            assert!(Entry::read(raw).activity_type().is_none(), "{raw}");
        }
        assert_ne!(Entry::read("null").id, Entry::read("[]").id);
    }

    #[test]
    fn the_identity_never_changes() {
        let id = Entry::read(r#"{"id":"evt_1","type":"X"}"#).id;
        assert_eq!(id, identity(b"id", "evt_1"));
        let huge = |last| format!(r#"{{"id":1844674407370955161{last},"type":"X"}}"#);
        assert_ne!(Entry::read(&huge(70)).id, Entry::read(&huge(71)).id);
    }

    #[test]
    fn an_actor_has_an_id() {
        assert_eq!(actor(""), None);
        assert_eq!(actor(r#","actorUserId":5"#).expect("an actor").id, "5");
        let user = actor(r#","actorUser":{"id":5.0,"firstName":"Ada","lastName":null}"#);
        let expected = ActorRef {
            id: "5".into(),
            name: Some("Ada".into()),
        };
        assert_eq!(user, Some(expected));
    }

    #[test]
    fn entries_outside_the_filters_are_recognized() {
        let filters = Filters {
            activity_types: vec!["X".into()],
            deal_ids: vec!["7".into()],
            ..Filters::default()
        };
        for (raw, matches) in [
            (r#"{"type":"X","dealId":7}"#, true),
            (r#"{"type":"X","deal":{"id":7}}"#, true),
            (
                r#"{"type":"X","evaluation":{"id":1,"deal":{"id":7}}}"#,
                true,
            ),
            (r#"{"type":"Y","dealId":7}"#, false),
            (r#"{"type":"X","dealId":8}"#, false),
            (r#"{"type":"X"}"#, false),
        ] {
            assert_eq!(Entry::read(raw).matches(&filters), matches, "{raw}");
        }
    }
}
