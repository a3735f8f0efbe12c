//! How long to wait before the next attempt: exponential, with jitter, the collector's own delay winning.

use std::time::Duration;

use crate::otlp::verdict::Refusal;

/// The first wait for what may heal by itself.
const FIRST: Duration = Duration::from_secs(1);

/// The longest such wait.
const LONGEST: Duration = Duration::from_secs(60);

/// The first wait where somebody has to change a setting.
const FIRST_CONFIGURATION: Duration = Duration::from_secs(5);

/// The longest such wait: how long a renewed token may go unnoticed.
const LONGEST_CONFIGURATION: Duration = Duration::from_secs(120);

/// The longest delay that a collector may ask for: a typing error there must not stop delivery for a year.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// The shortest wait, whatever is asked for: never a hot loop.
const SHORTEST: Duration = Duration::from_secs(1);

/// Counts attempts that failed in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

// === impl Backoff ===

impl Backoff {
    /// The wait after one more failure.
    pub(super) fn next(&mut self, refusal: &Refusal) -> Duration {
        let (first, longest) = if refusal.configuration {
            (FIRST_CONFIGURATION, LONGEST_CONFIGURATION)
        } else {
            (FIRST, LONGEST)
        };
        let own = self.exponential(first, longest);
        match refusal.retry_after {
            // Never before the time asked for; a little after it, so that many exporters do not come back at once.
            Some(asked) => asked
                .clamp(SHORTEST, LONGEST_ASKED)
                .mul_f64(1.0 + fastrand::f64() * 0.1),
            None => own,
        }
    }

    /// The wait after the ledger failed once more.
    pub(super) fn next_plain(&mut self) -> Duration {
        self.exponential(FIRST, LONGEST)
    }

    /// Something worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    fn exponential(&mut self, first: Duration, longest: Duration) -> Duration {
        let wait = first
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        wait.mul_f64(0.75 + fastrand::f64() * 0.5).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::FailureReason;

    #[test]
    fn waits_grow_to_a_bound_and_begin_again_after_success() {
        let refusal = Refusal::new(FailureReason::Unavailable, "");
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..100).map(|_| backoff.next(&refusal)).collect();
        assert!(waits[0] <= Duration::from_millis(1250), "{:?}", waits[0]);
        assert!(
            waits[5] > Duration::from_secs(20) && waits[99] >= Duration::from_secs(45),
            "{waits:?}"
        );
        assert!(
            waits
                .iter()
                .all(|wait| *wait >= SHORTEST && *wait <= Duration::from_secs(75))
        );
        backoff.reset();
        assert!(backoff.next(&refusal) <= Duration::from_millis(1250));
    }

    #[test]
    fn the_collector_s_own_delay_wins_but_is_never_a_hot_loop_nor_for_ever() {
        let asks = |seconds| {
            Refusal::new(FailureReason::RateLimited, "").after(Some(Duration::from_secs(seconds)))
        };
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            let wait = backoff.next(&asks(30));
            assert!(
                wait >= Duration::from_secs(30) && wait <= Duration::from_secs(33),
                "{wait:?}"
            );
        }
        assert!(backoff.next(&asks(0)) >= SHORTEST);
        assert!(backoff.next(&asks(u32::MAX.into())) < Duration::from_secs(4000));
    }

    #[test]
    fn what_somebody_has_to_change_is_tried_more_slowly() {
        let refusal = Refusal::configuration(FailureReason::Unauthorized, "");
        assert!(Backoff::default().next(&refusal) > Duration::from_secs(3));
    }
}
