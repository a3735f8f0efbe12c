//! Tailing the audit logs: [`ranges`] decides, `tail` requests and commits.

mod event;
pub mod ranges;
mod start;
mod tail;

use std::time::Duration;

pub(crate) use event::Event;
#[cfg(any(test, fuzzing))]
pub(crate) use event::entry_id;
pub use start::Start;
pub use tail::{Tail, TailError};

/// How the audit logs are tailed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `--audit.poll-interval`: between two polls when nothing is new.
    pub poll_interval: Duration,
    /// `--audit.start`: how far back log records begin on a new ledger.
    pub start: Start,
    /// `--audit.reread-interval`.
    pub reread_interval: Duration,
    /// `--audit.reread-window`.
    pub reread_window: Duration,
    /// `--api.page-size`, 1 to 1000.
    pub page_size: u32,
}

#[cfg(test)]
mod ranges_tests;
#[cfg(test)]
mod requests_tests;
#[cfg(test)]
mod tests;
