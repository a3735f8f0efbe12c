//! The ledger: one SQLite file that holds cursor, seen ids, counters and outbox, and changes them together or not at all.

mod types;

pub use types::{Backlog, DeadLetter, DeadReason, OutboxPosition, OutboxRecord, RecordKind, TraceContext};

/// A handle to the open ledger; cheap to clone. Calls run off the runtime's threads.
#[derive(Clone, Debug)]
pub struct LedgerHandle {}

/// Why the ledger could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("state file: {0}")]
pub struct LedgerError(String);

// === impl LedgerHandle ===

#[expect(clippy::unused_async, clippy::todo, reason = "being written")]
impl LedgerHandle {
    /// The oldest records of the outbox: at most `max_records`, and no more than `max_bytes` of JSON (but at least one record). Empty when nothing waits.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub async fn outbox_batch(&self, max_records: usize, max_bytes: usize) -> Result<Vec<OutboxRecord>, LedgerError> {
        let _ = (max_records, max_bytes);
        todo!()
    }

    /// In one transaction: everything through `through` leaves the outbox, and `dead` become dead letters.
    ///
    /// # Errors
    /// Where the transaction cannot be written: then nothing of it happened.
    pub async fn outbox_acknowledge(&self, through: OutboxPosition, dead: Vec<DeadLetter>) -> Result<(), LedgerError> {
        let _ = (through, dead);
        todo!()
    }

    /// How much waits.
    pub fn backlog(&self) -> Backlog {
        todo!()
    }

    /// Completes when records were added to the outbox since the last call (or at once when that happened already).
    pub async fn outbox_changed(&self) {
        todo!()
    }

    /// `service.instance.id`: made once, kept in the file.
    pub fn instance_id(&self) -> String {
        todo!()
    }
}
