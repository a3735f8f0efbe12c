//! Tickets as gauges: a periodic scan over all pages, published as one snapshot or not at all.
//!
//! [`run`] calls [`Scanner::round`] on a timer. A round reads all pages (`scan`) while an [`Aggregate`] adds up what they
//! hold, and returns a [`Snapshot`].

mod aggregate;
mod flow;
mod labels;
mod row;
mod run;
mod scan;

use std::time::Duration;

pub use aggregate::Aggregate;
pub use aggregate::{MAX_SCAN, MAX_TICKETS};
pub use labels::{MAX_LABEL_CHARS, MAX_VALUES, NONE, OTHER, UNKNOWN};
pub use run::run;
pub use scan::{Doubt, MAX_ATTEMPTS, MAX_DEALS, ScanError, Scanner};

pub use crate::metrics::snapshot::Snapshot;

/// `--tickets.*` and `--api.page-size`.
#[derive(Clone, Debug)]
pub struct Settings {
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
