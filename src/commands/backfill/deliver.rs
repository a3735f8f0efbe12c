//! `--to otlp`: delivers the history to the collector, oldest first, by the exporter's own relay.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::{Failure, Plan, stopped};
use crate::commands::print;
use crate::health::Health;
use crate::ledger::{self, Backlog, LedgerError, LedgerHandle, OutboxRecord, Settled, StatePath};
use crate::metrics::Loop;
use crate::otlp::{Outbox, Relay, Sender};

/// How often the progress is shown and the collector is checked.
const INTERVAL: Duration = Duration::from_millis(100);

/// An outbox that is read at a limited rate (`--rate`), and not at all after `stop`.
struct Paced {
    ledger: LedgerHandle,
    stop: CancellationToken,
    rate: Option<f64>,
    started: Instant,
    total: u64,
}

pub(super) async fn run(plan: &Plan, shutdown: &CancellationToken) -> Result<(), Failure> {
    let Some(otlp) = &plan.settings.otlp else {
        return Ok(());
    };
    let sender = Sender::new(otlp).map_err(Failure::in_settings)?;
    let path = plan.args.progress.display();
    let (tail, ledger, metrics) = plan.open(ledger::Settings {
        path: StatePath::File(plan.args.progress.clone()),
        ..plan.settings.ledger.clone()
    })?;
    let replayed = ledger.replay_dead_letters().await;
    replayed.map_err(|error| Failure::at_run_time(error.to_string()))?;
    if tail.is_complete() && ledger.status().backlog == 0 {
        return print(&format!(
            "{path} says that this backfill is complete; for another one set --progress to another file\n{}",
            dead_letters(&ledger, plan)
        ));
    }
    let instance = ledger.instance_id();
    tracing::info!(
        progress = %path,
        instance,
        max_requests_per_second = plan.settings.api.max_requests_per_second,
        "reading history"
    );
    let mut progress = Progress::new();
    let read = plan.read(tail, &ledger, &mut progress, shutdown).await;
    let result = match read {
        Ok(()) => {
            metrics.loops.enable(Loop::Otlp);
            let stop = CancellationToken::new();
            let outbox = Paced {
                ledger: ledger.clone(),
                stop: stop.clone(),
                rate: plan.args.rate,
                started: Instant::now(),
                total: ledger.status().backlog,
            };
            let (sent, loops) = (metrics.otlp.clone(), Arc::clone(&metrics.loops));
            let relay = Relay::new(outbox, &instance, sender, otlp, sent, loops);
            let grace = plan.settings.shutdown_grace;
            let relay = tokio::spawn(relay.run(Health::default(), stop.clone(), grace));
            let result = watch(plan, &ledger, &mut progress, shutdown).await;
            stop.cancel();
            // The relay keeps to its own time limit.
            let _ = relay.await;
            // The last request may have been accepted after all.
            match ledger.status().backlog {
                0 => Ok(()),
                _ => result,
            }
        }
        failed => failed,
    };
    drop(progress);
    let delivered = metrics.otlp.records_sent.get();
    match result {
        Ok(()) => print(&format!(
            "Delivered {delivered} log records, service.instance.id {instance}; the history is complete\n{}",
            dead_letters(&ledger, plan)
        )),
        Err(failure) => Err(failure.and(&format!(
            "{delivered} log records were delivered, {} wait in {path}; run the same command again to continue",
            ledger.status().backlog
        ))),
    }
}

/// Waits until everything is delivered; fails if the collector accepts nothing for too long.
async fn watch(
    plan: &Plan,
    ledger: &LedgerHandle,
    progress: &mut Progress,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
    let total = ledger.status().backlog;
    let (mut left, mut since) = (total, Instant::now());
    while left > 0 {
        progress.show(
            "delivering log records",
            total.saturating_sub(left),
            Some(total),
        );
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Err(stopped()),
            () = ledger.damaged() => return Err(Failure::at_run_time("the progress file is damaged; the next run sets it aside and starts again")),
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let now_left = ledger.status().backlog;
        if now_left != left {
            (left, since) = (now_left, Instant::now());
        } else if since.elapsed() >= plan.args.patience {
            return Err(Failure::at_run_time(format!(
                "the collector has accepted nothing for {} (--patience)",
                humantime::format_duration(plan.args.patience)
            )));
        }
    }
    Ok(())
}

fn dead_letters(ledger: &LedgerHandle, plan: &Plan) -> String {
    match ledger.status().dead_letters {
        0 => String::new(),
        count => format!(
            "{count} could not be delivered or read: orgdata-exporter dead-letters list --state.path {}\n",
            plan.args.progress.display()
        ),
    }
}

// === impl Paced ===

impl Outbox for Paced {
    type Error = LedgerError;

    async fn batch(&self, records: usize, bytes: usize) -> Result<Vec<OutboxRecord>, LedgerError> {
        let mut records = records;
        if let Some(rate) = self.rate {
            let sent = self.total.saturating_sub(self.ledger.status().backlog);
            let due = Duration::try_from_secs_f64(sent as f64 / rate).unwrap_or(Duration::MAX);
            let wait = tokio::time::sleep(due.saturating_sub(self.started.elapsed()));
            self.stop.run_until_cancelled(wait).await;
            records = records.min((rate.ceil() as usize).max(1));
        }
        if self.stop.is_cancelled() {
            return Ok(Vec::new());
        }
        self.ledger.outbox_batch(records, bytes).await
    }

    async fn newest(&self) -> Result<Option<OutboxRecord>, LedgerError> {
        self.ledger.outbox_newest().await
    }

    async fn settle(&self, settled: Settled) -> Result<(), LedgerError> {
        self.ledger.outbox_settle(settled).await
    }

    fn backlog(&self) -> Backlog {
        match self.stop.is_cancelled() {
            true => Backlog::default(),
            false => self.ledger.backlog(),
        }
    }

    async fn changed(&self) {
        self.ledger.outbox_changed().await;
    }
}
