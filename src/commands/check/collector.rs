//! The collector: a request without records, with the protocol, TLS and headers of the exporter.

use std::time::Duration;

use bytes::Bytes;

use super::{Finding, advice};
use crate::otlp::{
    Connection, Export as _, FailureReason, Protocol, Refusal, Sender, Settings, Target, Verdict,
};

const CHECK: &str = "collector";

const ENDPOINT: &str = "--otlp.endpoint";

const PROTOCOL: &str =
    "check the endpoint's port and --otlp.protocol: 4317 is gRPC and 4318 is HTTP by custom";

/// Sends a request without records.
pub(super) async fn check(settings: Option<&Settings>, limit: Duration) -> Finding {
    let Some((settings, Target::Collector(connection))) =
        settings.map(|settings| (settings, &settings.target))
    else {
        return Finding::good(CHECK, "none, so no log records are sent (--otlp.endpoint)");
    };
    let mut connection = Connection::clone(connection);
    connection.timeout = connection.timeout.min(limit);
    let settings = Settings {
        target: Target::Collector(Box::new(connection.clone())),
        ..settings.clone()
    };
    let sender = match Sender::new(&settings) {
        Ok(sender) => sender,
        Err(error) => return Finding::error(CHECK, error),
    };
    let place = format!("{} over {}", connection.place(), connection.protocol);
    match sender.export(Bytes::new()).await {
        Verdict::Acknowledged { warning: None } => {
            Finding::good(CHECK, format!("{place} accepts log records"))
        }
        Verdict::Acknowledged {
            warning: Some(message),
        }
        | Verdict::PartlyRejected { message, .. } => Finding::warning(
            CHECK,
            format!("{place} accepts log records, with a warning: {message}"),
            "look it up in the collector's manual",
        ),
        Verdict::TooLarge(refusal) | Verdict::Suspect(refusal) | Verdict::Hold(refusal) => {
            refused(&refusal, &place, &connection)
        }
    }
}

fn refused(refusal: &Refusal, place: &str, connection: &Connection) -> Finding {
    use FailureReason as R;
    let message = &refusal.message;
    let said = format!("{place}: {message}");
    let advice = match refusal.reason {
        R::RateLimited => {
            let advice = "records wait in the state file until it accepts them; see the collector's limits if it lasts";
            return Finding::warning(CHECK, said, advice);
        }
        R::TooLarge | R::BadRecord => {
            let advice = "some collectors refuse a request without records like this one; those with records may pass";
            return Finding::warning(CHECK, said, advice);
        }
        // The message itself says what to do.
        R::Connect | R::NotFound if message.contains("; ") => return Finding::error(CHECK, said),
        R::Connect => return Finding::bad(CHECK, said, advice::connect(message, ENDPOINT)),
        R::Timeout => advice::SILENCE,
        R::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        // A web server without gRPC.
        R::NotFound if connection.protocol == Protocol::Grpc && message.starts_with("HTTP ") => {
            PROTOCOL
        }
        R::NotFound => {
            "check the endpoint's path, and that the collector has a pipeline for logs with this receiver"
        }
        R::NotOtlp => PROTOCOL,
        R::ServerError | R::Unavailable | R::PartlyRejected | R::Other => {
            "the collector itself fails, and records wait in the state file: see its log"
        }
    };
    Finding::bad(CHECK, said, advice)
}
