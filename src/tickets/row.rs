//! One row of a ticket page, read whatever it holds: as documented, otherwise field by field.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use orgdata_api::{Bounded, LinkedDeal, MAX_LINKED_DEALS, NumberText, Text, Ticket};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A ticket and its identity.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) ticket: Ticket<'a>,
    /// The hash of the ticket's id, or of its bytes if it has none.
    pub(super) key: u64,
    /// Why it could not be read as documented.
    pub(super) malformed: Option<String>,
}

/// The fields of a JSON object. The last of two with the same name wins.
struct LooseFields<'a> {
    values: HashMap<Text<'a>, &'a RawValue>,
    /// Those of another type than documented.
    wrong: Vec<&'static str>,
}

// === impl Row ===

impl<'a> Row<'a> {
    /// Reads a row.
    pub(super) fn read(raw: &'a str) -> Self {
        // serde would read an array as the fields in their order.
        if !raw.starts_with('{') {
            return Self {
                ticket: Ticket::default(),
                key: hash(raw),
                malformed: Some("not an object".to_owned()),
            };
        }
        if let Ok(ticket) = Ticket::parse(raw) {
            let deals = ticket.linked_deals.as_ref();
            let too_many = deals.is_some_and(|deals| deals.more);
            return Self {
                key: ticket.id.map_or_else(|| hash(raw), id_key),
                ticket,
                malformed: too_many.then(|| {
                    format!("only the first {MAX_LINKED_DEALS} of its linkedDeals are read")
                }),
            };
        }
        Self::read_fields(raw)
    }

    fn read_fields(raw: &'a str) -> Self {
        let mut fields = LooseFields::read(raw);
        let deals = fields.get::<Bounded<&'a RawValue, MAX_LINKED_DEALS>>("linkedDeals");
        let mut read_deal = |deal: &'a RawValue| {
            let mut of_deal = LooseFields::read(deal.get());
            let deal = LinkedDeal {
                id: of_deal.get("id"),
                evaluation_id: of_deal.get("evaluationId"),
                name: of_deal.get("name"),
                priority: of_deal.get("priority"),
            };
            if !of_deal.wrong.is_empty() && !fields.wrong.contains(&"linkedDeals") {
                fields.wrong.push("linkedDeals");
            }
            deal
        };
        let linked_deals = deals.map(|deals| Bounded {
            items: deals.items.into_iter().map(&mut read_deal).collect(),
            more: deals.more,
        });
        let ticket = Ticket {
            id: fields.get("id"),
            r#type: fields.get("type"),
            state: fields.get("state"),
            created_at: fields.get("createdAt"),
            target_due_date: fields.get("targetDueDate"),
            deal_amount_sum: fields.get("dealAmountSum"),
            linked_deals,
            ..Ticket::default()
        };
        // An id of another type is still an identity.
        let written_id = fields.values.get(&Text("id".into())).map(|id| id.get());
        let key = match (ticket.id, written_id.filter(|id| *id != "null")) {
            (Some(id), _) => id_key(id),
            (None, id) => hash(id.unwrap_or(raw)),
        };
        // A message of serde would repeat the data, which must not be logged.
        let malformed = if !fields.wrong.is_empty() {
            let wrong = fields.wrong.join(", ");
            format!("of another type than documented: {wrong}")
        } else {
            "not as documented".to_owned()
        };
        Self {
            ticket,
            key,
            malformed: Some(malformed),
        }
    }
}

// === impl LooseFields ===

impl<'a> LooseFields<'a> {
    fn read(raw: &'a str) -> Self {
        Self {
            values: serde_json::from_str(raw).unwrap_or_default(),
            wrong: Vec::new(),
        }
    }

    /// Returns a field if it has the documented type.
    fn get<T: Deserialize<'a>>(&mut self, name: &'static str) -> Option<T> {
        match serde_json::from_str(self.values.get(&Text(name.into()))?.get()) {
            Ok(value) => value,
            Err(_) => {
                self.wrong.push(name);
                None
            }
        }
    }
}

/// Returns the identity of a deal: its id, otherwise its evaluation and name, otherwise the ticket and its position there.
pub(super) fn deal_key(deal: &LinkedDeal<'_>, ticket: u64, position: usize) -> u64 {
    if let Some(id) = deal.id {
        id_key(id)
    } else if deal.evaluation_id.is_some() || deal.name.is_some() {
        hash((deal.evaluation_id, deal.name.as_deref()))
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

    #[test]
    fn one_bad_field_leaves_the_others() {
        let raw = r#"{"id":7,"type":3,"state":"OPEN","dealAmountSum":"12","createdAt":"2026-01-01T00:00:00Z","title":"\ud800",
            "linkedDeals":[{"id":"x","priority":"HIGH"},5,{"id":9,"priority":null}]}"#;
        let row = Row::read(raw);
        assert_eq!(row.key, Row::read(r#"{"id":7}"#).key);
        assert_eq!(
            row.malformed.as_deref(),
            Some("of another type than documented: linkedDeals, type, dealAmountSum")
        );
        let ticket = row.ticket;
        assert_eq!(
            (ticket.state.as_deref(), ticket.r#type),
            (Some("OPEN"), None)
        );
        assert!(ticket.deal_amount_sum.is_none() && ticket.created_at.is_some());
        let deals = ticket.linked_deals.expect("present").items;
        assert_eq!(deals.len(), 3);
        assert_eq!(
            (deals[0].id, deals[0].priority.as_deref()),
            (None, Some("HIGH"))
        );
        assert_eq!(deals[2].id.map(|id| id.as_str()), Some("9"));
    }

    #[test]
    fn an_absurd_number_of_deals_is_cut() {
        for (count, malformed) in [(MAX_LINKED_DEALS, false), (MAX_LINKED_DEALS + 1, true)] {
            let deals = vec!["{}"; count].join(",");
            let raw = format!(r#"{{"id":7,"state":"OPEN","linkedDeals":[{deals}]}}"#);
            let row = Row::read(&raw);
            assert_eq!(row.malformed.is_some(), malformed);
            let read = row.ticket.linked_deals.map(|deals| deals.items.len());
            assert_eq!(read, Some(MAX_LINKED_DEALS));
        }
    }

    #[test]
    fn what_is_not_a_ticket_at_all_is_malformed() {
        for raw in [
            "3",
            "null",
            "[]",
            "[1,\"BUG\"]",
            "\"text\"",
            r#"{"id":"1"}"#,
            r#"{"id":1,"id":2,"state":"A","state":"B"}"#,
        ] {
            assert!(Row::read(raw).malformed.is_some(), "{raw}");
        }
    }

    #[test]
    fn identity_is_the_id_in_any_spelling_or_the_bytes() {
        let key = |raw| Row::read(raw).key;
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
