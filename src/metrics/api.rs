//! Requests to the Organization Data API: how many, how long, how large, and why some failed.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::family::Family;
use crate::api::{Endpoint, FailureReason, Observer};

/// Upper bounds of `orgdata_api_request_duration_seconds`, in seconds.
const DURATION_BUCKETS: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The families `orgdata_api_*`.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    requests: Family<EndpointLabel, Counter>,
    failures: Family<FailureLabels, Counter>,
    duration: Family<EndpointLabel, Histogram>,
    response_bytes: Family<EndpointLabel, Counter>,
    throttled: Counter<f64, AtomicU64>,
    unknown_fields: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct EndpointLabel {
    endpoint: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct FailureLabels {
    endpoint: &'static str,
    reason: &'static str,
}

// === impl ApiMetrics ===

impl ApiMetrics {
    /// Registers the families; every endpoint and every reason exists from the start, at 0.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::new(Counter::default),
            failures: Family::new(Counter::default),
            duration: Family::new(|| Histogram::new(DURATION_BUCKETS)),
            response_bytes: Family::new(Counter::default),
            throttled: Counter::default(),
            unknown_fields: Counter::default(),
        };
        registry.register(
            "orgdata_api_requests",
            "Requests sent to the Organization Data API, retries included",
            metrics.requests.clone(),
        );
        registry.register(
            "orgdata_api_request_failures",
            "Requests to the Organization Data API that brought no usable answer, by reason",
            metrics.failures.clone(),
        );
        registry.register(
            "orgdata_api_request_duration_seconds",
            "Time from sending a request to the Organization Data API to the last byte of its answer, failures included",
            metrics.duration.clone(),
        );
        registry.register(
            "orgdata_api_response_bytes",
            "Bytes of answers from the Organization Data API, after decompression",
            metrics.response_bytes.clone(),
        );
        registry.register(
            "orgdata_api_throttled_seconds",
            "Time that requests waited because the service asked for it (429, Retry-After) or because of --api.max-requests-per-second",
            metrics.throttled.clone(),
        );
        registry.register(
            "orgdata_api_unknown_fields",
            "Fields in answers that the specification does not name; they are accepted, and audit records carry them",
            metrics.unknown_fields.clone(),
        );
        for endpoint in Endpoint::ALL.map(Endpoint::as_str) {
            drop(metrics.requests.get(&EndpointLabel { endpoint }));
            drop(metrics.duration.get(&EndpointLabel { endpoint }));
            drop(metrics.response_bytes.get(&EndpointLabel { endpoint }));
            for reason in FailureReason::ALL.map(FailureReason::as_str) {
                drop(metrics.failures.get(&FailureLabels { endpoint, reason }));
            }
        }
        metrics
    }

    /// Requests sent, and those that brought no usable answer.
    pub fn totals(&self) -> (u64, u64) {
        (
            self.requests.all().iter().map(Counter::get).sum(),
            self.failures.all().iter().map(Counter::get).sum(),
        )
    }
}

impl Observer for ApiMetrics {
    fn response(&self, endpoint: Endpoint, duration: Duration, bytes: u64) {
        let label = EndpointLabel {
            endpoint: endpoint.as_str(),
        };
        self.requests.get(&label).inc();
        self.duration.get(&label).observe(duration.as_secs_f64());
        self.response_bytes.get(&label).inc_by(bytes);
    }

    fn failure(&self, endpoint: Endpoint, reason: FailureReason) {
        let (endpoint, reason) = (endpoint.as_str(), reason.as_str());
        self.failures.get(&FailureLabels { endpoint, reason }).inc();
    }

    fn throttled(&self, waited: Duration) {
        self.throttled.inc_by(waited.as_secs_f64());
    }

    fn unknown_fields(&self, count: u64) {
        self.unknown_fields.inc_by(count);
    }
}
