//! What the ledger holds and the metrics show, and what a transaction changed of it.

use std::sync::Arc;

use jiff::Timestamp;

use crate::util::labels;

labels! {
    /// A counter without labels; as text, its name in the state file.
    Total {
        /// Events found by a re-read.
        Late => "late",
        /// Entries that came again as new.
        Duplicate => "duplicate",
        /// Entries that violate the contract.
        Malformed => "malformed",
        /// Events counted under `other`.
        Folded => "folded",
        /// Expired cursors that were found again.
        Recoveries => "recoveries",
        /// Gaps.
        Gaps => "gaps",
        /// Entries outside the configured filters.
        Filtered => "filtered",
        /// Entries older than the watermark.
        Backdated => "backdated",
    }
}

/// The labels of an event counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventLabels {
    /// The activity type.
    pub activity_type: Arc<str>,
    /// The actor as `--metrics.actor-label` shows it; `None` if it shows none.
    pub actor: Option<Arc<str>>,
}

/// The trace and span of the poll that fetched a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// As in `traceparent`.
    pub trace_id: [u8; 16],
    /// As in `traceparent`.
    pub span_id: [u8; 8],
}

/// What a transaction changed, for the caller to publish.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Label sets that may be new, and the values they had before this transaction.
    pub introduced: Vec<(EventLabels, u64)>,
    /// Increases.
    pub events: Vec<(EventLabels, u64)>,
    /// Increases of the counters without labels.
    pub totals: Vec<(Total, u64)>,
    /// Actors and their current names.
    pub names: Vec<(Arc<str>, String)>,
    /// Actors whose series are dropped.
    pub retired: Vec<Arc<str>>,
    /// Creation time of the newest entry.
    pub newest: Option<Timestamp>,
    /// Seconds from creation to counting, for live events.
    pub delays: Vec<f64>,
    /// The trace of the poll.
    pub trace: Option<TraceContext>,
    /// The newest creation time of the ids that were pruned so far.
    pub pruned: Option<Timestamp>,
}
