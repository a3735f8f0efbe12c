//! Requests to the Organization Data API: their number, duration and size, and why some failed.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use strum::{IntoStaticStr, VariantArray};

use super::family::{Labels, families, family};
use crate::util::{Endpoint, FailureReason, Observer};

/// Upper bounds of `orgdata_api_request_duration_seconds`.
const DURATION_BUCKETS: [f64; 11] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What the API does in spite of its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Violation {
    /// A page has more entries than were requested.
    LimitExceeded,
    /// An entry is outside the filters of the request.
    OutsideFilters,
    /// The number of tickets is not `totalCount`.
    TotalCount,
}

type ByEndpoint<M> = Family<Labels<1>, M>;

families! {
    /// The families `orgdata_api_*`.
    pub struct ApiMetrics {
        /// Requests sent to the Organization Data API, including retries.
        "orgdata_api_requests" => requests: ByEndpoint<Counter> = by_endpoint(Counter::default),
        /// Requests to the Organization Data API without a usable response, by reason.
        "orgdata_api_request_failures" => failures: Family<Labels<2>, Counter> = by_reason(),
        /// Time from sending a request to the Organization Data API to the last byte of its response, including failures.
        "orgdata_api_request_duration_seconds" => duration: ByEndpoint<Histogram>
            = by_endpoint(|| Histogram::new(DURATION_BUCKETS)),
        /// Bytes of responses from the Organization Data API, after decompression.
        "orgdata_api_response_bytes" => response_bytes: ByEndpoint<Counter> = by_endpoint(Counter::default),
        /// Responses of the Organization Data API that violate its contract, by rule.
        "orgdata_api_contract_violations" => violations: Family<Labels<1>, Counter>
            = family(Counter::default, Violation::VARIANTS.iter().copied().map(rule)),
        /// Time that requests waited because the API asked for it (429, Retry-After) or because of
        /// --api.max-requests-per-second.
        "orgdata_api_throttled_seconds" => throttled: Counter<f64, AtomicU64> = Counter::default(),
    }
}

impl ApiMetrics {
    /// Counts a violation of the contract.
    pub(crate) fn violated(&self, violation: Violation) {
        self.violations.get_or_create(&rule(violation)).inc();
    }
}

impl Observer for ApiMetrics {
    fn response(&self, endpoint: Endpoint, duration: Duration, bytes: u64) {
        let (labels, seconds) = ([("endpoint", endpoint.into())], duration.as_secs_f64());
        self.requests.get_or_create(&labels).inc();
        self.duration.get_or_create(&labels).observe(seconds);
        self.response_bytes.get_or_create(&labels).inc_by(bytes);
    }

    fn failure(&self, endpoint: Endpoint, reason: FailureReason) {
        self.failures.get_or_create(&labels(endpoint, reason)).inc();
    }

    fn throttled(&self, waited: Duration) {
        self.throttled.inc_by(waited.as_secs_f64());
    }
}

fn rule(violation: Violation) -> Labels<1> {
    [("rule", violation.into())]
}

fn by_endpoint<M>(metric: fn() -> M) -> ByEndpoint<M> {
    let labels = |endpoint: &Endpoint| [("endpoint", endpoint.into())];
    family(metric, Endpoint::VARIANTS.iter().map(labels))
}

fn by_reason() -> Family<Labels<2>, Counter> {
    let reasons = FailureReason::VARIANTS.iter();
    let of = |&endpoint| reasons.clone().map(move |&reason| labels(endpoint, reason));
    family(Counter::default, Endpoint::VARIANTS.iter().flat_map(of))
}

fn labels(endpoint: Endpoint, reason: FailureReason) -> Labels<2> {
    [("endpoint", endpoint.into()), ("reason", reason.into())]
}
