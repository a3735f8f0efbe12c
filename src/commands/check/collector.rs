//! The collector: a request without records, with the protocol, TLS and headers of the exporter. One that does not accept it
//! is a warning, because the exporter works without it and keeps the records.

use std::time::Duration;

use bytes::Bytes;
use otlp_logs::{Connection, Export as _, Reason, Sender, Target, Verdict};

use super::{Outcome, bad, good, warning};
use crate::records::Delivery;
use crate::util::sanitize;

/// The end of a message that says that nothing listens at a port.
const REFUSED: &str = ": connection refused";

/// Sends a request without records.
pub(super) async fn check(delivery: Option<&Delivery>, limit: Duration) -> Outcome {
    let connection = match delivery.map(|delivery| &delivery.target) {
        Some(Target::Collector(connection)) => connection,
        Some(Target::Stdout(_)) => return good("log records go to standard output"),
        None => return good("none, so no log records are sent (--otlp.endpoint)"),
    };
    let mut connection = connection.clone();
    connection.timeout = connection.timeout.min(limit);
    let sender = match Sender::new(&Target::Collector(connection.clone())) {
        Ok(sender) => sender,
        Err(error) => return bad(error),
    };
    let Verdict::Rejected(rejection) = sender.export(Bytes::new()).await else {
        return good(format!("{connection} accepts log records"));
    };
    if connections::advice(&rejection.message).is_some() {
        return warning(format!("{connection}: {}", rejection.message));
    }
    // Nothing else can be wrong, and the libraries add no more than a number.
    if rejection.message.ends_with(REFUSED) {
        let message = rejection.message;
        return warning(format!(
            "{connection}: {message}; start the collector, or correct --otlp.endpoint"
        ));
    }
    let secrets = secrets(&connection);
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let words = match sanitize(&rejection.said, &secrets) {
        words if words.is_empty() => words,
        words => format!(" ({words})"),
    };
    let (message, advice) = (rejection.message, advice(rejection.reason));
    warning(format!("{connection}: {message}{words}; {advice}"))
}

fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        Reason::Connect | Reason::Timeout | Reason::WrongEndpoint => {
            "check port and path of --otlp.endpoint, --otlp.protocol (4317 is gRPC and 4318 is HTTP by custom), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), any proxy or firewall in between, and that the collector runs and has a pipeline for logs"
        }
        Reason::TooLarge | Reason::BadRecord => {
            "some collectors reject requests without records like this one; those with records may pass"
        }
        Reason::RateLimited | Reason::Unavailable | Reason::ServerError => {
            "records wait in the state file, and the exporter tries again: see the collector's log and its limits if it lasts"
        }
    }
}

/// Returns what must not be shown of an answer: values of headers, whole and without `Bearer`, and of the query.
fn secrets(connection: &Connection) -> Vec<String> {
    let headers = connection.headers.values();
    let headers = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let headers =
        headers.flat_map(|value| [value.rsplit(' ').next().map(str::to_owned), Some(value)]);
    let query = connection.endpoint.query_pairs();
    let query = query.map(|(_, value)| Some(value.into_owned()));
    headers.chain(query).flatten().collect()
}
