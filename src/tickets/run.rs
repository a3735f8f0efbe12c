//! The loop: scans on a timer, publishes snapshots, and logs when scans start to fail and work again.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::scan::{PageSource, ScanError, Scanner};
use super::{Doubt, Settings};
use crate::health::Health;
use crate::metrics::snapshot::Snapshot;
use crate::metrics::{Loop, Metrics, TicketMetrics};

/// What was logged, so that only changes are logged.
#[derive(Debug, Default)]
struct Logged {
    /// The kind of the failure.
    failing: Option<&'static str>,
    failures: u64,
    inconsistent: bool,
}

/// Scans at once and then every `scan_interval` until `shutdown`. A scan that takes longer delays the next one.
///
/// `organization` returns that of the state file, once it is known. Failures are reported in `orgdata_up{loop="tickets"}`, and the next round tries again.
pub async fn run<S: PageSource>(
    source: S,
    settings: Settings,
    organization: impl Fn() -> Option<String> + Send,
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
    let mut logged = Logged::default();
    let rounds = async {
        loop {
            health.waiting(Loop::Tickets, timer.tick()).await;
            scanner.organization = organization();
            match health.round(Loop::Tickets, scanner.round(&source)).await {
                Ok((snapshot, doubt)) => {
                    logged.success(&snapshot, doubt);
                    published.publish(snapshot, max_age);
                    loops.success(Loop::Tickets);
                }
                Err(error) => {
                    let message = message(&error, published);
                    logged.failure(&error, &message);
                    loops.failure(Loop::Tickets, error.summary(), message);
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

// === impl Logged ===

impl Logged {
    fn success(&mut self, snapshot: &Snapshot, doubt: Option<Doubt>) {
        if self.failing.take().is_some() {
            tracing::info!(
                failed_scans = self.failures,
                tickets = snapshot.tickets,
                "ticket scans work again"
            );
        }
        self.failures = 0;
        match doubt {
            Some(doubt) if !self.inconsistent => tracing::warn!(
                %doubt,
                "the ticket snapshot may lack tickets; it is published as not consistent"
            ),
            None if self.inconsistent => tracing::info!("the ticket snapshot is consistent again"),
            _ => {}
        }
        self.inconsistent = doubt.is_some();
    }

    fn failure(&mut self, error: &ScanError, message: &str) {
        self.failures += 1;
        let kind = match error {
            ScanError::Api(error) => error.reason().as_str(),
            _ => "listing",
        };
        if self.failing.replace(kind) == Some(kind) {
            tracing::debug!(failed_scans = self.failures, "{message}");
        } else {
            tracing::error!("{message}");
        }
    }
}
