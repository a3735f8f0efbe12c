//! What a listing may do that the specification does not rule out.

use orgdata_exporter::tickets::{Doubt, Scanner};
use prometheus_client::metrics::counter::Counter;

use super::support::{Failure, Request, Script, bugs, page, round, rows_of, settings, slice};

#[tokio::test]
async fn pages_overlap_by_one_row() {
    // The last page is full, so one more is requested, which has only the overlap.
    for (count, page_size, expected) in [(7, 3, vec![0, 2, 4, 6]), (99, 100, vec![0])] {
        let script = Script::listing(bugs(0..count));
        round(&script, page_size).await.0.unwrap();
        let offsets = script.requests().into_iter().map(|request| request.offset);
        assert_eq!(offsets.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn what_servers_do_is_read_and_doubted_where_it_should_be() {
    let rows = bugs(0..50);
    let of = |total: Option<u64>| {
        let rows = rows.clone();
        Script::new(move |request| Ok(page(rows_of(&rows, request), request, total)))
    };
    let capped = |limit, echoed: bool| {
        let rows = rows.clone();
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
    let blank = rows.clone();
    let blank = Script::new(move |request| match request.number {
        0 => Ok(page(&[], request, None)),
        _ => Ok(slice(&blank, request)),
    });
    let too_large = rows.clone();
    let too_large = Script::new(move |request| match (request.limit, request.offset) {
        (4.., 20..) => Err(Failure::TooLarge),
        _ => Ok(slice(&too_large, request)),
    });
    let differs = |total| Some(Doubt::CountDiffers { seen: 50, total });
    let (one_each, missing) = (Some(Doubt::NoOverlap), Some(Doubt::TotalMissing));
    let most = 1 << 60;
    for (what, script, doubt, retries) in [
        ("smaller pages than requested", capped(7, true), None, 0),
        ("the same without saying so", capped(7, false), None, 0),
        ("larger ones", capped(50, false), None, 0),
        ("one ticket a page", capped(1, true), one_each, 2),
        ("a page that is too large", too_large, None, 0),
        ("a page that is empty once", emptied, None, 1),
        (
            "a first page without tickets and count, once",
            blank,
            None,
            1,
        ),
        ("no count", of(None), missing, 2),
        ("a count that is too low", of(Some(49)), differs(49), 2),
        ("one of 0", of(Some(0)), differs(0), 2),
        ("one that is absurd", of(Some(most)), differs(most), 2),
    ] {
        let (scanned, retried) = round(&script, 10).await;
        let (snapshot, doubted) = scanned.unwrap();
        let seen = (snapshot.tickets, doubted, retried);
        assert_eq!(seen, (50, doubt, retries), "{what}");
        assert!(script.requests().len() < 60, "{what}");
    }
}

#[tokio::test]
async fn a_listing_without_end_ends() {
    let first_page =
        |rows: u64, total| Script::new(move |request| Ok(page(&bugs(0..rows), request, total)));
    let rotating = Script::new(|request| {
        let mut rows = bugs(0..10);
        rows.rotate_left(request.number % 10);
        Ok(page(&rows, request, Some(u64::MAX)))
    });
    let invented = Script::new(|request| {
        // As many as a page may have, of the kind that is read fastest.
        let rows = request.offset..request.offset + 99_999;
        let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
        Ok(page(&rows, request, None))
    });
    for (what, script) in [
        ("one ticket again and again", first_page(1, Some(1000))),
        ("two, no count", first_page(2, None)),
        ("ten", first_page(10, Some(1000))),
        ("known tickets in another order", rotating),
        ("new ones for ever", invented),
    ] {
        let message = match what {
            "new ones for ever" => "there are more than 2 million tickets",
            _ => "repeat the same tickets; the API may ignore the parameter offset",
        };
        let error = round(&script, 10).await.0.expect_err(what);
        assert!(error.to_string().contains(message), "{what}: {error}");
        assert!(script.requests().len() < 30, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_goes_on_after_a_pause() {
    let rows = bugs(0..50);
    let limited = Script::new(move |request| match request.number % 4 {
        3 => Err(Failure::Status(429)),
        _ => Ok(slice(&rows, request)),
    });
    let (scanned, retries) = round(&limited, 10).await;
    let (snapshot, doubt) = scanned.unwrap();
    assert_eq!((snapshot.tickets, doubt, retries), (50, None, 0));
    let always = Script::new(move |request| match request.number {
        0 => Ok(slice(&bugs(0..50), request)),
        _ => Err(Failure::Status(429)),
    });
    round(&always, 10).await.0.expect_err("no page");
    assert_eq!(always.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_is_kept_and_one_that_outlasts_the_snapshot_ends_the_scan() {
    let unavailable = |wait| {
        Script::new(move |request| match request.number {
            1 => Err(Failure::Wait(503, wait)),
            _ => Ok(slice(&bugs(0..2000), request)),
        })
    };
    let script = unavailable(3600);
    round(&script, 1000).await.0.expect_err("no page");
    assert_eq!(script.requests().len(), 2);
    let (script, started) = (unavailable(120), tokio::time::Instant::now());
    round(&script, 1000).await.0.unwrap();
    assert_eq!(started.elapsed().as_secs(), 120);
    let limits = script.requests().into_iter().map(|request| request.limit);
    assert!(limits.into_iter().all(|limit| limit == 1000));
    // Before the first page there is nothing to keep.
    let script = Script::new(|_| Err(Failure::Wait(503, 120)));
    let error = round(&script, 1000).await.0.expect_err("no page");
    assert_eq!(error.summary(), "server_error, HTTP 503");
}

#[tokio::test(start_paused = true)]
async fn pages_that_do_not_come_are_requested_smaller() {
    let rows = bugs(0..2000);
    let script = Script::new(move |request| match request.limit {
        501.. => Err(Failure::Reset),
        251.. => Err(Failure::Silence),
        // A pause ends the scan as little as before any other page.
        _ if request.number == 3 => Err(Failure::Wait(429, 5)),
        _ => Ok(slice(&rows, request)),
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    let limits = |from: usize| -> Vec<u32> {
        let requests = script.requests().into_iter().skip(from);
        requests.map(|request| request.limit).collect()
    };
    scanner.round(&script).await.unwrap();
    assert_eq!(limits(0)[..6], [1000, 125, 500, 62, 62, 250]);
    let first = limits(0).len();
    scanner.round(&script).await.unwrap();
    assert_eq!(limits(first)[..3], [500, 62, 250]);
    assert!(limits(first)[2..].iter().all(|limit| *limit == 250));
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_make_pages_smaller() {
    let script = Script::new(move |request| match request.number {
        0..9 => Err(Failure::Status(500)),
        _ => Ok(slice(&bugs(0..2000), request)),
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    for _ in 0..3 {
        scanner.round(&script).await.expect_err("down");
    }
    scanner.round(&script).await.unwrap();
    assert_eq!(script.requests()[9].limit, 1000);
}

#[tokio::test]
async fn rows_that_move_without_a_change_of_their_number_are_noticed() {
    let moving = Script::new(move |request| {
        let mut rows = bugs(0..15);
        // An update moves a row across the boundary, in each attempt of the first scan and in the first one of the second.
        if request.offset > 0 && [1, 3, 5, 7].contains(&request.number) {
            rows.rotate_right(1);
        }
        Ok(slice(&rows, request))
    });
    let retries = Counter::default();
    let mut scanner = Scanner::new(settings(10), retries.clone());
    let (_, doubt) = scanner.round(&moving).await.unwrap();
    let before = retries.get();
    let (_, again) = scanner.round(&moving).await.unwrap();
    let seen = (doubt, before, retries.get(), again);
    assert_eq!(seen, (Some(Doubt::Moved), 2, 3, None));
}
