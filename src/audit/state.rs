//! The durable part of the audit tail. `sweep.rs` says what it means and is the only code that changes it; the ledger stores it as JSON in the
//! transaction of each page.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ledger::EventId;

/// What a restart continues from. What a stored state lacks has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TailState {
    /// The fingerprint of the filters in use.
    pub(crate) filters: String,
    /// The first sync with these filters is done.
    pub(crate) is_synced: bool,
    /// The number of the last sweep that ended.
    pub(crate) sweeps: u32,
    /// The newest time that the first sync met. An entry that is not newer may have been there before, and is never counted.
    pub(crate) watermark: Option<Timestamp>,
    /// The oldest time that a pass without ground needs.
    pub(crate) since: Option<Timestamp>,
    /// What was settled by then ends a pass; `None` before the first window has passed.
    pub(crate) mark: Option<Mark>,
    /// Later sweeps: one of them is the next mark.
    pub(crate) marks: Vec<Mark>,
    /// The entry above what a pass has given up. It ends later passes, too.
    pub(crate) dead_end: Option<EventId>,
    /// Some known entries are not settled.
    pub(crate) has_unsettled: bool,
    /// Since when log records wait for older entries that are still to be read, by this machine's clock.
    pub(crate) held_since: Option<Timestamp>,
    /// The listing was empty when it was read last.
    pub(crate) was_empty: bool,
    /// A sweep was cut, and no pass that covers it has begun.
    pub(crate) behind: Option<Behind>,
    /// The pass under way.
    pub(crate) pass: Option<Pass>,
    /// Every entry that was listed by this time is taken.
    pub(crate) complete_through: Option<Timestamp>,
}

/// A sweep that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Mark {
    /// When, by the API's clock.
    pub(crate) at: Timestamp,
    /// Its number.
    pub(crate) sweep: u32,
}

/// What a cut sweep leaves to a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Behind {
    /// Since when, by this machine's clock.
    pub(crate) since: Timestamp,
    /// The number of the last sweep before it: a pass that meets an entry that was settled by then has met all that the sweep left out. `None` if
    /// a first sync leaves it.
    pub(crate) edge: Option<u32>,
    /// The same if there was such an entry: if none is listed any more, that is a gap.
    pub(crate) must_meet: Option<u32>,
}

/// A place in the listing: the time and the id of the entry there.
pub(super) type Place = (Timestamp, EventId);

/// Where a walk is in the listing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Walk {
    /// The cursor of the next page; `None` for the top of the listing.
    pub(crate) cursor: Option<String>,
    /// When the page that the cursor came with was requested, by this machine's clock.
    pub(crate) cursor_at: Timestamp,
    /// The page that it came with said that there is more.
    pub(crate) has_more: bool,
    /// Since when the listing has ended here with an empty page although the page before said that there is more.
    pub(crate) doubted_since: Option<Timestamp>,
    /// The last entry that it met.
    pub(crate) last: Option<Place>,
    /// It has met the reference: unknown entries below it are late.
    pub(crate) has_met: bool,
    /// The number of unknown entries in a row that were older than it needs.
    pub(crate) older: u32,
    /// It is at the place of the pass's trouble, or below it.
    pub(crate) has_passed_trouble: bool,
}

/// A pass: from the top of the listing down to what was settled by the mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pass {
    /// Where it is.
    pub(crate) walk: Walk,
    /// When the walk read the top of the listing, by the API's clock.
    pub(crate) as_of: Timestamp,
    /// The number of the last sweep before that.
    pub(crate) began_after: u32,
    /// What the mark becomes.
    pub(crate) next: Option<Mark>,
    /// The edge of the cut that the pass covers; `None` if it covers none, or has met an entry that was settled by then.
    pub(crate) edge: Option<u32>,
    /// See [`Behind::must_meet`]; `None` if it has.
    pub(crate) must_meet: Option<u32>,
    /// Since when the exporter was behind, if the pass covers a cut sweep.
    pub(crate) behind_since: Option<Timestamp>,
    /// The page that it cannot read.
    pub(crate) trouble: Option<Trouble>,
}

/// A page of a pass that cannot be read although the top of the listing can be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Trouble {
    /// The entry above it.
    pub(crate) place: Option<Place>,
    /// Since when, by this machine's clock.
    pub(crate) since: Timestamp,
    /// The number of failures since then.
    pub(crate) failures: u32,
}

// === impl Behind ===

impl Behind {
    /// Returns what is behind since a time, and has no edge.
    pub(super) fn since(since: Timestamp) -> Self {
        Self {
            since,
            ..Self::default()
        }
    }
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

    /// Returns the oldest time that is taken below what was read before; `None` if all is. In the first window, what is older was there before, or
    /// is history that is not wanted.
    pub(super) fn needed(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.mark.is_none())
    }

    /// Since when the exporter has been behind, by this machine's clock; `None` if nothing is known to be missing.
    pub fn behind_since(&self) -> Option<Timestamp> {
        let covered = self.pass.as_ref().and_then(|pass| pass.behind_since);
        covered.or(self.behind.as_ref().map(|behind| behind.since))
    }
}
