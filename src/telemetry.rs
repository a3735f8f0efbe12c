//! Log lines, and the exporter's own spans.

mod lines;
mod queue;
mod spans;

use std::io;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use lines::LogFormat;
use queue::Queue;
pub(crate) use queue::print;
pub(crate) use spans::span_connection;
pub use spans::span_provider;

/// The targets of the exporter's own log lines.
const OWN_TARGETS: [&str; 4] = [
    "orgdata_exporter",
    "orgdata_api",
    "orgdata_simulator",
    "exporter_web",
];

/// The maximum time to export the last spans at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// Keeps the export of spans and the log open. Dropping it exports the last spans and writes the last lines.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    queue: Queue,
}

// === impl Telemetry ===

impl Telemetry {
    /// Sets up log lines on standard error, and spans if there is a provider for them. Call it once, inside the runtime's
    /// context.
    ///
    /// # Errors
    /// If the thread that writes the lines cannot be started.
    pub fn install(
        level: Level,
        format: LogFormat,
        spans: Result<Option<SdkTracerProvider>, String>,
    ) -> io::Result<Self> {
        let spans = spans.unwrap_or_else(|problem| {
            tokio::spawn(async move {
                // The same variable may also be a usage error, which is printed a moment later.
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
        let others = match level {
            Level::DEBUG => Level::INFO,
            level => level.min(Level::WARN),
        };
        let filter = targets(level).with_default(others);
        let queue = Queue::to_stderr(|lines| {
            tracing::warn!(lines, "log lines were dropped: nothing read standard error");
        })?;
        let writer = queue.clone();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(format)
            .with_writer(move || writer.clone())
            // These lines would wait for a reader of standard error.
            .log_internal_errors(false);
        // Only tests install a second subscriber, and theirs may stay.
        let _ = tracing_subscriber::registry()
            .with(lines.with_filter(filter))
            .with(layer)
            .try_init();
        // The default one waits for a reader of standard error.
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, "internal error; please report it");
        }));
        Ok(Self { spans, queue })
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(spans) = &self.spans {
            // A collector that is down must not delay the exit.
            let _ = spans.shutdown_with_timeout(FLUSH);
        }
        self.queue.flush();
    }
}

fn targets(level: Level) -> Targets {
    Targets::new().with_targets(OWN_TARGETS.map(|target| (target, level)))
}

#[cfg(test)]
#[path = "../tests/support/captured.rs"]
pub(crate) mod captured;
