//! Log lines: the same fields in both formats, a line for each event.

use std::fmt;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::queue::Queue;

/// `--log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// key=value
    Logfmt,
    /// One JSON object per line
    Json,
}

/// Writes a line for each event.
pub(super) struct Lines {
    pub(super) format: LogFormat,
    pub(super) queue: Queue,
}

/// The fields of a line in their order: time, level, message, and those of the event.
struct Fields(Map<String, Value>);

// === impl Lines ===

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::new(*event.metadata().level(), "");
        event.record(&mut fields);
        self.queue.push(fields.line(self.format));
    }
}

/// Returns the line that reports lines that did not fit into the queue.
pub(super) fn dropped(format: LogFormat, count: u64) -> String {
    let mut fields = Fields::new(
        Level::WARN,
        "log lines were dropped while nothing read them",
    );
    fields.0.insert("lines".to_owned(), count.into());
    fields.line(format)
}

// === impl Fields ===

impl Fields {
    fn new(level: Level, message: &str) -> Self {
        let time = format!("{:.3}", Timestamp::now());
        let level = level.as_str().to_lowercase();
        let first = [("ts", time), ("level", level), ("message", message.into())];
        let first = first.map(|(key, value)| (key.to_owned(), Value::String(value)));
        Self(Map::from_iter(first))
    }

    fn line(self, format: LogFormat) -> String {
        let mut line = String::new();
        match format {
            LogFormat::Json => line = Value::Object(self.0).to_string(),
            LogFormat::Logfmt => {
                for (key, value) in self.0 {
                    let is_plain = |c: char| c.is_ascii_graphic() && !"\"=\\".contains(c);
                    let separator = if line.is_empty() { "" } else { " " };
                    // Writing to a string cannot fail.
                    let _ = match value.as_str() {
                        Some(text) if !text.is_empty() && text.chars().all(is_plain) => {
                            write!(line, "{separator}{key}={text}")
                        }
                        _ => write!(line, "{separator}{key}={value}"),
                    };
                }
            }
        }
        line.push('\n');
        line
    }

    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        // `r#type` is the name of a field in code.
        let name = field.name().trim_start_matches("r#");
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::util::lock;

    fn written(format: LogFormat) -> String {
        let queue = Queue::default();
        let lines = Lines {
            format,
            queue: queue.clone(),
        };
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(
                endpoint = "a b",
                status = 503,
                "one \"level\":\"WARN\"\u{1b}"
            );
        });
        std::mem::take(&mut lock(&queue.0.0).lines)
    }

    #[test]
    fn both_formats_have_the_same_fields_and_no_control_characters() {
        let json: serde_json::Value =
            serde_json::from_str(&written(LogFormat::Json)).expect("JSON");
        let (time, logfmt) = (json["ts"].as_str(), written(LogFormat::Logfmt));
        assert_eq!(time.map(str::len), Some("2026-01-31T00:00:00.000Z".len()));
        assert_eq!(
            (&json["level"], &json["status"]),
            (&"warn".into(), &503.into())
        );
        assert_eq!(json["message"], "one \"level\":\"WARN\"\u{1b}");
        let (_, rest) = logfmt.split_once(' ').expect("fields");
        let expected =
            r#"level=warn message="one \"level\":\"WARN\"\u001b" endpoint="a b" status=503"#;
        assert_eq!(rest.trim_end(), expected);
    }
}
