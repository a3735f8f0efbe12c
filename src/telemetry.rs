//! Log lines, their formats and throttling, and the exporter's own spans.

mod spans;
mod throttle;

use std::fmt;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

pub use spans::span_provider;
use throttle::Throttle;

/// The targets of the exporter's own log lines.
const OWN_TARGETS: [&str; 4] = [
    "orgdata_exporter",
    "orgdata_api",
    "orgdata_simulator",
    "exporter_web",
];

/// The maximum time to export the last spans at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// `--log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// key=value
    Logfmt,
    /// One JSON object per line
    Json,
}

/// Keeps the export of spans open. Dropping it exports the last spans and reports suppressed warnings.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    throttle: Throttle,
}

/// Formats events as JSON with the level in lower case, as logfmt has it.
struct LowercaseLevel(Format<Json>);

// === impl Telemetry ===

impl Telemetry {
    /// Sets up log lines on standard error, and spans if there is a provider for them. Call it once, inside the runtime's
    /// context.
    pub fn install(
        level: Level,
        format: LogFormat,
        spans: Result<Option<SdkTracerProvider>, String>,
    ) -> Self {
        let spans = spans.unwrap_or_else(|problem| {
            tokio::spawn(async move {
                // The same variable may end the program in a moment, with an error that says the same.
                tokio::time::sleep(Duration::from_secs(1)).await;
                tracing::warn!("cannot export spans: {problem}; the exporter runs without them");
            });
            None
        });
        // Only the exporter's own spans: exporting has spans too, and they would be exported without end.
        let layer = spans.as_ref().map(|spans| {
            tracing_opentelemetry::layer()
                .with_tracer(spans.tracer("orgdata_exporter"))
                .with_filter(targets(Level::INFO))
        });
        let others = if level > Level::INFO {
            Level::INFO
        } else {
            Level::WARN.min(level)
        };
        let filter = targets(level).with_default(others);
        let throttle = Throttle::default();
        let lines = lines(format, std::io::stderr);
        // Only tests install a second subscriber, and theirs may stay.
        let _ = tracing_subscriber::registry()
            .with(lines.with_filter(filter.and(throttle.clone())))
            .with(layer)
            .try_init();
        tokio::spawn(throttle.clone().report());
        Self { spans, throttle }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.throttle.flush();
        if let Some(spans) = &self.spans {
            // A collector that is down must not delay the exit.
            let _ = spans.shutdown_with_timeout(FLUSH);
        }
    }
}

fn targets(level: Level) -> Targets {
    Targets::new().with_targets(OWN_TARGETS.map(|target| (target, level)))
}

/// Returns a layer that writes log lines. A line that cannot be written is dropped: reporting it on the same stream
/// would panic.
fn lines<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    match format {
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .map_event_format(LowercaseLevel)
            .log_internal_errors(false)
            .with_writer(writer)
            .boxed(),
        LogFormat::Logfmt => tracing_logfmt::builder()
            .with_target(false)
            .with_span_name(false)
            .with_span_path(false)
            .layer()
            .log_internal_errors(false)
            .with_writer(writer)
            .boxed(),
    }
}

// === impl LowercaseLevel ===

impl<S> FormatEvent<S, JsonFields> for LowercaseLevel
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0
            .format_event(context, Writer::new(&mut line), event)?;
        // The level stands before all fields of the event.
        let level = format!("\"level\":\"{}\"", event.metadata().level());
        writer.write_str(&line.replacen(&level, &level.to_lowercase(), 1))
    }
}

#[cfg(test)]
#[path = "../tests/support/captured.rs"]
pub(crate) mod captured;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn written(format: LogFormat) -> String {
        let file = Arc::new(tempfile::tempfile().expect("a file"));
        let mut copy = file.try_clone().expect("a file");
        let subscriber = tracing_subscriber::registry().with(lines(format, file));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(endpoint = "a b", "one \"level\":\"WARN\"\u{1b}");
        });
        std::io::Seek::rewind(&mut copy).expect("a file");
        std::io::read_to_string(copy).expect("text")
    }

    #[test]
    fn the_level_is_written_the_same_way_in_both_formats() {
        let json: serde_json::Value =
            serde_json::from_str(&written(LogFormat::Json)).expect("JSON");
        assert_eq!(json["level"], "warn");
        assert_eq!(json["endpoint"], "a b");
        assert_eq!(json["message"], "one \"level\":\"WARN\"\u{1b}");
        let logfmt = written(LogFormat::Logfmt);
        assert!(
            logfmt.contains("level=warn") && logfmt.contains("endpoint=\"a b\""),
            "{logfmt}"
        );
        assert!(!logfmt.contains('\u{1b}'), "{logfmt:?}");
    }
}
