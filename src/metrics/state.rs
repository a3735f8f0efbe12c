//! The state file: commits, failures, size, and when it was created.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::family::{families, seconds};

families! {
    /// The families `orgdata_state_*`.
    pub struct StateMetrics {
        /// Transactions written to the state file.
        "orgdata_state_commits" => pub commits: Counter = Counter::default(),
        /// Transactions that could not be written to the state file. Nothing in them was counted, and they are retried.
        "orgdata_state_commit_failures" => pub commit_failures: Counter = Counter::default(),
        /// When the state file was created, in seconds since the epoch. The counters of events count from this time, or from
        /// the last change of --metrics.actor-label.
        "orgdata_state_created_timestamp_seconds" => created_at: Gauge<f64, AtomicU64> = Gauge::default(),
        /// Bytes in use by the state file.
        "orgdata_state_size_bytes" => pub size_bytes: Gauge<u64, AtomicU64> = Gauge::default(),
        /// The limit set by --state.max-size. Reading audit logs pauses when the state file has reached it.
        "orgdata_state_max_size_bytes" => pub max_size_bytes: Gauge<u64, AtomicU64> = Gauge::default(),
    }
}

// === impl StateMetrics ===

impl StateMetrics {
    /// Reports when the state file was created.
    pub fn created(&self, at: Timestamp) {
        self.created_at.set(seconds(at));
    }
}
