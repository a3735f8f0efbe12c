//! A range of history, read once from its oldest entry to its newest: the walk of a first start, with an end.

use tracing::Instrument;

use super::Start;
use super::tail::{Tail, TailError};
use super::view::{Rule, View};
use crate::ledger::{Direction, Walk};

/// How far the reading of a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryStep {
    /// The ledger is full of records that wait: nothing was read.
    Full,
    /// On the way to the beginning of the range, so many pages down.
    Down(usize),
    /// On the way back, so many pages are left.
    Up(usize),
    /// All of it is in the ledger.
    Done,
}

// === impl Tail ===

impl Tail {
    /// Reads what was created from [`Settings::start`](super::Settings::start) on and before `until`, and nothing else.
    /// `arguments` is kept in the place of the filters: it says what the ledger is for.
    #[must_use]
    pub fn history(mut self, until: Start, arguments: String) -> Self {
        self.until = Some(until);
        self.filters = arguments;
        self
    }

    /// Reads one page at most.
    ///
    /// # Errors
    /// Where the service or the ledger fails: the next step goes on from what the ledger holds.
    pub async fn history_step(&mut self) -> Result<HistoryStep, TailError> {
        if self.ledger.is_full() {
            return Ok(HistoryStep::Full);
        }
        if self.state.birth.is_none() {
            self.first_start()
                .instrument(tracing::info_span!("poll", orgdata.poll = "backfill"))
                .await?;
        } else if self.state.walk.is_some() {
            self.walk_step()
                .instrument(tracing::info_span!("walk"))
                .await?;
        }
        Ok(self.history_state())
    }

    /// How far it is, without reading anything.
    pub fn history_state(&self) -> HistoryStep {
        match (&self.state.birth, &self.state.walk) {
            (None, _) => HistoryStep::Down(0),
            (
                _,
                Some(Walk {
                    direction: Direction::Down,
                    marks,
                    ..
                }),
            ) => HistoryStep::Down(marks.len()),
            (
                _,
                Some(Walk {
                    direction: Direction::Up,
                    marks,
                    ..
                }),
            ) => HistoryStep::Up(marks.len()),
            (_, None) => HistoryStep::Done,
        }
    }

    /// Whether nothing of a page is in the range because all of it is newer: the way back need not pass it.
    pub(super) fn is_above_range(&self, view: &View) -> bool {
        let end = self
            .state
            .birth
            .as_ref()
            .and_then(|birth| birth.count_floor)
            .filter(|_| self.until.is_some());
        end.is_some_and(|end| view.oldest().is_some_and(|oldest| oldest >= end))
    }

    /// What of a page is in the range.
    pub(super) fn range(&self) -> Rule {
        let birth = self.state.birth.as_ref();
        Rule::Range {
            from: birth.and_then(|birth| birth.start_floor),
            until: birth.and_then(|birth| birth.count_floor),
        }
    }
}
