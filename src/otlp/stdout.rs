//! Log records as readable lines on standard output, for `demo`.

use std::io::Write;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;

use super::verdict::{FailureReason, Refusal, Verdict};
use crate::util::{MAX_SHOWN, one_line};

/// The attributes of a line after time, name and actor, and their short names.
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

/// Prints a line for each record of an encoded request, in local time.
pub(super) fn print(body: Bytes) -> Verdict {
    match try_print(body) {
        Ok(()) => Verdict::Acknowledged { warning: None },
        Err(error) => {
            let message = format!("cannot write to standard output: {error}");
            Verdict::Refused(Refusal::new(FailureReason::Other, message))
        }
    }
}

fn try_print(body: Bytes) -> std::io::Result<()> {
    let request = ExportLogsServiceRequest::decode(body).map_err(std::io::Error::other)?;
    let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
    let zone = TimeZone::system();
    let mut out = std::io::stdout().lock();
    for record in scopes.flat_map(|scope| &scope.log_records) {
        writeln!(out, "{}", line(record, &zone))?;
    }
    out.flush()
}

fn line(record: &LogRecord, zone: &TimeZone) -> String {
    let time = Timestamp::from_nanosecond(record.time_unix_nano.into()).unwrap_or_default();
    let time = time.to_zoned(zone.clone());
    let actor = text(record, "user.full_name").or_else(|| text(record, "user.id"));
    let mut line = format!(
        "{:.3} {:<40} {:<20}",
        time.time(),
        record.event_name,
        actor.as_deref().unwrap_or("-")
    );
    for (key, name) in SHOWN {
        match text(record, key) {
            Some(value) if value.contains(' ') => line.push_str(&format!(" {name}={value:?}")),
            Some(value) => line.push_str(&format!(" {name}={value}")),
            None => {}
        }
    }
    line
}

fn text(record: &LogRecord, key: &str) -> Option<String> {
    let mut attributes = record.attributes.iter();
    let attribute = attributes.find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(one_line(text, MAX_SHOWN)),
        Value::IntValue(number) => Some(number.to_string()),
        Value::DoubleValue(number) => Some(number.to_string()),
        Value::BoolValue(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Encode, RawRecord, RecordKind};
    use crate::otlp::RecordEncoder;
    use opentelemetry_proto::tonic::logs::v1::ScopeLogs;

    #[test]
    fn a_record_is_one_readable_line() {
        let json = include_str!("../../tests/golden/entry.json").replace("Pilot", "Pilot\\nphase");
        let record = RawRecord {
            kind: RecordKind::Entry,
            json: &json,
            created_at: Timestamp::UNIX_EPOCH,
            arrived_at: Timestamp::UNIX_EPOCH,
            trace: None,
        };
        let mut bytes = Vec::new();
        RecordEncoder::default().encode(&record, &mut bytes);
        let scope = ScopeLogs::decode(bytes.as_slice()).expect("decodes");
        assert_eq!(
            line(&scope.log_records[0], &TimeZone::UTC),
            "10:00:00.123 orgdata.audit.task_completed             Ada Lovelace         deal=Big evaluation=\"Pilot phase\" target=14 task=1 \
             requirement=2 meeting=3 ticket=4 team_request=5 id=a1"
        );
    }
}
