//! Retries: for transient errors only, a bounded number of times, and never sooner than the API asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{self, Instant};

use crate::peer::{NO_ENTRIES, NO_TICKETS, Peer, answer, json};
use crate::support::{Subject, fast};

#[tokio::test(start_paused = true)]
async fn delays_grow_and_no_retry_after_shortens_them() {
    for (status, header, first) in [
        ("429 Too Many Requests", "x-no: delay", 1.0),
        ("429 Too Many Requests", "retry-after: 0", 1.0),
        ("429 Too Many Requests", "retry-after: soon", 1.0),
        ("503 Unavailable", "retry-after: -5", 0.25),
        ("503 Unavailable", "retry-after: nan", 0.25),
        (
            "503 Unavailable",
            "retry-after: Wed, 21 Oct 2015 07:28:00 GMT",
            0.25,
        ),
    ] {
        let times = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&times);
        let peer = Peer::start(move |_, _| {
            log.lock().unwrap().push(Instant::now());
            answer(status, &[header], "{}")
        })
        .await;
        fast(Subject::new(&peer.url()).failed()).await;
        let times = times.lock().unwrap();
        assert_eq!(times.len(), 4, "{header}");
        let expected = [first, first * 2.0, first * 4.0];
        for (pair, expected) in times.windows(2).zip(expected) {
            let wait = (pair[1] - pair[0]).as_secs_f64();
            // With jitter; the requests themselves take their time too.
            let bounds = expected / 2.0..expected * 2.0 + 1.0;
            assert!(bounds.contains(&wait), "{status}, {header}: {wait}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_obeyed_in_both_forms_and_whatever_the_answer_is() {
    // By the API's clock it is 2030, so a date compared with this machine's would be years away.
    let date = [
        "date: Tue, 01 Jan 2030 00:00:00 GMT",
        "retry-after: Tue, 01 Jan 2030 00:00:05 GMT",
    ];
    let seconds = ["retry-after: 5", "content-type: text/html"];
    for (headers, status, reason) in [
        (date, "429 Too Many Requests", "rate_limited"),
        (seconds, "429 Too Many Requests", "rate_limited"),
        (seconds, "502 Bad Gateway", "server_error"),
        (seconds, "401 Unauthorized", "blocked"),
        (seconds, "404 Not Found", "rejected"),
    ] {
        let peer = Peer::start(move |_, number| match number {
            1 => answer(status, &headers, "<h1>Back soon"),
            _ => json("200 OK", NO_ENTRIES),
        })
        .await;
        let subject = Subject::new(&peer.url());
        let took = fast(async {
            let started = Instant::now();
            // Other errors are not retried by the same call.
            while subject.audit().await.is_err() {}
            started.elapsed().as_secs()
        })
        .await;
        assert!((5..8).contains(&took), "{status}: {took} s");
        assert_eq!((peer.count(), subject.failures(reason)), (2, 1), "{status}");
        assert!(subject.reported().throttled >= 4.9, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_delay_holds_its_listing_for_an_hour_at_most_and_counts_while_it_passes() {
    let peer = Peer::start(|_, number| match number {
        1 => answer("503 Unavailable", &["retry-after: 86400000"], "{}"),
        _ => json("200 OK", NO_TICKETS),
    })
    .await;
    let subject = Subject::new(&peer.url());
    let wait = fast(subject.failed()).await.retry_after();
    assert_eq!(wait, Some(Duration::from_secs(3600)));
    let started = Instant::now();
    let tickets = fast(subject.client.ticket_page(100, 0)).await;
    tickets.expect("the other listing has no pause");
    for _ in 0..119 {
        // It fails without being sent.
        let error = subject.failed().await;
        assert_eq!(error.reason().as_ref(), "rate_limited");
        assert!(error.retry_after() <= wait);
        let (elapsed, throttled) = (started.elapsed(), subject.reported().throttled);
        let difference = (throttled - elapsed.as_secs_f64()).abs();
        assert!(difference < 3.0, "{throttled} s after {elapsed:?}");
        time::advance(Duration::from_secs(30)).await;
    }
    assert_eq!((peer.count(), subject.failures("rate_limited")), (2, 0));
    time::advance(Duration::from_secs(25)).await;
    let page = fast(subject.audit()).await;
    page.expect("the delay is over within seconds");
    let throttled = subject.reported().throttled;
    assert!((throttled - 3600.0).abs() < 3.0, "{throttled}");
}
