//! A client of the Organization Data API: pages, rows, errors, and the request budget of all loops.

mod backoff;
mod bounded;
mod budget;
mod client;
mod entry;
mod error;
mod exchange;
mod fields;
mod key;
mod number;
mod observer;
mod page;
mod query;
mod sanitize;
mod text;
mod ticket;
mod time;

pub use backoff::Backoff;
pub use bounded::Bounded;
pub use budget::Priority;
pub use client::parse_retry_after;
pub use client::{Client, Probe, Settings};
pub use entry::{
    Deal, Entry, Evaluation, Meeting, Organization, Requirement, Task, TeamRequest,
    TeamRequestType, TicketRef, UserSummary,
};
pub use error::{ApiError, FailureReason};
pub use fields::{each_field, is_entry_field};
pub use key::{KEY_VARIABLE, KeyError, KeySource};
pub use number::{Number, NumberText};
pub use observer::Observer;
pub use page::{AuditPage, Items, PageError, TicketPage};
pub use query::{AuditQuery, BaseUrl, BaseUrlError, Cursor, Filters};
pub use sanitize::{MAX_EXAMINED, MAX_SHOWN, error_chain, location, one_line, sanitize};
pub use text::Text;

/// The former name of [`Bounded`].
pub use bounded::Bounded as Few;
pub use ticket::{LinkedDeal, MAX_LINKED_DEALS, Ticket};
pub use time::parse_time;

/// One of the two listings (specification, section 4). Its name is the value of the label `endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `GET /v1/audit-logs`.
    AuditLogs,
    /// `GET /v1/tickets`.
    Tickets,
}

// === impl Endpoint ===

impl Endpoint {
    /// Both listings.
    pub const ALL: [Self; 2] = [Self::AuditLogs, Self::Tickets];

    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AuditLogs => "audit-logs",
            Self::Tickets => "tickets",
        }
    }

    /// Returns the path below the base address.
    pub fn path(self) -> &'static str {
        match self {
            Self::AuditLogs => "/v1/audit-logs",
            Self::Tickets => "/v1/tickets",
        }
    }

    /// Returns the scope that a key needs for it (specification, section 5).
    pub fn scope(self) -> &'static str {
        match self {
            Self::AuditLogs => "activity_logs:read",
            Self::Tickets => "tickets:read",
        }
    }
}
