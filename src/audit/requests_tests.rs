//! How much [`Ranges`] asks for, what it repeats, and what single pages mean: random histories end well either way.

use jiff::SignedDuration;

use super::ranges::{Cause, Page, Ranges, Request, Row, Step, Task};
use super::ranges_tests::{self, at};
use super::{Settings, Start};
use crate::ledger::{Disposition, EventId, FirstSync, Range, RangeKind, TailState};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// An entry of the listing.
fn row(id: u64, second: i64, known: bool) -> Row {
    Row {
        id: EventId(id),
        created_at: at(second),
        known,
    }
}

/// An entry that is not known.
fn new(id: u64, second: i64) -> Row {
    row(id, second, false)
}

fn known(id: u64, second: i64) -> Row {
    row(id, second, true)
}

/// A page that was received then, with a cursor that nothing else has.
fn page(rows: impl IntoIterator<Item = Row>, second: i64) -> Page {
    let rows: Vec<Row> = rows.into_iter().collect();
    let lowest = rows.last().map(|row| row.id.0);
    Page {
        end_cursor: lowest.map(|id| format!("below {id}")),
        rows,
        server_time: at(second),
    }
}

/// The last page of the listing.
fn last_page(rows: impl IntoIterator<Item = Row>, second: i64) -> Page {
    Page {
        end_cursor: None,
        ..page(rows, second)
    }
}

fn settings(page_size: u32) -> Settings {
    ranges_tests::settings(page_size, Start::Now, 40)
}

/// A range that was opened by a page whose last entry is 10, of second 10.
fn range(id: i64, kind: RangeKind) -> Range {
    Range {
        id,
        kind,
        cursor: Some("below 10".to_owned()),
        received_at: at(20),
        end: Some(EventId(10)),
        oldest: Some(at(10)),
        lowest: Some(at(10)),
        page: vec![EventId(10)],
        opened_at: at(id),
        failing_since: None,
        filters_changed: false,
        floor: None,
        last_contact: Some(at(0)),
        expected: true,
        older: 0,
        released: false,
        place: id,
    }
}

/// A tail that began at second 0, and has polled since.
fn state(ranges: impl IntoIterator<Item = Range>) -> TailState {
    TailState {
        first_sync: Some(FirstSync {
            at: at(0),
            count_floor: Some(at(0)),
            history_floor: None,
            history_until: None,
            live_after: None,
        }),
        last_poll_at: Some(at(20)),
        reread_at: Some(at(0)),
        ranges: ranges.into_iter().collect(),
        ..TailState::default()
    }
}

fn tail(page_size: u32, ranges: impl IntoIterator<Item = Range>) -> Ranges {
    Ranges::new(state(ranges), settings(page_size), None, true)
}

/// A tail with one range of live events.
fn behind(page_size: u32) -> Ranges {
    tail(page_size, [range(1, RangeKind::CatchUp)])
}

fn next(ranges: &Ranges) -> Request {
    ranges.request(false, false).expect("a request")
}

/// The next request is answered with a page.
fn answer(ranges: &mut Ranges, page: &Page) -> Step {
    let step = ranges.page(&next(ranges), page);
    *ranges = step.next.clone();
    step
}

fn poll(ranges: &mut Ranges, page: &Page) -> Step {
    let request = ranges.request(true, false).expect("a poll");
    assert_eq!(request.task, Task::Poll);
    let step = ranges.page(&request, page);
    *ranges = step.next.clone();
    step
}

fn reread(ranges: &mut Ranges, page: &Page) -> Step {
    let request = ranges.request(false, true).expect("a re-read");
    assert_eq!(request.task, Task::Reread);
    let step = ranges.page(&request, page);
    *ranges = step.next.clone();
    step
}

/// A request fails, and others do not.
fn fail(ranges: &mut Ranges, request: &Request, cause: Cause) {
    assert!(ranges.failed(request, cause, at(30)).is_none());
}

/// The next request fails; returns its limit.
fn fail_next(ranges: &mut Ranges) -> u32 {
    let request = next(ranges);
    fail(ranges, &request, Cause::Page);
    request.limit
}

/// Ids of what is taken, and as what.
fn taken(step: &Step, page: &Page) -> Vec<(u64, Disposition)> {
    let take = step.take.iter();
    take.map(|(at, disposition)| (page.rows[*at].id.0, *disposition))
        .collect()
}

fn ids(step: &Step, page: &Page) -> Vec<u64> {
    taken(step, page).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn a_page_that_fails_is_requested_at_half_its_size() {
    let first = Ranges::new(TailState::default(), settings(8), None, false);
    let mut newest = tail(8, []);
    poll(&mut newest, &page([new(20, 20)], 20));
    let mut search = behind(8);
    let refused = next(&search);
    fail(&mut search, &refused, Cause::Refused);
    for (mut ranges, task, expected) in [
        (first, Task::FirstSync, [8, 4, 2, 1, 1]),
        (newest, Task::Newest, [8, 4, 2, 1, 1]),
        (behind(8), Task::Range(1), [8, 4, 2, 2, 2]),
        (search, Task::Find(1), [8, 4, 2, 2, 2]),
    ] {
        assert_eq!(next(&ranges).task, task);
        let limits: Vec<u32> = (0..5).map(|_| fail_next(&mut ranges)).collect();
        assert_eq!(limits, expected, "{task:?}");
    }
    let mut ranges = tail(8, []);
    let limits: Vec<u32> = (0..5)
        .map(|_| {
            let request = ranges.request(false, true).expect("a re-read");
            fail(&mut ranges, &request, Cause::Page);
            request.limit
        })
        .collect();
    assert_eq!(limits, [8, 4, 2, 2, 2], "a re-read");
}

#[test]
fn small_pages_grow_back_after_eight_of_their_own() {
    let mut ranges = behind(8);
    while fail_next(&mut ranges) > 2 {}
    let mut limits = Vec::new();
    for id in 100..118 {
        // Polls say nothing about larger pages.
        poll(&mut ranges, &page([known(20, 20)], 20));
        limits.push(next(&ranges).limit);
        answer(&mut ranges, &page([new(id, 9)], 20));
    }
    let expected = [(2, 8), (4, 8), (8, 2)];
    let expected = expected.map(|(limit, count)| vec![limit; count]).concat();
    assert_eq!(limits, expected);
    // Never more than the page size.
    for id in 200..220 {
        answer(&mut ranges, &page([new(id, 8)], 20));
    }
    assert_eq!(next(&ranges).limit, 8);
}

#[test]
fn a_failure_between_begins_the_count_of_pages_again() {
    let mut ranges = behind(8);
    for _ in 0..2 {
        assert!(fail_next(&mut ranges) > 2);
    }
    for id in 100..107 {
        answer(&mut ranges, &page([new(id, 9)], 20));
    }
    assert_eq!(fail_next(&mut ranges), 2);
    for id in 110..117 {
        answer(&mut ranges, &page([new(id, 9)], 20));
        assert_eq!(next(&ranges).limit, 2);
    }
}

#[test]
fn eight_failures_lead_back_to_the_top_although_polls_succeed() {
    let mut ranges = behind(8);
    for _ in 0..8 {
        assert_eq!(next(&ranges).task, Task::Range(1));
        fail_next(&mut ranges);
        poll(&mut ranges, &page([new(20, 20)], 20));
        answer(&mut ranges, &page([new(20, 20), known(19, 19)], 20));
    }
    let request = next(&ranges);
    assert_eq!((request.task, request.before), (Task::Find(1), None));
}

#[test]
fn a_search_whose_cursor_fails_begins_at_the_top_again() {
    let on_the_way = || {
        let mut ranges = behind(8);
        let refused = next(&ranges);
        fail(&mut ranges, &refused, Cause::Refused);
        // At the top there is no cursor that could have expired.
        let top = next(&ranges);
        fail(&mut ranges, &top, Cause::Refused);
        assert_eq!(next(&ranges).task, Task::Find(1));
        answer(&mut ranges, &page([known(30, 20)], 20));
        assert!(next(&ranges).before.is_some());
        ranges
    };
    let mut ranges = on_the_way();
    let refused = next(&ranges);
    fail(&mut ranges, &refused, Cause::Refused);
    assert_eq!(next(&ranges).task, Task::Range(1), "its own may be valid");
    let mut ranges = on_the_way();
    let failures = (1..).find(|_| {
        fail_next(&mut ranges);
        next(&ranges).task == Task::Range(1)
    });
    assert_eq!(failures, Some(8));
}

#[test]
fn a_search_goes_on_after_newer_events_were_read() {
    let mut ranges = tail(8, [range(1, RangeKind::History)]);
    let refused = next(&ranges);
    fail(&mut ranges, &refused, Cause::Refused);
    poll(&mut ranges, &page([new(40, 40)], 40));
    answer(&mut ranges, &page([new(40, 40)], 40));
    assert!(matches!(next(&ranges).task, Task::Range(id) if id != 1));
    answer(&mut ranges, &page([known(20, 20)], 40));
    assert_eq!(next(&ranges).task, Task::Find(1));
}

#[test]
fn live_events_are_read_before_history() {
    let ranges = [range(1, RangeKind::History), range(2, RangeKind::CatchUp)];
    assert_eq!(next(&tail(8, ranges)).task, Task::Range(2));
}

#[test]
fn a_re_read_is_given_up_when_nothing_smaller_helps() {
    let begin = || {
        let mut ranges = tail(8, []);
        reread(&mut ranges, &page([known(20, 20), known(19, 19)], 20));
        assert!(ranges.is_rereading());
        ranges
    };
    for (cause, expected) in [(Cause::Refused, 3), (Cause::Page, 16)] {
        let mut ranges = begin();
        let attempts = (1..).find(|_| {
            let request = ranges.request(false, true).expect("a re-read");
            fail(&mut ranges, &request, cause);
            !ranges.is_rereading()
        });
        assert_eq!(attempts, Some(expected), "{cause:?}");
    }
}

/// An exporter that was away for eight days, and then fails once, still looks at all of them.
#[test]
fn only_a_week_of_failed_re_reads_cuts_one_short() {
    let mut ranges = tail(8, []);
    let now = 8 * DAY;
    for _ in 0..16 {
        let request = ranges.request(false, true).expect("a re-read");
        assert!(ranges.failed(&request, Cause::Page, at(now)).is_none());
    }
    let top = known(20, now);
    let hours = (2..22)
        .rev()
        .map(|hour| known(20 + hour, hour.cast_signed() * HOUR));
    reread(&mut ranges, &page([top], now + 10));
    for (id, row) in hours.enumerate() {
        assert!(ranges.is_rereading(), "ended at {id}");
        reread(&mut ranges, &page([row], now + 10));
    }
}

#[test]
fn pages_that_are_too_large_become_smaller() {
    let mut ranges = behind(8);
    for (rows, possible, limit) in [(8, true, 4), (4, true, 2), (3, false, 2), (2, false, 2)] {
        let request = next(&ranges);
        assert_eq!(ranges.lower_limit(&request, rows), possible, "{rows} rows");
        assert_eq!(next(&ranges).limit, limit);
    }
    let mut ranges = tail(8, []);
    poll(&mut ranges, &page([new(20, 20)], 20));
    for (rows, possible, limit) in [(8, true, 4), (2, true, 1), (1, false, 1)] {
        let request = next(&ranges);
        assert_eq!(request.task, Task::Newest);
        assert_eq!(ranges.lower_limit(&request, rows), possible, "{rows} rows");
        assert_eq!(next(&ranges).limit, limit);
    }
}

/// Otherwise the two would be requested in turn for ever.
#[test]
fn a_page_that_has_to_be_larger_is_not_made_smaller() {
    let mut ranges = behind(8);
    while fail_next(&mut ranges) > 2 {}
    let request = next(&ranges);
    assert!(ranges.widen(request.task));
    assert_eq!(next(&ranges).limit, 4);
    assert!(!ranges.lower_limit(&next(&ranges), 4));
    answer(&mut ranges, &page([new(9, 9)], 20));
    assert!(ranges.lower_limit(&next(&ranges), 4), "the next one may be");
}

#[test]
fn a_page_that_says_too_little_is_requested_in_double_size() {
    let mut ranges = tail(120, []);
    poll(&mut ranges, &page([new(20, 20)], 20));
    for (possible, limit) in [(true, 100), (true, 120), (false, 120)] {
        assert_eq!(ranges.widen(Task::Newest), possible);
        assert_eq!(next(&ranges).limit, limit);
    }
    let mut ranges = behind(8);
    assert!(!ranges.widen(Task::Range(1)));
    assert_eq!(next(&ranges).limit, 8);
}

#[test]
fn the_newest_page_is_as_large_as_the_organization_is_busy() {
    // The limit, the new entries of a page that joins, and the next limit.
    for (limit, news, expected) in [
        (100, 24, 50),
        (100, 25, 100),
        (100, 50, 100),
        (100, 99, 100),
        (400, 10, 200),
        (50, 1, 50),
    ] {
        let mut ranges = tail(1000, []);
        poll(&mut ranges, &page([new(1000, 20)], 20));
        let mut request = next(&ranges);
        request.limit = limit;
        let rows = (0..news).map(|index| new(1000 - index, 20));
        let rows = rows.chain([known(10, 10)]);
        ranges = ranges.page(&request, &page(rows, 20)).next;
        poll(&mut ranges, &page([new(2000, 20)], 20));
        assert_eq!(next(&ranges).limit, expected, "{news} new of {limit}");
    }
    let mut ranges = tail(1000, []);
    for expected in [50, 100, 200] {
        poll(&mut ranges, &page([new(1000, 20)], 20));
        assert_eq!(next(&ranges).limit, expected, "nothing known in a page");
        answer(&mut ranges, &page([new(1000, 20)], 20));
    }
}

#[test]
fn a_known_newest_entry_needs_no_second_request() {
    let mut ranges = tail(8, []);
    poll(&mut ranges, &page([known(10, 10)], 30));
    assert_eq!(ranges.request(false, false), None);
    assert_eq!(ranges.state.last_poll_at, Some(at(30)));
    // One that is dated in the future would hide what arrives below it.
    poll(&mut ranges, &page([known(10, 1000)], 30));
    assert_eq!(next(&ranges).task, Task::Newest);
}

#[test]
fn an_empty_listing_is_a_poll_unless_entries_may_have_been_deleted() {
    let empty = |second| last_page([], second);
    for (what, has_known, second, expected) in [
        ("a moment later", true, 40, 40),
        ("after a silence", true, 20 + HOUR, 20),
        ("never any entry", false, 20 + HOUR, 20 + HOUR),
    ] {
        let mut ranges = Ranges::new(state([]), settings(8), None, has_known);
        poll(&mut ranges, &empty(second));
        assert_eq!(ranges.state.last_poll_at, Some(at(expected)), "{what}");
    }
    // With new filters, nothing may match; if it says so twice, that is so.
    for second in [40, 20 + HOUR] {
        let mut ranges = tail(8, []);
        ranges.change_filters();
        poll(&mut ranges, &empty(second));
        assert_eq!(ranges.state.last_poll_at, Some(at(20)));
        poll(&mut ranges, &empty(second));
        assert_eq!(ranges.state.last_poll_at, Some(at(second)));
    }
}

#[test]
fn the_time_of_a_poll_is_stored_every_thirty_seconds() {
    let mut ranges = tail(8, []);
    for (second, expected) in [(21, false), (49, false), (50, true), (90, true)] {
        poll(&mut ranges, &page([known(10, 10)], second));
        assert_eq!(ranges.is_poll_unsaved(), expected, "second {second}");
    }
    ranges.saved(None);
    assert!(!ranges.is_poll_unsaved());
    let mut ranges = Ranges::new(TailState::default(), settings(8), None, false);
    assert!(!ranges.is_poll_unsaved());
    answer(&mut ranges, &page([new(1, 1)], 1));
    assert!(ranges.is_poll_unsaved(), "the first");
}

#[test]
fn records_of_old_ranges_are_released_once() {
    let mut ranges = tail(8, [1, 2, 3].map(|id| range(id, RangeKind::CatchUp)));
    ranges.release(at(2));
    let released = ranges.state.ranges.iter().map(|range| range.released);
    assert_eq!(released.collect::<Vec<_>>(), [true, true, false]);
    let before = ranges.state.clone();
    ranges.release(at(2));
    assert_eq!(ranges.state, before);
}

#[test]
fn an_entry_without_a_time_is_as_old_as_the_one_above_its_page() {
    let mut ranges = tail(8, [range(1, RangeKind::History)]);
    assert_eq!(ranges.above(Task::Range(1)), Some(at(10)));
    assert_eq!(ranges.above(Task::Newest), None);
    assert_eq!(ranges.above(Task::Reread), None);
    reread(&mut ranges, &page([known(20, 20), known(15, 15)], 20));
    assert_eq!(ranges.above(Task::Reread), Some(at(15)));
}

#[test]
fn a_failure_between_two_empty_pages_makes_the_second_one_the_first() {
    let mut ranges = Ranges::new(TailState::default(), settings(8), None, false);
    answer(&mut ranges, &last_page([], 1));
    fail_next(&mut ranges);
    answer(&mut ranges, &last_page([], 1));
    assert_eq!(ranges.state.first_sync, None);
    answer(&mut ranges, &last_page([], 1));
    assert!(ranges.state.first_sync.is_some());
}

#[test]
fn a_re_read_ends_with_two_empty_pages_in_a_row() {
    let top = || page([known(20, 20), known(19, 19)], 30);
    let empty = last_page([], 30);
    for between in [true, false] {
        let mut ranges = tail(8, []);
        reread(&mut ranges, &top());
        reread(&mut ranges, &empty);
        if between {
            reread(&mut ranges, &page([known(18, 18)], 30));
            reread(&mut ranges, &empty);
        }
        assert_eq!(ranges.state.reread_at, Some(at(0)));
        reread(&mut ranges, &empty);
        assert_eq!(ranges.state.reread_at, Some(at(30)));
    }
}

#[test]
fn what_a_re_read_finds_at_the_top_is_live_and_below_it_late() {
    let mut ranges = tail(8, []);
    let first = page([new(30, 30), known(20, 20), new(18, 18)], 30);
    let step = reread(&mut ranges, &first);
    let expected = [(30, Disposition::Live), (18, Disposition::Late)];
    assert_eq!(
        (taken(&step, &first), step.commit.top),
        (expected.to_vec(), true)
    );
    let second = page([known(17, 17), new(16, 16)], 30);
    let step = reread(&mut ranges, &second);
    let expected = [(16, Disposition::Late)];
    assert_eq!(
        (taken(&step, &second), step.commit.top),
        (expected.to_vec(), false)
    );
}

#[test]
fn the_listing_ends_within_moments_of_the_last_poll_without_a_gap() {
    for (contact, expected) in [
        (at(20), false),
        (at(30) - SignedDuration::from_hours(1), true),
    ] {
        let mut ranges = tail(
            8,
            [Range {
                last_contact: Some(contact),
                lowest: Some(at(25)),
                ..range(1, RangeKind::CatchUp)
            }],
        );
        answer(&mut ranges, &last_page([], 30));
        let step = answer(&mut ranges, &last_page([], 30));
        assert_eq!(!step.commit.gaps.is_empty(), expected, "{contact}");
    }
}

#[test]
fn a_history_does_not_end_before_two_full_pages_of_older_entries() {
    let mut ranges = tail(8, [range(1, RangeKind::History)]);
    ranges.state.first_sync.as_mut().expect("it").history_floor = Some(at(5));
    for (id, count) in [(100, 8), (200, 7)] {
        let older = (0..count).map(|index| new(id + index, 4));
        answer(&mut ranges, &page(older, 20));
        assert!(!ranges.state.ranges.is_empty());
    }
    let found = page([new(300, 6)], 20);
    let step = answer(&mut ranges, &found);
    assert_eq!(taken(&step, &found), [(300, Disposition::History)]);
}

#[test]
fn records_of_history_wait_for_live_ones_alone() {
    let history = page([new(9, 9)], 20);
    let step = answer(&mut tail(8, [range(1, RangeKind::History)]), &history);
    assert!(!step.commit.top);
    let mut ranges = tail(8, [range(1, RangeKind::History)]);
    ranges.state.first_sync.as_mut().expect("it").live_after = Some(at(8));
    let step = answer(&mut ranges, &history);
    assert_eq!(taken(&step, &history), [(9, Disposition::Live)]);
    assert!(
        step.commit.top,
        "what came since the start stands above history"
    );
    assert!(answer(&mut behind(8), &page([new(9, 9)], 20)).commit.top);
}

#[test]
fn below_an_entry_dated_in_the_future_only_an_open_range_ends_the_newest_page() {
    let future = known(50, 1000);
    for (end, rows, expected) in [
        (10, vec![future, new(30, 30), known(20, 20)], vec![30]),
        (50, vec![new(60, 1001), future, new(9, 9)], vec![60]),
    ] {
        let mut ranges = tail(
            8,
            [Range {
                end: Some(EventId(end)),
                ..range(1, RangeKind::CatchUp)
            }],
        );
        poll(&mut ranges, &page([rows[0]], 30));
        assert_eq!(next(&ranges).task, Task::Newest);
        let rows = page(rows, 30);
        let step = answer(&mut ranges, &rows);
        assert_eq!(ids(&step, &rows), expected, "the range ends at {end}");
    }
}

#[test]
fn entries_dated_in_the_future_are_ignored_if_they_are_few() {
    for (futures, others, expected) in [(1, 1, 90), (2, 1, 1000), (1, 2, 90), (2, 2, 90)] {
        let mut ranges = Ranges::new(TailState::default(), settings(8), None, false);
        let rows = (0..futures).map(|id| new(id, 1000));
        let rows = rows.chain((0..others).map(|id| new(100 + id, 90)));
        answer(&mut ranges, &page(rows, 100));
        let floor = ranges.state.count_floor();
        assert_eq!(floor, Some(at(expected)), "{futures} beside {others}");
    }
}

/// The counter said that the API had refused a cursor, and there is an alert on it.
#[test]
fn only_a_cursor_that_was_refused_is_recovered() {
    for (cause, failures, expected) in [(Cause::Refused, 1, true), (Cause::Page, 8, false)] {
        let mut ranges = behind(8);
        for _ in 0..failures {
            let request = next(&ranges);
            fail(&mut ranges, &request, cause);
        }
        assert_eq!(next(&ranges).task, Task::Find(1));
        let step = answer(&mut ranges, &page([known(10, 10), new(9, 9)], 20));
        assert_eq!(step.commit.recovered, expected, "{cause:?}");
    }
}

/// Filters changed, so the last entry that was read need not be listed any more.
#[test]
fn after_a_change_of_filters_a_search_stops_at_what_is_not_known() {
    let mut ranges = behind(8);
    ranges.state.ranges[0].filters_changed = true;
    let refused = next(&ranges);
    fail(&mut ranges, &refused, Cause::Refused);
    let found = page([new(12, 12), known(11, 10), new(8, 10), new(7, 9)], 20);
    let step = answer(&mut ranges, &found);
    assert_eq!(ids(&step, &found), [8, 7]);
}

/// The page of an older version: its rows are stored, and not all of them were counted.
#[test]
fn the_first_page_of_an_older_version_is_continued() {
    let first_page = || {
        let mut state = state([]);
        state.first_page = Some("{}".to_owned());
        Ranges::new(state, settings(8), None, true)
    };
    let rows = || [known(10, 10), new(9, 9)];
    let stored = page(rows(), 20);
    let step = first_page().first_page(&stored);
    assert_eq!(taken(&step, &stored), [(9, Disposition::History)]);
    assert_eq!(step.next.state.ranges.len(), 1);
    assert_eq!(step.next.state.first_page, None);
    let nothing_below = last_page(rows(), 20);
    let step = first_page().first_page(&nothing_below);
    assert_eq!(step.next.state.ranges, []);
    let nothing = Page {
        end_cursor: Some("a cursor".to_owned()),
        ..last_page([], 20)
    };
    let step = first_page().first_page(&nothing);
    assert_eq!(step.next.state.ranges, []);
}
