//! Log lines, and the exporter's own spans.

mod lines;
mod spans;

use std::io::{self, Write as _};
use std::sync::mpsc;
use std::time::Duration;
use std::{mem, thread};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use lines::LogFormat;
pub(crate) use spans::span_connection;
pub use spans::span_provider;

/// The targets of the exporter's own log lines.
const OWN_TARGETS: [&str; 4] = [
    "orgdata_exporter",
    "orgdata_api",
    "orgdata_simulator",
    "exporter_web",
];

/// The maximum number of log lines that wait for a reader of standard error. Most have 200 bytes.
const MAX_LINES: usize = 4096;

/// The maximum time to print a line.
const MAX_PRINT: Duration = Duration::from_secs(5);

/// The maximum time to export the last spans at the end.
const FLUSH: Duration = Duration::from_secs(2);

/// Keeps the export of spans and the log open. Dropping it exports the last spans and writes the last lines.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<SdkTracerProvider>,
    /// The number of lines that did not fit.
    dropped: ErrorCounter,
    writer: Option<WorkerGuard>,
}

/// Prints a line to standard error, unless nothing reads it.
pub(crate) fn print(line: String) {
    let (sender, written) = mpsc::channel();
    thread::spawn(move || sender.send(io::stderr().write_all(line.as_bytes())));
    let _ = written.recv_timeout(MAX_PRINT);
}

// === impl Telemetry ===

impl Telemetry {
    /// Sets up log lines on standard error, and spans if there is a provider for them. Call it once.
    pub fn install(
        level: Level,
        format: LogFormat,
        spans: Result<Option<SdkTracerProvider>, String>,
    ) -> Self {
        let (spans, problem) = match spans {
            Ok(spans) => (spans, None),
            Err(problem) => (None, Some(problem)),
        };
        // Only the exporter's own spans: exporting has spans too, and they would be exported without end.
        let layer = spans.as_ref().map(|spans| {
            tracing_opentelemetry::layer()
                .with_tracer(spans.tracer("orgdata_exporter"))
                .with_filter(targets(Level::INFO))
        });
        // A thread writes the lines, so that a reader that sleeps stops nothing.
        let queue = NonBlockingBuilder::default().buffered_lines_limit(MAX_LINES);
        let (queue, writer) = queue.finish(io::stderr());
        let dropped = queue.error_counter();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(format)
            .with_writer(queue)
            // They would wait for a reader of standard error.
            .log_internal_errors(false)
            .with_filter(targets(level).with_default(level.min(Level::WARN)));
        // Only tests install a second subscriber, and theirs may stay.
        let _ = tracing_subscriber::registry()
            .with(lines)
            .with(layer)
            .try_init();
        // The default one waits for a reader of standard error.
        std::panic::set_hook(Box::new(|panic| {
            tracing::error!(%panic, "internal error; please report it");
        }));
        if let Some(problem) = problem {
            tracing::warn!("cannot export spans: {problem}; the exporter runs without them");
        }
        Self {
            spans,
            dropped,
            writer: Some(writer),
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(spans) = &self.spans {
            // A collector that is down must not delay the exit.
            let _ = spans.shutdown_with_timeout(FLUSH);
        }
        if self.dropped.dropped_lines() > 0 {
            // If the queue is full, the guard says so on standard output, which may have log records.
            mem::forget(self.writer.take());
        }
    }
}

fn targets(level: Level) -> Targets {
    Targets::new().with_targets(OWN_TARGETS.map(|target| (target, level)))
}

#[cfg(test)]
#[path = "../tests/support/captured.rs"]
pub(crate) mod captured;
