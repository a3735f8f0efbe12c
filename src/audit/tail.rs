//! The loop that tails the audit logs: poll, join, and where there is a hole, walk.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::fetch::{Fetched, Fetcher, Place};
use super::view::{Floors, Order, Rule, View};
use super::{Settings, Start};
use crate::api::{ApiError, AuditPage, Client, Cursor, Priority};
use crate::ledger::{
    Birth, Commit, Direction, Disposition, EventId, Frontier, LedgerError, LedgerHandle, LedgerState, NewEntry, Walk, WalkChange, WalkKind,
};
use crate::metrics::{Loop, Metrics};
use crate::telemetry;

/// An entry dated later than this after the service's clock is from the future: it says nothing of how far the ledger reaches.
const FUTURE: SignedDuration = SignedDuration::from_mins(5);

/// The smallest step between two times in the ledger.
const TICK: SignedDuration = SignedDuration::from_micros(1);

/// The first wait after a failure; it doubles up to the poll interval, or a minute where that is shorter.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// How often a full ledger is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// Tails the audit logs of one organization into a ledger.
#[derive(Debug)]
pub struct Tail {
    pub(super) fetcher: Fetcher,
    pub(super) ledger: LedgerHandle,
    pub(super) state: LedgerState,
    pub(super) metrics: Metrics,
    pub(super) settings: Settings,
    /// The order of items in a page, once a page showed it.
    pub(super) order: Option<Order>,
    /// The last pages of the way down by their depth: a short walk fetches nothing twice.
    pub(super) passed: VecDeque<(usize, View)>,
    /// The newest mark of a re-read leads to nothing late: the next one replaces it.
    pub(super) idle_mark: bool,
    /// The newest entry when the ledger began, while a first start needs it.
    pub(super) newest_at_birth: Option<EventId>,
    /// The walk was begun again because its cursors were refused.
    pub(super) rewalked: bool,
    /// The most items a page ever had: a service may cap pages below the limit asked for.
    largest_page: usize,
    /// A page after a cursor begins with the entry of the cursor.
    inclusive: bool,
    next_poll: Instant,
    pub(super) next_reread: Instant,
    failures: u32,
    filters: String,
}

/// Why a round failed; the next one starts from what the ledger holds.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The service, or the way to it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The state file.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The key belongs to another organization than the state file.
    #[error(
        "the API key belongs to organization {found}, but the state file to {wanted}; use a key of organization {wanted}, or give --state.path another file"
    )]
    OtherOrganization {
        /// Whose key it is.
        found: String,
        /// Whose file it is.
        wanted: String,
    },
}

// === impl Tail ===

impl Tail {
    /// A tail that goes on where the ledger ends.
    pub fn new(client: Client, ledger: LedgerHandle, state: LedgerState, metrics: Metrics, settings: Settings) -> Self {
        let filters = client.settings().filters.fingerprint();
        let now = Instant::now();
        Self {
            fetcher: Fetcher::new(client, settings.page_size),
            ledger,
            state,
            metrics,
            order: None,
            passed: VecDeque::new(),
            idle_mark: false,
            newest_at_birth: None,
            rewalked: false,
            largest_page: 0,
            inclusive: false,
            next_poll: now,
            next_reread: now,
            failures: 0,
            filters,
            settings,
        }
    }

    /// Tails until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        self.metrics.loops.enable(Loop::Audit);
        loop {
            let wait = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                wait = self.round() => wait,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Makes the next poll and the next re-read due now, as if their intervals had passed.
    pub fn hurry(&mut self) {
        let now = Instant::now();
        self.next_poll = now;
        self.next_reread = now;
    }

    /// Makes the next poll due now.
    pub fn hurry_poll(&mut self) {
        self.next_poll = Instant::now();
    }

    /// One round: one page at most. Returns how long to wait before the next.
    pub async fn round(&mut self) -> Duration {
        match self.step().await {
            Ok(wait) => {
                if self.failures > 0 {
                    tracing::info!(failures = self.failures, "audit logs are read again");
                    self.failures = 0;
                }
                wait
            }
            Err(error) => {
                self.failures += 1;
                let longest = self.settings.poll_interval.clamp(FIRST_WAIT, Duration::from_secs(60));
                let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(10).saturating_sub(1)).min(longest);
                self.metrics.loops.failure(Loop::Audit, error.to_string());
                // The first failure, and then ever more rarely: one line an event, not one a retry.
                if self.failures.is_power_of_two() {
                    tracing::warn!(%error, failures = self.failures, retry_in = %humantime::format_duration(wait), "cannot read audit logs; nothing is lost, the tail goes on from where it was");
                }
                wait
            }
        }
    }

    async fn step(&mut self) -> Result<Duration, TailError> {
        if self.ledger.is_full() {
            if !self.metrics.audit.is_paused() {
                tracing::warn!(
                    "the state file is full of log records that the collector has not taken: the tail pauses, the service keeps the events meanwhile"
                );
                self.metrics.audit.paused(true);
            }
            return Ok(PAUSE);
        }
        if self.metrics.audit.is_paused() {
            tracing::info!("there is room in the state file again: the tail goes on");
            self.metrics.audit.paused(false);
        }
        self.show_walk();
        if self.state.birth.is_none() {
            self.first_start().instrument(tracing::info_span!("poll", orgdata.poll = "first start")).await?;
            return self.succeeded(Duration::ZERO);
        }
        if self.state.filters != self.filters {
            self.change_filters().await?;
        }
        let catching_up = self.state.walk.as_ref().is_some_and(|walk| walk.kind.moves_frontier());
        if !catching_up && Instant::now() >= self.next_poll {
            let more = self.poll().instrument(tracing::info_span!("poll")).await?;
            self.next_poll = if more { Instant::now() } else { Instant::now() + self.settings.poll_interval };
            return self.succeeded(Duration::ZERO);
        }
        if self.state.walk.is_some() {
            self.walk_step().instrument(tracing::info_span!("walk")).await?;
            return self.succeeded(Duration::ZERO);
        }
        if Instant::now() >= self.next_reread {
            self.begin_reread().instrument(tracing::info_span!("reread")).await?;
            return self.succeeded(Duration::ZERO);
        }
        Ok(self.next_poll.min(self.next_reread).saturating_duration_since(Instant::now()))
    }

    fn succeeded(&self, wait: Duration) -> Result<Duration, TailError> {
        self.metrics.loops.success(Loop::Audit);
        self.show_walk();
        Ok(wait)
    }

    fn show_walk(&self) {
        self.metrics.audit.walk(self.state.walk.as_ref().map(|walk| (walk.kind, walk.direction, walk.marks.len())));
    }

    /// The first answer of the service: the ledger is born, and its history, if any is wanted, is walked.
    async fn first_start(&mut self) -> Result<(), TailError> {
        let page = match self.fetcher.page(&Place::Top, Priority::Live).await? {
            Fetched::Page(page) => page,
            Fetched::Refused(error) => return Err(error.into()),
        };
        let body = page.body().to_owned();
        let view = self.view(page).await?;
        let now = view.page.server_time;
        // Everything that is there already is history, and what comes is above it, whatever the service's clock says of either.
        let count_floor = self.reach(&view);
        let start_floor = match self.settings.start {
            // What is as old as the newest entry was there. Where nothing was, everything comes after the start, whatever the clocks say.
            Start::Now => count_floor.map(|newest| newest.checked_add(TICK).unwrap_or(newest).max(now)),
            start => start.floor(now),
        };
        let birth = Birth { born_at: now, start_floor, count_floor };
        let mut commit = self.commit(&view);
        commit.birth = Some(birth.clone());
        commit.organization = view.organization().map(str::to_owned);
        commit.filters = Some((self.filters.clone(), None));
        commit.reread_at = Some(now);
        let whole = view.is_empty() || view.end().is_none() || self.settings.start == Start::Now || view.is_below(start_floor);
        if whole {
            // With `now` all of the page is only remembered, so that the next page has something to join.
            let start_floor = if self.settings.start == Start::Now { Some(Timestamp::MAX) } else { start_floor };
            let rule = Rule::FirstStart { start_floor, newest: None, passed: false };
            commit.entries = view.take(rule, &self.ledger, None, Floors::default());
            self.advance(&mut commit, &view);
        } else {
            let walk = self.new_walk(WalkKind::FirstStart, start_floor, &view, None);
            commit.walk = Some(WalkChange::Begin { walk, top: Some(body) });
        }
        let entries = commit.entries.len();
        self.write(commit).await?;
        self.state.birth = Some(birth);
        self.next_reread = Instant::now() + self.settings.reread_interval;
        self.next_poll = Instant::now() + self.settings.poll_interval;
        tracing::info!(start = %self.settings.start, entries, "a new ledger: counters begin at 0 now");
        Ok(())
    }

    /// Entries that only the new filters show are not late: the floor for late rows rises to where the ledger is.
    async fn change_filters(&mut self) -> Result<(), TailError> {
        let floor = self.state.frontier_at.or(self.state.birth.as_ref().map(|birth| birth.born_at));
        let mut commit = Commit::new(Timestamp::now());
        commit.filters = Some((self.filters.clone(), floor));
        self.write(commit).await?;
        tracing::info!("the filters changed: entries that only the new ones show are taken from now on");
        self.state.filters = self.filters.clone();
        self.state.filter_floor = floor;
        Ok(())
    }

    /// Asks for what is new. Returns whether more may be there at once.
    async fn poll(&mut self) -> Result<bool, TailError> {
        let place = self.poll_place();
        let page = match self.fetcher.page(&place, Priority::Live).await? {
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
            self.begin_walk(WalkKind::CatchUp, floor, view, None).await?;
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
        let moved = view.page.start_cursor.as_ref().is_some_and(|cursor| self.state.frontier.cursor.as_deref() != Some(cursor.as_str()));
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
        if after_cursor { view.duplicates(&self.ledger, self.state.frontier.id) } else { 0 }
    }

    /// Whether a page stands on what the ledger holds, or nothing is there to stand on. Where that cannot be told, a walk finds out.
    pub(super) async fn is_joined(&self, view: &View) -> Result<bool, TailError> {
        if view.is_joined(&self.ledger, self.state.frontier_at) {
            return Ok(true);
        }
        let Some(end) = view.end() else { return Ok(!self.ledger.holds_any()) };
        let Some(below) = self.fetcher.below(end).await? else { return Ok(false) };
        if below.is_empty() {
            return Ok(!self.ledger.holds_any());
        }
        let below = View::read(below, None, self.fetcher.client());
        Ok(below.is_joined(&self.ledger, self.state.frontier_at) && !below.ids().eq(view.ids()))
    }

    /// What is new in a page that is joined: where it does not reach down to the frontier, all of it stands above.
    fn take_joined(&self, view: &View) -> Vec<NewEntry> {
        let rule = if view.is_joined(&self.ledger, self.state.frontier_at) { Rule::Frontier } else { Rule::Above };
        view.take(rule, &self.ledger, self.state.frontier_at, self.floors())
    }

    /// The newest entries are taken as the new frontier, joined by a walk where needed.
    pub(super) async fn recover(&mut self, top: Option<View>) -> Result<(), TailError> {
        let view = match top {
            Some(view) => view,
            None => match self.fetcher.page(&Place::Top, Priority::Live).await? {
                Fetched::Page(page) => self.view(page).await?,
                Fetched::Refused(error) => return Err(error.into()),
            },
        };
        let mut commit = self.commit(&view);
        commit.recovered = true;
        if !view.is_empty() && !self.is_joined(&view).await? {
            let floor = self.catch_up_floor();
            return self.begin_walk(WalkKind::Recovery, floor, view, Some(commit)).await;
        }
        commit.entries = self.take_joined(&view);
        self.advance(&mut commit, &view);
        if view.is_empty() {
            // Nothing is there to stand on: the next poll asks without a cursor.
            commit.frontier = Some(Frontier { cursor: None, id: self.state.frontier.id });
        }
        self.write(commit).await
    }

    /// A re-read looks from the top for rows that appeared behind the frontier.
    async fn begin_reread(&mut self) -> Result<(), TailError> {
        let page = match self.fetcher.page(&Place::Top, Priority::Walk).await? {
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
            tracing::warn!("the service shows new entries, but not after the cursor; finding the place again from the newest entries");
            return self.recover(Some(view)).await;
        }
        let floor = self.reread_floor(view.page.server_time);
        let floor = self.floors().highest().map_or(floor, |highest| highest.max(floor));
        self.begin_walk(WalkKind::Reread, Some(floor), view, None).await
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
        let future = self.state.newest_at.is_some_and(|newest| self.state.frontier_at.is_some_and(|at| newest > at));
        match &self.state.frontier.cursor {
            Some(cursor) if !future && !self.has_no_room() => Place::After(Cursor::new(cursor.clone())),
            _ => Place::Top,
        }
    }

    /// How far down a walk to the frontier looks before it gives up on finding anything it knows. The start floor has no say:
    /// it is the time of the clock at the first answer, and what came since may be dated before it.
    pub(super) fn catch_up_floor(&self) -> Option<Timestamp> {
        if self.filters_changed_since_frontier() {
            return self.state.frontier_at;
        }
        let window = SignedDuration::try_from(self.settings.reread_window).unwrap_or(SignedDuration::MAX);
        self.state.frontier_at.map(|at| at.checked_sub(window).unwrap_or(Timestamp::MIN))
    }

    /// Other filters showed everything that the ledger holds, so it may well not be found again.
    pub(super) fn filters_changed_since_frontier(&self) -> bool {
        self.state.filter_floor.is_some() && self.state.filter_floor == self.state.frontier_at
    }

    /// How far down a re-read looks: it overlaps the one before by the window, so after a time without contact it reaches back
    /// to the last one; and it reaches below the newest entry by the window, also where the service's clock is far from its entries.
    fn reread_floor(&self, now: Timestamp) -> Timestamp {
        let window = SignedDuration::try_from(self.settings.reread_window).unwrap_or(SignedDuration::MAX);
        let contact = self.state.reread_at.or(self.state.birth.as_ref().map(|birth| birth.born_at)).unwrap_or(now).min(now);
        let base = match self.state.frontier_at {
            Some(newest) if newest > latest(now) => newest,
            Some(newest) => newest.min(contact),
            None => contact,
        };
        base.checked_sub(window).unwrap_or(Timestamp::MIN)
    }

    pub(super) fn floors(&self) -> Floors {
        Floors {
            start: self.state.birth.as_ref().and_then(|birth| birth.start_floor),
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
        match (view.organization(), &self.state.organization) {
            (Some(found), Some(wanted)) if found != wanted => {
                Err(TailError::OtherOrganization { found: found.to_owned(), wanted: wanted.clone() })
            }
            _ => Ok(view),
        }
    }

    /// The order of items in a page, found once: all of them except the newest are below the cursor of the newest.
    async fn find_order(&mut self, view: &View) -> Result<Option<Order>, TailError> {
        let (Some((first, last)), Some(start)) = (view.ends(), view.page.start_cursor.clone()) else { return Ok(None) };
        let below = match self.fetcher.page(&Place::Before(start), Priority::Live).await? {
            Fetched::Page(below) => below,
            Fetched::Refused(_) => return Ok(None),
        };
        let below = View::read(below, None, self.fetcher.client());
        Ok(match (below.contains(first), below.contains(last)) {
            (false, true) => Some(Order::NewestFirst),
            (true, false) => Some(Order::OldestFirst),
            _ => None,
        })
    }

    pub(super) fn commit(&self, view: &View) -> Commit {
        let mut commit = Commit::new(view.page.server_time);
        commit.trace = telemetry::current_trace();
        commit.count_floor = self.state.birth.as_ref().and_then(|birth| birth.count_floor);
        if self.state.organization.is_none() {
            commit.organization = view.organization().map(str::to_owned);
        }
        commit
    }

    /// The frontier follows to the top of a page.
    pub(super) fn advance(&self, commit: &mut Commit, view: &View) {
        commit.frontier_at = self.reach(view);
        let cursor = view.page.start_cursor.as_ref().map(|cursor| cursor.as_str().to_owned());
        let id: Option<EventId> = view.top();
        commit.frontier =
            Some(Frontier { cursor: cursor.or_else(|| self.state.frontier.cursor.clone()), id: id.or(self.state.frontier.id) });
    }

    /// Creation time of the newest entry of a page that is not dated in the future.
    fn reach(&self, view: &View) -> Option<Timestamp> {
        let latest = latest(view.page.server_time);
        // Where every entry is ahead of the service's clock, the clock is wrong, not the entries.
        let clock_is_wrong = self.state.frontier_at.or(view.oldest()).is_some_and(|at| at > latest);
        if clock_is_wrong { view.newest() } else { view.newest_until(latest) }
    }

    /// Writes a commit and follows it in memory. Only here does the tail's own state move.
    pub(super) async fn write(&mut self, commit: Commit) -> Result<(), TailError> {
        for gap in &commit.gaps {
            tracing::error!(
                reason = gap.reason.as_str(),
                from = gap.from.map(tracing::field::display),
                to = gap.to.map(tracing::field::display),
                "gap in the audit trail: {}; it is counted in orgdata_audit_gaps_total and sent as a log record",
                gap.message
            );
        }
        let late = commit.entries.iter().filter(|entry| entry.disposition == Disposition::Late).count();
        if late > 0 {
            tracing::info!(entries = late, "late entries found behind the newest ones");
        }
        let next = Followed::of(&commit);
        let prune_floor = self.ledger.commit(commit).await?;
        next.apply(&mut self.state);
        self.state.prune_floor = prune_floor;
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
