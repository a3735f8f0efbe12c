//! Cases that once failed, each with what it would have done to an operator.

use http::StatusCode;
use orgdata_exporter::api::Filters;
use orgdata_exporter::audit::Start;
use orgdata_exporter::ledger::StatePath;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::{AfterReading, Fault, FaultKind, Fields, Readings};

use super::bench::Bench;
use super::case::{Case, Change, Step};
use super::exact::{block_on, everything_is_exact};

const NEWEST: AfterReading = AfterReading::Newest;

fn case(steps: Vec<Step>) -> Case {
    Case { seed: 1, history: 10, start: Start::Now, page_size: 5, readings: Readings::default(), steps }
}

/// The loop asked for ever, as fast as the service answered, and took nothing.
#[test]
fn a_burst_between_a_poll_and_a_re_read_is_walked() {
    let readings = Readings { after: NEWEST, ..Readings::default() };
    let steps = vec![Step::Settle, Step::During(2, Change::Events(20)), Step::Settle];
    everything_is_exact(&Case { readings, ..case(steps) });
}

/// A service that takes no cursor at all was asked without a pause.
#[test]
fn a_cursor_that_is_never_taken_is_tried_at_every_poll_and_not_between() {
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::GONE)).times(1_000);
    everything_is_exact(&case(vec![Step::Settle, Step::Now(Change::Fault(refused)), Step::Settle]));
}

/// An event was called late that only came at the very moment of the newest one.
#[test]
fn what_comes_at_the_same_moment_between_a_poll_and_a_re_read_is_not_late() {
    let steps = vec![
        Step::Settle,
        Step::Now(Change::Pass(1_000)),
        Step::Now(Change::Events(1)),
        Step::Settle,
        Step::During(2, Change::Events(1)),
        Step::Settle,
    ];
    everything_is_exact(&Case { page_size: 1, ..case(steps) });
}

/// The poll saw the entry of its cursor again and again, and new ones only by way of a recovery at the next re-read.
#[test]
fn a_page_of_one_that_begins_with_the_entry_of_the_cursor_is_not_blind() {
    for (page_size, page_cap) in [(1, None), (10, Some(1))] {
        let readings = Readings { after_inclusive: true, page_cap, ..Readings::default() };
        let steps = vec![Step::Settle, Step::Now(Change::Events(3)), Step::Settle, Step::Restart, Step::Now(Change::Events(1))];
        everything_is_exact(&Case { page_size, readings, ..case(steps) });
    }
}

fn only(kind: &str) -> Filters {
    Filters { activity_types: vec![kind.to_owned()], ..Filters::default() }
}

/// Up to an hour of events from before the change were counted at once, and a gap was reported where nothing was missing.
#[test]
fn what_only_new_filters_show_is_neither_counted_nor_a_gap() {
    for (history, before) in [(60, 0), (60, 30), (0, 1)] {
        block_on(async {
            let readings = Readings { after: NEWEST, ..Readings::default() };
            let case = Case { history, page_size: 2, readings, ..case(Vec::new()) };
            let mut bench = Bench::filtered(&case, StatePath::Memory, only("OLD")).await;
            bench.lossy = true;
            let add = |bench: &Bench, kind: &str| {
                bench.sim().advance(std::time::Duration::from_secs(1));
                bench.sim().add_entry(&Fields::new().with("type", kind)).unwrap();
            };
            add(&bench, "OLD");
            bench.settle().await;
            for _ in 0..before {
                add(&bench, "NEW");
            }
            add(&bench, "OLD");
            bench.settle().await;
            bench.filter(only("NEW")).await;
            for _ in 0..7 {
                add(&bench, "NEW");
                bench.settle().await;
            }
            for _ in 0..7 {
                add(&bench, "NEW");
            }
            bench.settle().await;
            assert_eq!(
                bench.counted().into_iter().map(|((kind, _), count)| (kind, count)).fold(
                    std::collections::BTreeMap::new(),
                    |mut sum, (kind, count)| {
                        *sum.entry(kind).or_insert(0) += count;
                        sum
                    }
                ),
                [("NEW".to_owned(), 14), ("OLD".to_owned(), 1)].into()
            );
            assert_eq!([Total::Gaps, Total::Late].map(|total| bench.total(total)), [0, 0]);
        });
    }
}

/// The loop failed at the entry just below the newest page, for ever, instead of calling it a gap.
#[test]
fn one_entry_that_always_fails_is_a_gap_of_one() {
    for after in [AfterReading::Adjacent, NEWEST] {
        block_on(async {
            tokio::time::pause();
            let case = Case { page_size: 3, readings: Readings { after, ..Readings::default() }, ..case(Vec::new()) };
            let mut bench = Bench::new(&case, StatePath::Memory).await;
            bench.lossy = true;
            bench.settle().await;
            bench.sim().advance(std::time::Duration::from_secs(60));
            bench.sim().add_events(1);
            let bad = bench.sim().add_entry(&Fields::new()).unwrap();
            bench.sim().fault(Fault::new(FaultKind::Poison(bad)));
            bench.sim().advance(std::time::Duration::from_secs(60));
            bench.sim().add_events(4);
            bench.settle().await;
            bench.sim().add_events(10);
            bench.settle().await;
            let delivered = bench.delivered().await;
            // With the newest page for an answer, nothing below the bad entry can be reached.
            let lost = if after == NEWEST { 2 } else { 1 };
            assert_eq!((delivered.len(), bench.total(Total::Gaps)), (16 - lost, 1), "{after:?}");
            tokio::time::resume();
        });
    }
}
