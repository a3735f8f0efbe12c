//! Shows in the metrics what the ledger has committed.

use opentelemetry::trace::TraceContextExt as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::ledger::{self, Changes, Series, TraceContext};
use crate::metrics::Metrics;
use crate::metrics::audit::{self, Delta, EventLabels, Trace};

/// Publishes what a commit changed.
pub fn publish(metrics: &Metrics, changes: Changes) {
    let labels = |series: Series| EventLabels {
        activity_type: series.activity_type,
        actor: series.actor,
    };
    let counts = |counts: Vec<(Series, u64)>| {
        let counts = counts.into_iter();
        counts
            .map(|(series, count)| (labels(series), count))
            .collect()
    };
    metrics.audit.publish(Delta {
        introduced: counts(changes.introduced),
        events: counts(changes.events),
        totals: changes
            .totals
            .into_iter()
            .map(|(which, increase)| (total(which), increase))
            .collect(),
        names: changes.names,
        retired: changes.retired,
        newest: changes.newest,
        delays: changes.delays,
        trace: changes.trace.map(|trace| Trace {
            trace_id: trace.trace_id,
            span_id: trace.span_id,
        }),
    });
}

/// Publishes what the ledger held when it was opened, and how many events it has counted.
pub fn restore(metrics: &Metrics, mut held: Changes, events: u64) {
    metrics.audit.restore_counted(events);
    for (which, value) in held.totals.drain(..) {
        metrics.audit.restore(total(which), value);
    }
    publish(metrics, held);
}

fn total(total: ledger::Total) -> audit::Total {
    match total {
        ledger::Total::Late => audit::Total::Late,
        ledger::Total::Duplicate => audit::Total::Duplicate,
        ledger::Total::Malformed => audit::Total::Malformed,
        ledger::Total::Folded => audit::Total::Folded,
        ledger::Total::Recoveries => audit::Total::Recoveries,
        ledger::Total::Gaps => audit::Total::Gaps,
        ledger::Total::Filtered => audit::Total::Filtered,
    }
}

/// Returns the trace and span of the current work, if it is sampled.
pub(super) fn current_trace() -> Option<TraceContext> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    (span.is_valid() && span.is_sampled()).then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
    })
}
