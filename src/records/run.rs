//! The loop: sends the records that [`Bisect`] names, and writes the outcome to the outbox.
//!
//! One request is under way at a time. Its outcome is written before the next one is sent, so a crash repeats at most one
//! request. An empty request, at the start and once a minute while nothing waits, shows whether the collector is there: any
//! answer counts that is not about the connection, the credentials or the endpoint.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp_logs::{Export, Reason, Rejection, Verdict};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::bisect::{Bisect, Fate, Pause};
use super::record::Envelope;
use super::{Delivery, MAX_REQUEST};
use crate::health::{Health, Loop};
use crate::ledger::{DeadReason, LedgerError, LedgerHandle, OutboxPosition, OutboxRecord, Settled};
use crate::metrics::{Loops, OtlpMetrics};
use crate::util::{Backoff, Repeated, advice, shown_duration, shown_wait};

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
    health: Health,
    bisect: Bisect,
    /// The oldest record when it was sent last.
    oldest: Option<OutboxPosition>,
    /// The outcome of the last request, until it is written.
    unsettled: Option<Settled>,
    backoff: Backoff,
    /// Since the last answer.
    failures: Repeated<&'static str>,
    /// Since the start.
    rejections: Repeated<DeadReason>,
    /// A warning of the collector was logged.
    has_warned: bool,
    /// The state file cannot be read or written.
    ledger_failed: bool,
    /// When the collector answered last.
    answered_at: Option<Instant>,
}

// === impl Relay ===

impl<S: Export + 'static> Relay<S> {
    /// Returns a relay that delivers the records of this ledger.
    pub fn new(
        ledger: LedgerHandle,
        sender: S,
        delivery: &Delivery,
        metrics: Arc<OtlpMetrics>,
        loops: Arc<Loops>,
    ) -> Self {
        Self {
            sender: Arc::new(sender),
            envelope: delivery.envelope(&ledger.instance_id()),
            ledger,
            metrics,
            loops,
            health: Health::default(),
            bisect: Bisect::new(delivery.batch_size),
            oldest: None,
            unsettled: None,
            backoff: Backoff::default(),
            failures: Repeated::default(),
            rejections: Repeated::default(),
            has_warned: false,
            ledger_failed: false,
            answered_at: None,
        }
    }

    /// Delivers until `shutdown`, and then for at most `grace`. The remaining records stay in the outbox.
    pub async fn run(mut self, health: Health, shutdown: CancellationToken, grace: Duration) {
        let _watched = health.watched(Loop::Otlp);
        self.health = health;
        let deadline = async {
            shutdown.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = deadline => {}
            () = self.drive(&shutdown) => {}
        }
    }

    async fn drive(&mut self, shutdown: &CancellationToken) {
        loop {
            // A round that fails after the signal is the last one.
            let is_last = shutdown.is_cancelled();
            if is_last && self.ledger.backlog() == 0 && self.unsettled.is_none() {
                return;
            }
            let next = self.round().await;
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
                () = self.health.waiting(Loop::Otlp, tokio::time::sleep(wait)) => {}
            }
        }
    }

    /// Sends at most one request.
    pub async fn round(&mut self) -> Next {
        let error = match self.try_round().await {
            Ok(next) => return next,
            Err(error) => error.to_string(),
        };
        let wait = self.backoff.next(None);
        if !std::mem::replace(&mut self.ledger_failed, true) {
            tracing::warn!(
                loop = "otlp",
                error,
                retry_in = %shown_wait(wait),
                "delivery failed; no log record is lost or sent twice"
            );
        }
        self.loops.failure(Loop::Otlp, "state_file", error);
        Next::After(wait)
    }

    async fn try_round(&mut self) -> Result<Next, LedgerError> {
        self.settle().await?;
        let (skip, records) = self.bisect.next();
        let batch = self.ledger.outbox_batch(skip, records, MAX_REQUEST);
        let mut batch = batch.await?;
        if std::mem::take(&mut self.ledger_failed) {
            tracing::info!(loop = "otlp", "the state file works again");
            // The next answer shows whether the collector works.
            self.answered_at = None;
        }
        let is_witness = skip > 0;
        let Some(first) = batch.first() else {
            if !is_witness {
                return Ok(self.idle().await);
            }
            self.bisect.no_witness();
            let message = "the collector rejects a log record, which becomes a dead letter only after another one is accepted";
            return Ok(self.hold(&Rejection::new(Reason::BadRecord, message)));
        };
        // Older records may have come since the last request.
        if !is_witness && self.oldest.replace(first.position) != Some(first.position) {
            self.bisect.oldest_changed();
        }
        let lines = batch.iter().map(|record| &*record.line);
        let (request, count) = self.envelope.request(lines);
        batch.truncate(count);
        let sent = Instant::now();
        let verdict = self.send(request).await;
        tracing::debug!(
            loop = "otlp",
            records = count,
            duration = %shown_duration(sent.elapsed()),
            outcome = verdict.reason().map_or("accepted", Into::into),
            "delivery"
        );
        let (fate, pause) = self.bisect.answered(count, &verdict, Instant::now());
        self.settled(batch, is_witness, fate, &verdict);
        let next = match (&verdict, pause) {
            (Verdict::Rejected(rejection), Pause::Backoff) => self.hold(rejection),
            (Verdict::PartlyRejected { message, .. }, Pause::Backoff) => {
                let message = format!("the collector keeps rejecting log records: {message}");
                self.hold(&Rejection::new(Reason::BadRecord, message))
            }
            (Verdict::Rejected(rejection), Pause::None) => {
                rejection.retry_after.map_or(Next::Now, Next::After)
            }
            (Verdict::Rejected(rejection), Pause::For(pause)) => {
                Next::After(rejection.retry_after.unwrap_or(pause))
            }
            _ => Next::Now,
        };
        self.settle().await?;
        Ok(next)
    }

    async fn send(&self, request: ExportLogsServiceRequest) -> Verdict {
        self.metrics.requests.inc();
        let sender = self.sender.clone();
        let export = async move { sender.export(request).await };
        // A panic in a library must not end the loop: tonic panics on a malformed `grpc-status-details-bin`.
        let exporting = AbortOnDropHandle::new(tokio::spawn(export.in_current_span()));
        let exported = self.health.request(Loop::Otlp, exporting).await;
        let verdict = exported.unwrap_or_else(|_| {
            let message = "the OTLP client panicked, probably on a malformed answer";
            Verdict::Rejected(Rejection::new(Reason::Unavailable, message))
        });
        if let Some(reason) = verdict.reason() {
            self.metrics.failed(reason);
        }
        verdict
    }

    async fn idle(&mut self) -> Next {
        let is_recent = |at: Instant| at.elapsed() < PROBE_INTERVAL;
        if self.bisect.is_partly_rejected() || self.answered_at.is_some_and(is_recent) {
            return Next::Idle;
        }
        match self.send(ExportLogsServiceRequest::default()).await {
            Verdict::Rejected(rejection) if rejection.reason.is_about_connection() => {
                self.hold(&rejection)
            }
            Verdict::Rejected(Rejection {
                retry_after: Some(delay),
                ..
            }) => {
                self.answered();
                Next::After(delay)
            }
            // Some collectors reject a request without records, but this one is there.
            _ => {
                self.answered();
                Next::Idle
            }
        }
    }

    /// Counts and reports the outcome for the records, and keeps it until it is written.
    fn settled(
        &mut self,
        records: Vec<OutboxRecord>,
        is_witness: bool,
        fate: Fate,
        verdict: &Verdict,
    ) {
        let count = records.len() as u64;
        let rejected = match (fate, verdict) {
            (Fate::Kept, _) => return,
            (_, Verdict::Accepted | Verdict::Warned { .. }) => {
                self.answered();
                if let Verdict::Warned { message } = verdict
                    && !std::mem::replace(&mut self.has_warned, true)
                {
                    tracing::warn!(
                        loop = "otlp",
                        warning = message,
                        "the collector accepted log records with a warning; see the collector's log for its text"
                    );
                }
                let now = self.ledger.now();
                for page in records.chunk_by(|a, b| a.arrived_at == b.arrived_at) {
                    let delay = now.duration_since(page[0].arrived_at);
                    let delay = Duration::try_from(delay).unwrap_or_default();
                    self.metrics.acknowledged(page.len() as u64, delay);
                }
                None
            }
            (_, Verdict::PartlyRejected { rejected, message }) => {
                let rejected = (*rejected).min(count);
                self.metrics.records_rejected.inc_by(rejected);
                self.metrics.records_sent.inc_by(count - rejected);
                tracing::warn!(
                    loop = "otlp",
                    error = message,
                    "the collector rejected {rejected} of {count} log records without saying which; all of them are now dead letters"
                );
                Some((DeadReason::PartlyRejected, message.clone()))
            }
            (_, Verdict::Rejected(rejection)) => {
                let reason = match rejection.reason {
                    Reason::TooLarge => DeadReason::TooLarge,
                    _ => DeadReason::Rejected,
                };
                if let Some(records) = self.rejections.should_log(reason) {
                    tracing::warn!(
                        loop = "otlp",
                        records,
                        reason = reason.as_ref(),
                        error = rejection.message,
                        "the collector rejected a log record, which is now a dead letter"
                    );
                }
                Some((reason, rejection.message.clone()))
            }
        };
        self.unsettled = Some(Settled {
            records,
            is_witness,
            rejected,
        });
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
        self.failures.clear();
        if self.loops.success(Loop::Otlp) {
            tracing::info!(loop = "otlp", "log records are delivered again");
        }
    }

    /// Returns the delay before the next attempt.
    fn hold(&mut self, rejection: &Rejection) -> Next {
        let wait = self.backoff.next(rejection.retry_after);
        let (reason, message): (&str, _) = (rejection.reason.into(), &*rejection.message);
        self.loops.failure(Loop::Otlp, reason, message);
        if let Some(failures) = self.failures.should_log(reason) {
            tracing::warn!(
                loop = "otlp",
                failures,
                error = message,
                reason,
                backlog_records = self.ledger.backlog(),
                retry_in = %shown_wait(wait),
                "delivery failed; log records wait in the state file{}",
                advice(rejection.reason.is_about_settings())
            );
        }
        Next::After(wait)
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
