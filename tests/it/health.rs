//! `/-/healthy` names a loop that is stuck: one that waits for the API is not, one that never ends a round is.

use std::time::Duration;

use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::{Health, LONGEST_ROUND, Loop};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::tickets::scan_tickets;
use tokio_util::sync::CancellationToken;

use crate::support::settings::{in_process, ledger, tail};
use crate::tickets::support::settings as of_scans;

/// The one that is refused also goes on to say why, although it may not ask again for an hour: the alert about the key reads the reason.
#[tokio::test(start_paused = true)]
async fn a_scan_that_never_ends_is_stuck_and_one_that_is_refused_is_not() {
    for (is_refused, expected) in [(true, vec![]), (false, vec!["tickets"])] {
        let metrics = Metrics::new(Duration::ZERO);
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        // No time limit of a request ends it. That of the audit loop follows from this one.
        let client = in_process(10 * LONGEST_ROUND, move |_| async move {
            if !is_refused {
                std::future::pending::<()>().await;
            }
            let refusal = http::Response::builder().status(401);
            let refusal = refusal.header("retry-after", 3600);
            refusal.body(r#"{"message":"Later"}"#.into()).ok()
        });
        let (ledger, state) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
        let tail = Tail::new(
            client.clone(),
            ledger.clone(),
            state,
            metrics.clone(),
            tail(1000),
        );
        let entries = tail.unwrap().run(health.clone(), shutdown.clone());
        let tickets = scan_tickets(
            client,
            of_scans(1000),
            ledger,
            metrics.clone(),
            health.clone(),
            shutdown.clone(),
        );
        let both = tokio::spawn(async { tokio::join!(entries, tickets) });
        let stuck = || {
            let stuck = health.stuck().into_iter();
            let mut stuck: Vec<_> = stuck.map(|stuck| stuck.which.as_ref().to_owned()).collect();
            stuck.sort_unstable();
            stuck
        };
        tokio::time::sleep(LONGEST_ROUND).await;
        assert_eq!(stuck(), [""; 0]);
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            for of in [Loop::Audit, Loop::Tickets] {
                let failure = metrics.loops.state(of).last_failure;
                let reason = failure.map(|failure| failure.reason);
                assert_eq!(reason, is_refused.then_some("unauthorized"), "{of:?}");
            }
        }
        assert_eq!(stuck(), expected);
        shutdown.cancel();
        both.await.unwrap();
        assert_eq!(stuck(), [""; 0]);
    }
}

/// Not before minutes have passed after the longest time that all attempts and pauses can take.
#[tokio::test(start_paused = true)]
async fn an_audit_request_whose_attempts_take_as_long_as_they_may_is_not_stuck() {
    let timeout = Duration::from_secs(30);
    let client = in_process(timeout, move |_| async move {
        tokio::time::sleep(timeout - Duration::from_millis(1)).await;
        let refusal = http::Response::builder().status(503);
        let refusal = refusal.header("retry-after", 10);
        refusal.body("{}".into()).ok()
    });
    let limit = client.longest_page();
    assert!(limit < 15 * timeout, "{limit:?}");
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let (ledger, state) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let metrics = Metrics::new(Duration::ZERO);
    let reads = Tail::new(client, ledger, state, metrics.clone(), tail(1000)).unwrap();
    let reads = tokio::spawn(reads.run(health.clone(), shutdown.clone()));
    for _ in 0..1000 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(health.stuck(), []);
    }
    let failed = metrics.loops.state(Loop::Audit).last_failure.is_some();
    shutdown.cancel();
    reads.await.unwrap();
    assert!(failed);
}
