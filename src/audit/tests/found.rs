//! Cases that once failed, each with what it would have done to an operator.

use std::collections::HashMap;
use std::time::Duration;

use crate::api::Filters;
use crate::audit::{Start, Tail};
use crate::metrics::audit::Total;
use crate::simulator::{
    AfterReading, Config, Fault, FaultKind, Fields, Readings, RequestInfo, RetryAfter, Simulator,
};
use crate::telemetry::captured::Captured;
use http::StatusCode;

use super::bench::{Bench, SILENCE};
use super::case::Change::{self, Ahead, Events, Late, Pass};
use super::case::Step::{Die, During, Now, Restart, Rounds, Settle};
use super::case::{Case, Step};
use super::exact::{block_on, everything_is_delivered, everything_is_exact};

const NEWEST: AfterReading = AfterReading::Newest;

/// Returns a case that differs from the usual one as `change` says.
fn case<const N: usize>(steps: [Step; N], change: impl FnOnce(&mut Case)) -> Case {
    let mut case = Case {
        seed: 1,
        history: 10,
        start: Start::Now,
        page_size: 5,
        readings: Readings::default(),
        steps: steps.into(),
    };
    change(&mut case);
    case
}

/// Refuses so many cursors.
fn refused(status: StatusCode, times: u64) -> Change {
    Change::Fault(Fault::new(FaultKind::ExpiredCursor(status)).times(times))
}

/// The loop asked for ever, as fast as the service answered, and took nothing.
#[test]
fn a_burst_between_a_poll_and_a_re_read_is_caught_up() {
    let steps = [Settle, During(2, Events(20)), Settle];
    everything_is_exact(&case(steps, |case| case.readings.after = NEWEST));
}

/// A service that takes no cursor at all was asked without a pause.
#[test]
fn a_cursor_that_is_never_taken_is_tried_at_every_poll_and_not_between() {
    let steps = [Settle, Now(refused(StatusCode::GONE, 1_000)), Settle];
    everything_is_exact(&case(steps, |_| {}));
}

/// An event was called late that only came at the very moment of the newest one.
#[test]
fn what_comes_at_the_same_moment_between_a_poll_and_a_re_read_is_not_late() {
    let (pass, one) = (Now(Pass(1_000)), Now(Events(1)));
    let steps = [Settle, pass, one, Settle, During(2, Events(1)), Settle];
    everything_is_exact(&case(steps, |case| case.page_size = 1));
}

/// The poll saw the entry of its cursor again and again, and new ones only by way of a recovery at the next re-read.
#[test]
fn a_page_of_one_that_begins_with_the_entry_of_the_cursor_is_not_blind() {
    for (page_size, page_cap) in [(1, None), (10, Some(1))] {
        let steps = [Settle, Now(Events(3)), Settle, Restart, Now(Events(1))];
        everything_is_exact(&case(steps, |case| {
            case.page_size = page_size;
            case.readings.after_inclusive = true;
            case.readings.page_cap = page_cap;
        }));
    }
}

/// Behind a page full of entries dated in the future nothing new was seen until their time came, and then it was too late for much
/// of it; and at every poll what the page showed again was counted as served twice, and written to the disk.
#[test]
fn entries_dated_in_the_future_hide_nothing() {
    for (page_size, ahead) in [(10, 1), (10, 3), (1000, 20)] {
        let mut steps = vec![Settle];
        steps.extend((0..ahead).map(|i| Now(Ahead(86_400_000 + i))));
        for events in [1, 0, 4, 30] {
            steps.extend([Settle, Now(Pass(10_000)), Now(Events(events))]);
        }
        steps.extend([Settle, Now(Pass(86_500_000)), Now(Events(3))]);
        for after in [AfterReading::Adjacent, NEWEST] {
            everything_is_delivered(&case([], |case| {
                case.page_size = page_size;
                case.readings.after = after;
                case.steps = steps.clone();
            }));
        }
    }
}

/// Old entries were delivered and counted as late that only had the same time as the newest one when the ledger began.
#[test]
fn what_was_there_at_the_moment_of_the_beginning_is_not_late() {
    let seed = (0..200).find(|seed| {
        let config = Config {
            seed: *seed,
            history: 8,
            history_span: Duration::from_secs(160),
            ..Config::quiet()
        };
        let entries = Simulator::new(config).entries();
        let times: Vec<_> = entries.map(|entry| entry.created_at).collect();
        times[7] == times[6]
    });
    everything_is_exact(&case([Settle], |case| {
        case.seed = seed.expect("a history that ends with two entries of one moment");
        case.history = 8;
        case.page_size = 1;
    }));
}

/// A page of one moment does not show its order: the wrong end of it was taken for the newest.
#[test]
fn entries_of_one_moment_are_read_in_the_order_of_the_service() {
    for history in [0, 10] {
        let add = || [Now(Events(2)), Settle, Restart];
        let mut steps = vec![Settle, Now(Events(1)), Settle];
        steps.extend([add(), add(), add()].into_iter().flatten());
        everything_is_exact(&case([], |case| {
            case.history = history;
            case.page_size = 3;
            case.readings.after_inclusive = true;
            case.steps = steps;
        }));
    }
}

/// A late row was never found where it was the newest of a page that the re-read saw: it was left to the poll.
#[test]
fn a_late_row_on_top_of_a_lower_page_is_found() {
    let mut steps = vec![Settle];
    for _ in 0..6 {
        steps.extend([Now(Pass(1_000)), Now(Events(1))]);
    }
    // Pages of three: the newest three, then this row and the two below it.
    steps.extend([Settle, Now(Late(1, 2_500)), Settle]);
    everything_is_exact(&case([], |case| {
        case.page_size = 3;
        case.steps = steps;
    }));
}

/// Events of the beginning's own moment were read upside down by a process that had not yet met a page of two: what came next was not counted.
#[test]
fn a_restart_on_the_way_down_of_a_first_start_knows_what_was_there() {
    let steps = [Now(Events(3)), Rounds(7), Die(2)];
    everything_is_exact(&case(steps, |case| {
        case.seed = 11_933_376_182_795_466_117;
        case.history = 14;
        case.start = Start::Oldest;
        case.page_size = 2;
    }));
}

/// No failure of the exporter: the request that tells whose fault it is was taken for the ledger's first page by the test's own world.
#[test]
fn what_comes_between_the_first_page_and_its_commit_is_counted() {
    let refused = refused(StatusCode::BAD_REQUEST, 6);
    let steps = [During(8, Events(1)), Now(refused), Rounds(3)];
    everything_is_exact(&case(steps, |case| {
        case.seed = 0;
        case.history = 2;
        case.page_size = 2;
    }));
}

/// Three entries of one moment were the first page, and refused cursors left only pages of one: two of the three were counted as new.
#[test]
fn what_was_in_the_first_page_is_history_though_its_order_is_not_known() {
    let refused = refused(StatusCode::BAD_REQUEST, 3);
    let steps = [Now(refused), During(1, Events(1)), Rounds(2)];
    everything_is_exact(&case(steps, |case| {
        case.seed = 6_735_748_433_664_714_608;
        case.history = 14;
        case.start = Start::Oldest;
        case.page_size = 3;
    }));
}

/// Adds an entry of this type a second later.
fn add(bench: &Bench, kind: &str) {
    bench.sim().advance(Duration::from_secs(1));
    let fields = Fields::new().with("type", kind);
    bench.sim().add_entry(&fields).unwrap();
}

/// Two large entries side by side were requested for ever, as fast as the service answered.
#[test]
fn two_entries_that_are_too_large_for_one_page_are_read() {
    let case = case([], |case| case.start = Start::Oldest);
    let note = serde_json::json!({ "note": "x".repeat(3 << 20) });
    let large = Fields::new().with("metadata", note);
    block_on(async {
        let mut bench = Bench::new(&case, None).await;
        for (larges, events) in [(2, 0), (2, 8)] {
            for _ in 0..larges {
                bench.sim().advance(Duration::from_secs(1));
                bench.sim().add_entry(&large).unwrap();
            }
            bench.sim().advance(Duration::from_secs(60));
            bench.sim().add_events(events);
            bench.settle().await;
        }
        assert_eq!(bench.delivered.len(), 10 + 2 + 2 + 8);
        assert_eq!(bench.counted().values().sum::<u64>(), 2 + 8);
    });
}

/// Nothing was counted until the time came that the newest entry at the first start was dated with.
#[test]
fn an_entry_dated_in_the_future_at_the_first_start_hides_nothing() {
    let case = case([], |_| {});
    block_on(async {
        let mut bench = Bench::filtered(&case, None, only(["OLD"])).await;
        bench.lossy = true;
        add(&bench, "OLD");
        add(&bench, "OLD");
        let future = bench.sim().now() + Duration::from_secs(86_400);
        let fields = Fields::new().with("createdAt", future.to_string());
        bench.sim().add_entry(&fields.with("type", "OLD")).unwrap();
        bench.settle().await;
        for (kind, count, expected) in [("OLD", 3, 3), ("NEW", 2, 5)] {
            bench.filter(only([kind])).await;
            for _ in 0..count {
                add(&bench, kind);
            }
            // The polls find them, not only the re-read.
            bench.tail().hurry_poll();
            for _ in 0..4 {
                bench.round().await;
            }
            let counted: u64 = bench.counted().values().sum();
            assert_eq!(counted, expected, "{kind}");
        }
        // The re-read finds what appears below them.
        let late = bench.sim().now() - Duration::from_millis(1500);
        let fields = Fields::new().with("createdAt", late.to_string());
        bench.sim().add_entry(&fields.with("type", "NEW")).unwrap();
        bench.settle().await;
        assert_eq!((bench.delivered.len(), bench.total(Total::Late)), (6, 1));
    });
}

fn only<const N: usize>(kinds: [&str; N]) -> Filters {
    Filters {
        activity_types: kinds.map(str::to_owned).into(),
        ..Filters::default()
    }
}

/// Returns how many events were counted of each type.
fn counted_by_type(bench: &Bench) -> HashMap<String, u64> {
    let mut counted = HashMap::new();
    for ((kind, _), count) in bench.counted() {
        *counted.entry(kind).or_insert(0) += count;
    }
    counted
}

/// The history of a type was counted as new if the filter named it while a range was open, and what the range still lacked was called a gap.
#[test]
fn filters_that_change_while_a_range_is_open_show_no_history() {
    let case = case([], |case| (case.history, case.page_size) = (0, 5));
    for (before, after, last, refused, old, new) in [
        (only(["OLD"]), only(["NEW"]), "OLD", false, 3, 5),
        (only(["OLD"]), only(["OLD", "NEW"]), "OLD", false, 11, 5),
        // The place of the range is not listed any more, and nothing else is.
        (only(["OLD"]), only(["DEAL_CREATED"]), "OLD", true, 3, 0),
        (only(["OLD", "NEW"]), only(["NEW"]), "NEW", true, 2, 36),
    ] {
        block_on(async {
            let mut bench = Bench::filtered(&case, None, before).await;
            bench.lossy = true;
            add(&bench, "NEW");
            add(&bench, "OLD");
            bench.settle().await;
            (0..30).for_each(|_| add(&bench, "NEW"));
            add(&bench, "OLD");
            bench.settle().await;
            bench.sim().advance(SILENCE);
            (0..4).for_each(|_| add(&bench, "NEW"));
            (0..9).for_each(|_| add(&bench, "OLD"));
            add(&bench, last);
            // Only two of these are read.
            let fails = |request: &RequestInfo, _: &Simulator| {
                let fails =
                    request.param("before").is_some() || request.param("limit") == Some("5");
                fails.then(|| Fault::status(StatusCode::INTERNAL_SERVER_ERROR))
            };
            bench.sim().on_request(Box::new(fails));
            bench.tail().hurry_poll();
            for _ in 0..6 {
                bench.round().await;
            }
            assert_eq!(bench.tail().state().ranges.len(), 1);
            bench.filter(after.clone()).await;
            bench.sim().on_request(Box::new(|_, _| None));
            if refused {
                let gone = FaultKind::ExpiredCursor(StatusCode::GONE);
                bench.sim().fault(Fault::new(gone).times(1));
            }
            bench.sim().advance(SILENCE);
            add(&bench, "NEW");
            bench.settle().await;
            let counted = counted_by_type(&bench);
            let counted = ["OLD", "NEW"].map(|kind| counted.get(kind).copied().unwrap_or(0));
            assert_eq!(counted, [old, new], "{after:?}");
            assert_eq!(bench.total(Total::Gaps), 0, "{after:?}");
        });
    }
}

/// Up to an hour of events from before the change were counted at once, and a gap was reported where nothing was missing.
#[test]
fn what_only_new_filters_show_is_neither_counted_nor_a_gap() {
    // More of them than a page takes may come before the first poll, and then what is below is a range.
    for (history, before, burst) in [(60, 0, 0), (60, 30, 0), (60, 30, 6), (0, 1, 0)] {
        let case = case([], |case| {
            case.history = history;
            case.page_size = 2;
            case.readings.after = NEWEST;
        });
        block_on(async {
            let mut bench = Bench::filtered(&case, None, only(["OLD"])).await;
            bench.lossy = true;
            add(&bench, "OLD");
            bench.settle().await;
            (0..before).for_each(|_| add(&bench, "NEW"));
            add(&bench, "OLD");
            bench.settle().await;
            bench.filter(only(["NEW"])).await;
            (0..burst).for_each(|_| add(&bench, "NEW"));
            for _ in 0..7 {
                add(&bench, "NEW");
                bench.settle().await;
            }
            (0..7).for_each(|_| add(&bench, "NEW"));
            bench.settle().await;
            let expected = [("NEW".to_owned(), 14 + burst), ("OLD".to_owned(), 1)];
            assert_eq!(counted_by_type(&bench), expected.into());
            let totals = [Total::Gaps, Total::Late].map(|total| bench.total(total));
            assert_eq!(totals, [0, 0]);
        });
    }
}

/// A re-read counted them if the first poll after the change had failed.
#[test]
fn a_re_read_before_the_first_poll_counts_no_history_of_new_filters() {
    let case = case([], |case| {
        (case.history, case.page_size, case.start) = (0, 5, Start::Oldest);
    });
    block_on(async {
        let mut bench = Bench::filtered(&case, None, only(["OLD"])).await;
        for kind in ["OLD", "NEW"].into_iter().cycle().take(40) {
            add(&bench, kind);
        }
        for _ in 0..3 {
            bench.round().await;
        }
        assert_eq!(bench.tail().state().ranges.len(), 1);
        bench.filter(only(["OLD", "NEW"])).await;
        let mut polls = 0;
        bench.sim().on_request(Box::new(move |request, _| {
            let is_poll = request.param("limit") == Some("1");
            polls += u32::from(is_poll);
            let fails = is_poll && polls == 1;
            fails.then(|| Fault::status(StatusCode::INTERNAL_SERVER_ERROR).times(4))
        }));
        bench.tail().hurry();
        for _ in 0..20 {
            bench.round().await;
        }
        bench.settle().await;
        assert_eq!(counted_by_type(&bench), HashMap::new());
    });
}

/// All of the history of a new filter was counted if the first page after the change was empty by mistake.
#[test]
fn an_empty_page_after_a_change_of_filters_is_confirmed() {
    let case = case([], |case| (case.history, case.page_size) = (0, 5));
    block_on(async {
        let mut bench = Bench::filtered(&case, None, only(["OLD"])).await;
        bench.lossy = true;
        add(&bench, "OLD");
        bench.settle().await;
        (0..40).for_each(|_| add(&bench, "NEW"));
        bench.settle().await;
        bench.filter(only(["NEW"])).await;
        let mut polls = 0;
        bench.sim().on_request(Box::new(move |_, _| {
            polls += 1;
            (polls == 1).then(|| Fault::new(FaultKind::EmptyPage).once())
        }));
        bench.tail().hurry_poll();
        bench.round().await;
        bench.settle().await;
        assert_eq!(counted_by_type(&bench), HashMap::new());
        add(&bench, "NEW");
        bench.settle().await;
        assert_eq!(counted_by_type(&bench), [("NEW".to_owned(), 1)].into());
    });
}

/// A page that fails for a while was a gap for good. An error is not a gap: what is above it is counted meanwhile.
#[test]
fn an_entry_that_cannot_be_read_keeps_its_range_open_until_it_can() {
    block_on(async {
        let case = case([], |case| case.page_size = 3);
        let mut bench = Bench::new(&case, None).await;
        let counted = |bench: &Bench| bench.counted().values().sum::<u64>();
        bench.settle().await;
        bench.sim().advance(SILENCE);
        bench.sim().add_events(1);
        let bad = bench.sim().add_entry(&Fields::new()).unwrap();
        bench.sim().fault(Fault::new(FaultKind::Poison(bad)));
        for (pause, events) in [(SILENCE, 4), (Duration::from_secs(1), 1)] {
            bench.sim().advance(pause);
            bench.sim().add_events(events);
            for _ in 0..60 {
                bench.tail().hurry_poll();
                bench.round().await;
            }
        }
        assert!((4..7).contains(&counted(&bench)), "{}", counted(&bench));
        assert_eq!(bench.total(Total::Gaps), 0);
        assert_eq!(bench.tail().state().ranges.len(), 1);
        bench.sim().clear_faults();
        bench.settle().await;
        assert_eq!((counted(&bench), bench.delivered.len()), (7, 7));
        assert_eq!(bench.total(Total::Gaps), 0);
    });
}

/// A backfill that is continued gave up at once, because it had failed for longer than `--patience` before.
#[test]
fn a_backfill_that_is_continued_has_not_failed_yet() {
    block_on(async {
        let case = case([], |case| case.page_size = 3);
        let mut bench = Bench::new(&case, None).await;
        bench.settle().await;
        bench.sim().advance(SILENCE);
        bench.sim().add_events(1);
        let bad = bench.sim().add_entry(&Fields::new()).unwrap();
        bench.sim().fault(Fault::new(FaultKind::Poison(bad)));
        for events in [4, 1, 1] {
            bench.sim().advance(SILENCE);
            bench.sim().add_events(events);
            bench.tail().hurry_poll();
            for _ in 0..20 {
                bench.round().await;
            }
        }
        let is_failing = |tail: &Tail| {
            let mut ranges = tail.state().ranges.iter();
            ranges.any(|range| range.failing_since.is_some())
        };
        bench.restart().await;
        assert!(is_failing(bench.tail()), "it is stored");
        assert!(!is_failing(&bench.into_backfill().await));
    });
}

/// Each failure was said to be over as soon as nothing was to be done until the next poll.
#[test]
fn an_outage_is_over_when_a_poll_works_again() {
    block_on(async {
        let mut bench = Bench::new(&case([], |_| {}), None).await;
        bench.settle().await;
        let log = Captured::begin();
        bench.sim().fault(Fault::status(StatusCode::BAD_REQUEST));
        bench.tail().hurry_poll();
        for _ in 0..8 {
            bench.round().await;
        }
        let count = |words: &str| {
            let lines = log.lines().into_iter();
            lines.filter(|line| line.contains(words)).count()
        };
        assert_eq!((count("poll failed"), count("can be read again")), (4, 0));
        bench.sim().clear_faults();
        bench.settle().await;
        assert_eq!((count("poll failed"), count("can be read again")), (4, 1));
    });
}

/// Each of them halved the pages, and with a quota of some pages a minute a history took days.
#[test]
fn a_pause_that_the_service_asks_for_makes_no_page_smaller() {
    block_on(async {
        let case = case([], |case| {
            (case.history, case.page_size, case.start) = (600, 16, Start::Oldest);
        });
        let mut bench = Bench::new(&case, None).await;
        for _ in 0..5 {
            bench.round().await;
            let pause = FaultKind::TooManyRequests(RetryAfter::Seconds(40));
            bench.sim().fault(Fault::new(pause).times(1));
            bench.round().await;
            tokio::time::advance(Duration::from_secs(41)).await;
        }
        let requests = bench.sim().requests().last.into_iter();
        let pages = requests.filter(|request| request.raw_query.contains("before="));
        let (small, full): (Vec<_>, Vec<_>) =
            pages.partition(|request| !request.raw_query.contains("limit=16"));
        assert_eq!((small.len(), full.len() > 5), (0, true), "{small:?}");
    });
}

/// The name stayed empty for ever if the newest entry at the first start had none.
#[test]
fn the_organization_has_the_name_of_the_first_entry_with_one() {
    block_on(async {
        let mut bench = Bench::new(&case([], |case| case.history = 0), None).await;
        let nameless = Fields::new().with("organization", serde_json::Value::Null);
        bench.sim().add_entry(&nameless).unwrap();
        bench.settle().await;
        let name = |bench: &Bench| bench.ledger().status().organization.map(|(_, name)| name);
        assert_eq!(name(&bench), Some(None));
        bench.sim().advance(Duration::from_secs(1));
        bench.sim().add_events(1);
        bench.settle().await;
        assert!(matches!(name(&bench), Some(Some(_))), "{:?}", name(&bench));
    });
}

/// A minute in which the service refused its own cursors cost the events below them.
#[test]
fn a_minute_without_cursors_is_no_gap() {
    let refused = refused(StatusCode::BAD_REQUEST, 20);
    let steps = [Settle, Now(Events(30)), During(5, refused), Settle];
    everything_is_exact(&case(steps, |case| case.readings.after = NEWEST));
}

/// A service whose cursors live shorter than it takes to read the range made gaps of pages that it would have served.
#[test]
fn cursors_that_grow_old_on_a_long_way_are_no_gap() {
    for (start, history) in [(Start::Now, 0), (Start::Oldest, 60)] {
        let case = case([], |case| {
            case.history = 60;
            case.start = start;
            case.page_size = 2;
            case.readings.after = NEWEST;
        });
        block_on(async {
            let mut bench = Bench::new(&case, None).await;
            bench.lossy = true;
            let mut used = HashMap::new();
            bench.sim().on_request(Box::new(move |request, _| {
                // The newest page makes them anew.
                if request.raw_query == "limit=2" {
                    used.clear();
                }
                let cursor = request.param("before")?.to_owned();
                let first = *used.entry(cursor).or_insert(request.number);
                (request.number - first > 20).then(|| Fault::status(StatusCode::GONE))
            }));
            bench.settle().await;
            bench.sim().advance(SILENCE);
            bench.sim().add_events(100);
            bench.settle().await;
            let seen = (bench.delivered.len(), bench.total(Total::Gaps));
            assert_eq!(seen, (history + 100, 0));
            assert_eq!(bench.counted().values().sum::<u64>(), 100);
        });
    }
}
