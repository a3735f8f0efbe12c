//! Connects the API client to the metrics, which know nothing of it.

use std::time::Duration;

use orgdata_api::{Endpoint, FailureReason, Observer};

use crate::metrics::ApiMetrics;

impl Observer for ApiMetrics {
    fn response(&self, endpoint: Endpoint, duration: Duration, bytes: u64) {
        Self::response(self, endpoint.as_str(), duration, bytes);
    }

    fn failure(&self, endpoint: Endpoint, reason: FailureReason) {
        Self::failure(self, endpoint.as_str(), reason.as_str());
    }

    fn throttled(&self, waited: Duration) {
        Self::throttled(self, waited);
    }

    fn unknown_fields(&self, count: u64) {
        Self::unknown_fields(self, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics, otlp};

    /// A label value that the metrics do not know would not be counted.
    #[test]
    fn the_metrics_know_every_label_value() {
        assert_eq!(metrics::api::ENDPOINTS, Endpoint::ALL.map(Endpoint::as_str));
        assert_eq!(
            metrics::api::REASONS,
            FailureReason::ALL.map(FailureReason::as_str)
        );
        assert_eq!(
            metrics::otlp::REASONS,
            otlp::FailureReason::ALL.map(otlp::FailureReason::as_str)
        );
    }
}
