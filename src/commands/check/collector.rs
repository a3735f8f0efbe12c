//! The collector: a request without records, with the protocol, TLS and headers of the exporter. One that does not accept it
//! is a warning, because the exporter works without it and keeps the records.

use std::time::Duration;

use bytes::Bytes;
use otlp_logs::{Connection, Export as _, Reason, Refusal, Sender, Target, Verdict};

use super::{Finding, failed, good, warning};
use crate::relay::Delivery;
use crate::util::sanitize;

const CHECK: &str = "collector";

/// Sends a request without records.
pub(super) async fn check(delivery: Option<&Delivery>, limit: Duration) -> Finding {
    let connection = match delivery.map(|delivery| &delivery.target) {
        Some(Target::Collector(connection)) => connection,
        Some(Target::Stdout(_)) => return good(CHECK, "log records go to standard output"),
        None => return good(CHECK, "none, so no log records are sent (--otlp.endpoint)"),
    };
    let mut connection = connection.clone();
    connection.timeout = connection.timeout.min(limit);
    let sender = match Sender::new(&Target::Collector(connection.clone())) {
        Ok(sender) => sender,
        Err(error) => return failed(CHECK, error),
    };
    match sender.export(Bytes::new()).await {
        Verdict::Accepted => good(CHECK, format!("{connection} accepts log records")),
        Verdict::PartlyRejected { message, .. } => {
            let said =
                format!("{connection} rejects records in a request without records: {message}");
            warning(CHECK, said, "look it up in the collector's manual")
        }
        Verdict::Refused(refusal) => refused(&refusal, &connection),
    }
}

fn refused(refusal: &Refusal, connection: &Connection) -> Finding {
    let mut said = format!("{connection}: {}", refusal.message);
    let secrets = secrets(connection);
    let words = sanitize(
        &refusal.said,
        &secrets.iter().map(|s| &**s).collect::<Vec<_>>(),
    );
    if !words.is_empty() {
        said = format!("{said} ({words})");
    }
    let advice = match refusal.reason {
        Reason::Unauthorized => "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS",
        Reason::Connect | Reason::Timeout => {
            "check --otlp.endpoint and --otlp.protocol (4317 is gRPC and 4318 is HTTP by custom), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), any proxy or firewall in between, and that the collector runs"
        }
        Reason::WrongEndpoint => {
            "check the endpoint's port and path, --otlp.protocol (4317 is gRPC and 4318 is HTTP by custom), and that the collector has a pipeline for logs"
        }
        Reason::RateLimited => {
            "the exporter waits and continues; see the collector's limits if it lasts"
        }
        Reason::TooLarge | Reason::BadRecord => {
            "some collectors reject requests without records like this one; those with records may pass"
        }
        Reason::Unavailable | Reason::ServerError => {
            "the collector itself fails, and records wait in the state file: see its log"
        }
    };
    warning(CHECK, said, advice)
}

/// Returns what must not be shown of an answer: values of headers, whole and without `Bearer`, and of the query.
fn secrets(connection: &Connection) -> Vec<String> {
    let headers = connection.headers.values();
    let headers = headers.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let headers = headers.flat_map(|value| {
        let token = value.rsplit(' ').next().map(str::to_owned);
        [Some(value), token]
    });
    let pairs = connection.endpoint.query_pairs();
    let query = pairs.map(|(_, value)| Some(value.into_owned()));
    headers.chain(query).flatten().collect()
}
