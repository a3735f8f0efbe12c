//! A ticket (specification, section 2.3), borrowed from its page. All fields are optional, because the specification does
//! not say which are required.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::bounded::Bounded;
use super::number::NumberText;
use super::text::Text;

/// The maximum number of linked deals of a ticket.
pub const MAX_LINKED_DEALS: usize = 10_000;

/// One ticket with every documented field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct Ticket<'a> {
    #[serde(borrow)]
    pub id: Option<NumberText<'a>>,
    /// An open set; `BUG` is an observed value.
    #[serde(borrow)]
    pub r#type: Option<Text<'a>>,
    /// An open set; `OPEN` is an observed value.
    #[serde(borrow)]
    pub state: Option<Text<'a>>,
    #[serde(borrow)]
    pub created_at: Option<Text<'a>>,
    #[serde(borrow)]
    pub updated_at: Option<Text<'a>>,
    #[serde(borrow)]
    pub closed_at: Option<Text<'a>>,
    #[serde(borrow)]
    pub organization_id: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub created_by_user_id: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub title: Option<Text<'a>>,
    #[serde(borrow)]
    pub description: Option<Text<'a>>,
    #[serde(borrow)]
    pub vendor_entity_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub vendor_entity_key: Option<Text<'a>>,
    #[serde(borrow)]
    pub integration_installation_id: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub target_due_date: Option<Text<'a>>,
    /// At most [`MAX_LINKED_DEALS`].
    #[serde(borrow, deserialize_with = "linked_deals")]
    pub linked_deals: Option<Vec<LinkedDeal<'a>>>,
    /// In whatever currency the organization uses.
    #[serde(borrow)]
    pub deal_amount_sum: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub vendor_entity_url: Option<Text<'a>>,
}

/// A deal that a ticket is linked to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(
    missing_docs,
    reason = "the fields are those of the specification's table, under the same names"
)]
pub struct LinkedDeal<'a> {
    #[serde(borrow)]
    pub id: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub evaluation_id: Option<NumberText<'a>>,
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// An open set; `BLOCKER` is an observed value.
    #[serde(borrow)]
    pub priority: Option<Text<'a>>,
    pub shared_with_buyer: Option<bool>,
}

// === impl Ticket ===

impl<'a> Ticket<'a> {
    /// Parses a ticket. The second value is the number of fields that the specification does not document.
    ///
    /// # Errors
    /// Returns an error if a field has another type than documented, or there are too many deals.
    pub fn parse(raw: &'a str) -> Result<(Self, u64), serde_json::Error> {
        let mut unknown = 0;
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        let ticket = serde_ignored::deserialize(&mut deserializer, |_| unknown += 1)?;
        deserializer.end()?;
        Ok((ticket, unknown))
    }
}

fn linked_deals<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<LinkedDeal<'a>>>, D::Error> {
    match Option::<Bounded<LinkedDeal<'a>, MAX_LINKED_DEALS>>::deserialize(deserializer)? {
        Some(deals) if deals.more => Err(D::Error::custom("too many linked deals")),
        deals => Ok(deals.map(|deals| deals.items)),
    }
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
        assert_eq!(ticket.deal_amount_sum.expect("present").as_f64(), 10.25);
        assert_eq!(
            ticket.linked_deals.expect("present")[0].priority.as_deref(),
            Some("BLOCKER")
        );
    }
}
