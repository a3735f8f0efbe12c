//! Delivery of log records: what was sent, refused, set aside, and what waits.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, LabelValueEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::family::Family;
use crate::otlp::FailureReason;

/// Upper bounds of `orgdata_otlp_acknowledgement_delay_seconds`, in seconds: from a healthy collector to a day's outage.
const DELAY_BUCKETS: [f64; 11] = [
    0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 21_600.0, 86_400.0,
];

/// The families `orgdata_otlp_*`.
#[derive(Debug)]
pub struct OtlpMetrics {
    /// Records that a collector acknowledged.
    pub records_sent: Counter,
    /// Records that a collector refused in a partial success.
    pub records_rejected: Counter,
    /// Records kept as dead letters.
    pub records_dead_lettered: Counter,
    /// Dead letters that were deleted to make room for newer ones.
    pub dead_letters_evicted: Counter,
    /// Dead letters that were put back into the outbox.
    pub records_replayed: Counter,
    /// Dead letters in the state file.
    pub dead_letters: Gauge,
    /// Export requests, retries included.
    pub requests: Counter,
    failures: Family<ReasonLabel, Counter>,
    backlog: Gauge,
    acknowledgement_delay: Histogram,
    oldest_unsent: std::sync::Arc<OldestUnsent>,
}

#[derive(Debug, Default)]
struct OldestUnsent(Mutex<Option<Timestamp>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, EncodeLabelSet)]
struct ReasonLabel {
    reason: FailureReason,
}

impl EncodeLabelValue for FailureReason {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        self.as_str().encode(encoder)
    }
}

// === impl OtlpMetrics ===

impl OtlpMetrics {
    /// Registers the families; every reason exists from the start, at 0.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            records_sent: Counter::default(),
            records_rejected: Counter::default(),
            records_dead_lettered: Counter::default(),
            dead_letters_evicted: Counter::default(),
            records_replayed: Counter::default(),
            dead_letters: Gauge::default(),
            requests: Counter::default(),
            failures: Family::new(Counter::default),
            backlog: Gauge::default(),
            acknowledgement_delay: Histogram::new(DELAY_BUCKETS),
            oldest_unsent: std::sync::Arc::default(),
        };
        registry.register(
            "orgdata_otlp_records_sent",
            "Log records that the collector acknowledged",
            metrics.records_sent.clone(),
        );
        registry.register(
            "orgdata_otlp_records_rejected",
            "Log records that the collector refused in a partial success; the protocol forbids sending them again, so their batch is kept as dead letters",
            metrics.records_rejected.clone(),
        );
        registry.register(
            "orgdata_otlp_records_dead_lettered",
            "Records kept as dead letters: refused for good by the collector, or audit entries that could not be read",
            metrics.records_dead_lettered.clone(),
        );
        registry.register(
            "orgdata_otlp_dead_letters",
            "Dead letters in the state file; orgdata-exporter dead-letters lists them, sends them again, or deletes them",
            metrics.dead_letters.clone(),
        );
        registry.register(
            "orgdata_otlp_dead_letters_evicted",
            "Dead letters that were deleted because there were too many, the oldest first; these records are lost",
            metrics.dead_letters_evicted.clone(),
        );
        registry.register(
            "orgdata_otlp_records_replayed",
            "Dead letters put back into the outbox by orgdata-exporter dead-letters replay",
            metrics.records_replayed.clone(),
        );
        registry.register(
            "orgdata_otlp_requests",
            "Export requests sent to the collector, retries included",
            metrics.requests.clone(),
        );
        registry.register(
            "orgdata_otlp_request_failures",
            "Export requests that were not acknowledged, by reason; their records stay in the outbox",
            metrics.failures.clone(),
        );
        registry.register(
            "orgdata_otlp_backlog_records",
            "Log records in the outbox: committed, and not yet acknowledged by the collector",
            metrics.backlog.clone(),
        );
        registry.register(
            "orgdata_otlp_acknowledgement_delay_seconds",
            "Time from the arrival of an audit log page to the acknowledgement of its records by the collector",
            metrics.acknowledgement_delay.clone(),
        );
        registry.register_collector(Box::new(metrics.oldest_unsent.clone()));
        for reason in FailureReason::ALL {
            drop(metrics.failures.get(&ReasonLabel { reason }));
        }
        metrics
    }

    /// One export request was not acknowledged.
    pub fn failed(&self, reason: FailureReason) {
        self.failures.get(&ReasonLabel { reason }).inc();
    }

    /// `records` records of a page that arrived `delay` ago were acknowledged; observed once a page and request.
    pub fn acknowledged(&self, records: u64, delay: Duration) {
        self.records_sent.inc_by(records);
        self.acknowledgement_delay.observe(delay.as_secs_f64());
    }

    /// The outbox holds `records` records, the oldest of which arrived at `oldest`.
    pub fn backlog(&self, records: u64, oldest: Option<Timestamp>) {
        self.backlog.set(i64::try_from(records).unwrap_or(i64::MAX));
        *self
            .oldest_unsent
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = oldest;
    }

    /// How many records wait, for the landing page.
    pub fn backlog_records(&self) -> i64 {
        self.backlog.get()
    }
}

// === impl OldestUnsent ===

impl Collector for OldestUnsent {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(oldest) = *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        else {
            return Ok(());
        };
        let family = encoder.encode_descriptor(
            "orgdata_otlp_oldest_unsent_timestamp_seconds",
            "When the oldest log record in the outbox arrived, in seconds since the epoch; absent when nothing waits.",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(oldest.as_duration().as_secs_f64()).encode(family)
    }
}
