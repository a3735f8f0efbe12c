//! Log lines: the same fields in both formats, and at most ten warnings a minute from one place in the program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::queue::Queue;
use crate::util::{counted, lock};

/// The number of warnings that one place may write in a minute.
const BURST: u64 = 10;

const MINUTE: Duration = Duration::from_secs(60);

/// `--log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// key=value
    Logfmt,
    /// One JSON object per line
    Json,
}

/// Writes a line for each event; a clone is the same log.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    format: LogFormat,
    queue: Queue,
    warnings: Arc<Mutex<Warnings>>,
}

/// The warnings since the last report.
#[derive(Debug)]
struct Warnings {
    since: Instant,
    /// The number of each place, and its last message.
    places: HashMap<Identifier, (u64, Value)>,
}

/// Returns a line.
pub(super) fn line(format: LogFormat, level: Level, fields: Map<String, Value>) -> String {
    let (time, level) = (format!("{:.3}", Timestamp::now()), level.as_str());
    let first = [("ts", time), ("level", level.to_lowercase())];
    let first = first.map(|(key, value)| (key.to_owned(), Value::String(value)));
    let fields = first.into_iter().chain(fields);
    if format == LogFormat::Json {
        return format!("{}\n", Value::Object(fields.collect()));
    }
    let mut line = String::new();
    for (key, value) in fields {
        let is_plain = |c: char| c.is_ascii_graphic() && !"\"=\\".contains(c);
        let end = if line.is_empty() { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = match value.as_str() {
            Some(text) if !text.is_empty() && text.chars().all(is_plain) => {
                write!(line, "{end}{key}={text}")
            }
            _ => write!(line, "{end}{key}={value}"),
        };
    }
    line.push('\n');
    line
}

/// Returns a warning without other fields.
pub(super) fn warning(format: LogFormat, message: String) -> String {
    let message = ("message".to_owned(), message.into());
    line(format, Level::WARN, Map::from_iter([message]))
}

// === impl Lines ===

impl Lines {
    pub(super) fn new(format: LogFormat, queue: Queue) -> Self {
        let warnings = Warnings {
            since: Instant::now(),
            places: HashMap::new(),
        };
        Self {
            format,
            queue,
            warnings: Arc::new(Mutex::new(warnings)),
        }
    }

    /// Reports how many warnings were suppressed since the last report; each place may write again.
    pub(super) fn report(&self) {
        let mut warnings = lock(&self.warnings);
        warnings.since = Instant::now();
        for (count, message) in std::mem::take(&mut warnings.places).into_values() {
            if count > BURST {
                let count = counted(count - BURST, "similar warning", "similar warnings");
                let message = message.as_str().unwrap_or_default();
                let message = format!("suppressed {count}: {message}");
                self.queue.push(warning(self.format, message));
            }
        }
    }

    /// Writes the last lines.
    pub(super) fn flush(&self) {
        self.report();
        self.queue.flush();
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Ok(Value::Object(fields)) = serde_json::to_value(event.field_map()) else {
            return;
        };
        if lock(&self.warnings).since.elapsed() > MINUTE {
            self.report();
        }
        let level = *event.metadata().level();
        if level == Level::WARN {
            let mut warnings = lock(&self.warnings);
            let (count, message) = warnings
                .places
                .entry(event.metadata().callsite())
                .or_default();
            *count += 1;
            if *count > BURST {
                *message = fields.get("message").cloned().unwrap_or_default();
                return;
            }
        }
        self.queue.push(line(self.format, level, fields));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Returns the lines of what is logged.
    fn written(format: LogFormat, log: impl FnOnce()) -> (Lines, String) {
        let lines = Lines::new(format, Queue::default());
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, log);
        let text = lines.queue.take();
        (lines, text)
    }

    #[test]
    fn both_formats_have_the_same_fields_and_no_control_characters() {
        let log = || {
            tracing::warn!(
                endpoint = "a b",
                status = 503,
                "one \"level\":\"WARN\"\u{1b}"
            )
        };
        let (_, json) = written(LogFormat::Json, log);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let time = json["ts"].as_str().expect("a time");
        assert_eq!(time.len(), "2026-01-31T00:00:00.000Z".len());
        assert_eq!(json["level"], "warn");
        assert_eq!(json["message"], "one \"level\":\"WARN\"\u{1b}");
        assert_eq!(json["status"], 503);
        let (_, logfmt) = written(LogFormat::Logfmt, log);
        let (_, rest) = logfmt.split_once(' ').expect("fields");
        let expected =
            r#"level=warn message="one \"level\":\"WARN\"\u001b" endpoint="a b" status=503"#;
        assert_eq!(rest.trim_end(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_warnings_become_a_count_and_errors_do_not() {
        let warn = |n| tracing::warn!(n, "record {n} was rejected");
        let (lines, text) = written(LogFormat::Logfmt, || {
            (1..=100).for_each(warn);
            tracing::warn!("another place");
            (1..=100).for_each(|n| tracing::error!(n, "a loss"));
        });
        let count = |text: &str, words: &str| text.lines().filter(|l| l.contains(words)).count();
        assert_eq!((count(&text, "rejected"), count(&text, "another")), (10, 1));
        assert_eq!(count(&text, "a loss"), 100);
        tokio::time::advance(MINUTE * 2).await;
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        tracing::subscriber::with_default(subscriber, || warn(101));
        lines.report();
        let text = lines.queue.take();
        let report = "suppressed 90 similar warnings: record 100 was rejected";
        assert_eq!((count(&text, report), count(&text, "suppressed")), (1, 1));
        assert_eq!(count(&text, "record 101"), 1, "a new minute");
    }
}
