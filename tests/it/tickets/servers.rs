//! What a listing may do that the specification does not rule out.

use orgdata_exporter::tickets::Scanner;
use prometheus_client::metrics::counter::Counter;

use super::support::{Failure, Script, bugs, page, round, settings, slice};

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
    let repeat = "repeat the same tickets; the API may ignore `offset`";
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
        _ => Ok(slice(&rows, request)),
    });
    let mut scanner = Scanner::new(settings(1000), Counter::default());
    let limits = |from: usize| -> Vec<u32> {
        let requests = script.requests().into_iter().skip(from);
        requests.map(|request| request.limit).collect()
    };
    scanner.round(&script.client).await.unwrap();
    let expected = [1000, 1000, 1000, 1000, 125, 500, 62, 250];
    assert_eq!(limits(0)[..8], expected);
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
    let error = round(&Script::slow(bugs(0..8000)), 10).await.0.unwrap_err();
    assert!(error.to_string().contains("6 hours"), "{error}");
}
