//! One request to the service, and another one where that may help.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::sample::Sample;
use crate::api::ApiError;

/// A failure is asked about again when it came sooner than this.
const QUICK: Duration = Duration::from_secs(1);

/// How often one page is asked for, the first time included.
const ATTEMPTS: u32 = 3;

/// Between two attempts, in milliseconds; never the same, so that two listings do not keep step.
const PAUSE: std::ops::Range<u64> = 50..200;

/// What came of one request.
pub(super) struct Asked {
    pub(super) result: Result<Sample, ApiError>,
    /// Why an attempt failed, where a later one went well.
    pub(super) hiccup: Option<ApiError>,
    /// The last attempt.
    pub(super) took: Duration,
    pub(super) arrived: Timestamp,
}

// === impl Asked ===

impl Asked {
    /// Asks, and again where the first attempt failed at once and another one may help.
    pub(super) async fn of(ask: impl AsyncFn() -> Result<Sample, ApiError>) -> Self {
        let (mut hiccup, mut attempt) = (None, 1);
        loop {
            let started = Instant::now();
            let result = ask().await;
            let (took, arrived) = (started.elapsed(), Timestamp::now());
            match result {
                Err(error) if attempt < ATTEMPTS && may_heal(&error) && took < QUICK => {
                    hiccup = Some(error);
                    attempt += 1;
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE))).await;
                }
                // Only one that another attempt healed is a hiccup.
                result => {
                    return Self {
                        hiccup: hiccup.filter(|_| result.is_ok()),
                        result,
                        took,
                        arrived,
                    };
                }
            }
        }
    }
}

/// Whether another attempt at once may help, and is not what the service asks to be spared.
fn may_heal(error: &ApiError) -> bool {
    error.is_transient()
        && error.retry_after().is_none()
        && !matches!(error, ApiError::RateLimited { .. })
}
