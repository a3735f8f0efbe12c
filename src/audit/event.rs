//! What the tail needs of an entry: who it is, when it came, and what it counts as.

use std::hash::Hasher;

use jiff::Timestamp;
use serde_json::Value;
use siphasher::sip::SipHasher13;

use crate::api::{Entry, Number, parse_time};
use crate::ledger::{ActorRef, EventId, NewEvent};

/// One entry of a page.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Its identity.
    pub(crate) id: EventId,
    /// When it was created; the arrival of its page where it has no readable time.
    pub(crate) created_at: Timestamp,
    /// What it counts as; or why it cannot be counted.
    pub(crate) event: Result<NewEvent, String>,
    /// The organization it belongs to.
    pub(crate) organization: Option<String>,
}

// === impl Event ===

impl Event {
    /// Reads an entry; the second value counts fields that the specification does not name.
    pub(crate) fn read(raw: &str, arrived: Timestamp) -> (Self, u64) {
        match Entry::parse(raw) {
            Ok((entry, unknown)) => match Self::of(&entry) {
                Some(event) => (event, unknown),
                None => (
                    Self::lenient(
                        raw,
                        arrived,
                        "none of createdAt, occurredAt and updatedAt is a time, or the id is empty",
                    ),
                    unknown,
                ),
            },
            Err(error) => (Self::lenient(raw, arrived, &error.to_string()), 0),
        }
    }

    fn of(entry: &Entry<'_>) -> Option<Self> {
        let created_at = [&entry.created_at, &entry.occurred_at, &entry.updated_at]
            .into_iter()
            .find_map(|text| parse_time(text))?;
        if entry.id.is_empty() {
            return None;
        }
        let user = entry.actor_user.as_ref();
        let actor = entry
            .actor_user_id
            .or(user.map(|user| user.id))
            .map(|id| ActorRef {
                id: id.to_string(),
                name: user.and_then(|user| user.full_name()),
            });
        Some(Self {
            id: identity(b"id", &entry.id),
            created_at,
            event: Ok(NewEvent {
                activity_type: entry.r#type.0.clone().into_owned(),
                actor,
                malformed: false,
            }),
            organization: Some(entry.organization_id.to_string()),
        })
    }

    /// An id, a type and a time are enough to count an entry, whatever else is wrong with it.
    fn lenient(raw: &str, arrived: Timestamp, error: &str) -> Self {
        let value: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
        let id = match &value["id"] {
            Value::String(id) if !id.is_empty() => Some(identity(b"id", id)),
            Value::Number(id) => Some(identity(b"id", &id.to_string())),
            _ => None,
        };
        let created_at = ["createdAt", "occurredAt", "updatedAt"]
            .iter()
            .find_map(|name| parse_time(value[*name].as_str()?));
        let event = match (&id, value["type"].as_str(), created_at) {
            (Some(_), Some(activity_type), Some(_)) => Ok(NewEvent {
                activity_type: activity_type.to_owned(),
                actor: lenient_actor(&value),
                malformed: true,
            }),
            _ => Err(format!(
                "the entry has no usable id, type and time: {error}"
            )),
        };
        Self {
            id: id.unwrap_or_else(|| identity(b"bytes", raw)),
            created_at: created_at.unwrap_or(arrived),
            event,
            // Only as the contract has it: a row that is odd in just this would pass for another organization's, and hold the tail for good.
            organization: number(&value["organizationId"])
                .filter(|_| value["organizationId"].is_number()),
        }
    }
}

fn lenient_actor(value: &Value) -> Option<ActorRef> {
    let user = &value["actorUser"];
    let id = number(&value["actorUserId"]).or_else(|| number(&user["id"]))?;
    let names: Vec<&str> = ["firstName", "lastName"]
        .iter()
        .filter_map(|name| user[*name].as_str())
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    Some(ActorRef {
        id,
        name: (!names.is_empty()).then(|| names.join(" ")),
    })
}

fn number(value: &Value) -> Option<String> {
    match value {
        Value::Number(_) => serde_json::from_value::<Number>(value.clone())
            .ok()
            .map(|number| number.to_string()),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// The same for the same id on every machine and in every version: the ledger keeps it.
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
        Event::read(raw, Timestamp::UNIX_EPOCH).0
    }

    #[test]
    fn an_id_a_type_and_a_time_are_enough() {
        let event = read(
            r#"{"id":"a","type":"X","createdAt":"2026-01-01T00:00:00Z","actorUserId":7,"organizationId":"odd","task":"not an object"}"#,
        );
        let counted = event.event.expect("counted");
        assert!(counted.malformed);
        assert_eq!(
            (
                counted.activity_type.as_str(),
                counted.actor.expect("an actor").id.as_str()
            ),
            ("X", "7")
        );
    }

    #[test]
    fn an_odd_organization_is_none() {
        let of = |id: &str| {
            read(&format!(r#"{{"id":"a","type":"X","organizationId":{id}}}"#)).organization
        };
        assert_eq!(
            (of("7").as_deref(), of("\"odd\""), of("\"8\""), of("null")),
            (Some("7"), None, None, None)
        );
    }

    #[test]
    fn without_one_of_them_it_is_known_by_its_bytes() {
        for raw in [
            r#"{"type":"X","createdAt":"2026-01-01T00:00:00Z"}"#,
            r#"{"id":"a","type":"X"}"#,
            "null",
            "[]",
            "\"x\"",
            "{\"id\":\"\"}",
        ] {
            let event = read(raw);
            assert!(event.event.is_err(), "{raw}");
            assert_eq!(event.id, read(raw).id);
        }
        assert_ne!(read("null").id, read("[]").id);
    }

    #[test]
    fn the_same_id_is_the_same_event_whatever_else_changed() {
        let one = read(r#"{"id":"a","type":"X","createdAt":"2026-01-01T00:00:00Z"}"#);
        let two = read(r#"{"id":"a","type":"Y","createdAt":"2026-01-02T00:00:00Z"}"#);
        assert_eq!(one.id, two.id);
    }

    #[test]
    fn an_actor_is_known_by_the_id_or_by_the_user() {
        let of = |fields: &str| {
            let raw = format!(
                r#"{{"id":"a","type":"X","createdAt":"2026-01-01T00:00:00Z","occurredAt":"","updatedAt":"","organizationId":1{fields}}}"#
            );
            read(&raw).event.expect("counted").actor
        };
        assert_eq!(of(""), None);
        assert_eq!(of(r#","actorUserId":5"#).expect("an actor").id, "5");
        let user = of(
            r#","actorUser":{"id":5.0,"firstName":"Ada","lastName":"L","profileImageUrl":null}"#,
        )
        .expect("an actor");
        assert_eq!(
            user,
            ActorRef {
                id: "5".into(),
                name: Some("Ada L".into())
            }
        );
    }

    #[test]
    fn the_identity_never_changes() {
        assert_eq!(identity(b"id", "a"), identity(b"id", "a"));
        assert_eq!(
            read(r#"{"id":"evt_1","type":"X","createdAt":"2026-01-01T00:00:00Z"}"#).id,
            identity(b"id", "evt_1")
        );
        assert_ne!(identity(b"id", "a"), identity(b"bytes", "a"));
    }
}
