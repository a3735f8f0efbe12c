//! `--to otlp`: delivers the history to the collector, oldest first, by the exporter's own relay.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use otlp_logs::Sender;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::{Failure, Plan, stopped};
use crate::commands::print;
use crate::ledger::{self, LedgerHandle};
use crate::metrics::audit::Total;
use crate::relay::{Delivery, Next, Relay};
use crate::util::{counted, shown_duration};

/// How often the progress is shown during a wait.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(
    plan: &Plan,
    otlp: &Delivery,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
    let sender = Sender::new(&otlp.target).map_err(Failure::in_settings)?;
    let path = plan.args.progress.display();
    let (tail, ledger, metrics) = plan.open(ledger::Settings {
        path: Some(plan.args.progress.clone()),
        ..plan.settings.ledger.clone()
    })?;
    let replayed = ledger.replay_dead_letters().await;
    replayed.map_err(|error| Failure::at_run_time(error.to_string()))?;
    let done = |said: String| {
        // A gap record says so to the collector alone.
        if metrics.audit.total(Total::Gaps) > 0 {
            return Err(Failure::at_run_time(format!(
                "{path} was damaged, and log records are lost; run the command again with --progress set to another file, which delivers all of them, with the same log.record.uid"
            )));
        }
        let dead_letters = match ledger.status().dead_letters {
            0 => String::new(),
            count => format!(
                "{count} could not be delivered or read: orgdata-exporter dead-letters list --state.path {path}\n"
            ),
        };
        print(&format!("{said}\n{dead_letters}"))
    };
    if tail.is_complete() && ledger.status().backlog == 0 {
        return done(format!(
            "{path} says that this backfill is complete; for another one set --progress to another file"
        ));
    }
    let instance = ledger.instance_id();
    tracing::info!(
        progress = %path,
        instance,
        max_requests_per_second = plan.settings.api.max_requests_per_second,
        "reading history"
    );
    let mut otlp = otlp.clone();
    if let Some(rate) = plan.args.rate {
        otlp.batch_size = otlp.batch_size.min(rate.ceil() as usize);
    }
    let (sent, loops) = (metrics.otlp.clone(), Arc::clone(&metrics.loops));
    let relay = Relay::new(ledger.clone(), sender, &otlp, sent, loops);
    let work = async {
        plan.read(tail, &ledger, shutdown).await?;
        deliver(plan, relay, &ledger, shutdown).await
    };
    let result = tokio::select! {
        biased;
        // Nothing may be written or sent from now on.
        () = ledger.fenced() => {
            Err(Failure::new(3, format!("another process uses {path}; stop one of the two")))
        }
        result = work => result,
    };
    let delivered = counted(metrics.otlp.records_sent.get(), "log record", "log records");
    match result {
        Ok(()) => done(format!(
            "Delivered {delivered}, service.instance.id {instance}; the history is complete"
        )),
        Err(failure) => Err(failure.and(&format!(
            "delivered {delivered}, {} wait in {path}; run the same command again to continue",
            ledger.status().backlog
        ))),
    }
}

/// Delivers what waits, at most `--rate` records per second. Fails if the collector accepts nothing for too long.
async fn deliver(
    plan: &Plan,
    mut relay: Relay<Sender>,
    ledger: &LedgerHandle,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
    let patience = plan.args.patience;
    let failed = async |since: Instant| {
        Failure::at_run_time(tokio::select! {
            () = shutdown.cancelled() => return stopped(),
            _ = ledger.damaged() => "the progress file is damaged; the next run sets it aside and starts again".to_owned(),
            () = tokio::time::sleep_until(since + patience) => format!(
                "the collector has accepted nothing for {} (--patience)",
                shown_duration(patience)
            ),
        })
    };
    let (total, begun) = (ledger.status().backlog, Instant::now());
    let mut progress = Progress::new("delivering log records", Some(total));
    let (mut left, mut since, mut due) = (total, begun, begun);
    while left > 0 {
        progress.show(total.saturating_sub(left));
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            tokio::select! {
                failure = failed(since) => return Err(failure),
                () = tokio::time::sleep(wait.min(INTERVAL)) => continue,
            }
        }
        let mut round = pin!(relay.round());
        let next = tokio::select! {
            next = &mut round => next,
            failure = failed(since) => {
                // The last request may be accepted after all.
                let _ = tokio::time::timeout(plan.settings.shutdown_grace, round).await;
                return match ledger.status().backlog {
                    0 => Ok(()),
                    _ => Err(failure),
                };
            }
        };
        let now_left = ledger.status().backlog;
        if now_left != left {
            (left, since) = (now_left, Instant::now());
        }
        due = Instant::now();
        match next {
            Next::Now => {}
            Next::Idle => due += INTERVAL,
            Next::After(wait) => due += wait,
        }
        if let Some(rate) = plan.args.rate {
            let sent = total.saturating_sub(left) as f64;
            let paced = begun + Duration::from_secs_f64(sent / rate);
            // Until then it is not the collector that keeps it waiting.
            (due, since) = (due.max(paced), since.max(paced));
        }
    }
    Ok(())
}
