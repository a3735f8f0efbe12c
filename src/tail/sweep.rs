//! What the tail requests, and what it takes of a page: a state machine without I/O.
//!
//! **Identity decides, not time.** The ledger knows the id of every entry that was met, with the number of the sweep that met it. Entries
//! of sweeps before the current one are *settled*: everything that was listed below one of them was read when its sweep ended.
//!
//! - The *first pass* goes from the top of the listing down to the re-read window. What it meets was there before, and nothing is counted
//!   until it is done.
//! - A *sweep* goes from the top down and takes what is unknown. A page whose last entry is settled ends it. Then its number rises, and all
//!   that it met is settled. What stands above the first settled entry is live, an unknown entry below it is late.
//! - A *poll* is the first page of a sweep. While a sweep is open, polls go on: what they find joins the open sweep if the page's last entry
//!   belongs to it. Otherwise there is a hole in between, and it belongs to the next sweep.
//! - A *re-read* goes from the end of the last sweep down to the window, and takes late entries. *History* goes down from the first pass and
//!   takes records that are not counted.
//! - The *watermark* is the floor of the first pass, or the newest time of a pruned id. What is not newer may have been known once, and is
//!   never counted.
//! - A *cursor* is only a hint. If one is lost, that of the page before is tried, at last the top: known entries cost requests and nothing
//!   else. The listing ends only if the page before leads to the same end again.
//!
//! The durable part is [`TailState`]. One transaction per page stores it with what was taken; after a crash before or after any request or
//! commit, the stored state continues. If a commit fails, the caller makes a new machine from the stored state.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::start::Start;
use super::walk::{Cause, Walk};
use crate::ledger::{
    Disposition, EventId, FirstPass, Gap, GapReason, History, OpenSweep, Standing, TailState,
};
use crate::util::labels;

/// The number of entries that a quiet poll requests.
const QUIET_POLL: u32 = 10;
/// A re-read ends after this many entries in a row that are older than its floor; the first pass after twice as many.
const REREAD_OLDER: u32 = 2000;
/// History ends after this many unknown entries in a row that are older than wanted; a sweep that meets no settled entry after as many that
/// are older than the watermark.
const MAX_OLDER: u32 = 10_000;
/// An empty listing is believed after this time of empty answers.
const EMPTY: Duration = Duration::from_secs(60);
/// An end of the listing is confirmed after this time.
pub(super) const CONFIRM: Duration = Duration::from_secs(2);
/// What cannot be read for this long, in which polls succeeded, becomes a gap.
const MAX_FAILING: Duration = Duration::from_secs(7 * 24 * 3600);
/// The time between two polls that counts as failing is at most this: an outage or a stopped process is no failing page.
const MAX_BETWEEN: Duration = Duration::from_secs(600);

labels! {
    /// What a request is for.
    Task {
        /// The next page of the first pass.
        First => "first_pass",
        /// The top of the listing.
        Poll => "poll",
        /// The next page of the open sweep.
        Sweep => "sweep",
        /// The next page of a re-read.
        Reread => "reread",
        /// The next page of history.
        History => "history",
    }
}

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it is for.
    pub task: Task,
    /// The cursor; `None` for the top of the listing.
    pub before: Option<String>,
    /// The number of entries.
    pub limit: u32,
}

/// An entry of a page.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its identity.
    pub id: EventId,
    /// When it was created, if it has a readable time.
    pub at: Option<Timestamp>,
    /// What the ledger knows of it.
    pub standing: Standing,
}

/// A page of the listing, without repeated entries.
#[derive(Clone, Debug)]
pub struct Page {
    /// Its entries, newest first.
    pub rows: Vec<Row>,
    /// The cursor of the next page.
    pub end: Option<String>,
    /// The service's clock.
    pub now: Timestamp,
    /// When it was requested, since the start of the process.
    pub requested: Duration,
    /// When it came.
    pub at: Duration,
}

/// What to do with a page.
#[derive(Debug, Default)]
pub struct Step {
    /// What becomes of the entries that the ledger does not know, by their index in the page.
    pub take: Vec<(usize, Disposition)>,
    /// The sweep that they belong to.
    pub number: i64,
    /// Whether they are history.
    pub is_history: bool,
    /// Something is lost.
    pub gap: Option<Gap>,
    /// Ids of entries older than this are no longer needed.
    pub prune_before: Option<Timestamp>,
    /// The state has changed beyond the time of the last contact.
    pub must_save: bool,
    /// The page leads nowhere: it counts as failed.
    pub is_stuck: bool,
    /// How long to wait before the next page of the same task.
    pub wait: Duration,
}

/// What the machine is told at its start.
#[derive(Clone, Debug)]
pub struct Limits {
    /// `--api.page-size`.
    pub page_size: u32,
    /// `--audit.reread-window`.
    pub window: Duration,
    /// `--audit.start`.
    pub start: Start,
    /// Only history is read.
    pub is_backfill: bool,
}

/// The state machine.
#[derive(Debug)]
pub struct Sweep {
    pub(super) state: TailState,
    limits: Limits,
    /// The newest time of a pruned id.
    pruned: Option<Timestamp>,
    /// The newest time of an entry.
    newest: Option<Timestamp>,
    first: Walk,
    sweep: Walk,
    history: Walk,
    reread: Walk,
    reread_at: Option<Reread>,
    poll_limit: u32,
    /// When the last poll succeeded, and since when the listing is empty.
    polled: Option<Duration>,
    empty_since: Option<Duration>,
    /// The most entries that a page had: services may cap pages.
    longest: usize,
}

/// The re-read under way.
#[derive(Debug)]
struct Reread {
    cursors: Vec<String>,
    floor: Timestamp,
    older: u32,
    /// What [`TailState::read_to`] becomes when it is complete.
    reaches: Timestamp,
}

// === impl Sweep ===

impl Sweep {
    /// Continues from a stored state. `newest` is the newest time of an entry in the ledger, `pruned` that of a pruned id.
    pub fn new(
        state: TailState,
        limits: Limits,
        newest: Option<Timestamp>,
        pruned: Option<Timestamp>,
    ) -> Self {
        let walk = || Walk::new(limits.page_size);
        Self {
            state,
            pruned,
            newest,
            first: walk(),
            sweep: walk(),
            history: walk(),
            reread: walk(),
            reread_at: None,
            poll_limit: QUIET_POLL.min(limits.page_size),
            polled: None,
            empty_since: None,
            longest: 0,
            limits,
        }
    }

    /// Begins the first pass again, because the filters have changed. Of what it meets, entries since the last contact are live.
    pub fn change_filters(&mut self, filters: String) {
        self.state.filters = filters;
        let Some(contact) = self.state.contact else {
            return;
        };
        let known = self.newest.map_or(contact, |newest| newest.min(contact));
        let live_after = match self.state.sweep.take() {
            // The newest entries are known, and older ones are missing.
            Some(_) => contact,
            None => known.max(back(contact, self.limits.window)),
        };
        self.state.first = Some(FirstPass {
            live_after: Some(live_after),
            ..FirstPass::default()
        });
        if let Some(history) = &mut self.state.history {
            history.cursors.clear();
        }
        self.reread_at = None;
    }

    /// Reports whether the first pass is done.
    pub fn is_begun(&self) -> bool {
        self.state.first.is_none()
    }

    /// Reports whether the page of a task, other than a re-read, cannot be read.
    pub fn is_failing(&self) -> bool {
        self.first.is_failing || self.sweep.is_failing
    }

    /// Reports whether a re-read is under way.
    pub fn is_rereading(&self) -> bool {
        self.reread_at.is_some()
    }

    /// Begins a re-read, if it is known where.
    pub fn begin_reread(&mut self, now: Timestamp) {
        let (Some(below), true) = (&self.state.below, self.reread_at.is_none()) else {
            return;
        };
        let window = back(self.clock(now), self.limits.window);
        let floor = self.state.read_to.map_or(window, |last| last.min(window));
        self.reread.restart();
        self.reread_at = Some(Reread {
            cursors: vec![below.clone()],
            floor: self.state.floor.map_or(floor, |first| first.max(floor)),
            older: 0,
            reaches: self.state.below_time.map_or(window, |at| at.min(window)),
        });
    }

    /// Returns the next request of a task; `None` if it has none.
    pub fn request(&self, task: Task) -> Option<Request> {
        let (is_begun, state) = (self.is_begun(), &self.state);
        let (cursors, limit) = match task {
            Task::First => (&state.first.as_ref()?.cursors, self.first.limit),
            _ if !is_begun => return None,
            Task::Poll if self.limits.is_backfill => return None,
            Task::Poll => (&vec![], self.poll_limit),
            Task::Sweep => (&state.sweep.as_ref()?.cursors, self.sweep.limit),
            Task::Reread => (&self.reread_at.as_ref()?.cursors, self.reread.limit),
            Task::History => (&state.history.as_ref()?.cursors, self.history.limit),
        };
        let before = cursors.last().cloned();
        Some(Request {
            task,
            before,
            limit,
        })
    }

    /// Decides what to take of a page.
    pub fn page(&mut self, request: &Request, page: &Page, opened_at: Timestamp) -> Step {
        self.longest = self.longest.max(page.rows.len());
        let newest = page.rows.iter().filter_map(|row| row.at).max();
        self.newest = self.newest.max(newest);
        let mut step = Step {
            number: self.state.number,
            ..Step::default()
        };
        match request.task {
            Task::First => self.first_page(request, page, opened_at, &mut step),
            Task::Poll => self.poll(page, opened_at, &mut step),
            Task::Sweep => self.advance(request, page, opened_at, &mut step),
            Task::Reread => self.deepen(request, page, &mut step),
            Task::History => self.go_back(request, page, &mut step),
        }
        step.must_save |= !step.take.is_empty() || step.gap.is_some();
        step
    }

    /// Notes a failed request. Returns whether a cursor was given up for the one before it.
    pub fn failed(&mut self, request: &Request, cause: Cause) -> bool {
        let (walk, cursors) = match request.task {
            Task::Poll => {
                if cause != Cause::Away {
                    self.poll_limit = (self.poll_limit / 2).max(1);
                }
                return false;
            }
            Task::First => (
                &mut self.first,
                self.state.first.as_mut().map(|pass| &mut pass.cursors),
            ),
            Task::Sweep => (
                &mut self.sweep,
                self.state.sweep.as_mut().map(|open| &mut open.cursors),
            ),
            Task::Reread => (
                &mut self.reread,
                self.reread_at.as_mut().map(|open| &mut open.cursors),
            ),
            Task::History => (
                &mut self.history,
                self.state.history.as_mut().map(|open| &mut open.cursors),
            ),
        };
        // No polls show that the service works.
        walk.polled |= self.limits.is_backfill || request.task == Task::First;
        let is_lost = walk.failed(cause) && cursors.is_some_and(|cursors| cursors.pop().is_some());
        if is_lost && request.task == Task::Reread {
            // It has no top to go on from, and begins again at the next interval.
            self.reread_at = None;
            if cause == Cause::Refused && self.state.below == request.before {
                self.state.below = None;
            }
        }
        is_lost
    }

    /// Requests fewer entries, because a page is too large to store; reports whether that is possible.
    pub fn shrink(&mut self, request: &Request, rows: usize) -> bool {
        let lower = u32::try_from(rows / 2).unwrap_or(u32::MAX);
        let (limit, least) = match request.task {
            Task::First => (&mut self.first.limit, 2),
            Task::Poll => (&mut self.poll_limit, 1),
            Task::Sweep => (&mut self.sweep.limit, 2),
            Task::Reread => (&mut self.reread.limit, 2),
            Task::History => (&mut self.history.limit, 2),
        };
        let lower = lower.max(least);
        let is_less = lower < *limit;
        *limit = lower.min(*limit);
        is_less
    }

    /// Notes what was pruned.
    pub fn pruned(&mut self, newest: Option<Timestamp>) {
        self.pruned = self.pruned.max(newest);
    }

    /// Returns the time that the window is counted back from: the service's clock, or that of its entries if they are behind.
    fn clock(&self, now: Timestamp) -> Timestamp {
        self.newest.map_or(now, |newest| newest.min(now))
    }

    /// Reports whether an entry may have been known once.
    fn is_below_watermark(&self, row: &Row) -> bool {
        row.at
            .is_some_and(|at| Some(at) <= self.state.floor.max(self.pruned))
    }

    fn first_page(
        &mut self,
        request: &Request,
        page: &Page,
        opened_at: Timestamp,
        step: &mut Step,
    ) {
        let Some(mut pass) = self.state.first.take() else {
            return;
        };
        if request.before.is_none() {
            let newest = page.rows.iter().filter_map(|row| row.at).max();
            let begin = newest.map_or(page.now, |newest| newest.min(page.now));
            self.state.floor = Some(back(begin, self.limits.window));
            pass.older = 0;
            if self.state.contact.is_none() {
                let start = self.limits.start.from(back(page.now, page.at));
                let from = *self.state.records_from.get_or_insert(start);
                self.state.history.get_or_insert_with(|| History {
                    from,
                    is_short: self.limits.start == Start::Now,
                    opened_at,
                    ..History::default()
                });
            }
        }
        (step.number, step.is_history, step.must_save) = (0, true, true);
        if self.state.contact.is_none() {
            self.state.counts_after = self.newest;
        }
        pass.has_entries |= !page.rows.is_empty();
        for (index, row) in page.rows.iter().enumerate() {
            let is_old = row.at.is_none_or(|at| Some(at) < self.state.floor);
            pass.older = if is_old { pass.older + 1 } else { 0 };
            if row.standing != Standing::Unknown {
                continue;
            }
            let is_live = |at: Timestamp| pass.live_after.is_some_and(|live| at > live);
            let is_wanted = |history: &History| history.wants(row.at);
            let taken = match row.at {
                Some(at) if is_live(at) => Disposition::Live,
                _ if self.state.history.as_ref().is_some_and(is_wanted) => Disposition::History,
                _ => Disposition::Ignored,
            };
            step.take.push((index, taken));
        }
        let is_end = match self.is_empty_top(request, page, step) {
            Some(is_believed) => is_believed,
            None => self
                .first
                .page(&mut pass.cursors, request, page, self.longest, step),
        };
        if !is_end && pass.older < 2 * REREAD_OLDER {
            self.state.first = Some(pass);
            return;
        }
        let state = &mut self.state;
        // What an interrupted sweep has met under other filters is settled too.
        state.number += 2;
        (state.contact, state.was_empty) = (Some(page.now), !pass.has_entries);
        // The next poll says where re-reads start: nothing is below the end of this pass but history.
        (state.below, state.below_time) = (None, state.floor);
        state.read_to = state.floor;
        state.history.take_if(|history| is_end || history.is_short);
        if let Some(history) = &mut state.history {
            history.cursors = pass.cursors;
        }
        (self.polled, self.empty_since) = (Some(page.at), None);
    }

    fn poll(&mut self, page: &Page, opened_at: Timestamp, step: &mut Step) {
        self.count_failing(page, opened_at, step);
        if page.rows.is_empty() && page.end.is_none() {
            if self.is_empty_for_long(page) && self.state.sweep.is_none() {
                step.must_save |= !self.state.was_empty;
                (self.state.contact, self.state.was_empty) = (Some(page.now), true);
            }
            return;
        }
        self.empty_since = None;
        let last = page.rows.last().map(|row| row.standing);
        let is_upper = self
            .state
            .sweep
            .as_ref()
            .is_some_and(|open| open.has_upper || last != Some(Standing::Current));
        step.number += i64::from(is_upper);
        let met = self.take(page, false, step);
        let new = u32::try_from(step.take.len()).unwrap_or(u32::MAX);
        let ends = last == Some(Standing::Settled);
        self.poll_limit = match ends {
            true => new.saturating_mul(2).max(QUIET_POLL),
            false => self.poll_limit.saturating_mul(4),
        }
        .min(self.limits.page_size);
        if ends {
            // All that polls have found above an open sweep is on this page too.
            let by = 1 + i64::from(self.state.sweep.is_some());
            self.settle(by, page, opened_at, step);
        } else if let Some(open) = &mut self.state.sweep {
            open.has_upper |= is_upper && new > 0;
            if !is_upper {
                open.as_of = page.now;
            }
        } else {
            self.sweep = Walk::new(self.limits.page_size);
            self.state.sweep = Some(OpenSweep {
                cursors: page.end.iter().cloned().collect(),
                met,
                has_entries: !page.rows.is_empty(),
                oldest: page.rows.iter().filter_map(|row| row.at).min(),
                opened_at,
                as_of: page.now,
                ..OpenSweep::default()
            });
            step.must_save = true;
        }
    }

    fn advance(&mut self, request: &Request, page: &Page, opened_at: Timestamp, step: &mut Step) {
        let Some(mut open) = self.state.sweep.take() else {
            return;
        };
        if request.before.is_none() {
            (open.met, open.older, open.as_of) = (false, 0, page.now);
        }
        open.met = self.take(page, open.met, step);
        open.has_entries |= !page.rows.is_empty();
        let times = page.rows.iter().filter_map(|row| row.at);
        open.oldest = open.oldest.into_iter().chain(times).min();
        let old = page
            .rows
            .iter()
            .filter(|row| self.is_below_watermark(row))
            .count();
        open.older += u32::try_from(old).unwrap_or(u32::MAX);
        if !step.take.is_empty() {
            (open.failed_for, self.sweep.is_failing) = (0, false);
        }
        let is_end = match self.is_empty_top(request, page, step) {
            Some(is_believed) => is_believed,
            None => self
                .sweep
                .page(&mut open.cursors, request, page, self.longest, step),
        };
        step.must_save = true;
        let is_last = page
            .rows
            .last()
            .is_some_and(|row| row.standing == Standing::Settled);
        let is_too_deep = !open.met && open.older >= MAX_OLDER;
        // If an entry listed is older than the last contact, the deleted ones may have been read.
        let is_newer = open
            .oldest
            .is_none_or(|oldest| Some(oldest) >= self.state.contact);
        let may_lack = open.has_entries && !open.met && !self.state.was_empty;
        if is_too_deep || (is_end && may_lack && is_newer) {
            step.gap = Some(Gap {
                reason: GapReason::Retention,
                from: self.state.contact,
                to: open.oldest,
                message: "the listing no longer has any entry that was read before".to_owned(),
            });
        }
        self.state.sweep = Some(open);
        if is_last || is_end || is_too_deep {
            self.settle(1, page, opened_at, step);
        }
    }

    /// Takes what is unknown; returns whether a settled entry was met.
    fn take(&self, page: &Page, mut met: bool, step: &mut Step) -> bool {
        for (index, row) in page.rows.iter().enumerate() {
            met |= row.standing == Standing::Settled;
            if row.standing == Standing::Unknown {
                let taken = match met {
                    _ if self.is_below_watermark(row) => Disposition::Backdated,
                    true => Disposition::Late,
                    false => Disposition::Live,
                };
                step.take.push((index, taken));
            }
        }
        met
    }

    /// Ends a sweep. What polls have found above it, with a hole in between, opens the next one.
    fn settle(&mut self, by: i64, page: &Page, opened_at: Timestamp, step: &mut Step) {
        let state = &mut self.state;
        if let Some(end) = &page.end {
            let oldest = page.rows.iter().filter_map(|row| row.at).min();
            state.below = Some(end.clone());
            state.below_time = Some(oldest.map_or(page.now, |oldest| oldest.min(page.now)));
        }
        let open = state.sweep.take();
        step.must_save |= open.is_some();
        // Without a new entry or a sweep, only what a re-read has found is settled: that can wait.
        state.number += by;
        let as_of = open.as_ref().map_or(page.now, |open| open.as_of);
        let has_entries =
            !page.rows.is_empty() || open.as_ref().is_some_and(|open| open.has_entries);
        if by == 1 && open.is_some_and(|open| open.has_upper) {
            state.sweep = Some(OpenSweep {
                opened_at,
                ..OpenSweep::default()
            });
        } else {
            let as_of = if by == 1 { as_of } else { page.now };
            (state.contact, state.was_empty) = (Some(as_of), !has_entries);
        }
        self.sweep = Walk::new(self.limits.page_size);
    }

    fn deepen(&mut self, request: &Request, page: &Page, step: &mut Step) {
        let Some(mut reread) = self.reread_at.take() else {
            return;
        };
        // The cursor may have expired and be answered with the newest page: what it shows must not be settled by a sweep that began below it.
        step.number += i64::from(self.state.sweep.is_some());
        self.take(page, true, step);
        if let Some(open) = &mut self.state.sweep {
            open.has_upper |= !step.take.is_empty();
        }
        for row in &page.rows {
            let is_old = row.at.is_none_or(|at| at < reread.floor);
            reread.older = if is_old { reread.older + 1 } else { 0 };
        }
        let is_end = self
            .reread
            .page(&mut reread.cursors, request, page, self.longest, step);
        if !is_end && reread.older < REREAD_OLDER {
            if reread.cursors.is_empty() && !page.rows.is_empty() {
                reread.cursors.extend(request.before.clone());
            }
            // Nothing at all may be below the last sweep, or its cursor has expired.
            self.reread_at = Some(reread).filter(|reread| !reread.cursors.is_empty());
            return;
        }
        self.reread.is_failing = false;
        self.state.reread_failed_for = 0;
        self.state.read_to = Some(reread.reaches);
        step.must_save = true;
        if self.state.history.is_none() {
            let window = self.limits.window.saturating_mul(2);
            step.prune_before = Some(back(self.clock(page.now), window).min(reread.reaches));
        }
    }

    fn go_back(&mut self, request: &Request, page: &Page, step: &mut Step) {
        let Some(mut history) = self.state.history.take() else {
            return;
        };
        (step.number, step.is_history, step.must_save) = (0, true, true);
        history.older *= u32::from(request.before.is_some());
        for (index, row) in page.rows.iter().enumerate() {
            let is_unknown = row.standing == Standing::Unknown;
            match row.at {
                Some(at) if at < history.from => history.older += u32::from(is_unknown),
                Some(_) => history.older = 0,
                None => {}
            }
            // What is newer than the first pass came after it, and is not history.
            let is_old =
                self.limits.is_backfill || row.at.is_none_or(|at| Some(at) <= self.state.floor);
            if is_unknown && is_old && history.wants(row.at) {
                step.take.push((index, Disposition::History));
            }
        }
        if !step.take.is_empty() {
            (history.failed_for, self.history.is_failing) = (0, false);
        }
        let is_end = self
            .history
            .page(&mut history.cursors, request, page, self.longest, step);
        if !is_end && history.older < MAX_OLDER {
            self.state.history = Some(history);
        }
    }

    /// Reports whether an empty listing is believed; `None` if it is not empty.
    fn is_empty_top(&mut self, request: &Request, page: &Page, step: &mut Step) -> Option<bool> {
        if request.before.is_some() || !page.rows.is_empty() || page.end.is_some() {
            return None;
        }
        step.wait = CONFIRM;
        Some(self.is_empty_for_long(page))
    }

    /// Reports whether the top of the listing has been empty for long enough to be believed.
    fn is_empty_for_long(&mut self, page: &Page) -> bool {
        let since = *self.empty_since.get_or_insert(page.at);
        page.at.saturating_sub(since) >= EMPTY
    }

    /// Adds the time since the last poll to what fails meanwhile, and gives up what has failed for too long.
    fn count_failing(&mut self, page: &Page, opened_at: Timestamp, step: &mut Step) {
        for walk in [&mut self.sweep, &mut self.reread, &mut self.history] {
            walk.polled = true;
        }
        let last = self.polled.replace(page.at).unwrap_or(page.at);
        let passed = page.at.saturating_sub(last).min(MAX_BETWEEN).as_secs();
        let has_failed = |is_failing: bool, failed_for: &mut u64| {
            *failed_for += if is_failing { passed } else { 0 };
            is_failing && *failed_for >= MAX_FAILING.as_secs()
        };
        let state = &mut self.state;
        let gap = |reason, from, to, what| Gap {
            reason,
            from,
            to,
            message: format!("the API has failed to return {what} for seven days"),
        };
        if has_failed(self.reread.is_failing, &mut state.reread_failed_for) {
            // The entry that cannot be read must not keep the re-read from ever reaching its end.
            (state.reread_failed_for, self.reread.is_failing) = (0, false);
            state.read_to = Some(page.now);
        }
        if let Some(open) = &mut state.sweep
            && has_failed(self.sweep.is_failing, &mut open.failed_for)
        {
            step.gap = Some(gap(
                GapReason::Unreadable,
                state.contact,
                open.oldest,
                "entries of a sweep",
            ));
            let has_upper = open.has_upper;
            state.number += 1;
            step.number = state.number;
            state.sweep = has_upper.then(|| OpenSweep {
                opened_at,
                ..OpenSweep::default()
            });
            self.sweep = Walk::new(self.limits.page_size);
        } else if let Some(history) = &mut state.history
            && has_failed(self.history.is_failing, &mut history.failed_for)
        {
            step.gap = Some(gap(
                GapReason::UnreadableHistory,
                Some(history.from),
                None,
                "entries of history",
            ));
            state.history = None;
        }
    }
}

/// Returns an earlier time.
fn back(at: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
