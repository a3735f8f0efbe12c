//! What is new: the poll, the join, and what to do where the cursor is at fault or rows come late.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::fetch::{Fetched, Place, STRIKES};
use super::tail::{Tail, TailError};
use super::view::{Rule, View};
use crate::api::{Cursor, Priority};
use crate::ledger::{Frontier, NewEntry, WalkKind};

// === impl Tail ===

impl Tail {
    /// Asks for what is new. Returns whether more may be there at once.
    pub(super) async fn poll(&mut self) -> Result<bool, TailError> {
        let place = self.poll_place();
        let page = match self.fetcher.page(&place, Priority::Live, STRIKES).await? {
            Fetched::Page(page) => page,
            Fetched::Refused(error) => {
                tracing::warn!(%error, "the service no longer takes the cursor; finding the place again from the newest entries");
                return self.recover(None).await.map(|()| false);
            }
        };
        if page.is_empty() {
            return Ok(false);
        }
        let view = self.view(page).await?;
        let after_cursor = matches!(place, Place::After(_));
        // A page full of entries dated in the future says nothing of what is below them.
        if !view.has_unknown(&self.ledger) && (after_cursor || self.is_joined(&view).await?) {
            let learned = !self.inclusive && after_cursor && view.top() == self.state.frontier.id;
            self.inclusive |= learned;
            self.nothing_new(&view, after_cursor).await?;
            // A page that has no room for more than the entry of the cursor says nothing.
            return Ok(learned && self.has_no_room());
        }
        if !self.is_joined(&view).await? {
            let (floor, new) = (self.catch_up_floor(), view.has_unknown(&self.ledger));
            self.begin_walk(WalkKind::CatchUp, floor, view, None)
                .await?;
            return Ok(new);
        }
        let mut commit = self.commit(&view);
        commit.duplicates = self.duplicates(&view, after_cursor);
        commit.entries = self.take_joined(&view);
        self.advance(&mut commit, &view);
        let taken = commit.entries.len();
        self.write(commit).await?;
        Ok(taken > 0 && (view.page.has_previous || view.page.len() >= self.room()))
    }

    /// Everything in the page is held: at most the cursor moves.
    async fn nothing_new(&mut self, view: &View, after_cursor: bool) -> Result<(), TailError> {
        let mut commit = self.commit(view);
        commit.duplicates = self.duplicates(view, after_cursor);
        let moved =
            view.page.start_cursor.as_ref().is_some_and(|cursor| {
                self.state.frontier.cursor.as_deref() != Some(cursor.as_str())
            });
        if moved {
            self.advance(&mut commit, view);
        }
        if moved || commit.duplicates > 0 {
            self.write(commit).await?;
        }
        Ok(())
    }

    /// Entries that the service served again as new; the newest page is never all new.
    fn duplicates(&self, view: &View, after_cursor: bool) -> u64 {
        if after_cursor {
            view.duplicates(&self.ledger, self.state.frontier.id)
        } else {
            0
        }
    }

    /// Whether a page stands on what the ledger holds, or nothing is there to stand on. Where that cannot be told, a walk finds out.
    pub(super) async fn is_joined(&self, view: &View) -> Result<bool, TailError> {
        if view.is_joined(&self.ledger, self.state.frontier_at) {
            return Ok(true);
        }
        let Some(end) = view.end() else {
            return Ok(!self.ledger.holds_any());
        };
        let Some(below) = self.fetcher.below(end).await? else {
            return Ok(false);
        };
        if below.is_empty() {
            return Ok(!self.ledger.holds_any());
        }
        let below = View::read(below, None, self.fetcher.client());
        Ok(below.is_joined(&self.ledger, self.state.frontier_at) && !below.ids().eq(view.ids()))
    }

    /// What is new in a page that is joined: where it does not reach down to the frontier, all of it stands above.
    fn take_joined(&self, view: &View) -> Vec<NewEntry> {
        let rule = if view.is_joined(&self.ledger, self.state.frontier_at) {
            Rule::Frontier
        } else {
            Rule::Above
        };
        view.take(rule, &self.ledger, self.state.frontier_at, self.floors())
    }

    /// The newest entries are taken as the new frontier, joined by a walk where needed.
    pub(super) async fn recover(&mut self, top: Option<View>) -> Result<(), TailError> {
        let view = match top {
            Some(view) => view,
            None => match self
                .fetcher
                .page(&Place::Top, Priority::Live, STRIKES)
                .await?
            {
                Fetched::Page(page) => self.view(page).await?,
                Fetched::Refused(error) => return Err(error.into()),
            },
        };
        let mut commit = self.commit(&view);
        commit.recovered = true;
        if !view.is_empty() && !self.is_joined(&view).await? {
            let floor = self.catch_up_floor();
            return self
                .begin_walk(WalkKind::Recovery, floor, view, Some(commit))
                .await;
        }
        commit.entries = self.take_joined(&view);
        self.advance(&mut commit, &view);
        if view.is_empty() {
            // Nothing is there to stand on: the next poll asks without a cursor.
            commit.frontier = Some(Frontier {
                cursor: None,
                id: self.state.frontier.id,
            });
        }
        self.write(commit).await
    }

    /// A re-read looks from the top for rows that appeared behind the frontier.
    pub(super) async fn begin_reread(&mut self) -> Result<(), TailError> {
        let page = match self
            .fetcher
            .page(&Place::Top, Priority::Range, STRIKES)
            .await?
        {
            Fetched::Page(page) => page,
            Fetched::Refused(error) => return Err(error.into()),
        };
        let view = self.view(page).await?;
        if view.has_unknown(&self.ledger) {
            // What is new belongs to the poll; the re-read stays due until there is nothing more of it.
            let more = self.poll().await?;
            if more || self.state.walk.is_some() {
                self.next_poll = Instant::now();
                return Ok(());
            }
        }
        self.next_reread = Instant::now() + self.settings.reread_interval;
        if view.has_unknown_above(&self.ledger, self.state.frontier_at) {
            tracing::warn!(
                "the service shows new entries, but not after the cursor; finding the place again from the newest entries"
            );
            return self.recover(Some(view)).await;
        }
        let floor = self.reread_floor(view.page.server_time);
        let floor = self
            .floors()
            .highest()
            .map_or(floor, |highest| highest.max(floor));
        self.begin_walk(WalkKind::Reread, Some(floor), view, None)
            .await
    }

    /// How many items a page has where there are enough.
    fn room(&self) -> usize {
        self.largest_page.min(self.fetcher.limit() as usize)
    }

    /// Whether a page after a cursor has only room for the entry of the cursor.
    fn has_no_room(&self) -> bool {
        self.inclusive && self.room() <= 1
    }

    fn poll_place(&self) -> Place {
        // A frontier in the future would hide everything dated before it: then the newest page is read instead.
        let future = self
            .state
            .newest_at
            .is_some_and(|newest| self.state.frontier_at.is_some_and(|at| newest > at));
        match &self.state.frontier.cursor {
            Some(cursor) if !future && !self.has_no_room() => {
                Place::After(Cursor::new(cursor.clone()))
            }
            _ => Place::Top,
        }
    }

    /// How far down a walk to the frontier looks before it gives up on finding anything it knows. The start floor has no say:
    /// it is the time of the clock at the first answer, and what came since may be dated before it.
    pub(super) fn catch_up_floor(&self) -> Option<Timestamp> {
        if self.filters_changed_since_frontier() {
            return self.state.frontier_at;
        }
        let window =
            SignedDuration::try_from(self.settings.reread_window).unwrap_or(SignedDuration::MAX);
        self.state
            .frontier_at
            .map(|at| at.checked_sub(window).unwrap_or(Timestamp::MIN))
    }

    /// Other filters showed everything that the ledger holds, so it may well not be found again.
    pub(super) fn filters_changed_since_frontier(&self) -> bool {
        self.state.filter_floor.is_some() && self.state.filter_floor == self.state.frontier_at
    }

    /// How far down a re-read looks: it overlaps the one before by the window, so after a time without contact it reaches back to the last
    /// one; and it reaches below the newest entry and below the present of the service by the window, also where its clock was set, or is
    /// far from its entries.
    fn reread_floor(&self, now: Timestamp) -> Timestamp {
        let window =
            SignedDuration::try_from(self.settings.reread_window).unwrap_or(SignedDuration::MAX);
        let contact = self
            .state
            .reread_at
            .or(self.state.birth.as_ref().map(|birth| birth.born_at))
            .unwrap_or(now)
            .min(now);
        let base = self
            .state
            .frontier_at
            .map_or(contact, |newest| newest.min(contact));
        base.checked_sub(window).unwrap_or(Timestamp::MIN)
    }
}
