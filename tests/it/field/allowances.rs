//! What an API allows and how its listing ends, and that requests neither stop nor never end because of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orgdata_exporter::api::Client;
use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::simulator::{Config, Simulator};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::settings::{answered_by, in_process, ledger, tail};

const HOUR: Duration = Duration::from_secs(3600);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Tails until `task` has ended, and returns what `/metrics` says then.
async fn tailed(client: Client, task: impl Future<Output = ()>) -> String {
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let tail = Tail::new(client, ledger, state, metrics.clone(), tail(1000)).unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(tail.run(Health::default(), shutdown.clone()));
    task.await;
    shutdown.cancel();
    running.await.unwrap();
    Format::Text.encode(metrics.registry()).unwrap()
}

/// Polls alone would take every request that is allowed.
#[tokio::test(start_paused = true)]
async fn a_late_entry_is_found_although_fewer_requests_are_allowed_than_polls_are_due() {
    for seconds in [20, 60] {
        let every = Duration::from_secs(seconds);
        let sim = Simulator::new(Config {
            history: 1500,
            ..Config::quiet()
        });
        let (api, last) = (Arc::clone(&sim), Mutex::new(None::<Instant>));
        let client = in_process(TIMEOUT, move |request| {
            let mut last = last.lock().unwrap();
            let left = last.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()));
            if left.is_zero() {
                *last = Some(Instant::now());
            }
            let answer = answered_by(&api, &request);
            async move {
                if left.is_zero() {
                    return answer.await;
                }
                let refusal = http::Response::builder().status(429);
                let refusal = refusal.header("retry-after", left.as_millis().div_ceil(1000) as u64);
                refusal.body("{}".into()).ok()
            }
        });
        let text = tailed(client, async {
            tokio::time::sleep(HOUR).await;
            sim.advance(HOUR);
            sim.add_events(20);
            tokio::time::sleep(HOUR).await;
            sim.add_late(1, HOUR / 2);
            tokio::time::sleep(HOUR).await;
        });
        let text = text.await;
        let found = text.contains("orgdata_audit_events_late_total 1\n");
        assert!(found, "one request in {seconds} s: {text}");
    }
}

/// Such a cursor may be encrypted, with a random part.
#[tokio::test(start_paused = true)]
async fn a_listing_ends_with_an_empty_page_that_has_yet_another_cursor() {
    let requests = Arc::new(AtomicU64::default());
    let seen = Arc::clone(&requests);
    let client = in_process(TIMEOUT, move |request| {
        let number = seen.fetch_add(1, Ordering::Relaxed);
        let is_first = !request.url().as_str().contains("before=");
        let entry =
            r#"{"id":"1","type":"X","createdAt":"2026-01-01T00:00:00Z","organizationId":7}"#;
        let items = if is_first { entry } else { "" };
        let page = format!(
            r#"{{"items":[{items}],"startCursor":null,"endCursor":"{number}","hasPrevious":false,"hasMore":false}}"#
        );
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            http::Response::builder().body(page.into()).ok()
        }
    });
    tailed(client, tokio::time::sleep(HOUR)).await;
    // A poll is one request, a re-read two.
    let expected = 3600 / 15 + 2 * 3600 / 300;
    let requests = requests.load(Ordering::Relaxed);
    assert!(
        requests <= expected + 4,
        "{requests} requests, not {expected}"
    );
}
