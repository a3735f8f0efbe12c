//! How a ledger begins, and how it goes on under other filters.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Start;
use super::fetch::{Fetched, Place, STRIKES};
use super::tail::{Tail, TailError};
use super::view::{Floors, Rule};
use crate::api::Priority;
use crate::ledger::{Birth, Commit, Gap, GapReason, WalkChange, WalkKind};

/// The smallest step between two times in the ledger.
pub(crate) const TICK: SignedDuration = SignedDuration::from_micros(1);

// === impl Tail ===

impl Tail {
    /// The first answer of the service: the ledger is born, and its history, if any is wanted, is walked.
    pub(super) async fn first_start(&mut self) -> Result<(), TailError> {
        // Were it empty by accident, all of the history would be counted as new.
        let page = match self
            .fetcher
            .page_for_sure(&Place::Top, Priority::Live, STRIKES)
            .await?
        {
            Fetched::Page(page) => page,
            Fetched::Refused(error) => return Err(error.into()),
        };
        let body = page.body().to_owned();
        let view = self.view(page).await?;
        let now = view.page.server_time;
        // Everything that is there already is history, and what comes is above it, whatever the service's clock says of either.
        let newest = self.reach(&view);
        let count_floor = match self.until {
            Some(until) => Some(end(until, now, view.newest())),
            None => newest,
        };
        let start_floor = match self.settings.start {
            // What is as old as the newest entry was there. Where nothing was, everything comes after the start, whatever the clocks say.
            Start::Now => {
                count_floor.map(|newest| newest.checked_add(TICK).unwrap_or(newest).max(now))
            }
            start => start.floor(now),
        };
        let birth = Birth {
            born_at: now,
            start_floor,
            count_floor,
        };
        let mut commit = self.commit(&view);
        commit.birth = Some(birth.clone());
        commit.organization = view.organization().map(str::to_owned);
        commit.filters = Some((self.filters.clone(), None));
        commit.reread_at = Some(now);
        // With the first commit of the fresh ledger: it is told once, whatever happens before and after.
        let recreated_at = self.state.recreated_at.filter(|_| self.until.is_none());
        commit.gaps.extend(recreated_at.map(|_| recreated(&birth)));
        let whole = view.is_empty()
            || view.end().is_none()
            || self.settings.start == Start::Now
            || view.is_below(start_floor);
        if whole {
            // With `now` all of the page is only remembered, so that the next page has something to join.
            let start_floor = if self.settings.start == Start::Now {
                Some(Timestamp::MAX)
            } else {
                start_floor
            };
            let rule = match self.until {
                Some(_) => Rule::Range {
                    from: start_floor,
                    until: count_floor,
                },
                None => Rule::FirstStart {
                    start_floor,
                    newest: None,
                    passed: false,
                },
            };
            commit.entries = view.take(rule, &self.ledger, None, Floors::default());
            self.advance(&mut commit, &view);
        } else {
            let walk = self.new_walk(WalkKind::FirstStart, start_floor, &view, None);
            commit.walk = Some(WalkChange::Begin {
                walk,
                top: Some(body),
            });
        }
        let entries = commit.entries.len();
        self.write(commit).await?;
        self.state.birth = Some(birth);
        self.idle_mark = self.is_above_range(&view);
        self.next_reread = Instant::now() + self.settings.reread_interval;
        self.next_poll = Instant::now() + self.settings.poll_interval;
        if self.until.is_none() {
            tracing::info!(start = %self.settings.start, entries, "a new ledger: counters begin at 0 now");
        }
        Ok(())
    }

    /// Entries that only the new filters show are not late: the floor for late rows rises to where the ledger is.
    pub(super) async fn change_filters(&mut self) -> Result<(), TailError> {
        let floor = self
            .state
            .frontier_at
            .or(self.state.birth.as_ref().map(|birth| birth.born_at));
        let mut commit = Commit::new(Timestamp::now());
        commit.filters = Some((self.filters.clone(), floor));
        self.write(commit).await?;
        tracing::info!(
            "the filters changed: entries that only the new ones show are taken from now on"
        );
        self.state.filters = self.filters.clone();
        self.state.filter_floor = floor;
        Ok(())
    }
}

/// The end of a range of history. With `now` everything that is there at the first answer belongs to it, whatever the service's clock says.
fn end(until: Start, now: Timestamp, newest: Option<Timestamp>) -> Timestamp {
    let there = newest
        .filter(|_| until == Start::Now)
        .map(|newest| newest.checked_add(TICK).unwrap_or(newest));
    until
        .floor(now)
        .unwrap_or(Timestamp::MIN)
        .max(there.unwrap_or(Timestamp::MIN))
}

/// The hole before a ledger that took the place of a damaged one: nobody knows any more how far that one reached.
fn recreated(birth: &Birth) -> Gap {
    let mut message = format!(
        "the state file was damaged, and a fresh one is in its place: what it had not counted of the time before {} is not counted",
        birth.born_at
    );
    if let Some(floor) = birth.start_floor {
        message.push_str(&format!(
            ", and what it had not delivered of the time before {floor} is not delivered"
        ));
    }
    Gap {
        reason: GapReason::StateRecreated,
        from: None,
        to: Some(birth.born_at),
        message,
    }
}
