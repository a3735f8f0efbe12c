//! Decides which page of the audit log listing to request next, and what to take from it.
//!
//! The listing has the newest entry first. The ledger holds the known ids and the open ranges: parts of the listing
//! that are not read yet. Both change in the same commit as the counters, so at every moment whatever is missing lies
//! above the newest known entry or in an open range, and a crash at any point loses and repeats nothing.
//!
//! - A **poll** asks for the newest entry. If it is unknown, the newest page is requested and what stands above its
//!   first known entry is taken. If no entry of that page is known, everything below it becomes an open range.
//! - A **range** is read page by page from its cursor downwards. A known entry that was not on its last page closes it,
//!   and so does the end of the listing, which is an empty page that is empty twice.
//! - The **re-read** looks again at the recent past, because entries may appear behind newer ones.
//!
//! This file does no I/O. [`Ranges::request`] says what to ask for, and [`Ranges::page`], in `step.rs`, what a page means.

mod step;

use std::time::Duration;

pub use step::Step;

use jiff::{SignedDuration, Timestamp};

use super::Settings;
use crate::ledger::{EventId, Gap, GapReason, Range, RangeKind, TailState};
use crate::util;

/// The first limit for the newest page.
const NEWEST_LIMIT: u32 = 50;

/// The smallest limit for pages of a range: a page of one could be the entry of an inclusive cursor again.
const MIN_LIMIT: u32 = 2;

/// A reduced limit is raised after this many pages.
const PAGES_BEFORE_RAISE: u32 = 8;

/// A cursor may have expired after this time; conclusions need a newer one.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// After this many failures in a row the place of a range is found again from the top.
const FAILURES_BEFORE_FIND: u32 = 8;

/// A range that cannot be read becomes a gap after this time.
const MAX_FAILING: SignedDuration = SignedDuration::from_hours(7 * 24);

/// It has also failed so often in a row since the start of the process, which may have been away for long.
const MIN_FAILURES: u32 = 20;

/// The least [`Ranges::silence`].
const MIN_SILENCE: SignedDuration = SignedDuration::from_secs(60);

/// An empty page is requested again after this time.
const CONFIRM_AFTER: Duration = Duration::from_secs(2);

/// The first response is late if it came this long after the start of the process.
const LATE_FIRST_RESPONSE: Duration = Duration::from_secs(2);

/// The stored time of the last successful poll is at most this old.
const POLL_SAVED: SignedDuration = SignedDuration::from_secs(30);

/// Why a page is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// The first page of a new ledger.
    FirstSync,
    /// The newest entry alone.
    Poll,
    /// The newest page, because the newest entry is unknown.
    Newest,
    /// A page of the range with this id.
    Range(i64),
    /// A page on the way to the lost place of a range.
    Find(i64),
    /// A page of the re-read.
    Reread,
}

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What for.
    pub task: Task,
    /// The cursor; `None` for the newest page.
    pub before: Option<String>,
    /// The maximum number of entries.
    pub limit: u32,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Perhaps no request would be answered now.
    Away,
    /// The service rejects this request, and would not reject every request.
    Refused,
    /// Perhaps the page itself.
    Page,
}

/// An entry of a page.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its identity.
    pub id: EventId,
    /// When it was created.
    pub created_at: Timestamp,
    /// The ledger holds it.
    pub known: bool,
}

/// A page, newest entry first, without repeated entries.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its entries.
    pub rows: Vec<Row>,
    /// The cursor for what is below.
    pub end_cursor: Option<String>,
    /// The service's clock.
    pub server_time: Timestamp,
}

/// The state of the tail: the durable part, and what a restart may forget.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// The durable part.
    pub state: TailState,
    pub(super) settings: Settings,
    /// When the process started.
    pub(super) started: std::time::Instant,
    /// History ends before this time; `None` if it ends with the newest entry.
    pub(super) until: Option<Timestamp>,
    /// Only history is read: no entry is live, and a range that cannot be read never becomes a gap.
    pub(super) is_backfill: bool,
    /// No late row is older than the ids that are kept.
    prune_floor: Option<Timestamp>,
    /// The ledger holds at least one entry.
    has_known: bool,
    /// The newest entry is unknown.
    newest_pending: bool,
    newest_limit: u32,
    /// The limit for all other pages, and the number of pages since it was changed.
    limit: u32,
    pages: u32,
    /// The next page has to be larger than the last one.
    must_raise: bool,
    /// The requests that were answered with an empty page.
    empty: Vec<Task>,
    /// A page came since the last failure that may be an outage.
    is_answered: bool,
    failures: u32,
    /// The range that fails, and how often it has since its last page.
    failing: (i64, u32),
    find: Option<Find>,
    reread: Option<Reread>,
    /// When a re-read was given up for the first time since one was completed.
    reread_failing_since: Option<Timestamp>,
    poll_saved: Option<Timestamp>,
}

/// The search for the lost place of a range.
#[derive(Clone, Debug)]
struct Find {
    range: i64,
    /// The cursor, and when it was received; `None` to start from the top.
    cursor: Option<(String, Timestamp)>,
    /// The service refused the cursor; otherwise the search is a precaution.
    refused: bool,
}

/// A re-read under way.
#[derive(Clone, Debug)]
struct Reread {
    started_at: Timestamp,
    floor: Timestamp,
    before: String,
    /// When the cursor was received, and the oldest creation time above it.
    received_at: Timestamp,
    oldest: Option<Timestamp>,
    /// The limits of the consecutive pages that were entirely older than the floor, added up.
    older: u32,
}

// === impl Ranges ===

impl Ranges {
    /// Continues from a stored state.
    pub fn new(
        state: TailState,
        settings: Settings,
        prune_floor: Option<Timestamp>,
        has_known: bool,
    ) -> Self {
        Self {
            poll_saved: state.last_poll_at,
            state,
            settings,
            started: util::instant(),
            until: None,
            is_backfill: false,
            prune_floor,
            has_known,
            newest_pending: false,
            newest_limit: NEWEST_LIMIT.min(settings.page_size),
            limit: settings.page_size,
            pages: 0,
            must_raise: false,
            empty: Vec::new(),
            is_answered: false,
            failures: 0,
            failing: (0, 0),
            find: None,
            reread: None,
            reread_failing_since: None,
        }
    }

    /// Returns the next request; `None` if nothing is due.
    pub fn request(&self, poll_due: bool, reread_due: bool) -> Option<Request> {
        let request = |task, before, limit| {
            Some(Request {
                task,
                before,
                limit,
            })
        };
        let range_limit = self.limit.max(MIN_LIMIT);
        if self.state.first_sync.is_none() {
            return request(Task::FirstSync, None, self.limit);
        }
        if self.newest_pending {
            return request(Task::Newest, None, self.newest_limit);
        }
        if poll_due {
            return request(Task::Poll, None, 1);
        }
        if reread_due && let Some(reread) = &self.reread {
            return request(Task::Reread, Some(reread.before.clone()), range_limit);
        }
        // Until a poll has succeeded, entries that only new filters show cannot be told from new ones.
        if reread_due && !self.state.filters_changed && !self.is_catching_up() {
            return request(Task::Reread, None, range_limit);
        }
        let range = self
            .open(RangeKind::CatchUp)
            .or(self.open(RangeKind::History))?;
        match &self.find {
            Some(find) if find.range == range.id => {
                let before = find.cursor.as_ref().map(|(cursor, _)| cursor.clone());
                request(Task::Find(range.id), before, range_limit)
            }
            _ => request(Task::Range(range.id), range.cursor.clone(), range_limit),
        }
    }

    /// Returns the time of the entry above the page of a task; `None` at the top of the listing.
    pub fn above(&self, task: Task) -> Option<Timestamp> {
        match task {
            Task::Range(id) => self.state.range(id)?.lowest,
            Task::Reread => self.reread.as_ref()?.oldest,
            _ => None,
        }
    }

    /// Reports whether a re-read is under way.
    pub fn is_rereading(&self) -> bool {
        self.reread.is_some()
    }

    /// Reports whether the last poll is due to be stored.
    pub fn is_poll_unsaved(&self) -> bool {
        match (self.state.last_poll_at, self.poll_saved) {
            (Some(last), Some(saved)) => last.duration_since(saved).abs() >= POLL_SAVED,
            (last, saved) => last != saved,
        }
    }

    /// Notes that the durable state was committed, and the floor of the ids that are still kept.
    pub fn saved(&mut self, prune_floor: Option<Timestamp>) {
        (self.poll_saved, self.prune_floor) = (self.state.last_poll_at, prune_floor);
    }

    /// Notes that the filters changed: entries that only the new ones show are not taken.
    pub fn change_filters(&mut self) {
        let first_sync_at = self.state.first_sync.as_ref().map(|first| first.at);
        self.state.filter_floor = self.state.last_poll_at.max(first_sync_at);
        for range in &mut self.state.ranges {
            // Neither what was read last nor what is known below it needs to match the new filters.
            (range.filters_changed, range.expected) = (true, false);
            if range.kind == RangeKind::CatchUp {
                // What it still lacks is newer.
                range.floor = range.floor.or(range.last_contact);
            }
        }
        self.state.filters_changed = true;
        self.reread = None;
    }

    /// Releases the records of ranges that were opened before `before`.
    pub fn release(&mut self, before: Timestamp) {
        for range in &mut self.state.ranges {
            range.released |= range.opened_at <= before;
        }
    }

    /// Notes a failed request. Returns the gap that a range becomes when it has failed for too long.
    pub fn failed(&mut self, request: &Request, cause: Cause, now: Timestamp) -> Option<Gap> {
        self.empty.retain(|task| *task != request.task);
        // An outage says nothing about a page, unless others came meanwhile.
        let is_outage = cause == Cause::Away && !std::mem::take(&mut self.is_answered);
        if is_outage && request.task != Task::FirstSync {
            return None;
        }
        let refused = cause == Cause::Refused;
        self.pages = 0;
        let old_limit = self.limit;
        match request.task {
            // The cursor of a range is not the cause if the top of the listing cannot be read either.
            Task::Poll => self.failures = 0,
            Task::Newest => self.newest_limit = (self.newest_limit / 2).max(1),
            Task::FirstSync => self.limit = (self.limit / 2).max(1),
            Task::Range(id) | Task::Find(id) => {
                self.failures += 1;
                let lost = refused || self.failures.is_multiple_of(FAILURES_BEFORE_FIND);
                if lost && request.before.is_some() {
                    // The cursor of a search may have expired as well, and that of the range may be valid.
                    let is_range = request.task == Task::Range(id);
                    self.find = is_range.then_some(Find {
                        range: id,
                        cursor: None,
                        refused,
                    });
                } else {
                    self.limit = (self.limit / 2).max(MIN_LIMIT);
                }
                return self.expire(id, now);
            }
            Task::Reread => {
                self.limit = (self.limit / 2).max(MIN_LIMIT);
                self.failures += 1;
                if (refused && self.limit == old_limit) || self.failures >= 2 * FAILURES_BEFORE_FIND
                {
                    self.reread = None;
                    self.failures = 0;
                    self.reread_failing_since.get_or_insert(now);
                }
            }
        }
        None
    }

    /// Requests fewer entries, because the last page was too large. Reports whether that is possible.
    pub fn lower_limit(&mut self, request: &Request, rows: usize) -> bool {
        let (limit, least) = match request.task {
            Task::Newest => (&mut self.newest_limit, 1),
            _ => (&mut self.limit, MIN_LIMIT),
        };
        let lower = u32::try_from(rows / 2).unwrap_or(u32::MAX).max(least);
        if lower >= *limit || self.must_raise {
            return false;
        }
        (*limit, self.pages) = (lower, 0);
        true
    }

    /// Requests more entries, because those of the last page say too little. Reports whether that is possible.
    pub fn widen(&mut self, task: Task) -> bool {
        if task != Task::Newest {
            return self.raise_limit_now();
        }
        let old = self.newest_limit;
        self.newest_limit = (2 * old).min(self.settings.page_size);
        self.must_raise = self.newest_limit > old;
        self.must_raise
    }

    fn raise_limit(&mut self) {
        self.must_raise = false;
        self.pages += 1;
        if self.pages >= PAGES_BEFORE_RAISE && self.limit < self.settings.page_size {
            self.limit = (self.limit * 2).min(self.settings.page_size);
            self.pages = 0;
        }
    }

    /// Doubles the limit, because a page led nowhere; reports whether that was possible.
    fn raise_limit_now(&mut self) -> bool {
        let most = self.settings.page_size.max(MIN_LIMIT);
        let raised = (self.limit * 2).clamp(MIN_LIMIT, most);
        let is_higher = raised > self.limit.max(MIN_LIMIT);
        self.limit = raised;
        self.must_raise = is_higher;
        is_higher
    }

    /// Reports whether nothing above the floor is expected below so many older entries in a row: some may stand above newer ones, but not
    /// two full pages.
    fn is_past_floor(&self, older: u32) -> bool {
        older >= 2 * self.settings.page_size.max(MIN_LIMIT)
    }

    /// Returns the newest open range of a kind.
    fn open(&self, kind: RangeKind) -> Option<&Range> {
        self.state.ranges.iter().rfind(|range| range.kind == kind)
    }

    /// Reports whether events since the start or the last poll are still to be read.
    fn is_catching_up(&self) -> bool {
        let first = self.state.first_sync.as_ref();
        self.state.ranges.iter().any(|range| {
            let lowest = first.zip(range.lowest);
            range.kind == RangeKind::CatchUp || lowest.is_some_and(|(first, at)| first.is_live(at))
        })
    }

    /// Reports whether a range could not be read for so long and so often, whatever was read meanwhile.
    pub fn has_failed_for(&self, longest: SignedDuration, failures: u32, now: Timestamp) -> bool {
        let range = self.state.range(self.failing.0);
        let since = range.and_then(|range| range.failing_since);
        self.failing.1 >= failures
            && since.is_some_and(|since| now.duration_since(since) >= longest)
    }

    /// Closes a range that could not be read for too long.
    fn expire(&mut self, id: i64, now: Timestamp) -> Option<Gap> {
        let range = self.state.range_mut(id)?;
        range.failing_since.get_or_insert(now);
        let (failing, failures) = self.failing;
        self.failing = (id, if failing == id { failures + 1 } else { 1 });
        if self.is_backfill || !self.has_failed_for(MAX_FAILING, MIN_FAILURES, now) {
            return None;
        }
        let range = self.state.range(id)?;
        let gap = Gap {
            reason: GapReason::Unreadable,
            from: range.last_contact,
            to: range.lowest,
            message: "the API has failed to return these entries for seven days".to_owned(),
        };
        self.close(id);
        Some(gap)
    }

    fn close(&mut self, id: i64) {
        self.state.ranges.retain(|range| range.id != id);
        self.find.take_if(|find| find.range == id);
        self.empty
            .retain(|task| ![Task::Range(id), Task::Find(id)].contains(task));
    }

    fn replace(&mut self, range: Range) {
        if let Some(old) = self.state.range_mut(range.id) {
            *old = range;
        }
    }

    /// Returns the time up to which the first poll after a change of the filters leaves out what only the new ones show. What an open
    /// range lacks is newer.
    fn change_floor(&self) -> Option<Timestamp> {
        let floor = self
            .state
            .filter_floor
            .filter(|_| self.state.filters_changed);
        let ranges = self.state.ranges.iter().filter_map(|range| range.floor);
        floor.map(|floor| ranges.fold(floor, Timestamp::min))
    }

    /// Returns the time that the window of a re-read goes back from. An entry that stays unreadable must not keep the re-read from ever
    /// reaching its end.
    fn reread_from(&self, now: Timestamp) -> Timestamp {
        let from = self.state.reread_at.unwrap_or(now);
        let earliest = now.checked_sub(MAX_FAILING).unwrap_or(from);
        match self.reread_failing_since {
            Some(since) if since <= earliest => from.max(earliest),
            _ => from,
        }
    }

    /// Returns the time before which a late row is ignored.
    fn late_floor(&self) -> Option<Timestamp> {
        let counted = self.state.count_floor();
        counted.max(self.state.filter_floor).max(self.prune_floor)
    }

    /// Returns the time within which nothing can have been lost after a successful poll.
    fn silence(&self) -> SignedDuration {
        let two_polls = SignedDuration::try_from(2 * self.settings.poll_interval);
        two_polls.unwrap_or(SignedDuration::MAX).max(MIN_SILENCE)
    }

    /// Reports whether so much time has passed since the last successful poll that entries may have come and gone.
    fn was_silent(&self, page: &Page) -> bool {
        let last = self.state.last_poll_at;
        last.is_none_or(|last| page.server_time.duration_since(last) >= self.silence())
    }

    /// Notes a successful poll.
    fn polled(&mut self, page: &Page) {
        self.state.last_poll_at = Some(page.server_time);
        self.state.filters_changed = false;
    }
}
