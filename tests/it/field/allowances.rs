//! What an API allows and how its listing ends, and that requests neither stop nor never end because of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orgdata_exporter::api::Client;
use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::simulator::{Config, Fault, FaultKind, RetryAfter, Simulator};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::settings::{in_process, ledger, simulated, tail};

const HOUR: Duration = Duration::from_secs(3600);

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
        let mut last = None::<Instant>;
        sim.on_request(Box::new(move |_, _| {
            let left = last.map_or(Duration::ZERO, |at| every.saturating_sub(at.elapsed()));
            if left.is_zero() {
                last = Some(Instant::now());
                return None;
            }
            let pause = RetryAfter::Seconds(left.as_millis().div_ceil(1000) as u64);
            Some(Fault::new(FaultKind::TooManyRequests(pause)))
        }));
        let text = tailed(simulated(&sim), async {
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

/// Such a cursor may be encrypted, with a random part. If pages are filtered after they were cut, the page before may have said that there is
/// more.
#[tokio::test(start_paused = true)]
async fn a_listing_ends_with_an_empty_page_that_has_yet_another_cursor() {
    for (has_more, pages) in [(false, 2), (true, 3)] {
        let requests = Arc::new(AtomicU64::default());
        let seen = Arc::clone(&requests);
        let client = in_process(Duration::from_secs(10), move |request| {
            let number = seen.fetch_add(1, Ordering::Relaxed);
            let is_first = !request.url().as_str().contains("before=");
            let entry =
                r#"{"id":"1","type":"X","createdAt":"2026-01-01T00:00:00Z","organizationId":7}"#;
            let items = if is_first { entry } else { "" };
            let has_more = is_first && has_more;
            let page = format!(
                r#"{{"items":[{items}],"startCursor":null,"endCursor":"{number}","hasPrevious":false,"hasMore":{has_more}}}"#
            );
            async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                http::Response::builder().body(page.into()).ok()
            }
        });
        tailed(client, tokio::time::sleep(HOUR)).await;
        // A poll is one request.
        let expected = 3600 / 15 + pages * 3600 / 300;
        let requests = requests.load(Ordering::Relaxed);
        assert!(
            requests <= expected + 4,
            "{requests} requests, not {expected}"
        );
    }
}
