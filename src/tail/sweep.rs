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

use jiff::Timestamp;

use super::step::{Limits, Page, Request, Row, Step, Task};
use super::walk::{CONFIRM, Cause, MAX_OLDER, Reread, Walk};
use crate::ledger::{Disposition, Gap, GapReason, OpenSweep, Standing, TailState};

/// The number of entries that a quiet poll requests.
const QUIET_POLL: u32 = 10;
/// An empty listing is believed after this time of empty answers.
const EMPTY: Duration = Duration::from_secs(60);
/// What cannot be read for this long, in which polls succeeded, becomes a gap.
const MAX_FAILING: Duration = Duration::from_secs(7 * 24 * 3600);
/// The time between two polls that counts as failing is at most this: an outage or a stopped process is no failing page.
const MAX_BETWEEN: Duration = Duration::from_secs(600);

/// The state machine.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) state: TailState,
    pub(super) limits: Limits,
    /// The newest time of a pruned id.
    pruned: Option<Timestamp>,
    /// The newest time of an entry.
    pub(super) newest: Option<Timestamp>,
    pub(super) walks: [Walk; Task::ALL.len()],
    pub(super) reread: Option<Reread>,
    /// When the last complete re-read of the whole window began.
    pub(super) reread_at: Option<Duration>,
    /// The service's clock, as the last page says it.
    pub(super) now: Option<Timestamp>,
    /// When the last poll succeeded, and since when the listing is empty.
    pub(super) polled: Option<Duration>,
    pub(super) empty_since: Option<Duration>,
    /// The most entries that a page had: services may cap pages.
    longest: usize,
}

// === impl Sweep ===

impl Sweep {
    /// Continues from a stored state. `newest` is the newest time of an entry in the ledger, `pruned` that of a pruned id.
    pub(super) fn new(
        state: TailState,
        limits: Limits,
        newest: Option<Timestamp>,
        pruned: Option<Timestamp>,
    ) -> Self {
        let mut walks = Task::ALL.map(|task| match task {
            Task::Poll => Walk::new(limits.page_size, 1),
            _ => Walk::new(limits.page_size.max(2), 2),
        });
        walks[Task::Poll as usize].limit = QUIET_POLL.min(limits.page_size);
        Self {
            state,
            pruned,
            newest,
            walks,
            reread: None,
            reread_at: None,
            now: None,
            polled: None,
            empty_since: None,
            longest: 0,
            limits,
        }
    }

    /// Reports whether the first pass is done.
    pub(super) fn is_begun(&self) -> bool {
        self.state.first.is_none()
    }

    /// Reports whether the page of a task, other than a re-read, cannot be read.
    pub(super) fn is_failing(&self) -> bool {
        self.walk(Task::First).is_failing || self.walk(Task::Sweep).is_failing
    }

    /// Reports whether a re-read is under way.
    pub(super) fn is_rereading(&self) -> bool {
        self.reread.is_some()
    }

    fn walk(&self, task: Task) -> &Walk {
        &self.walks[task as usize]
    }

    /// Returns the next request of a task; `None` if it has none.
    pub(super) fn request(&self, task: Task) -> Option<Request> {
        let state = &self.state;
        let cursors = match task {
            Task::First => Some(&state.first.as_ref()?.cursors),
            _ if !self.is_begun() => return None,
            Task::Poll => None,
            Task::Sweep => Some(&state.sweep.as_ref()?.cursors),
            Task::Reread => Some(&self.reread.as_ref()?.cursors),
            Task::History => Some(&state.history.as_ref()?.cursors),
        };
        Some(Request {
            task,
            before: cursors.and_then(|cursors| cursors.last().cloned()),
            limit: self.walk(task).limit,
        })
    }

    /// Decides what to take of a page.
    pub(super) fn page(&mut self, request: &Request, page: &Page, opened_at: Timestamp) -> Step {
        self.longest = self.longest.max(page.rows.len());
        let newest = page.rows.iter().filter_map(|row| row.at).max();
        self.newest = self.newest.max(newest);
        self.now = Some(page.now);
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
    pub(super) fn failed(&mut self, request: &Request, cause: Cause) -> bool {
        let state = &mut self.state;
        let cursors = match request.task {
            Task::First => state.first.as_mut().map(|pass| &mut pass.cursors),
            Task::Poll => None,
            Task::Sweep => state.sweep.as_mut().map(|open| &mut open.cursors),
            Task::Reread => self.reread.as_mut().map(|reread| &mut reread.cursors),
            Task::History => state.history.as_mut().map(|history| &mut history.cursors),
        };
        let walk = &mut self.walks[request.task as usize];
        // No polls show that the service works.
        walk.polled |= request.task == Task::First;
        let is_lost = walk.failed(cause) && cursors.is_some_and(|cursors| cursors.pop().is_some());
        if is_lost && request.task == Task::Reread {
            // It has no top to go on from, and begins again at the next interval.
            self.reread = None;
            let is_gone = cause == Cause::Refused && state.below == request.before;
            state.below.take_if(|_| is_gone);
        }
        is_lost
    }

    /// Requests fewer entries, because a page is too large to store; reports whether that is possible.
    pub(super) fn shrink(&mut self, request: &Request, rows: usize) -> bool {
        self.walks[request.task as usize].shrink(rows / 2)
    }

    /// Notes what was pruned.
    pub(super) fn pruned(&mut self, newest: Option<Timestamp>) {
        self.pruned = self.pruned.max(newest);
    }

    /// Returns the time that the window is counted back from: the service's clock, or that of its entries if they are behind.
    pub(super) fn clock(&self, now: Timestamp) -> Timestamp {
        self.newest.map_or(now, |newest| newest.min(now))
    }

    /// Reports whether an entry may have been known once.
    fn is_below_watermark(&self, row: &Row) -> bool {
        row.at
            .is_some_and(|at| Some(at) <= self.state.floor.max(self.pruned))
    }

    fn poll(&mut self, page: &Page, opened_at: Timestamp, step: &mut Step) {
        self.count_failing(page, opened_at, step);
        if page.rows.is_empty() && page.end.is_none() {
            if self.is_empty_for_long(page) && self.state.sweep.is_none() {
                step.must_save |= !self.state.was_empty;
                self.state.reached(page.as_of(), self.newest, true);
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
        let limit = &mut self.walks[Task::Poll as usize].limit;
        let wanted = match ends {
            true => new.saturating_mul(2).max(QUIET_POLL.min(*limit)),
            false => limit.saturating_mul(4),
        };
        *limit = wanted.min(self.limits.page_size);
        if ends {
            // All that polls have found above an open sweep is on this page too.
            let by = 1 + i64::from(self.state.sweep.is_some());
            self.settle(by, page, opened_at, step);
        } else if let Some(open) = &mut self.state.sweep {
            open.has_upper |= is_upper && new > 0;
            if !is_upper {
                open.as_of = page.as_of();
            }
        } else {
            self.state.sweep = Some(OpenSweep {
                cursors: page.end.iter().cloned().collect(),
                met,
                has_entries: page.has_entries(),
                oldest: page.rows.iter().filter_map(|row| row.at).min(),
                opened_at,
                as_of: page.as_of(),
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
            (open.met, open.older, open.as_of) = (false, 0, page.as_of());
        }
        open.met = self.take(page, open.met, step);
        open.has_entries |= page.has_entries();
        let times = page.rows.iter().filter_map(|row| row.at);
        open.oldest = open.oldest.into_iter().chain(times).min();
        let old = page
            .rows
            .iter()
            .filter(|row| self.is_below_watermark(row))
            .count();
        open.older += u32::try_from(old).unwrap_or(u32::MAX);
        if !step.take.is_empty() {
            open.failed_for = 0;
            self.walks[Task::Sweep as usize].is_failing = false;
        }
        let is_end = match self.is_empty_top(request, page, step) {
            Some(is_believed) => is_believed,
            None => self.turn(&mut open.cursors, request, page, step),
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
    pub(super) fn take(&self, page: &Page, mut met: bool, step: &mut Step) -> bool {
        for (index, row) in page.rows.iter().enumerate() {
            met |= row.standing == Standing::Settled && !row.is_ahead(self.state.contact);
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
        let as_of = open.as_ref().map_or(page.as_of(), |open| open.as_of);
        let has_entries = page.has_entries() || open.as_ref().is_some_and(|open| open.has_entries);
        if by == 1 && open.is_some_and(|open| open.has_upper) {
            state.sweep = Some(OpenSweep {
                opened_at,
                ..OpenSweep::default()
            });
        } else {
            let as_of = if by == 1 { as_of } else { page.as_of() };
            state.reached(as_of, self.newest, !has_entries);
        }
        self.walks[Task::Sweep as usize].reset();
    }

    /// Goes on to the next page; reports whether the listing ends here.
    pub(super) fn turn(
        &mut self,
        cursors: &mut Vec<String>,
        request: &Request,
        page: &Page,
        step: &mut Step,
    ) -> bool {
        self.walks[request.task as usize].page(cursors, request, page, self.longest, step)
    }

    /// Reports whether an empty listing is believed; `None` if it is not empty.
    pub(super) fn is_empty_top(
        &mut self,
        request: &Request,
        page: &Page,
        step: &mut Step,
    ) -> Option<bool> {
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
        for walk in &mut self.walks {
            walk.polled = true;
        }
        let last = self.polled.replace(page.at).unwrap_or(page.at);
        let passed = page.at.saturating_sub(last).min(MAX_BETWEEN).as_millis() as u64;
        let has_failed = |is_failing: bool, failed_for: &mut u64| {
            *failed_for += if is_failing { passed } else { 0 };
            is_failing && u128::from(*failed_for) >= MAX_FAILING.as_millis()
        };
        let state = &mut self.state;
        let gap = |reason, from, to, what| Gap {
            reason,
            from,
            to,
            message: format!("the API has failed to return {what} for seven days"),
        };
        if has_failed(
            self.walks[Task::Reread as usize].is_failing,
            &mut state.reread_failed_for,
        ) {
            // The entry that cannot be read must not keep the re-read from ever reaching its end.
            state.reread_failed_for = 0;
            self.walks[Task::Reread as usize].is_failing = false;
            (state.read_to, state.short_read_to) = (Some(page.now), Some(page.now));
        }
        if let Some(open) = &mut state.sweep
            && has_failed(
                self.walks[Task::Sweep as usize].is_failing,
                &mut open.failed_for,
            )
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
            self.walks[Task::Sweep as usize].reset();
        } else if let Some(history) = &mut state.history
            && has_failed(
                self.walks[Task::History as usize].is_failing,
                &mut history.failed_for,
            )
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
