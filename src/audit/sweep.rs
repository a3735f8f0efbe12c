//! What the audit tail requests, and what it takes of a page: a state machine without I/O.
//!
//! **Identity decides, not time.** The ledger knows the id of every entry that was met, *settled* or not. Everything that was listed below a
//! settled entry when it was settled is known too, or is left to a pass.
//!
//! - The *first sync* is the newest page of a new state file, or with new filters. An entry that is not newer than its newest one was there before: it
//!   is not newer than the *watermark*, and is never counted. Neither is an entry that is not newer than a pruned id.
//! - A *sweep* only has to be fresh. It goes from the top down and takes what is unknown. A page whose last entry is settled ends it, and all
//!   that is known is settled then. An unknown entry above the first settled one is live, one below it is late. A sweep that does not
//!   get that far in a few pages is *cut*: it settles too, the exporter is *behind*, and the newest entries that were settled before are the
//!   *edge*. It is in memory only.
//! - A *pass* has to be complete. It goes from the top down to the *mark*, which is the re-read window before the last complete pass began, or
//!   before the first sync, as far as that has read. It takes what sweeps have left out: late entries, and everything down to the edge if it begins
//!   behind. It is durable, and requests a page that fails again in place.
//! - *History* goes down from the first sync and takes records that are not counted. It is durable, but its ids are not kept: it is older than
//!   what passes read.
//! - A sweep is finished before a pass or history requests its next page. So whatever they take, from whichever page the API really sent, is
//!   settled by a sweep that began later. If they took it while a sweep is under way, it would be settled with what that sweep has not read.
//! - A cursor is only a hint. A walk whose cursor is lost begins at the top: known entries cost requests and nothing else.
//!
//! The durable part is [`TailState`]. One transaction a page stores it with what was taken. If that fails, the caller makes a new machine from
//! what is stored; so does a restart, at any point.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Settings;
use super::entry::Entry;
use super::start::Start;
use super::state::{Behind, History, Pass, TailState, Trouble, Walk};
use crate::ledger::{Disposition, EventId, EventIds, Gap, GapReason, Prune, Seen};
use crate::util::labels;

/// The number of entries that a quiet sweep requests.
const QUIET: u32 = 10;
/// The minimum number of entries to request: with fewer, an inclusive cursor would return only its own entry.
const MIN_PAGE: u32 = 2;
/// A sweep is cut after this many pages.
const MAX_PAGES: u32 = 10;
/// A sweep is cut after this many failures of a page below the first.
const MAX_FAILURES: u32 = 3;
/// A pass ends after this many entries in a row that are older than it needs.
const ENOUGH_OLDER: u32 = 2_000;
/// A pass that has not met the edge, and history, end after this many.
const MAX_OLDER: u32 = 10_000;
/// The end of the listing is believed if the cursor is at most this old: a cursor may have expired since.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// If a page ends the listing although the one before said that there is more, the exporter believes it after this time and this many answers.
const DOUBT: (SignedDuration, u32) = (SignedDuration::from_mins(1), 8);
/// A walk that is not complete after this time, and has failed this often, is given up.
const MAX_TROUBLE: (SignedDuration, u32) = (SignedDuration::from_hours(24), 100);

labels! {
    /// What a request is for.
    Task {
        /// The next page of a sweep, or the first sync.
        Sweep => "sweep",
        /// The next page of a pass.
        Pass => "pass",
        /// The next page of history.
        History => "history",
    }
}

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// What it is for.
    pub task: Task,
    /// The cursor; `None` for the top of the listing.
    pub before: Option<String>,
    /// The number of entries.
    pub limit: u32,
}

/// A page of the listing, without repeated entries.
#[derive(Clone, Debug)]
pub(super) struct Page<'a> {
    /// Its entries, newest first.
    pub entries: Vec<Entry<'a>>,
    /// The cursor of the next page.
    pub end: Option<String>,
    /// The page says that there are more entries.
    pub has_more: bool,
    /// The present: the API's clock, or this machine's if that is earlier.
    pub now: Timestamp,
    /// The same before the page was requested.
    pub as_of: Timestamp,
    /// When it was requested, and when it came, by this machine's clock.
    pub requested_at: Timestamp,
    pub at: Timestamp,
}

/// What to do after a page, or after a failure.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// What becomes of unknown entries, by their index in the page.
    pub take: Vec<(usize, Disposition)>,
    /// The ids of what is taken are not kept.
    pub forgets: bool,
    /// All that is known is settled, with what is taken here.
    pub settles: bool,
    /// A sweep was cut.
    pub is_cut: bool,
    /// Something is lost.
    pub gap: Option<Gap>,
    /// What is no longer needed.
    pub prune: Option<Prune>,
    /// The state has changed in a way that a restart must not forget.
    pub must_save: bool,
    /// The page cannot be used, and counts as failed.
    pub problem: Option<Problem>,
}

/// Why a page cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It has no entries below it, but the page before said that there are.
    #[error("the API ends the listing although hasMore was true on the page before")]
    EndsEarly,
    /// It is not the page that was requested.
    #[error("the API no longer knows the cursor; the listing is read again from its top")]
    CursorLost,
    /// The listing is empty, which neither ends nor advances a pass.
    #[error("the listing is empty")]
    Empty,
}

/// The kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The API rejected it, perhaps because of its cursor.
    Rejected,
    /// Nothing about the page: the API is unreachable, or the key is not accepted.
    Unreachable,
    /// The page, perhaps: it is too large, or has an entry that cannot be read.
    Page,
}

/// The settings of the state machine.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// `--api.page-size`, at least [`MIN_PAGE`].
    pub page_size: u32,
    /// `--audit.reread-interval`.
    pub interval: Duration,
    /// `--audit.reread-window`.
    pub window: Duration,
    /// `--audit.start`, counted from the creation of the state file.
    pub start: Start,
    pub created_at: Timestamp,
    /// See the constants.
    pub max_pages: u32,
    pub enough_older: u32,
    pub max_older: u32,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Walks {
    pub(super) state: TailState,
    limits: Limits,
    /// The newest time of a pruned id.
    pruned: Option<Timestamp>,
    /// The sweep under way.
    sweep: Option<Sweep>,
    /// The number of entries to request at the top of the listing, and by a pass or history.
    top_limit: u32,
    page_limits: [u32; Task::ALL.len()],
    /// The first entry of the listing when its top was read last. A page below cannot have it.
    newest: Option<EventId>,
    /// The present, when a page came last.
    now: Timestamp,
    /// The last sweep found an empty listing.
    is_empty_once: bool,
    /// The top of the listing was read since the walk failed last.
    top_works: [bool; Task::ALL.len()],
    /// When the pass read a page last, by this machine's clock.
    progress_at: Option<Timestamp>,
    /// What the pass has met that is older than it reaches; `None` if another process began it.
    met: Option<EventIds>,
}

/// A sweep: from the top of the listing down to what is settled.
#[derive(Debug, Default)]
struct Sweep {
    walk: Walk,
    pages: u32,
    failures: u32,
    /// The number of entries that it has taken.
    taken: usize,
    since: Timestamp,
    as_of: Timestamp,
}

// === impl Limits ===

impl Limits {
    /// Returns the limits of these settings, with a state file that was created then.
    pub(super) fn new(settings: &Settings, created_at: Timestamp) -> Self {
        Self {
            page_size: settings.page_size.max(MIN_PAGE),
            interval: settings.reread_interval,
            window: settings.reread_window,
            start: settings.start,
            created_at,
            max_pages: MAX_PAGES,
            enough_older: ENOUGH_OLDER,
            max_older: MAX_OLDER,
        }
    }

    /// Returns when the re-read window begins that ends at this time.
    fn window_before(&self, at: Timestamp) -> Timestamp {
        let window = SignedDuration::try_from(self.window).unwrap_or(SignedDuration::MAX);
        at.checked_sub(window).unwrap_or(Timestamp::MIN)
    }
}

// === impl Page ===

impl Page<'_> {
    /// Reports whether the listing is empty, or seems to be.
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.end.is_none()
    }
}

// === impl Walk ===

impl Walk {
    /// Reports whether the listing ends with a page that was requested with the cursor of this walk, and goes on to the next one.
    fn advance(&mut self, page: &Page<'_>, newest: Option<EventId>) -> Result<bool, Problem> {
        let is_end = page.end.is_none() || page.end == self.cursor;
        if self.cursor.is_some() {
            let is_first = |entry: &Entry<'_>| Some(entry.id) == newest;
            let was_first = self.last.is_some_and(|(_, id)| Some(id) == newest);
            let is_top = !was_first && page.entries.iter().any(is_first);
            let is_stale = page.at.duration_since(self.cursor_at).abs() > FRESH;
            if is_top || (is_end && is_stale) {
                return Err(Problem::CursorLost);
            }
        }
        if is_end && self.has_more {
            if self.doubts == 0 {
                self.doubted_since = page.at;
            }
            self.doubts += 1;
            let is_short = page.at.duration_since(self.doubted_since).abs() < DOUBT.0;
            if is_short || self.doubts < DOUBT.1 {
                return Err(Problem::EndsEarly);
            }
        }
        if let Some(last) = page.entries.last() {
            self.last = Some((last.at, last.id));
        }
        if !is_end {
            self.doubts = 0;
            self.cursor.clone_from(&page.end);
            (self.cursor_at, self.has_more) = (page.requested_at, page.has_more);
        }
        Ok(is_end)
    }
}

// === impl Walks ===

impl Walks {
    /// Continues from a stored state. `pruned` is the newest time of a pruned id, and `filters` are those in use.
    pub(super) fn new(
        state: TailState,
        limits: Limits,
        pruned: Option<Timestamp>,
        filters: &str,
    ) -> Self {
        let page_size = limits.page_size;
        let mut walks = Self {
            state,
            pruned,
            sweep: None,
            top_limit: QUIET.min(page_size),
            page_limits: [page_size; _],
            newest: None,
            is_empty_once: false,
            now: Timestamp::MIN,
            top_works: [false; _],
            progress_at: None,
            met: None,
            limits,
        };
        if walks.state.filters != filters {
            walks.change_filters(filters);
        }
        if !walks.state.is_synced {
            walks.top_limit = page_size;
        }
        walks
    }

    /// Everything begins with a first sync again, but ids and counters stay. History goes on from where it was in time.
    fn change_filters(&mut self, filters: &str) {
        let state = &mut self.state;
        filters.clone_into(&mut state.filters);
        (state.is_synced, state.pass, state.behind) = (false, None, None);
        for history in &mut state.histories {
            history.walk.restart();
        }
    }

    /// Reports whether a sweep is under way: nothing else may be requested then.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some() || !self.state.is_synced
    }

    /// Reports whether a pass is to be begun or continued now.
    pub(super) fn needs_pass(&self) -> bool {
        self.state.pass.is_some() || self.state.behind.is_some()
    }

    /// Returns since when records wait for older ones that are still to be read, by this machine's clock; `None` if they do not.
    pub(super) fn waiting_since(&self) -> Option<Timestamp> {
        let sweep = self.sweep.as_ref().map(|sweep| sweep.since);
        let history = self.state.histories.iter().map(|history| history.since);
        let since = sweep.into_iter().chain(history);
        since.chain(self.state.behind_since()).min()
    }

    /// Notes what was pruned.
    pub(super) fn pruned(&mut self, newest: Option<Timestamp>) {
        self.pruned = self.pruned.max(newest);
    }

    /// Returns where a task is; `None` if it has not begun.
    fn walk(&self, task: Task) -> Option<&Walk> {
        match task {
            Task::Sweep => self.sweep.as_ref().map(|sweep| &sweep.walk),
            Task::Pass => self.state.pass.as_ref().map(|pass| &pass.walk),
            Task::History => self.state.histories.last().map(|history| &history.walk),
        }
    }

    /// Returns the next request of a task; `None` if it has none. A pass that is not under way begins.
    pub(super) fn request(&self, task: Task) -> Option<Request> {
        let before = self.walk(task).and_then(|walk| walk.cursor.clone());
        // A history that begins at the top waits until something is listed.
        let is_empty = before.is_none() && self.state.was_empty;
        let is_idle = task == Task::History && (self.state.histories.is_empty() || is_empty);
        if is_idle || (task != Task::Sweep && self.is_sweeping()) {
            return None;
        }
        let limit = match (task, &before) {
            (Task::Sweep, None) => self.top_limit,
            _ => self.page_limits[task as usize],
        };
        Some(Request {
            task,
            before,
            limit,
        })
    }

    /// Reports whether fewer entries can be requested in place of these.
    pub(super) fn can_shrink(request: &Request) -> bool {
        let is_top = request.task == Task::Sweep && request.before.is_none();
        request.limit > if is_top { 1 } else { MIN_PAGE }
    }

    /// Decides what to take of a page.
    pub(super) fn page(&mut self, request: &Request, page: &mut Page<'_>) -> Step {
        self.now = page.now;
        let last = self.walk(request.task).and_then(|walk| walk.last);
        let mut at = last.map_or(page.now, |(at, _)| at);
        for entry in &mut page.entries {
            at = entry.created_at.unwrap_or(at);
            entry.at = at;
        }
        if request.before.is_none() {
            self.newest = page.entries.first().map(|entry| entry.id);
            self.top_works = [true; _];
        }
        let mut step = Step::default();
        let result = match request.task {
            Task::Sweep if !self.state.is_synced => {
                self.first_sync(page, &mut step);
                Ok(())
            }
            Task::Sweep => self.sweep(page, &mut step),
            Task::Pass => self.pass(page, &mut step),
            Task::History => self.history(page, &mut step),
        };
        match result {
            Ok(()) => {
                let limit = &mut self.page_limits[request.task as usize];
                *limit = (*limit * 2).min(self.limits.page_size);
            }
            Err(Problem::Empty) => step.problem = Some(Problem::Empty),
            Err(problem) => {
                let cause = match problem {
                    Problem::CursorLost => Cause::Rejected,
                    _ => Cause::Page,
                };
                step = self.failed(request, cause, page.at);
                step.problem = Some(problem);
            }
        }
        step.must_save |= !step.take.is_empty() || step.gap.is_some();
        step
    }

    /// Notes a failed request.
    pub(super) fn failed(&mut self, request: &Request, cause: Cause, at: Timestamp) -> Step {
        let mut step = Step::default();
        let is_lost = cause == Cause::Rejected && request.before.is_some();
        let half = match cause {
            Cause::Unreachable => request.limit,
            _ => request.limit / 2,
        };
        let task = request.task as usize;
        if request.task == Task::Sweep {
            match &mut self.sweep {
                _ if request.before.is_none() => self.top_limit = half.max(1),
                Some(sweep) if is_lost => sweep.walk.restart(),
                Some(sweep) => {
                    sweep.failures += 1;
                    if sweep.failures >= MAX_FAILURES {
                        self.settle(true, at, &mut step);
                    }
                }
                None => {}
            }
            return step;
        }
        self.page_limits[task] = half.max(MIN_PAGE);
        let is_counted = std::mem::take(&mut self.top_works[task]);
        let state = &mut self.state;
        let (walk, trouble) = match request.task {
            Task::Pass => match &mut state.pass {
                Some(pass) => (&mut pass.walk, &mut pass.trouble),
                None => return step,
            },
            _ => match state.histories.last_mut() {
                Some(history) => (&mut history.walk, &mut history.trouble),
                None => return step,
            },
        };
        trouble.failures += u32::from(is_counted);
        step.must_save = is_counted;
        let is_over =
            at.duration_since(trouble.since) >= MAX_TROUBLE.0 && trouble.failures >= MAX_TROUBLE.1;
        let is_stuck = request.task == Task::Pass && {
            let progress_at = *self.progress_at.get_or_insert(at);
            // Not before a contradiction could be believed.
            let patience = self.limits.interval.max(2 * DOUBT.0.unsigned_abs());
            at.duration_since(progress_at).unsigned_abs() >= patience
        };
        if is_lost || is_stuck {
            walk.restart();
            self.progress_at = None;
        }
        if is_over {
            self.give_up(request.task, &mut step);
        }
        step
    }

    /// Ends a walk over a page that cannot be read.
    fn give_up(&mut self, task: Task, step: &mut Step) {
        let (reaches, state) = (self.window_start(self.now), &mut self.state);
        let (reason, from, to, what) = match task {
            Task::Pass => {
                let pass = state.pass.take().unwrap_or_default();
                state.mark = state.mark.max(Some(reaches));
                let reached = pass.walk.last.map(|(at, _)| at);
                (
                    GapReason::Unreadable,
                    Some(pass.floor),
                    reached,
                    "a page of the audit logs",
                )
            }
            _ => {
                let history = state.histories.pop().unwrap_or_default();
                let (from, to) = (history.from, history.reached);
                (
                    GapReason::UnreadableHistory,
                    Some(from),
                    Some(to),
                    "a page of the history",
                )
            }
        };
        step.gap = Some(Gap {
            reason,
            from,
            to,
            message: format!(
                "the API has failed to return {what} for a day; what is on it or below it may be missing"
            ),
        });
        step.must_save = true;
    }

    /// Returns the last time before the re-read window, which is counted back from the present, or from the newest settled entry if that is
    /// earlier. A sweep that is cut meanwhile has its edge there: no later mark, or the next pass would look for it among older entries.
    fn window_start(&self, now: Timestamp) -> Timestamp {
        let newest = self.state.settled.time();
        let end = newest.map_or(now, |newest| newest.min(now));
        let start = self.limits.window_before(end);
        // Times are whole microseconds.
        let before = start.checked_sub(SignedDuration::from_micros(1));
        before.unwrap_or(Timestamp::MIN)
    }

    /// Returns the time up to which an entry may have been known once.
    fn watermark(&self) -> Option<Timestamp> {
        self.state.watermark.max(self.pruned)
    }

    fn first_sync(&mut self, page: &Page<'_>, step: &mut Step) {
        let times = || page.entries.iter().map(|entry| entry.at);
        // Not later than now. If the whole page is, although there is more below it, the clock is wrong. What comes after an empty listing
        // may be of the same second.
        let mut watermark = times()
            .max()
            .map_or(page.as_of, |newest| newest.min(page.now));
        if page.has_more {
            watermark = watermark.max(times().min().unwrap_or(watermark));
        }
        let state = &mut self.state;
        let from = match state.mark {
            // Because the filters have changed, entries between the mark and this page are history.
            Some(mark) => Some(mark),
            None => (self.limits.start).from(self.limits.created_at.min(page.now)),
        };
        // A history under way will not take what is known from here on.
        let is_history = |at: Timestamp| {
            let mut histories = state.histories.iter();
            from.is_some_and(|from| at >= from)
                || histories.any(|history| (history.from..=history.reached).contains(&at))
        };
        for (index, entry) in page.entries.iter().enumerate() {
            if entry.seen == Seen::Unknown {
                let taken = if is_history(entry.at) {
                    Disposition::History
                } else {
                    Disposition::Ignored
                };
                step.take.push((index, taken));
            }
        }
        if page.end.is_none() && !page.is_empty() {
            // It is the whole listing.
            state.histories.clear();
        } else if let Some(from) = from.filter(|from| *from < watermark) {
            // After an empty page it begins at the top, once something is listed.
            state.histories.push(History {
                walk: Walk {
                    cursor: page.end.clone(),
                    cursor_at: page.requested_at,
                    has_more: page.has_more,
                    last: page.entries.last().map(|entry| (entry.at, entry.id)),
                    ..Walk::default()
                },
                from,
                to: watermark,
                reached: watermark,
                since: page.at,
                trouble: Trouble::none(page.at),
                ..History::default()
            });
        }
        let oldest = || times().min().unwrap_or(watermark);
        state.is_synced = true;
        state.oldest_synced = page.end.as_ref().map(|_| oldest());
        state.watermark = state.watermark.max(Some(watermark));
        // What this page has of the re-read window is known, so that a pass can tell what appears there later.
        let window = self.limits.window_before(watermark);
        let mark = state.oldest_synced.max(Some(window)).min(Some(watermark));
        state.mark = state.mark.max(mark);
        self.sweep = Some(Sweep {
            as_of: page.as_of,
            ..Sweep::default()
        });
        self.learn(page, step);
        self.settle(false, page.at, step);
        self.state.was_empty = page.is_empty();
        step.must_save = true;
    }

    fn sweep(&mut self, page: &Page<'_>, step: &mut Step) -> Result<(), Problem> {
        let watermark = self.watermark();
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            since: page.at,
            ..Sweep::default()
        });
        let is_top = sweep.walk.cursor.is_none();
        let is_end = sweep.walk.advance(page, self.newest)?;
        if is_top {
            sweep.as_of = page.as_of;
        }
        (sweep.pages, sweep.failures) = (sweep.pages + 1, 0);
        let oldest = self.state.oldest_synced;
        let is_wanted = |entry: &Entry<'_>, has_met: bool| !has_met || Some(entry.at) > oldest;
        take(
            page,
            &mut sweep.walk,
            watermark,
            is_settled,
            is_wanted,
            step,
        );
        sweep.taken += step.take.len();
        let (has_met, is_long) = (sweep.walk.has_met, sweep.pages >= self.limits.max_pages);
        self.learn(page, step);
        // Entries that were there before the first sync belong to the history, not to this walk.
        let is_old = |entry: &Entry<'_>| has_met && Some(entry.at) <= self.state.watermark;
        let is_known = page
            .entries
            .last()
            .is_some_and(|entry| is_settled(entry) || is_old(entry));
        if is_known {
            self.settle(false, page.at, step);
        } else if is_top && is_end && page.entries.is_empty() {
            self.nothing_listed(page.at, step);
        } else if is_end {
            let may_lack = !self.state.settled.is_empty() && !self.state.was_empty;
            self.settle(may_lack && !has_met, page.at, step);
        } else if is_long {
            self.settle(true, page.at, step);
        }
        Ok(())
    }

    /// Ends a sweep of an empty listing, which is believed the second time in a row.
    fn nothing_listed(&mut self, at: Timestamp, step: &mut Step) {
        let as_of = self.sweep.take().map(|sweep| sweep.as_of);
        if std::mem::replace(&mut self.is_empty_once, true) {
            let state = &self.state;
            // All that was settled has been deleted. If nothing could be read for long, unread entries may have been deleted with it.
            let is_first = !state.was_empty && !state.settled.is_empty();
            let since = state.complete_through.zip(as_of);
            let outage = since.map(|(through, as_of)| as_of.duration_since(through));
            let is_long = outage.is_some_and(|outage| {
                Duration::try_from(outage).is_ok_and(|outage| outage > self.limits.interval)
            });
            // The same is true of the entries below those of a sweep that did not end.
            if !state.unsettled.is_empty() || (is_first && is_long) {
                self.settle(true, at, step);
            }
            step.must_save |= !self.state.was_empty;
            (self.state.was_empty, self.is_empty_once) = (true, true);
            self.complete(as_of);
        }
    }

    /// Ends a sweep: all that is known is settled.
    fn settle(&mut self, is_cut: bool, at: Timestamp, step: &mut Step) {
        let sweep = self.sweep.take().unwrap_or_default();
        let (state, taken) = (
            &mut self.state,
            u32::try_from(sweep.taken).unwrap_or(u32::MAX),
        );
        if is_cut && state.behind.is_none() {
            let edge = if state.was_empty {
                Vec::new()
            } else {
                state.settled.ids()
            };
            state.behind = Some(Behind { since: at, edge });
        }
        (step.settles, step.is_cut) = (true, is_cut);
        step.must_save |= is_cut || state.was_empty || !state.unsettled.is_empty();
        (state.was_empty, self.is_empty_once) = (false, false);
        state.settled.extend(state.unsettled.take());
        let page_size = self.limits.page_size;
        self.top_limit = taken.saturating_mul(2).max(QUIET).min(page_size);
        self.complete(Some(sweep.as_of));
    }

    /// Notes that everything that was listed at a time is taken, unless a pass is still to take it.
    fn complete(&mut self, as_of: Option<Timestamp>) {
        if self.state.behind_since().is_none() {
            self.state.complete_through = self.state.complete_through.max(as_of);
        }
    }

    fn pass(&mut self, page: &Page<'_>, step: &mut Step) -> Result<(), Problem> {
        let is_top = |walk: &Walk| walk.cursor.is_none();
        let begins = self.state.pass.is_none();
        if page.is_empty()
            && self
                .state
                .pass
                .as_ref()
                .is_none_or(|pass| is_top(&pass.walk))
        {
            return Err(Problem::Empty);
        }
        let watermark = self.watermark();
        if begins {
            self.begin_pass(page);
            step.must_save = true;
        }
        let Some(pass) = &mut self.state.pass else {
            return Ok(());
        };
        let is_end = pass.walk.advance(page, self.newest)?;
        self.progress_at = Some(page.at);
        let (floor, has_edge) = (pass.floor, !pass.edge.is_empty());
        for entry in &page.entries {
            pass.walk.older = if entry.at > floor {
                0
            } else {
                pass.walk.older + 1
            };
            if let Some(met) = &mut self.met
                && entry.at < pass.reaches
            {
                met.insert(entry.id);
            }
        }
        let is_wanted =
            |entry: &Entry<'_>, has_met: bool| (has_edge && !has_met) || entry.at > floor;
        // Entries that a cut sweep left out are not late.
        let edge = &pass.edge;
        let is_ground = |entry: &Entry<'_>| {
            if has_edge {
                edge.contains(&entry.id)
            } else {
                is_settled(entry)
            }
        };
        take(page, &mut pass.walk, watermark, is_ground, is_wanted, step);
        if page
            .entries
            .iter()
            .any(|entry| pass.edge.contains(&entry.id))
        {
            pass.edge.clear();
        }
        let (lacks_edge, older) = (!pass.edge.is_empty(), pass.walk.older);
        let enough = if lacks_edge {
            self.limits.max_older
        } else {
            self.limits.enough_older
        };
        let (reaches, as_of) = (pass.reaches, pass.as_of);
        self.learn(page, step);
        if !is_end && older < enough {
            return Ok(());
        }
        if lacks_edge {
            step.gap = Some(Gap {
                reason: GapReason::Retention,
                from: self.state.complete_through,
                to: page.entries.iter().map(|entry| entry.at).min(),
                message: "the listing has no entry any more that was read before; what came in between may have been deleted".to_owned(),
            });
        }
        self.state.pass = None;
        self.state.mark = self.state.mark.max(Some(reaches));
        self.state.complete_through = self.state.complete_through.max(Some(as_of));
        // A history after a change of the filters must not take again what was known before.
        let met = self.met.take();
        let met = met.filter(|_| self.state.histories.is_empty());
        step.prune = met.map(|met| Prune {
            before: reaches,
            met,
        });
        step.must_save = true;
        Ok(())
    }

    /// Begins a pass. The next pass reads what a sweep leaves out from now on.
    fn begin_pass(&mut self, page: &Page) {
        let newest = page.entries.iter().map(|entry| entry.at).max();
        let reaches = self.window_start(newest.map_or(page.now, |newest| newest.min(page.now)));
        let behind = self.state.behind.take();
        self.state.pass = Some(Pass {
            floor: self.state.mark.unwrap_or(Timestamp::MIN),
            reaches,
            behind_since: behind.as_ref().map(|behind| behind.since),
            edge: behind.map(|behind| behind.edge).unwrap_or_default(),
            as_of: page.as_of,
            trouble: Trouble::none(page.at),
            ..Pass::default()
        });
        self.met = Some(EventIds::default());
    }

    fn history(&mut self, page: &Page<'_>, step: &mut Step) -> Result<(), Problem> {
        let Some(history) = self.state.histories.last_mut() else {
            return Ok(());
        };
        let is_top = history.walk.cursor.is_none();
        if is_top && page.is_empty() {
            return Err(Problem::Empty);
        }
        // An inclusive cursor brings the last entry again.
        let again = history.walk.last.map(|(_, id)| id);
        let is_end = history.walk.advance(page, self.newest)?;
        history.is_returning |= is_top;
        let to = if history.is_returning {
            history.reached
        } else {
            history.to
        };
        for (index, entry) in page.entries.iter().enumerate() {
            // Known entries say nothing: some may be dated in the past.
            if entry.at >= history.from {
                history.walk.older = 0;
            } else if entry.seen == Seen::Unknown {
                history.walk.older += 1;
            }
            let is_new = entry.seen == Seen::Unknown && Some(entry.id) != again;
            if is_new && (history.from..=to).contains(&entry.at) {
                step.take.push((index, Disposition::History));
            }
        }
        history.is_returning &= !page.entries.iter().any(|entry| entry.at <= history.reached);
        if let Some(newest) = page.entries.iter().map(|entry| entry.at).max()
            && !history.is_returning
        {
            history.reached = newest.min(to);
        }
        // Except in order of arrival: a pass would take them too, unless they are known.
        let mark = self.state.mark;
        step.forgets = page.entries.iter().all(|entry| Some(entry.at) <= mark);
        if !step.take.is_empty() {
            history.trouble = Trouble::none(page.at);
        }
        if is_end || history.walk.older >= self.limits.max_older {
            self.state.histories.pop();
            step.must_save = true;
        }
        Ok(())
    }

    /// Notes the newest entries among those that are taken.
    fn learn(&mut self, page: &Page<'_>, step: &Step) {
        let entries = step.take.iter().map(|(index, _)| &page.entries[*index]);
        self.state
            .unsettled
            .extend(entries.map(|entry| (entry.at, entry.id)));
    }
}

fn is_settled(entry: &Entry<'_>) -> bool {
    entry.seen == Seen::Settled
}

/// Takes what is unknown and wanted. Above the first entry of the ground it is live, below it late; what may have been known once is not
/// counted.
fn take(
    page: &Page<'_>,
    walk: &mut Walk,
    watermark: Option<Timestamp>,
    is_ground: impl Fn(&Entry<'_>) -> bool,
    is_wanted: impl Fn(&Entry<'_>, bool) -> bool,
    step: &mut Step,
) {
    for (index, entry) in page.entries.iter().enumerate() {
        walk.has_met |= is_ground(entry);
        if entry.seen == Seen::Unknown && is_wanted(entry, walk.has_met) {
            let taken = match walk.has_met {
                _ if Some(entry.at) <= watermark => Disposition::Backdated,
                true => Disposition::Late,
                false => Disposition::Live,
            };
            step.take.push((index, taken));
        }
    }
}
