//! Tailing the audit logs: `entry` reads an entry, `privacy` is what its record may say, `sweep` decides what to request and what to take, `state` is what a restart continues from,
//! and `run` is the loop.

mod entry;
mod error;
mod exclude;
mod fetched;
mod privacy;
mod run;
mod start;
mod state;
mod sweep;

use std::time::Duration;

pub use entry::Entry;
pub(crate) use entry::{Object, string, user_id};
pub use error::TailError;
pub use exclude::{Exclude, Excluded};
pub use privacy::{Privacy, Redact};
pub use run::Tail;
pub use start::Start;
pub use state::TailState;

/// How the audit logs are tailed.
#[derive(Clone, Debug)]
pub struct TailSettings {
    /// `--audit.poll-interval`: between two sweeps.
    pub poll_interval: Duration,
    /// `--audit.start`: how far back log records begin on a new ledger.
    pub start: Start,
    /// `--audit.reread-interval`: between two passes.
    pub reread_interval: Duration,
    /// `--audit.reread-window`.
    pub reread_window: Duration,
    /// `--api.page-size`, 1 to 1000.
    pub page_size: u32,
    /// What is known, but not counted or not sent.
    pub excluded: Excluded,
    /// What records say of users.
    pub privacy: Privacy,
}

#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod walk_tests;
