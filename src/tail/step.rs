//! What goes into the state machine of the tail, and what comes out of it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Settings;
use super::start::Start;
use crate::ledger::{Disposition, EventId, Gap, Standing};
use crate::util::labels;

labels! {
    /// What a request is for.
    Task {
        /// The next page of the first pass.
        First => "first_pass",
        /// The top of the listing.
        Poll => "poll",
        /// The next page of the open sweep.
        Sweep => "sweep",
        /// The next page of a re-read.
        Reread => "reread",
        /// The next page of history.
        History => "history",
    }
}

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// What it is for.
    pub task: Task,
    /// The cursor; `None` for the top of the listing.
    pub before: Option<String>,
    /// The number of entries.
    pub limit: u32,
}

/// An entry of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its identity.
    pub id: EventId,
    /// When it was created, if it has a readable time.
    pub at: Option<Timestamp>,
    /// What the ledger knows of it.
    pub standing: Standing,
}

/// A page of the listing, without repeated entries.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// Its entries, newest first.
    pub rows: Vec<Row>,
    /// The cursor of the next page.
    pub end: Option<String>,
    /// The service's clock.
    pub now: Timestamp,
    /// When it was requested, since the start of the process.
    pub requested: Duration,
    /// When it came.
    pub at: Duration,
}

/// What to do with a page.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// What becomes of the entries that the ledger does not know, by their index in the page.
    pub take: Vec<(usize, Disposition)>,
    /// The sweep that they belong to; 0 if they were there before.
    pub number: i64,
    /// Something is lost.
    pub gap: Option<Gap>,
    /// Ids of entries older than this are no longer needed.
    pub prune_before: Option<Timestamp>,
    /// The state has changed beyond the time of the last contact.
    pub must_save: bool,
    /// The page leads nowhere: it counts as failed.
    pub is_stuck: bool,
    /// How long to wait before the next page of the same task.
    pub wait: Duration,
}

/// The settings of the state machine.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// `--api.page-size`.
    pub page_size: u32,
    /// `--audit.reread-interval`.
    pub reread_interval: Duration,
    /// `--audit.reread-window`.
    pub window: Duration,
    /// `--audit.start`.
    pub start: Start,
}

// === impl Row ===

impl Row {
    /// Reports whether the entry is dated after a time. It may stay on top of the listing until then, and what is below it may be newer.
    pub(super) fn is_ahead(&self, of: Option<Timestamp>) -> bool {
        self.at.is_some_and(|at| Some(at) > of)
    }
}

// === impl Page ===

impl Page {
    /// Returns a time at which the page was not yet cut, by the service's clock: the response may have taken long.
    pub(super) fn as_of(&self) -> Timestamp {
        back(self.now, self.at.saturating_sub(self.requested))
    }

    /// Reports whether the page has an entry that is not dated ahead.
    pub(super) fn has_entries(&self) -> bool {
        self.rows.iter().any(|row| !row.is_ahead(Some(self.now)))
    }
}

// === impl Limits ===

impl Limits {
    /// Returns the limits of these settings.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            page_size: settings.page_size,
            reread_interval: settings.reread_interval,
            window: settings.reread_window,
            start: settings.start,
        }
    }
}

/// Returns an earlier time.
pub(super) fn back(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
