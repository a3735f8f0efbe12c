//! Log lines and spans: how they are written, where they go, and the trace a record belongs to.

#[cfg(test)]
#[path = "../tests/support/captured.rs"]
pub(crate) mod captured;
mod folding;

use std::time::Duration;

use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{LogFormat, LogSettings};
use crate::ledger::TraceContext;
use folding::Folding;

/// Lines and spans of the exporter itself begin with it.
const TARGET: &str = "orgdata_exporter";

/// How long the last spans may take to leave.
const FLUSH: Duration = Duration::from_secs(2);

/// Keeps the spans' way out open; dropped last, it flushes them, and tells of the lines that were held back.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    /// Why there are no spans.
    problem: Option<String>,
    folding: Folding,
}

// === impl Telemetry ===

impl Telemetry {
    /// Sets up log lines on standard error, and spans if there is a provider for them. Call it once, inside the runtime's
    /// context.
    pub fn install(log: LogSettings, spans: Result<Option<SdkTracerProvider>, String>) -> Self {
        let (spans, problem) = match spans {
            Ok(spans) => (spans, None),
            Err(problem) => (None, Some(problem)),
        };
        // Only the exporter's own spans: those of the exporting itself would call for more of them without end.
        let layer = spans.as_ref().map(|spans| {
            tracing_opentelemetry::layer()
                .with_tracer(spans.tracer(TARGET))
                .with_filter(Targets::new().with_target(TARGET, Level::INFO))
        });
        let others = if log.level > Level::INFO {
            Level::INFO
        } else {
            Level::WARN.min(log.level)
        };
        let filter = Targets::new()
            .with_default(others)
            .with_target(TARGET, log.level)
            .with_target("orgdata_api", log.level)
            .with_target("orgdata_simulator", log.level)
            .with_target("opentelemetry", tracing::level_filters::LevelFilter::OFF);
        // A line that nobody reads is dropped: to report that on the same stream would be a panic.
        let lines: Box<dyn Layer<_> + Send + Sync> = match log.format {
            LogFormat::Json => tracing_subscriber::fmt::layer()
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .log_internal_errors(false)
                .with_writer(std::io::stderr)
                .boxed(),
            LogFormat::Logfmt => tracing_logfmt::builder()
                .with_target(false)
                .with_span_name(false)
                .with_span_path(false)
                .layer()
                .log_internal_errors(false)
                .with_writer(std::io::stderr)
                .boxed(),
        };
        // Only tests install a second subscriber; theirs may stay.
        let folding = Folding::default();
        let _ = tracing_subscriber::registry()
            .with(lines.with_filter(filter.and(folding.clone())))
            .with(layer)
            .try_init();
        tokio::spawn(folding.clone().report());
        Self {
            spans,
            problem,
            folding,
        }
    }

    /// Logs why there are no spans. A start that fails for the same reason has one line of its own.
    pub fn report_problem(&self) {
        if let Some(problem) = &self.problem {
            tracing::warn!("cannot export spans: {problem}");
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.folding.tell();
        if let Some(spans) = &self.spans {
            // A dead endpoint must not hold the exit up.
            let _ = spans.shutdown_with_timeout(FLUSH);
        }
    }
}

/// The trace and span of the work under way; `None` where tracing is off, or this trace is not sampled and so leads nowhere.
pub fn current_trace() -> Option<TraceContext> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    (span.is_valid() && span.is_sampled()).then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
    })
}
