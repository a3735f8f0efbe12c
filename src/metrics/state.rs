//! The state file: commits, failures, size, and whether a damaged one was set aside.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The families `orgdata_state_*`.
#[derive(Clone, Debug, Default)]
pub struct StateMetrics {
    /// Transactions that are on disk.
    pub commits: Counter,
    /// Transactions that could not be written.
    pub commit_failures: Counter,
    /// Damaged files set aside.
    recreated: Counter,
    recreated_at: Gauge<f64, AtomicU64>,
    /// Bytes in use by the state file.
    pub size_bytes: Gauge,
    /// `--state.max-size`.
    pub max_size_bytes: Gauge,
}

// === impl StateMetrics ===

impl StateMetrics {
    /// Registers the families.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "orgdata_state_commits",
            "Transactions written to the state file",
            metrics.commits.clone(),
        );
        registry.register(
            "orgdata_state_commit_failures",
            "Transactions that could not be written to the state file; nothing of them was counted, and they are tried again",
            metrics.commit_failures.clone(),
        );
        registry.register(
            "orgdata_state_recreated",
            "Times that a damaged state file was set aside and a fresh one begun since this process started",
            metrics.recreated.clone(),
        );
        registry.register(
            "orgdata_state_recreated_timestamp_seconds",
            "When a damaged state file was set aside last, in seconds since the epoch; 0 when it never was",
            metrics.recreated_at.clone(),
        );
        registry.register(
            "orgdata_state_size_bytes",
            "Bytes in use by the state file",
            metrics.size_bytes.clone(),
        );
        registry.register(
            "orgdata_state_max_size_bytes",
            "The limit of --state.max-size; the tail pauses when the state file has reached it",
            metrics.max_size_bytes.clone(),
        );
        metrics
    }

    /// A damaged state file was set aside at `at`; `now` says whether this process did it.
    pub fn recreated(&self, at: Timestamp, now: bool) {
        self.recreated_at.set(at.as_duration().as_secs_f64());
        if now {
            self.recreated.inc();
        }
    }
}
