//! Tailing the audit logs: down to look, up to take, so that the ledger is one unbroken range at every moment.

mod birth;
mod event;
mod fetch;
mod follow;
mod head;
mod history;
mod poll;
mod start;
mod tail;
mod view;
mod walk;

use std::time::Duration;

pub(crate) use birth::TICK;
pub(crate) use event::Event;
pub(crate) use fetch::{Fetched, Fetcher, Place, STRIKES};
pub use history::HistoryStep;
pub use start::{Start, StartError};
pub(crate) use tail::{FIRST_WAIT, wait_after};
pub use tail::{Tail, TailError};

/// How the audit logs are tailed.
#[derive(Clone, Debug)]
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
