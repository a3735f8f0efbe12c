//! What the landing page tells of the events, the tickets and the deliveries: plain rows, filled in by the application.

use jiff::Timestamp;

/// The exporter's work at one moment.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// The audit events; `None` when the loop is switched off.
    pub audit: Option<AuditOverview>,
    /// The last snapshot of the tickets; `None` before the first, and when the loop is switched off.
    pub tickets: Option<TicketsOverview>,
    /// The delivery of log records; `None` without a collector.
    pub delivery: Option<DeliveryOverview>,
    /// The state file.
    pub state: Option<StateOverview>,
    /// Records that could not be delivered or read, kept in the ledger.
    pub dead_letters: u64,
}

/// The audit events in the ledger.
#[derive(Clone, Debug, Default)]
pub struct AuditOverview {
    /// Events counted since the ledger was born.
    pub events: u64,
    /// `createdAt` of the newest one.
    pub newest: Option<Timestamp>,
    /// Events counted in each of the last minutes, the current one last; empty when that is not known.
    pub per_minute: Vec<u64>,
    /// Events by activity type, in any order; the page shows the most frequent.
    pub activity_types: Vec<Count>,
    /// Events by actor, as the label shows actors, in any order.
    pub actors: Vec<Count>,
    /// Whether a full ledger holds the tail.
    pub paused: bool,
    /// What is being read besides new entries, as a phrase: `catching up, 2 open ranges`.
    pub reading: Option<String>,
    /// Times that entries were lost before they could be read.
    pub gaps: u64,
    /// Events that only a later look found.
    pub late: u64,
    /// Entries that could not be read.
    pub malformed: u64,
}

/// How often something was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What, as its label has it.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// One snapshot of the tickets.
#[derive(Clone, Debug, Default)]
pub struct TicketsOverview {
    /// When it was complete.
    pub taken_at: Option<Timestamp>,
    /// Whether no ticket changed place while the pages were read.
    pub consistent: bool,
    /// Tickets by state.
    pub states: Vec<Count>,
    /// Open tickets in the order of the page: those of one type together, the highest priority first.
    pub open: Vec<OpenTickets>,
    /// Open tickets past their due date.
    pub overdue: u64,
    /// When the oldest open ticket was created.
    pub oldest_open: Option<Timestamp>,
}

/// The open tickets of one type and priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenTickets {
    /// The label `ticket_type`.
    pub ticket_type: String,
    /// The label `priority`.
    pub priority: String,
    /// How many.
    pub tickets: u64,
    /// The sum of the amounts of their deals.
    pub deal_amount: f64,
}

/// The outbox and the collector behind it.
#[derive(Clone, Debug, Default)]
pub struct DeliveryOverview {
    /// The collector's address, without credentials.
    pub endpoint: String,
    /// Records committed and not yet acknowledged.
    pub backlog: u64,
    /// When the oldest of them arrived.
    pub oldest_unsent: Option<Timestamp>,
    /// Records acknowledged since this process started.
    pub sent: u64,
}

/// The state file.
#[derive(Clone, Debug, Default)]
pub struct StateOverview {
    /// `--state.path`.
    pub path: String,
    /// Bytes in use.
    pub size_bytes: u64,
    /// `--state.max-size`, in bytes.
    pub max_size_bytes: u64,
}

// === impl Count ===

impl Count {
    /// A row.
    pub fn new(name: impl Into<String>, count: u64) -> Self {
        Self {
            name: name.into(),
            count,
        }
    }
}
