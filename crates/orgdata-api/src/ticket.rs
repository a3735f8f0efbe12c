//! A ticket (specification, section 2.3), borrowed from its page. All fields are optional, because the specification does
//! not say which are required, and as they are written, so that one of another type hides no other.

#![expect(
    missing_docs,
    reason = "the fields are those of the specification's tables, under the same names"
)]

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::value::RawValue;

use super::number::NumberText;

/// The maximum number of linked deals of a ticket that are read.
pub const MAX_LINKED_DEALS: usize = 10_000;

/// One ticket with every documented field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ticket<'a> {
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    /// An open set; `BUG` is an observed value.
    pub r#type: Option<&'a RawValue>,
    /// An open set; `OPEN` is an observed value.
    pub state: Option<&'a RawValue>,
    pub created_at: Option<&'a RawValue>,
    pub updated_at: Option<&'a RawValue>,
    pub closed_at: Option<&'a RawValue>,
    pub organization_id: Option<&'a RawValue>,
    pub created_by_user_id: Option<&'a RawValue>,
    pub title: Option<&'a RawValue>,
    pub description: Option<&'a RawValue>,
    pub vendor_entity_id: Option<&'a RawValue>,
    pub vendor_entity_key: Option<&'a RawValue>,
    pub integration_installation_id: Option<&'a RawValue>,
    pub target_due_date: Option<&'a RawValue>,
    pub linked_deals: Option<&'a RawValue>,
    /// In whatever currency the organization uses.
    pub deal_amount_sum: Option<&'a RawValue>,
    pub vendor_entity_url: Option<&'a RawValue>,
}

/// A deal that a ticket is linked to, likewise.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkedDeal<'a> {
    #[serde(borrow)]
    pub id: Option<&'a RawValue>,
    pub evaluation_id: Option<&'a RawValue>,
    pub name: Option<&'a RawValue>,
    /// An open set; `BLOCKER` is an observed value.
    pub priority: Option<&'a RawValue>,
    pub shared_with_buyer: Option<&'a RawValue>,
}

// === impl Ticket ===

impl<'a> Ticket<'a> {
    /// Parses a ticket. The second value is the number of fields that the specification does not document.
    ///
    /// # Errors
    /// Returns an error if it is not an object or repeats a field.
    pub fn parse(raw: &'a str) -> Result<(Self, u64), serde_json::Error> {
        parse(raw)
    }

    /// Returns the id of its organization, if that can be read.
    pub fn organization(&self) -> Option<u64> {
        let id: NumberText<'_> = serde_json::from_str(self.organization_id?.get()).ok()?;
        id.as_count()
    }
}

// === impl LinkedDeal ===

impl<'a> LinkedDeal<'a> {
    /// Parses a deal like [`Ticket::parse`].
    ///
    /// # Errors
    /// Returns an error if it is not an object or repeats a field.
    pub fn parse(raw: &'a str) -> Result<(Self, u64), serde_json::Error> {
        parse(raw)
    }
}

fn parse<'a, T: Deserialize<'a>>(raw: &'a str) -> Result<(T, u64), serde_json::Error> {
    // serde would read an array as the fields in their order.
    if !raw.starts_with('{') {
        return Err(serde_json::Error::custom("not an object"));
    }
    let mut unknown = 0;
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    let value = serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)?;
    deserializer.end()?;
    Ok((value, unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_without_any_field_is_a_ticket() {
        let (ticket, unknown) = Ticket::parse("{}").expect("valid");
        assert!(ticket.id.is_none() && ticket.linked_deals.is_none());
        assert_eq!(unknown, 0);
    }

    #[test]
    fn every_documented_field_is_known() {
        let raw = r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-01-01T00:00:00Z","updatedAt":"x","closedAt":null,"organizationId":1,
            "createdByUserId":2,"title":"t","description":null,"vendorEntityId":"v","vendorEntityKey":"K-1","integrationInstallationId":3,
            "targetDueDate":"2026-02-01","linkedDeals":[{"id":1,"evaluationId":null,"name":"d","priority":"BLOCKER","sharedWithBuyer":true}],
            "dealAmountSum":10.25,"vendorEntityUrl":"https://x.example"}"#;
        let (ticket, unknown) = Ticket::parse(raw).expect("valid");
        assert_eq!(unknown, 0);
        assert_eq!(ticket.deal_amount_sum.expect("present").get(), "10.25");
        let deals = ticket.linked_deals.expect("present").get();
        let (deal, unknown) = LinkedDeal::parse(&deals[1..deals.len() - 1]).expect("valid");
        assert_eq!(deal.priority.expect("present").get(), "\"BLOCKER\"");
        assert_eq!((unknown, ticket.organization()), (0, Some(1)));
    }

    #[test]
    fn what_is_not_an_object_is_not_a_ticket() {
        for raw in [
            "3",
            "null",
            "[]",
            "[1,\"BUG\"]",
            "\"text\"",
            r#"{"id":1,"id":2}"#,
        ] {
            assert!(Ticket::parse(raw).is_err(), "{raw}");
        }
    }
}
