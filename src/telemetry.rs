//! Log lines and spans: how they are written, where they go, and the trace a record belongs to.

use std::time::Duration;

use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{LogFormat, LogSettings};
use crate::ledger::TraceContext;
use crate::util::throttle::Throttle;

/// Lines and spans of the exporter itself begin with it.
const TARGET: &str = "orgdata_exporter";

/// How long the last spans may take to leave.
const FLUSH: Duration = Duration::from_secs(2);

/// Where the exporter's own spans go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The endpoint, whole: for HTTP with its path.
    endpoint: String,
    grpc: bool,
}

/// Keeps the spans' way out open; dropped last, it flushes them, and tells of the lines that were held back.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    throttle: Throttle,
}

// === impl TraceSettings ===

impl TraceSettings {
    /// Reads the standard variables; `None` where no endpoint is set, or `OTEL_SDK_DISABLED` or `OTEL_TRACES_EXPORTER=none` silences spans.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let get = |name: &str| {
            env(name)
                .map(|value| value.trim().to_owned())
                .filter(|value| !value.is_empty())
        };
        let disabled =
            get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if disabled || get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none") {
            return None;
        }
        let own = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let endpoint = own.clone().or_else(|| get("OTEL_EXPORTER_OTLP_ENDPOINT"))?;
        let protocol = get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            .or_else(|| get("OTEL_EXPORTER_OTLP_PROTOCOL"));
        let grpc = match protocol.as_deref() {
            Some(protocol) => protocol == "grpc",
            None => endpoint.trim_end_matches('/').ends_with(":4317"),
        };
        let endpoint = match own {
            None if !grpc => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            _ => endpoint,
        };
        Some(Self { endpoint, grpc })
    }

    /// Builds the exporter. Headers, time-out and compression are read from the standard variables by the exporter itself.
    fn provider(&self) -> Result<SdkTracerProvider, String> {
        let exporter = if self.grpc {
            SpanExporter::builder()
                .with_tonic()
                .with_endpoint(&self.endpoint)
                .build()
        } else {
            SpanExporter::builder()
                .with_http()
                .with_endpoint(&self.endpoint)
                .build()
        };
        let exporter = exporter
            .map_err(|error| format!("spans cannot be sent to {}: {error}", self.endpoint))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty()) {
            resource = resource.with_service_name("orgdata-exporter");
        }
        Ok(SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build())
    }
}

// === impl Telemetry ===

impl Telemetry {
    /// Sets up log lines on standard error, and spans where an endpoint is set. Call it once, inside the runtime's context.
    pub fn install(log: LogSettings, traces: Option<&TraceSettings>) -> Self {
        let spans = traces.map(TraceSettings::provider);
        let (spans, problem) = match spans {
            Some(Ok(spans)) => (Some(spans), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
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
        let throttle = Throttle::default();
        let _ = tracing_subscriber::registry()
            .with(lines.with_filter(filter.and(throttle.clone())))
            .with(layer)
            .try_init();
        tokio::spawn(throttle.clone().report());
        if let Some(problem) = problem {
            tracing::warn!("{problem}; the exporter goes on without spans");
        }
        Self { spans, throttle }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.throttle.flush();
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

#[cfg(test)]
#[path = "../tests/support/captured.rs"]
pub(crate) mod captured;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<(String, bool)> {
        let settings = TraceSettings::from_env(&|name| {
            variables
                .iter()
                .find(|(other, _)| *other == name)
                .map(|(_, value)| (*value).to_owned())
        });
        settings.map(|settings| (settings.endpoint, settings.grpc))
    }

    #[test]
    fn spans_go_where_the_standard_variables_say() {
        const GENERAL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const OWN: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        assert_eq!(read(&[]), None);
        assert_eq!(
            read(&[(GENERAL, "http://c:4318/")]),
            Some(("http://c:4318/v1/traces".into(), false))
        );
        assert_eq!(
            read(&[(GENERAL, "http://c:4317")]),
            Some(("http://c:4317".into(), true))
        );
        assert_eq!(
            read(&[(GENERAL, "http://c:4318"), (OWN, "http://t:1/x")]),
            Some(("http://t:1/x".into(), false))
        );
        assert_eq!(
            read(&[
                (GENERAL, "http://c:1"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
            ]),
            Some(("http://c:1".into(), true))
        );
    }

    #[test]
    fn spans_alone_can_be_silenced() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert_eq!(read(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), None);
        assert_eq!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), None);
    }
}
