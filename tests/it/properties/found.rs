//! Cases that once failed, each with what it would have done to an operator.

use std::collections::HashMap;
use std::time::Duration;

use http::StatusCode;
use orgdata_exporter::api::Filters;
use orgdata_exporter::audit::Start;
use orgdata_exporter::ledger::StatePath;
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::simulator::{AfterReading, Config, Fault, FaultKind, Fields, Readings};

use super::bench::Bench;
use super::case::{Case, Change, Step};
use super::exact::{block_on, everything_is_delivered, everything_is_exact};

const NEWEST: AfterReading = AfterReading::Newest;

fn case(steps: Vec<Step>) -> Case {
    Case {
        seed: 1,
        history: 10,
        start: Start::Now,
        page_size: 5,
        readings: Readings::default(),
        steps,
    }
}

/// The loop asked for ever, as fast as the service answered, and took nothing.
#[test]
fn a_burst_between_a_poll_and_a_re_read_is_walked() {
    let readings = Readings {
        after: NEWEST,
        ..Readings::default()
    };
    let steps = vec![
        Step::Settle,
        Step::During(2, Change::Events(20)),
        Step::Settle,
    ];
    everything_is_exact(&Case {
        readings,
        ..case(steps)
    });
}

/// A service that takes no cursor at all was asked without a pause.
#[test]
fn a_cursor_that_is_never_taken_is_tried_at_every_poll_and_not_between() {
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::GONE)).times(1_000);
    everything_is_exact(&case(vec![
        Step::Settle,
        Step::Now(Change::Fault(refused)),
        Step::Settle,
    ]));
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
    everything_is_exact(&Case {
        page_size: 1,
        ..case(steps)
    });
}

/// The poll saw the entry of its cursor again and again, and new ones only by way of a recovery at the next re-read.
#[test]
fn a_page_of_one_that_begins_with_the_entry_of_the_cursor_is_not_blind() {
    for (page_size, page_cap) in [(1, None), (10, Some(1))] {
        let readings = Readings {
            after_inclusive: true,
            page_cap,
            ..Readings::default()
        };
        let steps = vec![
            Step::Settle,
            Step::Now(Change::Events(3)),
            Step::Settle,
            Step::Restart,
            Step::Now(Change::Events(1)),
        ];
        everything_is_exact(&Case {
            page_size,
            readings,
            ..case(steps)
        });
    }
}

/// Behind a page full of entries dated in the future nothing new was seen until their time came, and then it was too late for much
/// of it; and at every poll what the page showed again was counted as served twice, and written to the disk.
#[test]
fn entries_dated_in_the_future_hide_nothing() {
    for (page_size, ahead) in [(10, 1), (10, 3), (1000, 20)] {
        let mut steps = vec![Step::Settle];
        steps.extend((0..ahead).map(|i| Step::Now(Change::Ahead(86_400_000 + i))));
        for events in [1, 0, 4, 30] {
            steps.extend([
                Step::Settle,
                Step::Now(Change::Pass(10_000)),
                Step::Now(Change::Events(events)),
            ]);
        }
        steps.extend([
            Step::Settle,
            Step::Now(Change::Pass(86_500_000)),
            Step::Now(Change::Events(3)),
        ]);
        for after in [AfterReading::Adjacent, NEWEST] {
            everything_is_delivered(&Case {
                page_size,
                readings: Readings {
                    after,
                    ..Readings::default()
                },
                ..case(steps.clone())
            });
        }
    }
}

/// Old entries were delivered and counted as late that only had the same time as the newest one when the ledger began.
#[test]
fn what_was_there_at_the_moment_of_the_birth_is_not_late() {
    let seed = (0..200).find(|seed| {
        let times: Vec<_> = orgdata_exporter::simulator::Simulator::new(Config {
            seed: *seed,
            history: 8,
            history_span: Duration::from_secs(160),
            ..Config::quiet()
        })
        .entries()
        .map(|entry| entry.created_at)
        .collect();
        times[7] == times[6]
    });
    let seed = seed.expect("a history that ends with two entries of one moment");
    everything_is_exact(&Case {
        seed,
        history: 8,
        page_size: 1,
        ..case(vec![Step::Settle])
    });
}

/// A page of one moment does not show its order: the wrong end of it was taken for the newest.
#[test]
fn entries_of_one_moment_are_read_in_the_order_of_the_service() {
    for history in [0, 10] {
        let readings = Readings {
            after_inclusive: true,
            ..Readings::default()
        };
        let add = [Step::Now(Change::Events(2)), Step::Settle, Step::Restart];
        let steps = vec![Step::Settle, Step::Now(Change::Events(1)), Step::Settle];
        let steps = [steps, add.to_vec(), add.to_vec(), add.to_vec()].concat();
        everything_is_exact(&Case {
            history,
            page_size: 3,
            readings,
            ..case(steps)
        });
    }
}

/// A late row was never found where it was the newest of a page that the re-read saw: it was left to the poll.
#[test]
fn a_late_row_on_top_of_a_lower_page_is_found() {
    let mut steps = vec![Step::Settle];
    for _ in 0..6 {
        steps.extend([Step::Now(Change::Pass(1_000)), Step::Now(Change::Events(1))]);
    }
    // Pages of three: the newest three, then this row and the two below it.
    steps.extend([
        Step::Settle,
        Step::Now(Change::Late(1, 2_500)),
        Step::Settle,
    ]);
    everything_is_exact(&Case {
        page_size: 3,
        ..case(steps)
    });
}

/// Events of the birth's own moment were read upside down by a process that had not yet met a page of two: what came next was not counted.
#[test]
fn a_restart_on_the_way_down_of_a_first_start_knows_what_was_there() {
    let readings = Readings {
        ..Readings::default()
    };
    let steps = vec![Step::Now(Change::Events(3)), Step::Rounds(7), Step::Die(2)];
    everything_is_exact(&Case {
        seed: 11_933_376_182_795_466_117,
        history: 14,
        start: Start::Oldest,
        page_size: 2,
        readings,
        steps,
    });
}

/// No failure of the exporter: the request that tells whose fault it is was taken for the ledger's first page by the test's own world.
#[test]
fn what_comes_between_the_first_page_and_its_commit_is_counted() {
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST)).times(6);
    let steps = vec![
        Step::During(8, Change::Events(1)),
        Step::Now(Change::Fault(refused)),
        Step::Rounds(3),
    ];
    everything_is_exact(&Case {
        seed: 0,
        history: 2,
        page_size: 2,
        ..case(steps)
    });
}

/// Three entries of one moment were the first page, and refused cursors left only pages of one: two of the three were counted as new.
#[test]
fn what_was_in_the_first_page_is_history_though_its_order_is_not_known() {
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST)).times(3);
    let steps = vec![
        Step::Now(Change::Fault(refused)),
        Step::During(1, Change::Events(1)),
        Step::Rounds(2),
    ];
    let readings = Readings {
        ..Readings::default()
    };
    everything_is_exact(&Case {
        seed: 6_735_748_433_664_714_608,
        history: 14,
        start: Start::Oldest,
        page_size: 3,
        readings,
        steps,
    });
}

fn only(kind: &str) -> Filters {
    Filters {
        activity_types: vec![kind.to_owned()],
        ..Filters::default()
    }
}

/// Up to an hour of events from before the change were counted at once, and a gap was reported where nothing was missing.
#[test]
fn what_only_new_filters_show_is_neither_counted_nor_a_gap() {
    for (history, before) in [(60, 0), (60, 30), (0, 1)] {
        block_on(async {
            let readings = Readings {
                after: NEWEST,
                ..Readings::default()
            };
            let case = Case {
                history,
                page_size: 2,
                readings,
                ..case(Vec::new())
            };
            let mut bench = Bench::filtered(&case, StatePath::Memory, only("OLD")).await;
            bench.lossy = true;
            let add = |bench: &Bench, kind: &str| {
                bench.sim().advance(Duration::from_secs(1));
                bench
                    .sim()
                    .add_entry(&Fields::new().with("type", kind))
                    .unwrap();
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
                bench
                    .counted()
                    .into_iter()
                    .map(|((kind, _), count)| (kind, count))
                    .fold(
                        std::collections::BTreeMap::new(),
                        |mut sum, (kind, count)| {
                            *sum.entry(kind).or_insert(0) += count;
                            sum
                        }
                    ),
                [("NEW".to_owned(), 14), ("OLD".to_owned(), 1)].into()
            );
            assert_eq!(
                [Total::Gaps, Total::Late].map(|total| bench.total(total)),
                [0, 0]
            );
        });
    }
}

/// A page that fails for a while was a gap for good. An error is not a gap: what is above it is counted meanwhile.
#[test]
fn an_entry_that_cannot_be_read_keeps_its_range_open_until_it_can() {
    block_on(async {
        let case = Case {
            page_size: 3,
            ..case(Vec::new())
        };
        let mut bench = Bench::new(&case, StatePath::Memory).await;
        bench.settle().await;
        bench.sim().advance(Duration::from_secs(60));
        bench.sim().add_events(1);
        let bad = bench.sim().add_entry(&Fields::new()).unwrap();
        bench.sim().fault(Fault::new(FaultKind::Poison(bad)));
        bench.sim().advance(Duration::from_secs(60));
        bench.sim().add_events(4);
        for _ in 0..60 {
            bench.tail().hurry_poll();
            bench.round().await;
        }
        bench.sim().advance(Duration::from_secs(1));
        bench.sim().add_events(1);
        for _ in 0..60 {
            bench.tail().hurry_poll();
            bench.round().await;
        }
        let counted: u64 = bench.counted().values().sum();
        assert!((4..7).contains(&counted), "{counted}");
        assert_eq!(bench.total(Total::Gaps), 0);
        assert_eq!(bench.tail().state().ranges.len(), 1);
        bench.sim().clear_faults();
        bench.settle().await;
        assert_eq!(bench.counted().values().sum::<u64>(), 7);
        assert_eq!(bench.delivered.len(), 7);
        assert_eq!(bench.total(Total::Gaps), 0);
    });
}

/// A minute in which the service refused its own cursors cost the events below them.
#[test]
fn a_minute_without_cursors_is_no_gap() {
    let readings = Readings {
        after: NEWEST,
        ..Readings::default()
    };
    let refused = Fault::new(FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST)).times(20);
    let steps = vec![
        Step::Settle,
        Step::Now(Change::Events(30)),
        Step::During(5, Change::Fault(refused)),
        Step::Settle,
    ];
    everything_is_exact(&Case {
        readings,
        ..case(steps)
    });
}

/// A service whose cursors live shorter than the walk takes made gaps of pages that it would have served.
#[test]
fn cursors_that_grow_old_on_a_long_way_are_no_gap() {
    for start in [Start::Now, Start::Oldest] {
        block_on(async {
            let readings = Readings {
                after: NEWEST,
                ..Readings::default()
            };
            let case = Case {
                history: 60,
                start,
                page_size: 2,
                readings,
                ..case(Vec::new())
            };
            let mut bench = Bench::new(&case, StatePath::Memory).await;
            bench.lossy = true;
            let mut used = HashMap::new();
            bench.sim().on_request(Box::new(move |request, _| {
                // The newest page makes them anew.
                if request.raw_query == "limit=2" {
                    used.clear();
                }
                let first = *used
                    .entry(request.param("before")?.to_owned())
                    .or_insert(request.number);
                (request.number - first > 20).then(|| Fault::status(StatusCode::GONE))
            }));
            bench.settle().await;
            bench.sim().advance(Duration::from_secs(60));
            bench.sim().add_events(100);
            bench.settle().await;
            let history = if start == Start::Now { 0 } else { 60 };
            assert_eq!(
                (bench.delivered.len(), bench.total(Total::Gaps)),
                (history + 100, 0)
            );
            assert_eq!(bench.counted().values().sum::<u64>(), 100);
        });
    }
}
