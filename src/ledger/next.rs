//! The outbox as the relay sees it, over the outbox that stores JSON: records are encoded when they are read.
//!
//! This is a bridge. The outbox that stores wire bytes has these types and methods itself.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;

use super::types::DeadLetter;
use super::{Backlog, LedgerError, LedgerHandle};

pub use super::types::{DeadReason, OutboxPosition, RecordKind, TraceContext};

/// Turns JSON into log records.
pub trait Encode: Send + Sync {
    /// Appends one record as field 2 of `ScopeLogs` (tag, length, `LogRecord`) to `out`.
    fn encode(&self, record: &RawRecord<'_>, out: &mut Vec<u8>);
    /// Returns the JSON as it may be stored in a dead letter: redacted like records.
    fn redact(&self, json: &str) -> String;
    /// Returns the kind of an encoded record and the JSON of its body.
    fn decode(&self, record: &[u8]) -> (RecordKind, String);
}

/// A record before it is encoded.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// What it stands for.
    pub kind: RecordKind,
    /// The JSON as it arrived.
    pub json: &'a str,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// The poll that fetched it.
    pub trace: Option<TraceContext>,
}

/// A record that waits for a collector.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRecord {
    /// Where it is in the order of delivery.
    pub position: OutboxPosition,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// Field 2 of `ScopeLogs`, with tag and length.
    pub bytes: Bytes,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Records that a collector accepted.
    pub delivered: Vec<OutboxPosition>,
    /// Records that become dead letters.
    pub rejected: Vec<Rejected>,
    /// The newest record, if it was delivered before the others.
    pub witness: Option<OutboxPosition>,
}

/// A record that becomes a dead letter.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// Where it is.
    pub position: OutboxPosition,
    /// When its page arrived.
    pub arrived_at: Timestamp,
    /// Why.
    pub reason: DeadReason,
    /// What the collector said.
    pub message: String,
    /// The record.
    pub bytes: Bytes,
}

/// A ledger whose records are encoded when they are read.
#[derive(Clone)]
pub struct Encoded {
    ledger: LedgerHandle,
    encoder: Arc<dyn Encode>,
    /// Records that were delivered before older ones.
    witnesses: Arc<Mutex<Vec<OutboxPosition>>>,
}

// === impl Encoded ===

impl Encoded {
    /// Wraps a ledger.
    pub fn new(ledger: LedgerHandle, encoder: Arc<dyn Encode>) -> Self {
        Self {
            ledger,
            encoder,
            witnesses: Arc::default(),
        }
    }

    /// Returns the oldest records that are not delivered.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn outbox_batch(
        &self,
        max_records: usize,
        max_bytes: usize,
    ) -> Result<Vec<OutboxRecord>, LedgerError> {
        let witnesses = self.witnesses().clone();
        let read = self
            .ledger
            .outbox_batch(max_records + witnesses.len(), max_bytes)
            .await?;
        let last = read.last().map(|record| record.position);
        let mut bytes = 0;
        let records: Vec<OutboxRecord> = read
            .into_iter()
            .filter(|record| !witnesses.contains(&record.position))
            .take(max_records)
            .map(|record| self.encode(record))
            .enumerate()
            .take_while(|(index, record)| {
                bytes += record.bytes.len();
                *index == 0 || bytes <= max_bytes
            })
            .map(|(_, record)| record)
            .collect();
        if let (true, Some(last)) = (records.is_empty(), last) {
            self.ledger.outbox_acknowledge(last, Vec::new()).await?;
            self.witnesses().clear();
        }
        Ok(records)
    }

    /// Returns the newest record.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn outbox_newest(&self) -> Result<Option<OutboxRecord>, LedgerError> {
        let mut records = self.outbox_batch(1 << 20, 1 << 28).await?;
        Ok(records.pop())
    }

    /// Writes the outcome of a request.
    ///
    /// # Errors
    /// If it cannot be written: then nothing of it happened.
    pub async fn outbox_settle(&self, settled: Settled) -> Result<(), LedgerError> {
        self.witnesses().extend(settled.witness);
        let rejected = settled.rejected.iter().map(|rejected| rejected.position);
        let Some(through) = settled.delivered.iter().copied().chain(rejected).max() else {
            return Ok(());
        };
        let dead = settled.rejected.into_iter().map(|rejected| {
            let (kind, raw) = self.encoder.decode(&rejected.bytes);
            DeadLetter {
                reason: rejected.reason,
                message: rejected.message,
                kind,
                arrived_at: rejected.arrived_at,
                raw,
            }
        });
        let dead = dead.collect();
        self.ledger.outbox_acknowledge(through, dead).await
    }

    /// Returns how much waits.
    pub fn backlog(&self) -> Backlog {
        self.ledger.backlog()
    }

    /// Completes when records were added since the last call.
    pub async fn outbox_changed(&self) {
        self.ledger.outbox_changed().await;
    }

    fn encode(&self, record: super::OutboxRecord) -> OutboxRecord {
        let mut bytes = Vec::new();
        let raw = RawRecord {
            kind: record.kind,
            json: &record.raw,
            arrived_at: record.arrived_at,
            trace: record.trace,
        };
        self.encoder.encode(&raw, &mut bytes);
        OutboxRecord {
            position: record.position,
            arrived_at: record.arrived_at,
            bytes: bytes.into(),
        }
    }

    fn witnesses(&self) -> std::sync::MutexGuard<'_, Vec<OutboxPosition>> {
        self.witnesses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
