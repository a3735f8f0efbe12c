//! Asking again: only for what can heal, a bounded number of times, and never sooner than the service asked.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use orgdata_exporter::simulator::{Config, Fault, FaultKind, RetryAfter, Simulator};

use crate::http_peer::{NO_ENTRIES, Peer, answer, json};
use crate::support::{Subject, settings};

/// How often one call asks.
const ATTEMPTS: usize = 4;

#[tokio::test]
async fn what_cannot_heal_is_asked_once() {
    for reply in [
        json("400 Bad Request", "{}"),
        json("401 Unauthorized", "{}"),
        json("403 Forbidden", "{}"),
        json("404 Not Found", "{}"),
        json("422 Unprocessable Content", r#"{"error":"e","issues":[]}"#),
        json("200 OK", r#"{"items":7}"#),
        answer("302 Found", &["location: http://127.0.0.1:1/"], ""),
    ] {
        let peer = Peer::always(reply.clone()).await;
        Subject::new(&peer.url()).refused().await;
        assert_eq!(peer.count(), 1, "{reply:?}");
    }
}

#[tokio::test]
async fn what_can_heal_is_asked_again_a_few_times_and_no_more() {
    for status in ["500 Internal Server Error", "503 Service Unavailable", "429 Too Many Requests"] {
        let peer = Peer::always(answer(status, &["retry-after: 0"], "{}")).await;
        let subject = Subject::new(&peer.url());
        let error = subject.refused().await;
        assert_eq!(peer.count(), ATTEMPTS, "{status}");
        assert_eq!(subject.failures(error.reason().as_str()), ATTEMPTS as f64, "{status}");
        assert_eq!(subject.count(r#"orgdata_api_requests_total{endpoint="audit-logs"}"#), ATTEMPTS as f64);
    }
}

#[tokio::test]
async fn a_service_that_heals_meanwhile_is_not_a_failure() {
    let at_once = |status| answer(status, &["retry-after: 0"], "{}");
    let replies = [json("200 OK", r#"{"items":["#), at_once("500 Error"), at_once("429 Slow"), json("200 OK", NO_ENTRIES)];
    let peer = Peer::start(move |_, number| replies[number - 1].clone()).await;
    assert!(Subject::new(&peer.url()).audit().await.expect("a page").is_empty());
}

#[tokio::test]
async fn the_service_s_own_delay_is_obeyed_in_both_forms() {
    // By the simulator's clock it is 2030, so a date that is read by this machine's would be years away.
    let waits = [RetryAfter::Seconds(1), RetryAfter::Date(Duration::from_secs(1))];
    join_all(waits.map(|wait| async move {
        let config = Config { faults: vec![Fault::new(FaultKind::TooManyRequests(wait)).once()], ..Config::quiet() };
        let sim = Simulator::spawn(config).await.expect("a simulator");
        let subject = Subject::new(&sim.base_url());
        let started = Instant::now();
        subject.audit().await.expect("a page, in the end");
        let took = started.elapsed();
        assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(5), "{wait:?}: {took:?}");
        assert_eq!(sim.requests().audit, 2);
        assert!(subject.count("orgdata_api_throttled_seconds_total") >= 0.9);
    }))
    .await;
}

#[tokio::test]
async fn a_long_delay_is_told_at_once_and_holds_both_listings() {
    let peer = Peer::always(answer("503 Service Unavailable", &["retry-after: 1800"], "{}")).await;
    let subject = Subject::new(&peer.url());
    let text = subject.refused().await.to_string();
    assert!(text.contains("HTTP 503"), "{text}");
    // The other listing waits too: it would wait half an hour.
    let held = tokio::time::timeout(Duration::from_millis(200), subject.client.ticket_page(100, 0)).await;
    assert!(held.is_err() && peer.count() == 1);
}

#[tokio::test]
async fn a_delay_that_makes_no_sense_is_no_delay() {
    join_all(["-5", "soon", "1e400", "NaN", "", "99999999999999999999999 s"].map(|nonsense| async move {
        let reply = answer("429 Too Many Requests", &[&format!("retry-after: {nonsense}")], "{}");
        let peer = Peer::start(move |_, number| if number == 1 { reply.clone() } else { json("200 OK", NO_ENTRIES) }).await;
        Subject::new(&peer.url()).audit().await.expect(nonsense);
        assert_eq!(peer.count(), 2);
    }))
    .await;
}

#[tokio::test]
async fn requests_never_come_faster_than_the_limit() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&times);
    // With no delay of the service's own between attempts, only the limit is left.
    let peer = Peer::start(move |_, _| {
        log.lock().expect("not poisoned").push(Instant::now());
        answer("429 Too Many Requests", &["retry-after: 0"], "{}")
    })
    .await;
    let subject = Subject::with(orgdata_exporter::api::Settings { max_requests_per_second: 10.0, ..settings(&peer.url()) });
    join_all((0..4).map(|_| subject.refused())).await;
    let times = times.lock().expect("not poisoned").clone();
    assert_eq!(times.len(), 4 * ATTEMPTS);
    // Ten at once, then one every 100 ms: the sixteenth not before 600 ms.
    let took = times[15] - times[0];
    assert!(took >= Duration::from_millis(550), "{took:?}");
}
