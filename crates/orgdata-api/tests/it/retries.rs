//! Retries: for transient errors only, a bounded number of times, and never sooner than the API asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time;

use crate::peer::{NO_ENTRIES, NO_TICKETS, Peer, Reply, answer, json};
use crate::support::Subject;
use crate::support::fast;

/// Returns the delays between the requests of one call, in seconds, for an API that always answers this.
async fn waits(reply: Reply) -> Vec<f64> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&times);
    let peer = Peer::start(move |_, _| {
        log.lock().unwrap().push(time::Instant::now());
        reply.clone()
    })
    .await;
    Subject::new(&peer.url()).failed().await;
    let times = times.lock().unwrap();
    let pairs = times.windows(2);
    pairs
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn delays_grow_and_a_retry_after_of_zero_does_not_shorten_them() {
    let past = "retry-after: Wed, 21 Oct 2015 07:28:00 GMT";
    for (status, headers, first) in [
        ("429 Too Many Requests", &[][..], 1.0),
        ("429 Too Many Requests", &["retry-after: 0"], 1.0),
        ("503 Service Unavailable", &[past], 0.25),
    ] {
        let waits = fast(waits(answer(status, headers, "{}"))).await;
        assert_eq!(waits.len(), 3);
        for (wait, expected) in waits.iter().zip([first, first * 2.0, first * 4.0]) {
            // With jitter; the requests themselves take their time too.
            let bounds = expected / 2.0..expected * 2.0 + 1.0;
            assert!(bounds.contains(wait), "{status}, {headers:?}: {waits:?}");
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
        (seconds, "503 Service Unavailable", "server_error"),
        (seconds, "401 Unauthorized", "blocked"),
        (seconds, "403 Forbidden", "blocked"),
        (seconds, "404 Not Found", "rejected"),
    ] {
        let peer = Peer::start(move |_, number| match number {
            1 => answer(status, &headers, "<h1>Back soon"),
            _ => json("200 OK", NO_ENTRIES),
        })
        .await;
        let subject = Subject::new(&peer.url());
        let took = fast(async {
            let started = time::Instant::now();
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
async fn an_api_that_recovers_in_time_is_not_an_error() {
    let at_once = |status| answer(status, &["retry-after: 0"], "{}");
    let replies = [
        json("200 OK", r#"{"items":["#),
        at_once("500 Error"),
        at_once("429 Slow"),
        json("200 OK", NO_ENTRIES),
    ];
    let peer = Peer::start(move |_, number| replies[number - 1].clone()).await;
    assert!(
        fast(Subject::new(&peer.url()).audit())
            .await
            .expect("a page")
            .is_empty()
    );
}

#[tokio::test]
async fn a_long_delay_is_an_error_at_once_and_holds_its_listing() {
    let slow = ["retry-after: 1800"];
    let peer = Peer::start(
        move |seen, _| match seen.target().starts_with("/v1/tickets") {
            true => json("200 OK", NO_TICKETS),
            false => answer("503 Service Unavailable", &slow, "{}"),
        },
    )
    .await;
    let subject = Subject::new(&peer.url());
    let wait = subject.failed().await.retry_after();
    assert_eq!(wait, Some(Duration::from_secs(1800)));
    // The next request fails without being sent.
    let error = subject.failed().await;
    assert_eq!(error.to_string(), "the API asked for a pause");
    assert!(error.retry_after() <= wait);
    assert_eq!(error.reason().as_str(), "rate_limited");
    assert_eq!((peer.count(), subject.failures("rate_limited")), (1, 0));
    subject.client.ticket_page(100, 0).await.expect("a page");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_long_delay_counts_as_throttled_while_it_passes() {
    let peer = Peer::start(|_, number| match number {
        1 => answer("429 Too Many Requests", &["retry-after: 600"], "{}"),
        _ => json("200 OK", NO_ENTRIES),
    })
    .await;
    let subject = Subject::new(&peer.url());
    fast(async {
        subject.failed().await;
        let started = time::Instant::now();
        while started.elapsed() < Duration::from_secs(560) {
            // A loop asks twice a minute.
            subject.failed().await;
            let elapsed = started.elapsed().as_secs_f64();
            let throttled = subject.reported().throttled;
            assert!(
                (throttled - elapsed).abs() < 3.0,
                "{throttled} s after {elapsed} s"
            );
            time::sleep(Duration::from_secs(30)).await;
        }
        time::sleep_until(started + Duration::from_secs(595)).await;
        subject
            .audit()
            .await
            .expect("the delay is over within seconds");
    })
    .await;
    let throttled = subject.reported().throttled;
    assert!((throttled - 600.0).abs() < 3.0, "{throttled}");
}
