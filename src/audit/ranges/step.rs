//! What a page means for each task.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    CONFIRM_AFTER, FRESH, Find, LATE_FIRST_RESPONSE, MIN_LIMIT, NEWEST_LIMIT, Page, Ranges,
    Request, Reread, Row, Task,
};
use crate::audit::Start;
use crate::ledger::{Commit, Disposition, EventIds, FirstSync, Gap, GapReason, Range, RangeKind};
use crate::util;

/// What a page means.
#[derive(Clone, Debug)]
pub struct Step {
    /// The state after the step, to be used once it is committed.
    pub next: Ranges,
    /// Entries to take, as indices of rows in the order of the page.
    pub take: Vec<(usize, Disposition)>,
    /// What to commit, without the entries and the state.
    pub commit: Commit,
    /// How long to wait before the next request.
    pub wait: Duration,
}

// === impl Ranges ===

impl Ranges {
    /// Decides what a page means.
    pub fn page(&self, request: &Request, page: &Page) -> Step {
        let mut step = Step::new(self, page);
        step.next.is_answered = true;
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

    /// Takes the stored first page of a history that an older version did not finish, and goes on below it.
    pub fn first_page(&self, page: &Page) -> Step {
        let mut step = Step::new(self, page);
        let state = &mut step.next.state;
        state.first_page = None;
        let place = state.take_place();
        if page.end_cursor.is_some() && !page.rows.is_empty() {
            let mut range = range(RangeKind::History, place, page, false, None);
            range.received_at = Timestamp::UNIX_EPOCH;
            state.ranges.push(range);
        }
        let first = state.first_sync.as_ref();
        let rows = page.rows.iter().enumerate().filter(|(_, row)| !row.known);
        step.take = rows
            .map(|(index, row)| {
                let history = first.map(|first| first.history(row.created_at));
                (index, history.unwrap_or(Disposition::History))
            })
            .collect();
        (step.commit.place, step.commit.top) = (place, true);
        step
    }

    /// Returns the gap that a range is when the listing ends without a known entry; `None` if nothing can be missing.
    fn lost(&self, range: &Range, page: &Page) -> Option<Gap> {
        let may_be_missing = range.last_contact.is_none_or(|last| {
            page.server_time.duration_since(last) >= self.silence()
                && range.lowest.is_none_or(|lowest| last <= lowest)
        });
        (range.expected && may_be_missing).then(|| gap(range))
    }
}

// === impl Step ===

impl Step {
    fn new(ranges: &Ranges, page: &Page) -> Self {
        Self {
            next: ranges.clone(),
            take: Vec::new(),
            commit: Commit::new(page.server_time),
            wait: Duration::ZERO,
        }
    }

    fn first_sync(&mut self, page: &Page) {
        if page.rows.is_empty() && !self.is_confirmed(Task::FirstSync) {
            return;
        }
        let next = &mut self.next;
        let waited = util::instant().saturating_duration_since(next.started);
        // By the service's clock.
        let started_at = SignedDuration::try_from(waited)
            .ok()
            .and_then(|waited| page.server_time.checked_sub(waited).ok())
            .filter(|_| waited > LATE_FIRST_RESPONSE && !next.is_backfill);
        let (start, until) = (next.settings.start, next.until);
        let history_floor = start.floor(started_at.unwrap_or(page.server_time));
        let place = next.state.take_place();
        let mut first = FirstSync {
            at: page.server_time,
            count_floor: None,
            history_floor,
            history_until: until,
            live_after: started_at,
        };
        let there = page.rows.iter();
        let there = there.filter(|row| !first.is_live(row.created_at));
        // A few entries dated in the future must not hide what comes next. If they are many, the clock is behind.
        let (total, future) = (
            there.clone().count(),
            there.clone().filter(|row| is_future(row, page)).count(),
        );
        let newest = there
            .filter(|row| 2 * future > total || !is_future(row, page))
            .map(|row| row.created_at)
            .max();
        // What stands below a page of live entries alone was there before, too.
        first.count_floor = newest.or(started_at.filter(|_| !page.rows.is_empty()));
        for (index, row) in page.rows.iter().enumerate() {
            let disposition = match start {
                Start::Now if !first.is_live(row.created_at) => Disposition::Ignored,
                _ => first.history(row.created_at),
            };
            self.take.push((index, disposition));
        }
        let last = page.rows.last().filter(|_| page.end_cursor.is_some());
        let is_wanted = |row: &Row| start != Start::Now || first.is_live(row.created_at);
        let has_more = last.is_some_and(is_wanted);
        next.state.first_sync = Some(first);
        if has_more {
            let range = range(RangeKind::History, place, page, false, None);
            next.state.ranges.push(range);
        }
        (self.commit.place, self.commit.top) = (place, true);
        next.state.reread_at = Some(page.server_time);
        next.polled(page);
    }

    fn poll(&mut self, page: &Page) {
        match page.rows.first() {
            // An entry dated in the future stays at the top while new ones arrive below it.
            Some(row) if !row.known || is_future(row, page) => self.next.newest_pending = true,
            // After a silence, an empty listing may have had entries that were deleted.
            None if self.next.has_known
                && self.next.was_silent(page)
                && !self.next.state.filters_changed => {}
            // If it is a mistake, the next poll still has to leave out what only the new filters show.
            None if self.next.state.filters_changed && !self.is_confirmed(Task::Poll) => {}
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
        let floor = next.change_floor();
        let is_joined = |row: &Row| row.known || floor.is_some_and(|floor| row.created_at <= floor);
        // New entries stand below one that is dated in the future, but those below the end of a range are the range's.
        let is_end = |row: &Row| {
            next.state
                .ranges
                .iter()
                .any(|range| range.end == Some(row.id))
        };
        let mut rows = page.rows.iter();
        let joined = rows
            .position(|row| is_joined(row) && (!is_future(row, page) || is_end(row)))
            .or_else(|| page.rows.iter().position(is_joined));
        let new = joined.unwrap_or(page.rows.len());
        // Busy organizations need larger pages, so that their polls join without a range.
        next.newest_limit = if joined.is_none() {
            (request.limit * 2).min(next.settings.page_size)
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
        let below = page.rows.iter().enumerate().skip(new);
        let only_now = |row: &Row| !row.known && floor.is_some_and(|at| row.created_at <= at);
        self.take.extend(
            below
                .filter(|(_, row)| only_now(row))
                .map(|(index, _)| (index, Disposition::Ignored)),
        );
        let place = next.state.take_place();
        (self.commit.place, self.commit.top) = (place, true);
        let last_contact = next.state.last_poll_at;
        if joined.is_none() {
            let expected = next.has_known && floor.is_none();
            let mut range = range(RangeKind::CatchUp, place, page, expected, last_contact);
            range.floor = floor;
            if page.end_cursor.is_some() {
                next.state.ranges.push(range);
            } else {
                self.commit.gaps.extend(next.lost(&range, page));
            }
        }
        next.polled(page);
    }

    /// Takes the rows of a page below a range's cursor.
    fn range(&mut self, task: Task, id: i64, rows: &[Row], page: &Page) {
        let Some(mut range) = self.next.state.range(id).cloned() else {
            return;
        };
        // With inclusive cursors, the page begins at or above the last entry of the last page.
        let end = rows.iter().position(|row| Some(row.id) == range.end);
        let rows = &rows[end.map_or(0, |end| end + 1)..];
        let offset = page.rows.len() - rows.len();
        // A page with the last known place of the range needs no cursor.
        let is_fresh =
            range.cursor.is_none() || task == Task::Find(id) || is_fresh(range.received_at, page);
        let seen: EventIds = range.page.iter().copied().collect();
        let known = rows
            .iter()
            .position(|row| row.known && !seen.contains(&row.id));
        let is_repeated = rows.iter().all(|row| seen.contains(&row.id));
        let newest = rows.iter().map(|row| row.created_at).max();
        // With its last entry gone, the range may meet new ones of the same time.
        let is_newer = newest > range.oldest || (end.is_none() && newest == range.oldest);
        if !is_fresh && (is_repeated || known.is_some() || is_newer) {
            // An expired cursor may be answered in any way: with nothing, or with the newest page.
            self.next.find = Some(Find {
                range: id,
                cursor: None,
                refused: false,
            });
            return;
        }
        if is_repeated && newest <= range.oldest {
            // Many entries may share an inclusive cursor: a larger page reaches below them.
            if !page.rows.is_empty() && self.next.raise_limit_now() {
                return;
            }
            if self.is_confirmed(task) {
                self.listing_ends(&range, page);
            }
            return;
        }
        let closing = known.filter(|_| range.kind == RangeKind::CatchUp);
        let kind = range.kind;
        let first = self.next.state.first_sync.as_ref();
        let history_floor = first.and_then(|first| first.history_floor);
        let range_floor = range.floor;
        let is_below = |row: &Row| match kind {
            RangeKind::CatchUp => range_floor.is_some_and(|floor| row.created_at <= floor),
            RangeKind::History => history_floor.is_some_and(|floor| row.created_at < floor),
        };
        let disposition = |row: &Row| match (kind, first) {
            (RangeKind::CatchUp, _) if is_below(row) => Disposition::Ignored,
            (RangeKind::CatchUp, _) => Disposition::Live,
            (RangeKind::History, Some(first)) => first.history(row.created_at),
            (RangeKind::History, None) => Disposition::History,
        };
        let taken = &rows[..closing.unwrap_or(rows.len())];
        for (index, row) in taken.iter().enumerate().filter(|(_, row)| !row.known) {
            self.take.push((offset + index, disposition(row)));
        }
        range.place -= 1;
        let is_live = |(_, disposition): &_| *disposition == Disposition::Live;
        (self.commit.place, self.commit.top) = (
            range.place,
            kind == RangeKind::CatchUp || self.take.iter().any(is_live),
        );
        range.older = in_a_row(range.older, rows.iter().all(is_below), rows.len() as u32);
        let oldest = taken.iter().map(|row| row.created_at).min();
        range.oldest = [range.oldest, oldest].into_iter().flatten().min();
        range.lowest = rows.last().map(|row| row.created_at);
        range.failing_since = None;
        self.next.failing = (id, 0);
        if closing.is_some() || self.next.is_past_floor(range.older) {
            self.next.close(id);
            return;
        }
        let Some(cursor) = &page.end_cursor else {
            // The end of the listing, if the same page says so twice.
            range.page.extend(rows.iter().map(|row| row.id));
            if self.is_confirmed(task) {
                self.listing_ends(&range, page);
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
        range.filters_changed = false;
        range.page = page.rows.iter().map(|row| row.id).collect();
        self.next.replace(range);
    }

    /// Looks for the last known place of a range in a page.
    fn find(&mut self, id: i64, page: &Page) {
        let Some(range) = self.next.state.range(id).cloned() else {
            self.next.find = None;
            return;
        };
        // No other entry of its last page would do: late rows may stand between the two.
        let mut rows = page.rows.iter();
        let mut place = rows
            .position(|row| Some(row.id) == range.end)
            .map(|at| at + 1);
        if place.is_none() && range.filters_changed {
            let is_below = |row: &Row| match range.lowest {
                Some(lowest) if row.created_at == lowest => !row.known,
                lowest => Some(row.created_at) < lowest,
            };
            place = page.rows.iter().position(is_below);
        }
        if let Some(at) = place {
            let below = &page.rows[at..];
            if let Some(cursor) = &page.end_cursor {
                let find = self.next.find.take();
                self.commit.recovered = find.is_some_and(|find| find.refused);
                if below.iter().all(|row| range.page.contains(&row.id)) {
                    self.next.replace(Range {
                        cursor: Some(cursor.clone()),
                        received_at: page.server_time,
                        end: page.rows.last().map(|row| row.id),
                        ..range
                    });
                    return;
                }
            }
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
            // The place was deleted, and with it everything below, even if the listing has had no other entries.
            let is_gap = range.kind == RangeKind::CatchUp && !range.filters_changed;
            self.commit.gaps.extend(is_gap.then(|| gap(&range)));
            self.next.close(id);
        }
    }

    fn reread(&mut self, request: &Request, page: &Page) {
        let window = SignedDuration::try_from(self.next.settings.reread_window);
        let window = window.unwrap_or(SignedDuration::MAX);
        let from = self.next.reread_from(page.server_time);
        let count_floor = self.next.state.count_floor();
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
            self.next.raise_limit_now();
            return;
        }
        let new = joined.unwrap_or(0);
        let mut reread = started.unwrap_or(Reread {
            started_at: page.server_time,
            floor: floor.max(count_floor.unwrap_or(Timestamp::MIN)),
            before: String::new(),
            received_at: page.server_time,
            oldest: None,
            older: 0,
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
            (self.commit.place, self.commit.top) = (self.next.state.take_place(), new > 0);
        }
        let is_older = page.rows.iter().all(|row| row.created_at < reread.floor);
        // Capped pages may be many: their limit counts.
        reread.older = in_a_row(reread.older, is_older, self.next.limit.max(MIN_LIMIT));
        // The end of the listing is an empty page, or with inclusive cursors the same page again.
        let is_end = match &page.end_cursor {
            Some(cursor) if *cursor == reread.before => !self.next.raise_limit_now(),
            Some(_) => page.rows.is_empty(),
            None => true,
        };
        if self.next.is_past_floor(reread.older) || (is_end && self.is_confirmed(Task::Reread)) {
            self.next.state.reread_at = Some(reread.started_at);
            self.next.reread_failing_since = None;
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

    /// Closes a range at the end of the listing; what may be missing is a gap.
    fn listing_ends(&mut self, range: &Range, page: &Page) {
        self.commit.gaps.extend(self.next.lost(range, page));
        self.next.close(range.id);
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
        lowest: page.rows.last().map(|row| row.created_at),
        page: page.rows.iter().map(|row| row.id).collect(),
        received_at: page.server_time,
        opened_at: util::now(),
        failing_since: None,
        filters_changed: false,
        floor: None,
        last_contact,
        expected,
        older: 0,
        released: false,
        place,
    }
}

/// Adds to what was older than a floor in a row, or begins again.
fn in_a_row(older: u32, is_older: bool, more: u32) -> u32 {
    match is_older {
        true => older.saturating_add(more),
        false => 0,
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

fn gap(range: &Range) -> Gap {
    Gap {
        reason: GapReason::Retention,
        from: range.last_contact,
        to: range.lowest,
        message: "the listing ends before an entry that was read earlier; entries in between may have been deleted before they were read".to_owned(),
    }
}
