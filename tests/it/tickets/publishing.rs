//! From scan to scrape: whole snapshots, their age, and what is logged.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orgdata_api::{ApiError, FailureReason, TicketPage};
use orgdata_exporter::health::Health;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::tickets::{self, PageSource, Scanner, Settings};
use tokio_util::sync::CancellationToken;

use super::support::{Script, bug, bugs, page_at, scrape, settings, slice};
use crate::support::captured::Captured;

/// A running loop and what it shows.
struct Running {
    metrics: Metrics,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

// === impl Running ===

impl Running {
    fn start<S: PageSource + Send + 'static>(source: S) -> Self {
        let metrics = Metrics::new(Duration::ZERO);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(tickets::run(
            source,
            settings(10),
            metrics.tickets.clone(),
            metrics.loops.clone(),
            Health::default(),
            shutdown.clone(),
        ));
        Self {
            metrics,
            shutdown,
            task,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    fn scrape(&self) -> Vec<String> {
        scrape(&self.metrics)
    }

    fn is_shown(&self) -> bool {
        self.metrics.tickets.series().is_some()
    }

    fn up(&self) -> Option<bool> {
        self.metrics.loops.state(Loop::Tickets).up
    }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn sample(lines: &[String], start: &str) -> Option<f64> {
    let value = lines.iter().find_map(|line| line.strip_prefix(start))?;
    value.trim().parse().ok()
}

/// The scrape after one scan of these rows.
async fn scrape_of(settings: Settings, rows: Vec<String>) -> Vec<String> {
    let metrics = Metrics::new(Duration::ZERO);
    let count = rows.len() as u64;
    let script =
        Script::new(move |request| Ok(page_at(super::support::NOON, &rows, request, Some(count))));
    let mut scanner = Scanner::new(settings, metrics.tickets.retries().clone());
    let snapshot = scanner.round(&script).await.unwrap();
    metrics.tickets.publish(snapshot, Duration::from_secs(900));
    let lines = scrape(&metrics);
    assert_eq!(scrape(&metrics), lines, "a scrape is stable");
    let is_fixed = |line: &String| !line.contains("snapshot_timestamp");
    lines.into_iter().filter(is_fixed).collect()
}

#[tokio::test(start_paused = true)]
async fn a_whole_scrape() {
    let rows = [
        r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-03-01T00:00:00Z","targetDueDate":"2026-03-02T00:00:00Z","dealAmountSum":1000.10,
            "linkedDeals":[{"id":1,"priority":"HIGH"}]}"#,
        r#"{"id":2,"type":"BUG","state":"OPEN","createdAt":"2026-03-10T11:00:00Z","dealAmountSum":0.20}"#,
        r#"{"id":3,"type":"FEATURE","state":"CLOSED","dealAmountSum":7}"#,
    ];
    let mut all = settings(10);
    all.priorities = vec!["HIGH".to_owned()];
    assert_eq!(
        scrape_of(all, rows.map(str::to_owned).to_vec()).await,
        [
            "orgdata_tickets_snapshot_retries_total 0",
            "orgdata_tickets_snapshot_duration_seconds 0.0",
            "orgdata_tickets_snapshot_consistent 1",
            "orgdata_tickets_malformed 0",
            r#"orgdata_tickets{state="CLOSED",ticket_type="FEATURE"} 1"#,
            r#"orgdata_tickets{state="OPEN",ticket_type="BUG"} 2"#,
            r#"orgdata_tickets{state="OPEN",ticket_type="FEATURE"} 0"#,
            r#"orgdata_tickets_deal_amount{state="CLOSED",ticket_type="FEATURE"} 7.0"#,
            r#"orgdata_tickets_deal_amount{state="OPEN",ticket_type="BUG"} 1000.3"#,
            r#"orgdata_tickets_deal_amount{state="OPEN",ticket_type="FEATURE"} 0.0"#,
            r#"orgdata_open_tickets{ticket_type="BUG",priority="HIGH"} 1"#,
            r#"orgdata_open_tickets{ticket_type="BUG",priority="none"} 1"#,
            r#"orgdata_open_tickets{ticket_type="FEATURE",priority="HIGH"} 0"#,
            r#"orgdata_open_tickets{ticket_type="FEATURE",priority="none"} 0"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="BUG",priority="HIGH"} 1000.1"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="BUG",priority="none"} 0.2"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="FEATURE",priority="HIGH"} 0.0"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="FEATURE",priority="none"} 0.0"#,
            r#"orgdata_open_tickets_overdue{ticket_type="BUG"} 1"#,
            r#"orgdata_open_tickets_overdue{ticket_type="FEATURE"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="BUG",min_age="1d"} 1"#,
            r#"orgdata_open_tickets_older_than{ticket_type="BUG",min_age="7d"} 1"#,
            r#"orgdata_open_tickets_older_than{ticket_type="BUG",min_age="30d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="BUG",min_age="90d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="FEATURE",min_age="1d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="FEATURE",min_age="7d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="FEATURE",min_age="30d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="FEATURE",min_age="90d"} 0"#,
            r#"orgdata_open_tickets_oldest_created_timestamp_seconds{ticket_type="BUG"} 1772323200.0"#,
            r#"orgdata_deals_with_open_tickets{priority="HIGH"} 1"#,
            r#"orgdata_deals_with_open_tickets{priority="none"} 0"#,
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_whole_scrape_without_a_single_ticket() {
    let mut all = settings(10);
    all.priorities = vec!["HIGH".to_owned()];
    let lines = scrape_of(all.clone(), Vec::new()).await;
    assert_eq!(
        &lines[4..],
        [
            r#"orgdata_tickets{state="OPEN",ticket_type="unknown"} 0"#,
            r#"orgdata_tickets_deal_amount{state="OPEN",ticket_type="unknown"} 0.0"#,
            r#"orgdata_open_tickets{ticket_type="unknown",priority="HIGH"} 0"#,
            r#"orgdata_open_tickets{ticket_type="unknown",priority="none"} 0"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="unknown",priority="HIGH"} 0.0"#,
            r#"orgdata_open_tickets_deal_amount{ticket_type="unknown",priority="none"} 0.0"#,
            r#"orgdata_open_tickets_overdue{ticket_type="unknown"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="unknown",min_age="1d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="unknown",min_age="7d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="unknown",min_age="30d"} 0"#,
            r#"orgdata_open_tickets_older_than{ticket_type="unknown",min_age="90d"} 0"#,
            r#"orgdata_deals_with_open_tickets{priority="HIGH"} 0"#,
            r#"orgdata_deals_with_open_tickets{priority="none"} 0"#,
        ]
    );
    // Without any state or priority in the settings, each family still answers 0.
    (all.open_states, all.priorities) = (Vec::new(), Vec::new());
    let bare = scrape_of(all, Vec::new()).await;
    assert_eq!(
        bare[4],
        r#"orgdata_tickets{state="unknown",ticket_type="unknown"} 0"#
    );
    let families = |lines: &[String]| -> BTreeSet<String> {
        let names = lines
            .iter()
            .filter_map(|line| line.split(['{', ' ']).next());
        names.map(str::to_owned).collect()
    };
    assert_eq!(families(&bare), families(&lines));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_replaced_completely() {
    let script = Script::new(move |request| {
        Ok(if request.number < 6 {
            slice(&bugs(0..50), request)
        } else {
            slice(
                &bugs(0..60)
                    .iter()
                    .map(|row| row.replace("BUG", "TASK"))
                    .collect::<Vec<_>>(),
                request,
            )
        })
    });
    let running = Running::start(script.clone());
    after(59).await;
    let before = running.scrape();
    assert_eq!(
        sample(
            &before,
            r#"orgdata_tickets{state="OPEN",ticket_type="BUG"}"#
        ),
        Some(50.0)
    );
    // In the middle of the second scan.
    tokio::time::advance(Duration::from_secs(1)).await;
    while script.requests().len() < 8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.scrape(), before);
    after(1).await;
    let lines = running.scrape();
    assert_eq!(
        sample(
            &lines,
            r#"orgdata_tickets{state="OPEN",ticket_type="TASK"}"#
        ),
        Some(60.0)
    );
    assert!(!lines.iter().any(|line| line.contains("BUG")));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_scan_keeps_the_snapshot_until_it_is_too_old() {
    let works = Arc::new(Mutex::new(true));
    let script = Script::new({
        let works = works.clone();
        move |request| {
            if *works.lock().unwrap() {
                return Ok(slice(&bugs(0..3), request));
            }
            Err(ApiError::new(
                FailureReason::Forbidden,
                "the API key lacks the scope tickets:read",
            ))
        }
    });
    let running = Running::start(script);
    // Nothing is claimed before the loop runs.
    assert_eq!(
        running.scrape(),
        ["orgdata_tickets_snapshot_retries_total 0"]
    );
    after(1).await;
    let fresh = running.scrape();
    let timestamp = sample(&fresh, "orgdata_tickets_snapshot_timestamp_seconds").unwrap();
    *works.lock().unwrap() = false;
    after(880).await;
    assert_eq!((running.scrape(), running.up()), (fresh, Some(false)));
    let failure = running.metrics.loops.state(Loop::Tickets).last_failure;
    let message = failure.unwrap().message;
    assert!(
        message.contains("lacks the scope tickets:read") && message.contains("is shown until"),
        "{message}"
    );
    after(30).await;
    let stale = running.scrape();
    assert_eq!(stale.len(), 2, "{stale:?}");
    assert_eq!(
        sample(&stale, "orgdata_tickets_snapshot_timestamp_seconds"),
        Some(timestamp)
    );
    assert!(!running.is_shown() && running.metrics.tickets.shown_until().is_none());
    *works.lock().unwrap() = true;
    after(60).await;
    assert!(running.is_shown() && running.up() == Some(true));
}

/// Answers after some time.
struct Slow(Script, Duration);

impl PageSource for Slow {
    async fn page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        tokio::time::sleep(self.1).await;
        self.0.page(limit, offset).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_takes_too_long_is_logged_once() {
    let log = Captured::begin_at(tracing::Level::WARN);
    let listing = Script::listing(bugs(0..1801));
    let running = Running::start(Slow(listing, Duration::from_secs(10)));
    after(1500).await;
    let lines = log.lines();
    assert!(!running.is_shown() && lines.len() == 1, "{lines:?}");
    // Each page brings nine more than the overlap.
    for part in ["longer than --tickets.max-age", "tickets=820", "1801"] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    after(1000).await;
    assert!(running.is_shown() && log.lines().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn the_log_says_what_is_new_and_only_that() {
    let log = Captured::begin_at(tracing::Level::INFO);
    let script = Script::new(move |request| match request.number {
        5..10 => Err(ApiError::new(FailureReason::Unauthorized, "HTTP 401")),
        10..15 => Err(ApiError::new(FailureReason::NotFound, "HTTP 404")),
        number => {
            let rows = [
                bug(1),
                r#"{"id":2,"state":"TRIAGE"}"#.to_owned(),
                r#"{"id":3,"state":"TRIAGE","type":1}"#.to_owned(),
            ];
            Ok(slice(if number < 5 { &rows } else { &rows[..2] }, request))
        }
    });
    let running = Running::start(script);
    after(20 * 60).await;
    running.stop().await;
    let lines = log.lines();
    for expected in [
        "new states",
        "cannot be read",
        "cannot scan the tickets: HTTP 401",
        "cannot scan the tickets: HTTP 404",
        "work again",
    ] {
        let count = lines.iter().filter(|line| line.contains(expected)).count();
        assert_eq!(count, 1, "{expected}: {lines:?}");
    }
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_line_never_repeats_the_data_of_a_ticket() {
    let log = Captured::begin_at(tracing::Level::TRACE);
    let row = r#"{"id":17,"dealAmountSum":"ann@example.com","state":"OPEN","createdAt":"bob@example.com"}"#;
    let running = Running::start(Script::listing(vec![row.to_owned()]));
    after(1).await;
    running.stop().await;
    let log = log.lines().join("\n");
    assert!(
        log.contains("ticket 17: of another type than documented: dealAmountSum")
            && !log.contains("example.com"),
        "{log}"
    );
}
