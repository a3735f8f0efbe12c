//! From scan to scrape: whole snapshots, their age, and what an operator is told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orgdata_exporter::api::ApiError;
use orgdata_exporter::health::Health;
use orgdata_exporter::metrics::{Loop, Loops, TicketMetrics};
use orgdata_exporter::tickets::{self, PageSource};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::support::{Script, bug, bugs, page_at, scrape, settings, slice};
use crate::support::captured::Captured;

/// A running loop and what it shows.
struct Running {
    registry: Registry,
    published: Arc<TicketMetrics>,
    loops: Arc<Loops>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start<S: PageSource + Send + 'static>(source: S) -> Running {
    let mut registry = Registry::default();
    let published = TicketMetrics::register(&mut registry);
    let loops = Arc::new(Loops::register(&mut registry));
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(tickets::run(
        source,
        settings(10),
        published.clone(),
        loops.clone(),
        Health::default(),
        shutdown.clone(),
    ));
    Running {
        registry,
        published,
        loops,
        shutdown,
        task,
    }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn sample(lines: &[String], start: &str) -> Option<f64> {
    lines
        .iter()
        .find_map(|line| line.strip_prefix(start))
        .map(|value| value.trim().parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_whole_scrape() {
    let rows = [
        r#"{"id":1,"type":"BUG","state":"OPEN","createdAt":"2026-03-01T00:00:00Z","targetDueDate":"2026-03-02T00:00:00Z","dealAmountSum":1000.10,
            "linkedDeals":[{"id":1,"priority":"HIGH"}]}"#,
        r#"{"id":2,"type":"BUG","state":"OPEN","createdAt":"2026-03-10T11:00:00Z","dealAmountSum":0.20}"#,
        r#"{"id":3,"type":"FEATURE","state":"CLOSED","dealAmountSum":7}"#,
    ]
    .map(str::to_owned);
    let mut all = settings(10);
    all.priorities = vec!["HIGH".to_owned()];
    let mut registry = Registry::default();
    let published = TicketMetrics::register(&mut registry);
    let script =
        Script::new(move |request| Ok(page_at(super::support::NOON, &rows, request, Some(3))));
    let snapshot = tickets::Scanner::new(all, published.retries().clone())
        .round(&script)
        .await
        .unwrap();
    published.publish(snapshot, Duration::from_secs(900));
    let lines = scrape(&registry);
    let lines: Vec<&str> = lines
        .iter()
        .map(String::as_str)
        .filter(|line| !line.contains("snapshot_timestamp"))
        .collect();
    assert_eq!(
        lines,
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
    assert_eq!(scrape(&registry), scrape(&registry), "a scrape is stable");
    let summary = published.summary().unwrap();
    assert_eq!(
        (
            summary.tickets,
            summary.open,
            summary.open_deal_amount,
            summary.overdue,
            summary.consistent
        ),
        (3, 2, 1000.3, 1, true)
    );
}

#[tokio::test(start_paused = true)]
async fn a_whole_scrape_without_a_single_ticket() {
    let mut all = settings(10);
    all.priorities = vec!["HIGH".to_owned()];
    let mut registry = Registry::default();
    let published = TicketMetrics::register(&mut registry);
    let mut scanner = tickets::Scanner::new(all.clone(), published.retries().clone());
    published.publish(
        scanner.round(&Script::listing(Vec::new())).await.unwrap(),
        Duration::from_secs(900),
    );
    let lines = scrape(&registry);
    assert_eq!(
        &lines[5..],
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
    // Also where the settings name no state and no priority, each family answers 0.
    (all.open_states, all.priorities) = (Vec::new(), Vec::new());
    let mut scanner = tickets::Scanner::new(all, published.retries().clone());
    published.publish(
        scanner.round(&Script::listing(Vec::new())).await.unwrap(),
        Duration::from_secs(900),
    );
    let bare = scrape(&registry);
    assert_eq!(
        bare[5],
        r#"orgdata_tickets{state="unknown",ticket_type="unknown"} 0"#
    );
    let families = |lines: &[String]| {
        lines
            .iter()
            .map(|line| line.split(['{', ' ']).next().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(families(&bare), families(&lines));
}

#[tokio::test(start_paused = true)]
async fn a_scrape_during_a_scan_sees_the_old_snapshot_entire() {
    let script = Script::new(move |request| {
        let scan = if request.number < 6 { 0 } else { 100 };
        Ok(slice(&bugs(scan..scan + 50), request))
    });
    let running = start(script.clone());
    after(59).await;
    let before = scrape(&running.registry);
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
    assert_eq!(scrape(&running.registry), before);
    after(1).await;
    assert_ne!(
        scrape(&running.registry),
        before,
        "the timestamp and the duration are those of the second"
    );
    running.shutdown.cancel();
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn label_values_that_vanished_are_gone() {
    let script = Script::new(move |request| {
        let kind = if request.number == 0 { "BUG" } else { "TASK" };
        Ok(slice(
            &[format!(
                r#"{{"id":1,"type":"{kind}","state":"{kind}-STATE"}}"#
            )],
            request,
        ))
    });
    let running = start(script);
    after(1).await;
    assert!(
        scrape(&running.registry)
            .iter()
            .any(|line| line.contains("BUG"))
    );
    after(60).await;
    let lines = scrape(&running.registry);
    assert!(
        lines.iter().any(|line| line.contains("TASK"))
            && !lines.iter().any(|line| line.contains("BUG"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_scan_keeps_the_snapshot_until_it_is_too_old_and_heals() {
    let works = Arc::new(Mutex::new(true));
    let script = Script::new({
        let works = works.clone();
        move |request| {
            if *works.lock().unwrap() {
                Ok(slice(&bugs(0..3), request))
            } else {
                Err(ApiError::Forbidden {
                    scope: "tickets:read",
                    message: String::new(),
                })
            }
        }
    });
    let running = start(script);
    assert_eq!(
        scrape(&running.registry),
        ["orgdata_tickets_snapshot_retries_total 0"],
        "nothing is claimed before the loop runs"
    );
    after(1).await;
    let fresh = scrape(&running.registry);
    let timestamp = sample(&fresh, "orgdata_tickets_snapshot_timestamp_seconds").unwrap();
    *works.lock().unwrap() = false;
    after(880).await;
    assert_eq!(scrape(&running.registry), fresh);
    assert_eq!(running.loops.state(Loop::Tickets).up, Some(false));
    let message = running
        .loops
        .state(Loop::Tickets)
        .last_failure
        .unwrap()
        .message;
    assert!(
        message.contains("lacks the scope tickets:read")
            && message.contains("is shown until")
            && message.contains("next scan is in 1m"),
        "{message}"
    );
    after(30).await;
    let stale = scrape(&running.registry);
    assert_eq!(stale.len(), 2, "{stale:?}");
    assert_eq!(
        sample(&stale, "orgdata_tickets_snapshot_timestamp_seconds"),
        Some(timestamp)
    );
    assert_eq!(
        (running.published.summary(), running.published.shown_until()),
        (None, None)
    );
    *works.lock().unwrap() = true;
    after(60).await;
    assert!(running.published.summary().is_some());
    assert_eq!(running.loops.state(Loop::Tickets).up, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_a_snapshot_says_since_when() {
    let running = start(Script::new(|_| {
        Err(ApiError::Unauthorized("no".to_owned()))
    }));
    after(1).await;
    let lines = scrape(&running.registry);
    assert_eq!(
        sample(&lines, "orgdata_tickets_snapshot_timestamp_seconds"),
        Some(0.0)
    );
    assert_eq!(lines.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_asks_for_a_pause_is_not_said_to_be_asked_sooner() {
    let limited = |seconds| ApiError::RateLimited {
        retry_after: Some(Duration::from_secs(seconds)),
        message: String::new(),
    };
    let script = Script::new(move |request| {
        Err(match request.number {
            0 => limited(3600),
            1 => ApiError::Paused(Duration::from_millis(3_539_500)),
            _ => limited(5),
        })
    });
    let running = start(script);
    for (seconds, next) in [(1, "in 1h"), (60, "in 58m 59s"), (60, "in 1m")] {
        after(seconds).await;
        let message = running
            .loops
            .state(Loop::Tickets)
            .last_failure
            .unwrap()
            .message;
        assert!(
            message.ends_with(&format!("until a scan succeeds; the next one is {next}")),
            "{message}"
        );
        assert_eq!(running.loops.state(Loop::Tickets).up, Some(false));
    }
}

/// A listing of a thousand pages that takes longer to read than a snapshot is shown.
#[tokio::test(start_paused = true)]
async fn a_scan_that_takes_too_long_says_once_how_far_it_is() {
    struct Slow(Script);
    impl PageSource for Slow {
        async fn page(
            &self,
            limit: u32,
            offset: u64,
        ) -> Result<orgdata_exporter::api::TicketPage, ApiError> {
            after(10).await;
            self.0.page(limit, offset).await
        }
    }
    let log = Captured::begin_at(tracing::Level::WARN);
    let running = start(Slow(Script::listing(bugs(0..9001))));
    after(1000).await;
    let lines = log.lines();
    assert!(
        running.published.summary().is_none() && lines.len() == 1,
        "{lines:?}"
    );
    // The first page comes alone, then four at a time; each brings nine more.
    let expected = ["longer than --tickets.max-age", "tickets=3223", "9001"];
    assert!(
        expected.iter().all(|part| lines[0].contains(part)),
        "{lines:?}"
    );
    after(2000).await;
    assert!(
        running.published.summary().is_some() && log.lines().len() == 1,
        "the scan came to its end"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_hanging_page() {
    struct Hangs;
    impl PageSource for Hangs {
        async fn page(
            &self,
            _: u32,
            _: u64,
        ) -> Result<orgdata_exporter::api::TicketPage, ApiError> {
            std::future::pending().await
        }
    }
    let running = start(Hangs);
    after(10).await;
    running.shutdown.cancel();
    running.task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_what_is_new_and_only_that() {
    let log = Captured::begin_at(tracing::Level::INFO);
    let script = Script::new(move |request| match request.number {
        0..5 => Ok(slice(
            &[
                bug(1),
                r#"{"id":2,"state":"TRIAGE"}"#.to_owned(),
                r#"{"id":3,"state":"TRIAGE","type":1}"#.to_owned(),
            ],
            request,
        )),
        5..10 => Err(ApiError::Unauthorized("no".to_owned())),
        10..15 => Err(ApiError::NotFound("no".to_owned())),
        _ => Ok(slice(
            &[bug(1), r#"{"id":2,"state":"TRIAGE"}"#.to_owned()],
            request,
        )),
    });
    let running = start(script);
    after(20 * 60).await;
    running.shutdown.cancel();
    running.task.await.unwrap();
    let log = log.lines().join("\n");
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("state not seen before"), 1, "{log}");
    assert_eq!(lines("something unreadable"), 1, "{log}");
    assert_eq!(lines("could not be scanned: HTTP 401"), 1, "{log}");
    assert_eq!(lines("could not be scanned: HTTP 404"), 1, "{log}");
    assert_eq!(lines("works again"), 1, "{log}");
    assert_eq!(log.lines().count(), 5, "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_makes_up_states_for_ever_does_not_fill_the_log() {
    let log = Captured::begin_at(tracing::Level::INFO);
    let script = Script::new(move |request| {
        Ok(slice(
            &(0..8)
                .map(|id| format!(r#"{{"id":{id},"state":"S{}-{id}"}}"#, request.number))
                .collect::<Vec<_>>(),
            request,
        ))
    });
    let running = start(script.clone());
    after(60 * 299).await;
    running.shutdown.cancel();
    running.task.await.unwrap();
    assert_eq!(script.requests().len(), 299);
    let log = log.lines().join("\n");
    assert_eq!(
        log.lines()
            .filter(|line| line.contains("state not seen before"))
            .count(),
        1000
    );
}

#[tokio::test(start_paused = true)]
async fn a_log_line_never_repeats_what_is_in_a_ticket() {
    let log = Captured::begin_at(tracing::Level::TRACE);
    let rows = [r#"{"id":17,"dealAmountSum":"ann@example.com","state":"OPEN","createdAt":"bob@example.com"}"#.to_owned()];
    let running = start(Script::new(move |request| Ok(slice(&rows, request))));
    after(1).await;
    running.shutdown.cancel();
    running.task.await.unwrap();
    let log = log.lines().join("\n");
    assert!(
        log.contains("ticket 17: of another type than documented: dealAmountSum")
            && !log.contains("example.com"),
        "{log}"
    );
}
