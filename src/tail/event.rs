//! Reads the fields of an entry that identify and count it (specification, section 2.1).
//!
//! Only these fields are read, so a bad value elsewhere does not affect counting.

use std::borrow::Cow;
use std::hash::Hasher as _;

use jiff::Timestamp;
use orgdata_api::{Filters, Text, parse_time};
use serde::Deserialize;
use serde::de::value::{self, BytesDeserializer};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use siphasher::sip::SipHasher13;

use crate::ledger::{ActorRef, EventId, NewEvent};
use crate::util::shown_id;

/// What the tail needs of every entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Its identity.
    pub(crate) id: EventId,
    /// When it was created, if it has a readable time.
    pub(crate) created_at: Option<Timestamp>,
}

/// What the tail needs besides of an entry that it does not know.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// What it counts as, or why it cannot be counted.
    pub(crate) event: Result<NewEvent, &'static str>,
    /// The id of its organization.
    pub(crate) organization: Option<i64>,
    /// What is not as documented.
    pub(crate) problem: Option<&'static str>,
    /// It is outside the filters.
    pub(crate) filtered: bool,
}

/// A JSON object, of which only the fields in use are kept, not yet interpreted. Of a repeated field the first one counts.
#[derive(Default)]
struct Object<'a> {
    fields: [Option<&'a RawValue>; Key::Other as usize],
}

/// The fields in use.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Id,
    Type,
    CreatedAt,
    OccurredAt,
    UpdatedAt,
    OrganizationId,
    Organization,
    ActorUserId,
    ActorUser,
    DealId,
    Deal,
    Evaluation,
    Name,
    FirstName,
    LastName,
    #[serde(other)]
    Other,
}

/// Cuts a time to what the state file holds. A finer one would be newer than its own copy there, and the entry late.
fn whole_microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

// === impl Head ===

impl Head {
    /// Reads the beginning of an entry, as far as it is needed. Most entries that a re-read or a poll meets are known, and reading the rest of
    /// them would be most of its cost.
    pub(crate) fn read(raw: &str) -> Self {
        let begin = Object::read(raw, |object| {
            object.get(Key::Id).is_some() && object.get(Key::CreatedAt).is_some()
        });
        let head = Self::of(&begin.0, raw);
        match head.created_at {
            Some(_) => head,
            None => Self::of(&Object::read(raw, |_| false).0, raw),
        }
    }

    fn of(entry: &Object<'_>, raw: &str) -> Self {
        let id = entry.get(Key::Id).and_then(id_text);
        let created_at = [Key::CreatedAt, Key::OccurredAt, Key::UpdatedAt]
            .into_iter()
            .find_map(|key| {
                let raw = entry.get(key)?;
                string(raw).map_or_else(|| parse_time(raw.get()), |text| parse_time(&text))
            });
        Self {
            id: id.map_or_else(|| identity(b"bytes", raw), |id| identity(b"id", &id)),
            created_at: created_at.map(whole_microseconds),
        }
    }
}

// === impl Event ===

impl Event {
    /// Notes what is not as documented.
    pub(crate) fn mark(&mut self, problem: &'static str) {
        self.problem = Some(problem);
        if let Ok(event) = &mut self.event {
            event.malformed = true;
        }
    }

    /// Reads the rest of an entry whose head was read.
    pub(crate) fn read(raw: &str, head: Head, filters: &Filters) -> Self {
        let (entry, is_object) = Object::read(raw, |_| false);
        let activity_type = entry.text(Key::Type);
        let actor = entry.actor();
        let actor_id = entry.get(Key::ActorUserId);
        let organization = entry.organization();
        let is_given = |raw: Option<&RawValue>| raw.is_some_and(|raw| raw.get() != "null");
        let problems = [
            (!is_object, "the entry is not a JSON object"),
            (activity_type.is_none(), "the entry has no type"),
            (
                entry.get(Key::Id).and_then(id_text).is_none(),
                "the entry has no id",
            ),
            (head.created_at.is_none(), "the entry has no readable time"),
            (
                actor.is_none() && is_given(actor_id),
                "actorUserId is not an id",
            ),
            (
                organization.is_none() && is_given(entry.get(Key::OrganizationId)),
                "organizationId is not a number",
            ),
        ];
        let problem = problems.into_iter().find(|(is_there, _)| *is_there);
        let problem = problem.map(|(_, problem)| problem);
        let filtered = is_object && !entry.matches(filters, activity_type.as_deref());
        let event = match activity_type {
            Some(activity_type) => Ok(NewEvent {
                malformed: problem.is_some(),
                activity_type: activity_type.into_owned(),
                actor,
            }),
            None => Err(problem.unwrap_or_default()),
        };
        Self {
            event,
            organization,
            problem,
            filtered,
        }
    }
}

/// Returns the id of an entry for a log line.
pub(crate) fn entry_id(raw: &str) -> String {
    let (entry, _) = Object::read(raw, |object| object.get(Key::Id).is_some());
    let id = entry.get(Key::Id).and_then(id_text);
    shown_id(&id.unwrap_or("none".into()))
}

/// Returns the id of an entry's organization.
pub(crate) fn organization_id(raw: &str) -> Option<i64> {
    Object::read(raw, |object| object.get(Key::OrganizationId).is_some())
        .0
        .organization()
}

/// Returns the name of an entry's organization.
pub(super) fn organization_name(raw: &str) -> Option<String> {
    let (entry, _) = Object::read(raw, |_| false);
    let name = entry.object(Key::Organization).text(Key::Name)?;
    Some(name.into_owned())
}

// === impl Key ===

impl Key {
    /// Returns the key of a member's name, as written.
    fn read(raw: &RawValue) -> Self {
        let name = unquoted(raw).unwrap_or_default();
        match Self::named(name.as_bytes()) {
            Self::Other if name.contains('\\') => {
                string(raw).map_or(Self::Other, |name| Self::named(name.as_bytes()))
            }
            key => key,
        }
    }

    /// Bytes are compared much faster than strings.
    fn named(name: &[u8]) -> Self {
        Self::deserialize(BytesDeserializer::<value::Error>::new(name)).unwrap_or(Self::Other)
    }
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Reads an object until it has enough fields; reports also whether it is an object.
    fn read(raw: &'a str, is_enough: fn(&Self) -> bool) -> (Self, bool) {
        let mut object = Self::default();
        let reader = Reader {
            object: &mut object,
            is_enough,
        };
        let result = serde_json::Deserializer::from_str(raw).deserialize_map(reader);
        (object, result.is_ok())
    }

    fn get(&self, key: Key) -> Option<&'a RawValue> {
        self.fields[key as usize]
    }

    /// Returns a nested object; an empty one if it is null or of another type.
    fn object(&self, key: Key) -> Self {
        self.get(key)
            .map_or_else(Self::default, |raw| Self::read(raw.get(), |_| false).0)
    }

    fn text(&self, key: Key) -> Option<Cow<'a, str>> {
        self.get(key).and_then(string)
    }

    fn number(&self, key: Key) -> Option<Cow<'a, str>> {
        self.get(key).and_then(number)
    }

    fn organization(&self) -> Option<i64> {
        self.get(Key::OrganizationId).and_then(whole_number)
    }

    fn actor(&self) -> Option<ActorRef> {
        let user = self.object(Key::ActorUser);
        let id = self.number(Key::ActorUserId).or(user.number(Key::Id))?;
        let [first, last] = [Key::FirstName, Key::LastName].map(|key| user.text(key));
        let names: Vec<&str> = [first.as_deref(), last.as_deref()]
            .into_iter()
            .flatten()
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        Some(ActorRef {
            id: id.into_owned(),
            name: (!names.is_empty()).then(|| names.join(" ")),
        })
    }

    /// Reports whether the entry is inside the filters for activity types and deals. The filters for e-mail addresses
    /// cannot be checked: entries have no addresses.
    fn matches(&self, filters: &Filters, activity_type: Option<&str>) -> bool {
        let types = &filters.activity_types;
        let is_type = types.is_empty() || types.iter().any(|one| Some(&**one) == activity_type);
        let deals = || {
            let evaluated = self.object(Key::Evaluation).object(Key::Deal);
            let deal = self.object(Key::Deal);
            [
                self.number(Key::DealId),
                deal.number(Key::Id),
                evaluated.number(Key::Id),
            ]
        };
        let wanted = &filters.deal_ids;
        is_type
            && (wanted.is_empty()
                || deals()
                    .into_iter()
                    .flatten()
                    .any(|id| wanted.iter().any(|one| *one == id)))
    }
}

/// Fills an object.
struct Reader<'o, 'a> {
    object: &'o mut Object<'a>,
    is_enough: fn(&Object<'a>) -> bool,
}

impl<'de> Visitor<'de> for Reader<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        // To decode every name would take longer than the rest.
        while let Some(name) = map.next_key::<&RawValue>()? {
            let key = Key::read(name);
            match self.object.fields.get_mut(key as usize) {
                Some(Some(_)) | None => drop(map.next_value::<IgnoredAny>()?),
                Some(field) => *field = Some(map.next_value()?),
            }
            if (self.is_enough)(self.object) {
                break;
            }
        }
        Ok(())
    }
}

/// Returns what is between the quotes of a JSON string, as written.
fn unquoted(raw: &RawValue) -> Option<&str> {
    raw.get().strip_prefix('"')?.strip_suffix('"')
}

/// Returns the text of a JSON string. A lone surrogate becomes U+FFFD.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = unquoted(raw)?;
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

    fn read(raw: &str) -> Event {
        Event::read(raw, Head::read(raw), &Filters::default())
    }

    fn actor(fields: &str) -> Option<ActorRef> {
        let raw = format!(r#"{{"id":"a","type":"X","createdAt":"2026-01-01T00:00:00Z"{fields}}}"#);
        read(&raw).event.expect("counted").actor
    }

    #[test]
    fn a_type_is_enough() {
        let raw = r#"{"type":"X","organizationId":"odd","task":"not an object"}"#;
        let event = read(raw);
        let counted = event.event.expect("counted");
        assert!(counted.malformed);
        assert_eq!(counted.activity_type, "X");
        assert_eq!(Head::read(raw).created_at, None);
        assert_eq!(event.organization, None);
    }

    #[test]
    fn whatever_a_documented_field_is_an_entry_with_a_type_is_counted() {
        let entry: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(include_str!("../../tests/golden/entry.json")).expect("JSON");
        let id = Head::read(&serde_json::to_string(&entry).expect("JSON")).id;
        for name in entry.keys().filter(|name| *name != "type") {
            for odd in [r#""\ud83d""#, "1e400", "[]", "{}", "true"] {
                let mut entry = entry.clone();
                entry.insert(name.clone(), "HERE".into());
                let raw = serde_json::to_string(&entry).expect("JSON");
                let raw = raw.replace("\"HERE\"", odd);
                assert!(read(&raw).event.is_ok(), "{name}: {odd}");
                assert!(Head::read(&raw).id == id || name == "id", "{name}: {odd}");
            }
        }
    }

    #[test]
    fn a_time_is_read_in_every_form() {
        let expected: Timestamp = "2026-03-01T10:00:00Z".parse().expect("a time");
        for (text, time) in [
            (r#""2026-03-01 10:00:00""#, Some(expected)),
            (r#""2026-03-01T10:00:00.000000999Z""#, Some(expected)),
            ("1772359200", Some(expected)),
            ("1772359200000", Some(expected)),
            (r#""1772359200""#, Some(expected)),
            (r#""soon""#, None),
        ] {
            let raw = format!(r#"{{"id":"a","type":"X","createdAt":{text}}}"#);
            assert_eq!(Head::read(&raw).created_at, time, "{text}");
            let problem = time.is_none().then_some("the entry has no readable time");
            assert_eq!(read(&raw).problem, problem, "{text}");
        }
    }

    #[test]
    fn the_beginning_of_an_entry_says_the_same_as_the_whole() {
        for raw in [
            r#"{"id":"a","createdAt":"2026-03-01T10:00:00Z","type":"X"}"#,
            r#"{"createdAt":1772359200,"type":"X","id":7}"#,
            r#"{"id":"a","createdAt":"soon","occurredAt":"2026-03-01T10:00:00Z"}"#,
            r#"{"id":"a","createdAt":"2026-03-01T10:00:00Z","id":"b","createdAt":"2020-01-01T00:00:00Z"}"#,
            r#"{"type":"X"}"#,
            "[]",
        ] {
            let whole = Head::of(&Object::read(raw, |_| false).0, raw);
            let head = Head::read(raw);
            assert_eq!(
                (head.id, head.created_at),
                (whole.id, whole.created_at),
                "{raw}"
            );
        }
    }

    #[test]
    fn without_a_type_it_cannot_be_counted() {
        for raw in ["null", "[]", "\"x\"", r#"{"id":"a"}"#, r#"{"type":null}"#] {
            assert!(read(raw).event.is_err(), "{raw}");
            assert_eq!(Head::read(raw).id, Head::read(raw).id);
        }
        assert_ne!(Head::read("null").id, Head::read("[]").id);
    }

    #[test]
    fn the_identity_never_changes() {
        let id = Head::read(r#"{"id":"evt_1","type":"X"}"#).id;
        assert_eq!(id, identity(b"id", "evt_1"));
        let huge =
            |last| Head::read(&format!(r#"{{"id":1844674407370955161{last},"type":"X"}}"#)).id;
        assert_ne!(huge(70), huge(71));
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
        for (raw, filtered) in [
            (r#"{"type":"X","dealId":7}"#, false),
            (r#"{"type":"X","deal":{"id":7}}"#, false),
            (
                r#"{"type":"X","evaluation":{"id":1,"deal":{"id":7}}}"#,
                false,
            ),
            (r#"{"type":"Y","dealId":7}"#, true),
            (r#"{"type":"X","dealId":8}"#, true),
            (r#"{"type":"X"}"#, true),
        ] {
            let event = Event::read(raw, Head::read(raw), &filters);
            assert_eq!(event.filtered, filtered, "{raw}");
        }
    }
}
