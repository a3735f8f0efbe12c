//! The loop of tickets: scans on a timer, publishes snapshots, and logs when scans start to fail and work again.

use std::time::Duration;

use orgdata_api::{ApiError, Client};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::ScanSettings;
use super::scan::{Doubt, ScanError, Scanner};
use crate::health::{Health, Loop};
use crate::ledger::{Commit, LedgerHandle};
use crate::metrics::{Metrics, TicketMetrics, Violation};
use crate::util::{Repeated, advice, shown_wait};

/// Scans at once and then every `scan_interval` until `shutdown`. A scan that takes longer delays the next one.
///
/// The first scan or page of audit logs says whose state file it is. Failures are reported in `orgdata_up{loop="tickets"}`, and the
/// next round tries again.
pub async fn scan_tickets(
    client: Client,
    settings: ScanSettings,
    ledger: LedgerHandle,
    metrics: Metrics,
    health: Health,
    shutdown: CancellationToken,
) {
    let (published, loops) = (&metrics.tickets, &metrics.loops);
    let _watched = health.watched(Loop::Tickets);
    let max_age = settings.max_age;
    let mut timer = interval(settings.scan_interval.max(Duration::from_millis(1)));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut scanner = Scanner::new(settings, published.retries().clone());
    scanner.machine = ledger.machine();
    let (mut consistent, mut failures) = (true, Repeated::default());
    let rounds = async {
        loop {
            health.waiting(Loop::Tickets, timer.tick()).await;
            scanner.organization = ledger.status().organization.map(|(id, _)| id);
            let scanned = health.request(Loop::Tickets, scanner.round(&client)).await;
            let remembered = match scanned {
                Ok(scanned) => remember(&ledger, &scanner).await.map(|()| scanned),
                failed => failed,
            };
            match remembered {
                Ok((snapshot, doubt)) => {
                    failures.clear();
                    if loops.success(Loop::Tickets) {
                        tracing::info!(
                            loop = "tickets",
                            tickets = snapshot.tickets,
                            "ticket scans work again"
                        );
                    }
                    if let Some(Doubt::CountDiffers { .. }) = doubt {
                        metrics.api.violated(Violation::TotalCount);
                    }
                    match doubt {
                        Some(doubt) if consistent => tracing::warn!(
                            loop = "tickets",
                            error = %doubt,
                            "the ticket snapshot may lack tickets, and is marked as not consistent"
                        ),
                        None if !consistent => {
                            tracing::info!(loop = "tickets", "the ticket snapshot is consistent again");
                        }
                        _ => {}
                    }
                    consistent = doubt.is_none();
                    published.publish(snapshot, max_age);
                }
                Err(error) => {
                    let message = message(&error, published);
                    loops.failure(Loop::Tickets, error.reason(), message);
                    let api = match &error {
                        ScanError::Api(error) => Some(error),
                        _ => None,
                    };
                    let asked = api.and_then(ApiError::retry_after);
                    let wait = asked.unwrap_or_default().max(timer.period());
                    if wait > timer.period() {
                        timer.reset_after(wait);
                    }
                    if let Some(failures) = failures.should_log(error.reason()) {
                        let is_new = loops.state(Loop::Tickets).last_success.is_none();
                        tracing::warn!(
                            loop = "tickets",
                            failures,
                            %error,
                            status = api.and_then(ApiError::status),
                            retry_in = %shown_wait(wait),
                            shown_until = published.shown_until().map(|until| display(format!("{until:.0}"))),
                            "ticket scan failed{}",
                            advice(is_new || api.is_some_and(|error| !error.is_transient()))
                        );
                    }
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = rounds => {}
    }
}

/// Stores the organization of the tickets, unless the state file has one.
async fn remember(ledger: &LedgerHandle, scanner: &Scanner) -> Result<(), ScanError> {
    let Some(id) = &scanner.organization else {
        return Ok(());
    };
    if ledger.status().organization.is_none() {
        let commit = Commit {
            organization: Some((id.clone(), None)),
            ..Commit::new(ledger.now())
        };
        ledger.commit(commit).await?;
    }
    Ok(())
}

/// Says what happened and what is shown meanwhile.
fn message(error: &ScanError, published: &TicketMetrics) -> String {
    match published.shown_until() {
        Some(until) => {
            format!("cannot scan the tickets: {error}; the last snapshot is shown until {until:.0}")
        }
        None => format!(
            "cannot scan the tickets: {error}; ticket series are absent until a scan succeeds"
        ),
    }
}
