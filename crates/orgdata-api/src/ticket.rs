//! A ticket (specification, section 2.3), borrowed from its page. All fields are optional, because the specification does
//! not say which are required.

#![expect(
    missing_docs,
    reason = "the fields are those of the specification's tables, under the same names"
)]

use serde::Deserialize;

use super::bounded::Bounded;
use super::number::NumberText;
use super::text::Text;

/// The maximum number of linked deals of a ticket that are read.
pub const MAX_LINKED_DEALS: usize = 10_000;

/// One ticket with every documented field.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ticket<'a> {
    #[serde(borrow)]
    pub id: Option<NumberText<'a>>,
    /// An open set; `BUG` is an observed value.
    pub r#type: Option<Text<'a>>,
    /// An open set; `OPEN` is an observed value.
    pub state: Option<Text<'a>>,
    pub created_at: Option<Text<'a>>,
    pub updated_at: Option<Text<'a>>,
    pub closed_at: Option<Text<'a>>,
    pub organization_id: Option<NumberText<'a>>,
    pub created_by_user_id: Option<NumberText<'a>>,
    pub title: Option<Text<'a>>,
    pub description: Option<Text<'a>>,
    pub vendor_entity_id: Option<Text<'a>>,
    pub vendor_entity_key: Option<Text<'a>>,
    pub integration_installation_id: Option<NumberText<'a>>,
    pub target_due_date: Option<Text<'a>>,
    pub linked_deals: Option<Bounded<LinkedDeal<'a>, MAX_LINKED_DEALS>>,
    /// In whatever currency the organization uses.
    pub deal_amount_sum: Option<NumberText<'a>>,
    pub vendor_entity_url: Option<Text<'a>>,
}

/// A deal that a ticket is linked to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkedDeal<'a> {
    #[serde(borrow)]
    pub id: Option<NumberText<'a>>,
    pub evaluation_id: Option<NumberText<'a>>,
    pub name: Option<Text<'a>>,
    /// An open set; `BLOCKER` is an observed value.
    pub priority: Option<Text<'a>>,
    pub shared_with_buyer: Option<bool>,
}

// === impl Ticket ===

impl<'a> Ticket<'a> {
    /// Parses a ticket.
    ///
    /// # Errors
    /// Returns an error if a field has another type than documented.
    pub fn parse(raw: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_without_any_field_is_a_ticket() {
        let ticket = Ticket::parse("{}").expect("valid");
        assert!(ticket.id.is_none() && ticket.linked_deals.is_none());
    }

    #[test]
    fn every_documented_field_is_read() {
        let raw = r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-01-01T00:00:00Z","updatedAt":"x","closedAt":null,"organizationId":1,
            "createdByUserId":2,"title":"t","description":null,"vendorEntityId":"v","vendorEntityKey":"K-1","integrationInstallationId":3,
            "targetDueDate":"2026-02-01","linkedDeals":[{"id":1,"evaluationId":null,"name":"d","priority":"BLOCKER","sharedWithBuyer":true}],
            "dealAmountSum":10.25,"vendorEntityUrl":"https://x.example"}"#;
        let ticket = Ticket::parse(raw).expect("valid");
        assert!(
            !format!("{ticket:?}")
                .replace("description: None", "")
                .contains("None, v")
        );
        assert_eq!(ticket.deal_amount_sum.expect("present").as_str(), "10.25");
        assert_eq!(
            ticket.linked_deals.expect("present").items[0]
                .priority
                .as_deref(),
            Some("BLOCKER")
        );
    }
}
