//! Delivers records from the outbox to the collector, oldest first, until each is accepted or a dead letter.
//!
//! One request is under way at a time. Its outcome is written to the outbox before the next one is sent, so a crash
//! repeats at most one request. What follows from an answer:
//!
//! - Accepted: the records leave the outbox, and requests may become twice as large again.
//! - Partly rejected: the collector does not say which records, and they must not be sent again: dead letters.
//! - Too large, or a record may be bad: half of the records next, down to a single one.
//! - A single record is rejected, and becomes a dead letter, only if another record was accepted after it was refused.
//!   If it was refused before any other was accepted, a newer record, the witness, is sent. If that is refused too, or
//!   there is no other record, the collector may be broken. The next witness is a newer one, as several records may be bad,
//!   but not much newer: some collectors refuse what is older than what they have. Each search through the outbox is
//!   finer than the one before.
//! - Everything else, and a broken collector: wait and repeat, forever. The delay of the server wins.
//!
//! An empty request, at the start and once a minute while nothing waits, shows whether the collector answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::record::Envelope;
use super::sender::Export;
use super::settings::Settings;
use super::verdict::{FailureReason as R, Refusal, Verdict};
use crate::health::Health;
use crate::ledger::{DeadReason, LedgerError, LedgerHandle, OutboxPosition, Settled};
use crate::metrics::{Loop, Loops, OtlpMetrics};
use crate::util::{self, Backoff, shown_duration};

/// The maximum size of a request: below the 4 MiB that a gRPC server accepts by default.
const MAX_REQUEST: usize = 3 * 1024 * 1024;

/// The number of successes after which a size that was too much is tried again. Limits rarely change, and an attempt
/// costs a refused request.
const TRY_AGAIN: u32 = 256;

/// How often a record is refused alone with a server error, which may have another cause, before it is rejected.
const STRIKES: u32 = 3;

/// The interval of empty requests while nothing waits.
const PROBE_INTERVAL: Duration = Duration::from_secs(60);

/// What to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another round, at once.
    Now,
    /// Nothing waits.
    Idle,
    /// Another round, after a delay.
    After(Duration),
}

/// The loop that delivers.
#[derive(Debug)]
pub struct Relay<S> {
    ledger: LedgerHandle,
    sender: Arc<S>,
    envelope: Envelope,
    metrics: Arc<OtlpMetrics>,
    loops: Arc<Loops>,
    /// The maximum number of records in a request.
    records: Limit,
    /// The maximum size of a request.
    bytes: Limit,
    search: Search,
    /// The outcome of the last request, until it is written.
    unsettled: Option<Settled>,
    backoff: Backoff,
    /// The state file cannot be read or written.
    ledger_failed: bool,
    /// Partial rejections since the last acceptance.
    rejections: u32,
    /// The last warning of the collector.
    warning: Option<String>,
    /// When the collector answered last.
    answered_at: Option<Instant>,
}

/// The search for a bad record.
#[derive(Debug, Default)]
struct Search {
    /// The number of oldest records that contain a bad one; 0 if there is no search.
    suspects: usize,
    /// Another record was accepted since the search began or was interrupted.
    accepted: bool,
    /// A witness was accepted after the oldest record had been refused alone.
    is_witnessed: bool,
    /// How often the oldest record was refused alone, with another one accepted.
    strikes: u32,
    /// The record that these two are about.
    oldest: Option<OutboxPosition>,
    /// The oldest record was refused alone, and the witness is next.
    refused_alone: Option<Refusal>,
    /// How many records there are between the oldest one and the next witness.
    witness: usize,
    /// How often all distances were tried.
    laps: u32,
}

/// A limit of requests that shrinks when one is too much for the collector, and grows again.
#[derive(Debug)]
struct Limit {
    max: usize,
    now: usize,
    /// The number of successes before it grows.
    patience: u32,
}

// === impl Relay ===

impl<S: Export + 'static> Relay<S> {
    /// Returns a relay that delivers the records of this ledger.
    pub fn new(
        ledger: LedgerHandle,
        sender: S,
        settings: &Settings,
        metrics: Arc<OtlpMetrics>,
        loops: Arc<Loops>,
    ) -> Self {
        Self {
            sender: Arc::new(sender),
            envelope: Envelope::new(settings.resource(&ledger.instance_id())),
            ledger,
            metrics,
            loops,
            records: Limit::new(settings.batch_size),
            bytes: Limit::new(MAX_REQUEST),
            search: Search::default(),
            unsettled: None,
            backoff: Backoff::default(),
            ledger_failed: false,
            rejections: 0,
            warning: None,
            answered_at: None,
        }
    }

    /// Delivers until `shutdown`, and then for at most `grace`. What is left stays in the outbox.
    pub async fn run(mut self, health: Health, shutdown: CancellationToken, grace: Duration) {
        let _watched = health.watched(Loop::Otlp);
        let deadline = async {
            shutdown.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = deadline => {}
            () = self.drive(&health, &shutdown) => {}
        }
    }

    async fn drive(&mut self, health: &Health, shutdown: &CancellationToken) {
        loop {
            // A round that fails after the signal is the last one.
            let is_last = shutdown.is_cancelled();
            if is_last && self.ledger.backlog() == 0 && self.unsettled.is_none() {
                return;
            }
            let next = health.round(Loop::Otlp, self.round()).await;
            let (wait, changes) = match next {
                Next::Now => continue,
                _ if is_last => return,
                Next::Idle => (PROBE_INTERVAL, true),
                Next::After(wait) => (wait, false),
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = self.ledger.outbox_changed(), if changes => {}
                () = health.waiting(Loop::Otlp, tokio::time::sleep(wait)) => {}
            }
        }
    }

    /// Sends at most one request.
    pub async fn round(&mut self) -> Next {
        let error = match self.try_round().await {
            Ok(next) => return next,
            Err(error) => format!("cannot deliver log records: {error}"),
        };
        let wait = self.backoff.next(None);
        if !std::mem::replace(&mut self.ledger_failed, true) {
            tracing::warn!(retry_in = %shown_duration(wait), "{error}; no log record is lost or sent twice");
        }
        self.loops.failure(Loop::Otlp, "state file", error);
        Next::After(wait)
    }

    async fn try_round(&mut self) -> Result<Next, LedgerError> {
        self.settle().await?;
        let batch = self.next_batch().await?;
        if std::mem::take(&mut self.ledger_failed) {
            tracing::info!("the state file works again");
            // Whether the collector does, the next answer says.
            self.answered_at = None;
        }
        if batch.records.is_empty() {
            return Ok(match self.search.refused_alone.take() {
                Some(refusal) => {
                    self.search.begin_lap();
                    self.hold(&refusal)
                }
                None => self.idle().await,
            });
        }
        let body = self
            .envelope
            .request(batch.records.iter().map(|record| &record.bytes));
        let verdict = self.send(body).await;
        let next = self.act(batch, verdict);
        self.settle().await?;
        Ok(next)
    }

    /// Returns the records of the next request.
    async fn next_batch(&self) -> Result<Settled, LedgerError> {
        let is_witness = self.search.refused_alone.is_some();
        let (skip, records) = match self.search.suspects {
            _ if is_witness => (1 + self.search.witness, 1),
            0 => (0, self.records.now),
            suspects => (0, (suspects / 2).clamp(1, self.records.now)),
        };
        let bytes = self.bytes.now.saturating_sub(self.envelope.size());
        Ok(Settled {
            records: self.ledger.outbox_batch(skip, records, bytes).await?,
            is_witness,
            rejected: None,
        })
    }

    async fn send(&self, body: Bytes) -> Verdict {
        self.metrics.requests.inc();
        let sender = self.sender.clone();
        let request = async move { sender.export(body).await };
        // A panic in a library must not end the loop: tonic panics on a malformed `grpc-status-details-bin`.
        let request = AbortOnDropHandle::new(tokio::spawn(request.in_current_span()));
        let verdict = request.await.unwrap_or_else(|_| {
            let message = "the OTLP client panicked, probably on a malformed answer";
            Verdict::Refused(Refusal::new(R::Other, message))
        });
        if let Some(reason) = verdict.reason() {
            self.metrics.failed(reason);
        }
        verdict
    }

    async fn idle(&mut self) -> Next {
        self.search = Search::default();
        let is_recent = |at: Instant| at.elapsed() < PROBE_INTERVAL;
        // A collector that rejects all records may well accept none.
        if self.rejections > 1 || self.answered_at.is_some_and(is_recent) {
            return Next::Idle;
        }
        match self.send(Bytes::new()).await {
            // Some collectors refuse a request without records: it was an answer.
            Verdict::Refused(refusal) if !matches!(refusal.reason, R::TooLarge | R::BadRecord) => {
                self.hold(&refusal)
            }
            _ => {
                self.answered();
                Next::Idle
            }
        }
    }

    fn act(&mut self, batch: Settled, verdict: Verdict) -> Next {
        let count = batch.records.len();
        if batch.is_witness && verdict.reason().is_none_or(R::is_about_records) {
            self.search.refused_alone = None;
        }
        match verdict {
            Verdict::Acknowledged { warning } => self.accepted(batch, warning),
            Verdict::PartlyRejected { rejected, message } => {
                self.partly_rejected(batch, rejected, &message)
            }
            Verdict::Refused(refusal) if !refusal.reason.is_about_records() => {
                if refusal.reason == R::Timeout && !batch.is_witness {
                    // A collector that is slow answers half of the records in time. A silent one does not answer to one
                    // record either, which says nothing about larger requests.
                    self.records.exceeded(count);
                }
                // What was accepted before says nothing about later refusals.
                self.search.accepted = false;
                self.hold(&refusal)
            }
            // The witness is refused like the oldest record: the collector is probably broken.
            Verdict::Refused(refusal) if batch.is_witness => {
                self.search.next_witness();
                self.hold(&refusal)
            }
            Verdict::Refused(refusal) if count == 1 => self.refused_alone(batch, refusal),
            Verdict::Refused(refusal) if refusal.reason == R::TooLarge => {
                let size = batch.records.iter().map(|record| record.bytes.len());
                self.bytes.exceeded(size.sum());
                Next::Now
            }
            Verdict::Refused(_) => {
                self.search.begin_or_continue(count);
                self.records.shrink(count / 2);
                Next::Now
            }
        }
    }

    fn accepted(&mut self, batch: Settled, warning: Option<String>) -> Next {
        // Some collectors repeat a warning with every request.
        if let Some(warning) = warning.filter(|warning| self.warning.as_ref() != Some(warning)) {
            tracing::warn!("the collector accepted log records with a warning: {warning}");
            self.warning = Some(warning);
        }
        self.answered();
        self.rejections = 0;
        let now = util::now();
        for page in batch.records.chunk_by(|a, b| a.arrived_at == b.arrived_at) {
            let delay = now.duration_since(page[0].arrived_at);
            let delay = Duration::try_from(delay).unwrap_or_default();
            self.metrics.acknowledged(page.len() as u64, delay);
        }
        self.search.accepted = true;
        self.search.is_witnessed |= batch.is_witness;
        if !batch.is_witness {
            self.search.leave(batch.records.len());
            self.records.succeeded();
            self.bytes.succeeded();
        }
        self.unsettled = Some(batch);
        Next::Now
    }

    fn partly_rejected(&mut self, batch: Settled, rejected: u64, message: &str) -> Next {
        let count = batch.records.len();
        let rejected = rejected.min(count as u64);
        self.metrics.records_rejected.inc_by(rejected);
        self.metrics.records_sent.inc_by(count as u64 - rejected);
        tracing::warn!(
            "the collector rejected {rejected} of {count} log records without saying which; all of them are now dead letters: {message}"
        );
        if !batch.is_witness {
            self.search.leave(count);
            self.records.shrink(count / 4);
        }
        self.unsettled = Some(Settled {
            rejected: Some((DeadReason::PartlyRejected, message.to_owned())),
            ..batch
        });
        self.rejections += 1;
        // One rejection may be an accident. A collector that rejects everything must not empty the outbox at full speed.
        if self.rejections == 1 {
            return Next::Now;
        }
        let message = format!("the collector rejects log records again and again: {message}");
        self.hold(&Refusal::new(R::PartlyRejected, message))
    }

    /// The oldest record was refused alone.
    fn refused_alone(&mut self, batch: Settled, refusal: Refusal) -> Next {
        let reason = if refusal.reason == R::TooLarge {
            self.bytes = Limit::new(MAX_REQUEST);
            DeadReason::TooLarge
        } else {
            DeadReason::Refused
        };
        self.search.begin_or_continue(1);
        // Pages of a range that is open may come below it.
        let oldest = batch.records.first().map(|record| record.position);
        if std::mem::replace(&mut self.search.oldest, oldest) != oldest {
            (self.search.strikes, self.search.is_witnessed) = (0, false);
        }
        if !self.search.accepted && !self.search.is_witnessed {
            self.search.refused_alone = Some(refusal);
            return Next::Now;
        }
        self.search.strikes += 1;
        if refusal.reason == R::ServerError && self.search.strikes < STRIKES {
            // The collector may have begun to fail: the last refusal needs an acceptance of its own, if there is another record.
            let is_last = self.search.strikes + 1 == STRIKES;
            self.search.accepted = !is_last || self.ledger.backlog() == 1;
            self.search.is_witnessed = false;
            return self.hold(&refusal);
        }
        tracing::warn!(
            reason = reason.as_str(),
            "the collector rejected a log record, which is now a dead letter: {}",
            refusal.message
        );
        self.search = Search {
            // The next records may be bad as well.
            witness: self.search.witness.saturating_sub(1),
            ..Search::default()
        };
        self.records.succeeded();
        self.unsettled = Some(Settled {
            rejected: Some((reason, refusal.message)),
            ..batch
        });
        Next::Now
    }

    /// Writes the outcome of the last request.
    async fn settle(&mut self) -> Result<(), LedgerError> {
        if let Some(settled) = self.unsettled.clone() {
            self.ledger.outbox_settle(settled).await?;
            self.unsettled = None;
        }
        Ok(())
    }

    fn answered(&mut self) {
        self.answered_at = Some(Instant::now());
        self.backoff.reset();
        if self.loops.success(Loop::Otlp) {
            tracing::info!("log records are delivered again");
        }
    }

    /// Returns the delay before the next attempt.
    fn hold(&mut self, refusal: &Refusal) -> Next {
        let wait = self.backoff.next(refusal.retry_after);
        let (reason, message) = (refusal.reason.as_str(), refusal.message.as_str());
        let summary = format!("{} ({reason})", refusal.summary());
        let shown = format!("cannot deliver log records: {summary}");
        if self.loops.failure(Loop::Otlp, summary, shown) {
            let next = if refusal.reason.is_configuration() {
                "a setting here or at the collector must change"
            } else {
                "the exporter tries again"
            };
            tracing::warn!(
                reason,
                backlog_records = self.ledger.backlog(),
                retry_in = %shown_duration(wait),
                "cannot deliver log records: {message}; what waits stays in the state file until it works; {next}"
            );
        } else {
            tracing::debug!(reason, retry_in = %shown_duration(wait), "cannot deliver log records: {message}");
        }
        Next::After(wait)
    }
}

// === impl Search ===

impl Search {
    /// The oldest `suspects` records were refused together.
    fn begin_or_continue(&mut self, suspects: usize) {
        self.accepted &= self.suspects > 0;
        self.suspects = suspects;
    }

    /// The oldest records left the outbox.
    fn leave(&mut self, records: usize) {
        self.suspects = self.suspects.saturating_sub(records);
        (self.strikes, self.witness, self.laps) = (0, 0, 0);
        self.is_witnessed = false;
    }

    /// There is no record where the next witness should be.
    fn begin_lap(&mut self) {
        self.laps += u32::from(self.witness > 0);
        self.witness = 0;
    }

    /// The witness was refused. Each lap is twice as fine as the one before, and in the end it tries each record.
    fn next_witness(&mut self) {
        self.witness += 1 + (self.witness >> (2 + self.laps).min(usize::BITS - 1));
    }
}

// === impl Limit ===

impl Limit {
    fn new(max: usize) -> Self {
        Self {
            max,
            now: max,
            patience: 0,
        }
    }

    fn succeeded(&mut self) {
        match self.patience.checked_sub(1) {
            Some(rest) => self.patience = rest,
            None => self.now = (self.now * 2).min(self.max),
        }
    }

    fn shrink(&mut self, to: usize) {
        self.now = to.max(1);
        self.patience = 0;
    }

    /// A request of this size was too much.
    fn exceeded(&mut self, size: usize) {
        self.shrink(size / 2);
        self.patience = if size > 1 { TRY_AGAIN } else { 0 };
    }
}

#[cfg(test)]
#[cfg(any())]
#[path = "relay_tests.rs"]
mod tests;
