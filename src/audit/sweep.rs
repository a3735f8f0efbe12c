//! What the audit tail requests, and what it takes of a page: a state machine without I/O.
//!
//! **Identity decides, not time.** The ledger knows the id of every entry that was met, and which sweep *settled* it, if one has. Everything that
//! was listed below a settled entry when it was settled is known too, or is left to a pass.
//!
//! - The *first sync* is the newest page of a new state file, or with new filters. An entry that is not newer than its newest one was there before:
//!   it is not newer than the *watermark*, and is never counted. Neither is an entry that is not newer than a pruned id.
//! - A *sweep* only has to be fresh. It goes from the top down and takes what is unknown. A page whose last entry is settled ends it, and all
//!   that is known is settled then, with the number of this sweep. A sweep that does not get that far in a few pages is *cut*: it settles too, and
//!   the exporter is *behind*. It is in memory only.
//! - A *pass* has to be complete. It goes from the top down to the *ground*, and takes what is unknown above it, whatever its date. It is durable,
//!   and requests a page that fails again in place. The *mark* is a sweep that ended a re-read window before the last complete pass began;
//!   ground is an entry that was settled by then and is not newer than that. Whatever appears below it by now had appeared when that pass
//!   began, and everything that a cut sweep has left out since then lies above it. The number alone would take an entry for ground whose date
//!   has only now passed. Without a mark, in the first window, a pass goes down by time.
//! - If `--audit.start` or other filters ask for more than the newest page, the exporter is behind after the first sync: the first pass reads it.
//! - The *reference* is a settled entry that is not dated ahead. An unknown entry above the first one is live, one below it is late.
//! - A sweep is finished before a pass requests its next page. So whatever a pass takes, from whichever page the API really sent, is settled by a
//!   sweep that began later. If the pass took it while a sweep is under way, it would be settled with what that sweep has not read.
//! - A cursor is only a hint. A walk whose cursor is lost begins at the top: known entries cost requests and nothing else.
//!
//! The durable part is [`TailState`]. One transaction a page stores it with what was taken. If that fails, the caller makes a new machine from
//! what is stored; so does a restart, at any point.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use strum::{AsRefStr, VariantArray};

use super::TailSettings;
use super::entry::Entry;
use super::start::Start;
use super::state::{Behind, Mark, Pass, Place, TailState, Trouble, Walk};
use crate::ledger::{Disposition, EventIds, Gap, GapReason, Prune, Seen};

/// The number of entries that a quiet sweep requests. Fewer could be dated ahead, all of them, and hide what is below.
const QUIET: u32 = 10;
/// The minimum number of entries to request below the top: with fewer, an inclusive cursor would return only its own entry.
const MIN_PAGE: u32 = 2;
/// A sweep is cut after this many pages.
const MAX_PAGES: u32 = 10;
/// A sweep is cut after this many failures of a page below the first.
const MAX_FAILURES: u32 = 3;
/// A pass that has met no ground ends after this many unknown entries in a row that are older than it needs.
const MAX_OLDER: u32 = 10_000;
/// After an answer that was too large, so many pages are smaller.
const SMALL_PAGES: u32 = 256;
/// The end of the listing is believed if the cursor is at most this old: a cursor may have expired since.
const FRESH: SignedDuration = SignedDuration::from_mins(10);
/// If an empty page ends the listing although the one before said that there is more, the exporter believes it after this time.
const DOUBT: SignedDuration = SignedDuration::from_mins(1);
/// A pass whose page cannot be read for this time, and has failed this often, is given up.
const MAX_TROUBLE: (SignedDuration, u32) = (SignedDuration::from_hours(24), 100);
/// A mark is noted after each such part of the window.
const MARKS: u32 = 8;
/// Whichever sweep has settled an entry, its number is at most this one.
const ANY_SWEEP: u32 = u32::MAX;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, VariantArray)]
pub(super) enum Task {
    /// The next page of a sweep, or the first sync.
    #[strum(serialize = "poll")]
    Sweep,
    /// The next page of a pass.
    #[strum(serialize = "reread")]
    Pass,
}

/// A page to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// What it is for.
    pub(crate) task: Task,
    /// The cursor; `None` for the top of the listing.
    pub(crate) before: Option<String>,
    /// The number of entries.
    pub(crate) limit: u32,
}

/// A page of the listing, without repeated entries.
#[derive(Clone, Debug)]
pub(super) struct ReadPage<'a> {
    /// Its entries, newest first.
    pub(crate) entries: Vec<Entry<'a>>,
    /// The cursor of the next page.
    pub(crate) end: Option<String>,
    /// The page says that there are more entries.
    pub(crate) has_more: bool,
    /// The present: the API's clock, or this machine's if that is earlier.
    pub(crate) now: Timestamp,
    /// The same before the page was requested.
    pub(crate) as_of: Timestamp,
    /// When it was requested, and when it came, by this machine's clock.
    pub(crate) requested_at: Timestamp,
    pub(crate) at: Timestamp,
    /// The ledger has no room for the ids of a catch-up.
    pub(crate) is_full: bool,
}

/// What to do after a page, or after a failure.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// What becomes of unknown entries, by their index in the page.
    pub(crate) take: Vec<(usize, Disposition)>,
    /// All that is known is settled, with what is taken here.
    pub(crate) settles: bool,
    /// A sweep was cut.
    pub(crate) is_cut: bool,
    /// Something is lost.
    pub(crate) gap: Option<Gap>,
    /// What is no longer needed.
    pub(crate) prune: Option<Prune>,
    /// The state has changed in a way that a restart must not forget.
    pub(crate) must_save: bool,
    /// The page cannot be used, and counts as failed.
    pub(crate) problem: Option<Problem>,
}

/// Why a page cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It has no entries and none below it, but the page before said that there are.
    #[error("the listing ended although hasMore was true on the previous page")]
    EndsEarly,
    /// The listing ends, but the cursor is old.
    #[error("the API no longer accepts the cursor; reading starts again at the newest page")]
    CursorLost,
    /// The listing is empty. That neither ends nor advances a pass, and a first sync asks again.
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
    /// The page, perhaps: it takes too long, or has an entry that cannot be read.
    Page,
}

/// The settings of the state machine.
#[derive(Clone, Debug)]
pub(super) struct WalkSettings {
    /// `--api.page-size`, at least [`MIN_PAGE`].
    pub(crate) page_size: u32,
    /// `--audit.reread-interval`.
    pub(crate) interval: Duration,
    /// `--audit.reread-window`.
    pub(crate) window: Duration,
    /// `--audit.start`, counted from the creation of the state file.
    pub(crate) start: Start,
    pub(crate) created_at: Timestamp,
    /// See the constants.
    pub(crate) max_pages: u32,
    pub(crate) max_older: u32,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Walks {
    pub(super) state: TailState,
    limits: WalkSettings,
    /// The newest time of a pruned id.
    pruned: Option<Timestamp>,
    /// The sweep under way.
    sweep: Option<Sweep>,
    /// The number of entries to request at the top of a sweep, and elsewhere.
    top_limit: u32,
    page_limit: u32,
    /// The most to request, and how many pages were read since an answer was too large.
    max_limit: u32,
    small_pages: u32,
    /// The present, when a page came last.
    now: Timestamp,
    /// The last sweep, or the first sync, found an empty listing.
    is_empty_once: bool,
    /// The top of the listing was read since the pass failed last.
    top_works: bool,
    /// When the pass read a page last, by this machine's clock.
    progress_at: Option<Timestamp>,
    /// What the walk of the pass has read of what the next mark covers; `None` if another process began it.
    listed: Option<EventIds>,
}

/// A sweep: from the top of the listing down to what is settled.
#[derive(Debug, Default)]
struct Sweep {
    walk: Walk,
    pages: u32,
    failures: u32,
    /// The number of entries that it has read, and taken.
    read: usize,
    taken: usize,
    since: Timestamp,
    as_of: Timestamp,
}

// === impl WalkSettings ===

impl WalkSettings {
    /// Returns the limits of these settings, with a state file that was created then.
    pub(super) fn new(settings: &TailSettings, created_at: Timestamp) -> Self {
        Self {
            page_size: settings.page_size.max(MIN_PAGE),
            interval: settings.reread_interval,
            window: settings.reread_window,
            start: settings.start,
            created_at,
            max_pages: MAX_PAGES,
            max_older: MAX_OLDER,
        }
    }

    /// Returns when the re-read window begins that ends at this time.
    fn window_before(&self, at: Timestamp) -> Timestamp {
        at.checked_sub(signed(self.window))
            .unwrap_or(Timestamp::MIN)
    }
}

// === impl ReadPage ===

impl ReadPage<'_> {
    /// Reports whether the listing is empty, or seems to be.
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.end.is_none()
    }

    /// Returns the times of its entries.
    fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.entries.iter().map(|entry| entry.at)
    }

    /// Returns the watermark of a first sync that reads this page: its newest time, not later than now. If the whole page is, although there is
    /// more below it, the clock is wrong.
    fn watermark(&self) -> Timestamp {
        let newest = self.times().max();
        let watermark = newest.map_or(self.as_of, |newest| newest.min(self.now));
        let oldest = self.times().min().filter(|_| self.has_more);
        oldest.map_or(watermark, |oldest| oldest.max(watermark))
    }
}

// === impl Walk ===

impl Walk {
    /// Reports whether the listing ends with a page that was requested with the cursor of this walk, and goes on to the next one.
    fn advance(&mut self, page: &ReadPage<'_>) -> Result<bool, Problem> {
        // Nothing is below an empty page if the one before says so as well. Its cursor may be another one in each answer.
        let says_so = self.cursor.is_some() && !self.has_more && !page.has_more;
        let is_over = says_so && page.entries.is_empty();
        let is_end = page.end.is_none() || page.end == self.cursor || is_over;
        let is_stale = page.at.duration_since(self.cursor_at).abs() > FRESH;
        if is_end && is_stale && self.cursor.is_some() {
            return Err(Problem::CursorLost);
        }
        if is_end && self.has_more && page.entries.is_empty() {
            let since = *self.doubted_since.get_or_insert(page.at);
            if page.at.duration_since(since).abs() < DOUBT {
                return Err(Problem::EndsEarly);
            }
        }
        if let Some(last) = page.entries.last() {
            self.last = Some((last.at, last.id));
        }
        if !is_end {
            self.doubted_since = None;
            self.cursor.clone_from(&page.end);
            (self.cursor_at, self.has_more) = (page.requested_at, page.has_more);
        }
        Ok(is_end)
    }

    /// Takes what is unknown. Above the reference, which this sweep or an earlier one has settled, it is live, and below it late if it is not
    /// older than needed; what may have been known once is not counted.
    fn take(
        &mut self,
        entries: &[Entry<'_>],
        now: Timestamp,
        settled_by: u32,
        watermark: Option<Timestamp>,
        needed: Option<Timestamp>,
    ) -> Vec<(usize, Disposition)> {
        let mut taken = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            self.has_met |= is_settled(entry, settled_by) && entry.at <= now;
            // Above what was read before, old entries are an import.
            let is_needed = !self.has_met || Some(entry.at) >= needed;
            if entry.seen == Seen::Unknown && is_needed {
                let disposition = match self.has_met {
                    _ if Some(entry.at) <= watermark => Disposition::Backdated,
                    true => Disposition::Late,
                    false => Disposition::Live,
                };
                taken.push((index, disposition));
            }
        }
        taken
    }

    /// Counts the entries in a row that are older than a time. Above what was read before, old entries are an import, and if there is ground, so
    /// are known ones.
    fn count_older(&mut self, entries: &[Entry<'_>], than: Option<Timestamp>, has_ground: bool) {
        for entry in entries {
            let is_import = !self.has_met || (has_ground && entry.seen != Seen::Unknown);
            let is_older = !is_import && Some(entry.at) < than;
            self.older = if is_older { self.older + 1 } else { 0 };
        }
    }
}

// === impl Walks ===

impl Walks {
    /// Continues from a stored state. `pruned` is the newest time of a pruned id, and `filters` are those in use.
    pub(super) fn new(
        state: TailState,
        limits: WalkSettings,
        pruned: Option<Timestamp>,
        filters: &str,
    ) -> Self {
        let page_size = limits.page_size;
        let mut walks = Self {
            state,
            pruned,
            sweep: None,
            top_limit: QUIET.min(page_size),
            page_limit: page_size,
            max_limit: page_size,
            small_pages: 0,
            now: Timestamp::MIN,
            is_empty_once: false,
            top_works: false,
            progress_at: None,
            listed: None,
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

    /// Everything begins with a first sync again, but ids and counters stay. The pass after it goes down to where the last one began.
    fn change_filters(&mut self, filters: &str) {
        let state = &mut self.state;
        filters.clone_into(&mut state.filters);
        (state.is_synced, state.pass, state.behind) = (false, None, None);
        state.since = state.mark.take().map(|mark| mark.at).or(state.since);
        (state.marks, state.dead_end) = (Vec::new(), None);
    }

    /// Reports whether a sweep is under way: nothing else may be requested then.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_some() || !self.state.is_synced
    }

    /// Reports whether a pass is to be begun or continued now.
    pub(super) fn needs_pass(&self) -> bool {
        self.state.pass.is_some() || self.state.behind.is_some()
    }

    /// Notes what was pruned.
    pub(super) fn pruned(&mut self, newest: Option<Timestamp>) {
        debug_assert!(newest <= self.state.mark.map(|mark| mark.at));
        self.pruned = self.pruned.max(newest);
    }

    /// Returns where a task is; `None` if it has not begun.
    fn walk(&self, task: Task) -> Option<&Walk> {
        match task {
            Task::Sweep => self.sweep.as_ref().map(|sweep| &sweep.walk),
            Task::Pass => self.state.pass.as_ref().map(|pass| &pass.walk),
        }
    }

    /// Returns the next request of a task; `None` if a sweep has to end first. A pass that is not under way begins.
    pub(super) fn request(&self, task: Task) -> Option<Request> {
        if task == Task::Pass && self.is_sweeping() {
            return None;
        }
        let before = self.walk(task).and_then(|walk| walk.cursor.clone());
        let limit = match (task, &before) {
            (Task::Sweep, None) => self.top_limit.min(self.max_limit),
            _ => self.page_limit.min(self.max_limit).max(MIN_PAGE),
        };
        Some(Request {
            task,
            before,
            limit,
        })
    }

    /// Notes that the answer to a request was too large, and reports whether a smaller one can be requested.
    pub(super) fn too_large(&mut self, request: &Request) -> bool {
        let is_top = request.task == Task::Sweep && request.before.is_none();
        let can_shrink = request.limit > if is_top { 1 } else { MIN_PAGE };
        if can_shrink {
            (self.max_limit, self.small_pages) = (request.limit / 2, 0);
        }
        can_shrink
    }

    /// Decides what to take of a page.
    pub(super) fn page(&mut self, request: &Request, page: &mut ReadPage<'_>) -> Step {
        self.now = page.now;
        let last = self.walk(request.task).and_then(|walk| walk.last);
        let mut at = last.map_or(page.now, |(at, _)| at);
        for entry in &mut page.entries {
            at = entry.created_at.unwrap_or(at);
            entry.at = at;
        }
        let is_top = request.before.is_none();
        self.top_works |= is_top;
        let mut step = Step::default();
        let result = match request.task {
            Task::Sweep if !self.state.is_synced => self.first_sync(page, &mut step),
            Task::Sweep => self.sweep(is_top, page, &mut step),
            Task::Pass => self.pass(is_top, page, &mut step),
        };
        match result {
            Ok(()) => self.read(request),
            Err(Problem::Empty) => {}
            Err(Problem::CursorLost) => step = self.failed(request, Cause::Rejected, page.at),
            Err(Problem::EndsEarly) => step = self.failed(request, Cause::Page, page.at),
        }
        step.problem = result.err();
        self.state.has_unsettled |= !step.take.is_empty() && !step.settles;
        step.must_save |= !step.take.is_empty() || step.gap.is_some();
        step
    }

    /// Lets pages grow again.
    fn read(&mut self, request: &Request) {
        let page_size = self.limits.page_size;
        if request.before.is_some() || request.task == Task::Pass {
            self.page_limit = (self.page_limit * 2).min(page_size);
        }
        self.small_pages += 1;
        if self.small_pages >= SMALL_PAGES {
            (self.max_limit, self.small_pages) = ((self.max_limit * 2).min(page_size), 0);
        }
    }

    /// Notes a failed request.
    pub(super) fn failed(&mut self, request: &Request, cause: Cause, at: Timestamp) -> Step {
        let mut step = Step::default();
        let is_lost = cause == Cause::Rejected && request.before.is_some();
        let half = match cause {
            Cause::Unreachable => request.limit,
            _ => request.limit / 2,
        };
        if request.task == Task::Sweep && request.before.is_none() {
            self.top_limit = half.max(QUIET.min(self.limits.page_size));
            return step;
        }
        self.page_limit = half.max(MIN_PAGE);
        match (request.task, &mut self.sweep) {
            (Task::Pass, _) => self.pass_failed(is_lost, at, &mut step),
            (Task::Sweep, Some(sweep)) if is_lost => sweep.walk = Walk::default(),
            (Task::Sweep, Some(sweep)) => {
                sweep.failures += 1;
                if sweep.failures >= MAX_FAILURES {
                    self.settle(true, at, &mut step);
                }
            }
            (Task::Sweep, None) => {}
        }
        step
    }

    /// Notes a failed request of a pass, which begins at the top again if its cursor is lost, and ends if it has failed for too long.
    fn pass_failed(&mut self, is_lost: bool, at: Timestamp, step: &mut Step) {
        let is_counted = std::mem::take(&mut self.top_works);
        let Some(pass) = &mut self.state.pass else {
            return;
        };
        step.must_save = is_counted;
        let is_over = pass.fails(is_counted, at);
        // Not before a contradiction could be believed.
        let patience = self.limits.interval.max(2 * DOUBT.unsigned_abs());
        let is_stuck = self.state.mark.is_some() && {
            let progress_at = *self.progress_at.get_or_insert(at);
            at.duration_since(progress_at).unsigned_abs() >= patience
        };
        if is_over {
            let place = pass.trouble.as_ref().and_then(|trouble| trouble.place);
            self.give_up(GapReason::Unreadable, place, step);
        } else if is_lost || is_stuck {
            pass.walk = Walk::default();
            self.progress_at = None;
        }
    }

    /// Ends a pass over what it cannot read, below an entry. Later ones end there, too.
    fn give_up(&mut self, reason: GapReason, last: Option<Place>, step: &mut Step) {
        let message = match reason {
            GapReason::TooMany => {
                "there are more new entries than the exporter can remember; older ones may be missing"
            }
            _ => {
                "the API failed to return a page of the audit logs for a day; entries on it and older ones may be missing"
            }
        };
        let state = &mut self.state;
        step.gap = Some(Gap {
            reason,
            from: state.mark.map(|mark| mark.at).or(state.since),
            to: last.map(|(at, _)| at),
            message: message.to_owned(),
        });
        state.dead_end = last.map(|(_, id)| id);
        self.end_pass(step);
        if reason == GapReason::TooMany {
            // What it has not read is below the dead end.
            self.prune(step);
        }
    }

    /// Returns the time up to which an entry may have been known once.
    fn watermark(&self) -> Option<Timestamp> {
        self.state.watermark.max(self.pruned)
    }

    fn first_sync(&mut self, page: &ReadPage<'_>, step: &mut Step) -> Result<(), Problem> {
        // The first empty answer may be an accident.
        if page.is_empty() && !std::mem::replace(&mut self.is_empty_once, true) {
            return Err(Problem::Empty);
        }
        // Of an empty listing nothing was known before, and what appears in it may be late.
        let watermark = match page.is_empty() {
            true => self.limits.window_before(page.as_of),
            false => page.watermark(),
        };
        let oldest = page.times().min().unwrap_or(watermark);
        let from = self.history_from(page.now, watermark);
        let entries = page.entries.iter().enumerate();
        for (index, entry) in entries.filter(|(_, entry)| entry.seen == Seen::Unknown) {
            let taken = match from.is_some_and(|from| entry.at >= from) {
                true => Disposition::Backdated,
                false => Disposition::Ignored,
            };
            step.take.push((index, taken));
        }
        let window = self.limits.window_before(watermark);
        let mut since = oldest.max(window).min(watermark);
        if oldest <= page.now || !page.has_more {
            since = since.min(page.now);
        }
        let state = &mut self.state;
        state.is_synced = true;
        state.watermark = state.watermark.max(Some(watermark));
        state.since = Some(from.map_or(since, |from| from.min(since)));
        // There is more to read.
        let is_behind = from.is_some() && page.end.is_some();
        state.behind = is_behind.then(|| Behind::since(page.at));
        self.sweep = Some(Sweep {
            as_of: page.as_of,
            read: page.entries.len(),
            ..Sweep::default()
        });
        self.settle(false, page.at, step);
        self.state.was_empty = page.entries.is_empty();
        step.must_save = true;
        Ok(())
    }

    /// Returns the time down to which a first sync leaves entries to a pass.
    fn history_from(&self, now: Timestamp, watermark: Timestamp) -> Option<Timestamp> {
        // The filters have changed.
        if self.state.watermark.is_some() {
            return self.state.since;
        }
        let start = self.limits.start.from(self.limits.created_at.min(now));
        start.filter(|start| *start <= watermark)
    }

    fn sweep(&mut self, is_top: bool, page: &ReadPage<'_>, step: &mut Step) -> Result<(), Problem> {
        let (watermark, needed) = (self.watermark(), self.state.needed());
        let sweep = self.sweep.get_or_insert_with(|| Sweep {
            since: page.at,
            ..Sweep::default()
        });
        let is_end = sweep.walk.advance(page)?;
        if is_top {
            sweep.as_of = page.as_of;
        }
        (sweep.pages, sweep.failures) = (sweep.pages + 1, 0);
        step.take = (sweep.walk).take(&page.entries, page.now, ANY_SWEEP, watermark, needed);
        sweep.read += page.entries.len();
        sweep.taken += step.take.len();
        let (has_met, since) = (sweep.walk.has_met, sweep.since);
        let is_long = sweep.pages >= self.limits.max_pages;
        // What is older than the first sync needs is no more known than what is settled.
        let is_known = page
            .entries
            .last()
            .is_some_and(|last| is_settled(last, ANY_SWEEP) || (has_met && Some(last.at) < needed));
        if is_known {
            self.settle(false, page.at, step);
        } else if is_top && is_end && page.entries.is_empty() {
            self.nothing_listed(page.at, step);
        } else if is_end {
            self.settle(!self.state.was_empty && !has_met, page.at, step);
        } else if is_long {
            self.settle(true, page.at, step);
        } else {
            // What is below it is older.
            self.state.held_since.get_or_insert(since);
        }
        Ok(())
    }

    /// Ends a sweep of an empty listing, which is believed the second time in a row.
    fn nothing_listed(&mut self, at: Timestamp, step: &mut Step) {
        let as_of = self.sweep.take().map(|sweep| sweep.as_of);
        if !std::mem::replace(&mut self.is_empty_once, true) {
            return;
        }
        // All that was settled has been deleted. If nothing could be read for long, unread entries may have been deleted with it. The same is
        // true of the entries below those of a sweep that did not end.
        let was_empty = self.state.was_empty;
        if self.state.has_unsettled || (!was_empty && self.was_long_unread(as_of)) {
            self.settle(true, at, step);
        }
        step.must_save |= !was_empty;
        (self.state.was_empty, self.is_empty_once) = (true, true);
        self.complete(as_of);
    }

    /// Reports whether the exporter knows nothing of the entries of a whole re-read interval before a time.
    fn was_long_unread(&self, as_of: Option<Timestamp>) -> bool {
        let unread = self.state.complete_through.zip(as_of);
        unread.is_some_and(|(from, to)| to.duration_since(from) > signed(self.limits.interval))
    }

    /// Ends a sweep: all that is known is settled.
    fn settle(&mut self, is_cut: bool, at: Timestamp, step: &mut Step) {
        let sweep = self.sweep.take().unwrap_or_default();
        let state = &mut self.state;
        if is_cut {
            // A first sync may have left something to read, too.
            let behind = state.behind.get_or_insert_with(|| Behind::since(at));
            behind.edge = behind.edge.or(Some(state.sweeps));
            let must_meet = (!state.was_empty).then_some(state.sweeps);
            behind.must_meet = behind.must_meet.or(must_meet);
        }
        (step.settles, step.is_cut) = (true, is_cut);
        let had_unsettled = std::mem::take(&mut state.has_unsettled);
        step.must_save |= is_cut || had_unsettled || state.held_since.is_some();
        if sweep.read > 0 {
            step.must_save |= state.was_empty;
            (state.was_empty, self.is_empty_once) = (false, false);
        }
        state.sweeps += 1;
        self.note_mark();
        let taken = u32::try_from(sweep.taken).unwrap_or(u32::MAX);
        let page_size = self.limits.page_size;
        self.top_limit = taken.saturating_mul(2).max(QUIET).min(page_size);
        self.release(at);
        self.complete(Some(sweep.as_of));
    }

    /// Notes when a sweep has ended, at most every eighth of a window.
    fn note_mark(&mut self) {
        // The clock is behind for a while.
        if Some(self.now) < self.pruned {
            return;
        }
        // After it was ahead, what it said then is no mark.
        let marks = &mut self.state.marks;
        marks.retain(|mark| mark.at <= self.now);
        let last = marks.last().map(|mark| self.now.duration_since(mark.at));
        if last.is_none_or(|last| last >= signed(self.limits.window / MARKS)) {
            let (at, sweep) = (self.now, self.state.sweeps);
            marks.push(Mark { at, sweep });
        }
    }

    /// Lets log records leave, unless older entries are still to be read.
    fn release(&mut self, at: Timestamp) {
        let held_since = self.state.held_since.unwrap_or(at);
        self.state.held_since = self.state.behind_since().map(|_| held_since);
    }

    /// Notes that everything that was listed at a time is taken, unless a pass is still to take it.
    fn complete(&mut self, as_of: Option<Timestamp>) {
        if self.state.behind_since().is_none() {
            self.state.complete_through = self.state.complete_through.max(as_of);
        }
    }

    fn pass(&mut self, is_top: bool, page: &ReadPage<'_>, step: &mut Step) -> Result<(), Problem> {
        if is_top && page.is_empty() {
            return Err(Problem::Empty);
        }
        if is_top {
            self.begin_walk(page);
            step.must_save = true;
        }
        let (watermark, needed) = (self.watermark(), self.state.needed());
        let (since, mark) = (self.state.since, self.state.mark);
        let above = self.above_ground(page);
        let Some(pass) = &mut self.state.pass else {
            return Ok(());
        };
        let is_end = pass.walk.advance(page)?;
        self.progress_at = Some(page.at);
        pass.passes_trouble(page);
        if let Some(listed) = &mut self.listed {
            let entries = page.entries.iter();
            let covered = entries.filter(|entry| is_covered(entry, pass.next));
            listed.extend(covered.map(|entry| entry.id));
        }
        // Entries that a cut sweep left out are not late.
        let settled_by = pass.edge.unwrap_or(pass.began_after);
        step.take = (pass.walk).take(above, page.now, settled_by, watermark, needed);
        pass.passes_edges(page);
        let newest_old = since.max(mark.map(|mark| mark.at));
        pass.walk.count_older(above, newest_old, mark.is_some());
        let is_far = pass.walk.older >= self.limits.max_older;
        let mut taken = step.take.iter().map(|(_, disposition)| *disposition);
        if above.len() < page.entries.len() || is_end || is_far {
            self.complete_pass(page, step);
            if is_far && mark.is_some() {
                self.state.dead_end = page.entries.last().map(|last| last.id);
            }
        } else if page.is_full && taken.any(|disposition| disposition != Disposition::Backdated) {
            let last = pass.walk.last;
            self.give_up(GapReason::TooMany, last, step);
        }
        Ok(())
    }

    /// Returns the entries of a page that are above the ground, or above where an earlier pass has given up.
    fn above_ground<'p, 'e>(&self, page: &'p ReadPage<'e>) -> &'p [Entry<'e>] {
        let (mark, dead_end) = (self.state.mark, self.state.dead_end);
        let is_end = |entry: &Entry<'_>| is_covered(entry, mark) || Some(entry.id) == dead_end;
        page.entries.split(is_end).next().unwrap_or_default()
    }

    /// Begins the walk of a pass at the top of the listing, the first one or another. It takes over what sweeps have left out by now: what they
    /// leave out from now on is the next pass's.
    fn begin_walk(&mut self, page: &ReadPage<'_>) {
        let state = &mut self.state;
        let window = self.limits.window_before(page.as_of);
        let mut marks = state.marks.iter().rev().copied();
        let next = marks.find(|mark| mark.at <= window).or(state.mark);
        let pass = state.pass.get_or_insert_default();
        (pass.as_of, pass.began_after, pass.next) = (page.as_of, state.sweeps, next);
        if let Some(behind) = state.behind.take() {
            pass.edge = pass.edge.into_iter().chain(behind.edge).min();
            pass.must_meet = pass.must_meet.into_iter().chain(behind.must_meet).min();
            pass.behind_since = pass.behind_since.or(Some(behind.since));
        }
        self.listed = Some(EventIds::default());
    }

    /// Ends a pass that has read everything down to its ground.
    fn complete_pass(&mut self, page: &ReadPage<'_>, step: &mut Step) {
        let Some(pass) = self.end_pass(step) else {
            return;
        };
        if pass.must_meet.is_some() {
            step.gap = Some(Gap {
                reason: GapReason::Retention,
                from: self.state.complete_through,
                to: page.times().min(),
                message: "the API no longer lists any entry that was read before; entries created in between may have been deleted".to_owned(),
            });
        }
        let state = &mut self.state;
        let window = self.limits.window_before(pass.as_of);
        state.since = state.since.max(state.watermark.min(Some(window)));
        state.complete_through = state.complete_through.max(Some(pass.as_of));
        self.prune(step);
    }

    /// Prunes what was settled by the mark and is not listed any more.
    fn prune(&mut self, step: &mut Step) {
        // What a sweep can meet stays known, however small the pages of this pass were.
        let newest = self.limits.max_pages * self.limits.page_size;
        step.prune = (self.state.mark.zip(self.listed.take())).map(|(mark, listed)| Prune {
            sweep: mark.sweep,
            at: mark.at,
            listed,
            newest,
        });
    }

    /// Ends a pass, and moves the mark.
    fn end_pass(&mut self, step: &mut Step) -> Option<Pass> {
        let state = &mut self.state;
        let pass = state.pass.take()?;
        state.mark = pass.next;
        let sweep = state.mark.map_or(0, |mark| mark.sweep);
        state.marks.retain(|mark| mark.sweep > sweep);
        self.release(Timestamp::UNIX_EPOCH);
        step.must_save = true;
        Some(pass)
    }
}

// === impl Pass ===

impl Pass {
    /// Notes a failure, and reports whether there were enough. Trouble belongs to one place: only a deeper failure replaces it.
    fn fails(&mut self, is_counted: bool, at: Timestamp) -> bool {
        let place = self.walk.last;
        let is_deeper = |trouble: &Trouble| self.walk.has_passed_trouble && trouble.place != place;
        if self.trouble.as_ref().is_none_or(is_deeper) && is_counted {
            self.trouble = Some(Trouble {
                place,
                since: at,
                failures: 0,
            });
            self.walk.has_passed_trouble = true;
        }
        let Some(trouble) = &mut self.trouble else {
            return false;
        };
        trouble.failures += u32::from(is_counted);
        at.duration_since(trouble.since) >= MAX_TROUBLE.0 && trouble.failures >= MAX_TROUBLE.1
    }

    /// Notes a page that was read. One below the place of the trouble ends it.
    fn passes_trouble(&mut self, page: &ReadPage<'_>) {
        if self.walk.has_passed_trouble {
            self.trouble = None;
        }
        let place = self.trouble.as_ref().and_then(|trouble| trouble.place);
        let mut entries = page.entries.iter();
        self.walk.has_passed_trouble =
            place.is_some_and(|(_, id)| entries.any(|entry| entry.id == id));
    }

    /// Notes the sweeps of whose entries it has met one.
    fn passes_edges(&mut self, page: &ReadPage<'_>) {
        let is_below = |edge: &u32| !page.entries.iter().any(|entry| is_settled(entry, *edge));
        self.edge = self.edge.filter(is_below);
        self.must_meet = self.must_meet.filter(is_below);
    }
}

/// Reports whether an entry was settled by the sweep of this number, or an earlier one.
fn is_settled(entry: &Entry<'_>, sweep: u32) -> bool {
    matches!(entry.seen, Seen::Settled(number) if number <= sweep)
}

/// Reports whether an entry was settled by a mark, and is not newer.
fn is_covered(entry: &Entry<'_>, mark: Option<Mark>) -> bool {
    mark.is_some_and(|mark| is_settled(entry, mark.sweep) && entry.at <= mark.at)
}

/// Returns a duration that can be compared with the time between two timestamps.
fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
