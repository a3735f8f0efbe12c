//! The tail's durable state: how the ledger began, and what is known to be missing.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::types::{Disposition, EventId};
pub use crate::util::changes::RangeKind;

/// The distance between two live pages in the order of delivery. The pages of a range take the places below the
/// page that opened it.
pub const STRIDE: i64 = 1 << 24;

/// What the tail keeps, written with every commit that changes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TailState {
    /// How the ledger began; `None` before the first response of the service.
    pub first_sync: Option<FirstSync>,
    /// The filters in use.
    pub filters: String,
    /// No late row is older than the last change of the filters.
    pub filter_floor: Option<Timestamp>,
    /// No poll has succeeded since the filters changed: what is not newer than the floor counts as known.
    pub filters_changed: bool,
    /// The service's clock at the last successful poll.
    pub last_poll_at: Option<Timestamp>,
    /// The service's clock when the last completed re-read started.
    pub reread_at: Option<Timestamp>,
    /// The place of the next live page. Pages are delivered in ascending order of their places.
    pub next_place: i64,
    /// What is known to be missing, oldest first.
    pub ranges: Vec<Range>,
    /// The first page of a history range that an older version did not finish.
    pub first_page: Option<String>,
}

/// The first response of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstSync {
    /// The service's clock.
    pub at: Timestamp,
    /// Late rows that are not newer are ignored.
    pub count_floor: Option<Timestamp>,
    /// The end of history; `None` if it has no end.
    pub history_floor: Option<Timestamp>,
    /// History is before this time; `None` if it ends with the newest entry.
    #[serde(default)]
    pub history_until: Option<Timestamp>,
    /// When the exporter started, if the response came later: what is newer is live.
    #[serde(default)]
    pub live_after: Option<Timestamp>,
}

/// A part of the listing that is not read yet: everything below `end` down to the first known entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The place of the page that opened it.
    pub id: i64,
    /// Whether it is counted.
    pub kind: RangeKind,
    /// The cursor of the last page; `None` to start from the top.
    pub cursor: Option<String>,
    /// When the cursor was received, by the service's clock.
    pub received_at: Timestamp,
    /// The last entry of the last page.
    pub end: Option<EventId>,
    /// The oldest creation time read so far.
    pub oldest: Option<Timestamp>,
    /// The creation time of the lowest entry read so far. Listed by arrival, it need not be the oldest.
    #[serde(default)]
    pub lowest: Option<Timestamp>,
    /// The ids of the last page: cursors may be inclusive, and several entries may share one.
    #[serde(skip)]
    pub page: Vec<EventId>,
    /// This machine's clock when the range was opened.
    pub opened_at: Timestamp,
    /// The same clock when its requests began to fail; `None` if the last one did not.
    #[serde(default)]
    pub failing_since: Option<Timestamp>,
    /// The filters have changed since its last page.
    #[serde(default)]
    pub filters_changed: bool,
    /// Entries up to this time are only shown by filters that were changed to meanwhile, and are left out.
    #[serde(default)]
    pub floor: Option<Timestamp>,
    /// The last successful poll before the range was opened.
    pub last_contact: Option<Timestamp>,
    /// Whether a known entry is expected below.
    pub expected: bool,
    /// The number of entries of the consecutive pages that were entirely older than the floor.
    #[serde(default)]
    pub older: u32,
    /// Whether its records may be sent although it is open.
    pub released: bool,
    /// The lowest place used.
    pub place: i64,
}

// === impl FirstSync ===

impl FirstSync {
    /// Reports whether an entry that existed before the first sync came after the start.
    pub fn is_live(&self, created_at: Timestamp) -> bool {
        self.live_after.is_some_and(|at| created_at > at)
    }

    /// Returns what to do with an entry that existed before the first sync.
    pub fn history(&self, created_at: Timestamp) -> Disposition {
        if self.is_live(created_at) {
            return Disposition::Live;
        }
        let is_wanted = self.history_floor.is_none_or(|floor| created_at >= floor)
            && self.history_until.is_none_or(|until| created_at < until);
        if is_wanted {
            Disposition::History
        } else {
            Disposition::Ignored
        }
    }
}

// === impl TailState ===

impl TailState {
    /// Returns the open range with this id.
    pub fn range(&self, id: i64) -> Option<&Range> {
        self.ranges.iter().find(|range| range.id == id)
    }

    /// Returns the open range with this id, to be changed.
    pub fn range_mut(&mut self, id: i64) -> Option<&mut Range> {
        self.ranges.iter_mut().find(|range| range.id == id)
    }

    /// Returns the time up to which late rows are ignored; `None` before the first sync and for one without entries.
    pub fn count_floor(&self) -> Option<Timestamp> {
        self.first_sync.as_ref()?.count_floor
    }

    /// Returns the place below which records may be sent; `None` if all of them may.
    pub(super) fn held_above(&self) -> Option<i64> {
        self.ranges
            .iter()
            .filter(|range| !range.released)
            .map(|range| range.id - STRIDE)
            .min()
    }

    /// Reserves the place of a live page.
    pub fn take_place(&mut self) -> i64 {
        self.next_place += STRIDE;
        self.next_place
    }
}
