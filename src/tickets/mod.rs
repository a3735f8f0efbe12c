//! Tickets as gauges: a periodic scan over all pages, published as one snapshot or not at all.
//!
//! [`Scanner::round`] reads all pages (`scan`) while an [`Aggregate`] adds up what they hold, and returns a
//! [`Snapshot`](crate::metrics::tickets::Snapshot). The loop in `run` calls it and publishes the snapshot.

mod aggregate;
mod flow;
mod run;
mod scan;
mod ticket;
mod values;

use std::time::Duration;

pub use aggregate::{Aggregate, MAX_SCAN, MAX_TICKETS};
pub use run::scan_tickets;
pub use scan::{Doubt, MAX_ATTEMPTS, MAX_DEALS, ScanError, Scanner};
pub use values::{MAX_LABEL_CHARS, MAX_VALUES, NONE, OTHER, UNKNOWN};

/// Returns the organization of a ticket as the API wrote it.
pub(crate) fn organization(raw: &str) -> Option<i64> {
    ticket::Ticket::read(raw).organization()
}

/// `--tickets.*` and `--api.page-size`.
#[derive(Clone, Debug)]
pub struct ScanSettings {
    /// The time between the starts of two scans.
    pub scan_interval: Duration,
    /// How long a snapshot is shown if no newer one follows.
    pub max_age: Duration,
    /// The states that count as open, exactly as written.
    pub open_states: Vec<String>,
    /// Priorities of linked deals, highest first; others rank below them.
    pub priorities: Vec<String>,
    /// The number of tickets requested at once, 1 to 1000.
    pub page_size: u32,
}
