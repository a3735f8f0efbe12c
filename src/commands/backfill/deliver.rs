//! `--to otlp`: stores the history in the file of `--progress`, and delivers it, oldest first, by the exporter's own relay.

use std::io::Write as _;

use otlp_logs::{Sender, Target};
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::{Failure, Plan, stopped};
use crate::commands::{print, printed};
use crate::health::Health;
use crate::ledger::{self, LedgerError, LedgerHandle};
use crate::relay::{Delivery, Relay};
use crate::util::counted;

pub(super) async fn run(
    plan: &Plan,
    otlp: &Delivery,
    shutdown: &CancellationToken,
) -> Result<(), Failure> {
    let sender = Sender::new(&otlp.target).map_err(Failure::in_settings)?;
    let path = plan.args.progress.display();
    let (mut tail, ledger, metrics) = plan.open(ledger::LedgerOptions {
        path: Some(plan.args.progress.clone()),
        ..plan.settings.ledger.clone()
    })?;
    let replayed = ledger.replay_dead_letters().await;
    replayed.map_err(|error| Failure::at_run_time(error.to_string()))?;
    let (sent, loops) = (metrics.otlp.clone(), metrics.loops.clone());
    let relay = Relay::new(ledger.clone(), sender, otlp, sent, loops);
    let work = async {
        plan.read(&mut tail, &ledger, shutdown).await?;
        let stop = shutdown.child_token();
        let end = async {
            stop.run_until_cancelled(drained(&ledger)).await;
            stop.cancel();
        };
        // The answer to the last request is waited for.
        let grace = plan.settings.shutdown_grace;
        tokio::join!(relay.run(Health::default(), stop.clone(), grace), end);
        match ledger.backlog() {
            0 => Ok(()),
            _ => Err(stopped()),
        }
    };
    let result = tokio::select! {
        biased;
        // Nothing may be written or sent from now on.
        error = ledger.lost() => Err(match error {
            LedgerError::Damaged(how) => Failure::at_run_time(format!(
                "{path} is damaged: {how}; the next run sets it aside and starts again"
            )),
            _ => Failure::new(3, format!("another process uses {path}; stop one of the two")),
        }),
        result = work => result,
    };
    let (status, instance) = (ledger.status(), ledger.instance_id());
    let delivered = counted(metrics.otlp.records_sent.get(), "log record", "log records");
    result.map_err(|failure| {
        failure.and(&format!(
            "delivered {delivered}, {} wait in {path}; run the same command again to continue",
            status.backlog
        ))
    })?;
    let dead_letters = match status.dead_letters {
        0 => String::new(),
        count => format!(
            "{count} could not be delivered or read: orgdata-exporter dead-letters list --state.path {path}\n"
        ),
    };
    let summary = format!(
        "Delivered {delivered}, service.instance.id {instance}; the history is complete. For another one set --progress to another file\n{dead_letters}"
    );
    match otlp.target {
        Target::Collector(_) => print(&summary),
        // Standard output has the records.
        Target::Stdout(_) => printed(std::io::stderr().write_all(summary.as_bytes())),
    }
}

/// Shows the progress until nothing waits any more.
async fn drained(ledger: &LedgerHandle) {
    let (mut status, total) = (ledger.watch(), ledger.backlog());
    let mut progress = Progress::new("delivering log records", Some(total));
    let done = status.wait_for(|status| {
        progress.show(total.saturating_sub(status.backlog));
        status.backlog == 0
    });
    // The ledger outlives its watchers.
    let _ = done.await;
}
