//! The ticket page that answers a request (sections 2.3 and 4.2).
//!
//! Silent spots of the specification, as read here: parameters are refused as those of the audit log listing are; an
//! offset behind the last ticket gives an empty page; a page capped below the asked limit echoes the smaller limit.

use serde_json::json;

use super::desk::Desk;
use super::query::{Issues, Query};
use super::readings::{Readings, TotalCount, UnknownParameters};

/// What is asked of the listing, checked.
#[derive(Debug)]
pub(super) struct TicketQuery {
    limit: u64,
    offset: u64,
}

/// A page, its tickets already as JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct TicketPage {
    pub(super) ids: Vec<String>,
    pub(super) items: Vec<String>,
    limit: u64,
    offset: u64,
    /// What `totalCount` says, when the page has the field.
    total: Option<Option<i64>>,
}

// === impl TicketQuery ===

impl TicketQuery {
    pub(super) fn parse(query: &Query, readings: &Readings) -> Result<Self, Issues> {
        let mut issues = Issues::default();
        let (limit, offset) = (query.limit(&mut issues), query.offset(&mut issues));
        if readings.unknown_parameters == UnknownParameters::Refuse {
            query.refuse_unknown(&["limit", "offset"], &mut issues);
        }
        if issues.body().is_some() {
            Err(issues)
        } else {
            Ok(Self { limit, offset })
        }
    }

    pub(super) fn answer(&self, desk: &Desk, readings: &Readings) -> TicketPage {
        let limit = self.limit.min(readings.page_cap.unwrap_or(u64::MAX));
        let from = if readings.ignore_offset {
            0
        } else {
            self.offset
        };
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let listed = desk.listed(readings.ticket_order, size(from), size(limit));
        let (ids, items): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .map(|(id, json)| (id.to_string(), json))
            .unzip();
        let count = i64::try_from(desk.len()).unwrap_or(i64::MAX);
        let total = match readings.total_count {
            TotalCount::Right => Some(Some(count)),
            TotalCount::Missing => None,
            TotalCount::Null => Some(None),
            TotalCount::Off(by) => Some(Some(count.saturating_add(by))),
            TotalCount::PageLength => Some(Some(i64::try_from(items.len()).unwrap_or(i64::MAX))),
        };
        TicketPage {
            ids,
            items,
            limit,
            offset: self.offset,
            total,
        }
    }
}

// === impl TicketPage ===

impl TicketPage {
    /// The page as it is served.
    pub(super) fn body(&self) -> String {
        let mut body = format!(
            "{{\"items\":[{}],\"limit\":{},\"offset\":{}",
            self.items.join(","),
            self.limit,
            self.offset
        );
        if let Some(total) = self.total {
            body.push_str(",\"totalCount\":");
            body.push_str(&json!(total).to_string());
        }
        body.push('}');
        body
    }
}
