//! What is kept in memory of the file: the known ids, and until when records wait.

use std::collections::HashMap;

use jiff::Timestamp;

use super::tail_state::TailState;
use super::types::{EventId, EventIds, Standing};

/// The ids that the ledger knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) all: EventIds,
    /// Those that are not settled, and their sweeps.
    pub(super) unsettled: HashMap<EventId, i64, foldhash::fast::RandomState>,
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
        match self.unsettled.get(&id) {
            None if !self.all.contains(&id) => Standing::Unknown,
            Some(sweep) if *sweep > number => Standing::Upper,
            Some(sweep) if *sweep == number => Standing::Current,
            _ => Standing::Settled,
        }
    }

    pub(super) fn learn(&mut self, ids: impl Iterator<Item = EventId>, sweep: i64, number: i64) {
        for id in ids {
            self.all.insert(id);
            if sweep >= number {
                self.unsettled.insert(id, sweep);
            }
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
