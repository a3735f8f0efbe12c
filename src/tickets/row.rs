//! One row of a ticket page, read whatever it holds: as documented, else field by field, else as a ticket that says nothing.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use siphasher::sip::SipHasher13;

use crate::api::{Few, LinkedDeal, MAX_LINKED_DEALS, Number, Text, Ticket};

/// A ticket and how it is told from others.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) ticket: Ticket<'a>,
    /// The ticket's id; of one without an id, the hash of its bytes.
    pub(super) key: u64,
    /// Fields that the specification does not name.
    pub(super) unknown_fields: u64,
    /// Why it could not be read as documented.
    pub(super) malformed: Option<String>,
}

/// The documented fields (specification, section 2.3) that are numbers.
const NUMBERS: [&str; 5] = [
    "id",
    "organizationId",
    "createdByUserId",
    "integrationInstallationId",
    "dealAmountSum",
];

/// Those that are text.
const TEXTS: [&str; 11] = [
    "type",
    "state",
    "createdAt",
    "updatedAt",
    "closedAt",
    "title",
    "description",
    "vendorEntityId",
    "vendorEntityKey",
    "targetDueDate",
    "vendorEntityUrl",
];

/// A ticket's deals, as many as are read.
type Deals<T> = Few<T, MAX_LINKED_DEALS>;

/// The fields of a JSON object, each still to be read. The last of two with one name wins.
type Fields<'a> = BTreeMap<String, &'a RawValue>;

// === impl Row ===

impl<'a> Row<'a> {
    /// Reads a row; never fails.
    pub(super) fn read(raw: &'a str) -> Self {
        // serde would read an array as the fields in their order.
        if !raw.starts_with('{') {
            return Self {
                ticket: Ticket::default(),
                key: hash(raw),
                unknown_fields: 0,
                malformed: Some("it is not an object".to_owned()),
            };
        }
        match Ticket::parse(raw) {
            Ok((ticket, unknown_fields)) => {
                let key = ticket.id.map_or_else(|| hash(raw), key);
                Self {
                    ticket,
                    key,
                    unknown_fields,
                    malformed: None,
                }
            }
            Err(_) => Self::read_leniently(raw),
        }
    }

    fn read_leniently(raw: &'a str) -> Self {
        let fields: Fields<'a> = serde_json::from_str(raw).unwrap_or_default();
        let id = fields
            .get("id")
            .map(|id| id.get())
            .filter(|id| *id != "null");
        let number = field::<Number>(&fields, "id");
        // An id of another type than documented is still an identity.
        let key = number
            .map(key)
            .or_else(|| id.map(hash))
            .unwrap_or_else(|| hash(raw));
        let ticket = Ticket {
            id: number,
            r#type: field(&fields, "type"),
            state: field(&fields, "state"),
            created_at: field(&fields, "createdAt"),
            target_due_date: field(&fields, "targetDueDate"),
            deal_amount_sum: field(&fields, "dealAmountSum"),
            linked_deals: field::<Deals<&'a RawValue>>(&fields, "linkedDeals")
                .map(|deals| deals.items.into_iter().map(read_deal).collect()),
            ..Ticket::default()
        };
        Self {
            ticket,
            key,
            unknown_fields: 0,
            malformed: Some(complaint(&fields)),
        }
    }
}

/// The identity of a deal within the organization: its id, else its evaluation and name, else the ticket and the deal's place in it.
pub(super) fn deal_key(deal: &LinkedDeal<'_>, ticket: u64, position: usize) -> u64 {
    if let Some(id) = deal.id {
        key(id)
    } else if deal.evaluation_id.is_some() || deal.name.is_some() {
        hash((deal.evaluation_id, deal.name.as_deref()))
    } else {
        hash((ticket, position))
    }
}

fn read_deal(raw: &RawValue) -> LinkedDeal<'_> {
    let fields: Fields<'_> = serde_json::from_str(raw.get()).unwrap_or_default();
    LinkedDeal {
        id: field(&fields, "id"),
        evaluation_id: field(&fields, "evaluationId"),
        name: field(&fields, "name"),
        priority: field::<Text<'_>>(&fields, "priority"),
        shared_with_buyer: None,
    }
}

/// Names the fields that are not of the documented type. serde's own message would repeat what is in them, which is nobody's business in a log.
fn complaint(fields: &Fields<'_>) -> String {
    let numbers = NUMBERS
        .into_iter()
        .filter(|name| is_wrong::<Number>(fields, name));
    let texts = TEXTS
        .into_iter()
        .filter(|name| is_wrong::<Text<'_>>(fields, name));
    let deals = ["linkedDeals"]
        .into_iter()
        .filter(|name| is_wrong::<Deals<LinkedDeal<'_>>>(fields, name));
    let wrong: Vec<&str> = numbers.chain(texts).chain(deals).collect();
    if !wrong.is_empty() {
        format!("of another type than documented: {}", wrong.join(", "))
    } else if field::<Deals<IgnoredAny>>(fields, "linkedDeals").is_some_and(|deals| deals.more) {
        format!("only the first {MAX_LINKED_DEALS} of its linkedDeals are read")
    } else {
        "it is not as documented".to_owned()
    }
}

fn is_wrong<'a, T: Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> bool {
    fields
        .get(name)
        .is_some_and(|raw| serde_json::from_str::<Option<T>>(raw.get()).is_err())
}

/// A field, where it has the documented type.
fn field<'a, T: Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> Option<T> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// A whole number is its own key, so that two ids never collide; others are hashed.
fn key(number: Number) -> u64 {
    match number {
        Number::Whole(n) => u64::try_from(n).unwrap_or_else(|_| hash(n)),
        Number::Fraction(x) => hash(x.to_bits()),
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = SipHasher13::new();
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
        assert_eq!(row.key, 7);
        assert_eq!(
            row.malformed.as_deref(),
            Some("of another type than documented: dealAmountSum, type, linkedDeals")
        );
        assert_eq!(
            (row.ticket.state.as_deref(), row.ticket.r#type),
            (Some("OPEN"), None)
        );
        assert!(row.ticket.deal_amount_sum.is_none() && row.ticket.created_at.is_some());
        let deals = row.ticket.linked_deals.expect("present");
        assert_eq!(deals.len(), 3);
        assert_eq!(
            (deals[0].id, deals[0].priority.as_deref()),
            (None, Some("HIGH"))
        );
        assert_eq!(deals[2].id, Some(Number::Whole(9)));
    }

    #[test]
    fn an_absurd_number_of_deals_is_cut() {
        let deals = |count: usize| {
            format!(
                r#"{{"id":7,"state":"OPEN","linkedDeals":[{}{{}}]}}"#,
                "{},".repeat(count - 1)
            )
        };
        let (most, more) = (deals(MAX_LINKED_DEALS), deals(MAX_LINKED_DEALS + 1));
        assert_eq!(Row::read(&most).malformed, None);
        let row = Row::read(&more);
        assert_eq!(
            row.malformed.as_deref(),
            Some("only the first 10000 of its linkedDeals are read")
        );
        assert_eq!(
            (row.key, row.ticket.linked_deals.map(|deals| deals.len())),
            (7, Some(MAX_LINKED_DEALS))
        );
    }

    #[test]
    fn what_is_no_ticket_at_all_is_one_that_says_nothing() {
        for raw in [
            "3",
            "null",
            "[]",
            "[1,\"BUG\"]",
            "\"text\"",
            r#"{"id":1e999}"#,
            r#"{"id":1,"id":2,"state":"A","state":"B"}"#,
        ] {
            let row = Row::read(raw);
            assert!(row.malformed.is_some(), "{raw}");
        }
    }

    #[test]
    fn the_same_id_is_the_same_ticket_in_any_spelling() {
        let keys = [
            r#"{"id":42}"#,
            r#"{"id":42.0,"state":"OPEN"}"#,
            r#"{"id":42,"state":1}"#,
        ]
        .map(|raw| Row::read(raw).key);
        assert_eq!(keys, [42; 3]);
        assert_eq!(
            Row::read(r#"{"id":"a","x":1}"#).key,
            Row::read(r#"{"id":"a","x":2}"#).key
        );
    }

    #[test]
    fn without_an_id_the_bytes_tell_tickets_apart() {
        let row = |raw| Row::read(raw).key;
        assert_eq!(row(r#"{"title":"a"}"#), row(r#"{"title":"a"}"#));
        assert_ne!(row(r#"{"title":"a"}"#), row(r#"{"title":"b"}"#));
        assert_ne!(
            row(r#"{"id":null,"title":"a"}"#),
            row(r#"{"id":null,"title":"b"}"#)
        );
        assert_ne!(row(r#"{"id":-1}"#), row(r#"{"id":1}"#));
    }
}
