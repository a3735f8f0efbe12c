//! Log records as readable lines on standard output.

use std::io::Write;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use serde_json::Value;

use crate::record::json;
use crate::verdict::{Reason, Refusal, Verdict};

/// The maximum length of a value, in characters.
const MAX_VALUE: usize = 200;

/// A line for each record: its time, its event name, and some attributes.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// The attributes of the actor: the first that is there is shown, without its name.
    pub actor: &'static [&'static str],
    /// Other attributes, and their short names.
    pub shown: &'static [(&'static str, &'static str)],
}

// === impl Lines ===

impl Lines {
    /// Prints the records of an encoded request, in local time.
    pub(crate) fn print(&self, body: Bytes) -> Verdict {
        match self.try_print(body) {
            Ok(()) => Verdict::Accepted,
            Err(error) => {
                let message = format!("cannot write to standard output: {error}");
                Verdict::Refused(Refusal::new(Reason::Unavailable, message))
            }
        }
    }

    fn try_print(&self, body: Bytes) -> std::io::Result<()> {
        let request = ExportLogsServiceRequest::decode(body).map_err(std::io::Error::other)?;
        let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
        let zone = TimeZone::system();
        let mut out = std::io::stdout().lock();
        for record in scopes.flat_map(|scope| &scope.log_records) {
            writeln!(out, "{}", self.line(record, &zone))?;
        }
        out.flush()
    }

    fn line(&self, record: &LogRecord, zone: &TimeZone) -> String {
        let time = Timestamp::from_nanosecond(record.time_unix_nano.into()).unwrap_or_default();
        let time = time.to_zoned(zone.clone());
        let actor = self.actor.iter().find_map(|key| text(record, key));
        let mut line = format!(
            "{:.3} {:<40} {:<20}",
            time.time(),
            record.event_name,
            actor.as_deref().unwrap_or("-")
        );
        for (key, name) in self.shown {
            match text(record, key) {
                Some(value) if value.contains(' ') => line.push_str(&format!(" {name}={value:?}")),
                Some(value) => line.push_str(&format!(" {name}={value}")),
                None => {}
            }
        }
        line
    }
}

fn text(record: &LogRecord, key: &str) -> Option<String> {
    let mut attributes = record.attributes.iter();
    let attribute = attributes.find(|attribute| attribute.key == key)?;
    match json(attribute.value.clone()) {
        Value::String(text) => {
            let tame = text.chars().map(|c| if c.is_control() { ' ' } else { c });
            Some(tame.take(MAX_VALUE).collect())
        }
        value => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Meta, RecordWriter, Scalar};
    use opentelemetry_proto::tonic::logs::v1::ScopeLogs;

    #[test]
    fn a_record_is_one_readable_line() {
        let mut bytes = Vec::new();
        let mut writer = RecordWriter::begin(false, &mut bytes);
        for (key, value) in [
            ("name", "Ada Lovelace"),
            ("deal", "Big"),
            ("phase", "Pilot\nphase"),
        ] {
            writer.attribute(key, &Scalar::Text(value.into()));
        }
        writer.end(&Meta {
            time: 36_000_123_000_000,
            event_name: "task.done",
            ..Meta::default()
        });
        let scope = ScopeLogs::decode(bytes.as_slice()).expect("decodes");
        let lines = Lines {
            actor: &["full_name", "name"],
            shown: &[("deal", "d"), ("none", "n"), ("phase", "p")],
        };
        assert_eq!(
            lines.line(&scope.log_records[0], &TimeZone::UTC),
            "10:00:00.123 task.done                                Ada Lovelace         d=Big p=\"Pilot phase\""
        );
    }
}
