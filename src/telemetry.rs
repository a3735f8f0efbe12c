//! Log lines and spans: how they are written, and the trace a record belongs to.

use opentelemetry::trace::TraceContextExt;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::ledger::TraceContext;

/// The trace and span of the work under way; `None` where tracing is off.
pub fn current_trace() -> Option<TraceContext> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| TraceContext { trace_id: span.trace_id().to_bytes(), span_id: span.span_id().to_bytes() })
}
