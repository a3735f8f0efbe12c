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
//! This file does no I/O. [`Ranges::request`] says what to ask for, and [`Ranges::page`] what a page means.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Start;
use crate::ledger::{Disposition, EventId, FirstSync, Gap, GapReason, Range, RangeKind, TailState};

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

/// A range becomes a gap after this time.
const MAX_OPEN: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Nothing can have been lost if the last successful poll was more recent.
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

/// What a page means.
#[derive(Clone, Debug)]
pub struct Step {
    /// The state after the step, to be used once it is committed.
    pub next: Ranges,
    /// Entries to take, as indices of rows in the order of the page.
    pub take: Vec<(usize, Disposition)>,
    /// Where the page stands in the order of delivery, if anything is taken.
    pub place: i64,
    /// The taken entries may stand at the top of the listing.
    pub top: bool,
    /// A gap was found.
    pub gap: Option<Gap>,
    /// A lost place was found again.
    pub recovered: bool,
    /// How long to wait before the next request.
    pub wait: Duration,
}

/// The tail's settings that matter here.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `--api.page-size`.
    pub page_size: u32,
    /// `--audit.start`.
    pub start: Start,
    /// History ends before this time; `None` if it ends with the newest entry.
    pub until: Option<Timestamp>,
    /// `--audit.reread-window`.
    pub reread_window: SignedDuration,
    /// When the process started.
    pub started: std::time::Instant,
    /// Only history is read: no entry is live, and a range that cannot be read never becomes a gap.
    pub is_backfill: bool,
}

/// The state of the tail: the durable part, and what a restart may forget.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// The durable part.
    pub state: TailState,
    pub(super) limits: Limits,
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
    /// The requests that were answered with an empty page.
    empty: Vec<Task>,
    failures: u32,
    find: Option<Find>,
    reread: Option<Reread>,
    poll_saved: Option<Timestamp>,
}

/// The search for the lost place of a range.
#[derive(Clone, Debug)]
struct Find {
    range: i64,
    /// The cursor, and when it was received; `None` to start from the top.
    cursor: Option<(String, Timestamp)>,
    /// Requests have failed; otherwise the search is a precaution.
    failed: bool,
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
    older_pages: u8,
}

// === impl Ranges ===

impl Ranges {
    /// Continues from a stored state.
    pub fn new(
        state: TailState,
        limits: Limits,
        prune_floor: Option<Timestamp>,
        has_known: bool,
    ) -> Self {
        Self {
            poll_saved: state.last_poll_at,
            state,
            limits,
            prune_floor,
            has_known,
            newest_pending: false,
            newest_limit: NEWEST_LIMIT.min(limits.page_size),
            limit: limits.page_size,
            pages: 0,
            empty: Vec::new(),
            failures: 0,
            find: None,
            reread: None,
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
        if reread_due && self.open(RangeKind::CatchUp).is_none() {
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

    /// Notes that the durable state was committed.
    pub fn saved(&mut self) {
        self.poll_saved = self.state.last_poll_at;
    }

    /// Updates the floor of pruned ids.
    pub fn set_prune_floor(&mut self, floor: Option<Timestamp>) {
        self.prune_floor = floor;
    }

    /// Notes that the filters changed: entries that only the new ones show are not taken.
    pub fn change_filters(&mut self, filters: &str, newest: Option<Timestamp>) {
        self.state.filters = filters.to_owned();
        let first_sync_at = self.state.first_sync.as_ref().map(|first| first.at);
        self.state.filter_floor = self.state.last_poll_at.max(newest).max(first_sync_at);
        self.state.filters_changed = true;
        self.reread = None;
    }

    /// Releases the records of ranges that were opened before `before`. Returns how many ranges it were.
    pub fn release(&mut self, before: Timestamp) -> usize {
        let held = self.state.ranges.iter_mut().filter(|range| !range.released);
        let late: Vec<_> = held.filter(|range| range.opened_at <= before).collect();
        let count = late.len();
        for range in late {
            range.released = true;
        }
        count
    }

    /// Decides what a page means.
    pub fn page(&self, request: &Request, page: &Page) -> Step {
        let mut step = Step {
            next: self.clone(),
            take: Vec::new(),
            place: 0,
            top: false,
            gap: None,
            recovered: false,
            wait: Duration::ZERO,
        };
        step.next.has_known |= page.rows.iter().any(|row| row.known);
        if request.task != Task::Poll && request.task != Task::Newest {
            step.next.failures = 0;
            step.next.raise_limit();
        }
        match request.task {
            Task::FirstSync => step.first_sync(page),
            Task::Poll => step.poll(page),
            Task::Newest => step.newest(request, page),
            Task::Range(id) => step.range(request.task, id, &page.rows, page),
            Task::Find(id) => step.find(id, page),
            Task::Reread => step.reread(request, page),
        }
        step.next.has_known |= !step.take.is_empty();
        step
    }

    /// Notes a failed request; `refused` if the service rejects this request and not every request. Returns the gap that a
    /// range becomes when it has been open for too long.
    pub fn failed(
        &mut self,
        request: &Request,
        refused: bool,
        now: Timestamp,
    ) -> Option<(i64, Gap)> {
        self.empty.retain(|task| *task != request.task);
        self.pages = 0;
        let old_limit = self.limit;
        match request.task {
            Task::Poll => {}
            Task::Newest => self.newest_limit = (self.newest_limit / 2).max(1),
            Task::FirstSync => self.limit = (self.limit / 2).max(1),
            Task::Range(id) => {
                self.failures += 1;
                let lost = refused || self.failures.is_multiple_of(FAILURES_BEFORE_FIND);
                if lost && request.before.is_some() {
                    self.find = Some(Find {
                        range: id,
                        cursor: None,
                        failed: true,
                    });
                } else {
                    self.limit = (self.limit / 2).max(MIN_LIMIT);
                }
                return self.expire(id, now);
            }
            Task::Find(id) => {
                self.limit = (self.limit / 2).max(MIN_LIMIT);
                if refused && request.before.is_some() {
                    self.find = None;
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
                }
            }
        }
        None
    }

    /// Requests fewer entries: the last page was too large.
    pub fn lower_limit(&mut self, request: &Request, rows: usize) {
        let limit = u32::try_from(rows / 2).unwrap_or(u32::MAX);
        match request.task {
            Task::Newest => self.newest_limit = limit.max(1),
            _ => self.limit = limit.clamp(MIN_LIMIT.min(self.limit), self.limit),
        }
        self.pages = 0;
    }

    fn raise_limit(&mut self) {
        self.pages += 1;
        if self.pages >= PAGES_BEFORE_RAISE && self.limit < self.limits.page_size {
            self.limit = (self.limit * 2).min(self.limits.page_size);
            self.pages = 0;
        }
    }

    /// Doubles the limit, because a page led nowhere; reports whether that was possible.
    fn raise_limit_now(&mut self) -> bool {
        let most = self.limits.page_size.max(MIN_LIMIT);
        let raised = (self.limit * 2).clamp(MIN_LIMIT, most);
        let is_higher = raised > self.limit.max(MIN_LIMIT);
        self.limit = raised;
        is_higher
    }

    /// Returns the newest open range of a kind.
    fn open(&self, kind: RangeKind) -> Option<&Range> {
        self.state.ranges.iter().rfind(|range| range.kind == kind)
    }

    /// Closes a range that was open for too long.
    fn expire(&mut self, id: i64, now: Timestamp) -> Option<(i64, Gap)> {
        let range = self.state.ranges.iter().find(|range| range.id == id)?;
        if self.limits.is_backfill || now.duration_since(range.opened_at) < MAX_OPEN {
            return None;
        }
        let gap = Gap {
            reason: GapReason::Unreadable,
            from: range.last_contact,
            to: range.oldest,
            message: "the service has failed to return these entries for seven days".to_owned(),
        };
        self.close(id);
        Some((id, gap))
    }

    fn close(&mut self, id: i64) {
        self.state.ranges.retain(|range| range.id != id);
        self.find.take_if(|find| find.range == id);
        self.empty
            .retain(|task| ![Task::Range(id), Task::Find(id)].contains(task));
    }

    /// Returns the time before which a late row is ignored.
    fn late_floor(&self) -> Option<Timestamp> {
        let first = self.state.first_sync.as_ref();
        first
            .and_then(|first| first.count_floor)
            .max(self.state.filter_floor)
            .max(self.prune_floor)
    }

    /// Reports whether so much time has passed since the last successful poll that entries may have come and gone.
    fn was_silent(&self, page: &Page) -> bool {
        let last = self.state.last_poll_at;
        last.is_none_or(|last| page.server_time.duration_since(last) >= MIN_SILENCE)
    }

    /// Notes a successful poll.
    fn polled(&mut self, page: &Page) {
        self.state.last_poll_at = Some(page.server_time);
        self.state.filters_changed = false;
    }
}

// === impl Step ===

impl Step {
    fn first_sync(&mut self, page: &Page) {
        if page.rows.is_empty() && !self.is_confirmed(Task::FirstSync) {
            return;
        }
        let next = &mut self.next;
        let waited = next.limits.started.elapsed();
        // By the service's clock.
        let started_at = SignedDuration::try_from(waited)
            .ok()
            .and_then(|waited| page.server_time.checked_sub(waited).ok())
            .filter(|_| waited > LATE_FIRST_RESPONSE && !next.limits.is_backfill);
        let (start, until) = (next.limits.start, next.limits.until);
        let history_floor = start.floor(started_at.unwrap_or(page.server_time));
        let is_live = |row: &Row| started_at.is_some_and(|at| row.created_at > at);
        let place = next.state.take_place();
        for (index, row) in page.rows.iter().enumerate() {
            let wanted = start != Start::Now
                && history_floor.is_none_or(|floor| row.created_at >= floor)
                && until.is_none_or(|until| row.created_at < until);
            let disposition = match (is_live(row), wanted) {
                (true, _) => Disposition::Live,
                (_, true) => Disposition::History,
                (_, false) => Disposition::Ignored,
            };
            self.take.push((index, disposition));
        }
        let there = page.rows.iter().filter(|row| !is_live(row));
        next.state.first_sync = Some(FirstSync {
            at: page.server_time,
            count_floor: there.map(|row| row.created_at).max(),
            history_floor,
            history_until: until,
        });
        if start != Start::Now && page.end_cursor.is_some() && !page.rows.is_empty() {
            let range = range(RangeKind::History, place, page, false, None);
            next.state.ranges.push(range);
        }
        (self.place, self.top) = (place, true);
        next.state.reread_at = Some(page.server_time);
        next.polled(page);
    }

    fn poll(&mut self, page: &Page) {
        match page.rows.first() {
            // An entry dated in the future stays at the top while new ones arrive below it.
            Some(row) if !row.known || is_future(row, page) => self.next.newest_pending = true,
            // After a silence, an empty listing may have had entries that were deleted.
            None if self.next.has_known && self.next.was_silent(page) => {}
            _ => self.next.polled(page),
        }
    }

    fn newest(&mut self, request: &Request, page: &Page) {
        let next = &mut self.next;
        next.newest_pending = false;
        if page.rows.is_empty() {
            // The unknown entry is gone: not a successful poll.
            return;
        }
        let floor = next
            .state
            .filter_floor
            .filter(|_| next.state.filters_changed);
        let is_joined = |row: &Row| row.known || floor.is_some_and(|floor| row.created_at <= floor);
        let joined = page.rows.iter().position(is_joined);
        let new = joined.unwrap_or(page.rows.len());
        // Busy organizations need larger pages, so that their polls join without a range.
        next.newest_limit = if joined.is_none() {
            (request.limit * 2).min(next.limits.page_size)
        } else if new * 4 < request.limit as usize {
            (request.limit / 2).max(NEWEST_LIMIT.min(request.limit))
        } else {
            request.limit
        };
        let above = page.rows.iter().enumerate().take(new);
        self.take.extend(
            above
                .filter(|(_, row)| !row.known)
                .map(|(index, _)| (index, Disposition::Live)),
        );
        if floor.is_some() {
            let below = page.rows.iter().enumerate().skip(new);
            self.take.extend(
                below
                    .filter(|(_, row)| !row.known)
                    .map(|(index, _)| (index, Disposition::Ignored)),
            );
        }
        let place = next.state.take_place();
        (self.place, self.top) = (place, true);
        let last_contact = next.state.last_poll_at;
        if joined.is_none() {
            let expected = next.has_known && floor.is_none();
            let range = range(RangeKind::CatchUp, place, page, expected, last_contact);
            if page.end_cursor.is_some() {
                next.state.ranges.push(range);
            } else {
                self.gap = lost(&range, page).filter(|_| range.expected);
            }
        }
        next.polled(page);
    }

    /// Takes the rows of a page below a range's cursor.
    fn range(&mut self, task: Task, id: i64, rows: &[Row], page: &Page) {
        let Some(mut range) = range_of(&self.next.state, id).cloned() else {
            return;
        };
        // With inclusive cursors, the page begins at or above the last entry of the last page.
        let end = rows.iter().position(|row| Some(row.id) == range.end);
        let rows = &rows[end.map_or(0, |end| end + 1)..];
        let offset = page.rows.len() - rows.len();
        let is_fresh = range.cursor.is_none() || is_fresh(range.received_at, page);
        let seen: HashSet<EventId> = range.page.iter().copied().collect();
        let known = rows
            .iter()
            .position(|row| row.known && !seen.contains(&row.id));
        let is_repeated = rows.iter().all(|row| seen.contains(&row.id));
        let newest = rows.iter().map(|row| row.created_at).max();
        if !is_fresh && (is_repeated || known.is_some() || newest > range.oldest) {
            // An expired cursor may be answered in any way: with nothing, or with the newest page.
            self.next.find = Some(Find {
                range: id,
                cursor: None,
                failed: false,
            });
            return;
        }
        if is_repeated && newest <= range.oldest {
            // Many entries may share an inclusive cursor: a larger page reaches below them.
            if !page.rows.is_empty() && self.next.raise_limit_now() {
                return;
            }
            if self.is_confirmed(task) {
                self.gap = lost(&range, page).filter(|_| range.expected);
                self.next.close(id);
            }
            return;
        }
        let closing = known.filter(|_| range.kind == RangeKind::CatchUp);
        let (floor, until) = self.history();
        let kind = range.kind;
        let is_wanted = |row: &Row| {
            floor.is_none_or(|floor| row.created_at >= floor)
                && until.is_none_or(|until| row.created_at < until)
        };
        let disposition = |row: &Row| match kind {
            RangeKind::CatchUp => Disposition::Live,
            RangeKind::History if is_wanted(row) => Disposition::History,
            RangeKind::History => Disposition::Ignored,
        };
        let taken = &rows[..closing.unwrap_or(rows.len())];
        for (index, row) in taken.iter().enumerate().filter(|(_, row)| !row.known) {
            self.take.push((offset + index, disposition(row)));
        }
        range.place -= 1;
        (self.place, self.top) = (range.place, kind == RangeKind::CatchUp);
        let is_older = kind == RangeKind::History
            && floor.is_some_and(|floor| rows.iter().all(|row| row.created_at < floor));
        range.older_pages = if is_older { range.older_pages + 1 } else { 0 };
        let oldest = taken.iter().map(|row| row.created_at).min();
        range.oldest = [range.oldest, oldest].into_iter().flatten().min();
        if closing.is_some() || range.older_pages >= 2 {
            self.next.close(id);
            return;
        }
        let Some(cursor) = &page.end_cursor else {
            // The end of the listing, if the same page says so twice.
            range.page.extend(rows.iter().map(|row| row.id));
            if self.is_confirmed(task) {
                self.gap = lost(&range, page).filter(|_| range.expected);
                self.next.close(id);
            } else {
                self.next.replace(range);
            }
            return;
        };
        self.next.empty.retain(|other| *other != task);
        if is_repeated {
            // The service repeats a page.
            self.wait = CONFIRM_AFTER;
        }
        range.cursor = Some(cursor.clone());
        range.received_at = page.server_time;
        range.end = rows.last().map(|row| row.id);
        range.page = page.rows.iter().map(|row| row.id).collect();
        self.next.replace(range);
    }

    /// Looks for the last known place of a range in a page.
    fn find(&mut self, id: i64, page: &Page) {
        let Some(mut range) = range_of(&self.next.state, id).cloned() else {
            self.next.find = None;
            return;
        };
        // No other entry of its last page would do: late rows may stand between the two.
        let place = page.rows.iter().position(|row| Some(row.id) == range.end);
        if let Some(at) = place {
            range.received_at = page.server_time;
            let below = &page.rows[at + 1..];
            if let Some(cursor) = &page.end_cursor {
                let find = self.next.find.take();
                self.recovered = find.is_some_and(|find| find.failed);
                if below.iter().all(|row| range.page.contains(&row.id)) {
                    self.next.replace(Range {
                        cursor: Some(cursor.clone()),
                        end: page.rows.last().map(|row| row.id),
                        ..range
                    });
                    return;
                }
            }
            self.next.replace(range);
            self.range(Task::Find(id), id, below, page);
            return;
        }
        let old = self.next.find.as_ref().and_then(|find| find.cursor.clone());
        let is_end = match (&page.end_cursor, &old) {
            (Some(cursor), Some((old, _))) if cursor == old => !self.next.raise_limit_now(),
            (Some(_), _) => page.rows.is_empty(),
            (None, _) => true,
        };
        let is_stale = old.as_ref().is_some_and(|(_, at)| !is_fresh(*at, page));
        if !is_end || is_stale {
            self.next.empty.retain(|task| *task != Task::Find(id));
            // An expired cursor leads back to the top.
            let cursor = page.end_cursor.clone().filter(|_| !is_end);
            if let Some(find) = &mut self.next.find {
                find.cursor = cursor.map(|cursor| (cursor, page.server_time));
            }
        } else if self.is_confirmed(Task::Find(id)) {
            // The place is gone, and with it everything below.
            self.gap = lost(&range, page).filter(|_| range.expected);
            self.next.close(id);
        }
    }

    fn reread(&mut self, request: &Request, page: &Page) {
        let window = self.next.limits.reread_window;
        let from = self.next.state.reread_at.unwrap_or(page.server_time);
        let count_floor = self
            .next
            .state
            .first_sync
            .as_ref()
            .and_then(|first| first.count_floor);
        let floor = from.checked_sub(window).unwrap_or(Timestamp::MIN);
        let started = self.next.reread.take();
        if started.is_none() && request.before.is_some() {
            return;
        }
        // What is new at the top is live.
        let joined = match started {
            Some(_) => Some(0),
            None => page.rows.iter().position(|row| row.known),
        };
        if joined.is_none() && !page.rows.is_empty() {
            self.next.newest_pending = true;
            return;
        }
        let new = joined.unwrap_or(0);
        let mut reread = started.unwrap_or(Reread {
            started_at: page.server_time,
            floor: floor.max(count_floor.unwrap_or(Timestamp::MIN)),
            before: String::new(),
            received_at: page.server_time,
            oldest: None,
            older_pages: 0,
        });
        let is_above = |row: &Row| reread.oldest.is_some_and(|oldest| row.created_at > oldest);
        if !is_fresh(reread.received_at, page)
            && (page.rows.is_empty() || page.rows.iter().any(is_above))
        {
            // An expired cursor: the next re-read starts from the top.
            return;
        }
        let late_floor = self.next.late_floor();
        for (index, row) in page.rows.iter().enumerate() {
            if index < new {
                self.take.push((index, Disposition::Live));
            } else if !row.known && late_floor.is_none_or(|floor| row.created_at > floor) {
                self.take.push((index, Disposition::Late));
            }
        }
        if !self.take.is_empty() {
            (self.place, self.top) = (self.next.state.take_place(), new > 0);
        }
        let is_older = page.rows.iter().all(|row| row.created_at < reread.floor);
        reread.older_pages = if is_older { reread.older_pages + 1 } else { 0 };
        // The end of the listing is an empty page, or with inclusive cursors the same page again.
        let is_end = match &page.end_cursor {
            Some(cursor) if *cursor == reread.before => !self.next.raise_limit_now(),
            Some(_) => page.rows.is_empty(),
            None => true,
        };
        if reread.older_pages >= 2 || (is_end && self.is_confirmed(Task::Reread)) {
            self.next.state.reread_at = Some(reread.started_at);
            return;
        }
        if let Some(cursor) = page.end_cursor.as_ref().filter(|_| !is_end) {
            self.next.empty.retain(|task| *task != Task::Reread);
            reread.before.clone_from(cursor);
            reread.received_at = page.server_time;
            reread.oldest = page.rows.iter().map(|row| row.created_at).min();
        }
        self.next.reread = Some(reread).filter(|reread| !reread.before.is_empty());
    }

    /// Reports whether an empty page was empty before; if not, the request will be repeated.
    fn is_confirmed(&mut self, task: Task) -> bool {
        let empty = &mut self.next.empty;
        if let Some(at) = empty.iter().position(|other| *other == task) {
            empty.swap_remove(at);
            return true;
        }
        empty.push(task);
        self.wait = CONFIRM_AFTER;
        false
    }

    /// Returns the limits of the history in time.
    fn history(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let first = self.next.state.first_sync.as_ref();
        first.map_or((None, None), |first| {
            (first.history_floor, first.history_until)
        })
    }
}

impl Ranges {
    fn replace(&mut self, range: Range) {
        let old = self.state.ranges.iter_mut().find(|old| old.id == range.id);
        if let Some(old) = old {
            *old = range;
        }
    }
}

/// Returns a range that begins below a page.
fn range(
    kind: RangeKind,
    place: i64,
    page: &Page,
    expected: bool,
    last_contact: Option<Timestamp>,
) -> Range {
    Range {
        id: place,
        kind,
        cursor: page.end_cursor.clone(),
        end: page.rows.last().map(|row| row.id),
        oldest: page.rows.iter().map(|row| row.created_at).min(),
        page: page.rows.iter().map(|row| row.id).collect(),
        received_at: page.server_time,
        opened_at: Timestamp::now(),
        last_contact,
        expected,
        older_pages: 0,
        released: false,
        place,
    }
}

/// Reports whether an entry is dated later than the service's clock, which has whole seconds.
fn is_future(row: &Row, page: &Page) -> bool {
    row.created_at.duration_since(page.server_time) > SignedDuration::from_secs(2)
}

/// Reports whether a cursor that was received then is still valid.
fn is_fresh(received_at: Timestamp, page: &Page) -> bool {
    page.server_time.duration_since(received_at).abs() < FRESH
}

fn range_of(state: &TailState, id: i64) -> Option<&Range> {
    state.ranges.iter().find(|range| range.id == id)
}

/// Returns the gap that a range is when the listing ends without a known entry; `None` if nothing can be missing.
fn lost(range: &Range, page: &Page) -> Option<Gap> {
    let may_be_missing = range.last_contact.is_none_or(|last| {
        page.server_time.duration_since(last) >= MIN_SILENCE
            && range.oldest.is_none_or(|oldest| last <= oldest)
    });
    may_be_missing.then(|| Gap {
        reason: GapReason::Retention,
        from: range.last_contact,
        to: range.oldest,
        message: "the listing ends before an entry that was read earlier; entries in between may have been deleted before they were read".to_owned(),
    })
}
