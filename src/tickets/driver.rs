//! Calls the scan on a timer, publishes what it brings, and tells an operator when it begins and ceases to work.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::pages::PageSource;
use super::scan::{ScanError, Scanner};
use super::snapshot::Snapshot;
use crate::api::FailureReason;
use crate::health::Health;
use crate::metrics::{Loop, Loops, TicketMetrics};

/// What the log has been told, so that it is told again only when it changes.
#[derive(Debug, Default)]
struct Told {
    failing: Option<Kind>,
    failures: u64,
    inconsistent: bool,
}

/// The kind of a failure: another message of the same kind is no news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Api(FailureReason),
    Listing,
}

/// Scans at once and then every `scan_interval`, until `shutdown`. A scan that takes longer delays the next one; they never pile up.
///
/// It never ends by itself: what fails is shown by `orgdata_up{loop="tickets"}`, and tried again in the next round.
pub async fn run<S: PageSource>(
    source: S,
    settings: Settings,
    published: Arc<TicketMetrics>,
    loops: Arc<Loops>,
    health: Health,
    shutdown: CancellationToken,
) {
    let _watched = health.watched(Loop::Tickets);
    loops.enable(Loop::Tickets);
    published.start();
    let mut timer = interval(settings.scan_interval.max(Duration::from_millis(1)));
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut scanner = Scanner::new(settings.clone(), published.retries().clone());
    let mut told = Told::default();
    let rounds = async {
        loop {
            health.waiting(Loop::Tickets, timer.tick()).await;
            match health.round(Loop::Tickets, scanner.round(&source)).await {
                Ok(snapshot) => {
                    told.success(&snapshot);
                    published.publish(snapshot, settings.max_age);
                    loops.success(Loop::Tickets);
                }
                Err(error) => {
                    let message = sentence(&error, published.shown_until(), &settings);
                    told.failure(&error, &message);
                    loops.failure(Loop::Tickets, message);
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

/// What happened, what is shown meanwhile, and what happens next.
fn sentence(error: &ScanError, shown_until: Option<Timestamp>, settings: &Settings) -> String {
    let pause = match error {
        ScanError::Api(error) => error.retry_after().unwrap_or_default(),
        _ => Duration::ZERO,
    };
    // The service is asked for nothing while it wants to be left alone: a scan of that time ends before its first request.
    let next = humantime::format_duration(
        settings
            .scan_interval
            .max(Duration::from_secs(pause.as_secs())),
    );
    match shown_until {
        Some(until) => format!(
            "the tickets could not be scanned: {error}; the last snapshot is shown until {until:.0}, then its series disappear; the next scan is in {next}"
        ),
        None => format!(
            "the tickets could not be scanned: {error}; no ticket series are shown until a scan succeeds; the next one is in {next}"
        ),
    }
}

// === impl Told ===

impl Told {
    fn success(&mut self, snapshot: &Snapshot) {
        if self.failing.take().is_some() {
            tracing::info!(
                failed_scans = self.failures,
                tickets = snapshot.tickets,
                "the scan of the tickets works again"
            );
        }
        self.failures = 0;
        match &snapshot.doubt {
            Some(doubt) if !self.inconsistent => tracing::warn!(
                %doubt,
                "the ticket snapshot may have missed tickets; it is published and marked as not consistent, and the next scan tries again"
            ),
            None if self.inconsistent => tracing::info!("the ticket snapshot is consistent again"),
            _ => {}
        }
        self.inconsistent = snapshot.doubt.is_some();
    }

    fn failure(&mut self, error: &ScanError, message: &str) {
        self.failures += 1;
        let kind = match error {
            ScanError::Api(error) => Kind::Api(error.reason()),
            ScanError::OffsetIgnored { .. }
            | ScanError::TooMany
            | ScanError::TooManyDeals
            | ScanError::TooSlow(_) => Kind::Listing,
        };
        if self.failing.replace(kind) != Some(kind) {
            tracing::error!("{message}");
        } else {
            tracing::debug!(failed_scans = self.failures, "{message}");
        }
    }
}
