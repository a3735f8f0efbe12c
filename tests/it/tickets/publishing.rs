//! From scan to scrape: whole snapshots, their age, and what is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orgdata_api::Client;
use orgdata_exporter::app::scan_tickets;
use orgdata_exporter::health::{Health, Loop};
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use tokio_util::sync::CancellationToken;

use super::support::{Failure, Script, bug, bugs, settings, slice};
use crate::support::captured::Captured;
use crate::support::settings::ledger;

/// Starts a loop, which ends with the test, and returns what it shows.
fn start(script: &Script) -> Metrics {
    let (ledger, _) = LedgerHandle::open(ledger(None, "http://api")).unwrap();
    let metrics = Metrics::new(Duration::ZERO);
    let run = scan_tickets(
        Client::clone(script),
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
    let names = [
        "orgdata_tickets",
        "orgdata_open_tickets",
        "orgdata_deals_with",
    ];
    let is_ours = |line: &&str| names.iter().any(|name| line.starts_with(name));
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

fn sample(lines: &[String], start: &str) -> Option<f64> {
    let value = lines.iter().find_map(|line| line.strip_prefix(start))?;
    value.trim().parse().ok()
}

/// `tests/golden` has a whole scrape.
#[tokio::test(start_paused = true)]
async fn a_type_without_open_tickets_shows_0() {
    let closed = r#"{"id":3,"type":"FEATURE","state":"CLOSED","dealAmountSum":7}"#;
    let metrics = start(&Script::listing(vec![closed.to_owned()]));
    after(1).await;
    let lines = scrape(&metrics);
    assert_eq!(scrape(&metrics), lines, "a scrape is stable");
    for line in [
        r#"orgdata_tickets{state="CLOSED",ticket_type="FEATURE"} 1"#,
        r#"orgdata_tickets{state="OPEN",ticket_type="FEATURE"} 0"#,
        r#"orgdata_open_tickets{ticket_type="FEATURE",priority="HIGH"} 0"#,
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_replaced_completely() {
    let tasks = bugs(0..60).into_iter();
    let tasks: Vec<String> = tasks.map(|row| row.replace("BUG", "TASK")).collect();
    let script = Script::new(move |request| match request.number < 6 {
        true => Ok(slice(&bugs(0..50), request)),
        false => Ok(slice(&tasks, request)),
    });
    let metrics = start(&script);
    after(59).await;
    let before = scrape(&metrics);
    let open = |kind: &str| format!("orgdata_tickets{{state=\"OPEN\",ticket_type=\"{kind}\"}}");
    assert_eq!(sample(&before, &open("BUG")), Some(50.0));
    // In the middle of the second scan.
    tokio::time::advance(Duration::from_secs(1)).await;
    while script.requests().len() < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scrape(&metrics), before);
    after(1).await;
    let lines = scrape(&metrics);
    assert_eq!(sample(&lines, &open("TASK")), Some(60.0));
    assert!(!lines.iter().any(|line| line.contains("BUG")));
}

#[tokio::test(start_paused = true)]
async fn a_failing_scan_keeps_the_snapshot_until_it_is_too_old() {
    let works = Arc::new(AtomicBool::new(true));
    let is_good = works.clone();
    let why = "something in front of the API refuses (403, without a content type)";
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
    let is_told = message.contains(why) && message.contains("is shown until");
    assert!(is_told, "{message}");
    after(30).await;
    let stale = scrape(&metrics);
    let timestamp = "orgdata_tickets_snapshot_timestamp_seconds";
    assert_eq!(stale.len(), 2, "only it and the retries: {stale:?}");
    assert_eq!(sample(&stale, timestamp), sample(&fresh, timestamp));
    works.store(true, Ordering::Relaxed);
    after(60).await;
    assert_eq!(
        (scrape(&metrics).len(), state().up),
        (fresh.len(), Some(true))
    );
}

#[tokio::test(start_paused = true)]
async fn the_log_says_what_is_new_and_nothing_from_a_ticket() {
    let log = Captured::begin();
    let odd = r#"{"id":17,"dealAmountSum":"ann@example.com","state":"DONE","createdAt":"bob@example.com"}"#;
    let rows = [
        bug(1),
        r#"{"id":2,"state":"TRIAGE"}"#.to_owned(),
        odd.to_owned(),
    ];
    let _metrics = start(&Script::new(move |request| match request.number {
        5..10 => Err(Failure::Status(401)),
        10..15 => Err(Failure::Status(404)),
        number => Ok(slice(if number < 5 { &rows } else { &rows[..2] }, request)),
    }));
    after(20 * 60).await;
    let lines = log.lines();
    for (expected, times) in [
        ("tickets in these states", 1),
        (r#"states="DONE,TRIAGE""#, 1),
        ("ticket 17: cannot read createdAt, dealAmountSum", 1),
        // The 1st, 2nd and 4th.
        ("error=HTTP 401", 3),
        ("error=HTTP 404", 3),
        ("work again", 1),
    ] {
        let count = lines.iter().filter(|line| line.contains(expected)).count();
        assert_eq!(count, times, "{expected}: {lines:?}");
    }
    let is_private = lines.iter().any(|line| line.contains("example.com"));
    assert!(!is_private, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_outlives_its_snapshot_is_logged() {
    let log = Captured::begin();
    let metrics = start(&Script::slow(bugs(0..190)));
    after(30 * 60).await;
    assert_eq!(metrics.loops.state(Loop::Tickets).up, Some(true));
    let said = |words| {
        log.lines()
            .iter()
            .filter(|line| line.contains(words))
            .count()
    };
    assert_eq!(said("took longer than --tickets.max-age"), 1);
    // A minute is no news.
    assert_eq!(said("the API asks for a pause"), 0);
}
