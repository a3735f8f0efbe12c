//! What follows from a verdict.

use std::time::Duration;

use jiff::Timestamp;

use super::search::{Search, Turn};
use super::window::Batch;
use super::{Next, Relay};
use crate::ledger::{DeadLetter, DeadReason, OutboxRecord};
use crate::metrics::Loop;
use crate::otlp::FailureReason;
use crate::otlp::outbox::Outbox;
use crate::otlp::sender::Export;
use crate::otlp::verdict::{Refusal, Verdict};

/// A single record this large is at fault when the collector speaks of size: no collector's limit is below it. A smaller one is only
/// condemned when another record gets through.
const SURELY_LARGE: usize = 1024 * 1024;

// === impl Relay ===

impl<O: Outbox, S: Export> Relay<O, S> {
    /// Acts on the verdict for a request of `bytes`.
    pub(super) fn act(&mut self, batch: Batch, bytes: usize, verdict: Verdict) -> Next {
        match verdict {
            Verdict::Acknowledged { warning } => {
                // Some collectors say the same with every request.
                if let Some(warning) =
                    warning.filter(|warning| self.warning.as_ref() != Some(warning))
                {
                    tracing::warn!("the collector took log records and warns: {warning}");
                    self.warning = Some(warning);
                }
                self.acknowledged(batch)
            }
            Verdict::PartlyRejected { rejected, message } => {
                self.partly_rejected(batch, rejected, &message)
            }
            Verdict::TooLarge(refusal) => self.too_large(batch, bytes, &refusal),
            Verdict::Suspect(refusal) => self.suspect(batch, &refusal),
            Verdict::Hold(refusal) => {
                if let (FailureReason::Timeout, Batch::Oldest(records)) = (refusal.reason, batch) {
                    self.size.timed_out(records);
                }
                if let Some(search) = &mut self.search {
                    search.interrupted();
                }
                self.hold(&refusal)
            }
        }
    }

    /// The oldest records are done with.
    pub(super) fn leave(&mut self, records: usize) {
        for record in self.window.leave(records) {
            self.unsettled.add(&record);
        }
        if records > 0 {
            self.in_search(|search| search.gone(records));
        }
    }

    fn acknowledged(&mut self, batch: Batch) -> Next {
        self.backoff.reset();
        self.rejections = 0;
        self.trouble.healed();
        self.loops.success(Loop::Otlp);
        self.size.acknowledged();
        let now = Timestamp::now();
        for (arrived, records) in self.window.arrivals(batch) {
            self.metrics.acknowledged(
                records,
                Duration::try_from(now.duration_since(arrived)).unwrap_or_default(),
            );
        }
        if let Some(search) = &mut self.search {
            search.passed(matches!(batch, Batch::Witness(_)));
        }
        self.done(batch);
        Next::Now
    }

    fn partly_rejected(&mut self, batch: Batch, rejected: u64, message: &str) -> Next {
        let records = self.window.batch(batch).count();
        // More than were sent is nonsense, and must not show in the counters.
        let rejected = rejected.min(records as u64);
        self.metrics.records_rejected.inc_by(rejected);
        tracing::warn!(
            "the collector refused {rejected} of {records} log records for good, without saying which; all of them are kept as dead \
             letters. It says: {message}"
        );
        let dead: Vec<DeadLetter> = self
            .window
            .batch(batch)
            .map(|item| self.dead_letter(&item.record, DeadReason::PartlyRejected, message))
            .collect();
        dead.into_iter().for_each(|dead| self.unsettled.bury(dead));
        self.done(batch);
        self.size.partly_rejected(records);
        self.rejections += 1;
        // One may be an accident; a sink that refuses on and on must not turn the whole outbox into dead letters at full speed.
        if self.rejections == 1 {
            return Next::Now;
        }
        self.hold(&Refusal::new(
            FailureReason::PartlyRejected,
            format!("records are refused for good again and again: {message}"),
        ))
    }

    fn too_large(&mut self, batch: Batch, bytes: usize, refusal: &Refusal) -> Next {
        match batch {
            Batch::Oldest(records) if records > 1 => {
                self.size.too_large(bytes);
                // Without a word of size it may be a quota, which halves do not help and haste makes worse.
                if refusal.names_size() {
                    Next::Now
                } else {
                    self.hold(refusal)
                }
            }
            Batch::Oldest(_) if bytes >= SURELY_LARGE && refusal.names_size() => {
                self.condemn(refusal);
                self.size.too_large_was_one();
                self.leave(1);
                Next::Now
            }
            _ if refusal.names_size() || bytes >= SURELY_LARGE => self.suspect(batch, refusal),
            // A quota, which says nothing of the record.
            _ => self.act(batch, bytes, Verdict::Hold(refusal.clone())),
        }
    }

    fn suspect(&mut self, batch: Batch, refusal: &Refusal) -> Next {
        let window = self.window.len();
        let search = self.search.get_or_insert_with(|| Search::new(window));
        let turn = match batch {
            Batch::Oldest(records) => search.refused(records, refusal),
            Batch::Witness(_) => search.witness_refused(),
        };
        tracing::debug!(
            ?batch,
            ?turn,
            reason = refusal.reason.as_str(),
            "log records refused: {}",
            refusal.message
        );
        match turn {
            Turn::GoOn => Next::Now,
            Turn::Doubt | Turn::Stuck => self.hold(refusal),
            Turn::Condemn => {
                self.condemn(refusal);
                if refusal.names_size() {
                    self.size.too_large_was_one();
                }
                self.in_search(|search| {
                    search.condemned();
                    true
                });
                self.leave(1);
                Next::Now
            }
        }
    }

    /// The records of a request are done with; a witness leaves when its turn comes.
    fn done(&mut self, batch: Batch) {
        match batch {
            Batch::Oldest(records) => self.leave(records),
            Batch::Witness(index) => self.window.done(index),
        }
    }

    /// The oldest record becomes a dead letter.
    fn condemn(&mut self, refusal: &Refusal) {
        let reason = if refusal.names_size() {
            DeadReason::TooLarge
        } else {
            DeadReason::Refused
        };
        let oldest = self.window.batch(Batch::Oldest(1)).next();
        if let Some(dead) =
            oldest.map(|item| self.dead_letter(&item.record, reason, &refusal.message))
        {
            tracing::warn!(
                reason = reason.as_str(),
                "a log record is refused for good and kept as a dead letter: {}",
                refusal.message
            );
            self.unsettled.bury(dead);
        }
    }

    fn dead_letter(&self, record: &OutboxRecord, reason: DeadReason, message: &str) -> DeadLetter {
        let raw = self.mapper.scrubbed(record);
        DeadLetter {
            reason,
            message: message.to_owned(),
            kind: record.kind,
            arrived_at: record.arrived_at,
            raw,
        }
    }

    /// Nothing moves until the next attempt.
    fn hold(&mut self, refusal: &Refusal) -> Next {
        let wait = self.backoff.next(refusal);
        self.trouble
            .failed(refusal, wait, self.outbox.backlog().records);
        self.loops.failure(
            Loop::Otlp,
            format!("log records are not delivered: {}", refusal.message),
        );
        Next::After(wait)
    }

    /// Changes the episode, where there is one; `false` ends it.
    fn in_search(&mut self, change: impl FnOnce(&mut Search) -> bool) {
        if let Some(mut search) = self.search.take() {
            self.search = change(&mut search).then_some(search);
        }
    }
}
