//! `--send-missing`: sends entries as log records, oldest first, as the relay sends those of the outbox.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::Backoff;
use otlp_logs::{Export as _, Sender, Target, Verdict};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::report::Output;
use crate::audit::{Entry, Privacy};
use crate::ledger::{RecordKind, Stored};
use crate::records::{Bisect, Delivery, Fate, Pause};

/// The maximum size of the records in memory, in bytes. They are kept because the API lists the newest first, and the oldest are sent first.
const MAX_KEPT: usize = 64 << 20;

/// Sends records.
pub(super) struct Sending {
    delivery: Delivery,
    privacy: Privacy,
    sender: Sender,
    /// How long requests may fail.
    patience: Duration,
    /// Records that are not sent yet, oldest first, as in the outbox.
    waiting: VecDeque<String>,
    bytes: usize,
    /// Records that the collector accepted, and that it rejected.
    pub(super) accepted: u64,
    pub(super) rejected: u64,
}

// === impl Sending ===

impl Sending {
    pub(super) fn new(
        delivery: Delivery,
        privacy: Privacy,
        patience: Duration,
    ) -> Result<Self, String> {
        Ok(Self {
            sender: Sender::new(&delivery.target)?,
            delivery,
            privacy,
            patience,
            waiting: VecDeque::new(),
            bytes: 0,
            accepted: 0,
            rejected: 0,
        })
    }

    /// Reports whether standard output has the records.
    pub(super) fn is_to_stdout(&self) -> bool {
        matches!(self.delivery.target, Target::Stdout(_))
    }

    /// Adds an entry that is older than those before.
    pub(super) fn add(&mut self, json: &str, created_at: Timestamp, arrived_at: Timestamp) {
        let entry = Entry::read(json);
        let record = Stored {
            sequence: None,
            kind: RecordKind::Entry,
            created: created_at,
            arrived: arrived_at,
            trace: None,
            hash: self.privacy.hash(entry.actor().as_ref()).map(Cow::Owned),
            entry: self.privacy.text(json),
        };
        let line = record.line();
        self.bytes += line.len();
        self.waiting.push_front(line);
    }

    /// Reports whether records have to be sent before others are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_KEPT
    }

    /// Sends the records that wait.
    ///
    /// # Errors
    /// If the collector takes nothing for longer than the patience.
    pub(super) async fn send(&mut self, report: &mut Output) -> Result<(), String> {
        // Stores like Loki reject records that are much older than the newest one of an instance, and these are older than those sent before.
        let envelope = self.delivery.envelope(&Uuid::new_v4().to_string());
        let mut bisect = Bisect::new(self.delivery.batch_size);
        let (mut backoff, mut progress, mut said) =
            (Backoff::default(), Instant::now(), String::new());
        self.bytes = 0;
        while !self.waiting.is_empty() {
            report
                .bar
                .set_message(format!("sending: {} accepted {said}", self.accepted));
            let (skip, max) = bisect.next();
            let lines = self.waiting.iter().skip(skip).take(max);
            let (request, count) = envelope.request(lines.map(String::as_bytes));
            let (mut waits, mut retry_after) = (true, None);
            if count == 0 {
                bisect.no_witness();
            } else {
                let verdict = self.sender.export(request).await;
                let (fate, pause) = bisect.answered(count, &verdict, Instant::now());
                waits = pause != Pause::None;
                if let Verdict::Rejected(rejection) = &verdict {
                    (said, retry_after) = (rejection.message.clone(), rejection.retry_after);
                    waits |= retry_after.is_some();
                }
                if fate != Fate::Kept {
                    let records = self.waiting.drain(skip..skip + count).collect();
                    self.settle(records, verdict, report);
                    progress = Instant::now();
                    backoff.reset();
                }
            }
            if waits && progress.elapsed() >= self.patience {
                return Err(format!("the collector does not accept records: {said}"));
            }
            if waits {
                sleep(backoff.next(retry_after)).await;
            }
        }
        Ok(())
    }

    /// Counts records that are accepted or rejected for good, and prints the rejected ones.
    fn settle(&mut self, records: Vec<String>, verdict: Verdict, report: &mut Output) {
        let count = records.len() as u64;
        let (rejected, id, said) = match verdict {
            Verdict::Accepted | Verdict::Warned { .. } => {
                self.accepted += count;
                return;
            }
            Verdict::PartlyRejected { rejected, message } => {
                let rejected = rejected.min(count);
                let said =
                    format!("{rejected} of {count} records, without saying which: {message}");
                (rejected, None, said)
            }
            Verdict::Rejected(rejection) => {
                let record = Stored::read(records[0].as_bytes());
                let id = json!(Entry::read(&record.entry).id_text());
                (count, Some(id), rejection.message)
            }
        };
        self.accepted += count - rejected;
        self.rejected += rejected;
        report.line("rejected", &[("id", json!(id)), ("message", json!(said))]);
    }
}
