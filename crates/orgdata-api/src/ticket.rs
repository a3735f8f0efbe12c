//! A ticket (specification, section 2.3), borrowed from its page. All fields are optional, because the specification does
//! not say which are required.

#![expect(
    missing_docs,
    reason = "the fields are those of the specification's tables, under the same names"
)]

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Bounded, NumberText, Text};

/// The maximum number of linked deals of a ticket that are read.
pub const MAX_LINKED_DEALS: usize = 10_000;

/// The documented fields of a ticket that are used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ticket<'a> {
    #[serde(borrow)]
    pub id: Option<NumberText<'a>>,
    /// An open set; `BUG` is an observed value.
    pub r#type: Option<Text<'a>>,
    /// An open set; `OPEN` is an observed value.
    pub state: Option<Text<'a>>,
    pub created_at: Option<&'a RawValue>,
    pub closed_at: Option<&'a RawValue>,
    pub organization_id: Option<NumberText<'a>>,
    pub target_due_date: Option<&'a RawValue>,
    pub linked_deals: Option<Bounded<LinkedDeal<'a>, MAX_LINKED_DEALS>>,
    /// In whatever currency the organization uses.
    pub deal_amount_sum: Option<NumberText<'a>>,
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
    fn every_field_is_optional_and_each_is_read() {
        let ticket = Ticket::parse("{}").expect("valid");
        assert!(ticket.id.is_none() && ticket.linked_deals.is_none());
        let raw = r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-01-01T00:00:00Z","updatedAt":"x","closedAt":"2026",
            "organizationId":1,"title":"t","description":null,"targetDueDate":"2026-02-01","dealAmountSum":10.25,
            "linkedDeals":[{"id":1,"evaluationId":2,"name":"d","priority":"BLOCKER","sharedWithBuyer":true}]}"#;
        let shown = format!("{:?}", Ticket::parse(raw).expect("valid"));
        assert!(
            !shown.contains("None") && shown.contains("10.25"),
            "{shown}"
        );
    }
}
