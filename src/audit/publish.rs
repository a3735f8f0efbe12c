//! Shows in the metrics what the ledger has committed.

use opentelemetry::trace::TraceContextExt as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::metrics::Metrics;
use crate::util::changes::{Changes, TraceContext};

/// Publishes what the ledger held when it was opened, and how many events it has counted.
pub fn restore(metrics: &Metrics, mut held: Changes, events: u64) {
    metrics.audit.restore_counted(events);
    for (which, value) in held.totals.drain(..) {
        metrics.audit.restore(which, value);
    }
    metrics.audit.publish(held);
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
