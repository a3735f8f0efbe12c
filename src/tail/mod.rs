//! Tailing the audit logs: `sweep` decides what to request and what to take, `run` does it.

mod error;
mod event;
mod exclude;
mod fetched;
mod passes;
mod run;
mod start;
mod step;
mod sweep;
mod walk;

use std::time::Duration;

pub use error::TailError;
pub(crate) use event::organization_id;
#[cfg(any(test, fuzzing))]
pub(crate) use event::{Event, Head, entry_id};
pub use exclude::{Exclude, Excluded};
pub use run::Tail;
pub use start::Start;

/// How the audit logs are tailed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--audit.poll-interval`: between two polls.
    pub poll_interval: Duration,
    /// `--audit.start`: how far back log records begin on a new ledger.
    pub start: Start,
    /// `--audit.reread-interval`.
    pub reread_interval: Duration,
    /// `--audit.reread-window`.
    pub reread_window: Duration,
    /// `--api.page-size`, 1 to 1000.
    pub page_size: u32,
    /// What is known, but not counted or not sent.
    pub excluded: Excluded,
}

#[cfg(test)]
mod given_up_tests;
#[cfg(test)]
mod sweep_tests;
