//! Tells an operator when delivery stops and when it works again: changes of state, and a reminder now and then.

use std::time::Duration;

use tokio::time::Instant;

use crate::otlp::FailureReason;
use crate::otlp::verdict::Refusal;

/// How often a trouble that lasts is told again.
pub(super) const REMINDER: Duration = Duration::from_secs(600);

/// What is wrong at present, if anything.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    reason: FailureReason,
    since: Instant,
    told: Instant,
    /// Failed attempts since it began, and those not told of.
    attempts: u64,
    untold: u64,
}

// === impl Trouble ===

impl Trouble {
    /// An attempt failed; the next one comes after `wait`.
    pub(super) fn failed(&mut self, refusal: &Refusal, wait: Duration, waiting: u64) {
        let now = Instant::now();
        let current = self.current.get_or_insert(Current {
            reason: refusal.reason,
            since: now,
            told: now,
            attempts: 0,
            untold: 0,
        });
        current.attempts += 1;
        current.untold += 1;
        let tell = current.attempts == 1
            || current.reason != refusal.reason
            || now.duration_since(current.told) >= REMINDER;
        let (message, reason) = (refusal.message.as_str(), refusal.reason.as_str());
        if !tell {
            tracing::debug!(reason, wait = ?rounded(wait), "log records not delivered: {message}");
            return;
        }
        let next = if refusal.configuration {
            "a setting here or at the collector must change"
        } else {
            "it will be tried again"
        };
        tracing::warn!(
            reason,
            waiting_records = waiting,
            next_attempt_in = ?rounded(wait),
            failed_attempts = current.untold,
            "log records not delivered: {message}; nothing is lost, records wait in the outbox; {next}",
        );
        (current.reason, current.told, current.untold) = (refusal.reason, now, 0);
    }

    /// An attempt succeeded.
    pub(super) fn healed(&mut self) {
        if let Some(trouble) = self.current.take() {
            tracing::info!(after = ?rounded(trouble.since.elapsed()), failed_attempts = trouble.attempts, "log records are delivered again");
        }
    }

    /// Something is wrong at present.
    pub(super) fn is_open(&self) -> bool {
        self.current.is_some()
    }
}

/// Without the digits that nobody reads.
fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
}
