//! The collector: a request without records, with the protocol, TLS and headers of the exporter. One that does not accept it
//! is a warning, because the exporter works without it and keeps the records.

use std::time::Duration;

use bytes::Bytes;

use super::service::{SILENCE, connect};
use super::{Finding, Level, failed, good, warning};
use crate::otlp::{
    Connection, Export as _, FailureReason, Protocol, Refusal, Sender, Settings, Target, Verdict,
};

const CHECK: &str = "collector";

const PROTOCOL: &str =
    "check the endpoint's port and --otlp.protocol: 4317 is gRPC and 4318 is HTTP by custom";

/// Sends a request without records.
pub(super) async fn check(settings: Option<&Settings>, limit: Duration) -> Finding {
    let Some((settings, Target::Collector(connection))) =
        settings.map(|settings| (settings, &settings.target))
    else {
        return good(CHECK, "none, so no log records are sent (--otlp.endpoint)");
    };
    let mut connection = connection.clone();
    connection.timeout = connection.timeout.min(limit);
    let mut settings = settings.clone();
    settings.target = Target::Collector(connection.clone());
    let sender = match Sender::new(&settings) {
        Ok(sender) => sender,
        Err(error) => return failed(CHECK, error),
    };
    let place = connection.to_string();
    match sender.export(Bytes::new()).await {
        Verdict::Acknowledged { warning: None } => {
            good(CHECK, format!("{place} accepts log records"))
        }
        Verdict::Acknowledged {
            warning: Some(message),
        }
        | Verdict::PartlyRejected { message, .. } => {
            let said = format!("{place} accepts log records, with a warning: {message}");
            warning(CHECK, said, "look it up in the collector's manual")
        }
        Verdict::Refused(refusal) => refused(&refusal, &place, &connection),
    }
}

fn refused(refusal: &Refusal, place: &str, connection: &Connection) -> Finding {
    use FailureReason as R;
    let said = format!("{place}: {}", refusal.message);
    let http = refusal.message.starts_with("HTTP ");
    let advice = match refusal.reason {
        // The message itself may say what to do.
        R::Connect | R::NotFound if said.contains("; ") => {
            let level = Level::Warning;
            return Finding {
                level,
                ..failed(CHECK, said)
            };
        }
        R::Connect => &connect(&refusal.message, "--otlp.endpoint"),
        R::Timeout => SILENCE,
        R::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        R::NotFound if !(http && connection.protocol == Protocol::Grpc) => {
            "check the endpoint's path, and that the collector has a pipeline for logs"
        }
        R::NotFound | R::NotOtlp => PROTOCOL,
        R::RateLimited => {
            "the exporter waits and continues; see the collector's limits if it lasts"
        }
        R::TooLarge | R::BadRecord => {
            "some collectors reject requests without records like this one; those with records may pass"
        }
        _ => "the collector itself fails, and records wait in the state file: see its log",
    };
    warning(CHECK, said, advice)
}
