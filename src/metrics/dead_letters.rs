//! Dead letters: how many there are, and what became of others.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use strum::VariantArray as _;

use super::family::{Labels, families, family};
use crate::ledger::DeadReason;

families! {
    /// The families `orgdata_dead_letters_*`.
    pub(crate) struct DeadLetterMetrics {
        /// Records kept as dead letters, by reason: log records that the collector will never accept, and audit log entries
        /// that cannot be read.
        "orgdata_dead_letters" => total: Family<Labels<1>, Counter>
            = family(Counter::default, DeadReason::VARIANTS.iter().copied().map(reason)),
        /// Dead letters in the state file. The command orgdata-exporter dead-letters lists, replays or drops them.
        "orgdata_dead_letters_stored" => pub stored: Gauge<u64, AtomicU64> = Gauge::default(),
        /// Dead letters deleted, oldest first, because there were too many. These records are lost.
        "orgdata_dead_letters_evicted" => pub evicted: Counter = Counter::default(),
        /// Dead letters queued again by orgdata-exporter dead-letters replay.
        "orgdata_dead_letters_replayed" => pub replayed: Counter = Counter::default(),
    }
}

// === impl DeadLetterMetrics ===

impl DeadLetterMetrics {
    /// Returns the counter of records that became dead letters for a reason.
    pub(crate) fn total(&self, why: DeadReason) -> Counter {
        self.total.get_or_create(&reason(why)).clone()
    }
}

fn reason(why: DeadReason) -> Labels<1> {
    [("reason", why.into())]
}
