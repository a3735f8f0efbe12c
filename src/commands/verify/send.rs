//! `--send-missing`: sends entries as log records, oldest first, with the requests and the verdicts of the relay.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use indicatif::ProgressBar;
use jiff::Timestamp;
use orgdata_api::Backoff;
use otlp_logs::{Export as _, Reason, Sender, Verdict};
use tokio::time::Instant;
use uuid::Uuid;

use crate::audit::Entry;
use crate::ledger::{Encode, RawRecord, RecordKind};
use crate::records::{Delivery, MAX_REQUEST};
use crate::util::shown_wait;

/// The maximum size of the records in memory, in bytes. They are kept because the API lists the newest first, and the oldest are sent first.
const MAX_KEPT: usize = 64 << 20;

/// After this many rejected records without an accepted one, the others are not sent.
const MAX_REJECTED: u64 = 100;

/// Sends records.
pub(super) struct Sending {
    pub(super) delivery: Delivery,
    encoder: Arc<dyn Encode>,
    sender: Sender,
    /// How long a request may fail.
    patience: Duration,
    /// Records that are not sent yet, newest first.
    waiting: Vec<Bytes>,
    bytes: usize,
    /// Records that the collector accepted, and that it rejected.
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// The ids of the records that it rejected (empty if it did not name them), and its message.
    pub(super) rejections: Vec<(Option<String>, String)>,
}

// === impl Sending ===

impl Sending {
    pub(super) fn new(
        delivery: Delivery,
        encoder: Arc<dyn Encode>,
        patience: Duration,
    ) -> Result<Self, String> {
        Ok(Self {
            sender: Sender::new(&delivery.target)?,
            delivery,
            encoder,
            patience,
            waiting: Vec::new(),
            bytes: 0,
            accepted: 0,
            rejected: 0,
            rejections: Vec::new(),
        })
    }

    /// Adds an entry that is older than those before.
    pub(super) fn add(&mut self, json: &str, created_at: Timestamp, arrived_at: Timestamp) {
        let mut record = Vec::new();
        let raw = RawRecord {
            kind: RecordKind::Entry,
            json,
            created_at,
            arrived_at,
            trace: None,
        };
        self.encoder.encode(&raw, &mut record);
        self.bytes += record.len();
        self.waiting.push(record.into());
    }

    /// Reports whether records have to be sent before others are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_KEPT
    }

    /// Sends the records that wait.
    ///
    /// # Errors
    /// If the collector takes nothing for longer than the patience, or rejects everything.
    pub(super) async fn send(&mut self, bar: &ProgressBar) -> Result<(), String> {
        let mut records = std::mem::take(&mut self.waiting);
        records.reverse();
        self.bytes = 0;
        // Stores like Loki reject records that are much older than the newest one of an instance, and these are older than those sent before.
        let envelope = self.delivery.envelope(&Uuid::new_v4().to_string());
        let mut rest = &records[..];
        while !rest.is_empty() {
            let mut bytes = envelope.size();
            let fits = |record: &&Bytes| {
                bytes += record.len();
                bytes <= MAX_REQUEST
            };
            let batch = rest.iter().take(self.delivery.batch_size);
            let count = batch.take_while(fits).count().max(1);
            let (batch, others) = rest.split_at(count);
            rest = others;
            // A request that is rejected because of its records is halved, down to one record.
            let mut parts = vec![batch];
            while let Some(part) = parts.pop() {
                bar.set_message(format!("sending: {} accepted", self.accepted));
                let verdict = self.answer(envelope.request(part.iter()), part.len(), bar);
                match verdict.await? {
                    Verdict::Accepted => self.accepted += part.len() as u64,
                    Verdict::PartlyRejected { rejected, message } => {
                        let count = part.len() as u64;
                        let rejected = rejected.min(count);
                        self.accepted += count - rejected;
                        self.rejected += rejected;
                        let said = format!(
                            "{rejected} of {count} records, without saying which: {message}"
                        );
                        self.rejections.push((None, said));
                    }
                    Verdict::Rejected(rejection) if part.len() == 1 => {
                        self.rejected += 1;
                        let (_, json) = self.encoder.decode(&part[0]);
                        let id = Entry::read(&json).id_text().map(Cow::into_owned);
                        self.rejections.push((id, rejection.message));
                    }
                    Verdict::Rejected(_) => {
                        let (older, newer) = part.split_at(part.len() / 2);
                        parts.extend([newer, older]);
                    }
                }
                if self.accepted == 0 && self.rejected >= MAX_REJECTED {
                    return Err("the collector rejects every record".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Sends a request until there is an answer that concerns its records.
    async fn answer(
        &self,
        body: Bytes,
        records: usize,
        bar: &ProgressBar,
    ) -> Result<Verdict, String> {
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        loop {
            let rejection = match self.sender.export(body.clone()).await {
                Verdict::Rejected(rejection) => rejection,
                verdict => return Ok(verdict),
            };
            let is_slow = rejection.reason == Reason::Timeout && records > 1;
            if rejection.reason.is_about_records() || is_slow {
                return Ok(Verdict::Rejected(rejection));
            }
            if begun.elapsed() >= self.patience {
                return Err(format!(
                    "the collector does not accept records: {}",
                    rejection.message
                ));
            }
            let wait = backoff.next(rejection.retry_after);
            let message = &rejection.message;
            bar.set_message(format!(
                "the collector fails, trying again in {}: {message}",
                shown_wait(wait)
            ));
            tokio::time::sleep(wait).await;
        }
    }
}
