//! The collector: a request without records, with the protocol, TLS and headers of the exporter. One that does not accept it
//! is a warning, because the exporter works without it and keeps the records.

use std::time::Duration;

use bytes::Bytes;

use super::{Finding, failed, good, warning};
use crate::otlp::{Export as _, FailureReason as R, Sender, Settings, Target, Verdict};

const CHECK: &str = "collector";

/// Sends a request without records.
pub(super) async fn check(settings: Option<&Settings>, limit: Duration) -> Finding {
    let Some((settings, Target::Collector(connection))) =
        settings.map(|settings| (settings, &settings.target))
    else {
        return good(CHECK, "none, so no log records are sent (--otlp.endpoint)");
    };
    let mut connection = connection.clone();
    connection.timeout = connection.timeout.min(limit);
    let place = connection.to_string();
    let mut settings = settings.clone();
    settings.target = Target::Collector(connection);
    let sender = match Sender::new(&settings) {
        Ok(sender) => sender,
        Err(error) => return failed(CHECK, error),
    };
    let (said, advice) = match sender.export(Bytes::new()).await {
        Verdict::Acknowledged { warning: None } => {
            return good(CHECK, format!("{place} accepts log records"));
        }
        Verdict::Acknowledged {
            warning: Some(message),
        }
        | Verdict::PartlyRejected { message, .. } => (
            format!("{place} accepts log records, with a warning: {message}"),
            "look it up in the collector's manual",
        ),
        Verdict::Refused(refusal) => (
            format!("{place}: {}", refusal.message),
            advice(refusal.reason),
        ),
    };
    warning(CHECK, said, advice)
}

fn advice(reason: R) -> &'static str {
    match reason {
        R::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        R::RateLimited => {
            "the exporter waits and continues; see the collector's limits if it lasts"
        }
        R::TooLarge | R::BadRecord => {
            "some collectors reject requests without records like this one; those with records may pass"
        }
        R::Connect | R::Timeout | R::NotFound | R::NotOtlp => {
            "check --otlp.endpoint and --otlp.protocol (4317 is gRPC and 4318 is HTTP by custom), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), any proxy or firewall in between, and that the collector has a pipeline for logs"
        }
        _ => "the collector itself fails, and records wait in the state file: see its log",
    }
}
