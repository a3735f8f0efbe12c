//! What the tail requests next, page by page: entry `n` was created in second `n`, and the present is second 10,000 unless a test says otherwise.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::entry::Entry;
use super::start::Start;
use super::state::{Mark, TailState};
use super::sweep::{Cause, Problem, ReadPage, Step, Task, WalkSettings, Walks};
use crate::ledger::{Disposition, EventId, GapReason, Seen};

const NOW: i64 = 10_000;
const DAY: i64 = 24 * 3600;

/// A tail and what its ledger holds.
struct Tail {
    walks: Walks,
    /// The number of the sweep that settles each known entry.
    known: HashMap<u64, u32>,
    /// The API's clock and this machine's, in seconds.
    now: i64,
    at: i64,
    /// The ledger is full of ids.
    is_full: bool,
}

/// What a page says about the ones below it.
#[derive(Clone, Copy)]
enum Below {
    More,
    /// There is a cursor, but `hasMore` is false.
    Perhaps,
    Nothing,
}
use Below::{More, Nothing, Perhaps};

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn limits() -> WalkSettings {
    WalkSettings {
        page_size: 100,
        interval: Duration::from_secs(5),
        window: Duration::from_secs(100),
        start: Start::Now,
        created_at: time(NOW),
        max_pages: 10,
        max_older: 200,
    }
}

// === impl Tail ===

impl Tail {
    fn new(limits: WalkSettings) -> Self {
        Self {
            walks: Walks::new(TailState::default(), limits, None, ""),
            known: HashMap::new(),
            now: NOW,
            at: NOW,
            is_full: false,
        }
    }

    /// A tail that has read a listing of ten entries, up to number 1000.
    fn synced() -> Self {
        let mut tail = Self::new(limits());
        tail.page(Task::Sweep, (991..=1000).rev(), Nothing);
        tail
    }

    /// The same a window later: what was settled is ground.
    fn with_ground() -> Self {
        let mut tail = Self::synced();
        tail.now += 101;
        tail.page(Task::Pass, (991..=1000).rev(), Nothing);
        assert_eq!(tail.walks.state.mark.map(|mark| mark.sweep), Some(1));
        tail
    }

    /// One that wants history down to entry 500, after its first sync.
    fn historian() -> Self {
        let start = Start::At(time(500));
        let mut tail = Self::new(WalkSettings { start, ..limits() });
        tail.page(Task::Sweep, (991..=1000).rev(), More);
        tail
    }

    /// A synced one with a pass that has read a page: down to entry 1091.
    fn in_a_pass() -> Self {
        let mut tail = Self::with_ground();
        tail.page(Task::Sweep, (1091..=1100).rev().chain([1000]), More);
        tail.page(Task::Pass, (1091..=1100).rev(), More);
        tail
    }

    /// Answers the request of a task.
    fn page(&mut self, task: Task, ids: impl IntoIterator<Item = u64>, below: Below) -> Step {
        let request = self.walks.request(task).unwrap();
        let ids: Vec<u64> = ids.into_iter().collect();
        let entries = ids.iter().map(|id| {
            let mut entry = Entry::new(EventId(*id), Some(time(id.cast_signed())));
            entry.seen = match self.known.get(id) {
                None => Seen::Unknown,
                Some(sweep) if *sweep <= self.walks.state.sweeps => Seen::Settled(*sweep),
                Some(_) => Seen::Unsettled,
            };
            entry
        });
        // Of a page that the API has filtered to nothing, any other.
        let cursor = ids.last().map_or(self.at.to_string(), u64::to_string);
        let mut page = ReadPage {
            entries: entries.collect(),
            end: Some(cursor).filter(|_| !matches!(below, Nothing)),
            has_more: matches!(below, More),
            now: time(self.now),
            as_of: time(self.now),
            requested_at: time(self.at),
            at: time(self.at),
            is_full: self.is_full,
        };
        let step = self.walks.page(&request, &mut page);
        let sweep = self.walks.state.sweeps + u32::from(!step.settles);
        let learned = step.take.iter().map(|(index, _)| (ids[*index], sweep));
        self.known.extend(learned);
        step
    }

    /// The request of a task fails.
    fn fail(&mut self, task: Task, cause: Cause) -> Step {
        let request = self.walks.request(task).unwrap();
        self.walks.failed(&request, cause, time(self.at))
    }

    /// The answer to the request of a task is too large. Reports whether a smaller one can be requested.
    fn too_large(&mut self, task: Task) -> bool {
        let request = self.walks.request(task).unwrap();
        self.walks.too_large(&request)
    }

    /// Where the request of a task begins: below this entry, or at the top of the listing.
    fn below(&self, task: Task) -> Option<u64> {
        let cursor = self.walks.request(task).unwrap().before?;
        Some(cursor.parse().unwrap())
    }

    /// How many entries a task requests.
    fn limit(&self, task: Task) -> u32 {
        self.walks.request(task).unwrap().limit
    }

    fn is_in_pass(&self) -> bool {
        self.walks.state.pass.is_some()
    }

    fn is_behind(&self) -> bool {
        self.walks.state.behind_since().is_some()
    }

    /// A sweep of what is known.
    fn quiet(&mut self) {
        let newest = self.known.keys().max().copied();
        self.page(Task::Sweep, newest, More);
    }

    /// Each time, a sweep reads the top and the request of a pass fails. Returns the number of failures at which it is given up.
    fn given_up_after(&mut self, seconds: i64, failures: u32) -> Option<u32> {
        (1..=failures).find(|_| {
            self.at += seconds;
            self.quiet();
            self.fail(Task::Pass, Cause::Page).gap.is_some()
        })
    }
}

fn all(step: &Step, expected: Disposition) -> bool {
    step.take.iter().all(|(_, taken)| *taken == expected)
}

/// Pages of a small organization, of which only an empty one contradicts the page before.
#[test]
fn an_empty_page_that_the_page_before_denies_is_believed_after_a_minute() {
    for (seconds, expected) in [(1, 61), (10, 7), (60, 2)] {
        let mut tail = Tail::in_a_pass();
        let mut answers = 0;
        while tail.is_in_pass() && answers < 500 {
            tail.at += if answers == 0 { 1 } else { seconds };
            let step = tail.page(Task::Pass, [], Nothing);
            answers += 1;
            assert_eq!(step.problem.is_some(), tail.is_in_pass());
        }
        assert_eq!(answers, expected, "{seconds} s");
    }
    let mut tail = Tail::in_a_pass();
    let step = tail.page(Task::Pass, (991..=1000).rev(), Nothing);
    assert!(step.problem.is_none() && !tail.is_in_pass());
}

/// Pages that are filtered after they were cut end like that. The second cursor is another one.
#[test]
fn an_empty_page_with_a_cursor_ends_nothing_unless_the_page_before_did_not_say_that_there_is_more()
{
    let mut tail = Tail::in_a_pass();
    for (is_in_pass, below) in [
        (true, Perhaps),
        (true, More),
        (true, Perhaps),
        (false, Perhaps),
    ] {
        tail.at += 1;
        let step = tail.page(Task::Pass, [], below);
        assert!(step.problem.is_none());
        assert_eq!(tail.is_in_pass(), is_in_pass);
    }
}

/// What is below it may still be there: the newest entries may be those that a filter takes out.
#[test]
fn an_empty_first_page_with_a_cursor_does_not_end_a_sweep() {
    let mut tail = Tail::synced();
    let step = tail.page(Task::Sweep, [], Perhaps);
    assert!(step.problem.is_none() && tail.walks.is_sweeping());
}

#[test]
fn a_cursor_older_than_ten_minutes_ends_nothing() {
    for (age, is_end) in [(600, true), (601, false)] {
        let mut tail = Tail::with_ground();
        tail.page(Task::Sweep, (1091..=1100).rev().chain([1000]), More);
        tail.page(Task::Pass, (1091..=1100).rev(), Perhaps);
        assert_eq!(tail.below(Task::Pass), Some(1091));
        tail.at += age;
        let step = tail.page(Task::Pass, [], Nothing);
        assert_eq!(!tail.is_in_pass(), is_end, "{age} s");
        assert_eq!(step.problem.is_none(), is_end);
        assert_eq!(tail.below(Task::Pass), None);
    }
}

#[test]
fn a_pass_requests_a_page_that_fails_again_in_place_for_two_minutes_or_its_interval() {
    for (interval, patience) in [(5, 120), (300, 300)] {
        let mut tail = Tail::with_ground();
        let limits = WalkSettings {
            interval: Duration::from_secs(interval),
            ..limits()
        };
        tail.walks = Walks::new(tail.walks.state, limits, None, "");
        tail.page(Task::Sweep, [1100, 1000], More);
        for _ in 0..2 {
            tail.page(Task::Pass, [1100], More);
            for (seconds, below) in [(0, Some(1100)), (patience - 1, Some(1100)), (1, None)] {
                tail.at += seconds;
                tail.fail(Task::Pass, Cause::Page);
                assert_eq!(tail.below(Task::Pass), below, "{patience} {seconds} s");
            }
        }
    }
    // A history is not begun again, only because a page fails.
    let mut tail = Tail::historian();
    tail.page(Task::Pass, (981..=1000).rev(), More);
    tail.at += 5000;
    tail.fail(Task::Pass, Cause::Page);
    assert_eq!(tail.below(Task::Pass), Some(981));
    tail.fail(Task::Pass, Cause::Rejected);
    assert_eq!(tail.below(Task::Pass), None);
}

#[test]
fn a_pass_is_given_up_after_a_day_and_a_hundred_failures_of_one_page() {
    // Seconds between two failures, and the number of the last one.
    for (seconds, expected) in [(DAY / 98, 100), (DAY / 200, 201), (DAY, 100)] {
        let mut tail = Tail::in_a_pass();
        assert_eq!(
            tail.given_up_after(seconds, 300),
            Some(expected),
            "{seconds} s"
        );
        assert!(!tail.is_in_pass() && !tail.is_behind());
    }
    // A page below that place ends the trouble, however many fail.
    let mut tail = Tail::historian();
    tail.page(Task::Pass, (981..=1000).rev(), More);
    for page in (510..=980).rev().step_by(10).take(40) {
        assert_eq!(tail.given_up_after(DAY / 4, 3), None, "{page}");
        tail.page(Task::Pass, (page - 9..=page).rev(), More);
    }
    // One above it does not, after a refused cursor.
    let mut tail = Tail::in_a_pass();
    assert_eq!(tail.given_up_after(DAY, 50), None);
    tail.walks.state.pass.as_mut().unwrap().walk = super::state::Walk::default();
    tail.page(Task::Pass, (1095..=1100).rev(), More);
    assert_eq!(tail.given_up_after(1, 20), None);
    tail.page(Task::Pass, (1091..=1094).rev(), More);
    assert_eq!(tail.given_up_after(1, 100), Some(30));
    // One below it does, also if the cursor is refused later.
    let mut tail = Tail::in_a_pass();
    assert_eq!(tail.given_up_after(DAY, 50), None);
    tail.page(Task::Pass, (1091..=1100).rev(), More);
    tail.page(Task::Pass, (1081..=1090).rev(), More);
    tail.walks.state.pass.as_mut().unwrap().walk = super::state::Walk::default();
    assert_eq!(tail.given_up_after(1, 60), None);
}

#[test]
fn a_gap_says_what_was_given_up_and_later_passes_end_there() {
    let mut tail = Tail::historian();
    tail.page(Task::Pass, (801..=1000).rev(), More);
    tail.given_up_after(DAY, 99);
    tail.quiet();
    let gap = tail.fail(Task::Pass, Cause::Page).gap.unwrap();
    assert_eq!(gap.reason, GapReason::Unreadable);
    assert_eq!((gap.from, gap.to), (Some(time(500)), Some(time(801))));
    let step = tail.page(Task::Pass, (701..=1000).rev(), More);
    assert!(step.take.is_empty() && step.gap.is_none() && !tail.is_in_pass());
    // Also if the last failure is that of the top, where the walk began again.
    let mut tail = Tail::in_a_pass();
    tail.given_up_after(DAY, 99);
    assert_eq!(tail.below(Task::Pass), None);
    tail.quiet();
    let gap = tail.fail(Task::Pass, Cause::Page).gap.unwrap();
    assert_eq!(gap.to, Some(time(1091)));
    assert_eq!(tail.walks.state.dead_end, Some(EventId(1091)));
}

#[test]
fn an_api_that_is_down_gives_up_nothing() {
    let mut tail = Tail::in_a_pass();
    for _ in 0..200 {
        tail.at += DAY;
        let step = tail.fail(Task::Pass, Cause::Page);
        assert!(step.gap.is_none());
    }
    assert!(tail.is_in_pass());
}

/// An answer that is too large is no failure.
#[test]
fn pages_that_are_too_large_stay_small_for_a_while_and_give_up_nothing() {
    let mut tail = Tail::in_a_pass();
    for _ in 0..300 {
        tail.at += DAY;
        tail.quiet();
        tail.too_large(Task::Pass);
    }
    assert!(tail.is_in_pass());
    assert_eq!((tail.limit(Task::Pass), tail.limit(Task::Sweep)), (2, 2));
    assert!(!tail.too_large(Task::Pass) && tail.too_large(Task::Sweep));
    assert!(!tail.too_large(Task::Sweep));
    for page in 1..=512 {
        tail.quiet();
        let expected = [1, 2, 4][page / 256];
        assert_eq!(tail.limit(Task::Sweep), expected, "{page}");
    }
    // Only the top of a sweep is ever requested with a single entry.
    let mut tail = Tail::with_ground();
    for shrinks in [true, true, true, true, true, true, false] {
        assert_eq!(tail.too_large(Task::Pass), shrinks);
    }
    assert_eq!(tail.limit(Task::Pass), 2);
}

#[test]
fn a_sweep_whose_page_fails_three_times_in_a_row_is_cut() {
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, (1090..=1100).rev(), More);
    tail.fail(Task::Sweep, Cause::Page);
    tail.fail(Task::Sweep, Cause::Page);
    tail.page(Task::Sweep, (1080..1090).rev(), More);
    for is_cut in [false, false, true] {
        assert_eq!(tail.below(Task::Sweep), Some(1080));
        assert_eq!(tail.fail(Task::Sweep, Cause::Page).is_cut, is_cut);
    }
    assert!(!tail.walks.is_sweeping() && tail.walks.needs_pass());
}

#[test]
fn a_sweep_is_cut_after_ten_pages() {
    let mut tail = Tail::synced();
    for page in (0..10).rev() {
        let first = 2000 + 10 * page;
        let step = tail.page(Task::Sweep, (first..first + 10).rev(), More);
        assert_eq!(step.is_cut, page == 0, "{page}");
    }
}

#[test]
fn a_sweep_whose_cursor_is_refused_begins_at_the_top() {
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, (1090..=1100).rev(), More);
    for _ in 0..10 {
        let step = tail.fail(Task::Sweep, Cause::Rejected);
        assert!(!step.is_cut && tail.walks.is_sweeping());
        assert_eq!(tail.below(Task::Sweep), None);
    }
}

#[test]
fn a_pass_requests_nothing_while_a_sweep_is_under_way() {
    let mut tail = Tail::in_a_pass();
    let requests =
        |tail: &Tail| [Task::Sweep, Task::Pass].map(|task| tail.walks.request(task).is_some());
    assert_eq!(requests(&tail), [true, true]);
    tail.page(Task::Sweep, (1190..=1200).rev(), More);
    assert_eq!(requests(&tail), [true, false]);
    tail.page(Task::Sweep, (1100..1190).rev(), More);
    assert_eq!(requests(&tail), [true, true]);
    assert_eq!(requests(&Tail::new(limits())), [true, false]);
}

/// A poll of a quiet organization is cheap.
#[test]
fn a_sweep_requests_twice_as_many_entries_as_the_last_one_took() {
    let mut tail = Tail::new(limits());
    assert_eq!(tail.limit(Task::Sweep), 100);
    tail.page(Task::Sweep, (991..=1000).rev(), Nothing);
    for (new, limit) in [(0, 10), (5, 10), (6, 12), (40, 80), (51, 100), (0, 10)] {
        let newest = 1000 + tail.known.len() as u64;
        let ids = (newest..newest + new).rev().chain([1000]);
        let step = tail.page(Task::Sweep, ids, More);
        assert_eq!((step.take.len() as u64, step.settles), (new, true));
        assert_eq!(tail.limit(Task::Sweep), limit, "{new}");
    }
    tail.page(Task::Sweep, (5000..5010).rev(), More);
    assert_eq!(tail.limit(Task::Sweep), 100);
    // Another page of the same sweep.
    tail.page(Task::Sweep, (4970..5000).rev().chain([1000]), More);
    assert_eq!(tail.limit(Task::Sweep), 80);
}

/// Fewer than ten at the top could all be dated ahead, and would hide what is below.
#[test]
fn a_page_that_fails_is_requested_with_half_as_many_entries_and_they_grow_again() {
    let mut tail = Tail::in_a_pass();
    for limit in [50, 25, 12, 6, 3, 2, 2] {
        tail.fail(Task::Pass, Cause::Page);
        assert_eq!(tail.limit(Task::Pass), limit);
        tail.fail(Task::Pass, Cause::Unreachable);
        assert_eq!(tail.limit(Task::Pass), limit);
    }
    for (page, limit) in [4, 8, 16, 32, 64, 100, 100].into_iter().enumerate() {
        let id = 1090 - page as u64;
        tail.page(Task::Pass, [id], More);
        assert_eq!(tail.limit(Task::Pass), limit);
    }
    tail.page(Task::Sweep, (2000..2040).rev().chain([1000]), More);
    for limit in [40, 20, 10, 10] {
        tail.fail(Task::Sweep, Cause::Page);
        assert_eq!(tail.limit(Task::Sweep), limit);
        tail.fail(Task::Sweep, Cause::Unreachable);
        assert_eq!(tail.limit(Task::Sweep), limit);
    }
    // The top of a sweep is a small page, and shows nothing about others.
    let mut tail = Tail::with_ground();
    tail.fail(Task::Pass, Cause::Page);
    tail.quiet();
    assert_eq!(tail.limit(Task::Pass), 50);
    tail.page(Task::Pass, [1100], More);
    assert_eq!(tail.limit(Task::Pass), 100);
}

#[test]
fn other_filters_begin_with_a_first_sync_and_what_came_since_the_last_pass_is_delivered() {
    let mut tail = Tail::with_ground();
    let (state, mark) = (tail.walks.state.clone(), tail.walks.state.mark.unwrap().at);
    tail.walks = Walks::new(state.clone(), limits(), None, "");
    assert!(!tail.walks.is_sweeping());
    tail.walks = Walks::new(state, limits(), None, "others");
    assert!(tail.walks.is_sweeping());
    tail.now += 1000;
    let step = tail.page(Task::Sweep, [10_400, 10_300, 1000, 900], More);
    let expected = [
        (0, Disposition::Backdated),
        (1, Disposition::Backdated),
        (3, Disposition::Ignored),
    ];
    assert_eq!(step.take, expected);
    assert!(tail.is_behind() && tail.walks.state.since == Some(mark));
    // Known entries are no ground.
    let step = tail.page(Task::Pass, [10_300, 1000, 10_200, 999], More);
    assert_eq!(step.take, [(2, Disposition::Backdated)]);
    assert!(tail.is_in_pass());
    tail.page(Task::Pass, (700..900).rev(), More);
    assert!(!tail.is_behind());
    // A listing of one page has no more.
    let mut tail = Tail::with_ground();
    tail.walks = Walks::new(tail.walks.state, limits(), None, "others");
    tail.page(Task::Sweep, [1030, 1020], Nothing);
    assert!(!tail.is_behind());
}

/// The first answer may be an accident.
#[test]
fn an_empty_first_page_is_requested_again_and_believed_then() {
    let start = Start::Ago(Duration::from_secs(DAY as u64));
    for start in [Start::Now, start] {
        let mut tail = Tail::new(WalkSettings { start, ..limits() });
        let step = tail.page(Task::Sweep, [], Nothing);
        assert_eq!(step.problem, Some(Problem::Empty));
        tail.page(Task::Sweep, [], Nothing);
        let state = &tail.walks.state;
        assert!(state.is_synced && !tail.is_behind());
        assert_eq!(state.complete_through, Some(time(NOW)), "{start}");
        // What is listed then came after it, also if it is late.
        let step = tail.page(Task::Sweep, [10_001, 9_995], Nothing);
        let live = Disposition::Live;
        assert_eq!(step.take, [(0, live), (1, live)]);
        assert!(!step.is_cut);
    }
    let mut tail = Tail::new(limits());
    tail.page(Task::Sweep, [], Nothing);
    let step = tail.page(Task::Sweep, (991..=1000).rev(), More);
    assert!(all(&step, Disposition::Ignored) && tail.walks.state.is_synced);
}

#[test]
fn history_begins_with_the_entries_of_its_start() {
    let mut tail = Tail::new(WalkSettings {
        start: Start::At(time(1000)),
        ..limits()
    });
    let step = tail.page(Task::Sweep, [1000, 999], More);
    let expected = [(0, Disposition::Backdated), (1, Disposition::Ignored)];
    assert_eq!(step.take, expected);
}

#[test]
fn history_is_the_first_pass() {
    let mut tail = Tail::new(WalkSettings {
        start: Start::At(time(500)),
        ..limits()
    });
    let step = tail.page(Task::Sweep, (991..=1000).rev(), More);
    assert!(step.take.len() == 10 && all(&step, Disposition::Backdated));
    let held_since = |tail: &Tail| tail.walks.state.held_since;
    assert!(tail.is_behind() && held_since(&tail) == Some(time(NOW)));
    let through = |tail: &Tail| tail.walks.state.complete_through;
    assert_eq!(through(&tail), None);
    // An entry before the start is not wanted, and newer ones are events.
    tail.page(Task::Pass, (991..=1000).rev(), More);
    let step = tail.page(Task::Pass, [991, 990, 500, 499, 1001], More);
    let expected = [
        (1, Disposition::Backdated),
        (2, Disposition::Backdated),
        (4, Disposition::Late),
    ];
    assert_eq!(step.take, expected);
    tail.page(Task::Pass, (300..499).rev(), More);
    assert!(tail.is_in_pass());
    tail.page(Task::Pass, [299, 298], More);
    assert!(!tail.is_behind() && held_since(&tail).is_none());
    assert_eq!(through(&tail), Some(time(NOW)));
    // The next one goes down to a window before the first sync.
    assert_eq!(tail.walks.state.since, Some(time(1000)));
}

#[test]
fn without_a_start_or_without_older_entries_there_is_no_history() {
    for (start, below) in [
        (Start::Now, More),
        (Start::At(time(1001)), More),
        (Start::Oldest, Nothing),
    ] {
        let mut tail = Tail::new(WalkSettings { start, ..limits() });
        tail.page(Task::Sweep, (991..=1000).rev(), below);
        assert!(!tail.is_behind(), "{start}");
    }
}

#[test]
fn a_settled_entry_ends_a_sweep_and_what_is_below_it_is_late() {
    let mut tail = Tail::synced();
    let step = tail.page(Task::Sweep, [1002, 1001, 1000], More);
    assert!(step.settles && !step.is_cut);
    assert_eq!(step.take, [(0, Disposition::Live), (1, Disposition::Live)]);
    let step = tail.page(Task::Sweep, [1010, 1002, 1005, 1000], More);
    assert_eq!(step.take, [(0, Disposition::Live), (2, Disposition::Late)]);
}

/// Otherwise every event of a quiet organization would be late, for ever.
#[test]
fn one_known_entry_dated_ahead_makes_nothing_late() {
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, [90_000, 1000], More);
    let step = tail.page(Task::Sweep, [90_000, 1001, 1000], More);
    assert_eq!(step.take, [(1, Disposition::Live)]);
    // It ends no sweep that has more to read.
    let step = tail.page(Task::Sweep, [90_000, 1003, 1002], More);
    assert!(!step.settles);
}

#[test]
fn what_may_have_been_there_before_the_first_sync_is_never_counted() {
    let mut tail = Tail::new(limits());
    tail.page(Task::Sweep, (991..=1000).rev(), More);
    // A user has deleted the ones that the first sync has met.
    let step = tail.page(Task::Sweep, [1001, 1000, 985], More);
    assert_eq!(step.take, [(0, Disposition::Live)]);
    // What is older than the first sync needs is as good as known.
    assert!(step.settles);
    for id in [991, 992] {
        tail.known.remove(&id);
    }
    let step = tail.page(Task::Pass, [1001, 1000, 992, 991, 984], More);
    assert_eq!(
        step.take,
        [(2, Disposition::Backdated), (3, Disposition::Backdated)]
    );
}

#[test]
fn a_pass_ends_at_what_was_settled_a_window_ago() {
    let mut tail = Tail::with_ground();
    tail.page(Task::Sweep, (1150..1160).rev().chain([1000]), More);
    // They came late, below what is settled.
    let step = tail.page(Task::Pass, [1159, 1100, 1050], More);
    assert_eq!(step.take, [(1, Disposition::Late), (2, Disposition::Late)]);
    let step = tail.page(Task::Pass, [1001, 1000, 900], More);
    assert_eq!(step.take, [(0, Disposition::Late)]);
    assert!(!tail.is_in_pass() && step.gap.is_none());
    // Both the number and the time: the entry was settled by then, but its date has only now passed.
    for (at, sweep, is_ground) in [(1000, 1, true), (999, 1, false), (1000, 0, false)] {
        let mark = Mark {
            at: time(at),
            sweep,
        };
        tail.walks.state.mark = Some(mark);
        tail.page(Task::Pass, [1159, 1000], More);
        assert_eq!(!tail.is_in_pass(), is_ground, "{at} {sweep}");
        tail.walks.state.pass = None;
    }
}

#[test]
fn the_mark_is_a_sweep_that_ended_a_window_before_the_pass_began() {
    let mut tail = Tail::with_ground();
    // Every eighth of the window is enough.
    for second in 1..=100 {
        tail.now += 1;
        tail.page(Task::Sweep, [1000 + second, 999 + second], More);
    }
    assert_eq!(tail.walks.state.marks.len(), 8);
    tail.now += 50;
    tail.page(Task::Pass, (900..=1100).rev(), More);
    let mark = tail.walks.state.mark.unwrap();
    assert_eq!(mark.at, time(NOW + 102 + 13 * 3));
    assert_eq!(tail.walks.state.marks.len(), 4);
}

#[test]
fn a_clock_that_is_behind_what_was_pruned_makes_no_mark() {
    let mut tail = Tail::with_ground();
    tail.walks.pruned(Some(time(NOW)));
    let marks = tail.walks.state.marks.clone();
    tail.now = NOW - 1;
    tail.quiet();
    assert_eq!(tail.walks.state.marks, marks);
}

#[test]
fn a_pass_takes_all_that_a_cut_sweep_left_out_whatever_its_date() {
    let mut tail = Tail::with_ground();
    let newest = (1150..1160).rev();
    tail.page(Task::Sweep, newest.clone().chain([1000]), More);
    tail.page(Task::Pass, newest.chain((850..=1000).rev()), More);
    assert!(!tail.is_in_pass());
    tail.at += 10;
    tail.page(Task::Sweep, [1300], Nothing);
    assert!(tail.walks.needs_pass());
    // What was left out is not late. An import of old entries is above all that was read before.
    let step = tail.page(Task::Pass, [1300, 50, 1159, 1051, 1000], More);
    assert_eq!(
        step.take,
        [(1, Disposition::Backdated), (3, Disposition::Late)]
    );
    tail.page(Task::Sweep, [1400], Nothing);
    tail.page(Task::Pass, [1400], More);
    let step = tail.page(Task::Pass, (1..40).chain(60..400), More);
    assert!(step.take.len() == 379 && tail.is_in_pass());
    // After the entry that was read before, 200 of them are enough.
    let step = tail.page(Task::Pass, [1159].into_iter().chain(400..600), More);
    assert!(step.gap.is_none() && !tail.is_in_pass());
}

/// Also while a pass reads what it left out, and another sweep is cut.
#[test]
fn the_exporter_is_behind_since_the_first_sweep_that_was_cut() {
    let mut tail = Tail::with_ground();
    let first = tail.at + 10;
    for id in [1300, 1400, 1500] {
        tail.at += 10;
        assert!(tail.page(Task::Sweep, [id], Nothing).is_cut);
        assert_eq!(tail.walks.state.behind_since(), Some(time(first)), "{id}");
        tail.page(Task::Pass, [id], More);
        assert_eq!(tail.walks.state.behind_since(), Some(time(first)), "{id}");
    }
}

/// `orgdata_audit_complete_through` is when the top was read, not when the last page came.
#[test]
fn what_was_listed_when_a_pass_or_a_sweep_began_is_complete_when_it_ends() {
    let mut tail = Tail::with_ground();
    let began = tail.now;
    let through = |tail: &mut Tail, task, ids: &[u64], below| {
        tail.now += 10;
        tail.page(task, ids.iter().copied(), below);
        let through = tail.walks.state.complete_through.unwrap();
        through.duration_since(time(began)).as_secs()
    };
    for (task, ids, below, expected) in [
        (Task::Sweep, &[1002, 1001][..], More, 0),
        (Task::Sweep, &[1000], More, 10),
        (Task::Sweep, &[1300], Nothing, 10),
        (Task::Pass, &[1300, 1299], More, 10),
        (Task::Sweep, &[1300], More, 10),
        (Task::Pass, &[1002, 1001, 1000], More, 40),
        (Task::Sweep, &[1300], More, 70),
    ] {
        assert_eq!(through(&mut tail, task, ids, below), expected, "{ids:?}");
    }
}

#[test]
fn a_listing_that_has_lost_what_was_read_before_is_a_gap() {
    let mut tail = Tail::synced();
    let step = tail.page(Task::Sweep, (1100..1110).rev(), Nothing);
    assert!(step.is_cut && tail.is_behind());
    assert!(tail.walks.state.held_since.is_some());
    let step = tail.page(Task::Pass, (1100..1110).rev(), Nothing);
    let gap = step.gap.unwrap();
    assert_eq!(gap.reason, GapReason::Retention);
    assert_eq!((gap.from, gap.to), (Some(time(NOW)), Some(time(1100))));
    assert!(!tail.is_behind() && tail.walks.state.held_since.is_none());
}

#[test]
fn more_unread_events_than_ids_are_kept_are_a_gap_once() {
    let mut tail = Tail::with_ground();
    tail.page(Task::Sweep, [3000], Nothing);
    tail.is_full = true;
    let step = tail.page(Task::Pass, (2901..=3000).rev(), More);
    let gap = step.gap.unwrap();
    assert_eq!((gap.reason, gap.to), (GapReason::TooMany, Some(time(2901))));
    assert!(gap.message.contains("more new entries than"));
    assert!(step.take.len() == 99 && !tail.is_behind());
    // It makes room, too, but what ten pages of a sweep can meet stays.
    assert_eq!(step.prune.unwrap().newest, 1000);
    tail.quiet();
    let step = tail.page(Task::Pass, (2851..=3000).rev(), More);
    assert!(step.gap.is_none() && step.take.is_empty() && !tail.is_in_pass());
    // History takes no room.
    let mut tail = Tail::historian();
    tail.is_full = true;
    let step = tail.page(Task::Pass, (901..=1000).rev(), More);
    assert!(step.take.len() == 90 && tail.is_in_pass());
}

/// The first answer may be an accident.
#[test]
fn an_empty_listing_is_believed_the_second_time_in_a_row() {
    let mut tail = Tail::synced();
    for was_empty in [false, true] {
        let step = tail.page(Task::Sweep, [], Nothing);
        assert!(!tail.walks.is_sweeping());
        assert_eq!(tail.walks.state.was_empty, was_empty);
        assert_eq!(step.must_save, was_empty);
        assert!(!step.is_cut && !tail.walks.needs_pass());
    }
    // What comes then is no reason to look for what was there before.
    let step = tail.page(Task::Sweep, [1200], Nothing);
    assert!(!step.is_cut && step.must_save);
    assert!(!tail.walks.state.was_empty);
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, [], Nothing);
    tail.page(Task::Sweep, [1000], Nothing);
    tail.page(Task::Sweep, [], Nothing);
    assert!(!tail.walks.state.was_empty);
    // What was below the entries of a sweep that did not end may be lost.
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, [1005, 1004], More);
    tail.fail(Task::Sweep, Cause::Rejected);
    for is_cut in [false, true] {
        let step = tail.page(Task::Sweep, [], Nothing);
        assert_eq!((step.is_cut, step.settles), (is_cut, is_cut));
    }
}

/// What came during the outage may have been deleted, too, unless the empty answers were an accident.
#[test]
fn a_listing_that_is_empty_after_an_outage_leaves_a_gap_unless_it_comes_back() {
    for (outage, newest, has_gap) in [(5, 1200, false), (6, 1200, true), (6, 1000, false)] {
        let mut tail = Tail::synced();
        tail.now += outage;
        for is_cut in [false, outage > 5, false] {
            assert_eq!(tail.page(Task::Sweep, [], Nothing).is_cut, is_cut);
        }
        let step = tail.page(Task::Pass, [], Nothing);
        assert_eq!(step.problem, Some(Problem::Empty));
        let is_waiting = tail.walks.state.complete_through == Some(time(NOW));
        assert_eq!(is_waiting, outage > 5);
        tail.page(Task::Sweep, [newest], Nothing);
        let step = tail.page(Task::Pass, [newest], Nothing);
        assert_eq!(step.gap.is_some(), has_gap, "{outage} {newest}");
        assert!(!tail.is_behind());
    }
}

/// Otherwise a crash would forget it.
#[test]
fn the_end_of_a_sweep_is_stored_if_it_changes_anything() {
    let mut tail = Tail::synced();
    let step = tail.page(Task::Sweep, [1000], More);
    assert!(step.settles && !step.must_save);
    tail.page(Task::Sweep, [1002, 1001], More);
    let step = tail.page(Task::Sweep, [1000], More);
    assert!(step.settles && step.must_save && step.take.is_empty());
    tail.page(Task::Sweep, [], More);
    let step = tail.page(Task::Sweep, [1000], More);
    assert!(step.settles && step.must_save);
    for page in 1..=10 {
        tail.at += 1;
        let step = tail.page(Task::Sweep, [], More);
        assert_eq!((step.is_cut, step.must_save), (page == 10, page == 10));
    }
}

#[test]
fn what_is_not_newer_than_a_pruned_id_is_not_counted() {
    let mut tail = Tail::with_ground();
    for newest in [None, Some(time(1005)), Some(time(1003)), None] {
        tail.walks.pruned(newest);
    }
    let step = tail.page(Task::Sweep, [1006, 1005, 1000], More);
    assert_eq!(
        step.take,
        [(0, Disposition::Live), (1, Disposition::Backdated)]
    );
}

/// A stored state lacks what later versions add, and a field keeps its name.
#[test]
fn a_stored_state_is_read_with_defaults_and_no_field_is_renamed() {
    let stored = include_str!("../../tests/golden/tail.json");
    let state = TailState::from_json(stored).unwrap();
    let written: serde_json::Value = serde_json::from_str(&state.to_json()).unwrap();
    let stored: serde_json::Value = serde_json::from_str(stored).unwrap();
    assert_eq!(written, stored);
    assert!(state.pass.is_some() && state.behind.is_some() && state.mark.is_some());
    let lacking = TailState::from_json(r#"{"is_synced":true,"unheard_of":1}"#).unwrap();
    let expected = TailState {
        is_synced: true,
        ..TailState::default()
    };
    assert_eq!(lacking, expected);
}
