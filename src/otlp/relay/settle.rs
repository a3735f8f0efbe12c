//! Writing down in the ledger what the collector has acknowledged, and going on from memory while the ledger cannot.

use std::time::Duration;

use tokio::time::Instant;

use super::Relay;
use super::trouble::REMINDER;
use super::wait::Backoff;
use crate::ledger::{DeadLetter, OutboxPosition, OutboxRecord};
use crate::metrics::Loop;
use crate::otlp::outbox::Outbox;
use crate::otlp::sender::Export;

/// What left the window and the ledger has not taken down yet.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    through: Option<OutboxPosition>,
    dead: Vec<DeadLetter>,
    records: usize,
    bytes: usize,
    /// The ledger is being written to: cut short, it may have happened or not.
    in_doubt: bool,
    /// The ledger failed: not before then.
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// When an operator was told last.
    told: Option<Instant>,
}

// === impl Unsettled ===

impl Unsettled {
    /// A record is done with.
    pub(super) fn add(&mut self, record: &OutboxRecord) {
        self.through = Some(record.position);
        self.records += 1;
        self.bytes += record.raw.len();
    }

    /// A record goes to the dead letters with the next position.
    pub(super) fn bury(&mut self, dead: DeadLetter) {
        self.dead.push(dead);
    }

    pub(super) fn through(&self) -> Option<OutboxPosition> {
        self.through
    }

    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

// === impl Relay ===

impl<O: Outbox, S: Export> Relay<O, S> {
    /// Writes down what left the window. `Some` where the ledger does not take it: how long until it is asked again.
    pub(super) async fn settle(&mut self) -> Option<Duration> {
        let through = self.unsettled.through?;
        let now = Instant::now();
        if let Some(retry_at) = self.unsettled.retry_at.filter(|retry_at| *retry_at > now) {
            return Some(retry_at - now);
        }
        self.unsettled.in_doubt = true;
        let written = self
            .outbox
            .acknowledge(through, self.unsettled.dead.clone())
            .await;
        self.unsettled.in_doubt = false;
        match written {
            Ok(()) => {
                if self.unsettled.retry_at.is_some() {
                    tracing::info!(
                        records = self.unsettled.records,
                        "acknowledgements are written down again"
                    );
                    self.loops.success(Loop::Otlp);
                }
                self.unsettled = Unsettled::default();
                None
            }
            Err(error) => {
                Some(self.ledger_failed("acknowledgements cannot be written down", &error))
            }
        }
    }

    /// One last attempt before the process ends, so that nothing is sent twice after the next start.
    pub(super) async fn settle_at_last(&mut self, within: Duration) {
        if !self.unsettled.in_doubt {
            self.unsettled.retry_at = None;
            // What is not written down in time is sent again: `log.record.uid` tells the copies.
            let _ = tokio::time::timeout(within, self.settle()).await;
        }
    }

    /// The ledger failed; how long to wait.
    pub(super) fn ledger_failed(&mut self, what: &str, error: &O::Error) -> Duration {
        let wait = self.unsettled.backoff.next_plain();
        self.unsettled.retry_at = Some(Instant::now() + wait);
        if self
            .unsettled
            .told
            .is_none_or(|told| told.elapsed() >= REMINDER)
        {
            self.unsettled.told = Some(Instant::now());
            tracing::warn!(next_attempt_in = ?wait, "{what}: {error}; no record is lost, and none is sent again while the process runs");
        }
        self.loops.failure(Loop::Otlp, format!("{what}: {error}"));
        wait
    }
}
