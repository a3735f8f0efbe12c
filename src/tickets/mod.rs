//! Tickets as gauges: a periodic scan over all pages, folded while they arrive, published as one snapshot or not at all.
//!
//! One round is [`Scanner::round`]; [`run`] calls it on a timer. A scan that something disturbed is repeated a few times and then published
//! with what the last attempt had, marked as not consistent. What "consistent" promises is said at [`Scanner`].

mod amount;
mod driver;
mod fold;
mod ids;
mod labels;
mod pages;
mod row;
mod scan;
mod snapshot;
mod walk;

use std::time::Duration;

pub use amount::Amount;
pub use driver::run;
pub use fold::{Fold, Seen};
pub use labels::{MAX_LABEL_CHARS, MAX_VALUES, NONE, OTHER, UNKNOWN};
pub use pages::{CONCURRENCY, PageSource};
pub use scan::{MAX_ATTEMPTS, MAX_DEALS, MAX_TICKETS, ScanError, Scanner};
pub use snapshot::{Group, MIN_AGES, Snapshot};
pub use walk::Doubt;

/// The longest that reading the listing once may take. Due dates further ahead than this and the age of a snapshot need not be remembered.
pub const MAX_SCAN: Duration = Duration::from_secs(6 * 60 * 60);

/// `--tickets.*` and `--api.page-size`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between the beginnings of two scans.
    pub scan_interval: Duration,
    /// How long a snapshot is shown when no newer one comes.
    pub max_age: Duration,
    /// The states that count as open; compared as they are written.
    pub open_states: Vec<String>,
    /// Priorities of linked deals, highest first; unknown ones rank below the last.
    pub priorities: Vec<String>,
    /// Tickets asked for in one request, 1 to 1000.
    pub page_size: u32,
}
