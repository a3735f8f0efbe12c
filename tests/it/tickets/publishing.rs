//! From scan to scrape: whole snapshots, their age, and what is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orgdata_exporter::health::{Health, Loop};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::tickets::scan_tickets;
use tokio_util::sync::CancellationToken;

use super::support::{Failure, Script, bugs, settings, slice};
use crate::support::captured::Captured;
use crate::support::settings::ledger;

const TIMESTAMP: &str = "orgdata_tickets_snapshot_timestamp_seconds ";

/// Starts a loop, which ends with the test, and returns what it shows.
fn start(script: &Script) -> Metrics {
    let (ledger, _) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let metrics = Metrics::new(Duration::ZERO);
    let run = scan_tickets(
        script.client.clone(),
        settings(10),
        ledger,
        metrics.clone(),
        Health::default(),
        CancellationToken::new(),
    );
    tokio::spawn(run);
    metrics
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Returns the ticket samples of a scrape.
fn scrape(metrics: &Metrics) -> Vec<String> {
    let text = Format::OpenMetrics.encode(metrics.registry()).unwrap();
    let starts = [
        "orgdata_tickets",
        "orgdata_open_tickets",
        "orgdata_deals_with",
    ];
    let is_ours = |line: &&str| starts.iter().any(|start| line.starts_with(start));
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_replaced_completely() {
    let closed = |id| format!(r#"{{"id":{id},"type":"TASK","state":"CLOSED"}}"#);
    let tasks: Vec<String> = (0..60).map(closed).collect();
    let script = Script::new(move |request| match request.number < 6 {
        true => Ok(slice(&bugs(0..50), request)),
        false => Ok(slice(&tasks, request)),
    });
    let metrics = start(&script);
    after(59).await;
    let before = scrape(&metrics);
    let bugs = r#"orgdata_tickets{state="OPEN",ticket_type="BUG"} 50"#;
    assert!(before.iter().any(|line| line == bugs), "{before:?}");
    // In the middle of the second scan.
    tokio::time::advance(Duration::from_secs(1)).await;
    while script.requests().len() < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scrape(&metrics), before);
    after(1).await;
    let lines = scrape(&metrics);
    assert!(!lines.iter().any(|line| line.contains("BUG")), "{lines:?}");
    // A type without open tickets shows 0.
    for line in [
        r#"orgdata_tickets{state="CLOSED",ticket_type="TASK"} 60"#,
        r#"orgdata_tickets{state="OPEN",ticket_type="TASK"} 0"#,
        r#"orgdata_open_tickets{ticket_type="TASK",priority="HIGH"} 0"#,
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_scan_keeps_the_snapshot_until_it_is_too_old() {
    let works = Arc::new(AtomicBool::new(true));
    let is_good = works.clone();
    let metrics = start(&Script::new(move |request| {
        match is_good.load(Ordering::Relaxed) {
            true => Ok(slice(&bugs(0..3), request)),
            false => Err(Failure::Status(403)),
        }
    }));
    let state = || metrics.loops.state(Loop::Tickets);
    // Nothing is claimed before the loop runs.
    let first = scrape(&metrics);
    assert_eq!(first, ["orgdata_tickets_snapshot_retries_total 0"]);
    after(1).await;
    let fresh = scrape(&metrics);
    works.store(false, Ordering::Relaxed);
    after(880).await;
    assert_eq!((scrape(&metrics), state().up), (fresh.clone(), Some(false)));
    let message = state().last_failure.unwrap().message;
    let why = "something in front of the API refuses (403, without a content type)";
    let is_told = message.contains(why) && message.contains("is shown until");
    assert!(is_told, "{message}");
    after(30).await;
    let stale = scrape(&metrics);
    assert_eq!(stale.len(), 2, "the timestamp and the retries: {stale:?}");
    let timestamp = stale.iter().find(|line| line.starts_with(TIMESTAMP));
    assert!(fresh.contains(timestamp.unwrap()), "{stale:?}");
    works.store(true, Ordering::Relaxed);
    after(60).await;
    let shown = (scrape(&metrics).len(), state().up);
    assert_eq!(shown, (fresh.len(), Some(true)));
}

#[tokio::test(start_paused = true)]
async fn the_log_says_what_is_new_and_nothing_from_a_ticket() {
    let log = Captured::begin();
    let rows = [
        r#"{"id":2,"state":"TRIAGE"}"#.to_owned(),
        r#"{"id":17,"dealAmountSum":"ann@example.com","state":"DONE","createdAt":"bob@example.com"}"#.to_owned(),
    ];
    let _metrics = start(&Script::new(move |request| match request.number {
        5..10 => Err(Failure::Status(401)),
        10..15 => Err(Failure::Status(404)),
        number => Ok(slice(if number < 5 { &rows } else { &rows[..1] }, request)),
    }));
    after(20 * 60).await;
    for (expected, times) in [
        ("tickets in these states", 1),
        (r#"states="DONE,TRIAGE""#, 1),
        ("ticket 17: cannot read createdAt, dealAmountSum", 1),
        // The 1st, 2nd and 4th.
        ("error=HTTP 401", 3),
        ("error=HTTP 404", 3),
        ("work again", 1),
        ("example.com", 0),
    ] {
        assert_eq!(log.count(expected), times, "{expected}: {:?}", log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_outlives_its_snapshot_is_logged() {
    let log = Captured::begin();
    let metrics = start(&Script::slow(bugs(0..400)));
    after(30 * 60).await;
    assert_eq!(metrics.loops.state(Loop::Tickets).up, Some(true));
    assert_eq!(log.count("took longer than --tickets.max-age"), 1);
}

/// As any other failure does.
#[tokio::test(start_paused = true)]
async fn a_pause_in_the_middle_of_a_scan_fails_it_and_the_next_one_begins_after_the_pause() {
    let log = Captured::begin();
    let script = Script::new(|request| match request.number {
        1 => Err(Failure::Pause(100)),
        _ => Ok(slice(&bugs(0..20), request)),
    });
    let metrics = start(&script);
    let state = || metrics.loops.state(Loop::Tickets).up;
    after(99).await;
    assert_eq!((state(), log.count("ticket scan failed")), (Some(false), 1));
    assert_eq!(script.requests().len(), 2);
    after(2).await;
    assert_eq!(state(), Some(true));
    assert_eq!(script.requests()[2].offset, 0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_listing_after_a_full_one_is_believed_the_second_time() {
    let script = Script::new(|request| match request.number {
        0 | 2 | 3 => Ok(slice(&bugs(0..3), request)),
        _ => Ok(slice(&[], request)),
    });
    let metrics = start(&script);
    let open = || metrics.tickets.snapshot().map(|shown| shown.open_total());
    for (seconds, up, shown) in [
        (1, true, 3),
        (60, false, 3),
        (60, true, 3),
        (60, true, 3),
        (60, false, 3),
        (60, true, 0),
    ] {
        after(seconds).await;
        let state = metrics.loops.state(Loop::Tickets).up;
        assert_eq!((state, open()), (Some(up), Some(shown)));
    }
}
