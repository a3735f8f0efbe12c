//! Fields of tickets and deals, read whatever they hold, and the identity of both.

use std::hash::{DefaultHasher, Hash, Hasher};

use orgdata_api::{LinkedDeal, NumberText, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Returns a field. If it cannot be read, its name is added to `unread`.
pub(super) fn get<'a, T: Deserialize<'a>>(
    field: Option<&'a RawValue>,
    name: &'static str,
    unread: &mut Vec<&'static str>,
) -> Option<T> {
    let value = serde_json::from_str(field?.get());
    if value.is_err() {
        unread.push(name);
    }
    value.ok()
}

/// Returns the identity of a ticket: its id, also one of another type, otherwise its bytes.
pub(super) fn ticket_key(id: Option<&RawValue>, raw: &str) -> u64 {
    let Some(id) = id.map(RawValue::get) else {
        return hash(raw);
    };
    serde_json::from_str(id).map_or_else(|_| hash(id), id_key)
}

/// Returns the identity of a deal: its id, otherwise its evaluation and name, otherwise the ticket and its position there.
pub(super) fn deal_key(
    deal: &LinkedDeal<'_>,
    ticket: u64,
    position: usize,
    unread: &mut Vec<&'static str>,
) -> u64 {
    if let Some(id) = get(deal.id, "linkedDeals", unread) {
        return id_key(id);
    }
    let evaluation: Option<NumberText<'_>> = get(deal.evaluation_id, "linkedDeals", unread);
    let name: Option<Text<'_>> = get(deal.name, "linkedDeals", unread);
    if evaluation.is_some() || name.is_some() {
        hash((evaluation, name))
    } else {
        hash((ticket, position))
    }
}

/// Returns the identity of a number in any spelling: `42` is `42.0`.
fn id_key(id: NumberText<'_>) -> u64 {
    id.as_count().map_or_else(|| hash(id.as_str()), hash)
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orgdata_api::Ticket;

    #[test]
    fn identity_is_the_id_in_any_spelling_or_the_bytes() {
        let key = |raw| ticket_key(Ticket::parse(raw).expect("a ticket").0.id, raw);
        for (a, b, same) in [
            (r#"{"id":42}"#, r#"{"id":42.0,"state":"OPEN"}"#, true),
            (r#"{"id":42}"#, r#"{"id":42,"state":1}"#, true),
            (r#"{"id":"a","x":1}"#, r#"{"id":"a","x":2}"#, true),
            (r#"{"id":-1}"#, r#"{"id":1}"#, false),
            (r#"{"title":"a"}"#, r#"{"title":"a"}"#, true),
            (r#"{"title":"a"}"#, r#"{"title":"b"}"#, false),
            (
                r#"{"id":null,"title":"a"}"#,
                r#"{"id":null,"title":"b"}"#,
                false,
            ),
        ] {
            assert_eq!(key(a) == key(b), same, "{a} {b}");
        }
    }
}
