//! Log records as readable lines on standard output, for the demonstration.

use std::io::Write;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;

use super::FailureReason;
use super::verdict::{Refusal, Verdict, one_line};

/// What a line shows of a record beside its time, name and actor, and the short name it has there.
const SHOWN: [(&str, &str); 10] = [
    ("orgdata.deal.name", "deal"),
    ("orgdata.evaluation.title", "evaluation"),
    ("orgdata.target_user.id", "target"),
    ("orgdata.task.id", "task"),
    ("orgdata.requirement.id", "requirement"),
    ("orgdata.meeting.id", "meeting"),
    ("orgdata.ticket.id", "ticket"),
    ("orgdata.team_request.id", "team_request"),
    ("orgdata.gap.reason", "reason"),
    ("log.record.uid", "id"),
];

/// Prints records, in the time zone of the machine.
#[derive(Debug)]
pub struct StdoutSender {
    zone: TimeZone,
}

// === impl StdoutSender ===

impl Default for StdoutSender {
    fn default() -> Self {
        Self {
            zone: TimeZone::system(),
        }
    }
}

impl StdoutSender {
    /// Prints a line for each record of the request; they are acknowledged when they are written.
    pub fn export(&self, body: &Bytes) -> Verdict {
        let written = ExportLogsServiceRequest::decode(body.clone())
            .map_err(std::io::Error::other)
            .and_then(|request| {
                let mut out = std::io::stdout().lock();
                let records = request
                    .resource_logs
                    .iter()
                    .flat_map(|logs| &logs.scope_logs)
                    .flat_map(|logs| &logs.log_records);
                for record in records {
                    writeln!(out, "{}", self.line(record))?;
                }
                out.flush()
            });
        match written {
            Ok(()) => Verdict::Acknowledged { warning: None },
            Err(error) => Verdict::Hold(Refusal::new(
                FailureReason::Other,
                format!("cannot write to standard output: {error}"),
            )),
        }
    }

    fn line(&self, record: &LogRecord) -> String {
        let time = Timestamp::from_nanosecond(record.time_unix_nano.into())
            .unwrap_or_default()
            .to_zoned(self.zone.clone());
        let actor = text(record, "user.full_name")
            .or_else(|| text(record, "user.id"))
            .unwrap_or_else(|| "-".to_owned());
        let mut line = format!(
            "{} {:<40} {actor:<20}",
            time.strftime("%H:%M:%S%.3f"),
            record.event_name
        );
        for (key, name) in SHOWN {
            if let Some(value) = text(record, key) {
                let value = if value.contains(' ') {
                    format!("{value:?}")
                } else {
                    value
                };
                line.push_str(&format!(" {name}={value}"));
            }
        }
        line
    }
}

fn text(record: &LogRecord, key: &str) -> Option<String> {
    let attribute = record
        .attributes
        .iter()
        .find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(one_line(text)),
        Value::IntValue(number) => Some(number.to_string()),
        Value::DoubleValue(number) => Some(number.to_string()),
        Value::BoolValue(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{OutboxPosition, OutboxRecord, RecordKind};
    use crate::otlp::Mapper;

    #[test]
    fn a_record_is_one_readable_line() {
        let record = OutboxRecord {
            position: OutboxPosition { page: 1, index: 0 },
            kind: RecordKind::Entry,
            arrived_at: Timestamp::UNIX_EPOCH,
            trace: None,
            raw: include_str!("../../tests/golden/entry.json").replace("Pilot", "Pilot\\nphase"),
        };
        let sender = StdoutSender {
            zone: TimeZone::UTC,
        };
        assert_eq!(
            sender.line(
                &LogRecord::decode(Mapper::default().encode(&record).as_slice()).expect("decodes")
            ),
            "10:00:00.123 orgdata.audit.task_completed             Ada Lovelace         deal=Big evaluation=\"Pilot phase\" target=14 task=1 \
             requirement=2 meeting=3 ticket=4 team_request=5 id=a1"
        );
    }
}
