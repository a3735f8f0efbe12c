//! A client of the Organization Data API: pages, rows, errors, and the request budget of all loops.

mod backoff;
mod budget;
mod client;
mod error;
mod json;
mod key;
mod page;
mod query;
mod sanitize;
mod time;

pub use backoff::Backoff;
pub use budget::LONGEST_WAIT;
pub use client::{Client, ClientSettings, Observer, Simulated};
pub use connections::ReadFile;
pub use error::{ApiError, FailureReason};
pub use json::{Bounded, NumberText, Text, TextBytes};
pub use key::{KEY_VARIABLE, KeySource};
pub use page::{AuditFields, AuditPage, Page, TicketFields, TicketPage};
pub use query::{BaseUrl, Filters};
pub use sanitize::{MAX_SHOWN, error_chain, location, one_line, sanitize};
pub use time::{is_date, parse_json_time, parse_time};

use strum::{AsRefStr, IntoStaticStr, VariantArray};

/// One of the two listings (specification, section 4). Its label is a value of `endpoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, AsRefStr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Endpoint {
    /// `GET /v1/audit-logs`.
    AuditLogs,
    /// `GET /v1/tickets`.
    Tickets,
}

// === impl Endpoint ===

impl Endpoint {
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
