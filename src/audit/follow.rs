//! What a page means for the ledger, and how the tail's own state follows what was committed.

use jiff::{SignedDuration, Timestamp};

use super::fetch::{Fetched, Place, STRIKES};
use super::tail::{Tail, TailError};
use super::view::{Floors, Order, View};
use crate::api::{AuditPage, Priority};
use crate::ledger::{
    Birth, Commit, Direction, Disposition, EventId, Frontier, LedgerState, Walk, WalkChange,
};
use crate::telemetry;

/// An entry dated later than this after the service's clock is from the future: it says nothing of how far the ledger reaches.
const FUTURE: SignedDuration = SignedDuration::from_mins(5);

// === impl Tail ===

impl Tail {
    pub(super) fn floors(&self) -> Floors {
        Floors {
            start: self
                .state
                .birth
                .as_ref()
                .and_then(|birth| birth.start_floor),
            filter: self.state.filter_floor,
            prune: self.state.prune_floor,
        }
    }

    /// Reads a page and makes sure that it belongs to this ledger's organization.
    pub(super) async fn view(&mut self, page: AuditPage) -> Result<View, TailError> {
        self.largest_page = self.largest_page.max(page.len());
        let mut view = View::read(page, self.order, self.fetcher.client());
        if self.order.is_none()
            && let Some(order) = self.find_order(&view).await?
        {
            self.order = Some(order);
            view = View::read(view.page, self.order, self.fetcher.client());
        }
        if let Some(wanted) = self.state.organization.clone()
            && let Some(found) = view.other_organization(&wanted)
            && !self.is_key_of(&wanted).await?
        {
            return Err(TailError::OtherOrganization {
                found: found.to_owned(),
                wanted,
            });
        }
        Ok(view)
    }

    /// Whether the newest entries are of this organization: then a page with another one has odd entries, and the key is right.
    async fn is_key_of(&mut self, organization: &str) -> Result<bool, TailError> {
        let Fetched::Page(page) = self
            .fetcher
            .page(&Place::Top, Priority::Live, STRIKES)
            .await?
        else {
            return Ok(false);
        };
        Ok(View::read(page, self.order, self.fetcher.client())
            .other_organization(organization)
            .is_none())
    }

    /// The order of items in a page, found once: all of them except the newest are below the cursor of the newest.
    async fn find_order(&mut self, view: &View) -> Result<Option<Order>, TailError> {
        let (Some((first, last)), Some(start)) = (view.ends(), view.page.start_cursor.clone())
        else {
            return Ok(None);
        };
        // Where a service repeats the entry of the cursor, below the oldest one there is of the two only itself.
        for cursor in std::iter::once(start).chain(view.end().cloned()) {
            let below = match self
                .fetcher
                .page(&Place::Before(cursor), Priority::Live, STRIKES)
                .await?
            {
                Fetched::Page(below) => View::read(below, None, self.fetcher.client()),
                Fetched::Refused(_) => return Ok(None),
            };
            match (below.contains(first), below.contains(last)) {
                (false, true) => return Ok(Some(Order::NewestFirst)),
                (true, false) => return Ok(Some(Order::OldestFirst)),
                (true, true) => {}
                (false, false) => return Ok(None),
            }
        }
        Ok(None)
    }

    pub(super) fn commit(&self, view: &View) -> Commit {
        let mut commit = Commit::new(view.page.server_time);
        commit.trace = telemetry::current_trace();
        commit.count_floor = self
            .state
            .birth
            .as_ref()
            .and_then(|birth| birth.count_floor);
        if self.state.organization.is_none() {
            commit.organization = view.organization().map(str::to_owned);
        }
        commit
    }

    /// The frontier follows to the top of a page.
    pub(super) fn advance(&self, commit: &mut Commit, view: &View) {
        commit.frontier_at = self.reach(view);
        let cursor = view
            .page
            .start_cursor
            .as_ref()
            .map(|cursor| cursor.as_str().to_owned());
        let id: Option<EventId> = view.top();
        commit.frontier = Some(Frontier {
            cursor: cursor.or_else(|| self.state.frontier.cursor.clone()),
            id: id.or(self.state.frontier.id),
        });
    }

    /// Creation time of the newest entry of a page that is not dated in the future.
    pub(super) fn reach(&self, view: &View) -> Option<Timestamp> {
        let latest = latest(view.page.server_time);
        // Where every entry is ahead of the service's clock, the clock is wrong, not the entries.
        let clock_is_wrong = self
            .state
            .frontier_at
            .or(view.oldest())
            .is_some_and(|at| at > latest);
        if clock_is_wrong {
            view.newest()
        } else {
            view.newest_until(latest)
        }
    }

    /// Writes a commit and follows it in memory. Only here does the tail's own state move.
    pub(super) async fn write(&mut self, commit: Commit) -> Result<(), TailError> {
        let gaps = commit.gaps.clone();
        let late = commit
            .entries
            .iter()
            .filter(|entry| entry.disposition == Disposition::Late)
            .count();
        let next = Followed::of(&commit);
        let prune_floor = self.ledger.commit(commit).await?;
        next.apply(&mut self.state);
        self.state.prune_floor = prune_floor;
        // Told once it is on disk: what cannot be written is found again with each attempt.
        for gap in gaps {
            tracing::error!(
                reason = gap.reason.as_str(),
                from = gap.from.map(tracing::field::display),
                to = gap.to.map(tracing::field::display),
                "gap in the audit trail: {}; it is counted in orgdata_audit_gaps_total and sent as a log record",
                gap.message
            );
        }
        if late > 0 {
            tracing::info!(entries = late, "late entries found behind the newest ones");
        }
        Ok(())
    }
}

/// The latest creation time that is not in the future, for a service whose clock shows `now`.
fn latest(now: Timestamp) -> Timestamp {
    now.checked_add(FUTURE).unwrap_or(Timestamp::MAX)
}

/// What a commit changes of the tail's own state, kept until it is on disk.
struct Followed {
    birth: Option<Birth>,
    organization: Option<String>,
    frontier: Option<Frontier>,
    frontier_at: Option<Timestamp>,
    newest_at: Option<Timestamp>,
    reread_at: Option<Timestamp>,
    filters: Option<String>,
    walk: Option<WalkChange>,
}

// === impl Followed ===

impl Followed {
    fn of(commit: &Commit) -> Self {
        Self {
            birth: commit.birth.clone(),
            organization: commit.organization.clone(),
            frontier: commit.frontier.clone(),
            frontier_at: commit.frontier_at,
            newest_at: commit.entries.iter().map(|entry| entry.created_at).max(),
            reread_at: commit.reread_at,
            filters: commit.filters.as_ref().map(|(filters, _)| filters.clone()),
            walk: commit.walk.clone(),
        }
    }

    fn apply(self, state: &mut LedgerState) {
        state.birth = self.birth.or(state.birth.take());
        state.organization = self.organization.or(state.organization.take());
        if let Some(frontier) = self.frontier {
            state.frontier = frontier;
        }
        state.frontier_at = state.frontier_at.max(self.frontier_at);
        state.newest_at = state.newest_at.max(self.newest_at);
        state.reread_at = self.reread_at.or(state.reread_at);
        if let Some(filters) = self.filters {
            state.filters = filters;
        }
        if let Some(change) = self.walk {
            match &change {
                WalkChange::Begin { top, .. } => state.walk_top.clone_from(top),
                WalkChange::End => state.walk_top = None,
                WalkChange::Mark { .. } | WalkChange::Up { .. } => {}
            }
            state.walk = follow(state.walk.take(), change);
        }
    }
}

fn follow(walk: Option<Walk>, change: WalkChange) -> Option<Walk> {
    match (walk, change) {
        (_, WalkChange::Begin { walk, .. }) => Some(walk),
        (Some(mut walk), WalkChange::Mark { depth, mark }) => {
            walk.marks.truncate(depth);
            walk.marks.push(mark);
            walk.direction = Direction::Down;
            Some(walk)
        }
        (Some(mut walk), WalkChange::Up { depth, joined }) => {
            walk.marks.truncate(depth);
            walk.direction = Direction::Up;
            walk.joined = joined;
            Some(walk)
        }
        (_, WalkChange::End) | (None, _) => None,
    }
}
