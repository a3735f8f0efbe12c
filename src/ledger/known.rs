//! What is kept in memory of the file: the known ids, and until when records wait.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::tail_state::TailState;
use super::types::{EventId, EventIds, Standing};

/// The ids that the ledger knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    settled: EventIds,
    /// The others, by the numbers of their sweeps.
    unsettled: BTreeMap<i64, EventIds>,
}

/// Until when records wait in the outbox.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    /// The current sweep, and when it was opened, if it is open.
    pub(super) sweep: i64,
    pub(super) sweep_since: Option<Timestamp>,
    /// When the history was begun, if it is incomplete.
    pub(super) history_since: Option<Timestamp>,
}

// === impl Known ===

impl Known {
    /// Returns what is known of an entry while the sweep of this number is the current one.
    pub(super) fn standing(&self, id: EventId, number: i64) -> Standing {
        let mut unsettled = self.unsettled.iter();
        match unsettled.find(|(_, ids)| ids.contains(&id)) {
            None if !self.settled.contains(&id) => Standing::Unknown,
            Some((sweep, _)) if *sweep > number => Standing::Upper,
            Some((sweep, _)) if *sweep == number => Standing::Current,
            _ => Standing::Settled,
        }
    }

    /// Adds the entries that a sweep has met.
    pub(super) fn learn(&mut self, ids: impl Iterator<Item = EventId>, sweep: i64) {
        self.unsettled.entry(sweep).or_default().extend(ids);
    }

    /// Settles the entries of all sweeps before this one.
    pub(super) fn settle(&mut self, number: i64) {
        while let Some(first) = self.unsettled.first_entry()
            && *first.key() < number
        {
            let mut ids = first.remove();
            // The smaller set moves.
            if ids.len() > self.settled.len() {
                std::mem::swap(&mut ids, &mut self.settled);
            }
            self.settled.extend(ids);
        }
    }

    /// Removes settled entries.
    pub(super) fn forget(&mut self, ids: &[EventId]) {
        for id in ids {
            self.settled.remove(id);
        }
        if !ids.is_empty() {
            self.settled.shrink_to_fit();
        }
    }
}

// === impl Hold ===

impl Hold {
    pub(super) fn of(tail: &TailState) -> Self {
        Self {
            sweep: tail.number,
            sweep_since: tail.sweep.as_ref().map(|open| open.opened_at),
            history_since: tail.history.as_ref().map(|history| history.opened_at),
        }
    }
}
