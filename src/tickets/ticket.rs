//! A ticket (specification, section 2.3), field by field: one that cannot be read leaves the others.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use orgdata_api::{Bounded, NumberText, Text, is_date, parse_json_time};
use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The maximum number of linked deals of a ticket that are read.
const MAX_LINKED_DEALS: usize = 10_000;

/// The fields of a ticket that are used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Ticket<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    organization_id: Lenient<NumberText<'a>>,
    pub(super) r#type: Lenient<Text<'a>>,
    pub(super) state: Lenient<Text<'a>>,
    pub(super) created_at: Lenient<Date>,
    pub(super) closed_at: Lenient<Date>,
    pub(super) target_due_date: Lenient<Date>,
    pub(super) deal_amount_sum: Lenient<Amount>,
    linked_deals: Lenient<Deals<'a>>,
    /// The hash of the ticket's id, or of its bytes if it has none.
    #[serde(skip)]
    pub(super) key: u64,
    /// The fields that could not be read.
    #[serde(skip)]
    pub(super) unreadable: Vec<&'static str>,
}

/// A deal that a ticket is linked to.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LinkedDeal<'a> {
    #[serde(borrow)]
    id: Option<NumberText<'a>>,
    evaluation_id: Option<NumberText<'a>>,
    name: Option<Text<'a>>,
    priority: Option<Text<'a>>,
}

/// A field that is missing, null, of the documented type, or unreadable.
#[derive(Debug)]
pub(super) struct Lenient<T> {
    pub(super) value: Option<T>,
    is_unreadable: bool,
}

/// A value that is read from its JSON; `None` if it has another type.
trait Field<'a>: Sized {
    fn read(json: &'a str) -> Option<Self>;
}

type Deals<'a> = Bounded<LinkedDeal<'a>, MAX_LINKED_DEALS>;

/// A time. `None` for the values that some systems use for "no time": the epoch and earlier, and the last day of the year 9999.
#[derive(Debug)]
pub(super) struct Date {
    at: Option<Timestamp>,
    /// It is a date without a time.
    is_day: bool,
}

/// An amount of less than 10²⁴.
#[derive(Debug)]
pub(super) struct Amount(pub(super) Decimal);

// === impl Ticket ===

impl<'a> Ticket<'a> {
    /// Reads a ticket as the API wrote it.
    pub(super) fn read(raw: &'a str) -> Self {
        // serde would read an array as the fields in their order.
        let object = Some(raw).filter(|raw| raw.starts_with('{'));
        let ticket = object.and_then(|raw| serde_json::from_str(raw).ok());
        let is_readable = ticket.is_some();
        let mut ticket: Self = ticket.unwrap_or_default();
        let id = ticket.id.map(RawValue::get);
        let number = id.and_then(|id| serde_json::from_str(id).ok());
        let deals = &ticket.linked_deals;
        let too_many = deals.value.as_ref().is_some_and(|deals| deals.more);
        let unreadable = [
            ("all of it", !is_readable),
            ("id", id.is_some() && number.is_none()),
            ("type", ticket.r#type.is_unreadable),
            ("state", ticket.state.is_unreadable),
            ("createdAt", ticket.created_at.is_unreadable),
            ("closedAt", ticket.closed_at.is_unreadable),
            ("targetDueDate", ticket.target_due_date.is_unreadable),
            ("dealAmountSum", ticket.deal_amount_sum.is_unreadable),
            ("linkedDeals", deals.is_unreadable || too_many),
        ];
        let unreadable = unreadable.into_iter().filter(|(_, is_so)| *is_so);
        ticket.unreadable = unreadable.map(|(name, _)| name).collect();
        // An id of another type is still an identity.
        ticket.key = number.map_or_else(|| hash(id.unwrap_or(raw)), id_key);
        ticket
    }

    /// Returns the id as written.
    pub(super) fn id(&self) -> &'a str {
        self.id.map_or("without an id", RawValue::get)
    }

    /// Returns the id of the organization.
    pub(super) fn organization(&self) -> Option<i64> {
        let id = self.organization_id.value.as_ref()?.as_count()?;
        i64::try_from(id).ok()
    }

    /// Returns the linked deals, each with its identity: its id, otherwise its evaluation and name, otherwise the ticket and
    /// its position there.
    pub(super) fn deals(&self) -> impl Iterator<Item = (u64, Option<&str>)> {
        let deals = self.linked_deals.value.iter();
        let deals = deals.flat_map(|deals| &deals.items).enumerate();
        deals.map(|(position, deal)| {
            let key = match (deal.id, deal.evaluation_id, deal.name.as_deref()) {
                (Some(id), ..) => id_key(id),
                (None, None, None) => hash((self.key, position)),
                (None, evaluation, name) => hash((evaluation, name)),
            };
            (key, deal.priority.as_deref())
        })
    }
}

// === impl Lenient ===

impl<T> Default for Lenient<T> {
    fn default() -> Self {
        Self {
            value: None,
            is_unreadable: false,
        }
    }
}

impl<'de: 'a, 'a, T: Field<'a>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        let value = T::read(json);
        Ok(Self {
            is_unreadable: value.is_none() && json != "null",
            value,
        })
    }
}

impl Lenient<Date> {
    pub(super) fn time(&self) -> Option<Timestamp> {
        self.value.as_ref()?.at
    }

    /// Returns the time, or the end of a date without one.
    pub(super) fn end(&self) -> Option<Timestamp> {
        let date = self.value.as_ref()?;
        let day = SignedDuration::from_hours(if date.is_day { 24 } else { 0 });
        date.at?.checked_add(day).ok()
    }
}

impl<'a> Field<'a> for Text<'a> {
    fn read(json: &'a str) -> Option<Self> {
        match json.strip_prefix('"')?.strip_suffix('"')? {
            escaped if escaped.contains('\\') => serde_json::from_str(json).ok(),
            plain => Some(Self(plain.into())),
        }
    }
}

impl<'a> Field<'a> for Date {
    fn read(json: &'a str) -> Option<Self> {
        let text = json.trim_matches('"').trim();
        let is_none = matches!(text, "" | "0") || text.starts_with("9999-12-31");
        if is_none {
            return Some(Self {
                at: None,
                is_day: false,
            });
        }
        let time = parse_json_time(json)?;
        Some(Self {
            at: Some(time).filter(|time| *time > Timestamp::UNIX_EPOCH),
            is_day: is_date(text),
        })
    }
}

impl<'a> Field<'a> for Amount {
    fn read(json: &'a str) -> Option<Self> {
        // A number that does not fit is too large, or its text with an exponent is only too precise.
        let exact = json.parse().or_else(|_| Decimal::from_scientific(json));
        let rounded = || Decimal::from_f64_retain(json.parse().ok()?);
        let most = Decimal::from(10_u128.pow(24));
        let amount = exact.ok().or_else(rounded);
        amount.filter(|amount| amount.abs() < most).map(Self)
    }
}

impl<'a> Field<'a> for NumberText<'a> {
    fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }
}

impl<'a> Field<'a> for Deals<'a> {
    fn read(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
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
    fn an_absurd_number_of_deals_is_cut() {
        for (count, is_cut) in [(MAX_LINKED_DEALS, false), (MAX_LINKED_DEALS + 1, true)] {
            let deals = vec!["{}"; count].join(",");
            let raw = format!(r#"{{"id":7,"state":"OPEN","linkedDeals":[{deals}]}}"#);
            let ticket = Ticket::read(&raw);
            let seen = (ticket.deals().count(), !ticket.unreadable.is_empty());
            assert_eq!(seen, (MAX_LINKED_DEALS, is_cut));
        }
    }

    #[test]
    fn identity_is_the_id_in_any_spelling_or_the_bytes() {
        let key = |raw| Ticket::read(raw).key;
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
