//! Any server: what a listing may do that the specification does not promise against.

use std::sync::{Arc, Mutex};

use orgdata_exporter::api::ApiError;
use orgdata_exporter::tickets::{CONCURRENCY, Doubt, MAX_ATTEMPTS, ScanError, Scanner};
use prometheus_client::metrics::counter::Counter;

use super::support::{
    Request, Script, bug, bugs, by_state, map, page, round, settings, slice, snapshot,
};

#[tokio::test]
async fn pages_overlap_by_one_row_and_every_ticket_counts_once() {
    for count in 0..25 {
        for page_size in 1..8 {
            let script = Script::listing(bugs(0..count));
            let (snapshot, retries) = round(&script, page_size).await;
            let snapshot = snapshot.unwrap();
            assert_eq!(
                (snapshot.tickets, snapshot.doubt, retries),
                (count, None, 0),
                "{count} in pages of {page_size}"
            );
        }
    }
    let script = Script::listing(bugs(0..7));
    round(&script, 3).await.0.unwrap();
    let offsets: Vec<u64> = script
        .requests()
        .iter()
        .map(|request| request.offset)
        .collect();
    // The last page is full, so one more is asked for, which holds the overlap alone.
    assert_eq!(offsets, [0, 2, 4, 6]);
}

#[tokio::test]
async fn a_small_organization_costs_one_request() {
    let script = Script::listing(bugs(0..99));
    round(&script, 100).await.0.unwrap();
    assert_eq!(
        script.requests(),
        [Request {
            number: 0,
            limit: 100,
            offset: 0
        }]
    );
}

#[tokio::test]
async fn a_smaller_limit_than_asked_is_stepped_by_what_came() {
    for echoed in [true, false] {
        let rows = bugs(0..50);
        let script = Script::new(move |request| {
            let capped = Request {
                limit: request.limit.min(7),
                ..request
            };
            let from = (request.offset as usize).min(rows.len());
            let to = (from + 7).min(rows.len());
            Ok(page(
                &rows[from..to],
                if echoed { capped } else { request },
                Some(50),
            ))
        });
        let (snapshot, _) = round(&script, 1000).await;
        let snapshot = snapshot.unwrap();
        assert_eq!((snapshot.tickets, snapshot.doubt), (50, None));
    }
}

#[tokio::test]
async fn a_server_that_sends_everything_at_once_is_believed() {
    let rows = bugs(0..50);
    let script = Script::new(move |request| Ok(page(&rows, request, Some(50))));
    let (snapshot, retries) = round(&script, 10).await;
    assert_eq!(
        (snapshot.unwrap().doubt, retries, script.requests().len()),
        (None, 0, 1)
    );
}

#[tokio::test]
async fn a_count_that_says_too_little_or_too_much_is_seen_and_the_tickets_are_there() {
    for total in [0, 10, 49, 51, 1_000_000_000_000_000_000] {
        let rows = bugs(0..50);
        let script = Script::new(move |request| {
            Ok(page(&rows[bounds(&rows, request)], request, Some(total)))
        });
        let (snapshot, retries) = round(&script, 10).await;
        let snapshot = snapshot.unwrap();
        assert_eq!(snapshot.tickets, 50, "of {total}");
        assert!(snapshot.doubt.is_some(), "of {total}");
        // What does not move is not read a third time.
        assert_eq!(retries, 1, "of {total}");
        assert!(script.requests().len() < 60, "{}", script.requests().len());
    }
}

/// What a service says wrongly each time costs no more requests than what another says rightly, from the second scan on.
#[tokio::test]
async fn a_wrong_count_that_stays_is_read_once_a_scan() {
    let counts: [fn(usize) -> u64; 2] = [|_| 51, |rows_on_the_page| rows_on_the_page as u64];
    for (count, retries_at_first) in counts.into_iter().zip([1, 2]) {
        let tickets = Arc::new(Mutex::new(bugs(0..50)));
        let listing = tickets.clone();
        let script = Script::new(move |request| {
            let rows = listing.lock().unwrap();
            let rows = &rows[bounds(&rows, request)];
            Ok(page(rows, request, Some(count(rows.len()))))
        });
        let retries = Counter::default();
        let mut scanner = Scanner::new(settings(10), retries.clone());
        for scan in 0..4 {
            let snapshot = scanner.round(&script).await.unwrap();
            assert!(snapshot.tickets == 50 && snapshot.doubt.is_some());
            assert_eq!(retries.get(), retries_at_first, "scan {scan}");
        }
        // Other tickets are looked at twice again.
        tickets.lock().unwrap()[7] = bug(77);
        scanner.round(&script).await.unwrap();
        assert!(retries.get() > retries_at_first);
    }
}

#[tokio::test]
async fn without_a_count_all_is_read_once_and_nothing_is_promised() {
    let rows = bugs(0..50);
    let script = Script::new(move |request| Ok(page(&rows[bounds(&rows, request)], request, None)));
    let (snapshot, retries) = round(&script, 10).await;
    let snapshot = snapshot.unwrap();
    assert_eq!(
        (snapshot.tickets, snapshot.doubt, retries),
        (50, Some(Doubt::TotalMissing), 0)
    );
}

#[tokio::test]
async fn what_lies_behind_an_empty_page_is_counted() {
    let rows = bugs(0..100);
    let script = Script::new(move |request| {
        let items = if (18..40).contains(&request.offset) {
            &[]
        } else {
            &rows[bounds(&rows, request)]
        };
        Ok(page(items, request, Some(100)))
    });
    let (snapshot, _) = round(&script, 10).await;
    let snapshot = snapshot.unwrap();
    assert!(snapshot.tickets >= 70, "{}", snapshot.tickets);
    assert!(
        matches!(
            snapshot.doubt,
            Some(Doubt::OverlapDisagrees { .. } | Doubt::EmptyPage { .. })
        ),
        "{:?}",
        snapshot.doubt
    );
}

#[tokio::test]
async fn a_page_that_was_empty_by_accident_is_read_again() {
    let rows = bugs(0..100);
    let script = Script::new(move |request| {
        Ok(if request.number == 3 {
            page(&[], request, Some(100))
        } else {
            slice(&rows, request)
        })
    });
    let (snapshot, retries) = round(&script, 10).await;
    assert_eq!((snapshot.unwrap().doubt, retries), (None, 1));
}

#[tokio::test]
async fn a_server_that_ignores_offset_is_named() {
    for rows_a_page in [1, 2, 10] {
        for total in [Some(1000), None] {
            let script =
                Script::new(move |request| Ok(page(&bugs(0..rows_a_page), request, total)));
            let (result, _) = round(&script, 10).await;
            let error = result.expect_err("the rest of the tickets cannot be read");
            assert!(matches!(error, ScanError::OffsetIgnored { .. }), "{error}");
            assert!(error.to_string().contains("ignores the parameter offset"));
            assert!(script.requests().len() < 30, "{}", script.requests().len());
        }
    }
}

#[tokio::test]
async fn a_server_that_sends_known_tickets_for_ever_ends() {
    let script = Script::new(move |request| {
        let mut rows = bugs(0..10);
        rows.rotate_left(request.number % 10);
        Ok(page(&rows, request, Some(u64::MAX)))
    });
    let (result, _) = round(&script, 10).await;
    assert!(!matches!(result, Ok(snapshot) if snapshot.doubt.is_none()));
    assert!(script.requests().len() < 60, "{}", script.requests().len());
}

#[tokio::test]
async fn a_server_that_ignores_offset_while_tickets_are_created_ends() {
    let script = Script::new(move |request| {
        let newest = 1000 + request.number as u64;
        Ok(page(
            &(newest - 9..=newest).rev().map(bug).collect::<Vec<_>>(),
            request,
            Some(newest),
        ))
    });
    let (result, _) = round(&script, 10).await;
    assert!(!matches!(result, Ok(snapshot) if snapshot.doubt.is_none()));
    assert!(script.requests().len() < 60, "{}", script.requests().len());
}

#[tokio::test]
async fn a_server_that_makes_up_tickets_for_ever_is_told_where_it_ends() {
    let script = Script::new(move |request| {
        // As many as a page may hold, of the kind that is read fastest.
        let rows: Vec<String> = (0..99_999)
            .map(|row| (request.offset + row).to_string())
            .collect();
        Ok(page(&rows, request, None))
    });
    let error = round(&script, 1000).await.0.expect_err("it has no end");
    assert_eq!(
        error.to_string(),
        "there are more than 2000000 tickets, which is more than this exporter counts"
    );
    assert!(script.requests().len() < 25, "{}", script.requests().len());
}

#[tokio::test]
async fn pages_of_one_ticket_are_read_and_doubted() {
    let rows = bugs(0..20);
    let script = Script::new(move |request| {
        Ok(slice(
            &rows,
            Request {
                limit: 1,
                ..request
            },
        ))
    });
    let (snapshot, retries) = round(&script, 1).await;
    let snapshot = snapshot.unwrap();
    assert_eq!(
        (snapshot.tickets, snapshot.doubt, retries),
        (20, Some(Doubt::NoOverlap), 0)
    );
    assert!(
        script.requests().iter().all(|request| request.limit == 2),
        "one row to overlap and one to go on"
    );
}

#[tokio::test]
async fn a_page_too_large_to_be_read_is_asked_for_in_halves() {
    let rows = bugs(0..200);
    let script = Script::new(move |request| {
        if request.limit > 12 {
            Err(ApiError::TooLarge { limit: 1 })
        } else {
            Ok(slice(&rows, request))
        }
    });
    let (snapshot, retries) = round(&script, 100).await;
    let snapshot = snapshot.unwrap();
    assert_eq!((snapshot.tickets, snapshot.doubt, retries), (200, None, 0));

    // Also when it comes in the middle, among pages asked for in advance.
    let rows = bugs(0..200);
    let script = Script::new(move |request| {
        if request.limit > 12 && (100..120).contains(&request.offset) {
            Err(ApiError::TooLarge { limit: 1 })
        } else {
            Ok(slice(&rows, request))
        }
    });
    let (snapshot, _) = round(&script, 20).await;
    let snapshot = snapshot.unwrap();
    assert_eq!((snapshot.tickets, snapshot.doubt), (200, None));
}

#[tokio::test]
async fn an_error_on_any_page_fails_the_scan() {
    for bad in 0..5 {
        let rows = bugs(0..40);
        let script = Script::new(move |request| {
            if request.number == bad {
                Err(ApiError::Unauthorized(String::new()))
            } else {
                Ok(slice(&rows, request))
            }
        });
        let (result, _) = round(&script, 10).await;
        assert!(
            matches!(result, Err(ScanError::Api(ApiError::Unauthorized(_)))),
            "request {bad}"
        );
    }
}

#[tokio::test]
async fn pages_come_a_few_at_a_time_and_none_in_vain() {
    let script = Script::listing(bugs(0..1001));
    round(&script, 10).await.0.unwrap();
    assert_eq!(script.most_at_once(), CONCURRENCY);
    let offsets: Vec<u64> = script
        .requests()
        .iter()
        .map(|request| request.offset)
        .collect();
    assert_eq!(offsets, (0..1000).step_by(9).collect::<Vec<u64>>());
}

#[tokio::test]
async fn no_tickets_are_zero_and_not_no_data() {
    let snapshot = snapshot(&[]).await;
    assert_eq!(snapshot.doubt, None);
    assert_eq!(by_state(&snapshot), map([("OPEN/unknown", 0)]));
    assert_eq!(snapshot.open().count(), 5);
    assert_eq!(
        snapshot.deals().collect::<Vec<_>>(),
        [
            ("BLOCKER", 0),
            ("HIGH", 0),
            ("LOW", 0),
            ("MEDIUM", 0),
            ("none", 0)
        ]
    );
    assert_eq!(snapshot.overdue().collect::<Vec<_>>(), [("unknown", 0)]);
    assert_eq!(snapshot.older_than().count(), 4);
    assert_eq!(snapshot.oldest_created().count(), 0, "0 would be 1970");
}

#[tokio::test]
async fn a_restless_organization_still_gets_fresh_numbers() {
    let script = Script::new(move |request| {
        let rows: Vec<String> = (0..30 + request.number as u64).rev().map(bug).collect();
        Ok(slice(&rows, request))
    });
    let (snapshot, retries) = round(&script, 10).await;
    let snapshot = snapshot.unwrap();
    assert!(snapshot.tickets >= 30);
    assert!(matches!(snapshot.doubt, Some(Doubt::TotalMoved { .. })));
    assert_eq!(retries, u64::from(MAX_ATTEMPTS) - 1);
}

fn bounds(rows: &[String], request: Request) -> std::ops::Range<usize> {
    let from = (request.offset as usize).min(rows.len());
    from..(from + request.limit as usize).min(rows.len())
}
