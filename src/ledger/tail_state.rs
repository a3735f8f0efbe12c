//! The tail's durable state. `tail/sweep.rs` says what it means and is the only code that changes it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the tail keeps, written with each transaction of the tail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TailState {
    /// The fingerprint of the filters in use.
    pub filters: String,
    /// The first pass; `None` when it is done.
    pub first: Option<FirstPass>,
    /// The number of the current sweep. Entries of smaller numbers are settled.
    pub number: i64,
    /// The sweep under way; `None` if nothing is known to be missing.
    pub sweep: Option<OpenSweep>,
    /// The cursor below the last sweep: re-reads start here.
    pub below: Option<String>,
    /// The oldest time on the page that ended the last sweep, or when it ended if that is earlier.
    pub below_time: Option<Timestamp>,
    /// Where the window of the first pass ended. An entry that is not newer may have been there before, and is never counted.
    pub floor: Option<Timestamp>,
    /// Log records begin at this time: `--audit.start` at the very first pass.
    pub records_from: Option<Timestamp>,
    /// The last complete re-read of the window covered what came after this time.
    pub read_to: Option<Timestamp>,
    /// The same for the last complete re-read of either depth.
    pub short_read_to: Option<Timestamp>,
    /// For how many milliseconds the re-read has been failing, see [`OpenSweep::failed_for`].
    pub reread_failed_for: u64,
    /// When nothing was missing last, by the service's clock.
    pub contact: Option<Timestamp>,
    /// The newest time of an entry then.
    pub newest: Option<Timestamp>,
    /// Whether the listing was empty then.
    pub was_empty: bool,
    /// The newest contact so far: every entry that was listed by then is taken.
    pub complete_through: Option<Timestamp>,
    /// The history that is still to be read; `None` if there is none.
    pub history: Option<History>,
}

/// The first pass: from the top of the listing down to the window. What it meets was there before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FirstPass {
    /// The cursors of its last pages, the last of which is requested next; none to begin at the top.
    pub cursors: Vec<String>,
    /// The number of entries in a row that were older than the window or had no readable time.
    pub older: u32,
    /// Whether it has met an entry.
    pub has_entries: bool,
    /// When the top of the listing was read, by the service's clock.
    pub as_of: Timestamp,
    /// After a change of the filters: unknown entries newer than this are live.
    pub live_after: Option<Timestamp>,
}

/// A sweep that has not met a page whose last entry is settled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenSweep {
    /// As in [`FirstPass::cursors`].
    pub cursors: Vec<String>,
    /// Whether it has met a settled entry: unknown entries below it are late.
    pub met: bool,
    /// Whether it has met any entry.
    pub has_entries: bool,
    /// Whether polls have found entries above it that belong to the next sweep.
    pub has_upper: bool,
    /// The oldest time that it has met.
    pub oldest: Option<Timestamp>,
    /// The number of entries that it has met that are older than the watermark.
    pub older: u32,
    /// When the top of the listing belonged to it last, by the service's clock.
    pub as_of: Timestamp,
    /// When it was opened, by this machine's clock.
    pub opened_at: Timestamp,
    /// For how many milliseconds, in which polls succeeded, it has brought nothing new because its page cannot be read.
    pub failed_for: u64,
}

/// History: log records of entries that were there before, not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Entries from this time on are wanted.
    pub from: Timestamp,
    /// Whether it ends with the first pass.
    pub is_short: bool,
    /// As in [`FirstPass::cursors`].
    pub cursors: Vec<String>,
    /// The number of unknown entries in a row that were older than `from`.
    pub older: u32,
    /// When it began, by this machine's clock.
    pub opened_at: Timestamp,
    /// As in [`OpenSweep::failed_for`].
    pub failed_for: u64,
}

// === impl TailState ===

impl TailState {
    /// Returns the state of a new file.
    pub fn new(filters: String) -> Self {
        Self {
            filters,
            first: Some(FirstPass::default()),
            number: 1,
            ..Self::default()
        }
    }

    /// Notes that nothing that was listed at this time, by the service's clock, is missing, and the newest time of an entry then.
    pub fn reached(&mut self, at: Timestamp, newest: Option<Timestamp>, was_empty: bool) {
        (self.contact, self.newest, self.was_empty) = (Some(at), newest, was_empty);
        self.complete_through = self.complete_through.max(self.contact);
    }
}

// === impl History ===

impl History {
    /// Reports whether an entry of this time is wanted.
    pub fn wants(&self, at: Option<Timestamp>) -> bool {
        at.is_none_or(|at| at >= self.from)
    }
}
