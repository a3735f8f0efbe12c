//! What a listing may do that the specification does not rule out.

use std::sync::{Arc, Mutex};

use orgdata_api::{ApiError, FailureReason};
use orgdata_exporter::tickets::{Doubt, MAX_ATTEMPTS, ScanError, Scanner};
use prometheus_client::metrics::counter::Counter;

use super::support::{Request, Script, bug, bugs, page, round, settings, slice};

fn offsets(script: &Script) -> Vec<u64> {
    let requests = script.requests().into_iter();
    requests.map(|request| request.offset).collect()
}

/// The rows of a page.
fn rows_of(rows: &[String], request: Request) -> &[String] {
    let from = (request.offset as usize).min(rows.len());
    &rows[from..(from + request.limit as usize).min(rows.len())]
}

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
    // The last page is full, so one more is requested, which has only the overlap.
    for (count, page_size, expected) in [(7, 3, vec![0, 2, 4, 6]), (99, 100, vec![0])] {
        let script = Script::listing(bugs(0..count));
        round(&script, page_size).await.0.unwrap();
        assert_eq!(offsets(&script), expected);
    }
}

#[tokio::test]
async fn what_servers_do_is_read_and_doubted_where_it_should_be() {
    let rows = bugs(0..50);
    let of = |rows: &[String], total: Option<u64>| {
        let rows = rows.to_vec();
        Script::new(move |request| Ok(page(rows_of(&rows, request), request, total)))
    };
    let capped = |rows: &[String], limit, echoed: bool| {
        let rows = rows.to_vec();
        Script::new(move |request| {
            let capped = Request { limit, ..request };
            let echo = if echoed { capped } else { request };
            Ok(page(rows_of(&rows, capped), echo, Some(50)))
        })
    };
    let emptied = rows.clone();
    let emptied = Script::new(move |request| match request.number {
        3 => Ok(page(&[], request, Some(50))),
        _ => Ok(slice(&emptied, request)),
    });
    let too_large = rows.clone();
    let too_large = Script::new(move |request| match request {
        Request {
            limit: 4..,
            offset: 20..,
            ..
        } => Err(ApiError::new(FailureReason::TooLarge, "too large")),
        _ => Ok(slice(&too_large, request)),
    });
    let differs = |total| Some(Doubt::CountDiffers { seen: 50, total });
    for (what, script, doubt, retries) in [
        (
            "smaller pages than requested",
            capped(&rows, 7, true),
            None,
            0,
        ),
        (
            "the same without saying so",
            capped(&rows, 7, false),
            None,
            0,
        ),
        ("larger ones", capped(&rows, 50, false), None, 0),
        (
            "one ticket a page",
            capped(&rows, 1, true),
            Some(Doubt::NoOverlap),
            0,
        ),
        ("a page that is too large", too_large, None, 0),
        ("a page that is empty once", emptied, None, 1),
        ("no count", of(&rows, None), Some(Doubt::TotalMissing), 0),
        // The second attempt shows the same, so there is no third.
        (
            "a count that is too low",
            of(&rows, Some(49)),
            differs(49),
            1,
        ),
        ("one of 0", of(&rows, Some(0)), differs(0), 1),
        (
            "one that is absurd",
            of(&rows, Some(1 << 60)),
            differs(1 << 60),
            1,
        ),
    ] {
        let (snapshot, retried) = round(&script, 10).await;
        let snapshot = snapshot.unwrap();
        let seen = (snapshot.tickets, snapshot.doubt, retried);
        assert_eq!(seen, (50, doubt, retries), "{what}");
        assert!(script.requests().len() < 60, "{what}");
    }
}

#[tokio::test]
async fn a_count_that_is_always_wrong_is_read_once_per_scan() {
    let counts: [fn(usize) -> u64; 2] = [|_| 51, |rows_on_the_page| rows_on_the_page as u64];
    for (count, retries_at_first) in counts.into_iter().zip([1, 2]) {
        let tickets = Arc::new(Mutex::new(bugs(0..50)));
        let listing = tickets.clone();
        let script = Script::new(move |request| {
            let rows = listing.lock().unwrap();
            let rows = rows_of(&rows, request);
            Ok(page(rows, request, Some(count(rows.len()))))
        });
        let retries = Counter::default();
        let mut scanner = Scanner::new(settings(10), retries.clone());
        for scan in 0..4 {
            let snapshot = scanner.round(&script).await.unwrap();
            assert!(snapshot.tickets == 50 && snapshot.doubt.is_some());
            assert_eq!(retries.get(), retries_at_first, "scan {scan}");
        }
    }
}

#[tokio::test]
async fn a_listing_without_end_ends() {
    let repeats = "repeat the same tickets; the API may ignore the parameter offset";
    let first_page =
        |rows: u64, total| Script::new(move |request| Ok(page(&bugs(0..rows), request, total)));
    let rotating = Script::new(|request| {
        let mut rows = bugs(0..10);
        rows.rotate_left(request.number % 10);
        Ok(page(&rows, request, Some(u64::MAX)))
    });
    let growing = Script::new(|request| {
        let newest = 1000 + request.number as u64;
        let rows: Vec<String> = (newest - 9..=newest).rev().map(bug).collect();
        Ok(page(&rows, request, Some(newest)))
    });
    let invented = Script::new(|request| {
        // As many as a page may have, of the kind that is read fastest.
        let rows = request.offset..request.offset + 99_999;
        Ok(page(
            &rows.map(|row| row.to_string()).collect::<Vec<_>>(),
            request,
            None,
        ))
    });
    for (what, script, message) in [
        (
            "one ticket again and again",
            first_page(1, Some(1000)),
            repeats,
        ),
        ("two, no count", first_page(2, None), repeats),
        ("ten", first_page(10, Some(1000)), repeats),
        ("known tickets in another order", rotating, repeats),
        ("the newest, while tickets are created", growing, repeats),
        (
            "new ones for ever",
            invented,
            "there are more than 2000000 tickets",
        ),
    ] {
        let error = round(&script, 10).await.0.expect_err(what);
        assert!(error.to_string().contains(message), "{what}: {error}");
        assert!(
            script.requests().len() < 30,
            "{what}: {}",
            script.requests().len()
        );
    }
}

#[tokio::test]
async fn an_error_on_any_page_fails_the_scan() {
    for bad in 0..5 {
        let rows = bugs(0..40);
        let script = Script::new(move |request| {
            if request.number == bad {
                Err(ApiError::new(FailureReason::Unauthorized, ""))
            } else {
                Ok(slice(&rows, request))
            }
        });
        let (result, _) = round(&script, 10).await;
        assert!(
            matches!(result, Err(ScanError::Api(error)) if error.reason() == FailureReason::Unauthorized),
            "request {bad}"
        );
    }
}

#[tokio::test]
async fn an_organization_that_never_stands_still_gets_fresh_numbers() {
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
