//! The durable part of the audit tail. `sweep.rs` says what it means and is the only code that changes it; the ledger stores it as JSON in the
//! transaction of each page.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ledger::EventId;

/// What a restart continues from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TailState {
    /// The fingerprint of the filters in use.
    pub filters: String,
    /// The first sync with these filters is done.
    pub is_synced: bool,
    /// The newest time that the first sync met. An entry that is not newer may have been there before, and is never counted.
    pub watermark: Option<Timestamp>,
    /// The oldest time that it met, if there was more below: older entries are history, if `--audit.start` asks for it.
    pub oldest_synced: Option<Timestamp>,
    /// The last complete pass covered what is newer than this, or the first sync.
    pub mark: Option<Timestamp>,
    /// The newest entries that are settled, and those that are not, newest first.
    pub settled: Newest,
    /// As `settled`.
    pub unsettled: Newest,
    /// The listing was empty when it was read last.
    pub was_empty: bool,
    /// A sweep was cut, and no pass that covers it has begun.
    pub behind: Option<Behind>,
    /// The pass under way.
    pub pass: Option<Pass>,
    /// The histories that are still to be read; the last one is read first.
    pub histories: Vec<History>,
    /// Every entry that was listed by this time is taken.
    pub complete_through: Option<Timestamp>,
}

/// The newest entries of a kind, at most ten, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Newest(Vec<(Timestamp, EventId)>);

/// What a cut sweep leaves to a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// Since when, by this machine's clock.
    pub since: Timestamp,
    /// The newest entries that were settled before. A pass that meets one of them has met all that the sweep left out. Empty if the listing
    /// was empty before.
    pub edge: Vec<EventId>,
}

/// Where a walk is in the listing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    /// The cursor of the next page; `None` for the top of the listing.
    pub cursor: Option<String>,
    /// When the page that the cursor came with was requested, by this machine's clock.
    pub cursor_at: Timestamp,
    /// The page that it came with said that there is more.
    pub has_more: bool,
    /// How often in a row the listing has ended here although the page before said that there is more, and since when.
    pub doubts: u32,
    /// As `doubts`.
    pub doubted_since: Timestamp,
    /// The last entry that it met.
    pub last: Option<(Timestamp, EventId)>,
    /// It has met a settled entry: unknown entries below it are late.
    pub has_met: bool,
    /// The number of entries in a row that were older than it needs.
    pub older: u32,
}

/// A pass: from the top of the listing down to the mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Where it is.
    pub walk: Walk,
    /// It takes entries that are newer than this: the mark.
    pub floor: Timestamp,
    /// What the mark becomes.
    pub reaches: Timestamp,
    /// The edge that it has to meet; empty if there is none, or if it has met it.
    pub edge: Vec<EventId>,
    /// Since when the exporter was behind, if the pass covers a cut sweep.
    pub behind_since: Option<Timestamp>,
    /// When the top of the listing was read, by the API's clock.
    pub as_of: Timestamp,
    /// How long it has been failing.
    pub trouble: Trouble,
}

/// History: log records of entries that were there before the first sync, not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Where it is.
    pub walk: Walk,
    /// The oldest time that is wanted.
    pub from: Timestamp,
    /// The newest time that is wanted.
    pub to: Timestamp,
    /// The newest time on its last page: a walk that begins again at the top takes nothing newer.
    pub reached: Timestamp,
    /// It began again at the top, and has not come back to where it was.
    pub is_returning: bool,
    /// When it began, by this machine's clock.
    pub since: Timestamp,
    /// How long it has been failing.
    pub trouble: Trouble,
}

/// Failures of a walk that cannot read a page although the top of the listing can be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// When the walk began, or took something last, by this machine's clock.
    pub since: Timestamp,
    /// The number of failures since then.
    pub failures: u32,
}

// === impl TailState ===

impl TailState {
    /// Reads a state that was stored; that of a new file is empty.
    pub(crate) fn from_json(json: &str) -> serde_json::Result<Self> {
        if json.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(json)
    }

    /// Returns what is stored of it.
    pub(super) fn to_json(&self) -> String {
        // It has strings and numbers only.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Since when the exporter has been behind, by this machine's clock; `None` if nothing is known to be missing.
    pub fn behind_since(&self) -> Option<Timestamp> {
        let covered = self.pass.as_ref().and_then(|pass| pass.behind_since);
        covered.or(self.behind.as_ref().map(|behind| behind.since))
    }

    /// Reports whether first sync and history are complete.
    pub fn is_history_complete(&self) -> bool {
        self.is_synced && self.histories.is_empty()
    }
}

// === impl Newest ===

impl Newest {
    /// The number of entries that are kept. More than one, since an entry may be deleted.
    const MAX: usize = 10;

    /// Adds entries.
    pub(super) fn extend(&mut self, entries: impl IntoIterator<Item = (Timestamp, EventId)>) {
        self.0.extend(entries);
        self.0.sort_unstable_by(|one, other| other.cmp(one));
        self.0.truncate(Self::MAX);
    }

    /// Removes all entries and returns them.
    pub(super) fn take(&mut self) -> Vec<(Timestamp, EventId)> {
        std::mem::take(&mut self.0)
    }

    /// Returns the ids.
    pub(super) fn ids(&self) -> Vec<EventId> {
        self.0.iter().map(|(_, id)| *id).collect()
    }

    /// Returns the newest time.
    pub(super) fn time(&self) -> Option<Timestamp> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

// === impl Trouble ===

impl Trouble {
    /// Returns that of a walk that has not failed since then.
    pub(super) fn none(since: Timestamp) -> Self {
        Self { since, failures: 0 }
    }
}

// === impl Walk ===

impl Walk {
    /// Begins at the top of the listing.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}
