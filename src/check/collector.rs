//! The collector: a request without records, over the same protocol, TLS and headers as the exporter's.

use std::time::Duration;

use bytes::Bytes;

use super::{Finding, Level, What};
use crate::otlp::{
    Connection, Export as _, FailureReason, Protocol, Refusal, Sender, Settings, Target, Verdict,
};

const PROTOCOL: &str =
    "check the endpoint's port and --otlp.protocol: 4317 is gRPC and 4318 is HTTP by custom";

/// Sends a request without records and says what came of it.
pub(super) async fn look(settings: Option<&Settings>, limit: Duration) -> Vec<Finding> {
    let Some(Settings {
        target: Target::Collector(connection),
        ..
    }) = settings
    else {
        return vec![Finding::good(
            What::Collector,
            "none is given, so no log records are sent (--otlp.endpoint)",
        )];
    };
    let bounded = Connection {
        timeout: connection.timeout.min(limit),
        ..Connection::clone(connection)
    };
    let settings = settings.map(|settings| Settings {
        target: Target::Collector(Box::new(bounded)),
        ..settings.clone()
    });
    let verdict = match settings.as_ref().map(Sender::new) {
        Some(Ok(sender)) => sender.export(Bytes::new()).await,
        Some(Err(error)) => {
            return vec![Finding::told(
                What::Collector,
                Level::Bad,
                &error.to_string(),
            )];
        }
        None => return Vec::new(),
    };
    let place = format!("{} over {}", connection.place(), connection.protocol);
    vec![judge(&verdict, &place, connection)]
}

fn judge(verdict: &Verdict, place: &str, connection: &Connection) -> Finding {
    let check = What::Collector;
    match verdict {
        Verdict::Acknowledged { warning: None } => {
            Finding::good(check, format!("{place} takes log records"))
        }
        Verdict::Acknowledged {
            warning: Some(warning),
        } => Finding::warning(
            check,
            format!("{place} takes log records and says: {warning}"),
            "see what it means in the collector's manual",
        ),
        Verdict::PartlyRejected { message, .. } => Finding::warning(
            check,
            format!("{place} rejects records of a request that has none: {message}"),
            "see what is before the collector, or in its place",
        ),
        Verdict::TooLarge(refusal) | Verdict::Suspect(refusal) | Verdict::Hold(refusal) => {
            refused(refusal, place, connection)
        }
    }
}

fn refused(refusal: &Refusal, place: &str, connection: &Connection) -> Finding {
    use FailureReason as R;
    // Where the message holds a question about the port or the certificate, that is what to do.
    let (message, hint) = match refusal.message.split_once("; ") {
        Some((message, hint)) if matches!(refusal.reason, R::Connect | R::NotFound) => {
            (message, Some(hint))
        }
        _ => (refusal.message.as_str(), None),
    };
    let said = format!("{place}: {message}");
    let level = if matches!(refusal.reason, R::RateLimited | R::BadRecord | R::TooLarge) {
        Level::Warning
    } else {
        Level::Bad
    };
    let advice = match refusal.reason {
        R::Connect => connect(message, connection),
        R::Timeout => {
            "it hangs, or a firewall swallows the way to it: see whether the endpoint answers from this machine at all"
        }
        R::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        // A web server that knows nothing of gRPC.
        R::NotFound if connection.protocol == Protocol::Grpc && message.starts_with("HTTP ") => {
            PROTOCOL
        }
        R::NotFound => {
            "no receiver of log records is there: check the endpoint's path, and that the collector has a pipeline for logs"
        }
        R::RateLimited => {
            "records wait in the state file until it takes them; see the collector's limits if it lasts"
        }
        R::TooLarge | R::BadRecord => {
            "this request holds no records, which some collectors refuse; those with records may pass"
        }
        R::ServerError | R::Unavailable => {
            "the collector itself fails, and records wait in the state file: see its log"
        }
        R::NotOtlp => PROTOCOL,
        R::PartlyRejected | R::Other => "see the collector's log for what it means by that",
    };
    Finding {
        check: What::Collector,
        level,
        said,
        advice: Some(hint.unwrap_or(advice).to_owned()),
    }
}

fn connect(message: &str, connection: &Connection) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["dns error", "failed to lookup"]) {
        "the host has no address: check the name in the endpoint, and this machine's DNS"
    } else if has(&["UnknownIssuer"]) {
        "nothing on this machine vouches for its certificate: give its root in OTEL_EXPORTER_OTLP_CERTIFICATE"
    } else if has(&["InvalidContentType", "corrupt message"]) {
        "what listens there does not speak TLS: use http:// in the endpoint, or check the port"
    } else if has(&["CertificateRequired", "HandshakeFailure"]) {
        "it wants a client certificate: give OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY"
    } else if has(&["certificate"]) {
        "its certificate is not right for this address: check the host in the endpoint, and the certificate's names and dates"
    } else if has(&["refused"]) {
        "nothing listens there: check host and port of the endpoint, and whether the collector runs"
    } else if connection.endpoint.scheme() == "http" {
        "check the endpoint: its host, its port, and whether it wants https"
    } else {
        "check the endpoint: its host, its port, and whether it speaks TLS"
    }
}
