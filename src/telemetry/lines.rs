//! The form of a log line: the same fields as logfmt or JSON.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Subscriber};
use tracing_serde::fields::AsMap as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `--log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// key=value
    Logfmt,
    /// One JSON object per line
    Json,
}

// === impl LogFormat ===

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let time = format!("{:.3}", Timestamp::now());
        let level = event.metadata().level().as_str().to_lowercase();
        let mut fields = Map::from_iter([
            ("ts".to_owned(), time.into()),
            ("level".to_owned(), level.into()),
        ]);
        let others = serde_json::to_value(event.field_map()).map_err(|_| fmt::Error)?;
        for (key, value) in others.as_object().into_iter().flatten() {
            // As the tools of Prometheus name it.
            let key = if key == "message" { "msg" } else { key };
            fields.insert(key.to_owned(), value.clone());
        }
        if *self == Self::Json {
            return writeln!(line, "{}", Value::Object(fields));
        }
        for (index, (key, value)) in fields.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            let is_plain = |c: char| c.is_ascii_graphic() && !"\"=\\".contains(c);
            match value.as_str() {
                Some(text) if !text.is_empty() && text.chars().all(is_plain) => {
                    write!(line, "{space}{key}={text}")?;
                }
                _ => write!(line, "{space}{key}={value}")?,
            }
        }
        writeln!(line)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn both_formats_have_the_same_fields_and_no_control_characters() {
        let written = |format: LogFormat| {
            let file = tempfile::NamedTempFile::new().expect("a file");
            let writer = File::options().append(true).open(file.path());
            let lines = tracing_subscriber::fmt::layer().event_format(format);
            let lines = lines.with_writer(Arc::new(writer.expect("a file")));
            let subscriber = tracing_subscriber::registry().with(lines);
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(
                    endpoint = "a b",
                    status = 503,
                    "one \"level\":\"WARN\"\u{1b}"
                );
            });
            std::fs::read_to_string(file.path()).expect("a line")
        };
        let json: Value = serde_json::from_str(&written(LogFormat::Json)).expect("JSON");
        let time = json["ts"].as_str().expect("a time");
        assert_eq!(time.len(), "2026-01-31T00:00:00.000Z".len());
        assert_eq!(json["level"], "warn");
        assert_eq!(json["msg"], "one \"level\":\"WARN\"\u{1b}");
        assert_eq!(json["status"], 503);
        let logfmt = written(LogFormat::Logfmt);
        let (_, rest) = logfmt.split_once(' ').expect("fields");
        let expected = r#"level=warn msg="one \"level\":\"WARN\"\u001b" endpoint="a b" status=503"#;
        assert_eq!(rest.trim_end(), expected);
    }
}
