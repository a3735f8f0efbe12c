//! `/-/healthy` says of each loop whether it turns: one that waits for a service does, one that sits in a round does not.

use crate::support::settings;

use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::api::{ApiError, BaseUrl, Client, Filters, KeySource, TicketPage};
use orgdata_exporter::audit::{self, Start, Tail};
use orgdata_exporter::health::{Health, LONGEST_ROUND};
use orgdata_exporter::ledger::{self, LedgerHandle, StatePath};
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::tickets::{self, PageSource};
use tokio_util::sync::CancellationToken;

/// Never answers, and no time-out cuts it off.
struct Endless;

/// Always refuses.
struct Refusing;

impl PageSource for Endless {
    async fn page(&self, _: u32, _: u64) -> Result<TicketPage, ApiError> {
        std::future::pending().await
    }
}

impl PageSource for Refusing {
    async fn page(&self, _: u32, _: u64) -> Result<TicketPage, ApiError> {
        Err(ApiError::Timeout(Duration::from_secs(30)))
    }
}

fn names(health: &Health) -> Vec<&'static str> {
    health
        .stuck()
        .into_iter()
        .map(|stuck| stuck.which.as_str())
        .collect()
}

fn scan(
    source: impl PageSource + Send + 'static,
    health: &Health,
    shutdown: &CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let metrics = Metrics::new(Duration::ZERO);
    let settings = tickets::Settings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: Vec::new(),
        page_size: 1000,
    };
    let (published, loops) = (metrics.tickets.clone(), Arc::clone(&metrics.loops));
    tokio::spawn(tickets::run(
        source,
        settings,
        published,
        loops,
        health.clone(),
        shutdown.clone(),
    ))
}

async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_never_ends_is_stuck_and_named() {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let task = scan(Endless, &health, &shutdown);
    after(LONGEST_ROUND).await;
    assert_eq!(names(&health), [""; 0]);
    after(Duration::from_secs(3600)).await;
    assert_eq!(names(&health), ["tickets"]);
    shutdown.cancel();
    task.await.expect("it still ends");
    assert_eq!(names(&health), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_always_fails_turns() {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let _task = scan(Refusing, &health, &shutdown);
    for _ in 0..3 * 24 {
        after(Duration::from_secs(3600)).await;
        assert_eq!(names(&health), [""; 0]);
    }
}

/// A tail whose service is not there, polling as rarely as this.
fn tail(poll_interval: Duration) -> Tail {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let metrics = Metrics::new(Duration::ZERO);
    // Nothing listens on port 9.
    let base_url = BaseUrl::parse("http://127.0.0.1:9").expect("an address");
    let client_settings = orgdata_exporter::api::Settings {
        base_url: base_url.clone(),
        key: KeySource::Value("key".into()),
        timeout: Duration::from_secs(30),
        max_requests_per_second: 5.0,
        ca_file: None,
        filters: Filters::default(),
    };
    let filters = client_settings.filters.fingerprint();
    let client = Client::new(client_settings, metrics.api.clone()).expect("a client");
    let ledger_settings = ledger::Settings {
        max_size: 64 * 1024 * 1024,
        filters,
        outbox: false,
        ..settings::ledger(StatePath::parse(":memory:"), base_url.to_string())
    };
    let (ledger, state) = LedgerHandle::open(ledger_settings, metrics.clone()).expect("a ledger");
    let settings = audit::Settings {
        poll_interval,
        start: Start::Now,
        reread_interval: Duration::from_secs(300),
        reread_window: Duration::from_secs(3600),
        page_size: 1000,
    };
    Tail::new(client, ledger, state, metrics, settings)
}

#[tokio::test(start_paused = true)]
async fn a_tail_whose_service_is_away_turns_and_is_watched_until_it_ends() {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let task = tokio::spawn(tail(Duration::from_secs(60)).run(health.clone(), shutdown.clone()));
    for _ in 0..30 {
        after(Duration::from_secs(120)).await;
        assert_eq!(names(&health), [""; 0]);
    }
    shutdown.cancel();
    task.await.expect("it ends");
    assert_eq!(names(&health), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_is_not_run_on_is_stuck_and_named() {
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let mut tail = Box::pin(tail(Duration::from_secs(60)).run(health.clone(), shutdown));
    // As if its task sat in a computation or in a lock: nobody polls it any more.
    assert!(futures_util::poll!(tail.as_mut()).is_pending());
    after(Duration::from_secs(3600)).await;
    assert_eq!(names(&health), [Loop::Audit.as_str()]);
}
