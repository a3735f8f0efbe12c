//! `/-/healthy` names a loop that is stuck: one that waits for a service is not, one that never ends a round is.

use std::time::Duration;

use orgdata_exporter::app::scan_tickets;
use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::{Health, LONGEST_ROUND};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::support::settings;
use crate::tickets::support::settings as of_scans;

const HOUR: Duration = Duration::from_secs(3600);

fn stuck(health: &Health) -> Vec<&'static str> {
    let stuck = health.stuck().into_iter();
    stuck.map(|stuck| stuck.which.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_never_ends_is_stuck_and_one_that_always_fails_is_not() {
    for (answers, expected) in [(true, vec![]), (false, vec!["tickets"])] {
        let metrics = Metrics::new(Duration::ZERO);
        let (health, shutdown) = (Health::default(), CancellationToken::new());
        let (of_run, stop) = (health.clone(), shutdown.clone());
        let client = settings::in_process(10 * LONGEST_ROUND, move |_| async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            let refused = http::Response::builder().status(403);
            Some(refused.body("".into()).unwrap())
        });
        let (ledger, _) = LedgerHandle::open(settings::ledger(None, "http://api")).unwrap();
        let run = scan_tickets(client, of_scans(1000), ledger, metrics, of_run, stop);
        let task = tokio::spawn(run);
        tokio::time::sleep(LONGEST_ROUND).await;
        assert_eq!(stuck(&health), [""; 0]);
        tokio::time::sleep(HOUR).await;
        assert_eq!(stuck(&health), expected);
        shutdown.cancel();
        task.await.unwrap();
        assert_eq!(stuck(&health), [""; 0]);
    }
}

/// Runs a tail whose service is not there.
async fn tail(health: Health, shutdown: CancellationToken) {
    let metrics = Metrics::new(Duration::ZERO);
    // Nothing listens on port 9.
    let url = "http://127.0.0.1:9/";
    let client = settings::client(url, &metrics);
    let (ledger, state) = LedgerHandle::open(settings::ledger(None, url)).unwrap();
    let tail = Tail::new(client, ledger, state, metrics, settings::tail(1000));
    tail.unwrap().run(health, shutdown).await;
}

#[tokio::test(start_paused = true)]
async fn a_tail_whose_service_is_away_is_not_stuck_and_one_that_does_not_run_is() {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let task = tokio::spawn(tail(health.clone(), shutdown.clone()));
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(stuck(&health), [""; 0]);
    }
    shutdown.cancel();
    task.await.unwrap();
    assert_eq!(stuck(&health), [""; 0]);

    let mut tail = Box::pin(tail(health.clone(), CancellationToken::new()));
    // It is not polled any more, as if it waited for a lock.
    assert!(futures_util::poll!(tail.as_mut()).is_pending());
    tokio::time::sleep(LONGEST_ROUND + HOUR).await;
    assert_eq!(stuck(&health), ["audit"]);
}
