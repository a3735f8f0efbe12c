//! What goes into the ledger and comes out of it.

use jiff::Timestamp;

/// Where a record stands in the outbox: positions grow from the oldest to the newest record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboxPosition {
    /// The page, in the order of commits.
    pub page: i64,
    /// The record inside the page.
    pub index: u32,
}

/// What an outbox record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// An audit log entry as the service wrote it.
    Entry,
    /// A hole in the audit trail that cannot be filled, as JSON of the exporter's own making.
    Gap,
}

/// The trace and span of the poll that fetched a record, where tracing is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// W3C trace id.
    pub trace_id: [u8; 16],
    /// W3C span id.
    pub span_id: [u8; 8],
}

/// A record that waits for a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRecord {
    /// Where it stands.
    pub position: OutboxPosition,
    /// What it stands for.
    pub kind: RecordKind,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The poll that fetched it.
    pub trace: Option<TraceContext>,
    /// The JSON.
    pub raw: String,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Records not yet acknowledged.
    pub records: u64,
    /// When the oldest of them arrived.
    pub oldest: Option<Timestamp>,
}

/// Why a record is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadReason {
    /// An entry of the service that cannot be read well enough to be counted.
    Malformed,
    /// The collector refused this very record for good.
    Refused,
    /// The record alone is larger than the collector takes.
    TooLarge,
    /// It was in a batch of which the collector refused some records without saying which.
    PartlyRejected,
}

/// A record that could not be delivered, kept for an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Why.
    pub reason: DeadReason,
    /// The collector's or the parser's own words.
    pub message: String,
    /// What the record stands for.
    pub kind: RecordKind,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The JSON, already redacted as records are.
    pub raw: String,
}

// === impl DeadReason ===

impl DeadReason {
    /// The word for it, in the file and in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::PartlyRejected => "partly_rejected",
        }
    }
}
