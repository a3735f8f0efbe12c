//! Delivery of log records: what was sent, rejected or kept as dead letters, and what waits.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use otlp_logs::Reason;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use strum::VariantArray as _;

use super::family::{Labels, OptionalTime, families, family};

/// Upper bounds of `orgdata_otlp_acknowledgement_delay_seconds`: from a healthy collector to an outage of a day.
const DELAY_BUCKETS: [f64; 14] = [
    0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
    86_400.0,
];

families! {
    /// The families `orgdata_otlp_*`.
    pub struct OtlpMetrics {
        /// Log records acknowledged by the collector.
        "orgdata_otlp_records_sent" => pub records_sent: Counter = Counter::default(),
        /// Log records rejected by the collector in a partial success. They must not be resent, so their request is kept as
        /// dead letters.
        "orgdata_otlp_records_rejected" => pub records_rejected: Counter = Counter::default(),
        /// Export requests sent to the collector, including retries.
        "orgdata_otlp_requests" => pub requests: Counter = Counter::default(),
        /// Export requests that were not acknowledged, by reason.
        "orgdata_otlp_request_failures" => failures: Family<Labels<1>, Counter>
            = family(Counter::default, Reason::VARIANTS.iter().copied().map(reason)),
        /// Log records that the collector has not acknowledged yet.
        "orgdata_otlp_backlog_records" => pub backlog: Gauge<u64, AtomicU64> = Gauge::default(),
        /// When the oldest unacknowledged log record arrived, in seconds since the epoch; absent if there is none.
        "orgdata_otlp_oldest_unsent_timestamp_seconds" => oldest_unsent: OptionalTime = OptionalTime::default(),
        /// The log records of all audit log entries created up to this time are delivered, in seconds since the epoch, except
        /// for gaps. Absent until the first catch-up is done, for times when no collector was configured, and without a
        /// collector or the audit loop.
        "orgdata_otlp_delivered_through_timestamp_seconds" => delivered_through: OptionalTime = OptionalTime::default(),
        /// Time from the arrival of a page of audit log entries to the acknowledgement of its records by the collector.
        "orgdata_otlp_acknowledgement_delay_seconds" => acknowledgement_delay: Histogram = Histogram::new(DELAY_BUCKETS),
    }
}

// === impl OtlpMetrics ===

impl OtlpMetrics {
    /// Counts an export request that was not acknowledged.
    pub fn failed(&self, why: Reason) {
        self.failures.get_or_create(&reason(why)).inc();
    }

    /// Counts `records` acknowledged records of one page that arrived `delay` ago.
    pub fn acknowledged(&self, records: u64, delay: Duration) {
        self.records_sent.inc_by(records);
        self.acknowledgement_delay.observe(delay.as_secs_f64());
    }

    /// Reports the number of records in the outbox, when the oldest of them arrived, and up to which time all are delivered.
    pub fn backlog(&self, records: u64, oldest: Option<Timestamp>, delivered: Option<Timestamp>) {
        self.backlog.set(records);
        self.oldest_unsent.set(oldest);
        self.delivered_through.set(delivered);
    }
}

fn reason(why: Reason) -> Labels<1> {
    [("reason", why.into())]
}
