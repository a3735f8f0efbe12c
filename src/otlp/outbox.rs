//! What the relay needs of the ledger, so that its tests can make the ledger fail.

use std::fmt;

use crate::ledger::{Backlog, DeadLetter, LedgerError, LedgerHandle, OutboxPosition, OutboxRecord};

/// Records that wait, oldest first.
pub trait Outbox: Send + Sync {
    /// Why it could not do what was asked.
    type Error: fmt::Display + Send;

    /// The oldest records: at most `max_records`, and no more than `max_bytes` of JSON (but at least one).
    fn batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Vec<OutboxRecord>, Self::Error>> + Send;

    /// In one transaction: everything through `through` leaves, and `dead` become dead letters, which are counted here.
    fn acknowledge(
        &self,
        through: OutboxPosition,
        dead: Vec<DeadLetter>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// How much waits.
    fn backlog(&self) -> Backlog;

    /// Completes when records were added since the last call, or at once when that happened already.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

// === impl LedgerHandle ===

impl Outbox for LedgerHandle {
    type Error = LedgerError;

    async fn batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        self.outbox_batch(max_records, max_bytes).await
    }

    async fn acknowledge(
        &self,
        through: OutboxPosition,
        dead: Vec<DeadLetter>,
    ) -> Result<(), LedgerError> {
        self.outbox_acknowledge(through, dead).await
    }

    fn backlog(&self) -> Backlog {
        LedgerHandle::backlog(self)
    }

    async fn changed(&self) {
        self.outbox_changed().await;
    }
}
