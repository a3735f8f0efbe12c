//! An entry as the API wrote it (specification, section 2.1), read once: for its identity, its times, its labels, the filters, and the attributes
//! of its record.
//!
//! Only these fields are interpreted, so a bad value elsewhere does not affect counting.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher as _;

use jiff::Timestamp;
use orgdata_api::{Filters, Text, TextBytes, parse_json_time};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use siphasher::sip::SipHasher13;

use crate::ledger::{ActorRef, EventId, Seen};
use crate::util::shown_id;

/// An entry. Fields that only an unknown entry needs are interpreted later.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its identity: that of its id as written, or of its bytes.
    pub id: EventId,
    /// When it was created, if it has a readable time.
    pub(crate) created_at: Option<Timestamp>,
    /// The same, or the time of the entry before it in the walk.
    pub(super) at: Timestamp,
    /// What the ledger knows of it.
    pub(super) seen: Seen,
    /// Its index in the response.
    pub(super) index: usize,
    /// `None` if it is not an object.
    fields: Option<Object<'a>>,
}

/// The members in use of an entry, or of an object in it. Null is as if it were missing, and of equal keys the first counts.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "they have the names of the API")]
pub(crate) struct Object<'a> {
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) activity_type: Option<&'a RawValue>,
    pub(crate) created_at: Option<&'a RawValue>,
    pub(crate) occurred_at: Option<&'a RawValue>,
    pub(crate) updated_at: Option<&'a RawValue>,
    pub(crate) organization_id: Option<&'a RawValue>,
    pub(crate) organization: Option<&'a RawValue>,
    pub(crate) actor_user_id: Option<&'a RawValue>,
    pub(crate) actor_user: Option<&'a RawValue>,
    pub(crate) target_user_id: Option<&'a RawValue>,
    pub(crate) target_user: Option<&'a RawValue>,
    pub(crate) modified_target_user_id: Option<&'a RawValue>,
    pub(crate) modified_target_user: Option<&'a RawValue>,
    pub(crate) deal_id: Option<&'a RawValue>,
    pub(crate) deal: Option<&'a RawValue>,
    pub(crate) evaluation_id: Option<&'a RawValue>,
    pub(crate) evaluation: Option<&'a RawValue>,
    pub(crate) task: Option<&'a RawValue>,
    pub(crate) requirement: Option<&'a RawValue>,
    pub(crate) meeting: Option<&'a RawValue>,
    pub(crate) ticket: Option<&'a RawValue>,
    pub(crate) team_request: Option<&'a RawValue>,
    pub(crate) name: Option<&'a RawValue>,
    pub(crate) title: Option<&'a RawValue>,
    pub(crate) status: Option<&'a RawValue>,
    pub(crate) first_name: Option<&'a RawValue>,
    pub(crate) last_name: Option<&'a RawValue>,
    /// Of a gap.
    pub(crate) reason: Option<&'a RawValue>,
}

/// Reads the members of an object, all of them or until there are enough.
struct ObjectVisitor<'m, 'a> {
    object: &'m mut Object<'a>,
    is_enough: fn(&Object<'a>) -> bool,
}

// === impl Entry ===

impl<'a> Entry<'a> {
    /// Reads an entry.
    pub fn read(raw: &'a str) -> Self {
        let fields = Object::read(raw);
        let id = match fields.as_ref().and_then(Object::id_text) {
            Some(id) => Self::identity_of(&id),
            None => identity(b"bytes", raw),
        };
        let created_at = fields.as_ref().and_then(Object::created_at);
        Self {
            fields,
            ..Self::new(id, created_at)
        }
    }

    /// Reads an entry only as far as its id and its time: that is all that a known one needs. The whole, if it lacks one of them.
    pub(super) fn begin(raw: &'a str) -> Self {
        let mut object = Object::default();
        // An error only says that there is more.
        let _ = object.fill(raw, |object| {
            object.id.is_some() && object.created_at.is_some()
        });
        match (object.id_text(), object.created_at()) {
            (Some(id), created_at @ Some(_)) => Self {
                fields: Some(object),
                ..Self::new(Self::identity_of(&id), created_at)
            },
            _ => Self::read(raw),
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
        self.fields.as_ref().and_then(Object::id_text)
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
        let organization = Object::nested(self.fields.as_ref()?.organization);
        Some(organization.name.and_then(string)?.into_owned())
    }

    /// Returns its type; without one it cannot be counted.
    pub fn activity_type(&self) -> Option<Cow<'a, str>> {
        self.fields.as_ref()?.activity_type.and_then(string)
    }

    /// Returns who did it; `None` if it does not say so.
    pub fn actor(&self) -> Option<ActorRef> {
        let fields = self.fields.as_ref()?;
        let user = Object::nested(fields.actor_user);
        Some(ActorRef {
            id: user_id(fields.actor_user_id, user.id)?.into_owned(),
            name: user.full_name(),
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
            (fields.id_text().is_none(), "the entry has no id"),
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
            let evaluated = Object::nested(Object::nested(fields.evaluation).deal);
            [fields.deal_id, Object::nested(fields.deal).id, evaluated.id]
        };
        (activity_types.is_empty() || activity_types.iter().any(is_type))
            && (deal_ids.is_empty() || deals().into_iter().flatten().any(is_deal))
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Reads an entry; `None` if it is not an object.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        let mut object = Self::default();
        object.fill(text, |_| false).ok()?;
        Some(object)
    }

    /// Reads an object in an entry; an empty one if it is missing or something else.
    pub(crate) fn nested(raw: Option<&'a RawValue>) -> Self {
        let mut object = Self::default();
        if let Some(raw) = raw {
            let _ = object.fill(raw.get(), |_| false);
        }
        object
    }

    /// Reads the members in a text, all of them or until there are enough.
    fn fill(&mut self, text: &'a str, is_enough: fn(&Self) -> bool) -> serde_json::Result<()> {
        let mut text = serde_json::Deserializer::from_str(text);
        text.deserialize_map(ObjectVisitor {
            object: self,
            is_enough,
        })?;
        text.end()
    }

    /// Returns its id.
    pub(crate) fn id_text(&self) -> Option<Cow<'a, str>> {
        self.id.and_then(id_text)
    }

    /// Returns the first and last name of a user, as far as they are known.
    pub(crate) fn full_name(&self) -> Option<String> {
        let names = [self.first_name, self.last_name].into_iter().flatten();
        let mut full = String::new();
        for name in names.filter_map(string) {
            let name = name.trim();
            if !full.is_empty() && !name.is_empty() {
                full.push(' ');
            }
            full.push_str(name);
        }
        (!full.is_empty()).then_some(full)
    }

    /// Returns the time of its record: when it happened, else when it was created. Stores count nanoseconds in 64 bits, so a time beyond the
    /// year 2262 or before 1970 is none.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        let times = [self.occurred_at, self.created_at].into_iter().flatten();
        let mut times = times.filter_map(|raw| parse_json_time(raw.get()));
        times.find(|time| (1..=i128::from(i64::MAX)).contains(&time.as_nanosecond()))
    }

    fn created_at(&self) -> Option<Timestamp> {
        let times = [self.created_at, self.occurred_at, self.updated_at];
        let mut times = times.into_iter().flatten();
        let time = times.find_map(|raw| parse_json_time(raw.get()));
        time.map(whole_microseconds)
    }

    // Slices of bytes are compared much faster than texts.
    fn member(&mut self, key: &[u8]) -> Option<&mut Option<&'a RawValue>> {
        Some(match key {
            b"id" => &mut self.id,
            b"type" => &mut self.activity_type,
            b"createdAt" => &mut self.created_at,
            b"occurredAt" => &mut self.occurred_at,
            b"updatedAt" => &mut self.updated_at,
            b"organizationId" => &mut self.organization_id,
            b"organization" => &mut self.organization,
            b"actorUserId" => &mut self.actor_user_id,
            b"actorUser" => &mut self.actor_user,
            b"targetUserId" => &mut self.target_user_id,
            b"targetUser" => &mut self.target_user,
            b"modifiedTargetUserId" => &mut self.modified_target_user_id,
            b"modifiedTargetUser" => &mut self.modified_target_user,
            b"dealId" => &mut self.deal_id,
            b"deal" => &mut self.deal,
            b"evaluationId" => &mut self.evaluation_id,
            b"evaluation" => &mut self.evaluation,
            b"task" => &mut self.task,
            b"requirement" => &mut self.requirement,
            b"meeting" => &mut self.meeting,
            b"ticket" => &mut self.ticket,
            b"teamRequest" => &mut self.team_request,
            b"name" => &mut self.name,
            b"title" => &mut self.title,
            b"status" => &mut self.status,
            b"firstName" => &mut self.first_name,
            b"lastName" => &mut self.last_name,
            b"reason" => &mut self.reason,
            _ => return None,
        })
    }
}

impl<'de: 'a, 'a> Visitor<'de> for ObjectVisitor<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while !(self.is_enough)(self.object)
            && let Some(TextBytes(key)) = members.next_key()?
        {
            match self.object.member(&key) {
                Some(member) if member.is_none() => *member = members.next_value()?,
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Cuts a time to what the state file holds. A finer one would be newer than its own copy there, and the entry late.
fn whole_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// Returns a user's id from one of two places.
pub(crate) fn user_id<'a>(
    id: Option<&'a RawValue>,
    id_of_user: Option<&'a RawValue>,
) -> Option<Cow<'a, str>> {
    id.and_then(number).or_else(|| id_of_user.and_then(number))
}

/// Returns the text of a JSON string. A lone surrogate becomes U+FFFD.
pub(crate) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
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

    /// Of a known entry no more is read.
    #[test]
    fn the_beginning_of_an_entry_has_the_same_id_and_time() {
        for raw in [
            r#"{"id":"a","type":"X","createdAt":"2026-03-01T10:00:00Z","id":"b","x":[1,{}]}"#,
            r#"{"createdAt":1772359200,"\u0069d":7,"id":8}"#,
            r#"{"id":"a","createdAt":"soon","occurredAt":"2026-03-01T10:00:00Z"}"#,
            r#"{"id":null,"createdAt":"2026-03-01T10:00:00Z"}"#,
            r#"{"type":"X"}"#,
            "[1]",
        ] {
            let (begun, whole) = (Entry::begin(raw), Entry::read(raw));
            let found = (begun.id, begun.created_at);
            assert_eq!(found, (whole.id, whole.created_at), "{raw}");
        }
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
