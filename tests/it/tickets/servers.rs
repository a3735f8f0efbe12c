//! What a listing may do that the specification does not rule out.

use orgdata_exporter::tickets::Scanner;
use prometheus_client::metrics::counter::Counter;

use super::support::{Failure, Script, bugs, page, round, settings, slice};
use crate::support::captured::Captured;

#[tokio::test]
async fn a_listing_without_end_ends() {
    let same = Script::new(|request| Ok(page(&bugs(0..2), request, None)));
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
    let repeat = "repeat the same tickets; the API may ignore the parameter offset";
    for (what, script, message) in [
        ("the same tickets, no count", same, repeat),
        ("known tickets in another order", rotating, repeat),
        ("new ones for ever", invented, "more than 2 million tickets"),
    ] {
        let error = round(&script, 10).await.0.expect_err(what);
        assert!(error.to_string().contains(message), "{what}: {error}");
        assert!(script.requests().len() < 30, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_do_not_come_are_requested_smaller() {
    let rows = bugs(0..2000);
    let script = Script::new(move |request| match request.limit {
        // The client tries that again by itself, three times.
        501.. => Err(Failure::Pause(10)),
        251.. => Err(Failure::Silence),
        // A pause ends the scan as little as before any other page.
        _ if request.number == 6 => Err(Failure::Pause(60)),
        _ => Ok(slice(&rows, request)),
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    let limits = |from: usize| -> Vec<u32> {
        let requests = script.requests().into_iter().skip(from);
        requests.map(|request| request.limit).collect()
    };
    scanner.round(&script.client).await.unwrap();
    let expected = [1000, 1000, 1000, 1000, 125, 500, 62, 62, 250];
    assert_eq!(limits(0)[..9], expected);
    let first = limits(0).len();
    scanner.round(&script.client).await.unwrap();
    assert_eq!(limits(first)[..3], [500, 62, 250]);
    assert!(limits(first)[2..].iter().all(|limit| *limit == 250));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_never_comes_is_requested_three_times_if_it_can_be_smaller() {
    for (page_size, expected) in [(1000, &[1000, 125, 15][..]), (2, &[2])] {
        let script = Script::new(|_| Err(Failure::Silence));
        round(&script, page_size).await.0.unwrap_err();
        let requests = script.requests().into_iter();
        let limits: Vec<u32> = requests.map(|request| request.limit).collect();
        assert_eq!(limits, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_ends_after_six_hours() {
    let error = round(&Script::slow(bugs(0..4000)), 10).await.0.unwrap_err();
    assert!(error.to_string().contains("6 hours"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_scan_waits_as_long_as_the_api_asks_and_goes_on_where_it_was() {
    // A scan has not begun before its first page, and a snapshot disappears after 900 s.
    for (failing, pause, waits) in [
        (0, 120, false),
        (1, 120, true),
        (1, 900, true),
        (1, 901, false),
    ] {
        let (log, rows) = (Captured::begin(), bugs(0..20));
        let script = Script::new(move |request| match request.number == failing {
            true => Err(Failure::Pause(pause)),
            false => Ok(slice(&rows, request)),
        });
        let begun = tokio::time::Instant::now();
        let result = round(&script, 10).await.0;
        assert_eq!(result.is_ok(), waits, "{pause} s");
        assert_eq!(log.count("the API asks for a pause"), usize::from(waits));
        if waits {
            let requests = script.requests().into_iter();
            let pages: Vec<_> = requests.map(|it| (it.limit, it.offset)).collect();
            assert_eq!(pages[..3], [(10, 0), (10, 9), (10, 9)]);
            assert_eq!(begun.elapsed().as_secs() / 10, pause / 10);
        }
    }
}
