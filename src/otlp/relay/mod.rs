//! Carries records from the outbox to the collector, oldest first, until each is acknowledged or a dead letter.

mod act;
mod search;
mod settle;
mod size;
mod trouble;
mod wait;
mod window;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::search::{Search, Step};
use self::settle::Unsettled;
use self::size::RequestSize;
use self::trouble::Trouble;
use self::wait::Backoff;
use self::window::{Batch, Window};
use crate::health::Health;
use crate::metrics::{Loop, Loops, OtlpMetrics};
use crate::otlp::envelope::Envelope;
use crate::otlp::outbox::Outbox;
use crate::otlp::record::Mapper;
use crate::otlp::sender::Export;
use crate::otlp::settings::Settings;

pub use self::size::MAX_REQUEST_BYTES;

/// How many requests' worth of records are sent on while the ledger cannot write down their acknowledgement.
const MAX_REQUESTS_AHEAD: usize = 16;

/// Among so many records at least a witness is picked.
const WITNESSES: usize = 16;

/// The longest the relay sleeps without looking at the outbox.
const LONGEST_IDLE: Duration = Duration::from_secs(30);

/// How long the last acknowledgements may take to be written down when the grace period is over.
const LAST_SETTLEMENT: Duration = Duration::from_secs(1);

/// What to do after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next round, at once.
    Now,
    /// Nothing waits.
    Idle,
    /// The next round, not before that.
    After(Duration),
}

/// The loop that delivers.
#[derive(Debug)]
pub struct Relay<O, S> {
    outbox: O,
    sender: S,
    mapper: Mapper,
    envelope: Envelope,
    batch_size: usize,
    metrics: Arc<OtlpMetrics>,
    loops: Arc<Loops>,
    /// The oldest records.
    window: Window,
    /// What left the window and is not written down yet.
    unsettled: Unsettled,
    /// How large requests may be at present.
    size: RequestSize,
    /// The search for a bad record, while there is one.
    search: Option<Search>,
    backoff: Backoff,
    trouble: Trouble,
    /// Partial rejections since the last acknowledgement.
    rejections: u32,
    /// What the collector said last beside an acknowledgement.
    warning: Option<String>,
}

// === impl Relay ===

impl<O: Outbox, S: Export> Relay<O, S> {
    /// A relay. `instance_id` becomes `service.instance.id`: the ledger's, which stays the same over restarts.
    pub fn new(
        outbox: O,
        instance_id: &str,
        sender: S,
        settings: &Settings,
        metrics: Arc<OtlpMetrics>,
        loops: Arc<Loops>,
    ) -> Self {
        Self {
            outbox,
            sender,
            mapper: Mapper::new(settings.scrubber.clone()),
            envelope: Envelope::new(&settings.resource(instance_id)),
            batch_size: settings.batch_size,
            metrics,
            loops,
            window: Window::default(),
            unsettled: Unsettled::default(),
            size: RequestSize::new(settings.batch_size),
            search: None,
            backoff: Backoff::default(),
            trouble: Trouble::default(),
            rejections: 0,
            warning: None,
        }
    }

    /// Delivers until `shutdown`, and then what it can within `grace`; what is left stays in the outbox.
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
        self.settle_at_last(LAST_SETTLEMENT).await;
        self.publish_backlog();
        let waiting = self.outbox.backlog().records;
        if waiting > 0 {
            tracing::info!(
                waiting_records = waiting,
                "log records are left in the outbox; they are sent after the next start"
            );
        }
    }

    async fn drive(&mut self, health: &Health, shutdown: &CancellationToken) {
        loop {
            // Looked at before the round: a failed attempt that began after the signal was the last one.
            let last = shutdown.is_cancelled();
            let next = health.round(Loop::Otlp, self.round()).await;
            self.publish_backlog();
            match next {
                Next::Now => {}
                _ if last => return,
                Next::Idle => {
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = self.outbox.changed() => {}
                        () = health.waiting(Loop::Otlp, tokio::time::sleep(LONGEST_IDLE)) => {}
                    }
                }
                Next::After(wait) => {
                    tokio::select! {
                        () = shutdown.cancelled() => {}
                        () = health.waiting(Loop::Otlp, tokio::time::sleep(wait)) => {}
                    }
                }
            }
        }
    }

    /// One round: at most one request.
    pub async fn round(&mut self) -> Next {
        let ledger_wait = self.settle().await;
        if let Some(wait) =
            ledger_wait.filter(|_| self.unsettled.records() >= MAX_REQUESTS_AHEAD * self.batch_size)
        {
            return Next::After(wait);
        }
        if let Err(wait) = self.fill().await {
            return Next::After(wait);
        }
        self.leave(self.window.done_first());
        if self.window.is_empty() {
            return match self.settle().await {
                Some(wait) => Next::After(wait),
                None => self.idle(),
            };
        }
        let batch = self.next_batch();
        let request = self.window.request(batch, &self.envelope);
        let bytes = request.len();
        self.metrics.requests.inc();
        let verdict = self.sender.export(request).await;
        if let Some(reason) = verdict.reason() {
            self.metrics.failed(reason.as_str());
        }
        let next = self.act(batch, bytes, verdict);
        self.settle().await;
        next
    }

    /// Reads the oldest records, where there are none in memory, or where younger ones may show that the sink works.
    async fn fill(&mut self) -> Result<(), Duration> {
        // Requests of a single record leave no other that could be a witness.
        let wanted = self.batch_size.max(WITNESSES);
        let stuck =
            self.search.as_ref().is_some_and(Search::is_stuck) && self.window.len() < wanted;
        if !self.window.is_empty() && !stuck {
            return Ok(());
        }
        // What is sent and not written down is still at the head of the outbox.
        let records = self.unsettled.records() + wanted;
        let read = match self
            .outbox
            .batch(records, self.unsettled.bytes() + MAX_REQUEST_BYTES)
            .await
        {
            Ok(read) => read,
            Err(error) => return Err(self.ledger_failed("the outbox cannot be read", &error)),
        };
        let through = self.unsettled.through();
        let fresh = read
            .into_iter()
            .filter(|record| through.is_none_or(|through| record.position > through));
        self.window.replace(fresh, &self.mapper);
        match &mut self.search {
            Some(search) if !self.window.is_empty() => search.covers(self.window.len()),
            _ => self.search = None,
        }
        Ok(())
    }

    fn next_batch(&self) -> Batch {
        let step = self
            .search
            .as_ref()
            .map_or(Step::Oldest(usize::MAX), Search::step);
        let witness = if step == Step::Witness {
            self.window.witness()
        } else {
            None
        };
        match (witness, step) {
            (Some(witness), _) => witness,
            (None, Step::Oldest(records)) => {
                self.window.oldest(records, &self.size, &self.envelope)
            }
            (None, Step::Witness) => Batch::Oldest(1),
        }
    }

    fn idle(&self) -> Next {
        if !self.trouble.is_open() {
            self.loops.success(Loop::Otlp);
        }
        Next::Idle
    }

    fn publish_backlog(&self) {
        let backlog = self.outbox.backlog();
        self.metrics.backlog(backlog.records, backlog.oldest);
    }
}
