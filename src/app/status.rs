//! The state of the state file in the metrics.

use std::sync::atomic::Ordering;

use prometheus_client::metrics::counter::Counter;
use strum::VariantArray as _;
use tokio::sync::watch;

use crate::ledger::{DeadReason, Status};
use crate::metrics::Metrics;

/// Shows each change of the state file in the metrics, until the file is closed.
pub(super) async fn follow(
    metrics: Metrics,
    api: Option<String>,
    mut status: watch::Receiver<Status>,
) {
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        show(&metrics, api.as_deref(), &now);
    }
}

/// Shows the state of the file in the metrics; `api` is the host of the API, if its audit logs are read.
pub(super) fn show(metrics: &Metrics, api: Option<&str>, now: &Status) {
    let (state, letters) = (&metrics.state, &metrics.dead_letters);
    let set = |counter: &Counter, total: u64| counter.inner().store(total, Ordering::Relaxed);
    set(&state.commits, now.commits);
    set(&state.commit_failures, now.commit_failures);
    set(&letters.evicted, now.evicted);
    set(&letters.replayed, now.replayed);
    for (reason, total) in DeadReason::VARIANTS.iter().copied().zip(now.dead_lettered) {
        set(&letters.total(reason), total);
    }
    letters.stored.set(now.dead_letters);
    state.size_bytes.set(now.size_bytes);
    let delivered_through = now.delivered_through.filter(|_| api.is_some());
    metrics
        .otlp
        .backlog(now.backlog, now.oldest, delivered_through);
    if let (Some((id, name)), Some(api)) = (&now.organization, api) {
        let name = name.as_deref().unwrap_or_default();
        metrics.audit.organization(id, name, api);
    }
}
