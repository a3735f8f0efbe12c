//! How long a service that fails is asked again: one that is away for a night must not end a backfill at once, nor keep it for ever.

use std::time::Duration;

use tokio::time::Instant;

use super::BackfillError;
use crate::api::ApiError;
use crate::audit::{FIRST_WAIT, TailError, wait_after};
use crate::ledger::LedgerError;

/// What is left of the patience.
#[derive(Debug)]
pub(super) struct Patience {
    longest: Duration,
    /// The last time that something worked, or the beginning.
    since: Instant,
    failures: u32,
    /// Whether anything ever worked.
    worked: bool,
}

// === impl Patience ===

impl Patience {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            since: Instant::now(),
            failures: 0,
            worked: false,
        }
    }

    /// A request got through.
    pub(super) fn worked(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "history is read again");
        }
        *self = Self {
            worked: true,
            ..Self::new(self.longest)
        };
    }

    /// A request failed: how long to wait before the next.
    ///
    /// # Errors
    /// Where waiting does not help, or took too long.
    pub(super) fn failed(&mut self, error: &TailError) -> Result<Duration, BackfillError> {
        let hopeless = match error {
            TailError::Api(error) if error.is_about_the_key() => true,
            // Once the service has answered, these may be about a single page.
            TailError::Api(
                ApiError::NotFound(_) | ApiError::Redirect { .. } | ApiError::Validation { .. },
            ) => !self.worked,
            TailError::Api(_) => false,
            TailError::Ledger(error) => !matches!(error, LedgerError::DiskFull),
            TailError::OtherOrganization { .. } => true,
        };
        if hopeless {
            return Err(BackfillError::Failed(format!(
                "history cannot be read: {error}"
            )));
        }
        // A pause that --rate asked for is no failure.
        if self.failures == 0 && self.worked {
            self.since = Instant::now();
        }
        if self.since.elapsed() >= self.longest {
            let patience = humantime::format_duration(self.longest);
            return Err(BackfillError::Failed(format!(
                "history could not be read for {patience} (--patience): {error}; where a page is too much for the service, a smaller --api.page-size helps"
            )));
        }
        self.failures += 1;
        let wait = wait_after(self.failures).min(
            self.longest
                .saturating_sub(self.since.elapsed())
                .max(FIRST_WAIT),
        );
        if self.failures.is_power_of_two() {
            tracing::warn!(%error, failures = self.failures, retry_in = %humantime::format_duration(wait), "history cannot be read; it is tried again");
        }
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_waited_for_as_long_as_the_patience_and_a_refused_key_not_at_all() {
        let away = TailError::Api(ApiError::Connect("refused".to_owned()));
        let mut patience = Patience::new(Duration::from_secs(900));
        for _ in 0..3 {
            let began = Instant::now();
            while let Ok(wait) = patience.failed(&away) {
                tokio::time::advance(wait).await;
            }
            assert!(
                (900..970).contains(&began.elapsed().as_secs()),
                "{:?}",
                began.elapsed()
            );
            patience.worked();
        }
        assert!(
            patience
                .failed(&TailError::Api(ApiError::Unauthorized(String::new())))
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_address_ends_it_at_once_and_a_page_that_is_gone_later_does_not() {
        let not_found = TailError::Api(ApiError::NotFound(String::new()));
        let mut patience = Patience::new(Duration::from_secs(900));
        assert!(patience.failed(&not_found).is_err());
        patience.worked();
        assert!(patience.failed(&not_found).is_ok());
    }
}
