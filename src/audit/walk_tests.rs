//! What the tail requests next, page by page: entry `n` was created in second `n`, and the present is second 10,000.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::entry::Entry;
use super::start::Start;
use super::state::TailState;
use super::sweep::{Cause, Limits, Page, Problem, Request, Step, Task, Walks};
use crate::ledger::{Disposition, EventId, GapReason, Seen};

const NOW: i64 = 10_000;
const DAY: i64 = 24 * 3600;

/// A tail and what its ledger holds.
struct Tail {
    walks: Walks,
    /// Whether a known entry is settled.
    known: HashMap<u64, bool>,
    /// This machine's clock, in seconds.
    at: i64,
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

fn limits() -> Limits {
    Limits {
        page_size: 100,
        interval: Duration::from_secs(5),
        window: Duration::from_secs(100),
        start: Start::Now,
        created_at: time(NOW),
        max_pages: 10,
        enough_older: 20,
        max_older: 200,
    }
}

// === impl Tail ===

impl Tail {
    fn new(limits: Limits) -> Self {
        Self {
            walks: Walks::new(TailState::default(), limits, None, ""),
            known: HashMap::new(),
            at: NOW,
        }
    }

    /// A tail that has read a listing of ten entries, up to number 1000.
    fn synced() -> Self {
        let mut tail = Self::new(limits());
        tail.page(Task::Sweep, (991..=1000).rev(), Nothing);
        tail
    }

    /// One that wants history, before its first sync.
    fn historian() -> Self {
        let start = Start::At(time(500));
        Self::new(Limits { start, ..limits() })
    }

    /// The same when a page of history was read: down to entry 981.
    fn with_history() -> Self {
        let mut tail = Self::historian();
        tail.page(Task::Sweep, (991..=1000).rev(), More);
        tail.page(Task::History, (981..=990).rev(), More);
        tail
    }

    /// A synced one with a pass that has read a page: down to entry 991.
    fn in_a_pass() -> Self {
        let mut tail = Self::synced();
        tail.page(Task::Pass, (991..=1000).rev(), More);
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
                Some(false) => Seen::Unsettled,
                Some(true) => Seen::Settled,
            };
            entry
        });
        // Of a page that the API has filtered to nothing, any other.
        let cursor = ids.last().map_or(self.at.to_string(), u64::to_string);
        let mut page = Page {
            entries: entries.collect(),
            end: Some(cursor).filter(|_| !matches!(below, Nothing)),
            has_more: matches!(below, More),
            now: time(NOW),
            as_of: time(self.at),
            requested_at: time(self.at),
            at: time(self.at),
        };
        let step = self.walks.page(&request, &mut page);
        let learned = step.take.iter().filter(|_| task != Task::History);
        let learned: Vec<u64> = learned.map(|(index, _)| ids[*index]).collect();
        self.known.extend(learned.into_iter().map(|id| (id, false)));
        if step.settles {
            self.known
                .values_mut()
                .for_each(|is_settled| *is_settled = true);
        }
        step
    }

    /// The request of a task fails.
    fn fail(&mut self, task: Task, cause: Cause) -> Step {
        let request = self.walks.request(task).unwrap();
        self.walks.failed(&request, cause, time(self.at))
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

    /// Each second, sweeps read the top and the request of a task fails. Returns the number of failures at which it is given up.
    fn given_up_after(&mut self, task: Task, seconds: i64, failures: u32) -> Option<u32> {
        (1..=failures).find(|_| {
            self.at += seconds;
            self.page(Task::Sweep, (991..=1000).rev(), Nothing);
            self.fail(task, Cause::Page).gap.is_some()
        })
    }
}

#[test]
fn an_end_that_the_page_before_denies_is_believed_after_a_minute_and_eight_answers() {
    // Seconds between two answers, and the number of the answer that is believed.
    for (seconds, expected) in [(1, 61), (10, 8), (0, 500)] {
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
}

#[test]
fn a_cursor_older_than_ten_minutes_ends_nothing() {
    for (age, is_end) in [(600, true), (601, false)] {
        let mut tail = Tail::synced();
        tail.page(Task::Pass, (991..=1000).rev(), Perhaps);
        assert_eq!(tail.below(Task::Pass), Some(991));
        tail.at += age;
        let step = tail.page(Task::Pass, [], Nothing);
        assert_eq!(!tail.is_in_pass(), is_end, "{age} s");
        assert_eq!(step.problem.is_none(), is_end);
        assert_eq!(tail.below(Task::Pass), None);
    }
}

/// As if the API no longer knew the cursor.
#[test]
fn the_newest_page_in_place_of_the_one_below_begins_the_walk_again() {
    for task in [Task::Sweep, Task::Pass] {
        let mut tail = Tail::synced();
        tail.page(task, (1001..=1010).rev(), More);
        let step = tail.page(task, (1001..=1010).rev(), More);
        assert_eq!(step.problem, Some(Problem::CursorLost));
        assert_eq!(tail.below(task), None);
    }
    // A page of one entry, and a cursor that includes it.
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, [1001], More);
    let step = tail.page(Task::Sweep, (995..=1001).rev(), More);
    assert_eq!(step.problem, None);
    assert!(step.settles);
}

#[test]
fn a_pass_requests_a_page_that_fails_again_in_place_for_two_minutes_or_its_interval() {
    for (interval, patience) in [(5, 120), (300, 300)] {
        let interval = Duration::from_secs(interval);
        let mut tail = Tail::new(Limits {
            interval,
            ..limits()
        });
        tail.page(Task::Sweep, (991..=1000).rev(), Nothing);
        for _ in 0..2 {
            tail.page(Task::Pass, (991..=1000).rev(), More);
            for (seconds, below) in [(0, Some(991)), (patience - 1, Some(991)), (1, None)] {
                tail.at += seconds;
                tail.fail(Task::Pass, Cause::Page);
                assert_eq!(tail.below(Task::Pass), below, "{patience} {seconds} s");
            }
        }
    }
    let mut tail = Tail::with_history();
    tail.at += 5000;
    tail.fail(Task::History, Cause::Page);
    assert_eq!(tail.below(Task::History), Some(981));
}

#[test]
fn a_walk_is_given_up_after_a_day_and_a_hundred_failures() {
    // Seconds between two failures, and the number of the last one.
    for (seconds, expected) in [(DAY / 100, 100), (DAY / 200, 200), (DAY, 100)] {
        let mut tail = Tail::in_a_pass();
        let last = tail.given_up_after(Task::Pass, seconds, 300);
        assert_eq!(last, Some(expected), "{seconds} s");
        assert!(!tail.is_in_pass());
        let mut tail = Tail::historian();
        tail.page(Task::Sweep, (991..=1000).rev(), More);
        let last = tail.given_up_after(Task::History, seconds, 300);
        assert_eq!(last, Some(expected), "{seconds} s");
        assert!(tail.walks.request(Task::History).is_none());
    }
    // One that goes on is not.
    let mut tail = Tail::with_history();
    tail.given_up_after(Task::History, DAY, 99);
    tail.page(Task::Sweep, [1000], More);
    tail.page(Task::History, (971..=980).rev(), More);
    assert_eq!(tail.given_up_after(Task::History, 1, 200), None);
}

#[test]
fn a_gap_says_what_was_given_up_and_the_next_pass_does_not_go_there_again() {
    let mut tail = Tail::in_a_pass();
    tail.page(Task::Sweep, (1001..=1010).rev().chain([1000]), More);
    tail.given_up_after(Task::Pass, DAY, 99);
    tail.page(Task::Sweep, [1010], More);
    let gap = tail.fail(Task::Pass, Cause::Page).gap.unwrap();
    assert_eq!(gap.reason, GapReason::Unreadable);
    assert_eq!(gap.from, Some(time(900)));
    // Nothing that is older than the window, counted from the newest entry.
    assert!(tail.walks.state.mark >= Some(time(909)));

    let mut tail = Tail::with_history();
    tail.given_up_after(Task::History, DAY, 99);
    tail.page(Task::Sweep, [1000], More);
    let gap = tail.fail(Task::History, Cause::Page).gap.unwrap();
    assert_eq!(gap.reason, GapReason::UnreadableHistory);
    assert_eq!((gap.from, gap.to), (Some(time(500)), Some(time(990))));
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
fn nothing_else_is_requested_while_a_sweep_is_under_way() {
    let mut tail = Tail::with_history();
    let requests = |tail: &Tail| Task::ALL.map(|task| tail.walks.request(task).is_some());
    assert_eq!(requests(&tail), [true, true, true]);
    tail.page(Task::Sweep, (1090..=1100).rev(), More);
    assert_eq!(requests(&tail), [true, false, false]);
    tail.page(Task::Sweep, (991..1090).rev(), More);
    assert_eq!(requests(&tail), [true, true, true]);
    assert_eq!(requests(&Tail::new(limits())), [true, false, false]);
    assert_eq!(requests(&Tail::synced()), [true, true, false]);
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
        let id = 990 - page as u64;
        tail.page(Task::Pass, [id], More);
        assert_eq!(tail.limit(Task::Pass), limit);
    }
    for limit in [5, 2, 1, 1] {
        tail.fail(Task::Sweep, Cause::Page);
        assert_eq!(tail.limit(Task::Sweep), limit);
        tail.fail(Task::Sweep, Cause::Unreachable);
        assert_eq!(tail.limit(Task::Sweep), limit);
    }
}

/// An inclusive cursor brings one entry that is known.
#[test]
fn the_smallest_page_has_one_entry_at_the_top_of_a_sweep_and_two_elsewhere() {
    for (task, before, smallest) in [
        (Task::Sweep, None, 1),
        (Task::Sweep, Some("1001"), 2),
        (Task::Pass, None, 2),
        (Task::Pass, Some("1001"), 2),
    ] {
        for (limit, can_shrink) in [(smallest + 1, true), (smallest, false)] {
            let before = before.map(str::to_owned);
            let request = Request {
                task,
                before,
                limit,
            };
            assert_eq!(Walks::can_shrink(&request), can_shrink, "{request:?}");
        }
    }
}

#[test]
fn changed_filters_begin_with_a_first_sync_and_what_came_meanwhile_is_history() {
    let mut tail = Tail::with_history();
    let state = tail.walks.state.clone();
    tail.walks = Walks::new(state.clone(), limits(), None, "");
    assert!(!tail.walks.is_sweeping());
    tail.walks = Walks::new(state, limits(), None, "others");
    assert!(tail.walks.is_sweeping() && !tail.walks.state.is_history_complete());
    let step = tail.page(Task::Sweep, [1030, 1020, 1000, 900, 400], More);
    let expected = [
        (0, Disposition::History),
        (1, Disposition::History),
        // The history of before was still to read it.
        (3, Disposition::History),
        (4, Disposition::Ignored),
    ];
    assert_eq!(step.take, expected);
    // Down to where the last pass had begun, and then the history of before, from its top.
    assert_eq!(tail.below(Task::History), Some(400));
    tail.page(Task::History, (100..300).rev(), More);
    assert_eq!(tail.below(Task::History), None);
    assert!(!tail.walks.state.is_history_complete());
    // A listing of one page has no history.
    let mut tail = Tail::with_history();
    tail.walks = Walks::new(tail.walks.state, limits(), None, "others");
    tail.page(Task::Sweep, [1030, 1020], Nothing);
    assert!(tail.walks.state.is_history_complete());
}

#[test]
fn history_after_an_empty_first_page_waits_until_something_is_listed() {
    let mut tail = Tail::historian();
    tail.page(Task::Sweep, [], Nothing);
    assert!(tail.walks.state.is_synced && !tail.walks.state.is_history_complete());
    assert!(tail.walks.request(Task::History).is_none());
    tail.page(Task::Sweep, [900], Nothing);
    tail.page(Task::Sweep, [900], Nothing);
    let step = tail.page(Task::History, [900, 800, 400], Nothing);
    assert_eq!(step.take, [(1, Disposition::History)]);
    assert!(tail.walks.state.is_history_complete());
}

#[test]
fn history_goes_on_below_the_first_sync() {
    let mut tail = Tail::historian();
    let step = tail.page(Task::Sweep, (991..=1000).rev(), More);
    assert!(
        step.take
            .iter()
            .all(|(_, taken)| *taken == Disposition::History)
    );
    assert_eq!(tail.below(Task::History), Some(991));
    assert_eq!(tail.walks.waiting_since(), Some(time(NOW)));
    // An inclusive cursor, and an entry before the start. Newer entries are no history.
    let step = tail.page(Task::History, [992, 991, 990, 500, 499, 1001], Nothing);
    assert_eq!(step.problem, Some(Problem::EndsEarly));
    let step = tail.page(Task::History, [992, 991, 990, 500, 499, 1001], Perhaps);
    let taken: Vec<usize> = step.take.iter().map(|(index, _)| *index).collect();
    assert_eq!(taken, [2, 3]);
    tail.page(Task::History, [], Nothing);
    assert!(tail.walks.state.is_history_complete());
    assert_eq!(tail.walks.waiting_since(), None);
    // The newest entry again, because the first page had no other.
    let mut tail = Tail::historian();
    tail.page(Task::Sweep, [1000], More);
    let step = tail.page(Task::History, [1000, 999], More);
    assert_eq!((step.problem, step.take.len()), (None, 1));
}

#[test]
fn without_a_start_or_without_older_entries_there_is_no_history() {
    for (start, below) in [
        (Start::Now, More),
        (Start::At(time(1000)), More),
        (Start::Oldest, Nothing),
    ] {
        let mut tail = Tail::new(Limits { start, ..limits() });
        tail.page(Task::Sweep, (991..=1000).rev(), below);
        assert!(tail.walks.request(Task::History).is_none(), "{start}");
        assert!(tail.walks.state.is_history_complete());
    }
}

#[test]
fn history_ends_after_many_entries_in_a_row_that_are_too_old() {
    let mut tail = Tail::with_history();
    let old = |first: u64| (first..first + 100).rev();
    tail.page(Task::History, old(300), More);
    tail.page(Task::History, [600], More);
    tail.page(Task::History, old(200), More);
    assert!(tail.walks.request(Task::History).is_some());
    tail.page(Task::History, old(100), More);
    assert!(tail.walks.request(Task::History).is_none());
}

/// Ids of history are not kept.
#[test]
fn a_history_that_begins_again_takes_nothing_twice_but_its_last_page() {
    let mut tail = Tail::with_history();
    for last in [971, 961] {
        tail.page(Task::History, (last..last + 10).rev(), More);
        tail.fail(Task::History, Cause::Rejected);
        assert_eq!(tail.below(Task::History), None);
        let step = tail.page(Task::History, (990..=1005).rev(), More);
        assert_eq!(step.take, []);
        let step = tail.page(Task::History, (last + 5..990).rev(), More);
        assert_eq!(step.take.len(), 5);
    }
    let step = tail.page(Task::History, (955..966).rev(), More);
    assert_eq!(step.take.len(), 11);
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

#[test]
fn what_may_have_been_there_before_the_first_sync_is_never_counted() {
    let mut tail = Tail::new(limits());
    tail.page(Task::Sweep, (991..=1000).rev(), More);
    // The first sync has not met them, but what is not older than its last entry.
    for id in [991, 992, 1000] {
        tail.known.remove(&id);
    }
    let step = tail.page(Task::Sweep, [1001, 985], More);
    assert_eq!(
        step.take,
        [(0, Disposition::Live), (1, Disposition::Backdated)]
    );
    assert!(!step.settles);
    let step = tail.page(Task::Sweep, [1000, 999, 992, 991, 984], More);
    assert_eq!(
        step.take,
        [(0, Disposition::Backdated), (2, Disposition::Backdated)]
    );
    // What was there before ends a sweep, too.
    assert!(step.settles);
}

#[test]
fn what_appears_late_within_the_page_of_the_first_sync_is_delivered() {
    let mut tail = Tail::historian();
    tail.page(Task::Sweep, [1000, 999, 996, 991], More);
    let step = tail.page(Task::Pass, [1000, 999, 998, 996, 995, 991, 990], More);
    assert_eq!(
        step.take,
        [(2, Disposition::Backdated), (4, Disposition::Backdated)]
    );
    // What the pass has taken is not history, and it will not take what history takes, in order of arrival too.
    let step = tail.page(Task::History, [994, 998, 990], More);
    assert_eq!(
        (step.take, step.forgets),
        (
            vec![(0, Disposition::History), (2, Disposition::History)],
            false
        )
    );
    let step = tail.page(Task::History, [989, 988], More);
    assert!(step.forgets);
}

#[test]
fn what_a_sweep_leaves_out_is_taken_by_a_pass_down_to_the_mark() {
    let mut tail = Tail::synced();
    tail.page(Task::Sweep, (1150..1160).rev().chain([1000]), More);
    // They came late, below what is settled.
    let step = tail.page(Task::Pass, [1159, 1100, 1050], More);
    assert_eq!(step.take, [(1, Disposition::Late), (2, Disposition::Late)]);
    // Entries that are not newer than the first sync do not count. In the window before it, it met all that was there.
    let step = tail.page(Task::Pass, [1001, 1000, 999, 901, 900, 899], More);
    assert_eq!(
        step.take,
        [(0, Disposition::Late), (3, Disposition::Backdated)]
    );
    // After 20 older ones it has gone far enough.
    tail.page(Task::Pass, (882..=898).rev(), More);
    assert!(tail.is_in_pass());
    let step = tail.page(Task::Pass, [881], More);
    assert!(!tail.is_in_pass());
    // The next one goes down to the window before the newest entry of this one.
    let prune = step.prune.unwrap();
    assert_eq!(
        prune.before,
        time(1059) - jiff::SignedDuration::from_micros(1)
    );
    let met = [1100, 1050, 1000].map(|id| prune.met.contains(&EventId(id)));
    assert_eq!(met, [false, true, true]);
    let step = tail.page(Task::Pass, [1159, 1060, 1059, 1058], More);
    assert_eq!(step.take, [(1, Disposition::Late), (2, Disposition::Late)]);
}

#[test]
fn a_pass_takes_all_that_a_cut_sweep_left_out_whatever_its_date() {
    let mut tail = Tail::synced();
    let newest = (1150..1160).rev();
    tail.page(Task::Sweep, newest.clone().chain([1000]), More);
    tail.page(Task::Pass, newest.chain((850..=1000).rev()), More);
    assert!(!tail.is_in_pass());
    tail.at += 10;
    tail.page(Task::Sweep, [1300], Nothing);
    assert!(tail.walks.needs_pass());
    // Below the edge it takes nothing that is older than the mark.
    let step = tail.page(Task::Pass, [1300, 1050, 1159, 1051], More);
    assert_eq!(step.take, [(1, Disposition::Live)]);
}

/// `orgdata_audit_complete_through` is when the top was read, not when the last page came.
#[test]
fn what_was_listed_when_a_pass_or_a_sweep_began_is_complete_when_it_ends() {
    let mut tail = Tail::synced();
    let through = |tail: &mut Tail, task, ids: &[u64], below| {
        tail.at += 10;
        tail.page(task, ids.iter().copied(), below);
        let through = tail.walks.state.complete_through.unwrap();
        through.duration_since(time(NOW)).as_secs()
    };
    for (task, ids, below, expected) in [
        (Task::Sweep, &[1002, 1001][..], More, 0),
        (Task::Sweep, &[1000], More, 10),
        (Task::Sweep, &[1300], Nothing, 10),
        (Task::Pass, &[1300, 1299], More, 10),
        (Task::Sweep, &[1300], More, 10),
        (Task::Pass, &[1002, 1001, 1000], Perhaps, 10),
        (Task::Pass, &[], Nothing, 40),
        (Task::Sweep, &[1300], More, 80),
    ] {
        assert_eq!(through(&mut tail, task, ids, below), expected, "{ids:?}");
    }
}

#[test]
fn a_listing_that_has_lost_what_was_read_before_is_a_gap() {
    let mut tail = Tail::synced();
    let step = tail.page(Task::Sweep, (1100..1110).rev(), Nothing);
    assert!(step.is_cut && tail.walks.needs_pass());
    assert!(tail.walks.waiting_since().is_some());
    let step = tail.page(Task::Pass, (1100..1110).rev(), Nothing);
    let gap = step.gap.unwrap();
    assert_eq!(gap.reason, GapReason::Retention);
    assert_eq!((gap.from, gap.to), (Some(time(NOW)), Some(time(1100))));
    assert!(!tail.walks.needs_pass() && tail.walks.waiting_since().is_none());
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
        tail.at += outage;
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
        assert_eq!(tail.walks.state.behind_since(), None);
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
    for page in 1..=10 {
        tail.at += 1;
        let step = tail.page(Task::Sweep, [], More);
        assert_eq!((step.is_cut, step.must_save), (page == 10, page == 10));
    }
}

#[test]
fn what_is_not_newer_than_a_pruned_id_is_not_counted() {
    let mut tail = Tail::synced();
    for newest in [None, Some(time(1005)), Some(time(1003)), None] {
        tail.walks.pruned(newest);
    }
    let step = tail.page(Task::Sweep, [1006, 1005, 1000], More);
    assert_eq!(
        step.take,
        [(0, Disposition::Live), (1, Disposition::Backdated)]
    );
}
