//! A pause that the API asks for.

use std::time::Duration;

use orgdata_exporter::app::scan_tickets;
use orgdata_exporter::audit::Tail;
use orgdata_exporter::health::{Health, Loop};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::support::settings::{in_process, ledger, tail};
use crate::tickets::support::settings as of_scans;

/// The alert about the key reads it.
#[tokio::test(start_paused = true)]
async fn the_reason_of_a_failure_stays_while_the_api_wants_to_be_left_alone() {
    let client = in_process(Duration::from_secs(30), |_| async {
        let response = http::Response::builder().status(401);
        let response = response.header("retry-after", 3600);
        response.body(r#"{"message":"Later"}"#.into()).ok()
    });
    let metrics = Metrics::new(Duration::ZERO);
    let (ledger, state) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let _ends = shutdown.clone().drop_guard();
    let tail = Tail::new(
        client.clone(),
        ledger.clone(),
        state,
        metrics.clone(),
        tail(1000),
    );
    tokio::spawn(tail.unwrap().run(health.clone(), shutdown.clone()));
    let scans = scan_tickets(
        client,
        of_scans(10),
        ledger,
        metrics.clone(),
        health,
        shutdown,
    );
    tokio::spawn(scans);
    for _ in 0..100 {
        sleep(Duration::from_secs(60)).await;
        for of in [Loop::Audit, Loop::Tickets] {
            let failure = metrics.loops.state(of).last_failure.unwrap();
            assert_eq!(failure.reason, "unauthorized", "{of:?}");
        }
    }
}
