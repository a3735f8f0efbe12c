//! The collectors of log records and of spans: a request with nothing in it, with the protocol, TLS and headers of the exporter.
//!
//! An unreachable collector is a warning, because the exporter works without it. Any answer that is not about connection, credentials or
//! endpoint shows that the collector is there.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp_logs::{Connection, Export as _, Reason, Sender, Target, Verdict};

use super::api::MAX_TIME;
use super::report::{Outcome, bad, good, not_tested, warning};
use crate::cli::{self, ExporterSettings};
use crate::telemetry::{span_connection, span_provider};
use crate::util::shown_duration;

/// The end of a message that says that nothing listens at a port.
const REFUSED: &str = ": connection refused";

/// Tries the collector of log records.
pub(super) async fn logs(settings: Arc<ExporterSettings>) -> Outcome {
    match settings.otlp.as_ref().map(|delivery| &delivery.target) {
        Some(Target::Collector(connection)) => {
            let settings = "--otlp.endpoint and --otlp.protocol";
            send(connection, "log records", settings).await
        }
        Some(Target::Stdout(_)) => good("log records go to standard output"),
        None => good("none, so no log records are sent (--otlp.endpoint)"),
    }
}

/// Tries the collector of the exporter's own spans; `None` if there is none.
pub(super) async fn traces() -> Option<Outcome> {
    // Its blocking client must not be dropped by a thread of the runtime.
    let made = tokio::task::spawn_blocking(|| span_provider(&cli::variable).map(drop)).await;
    let made = made.unwrap_or_else(|error| Err(error.to_string()));
    match made.and_then(|()| span_connection(&cli::variable)) {
        Ok(connection) => {
            let settings = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and _PROTOCOL";
            Some(send(&connection?, "spans", settings).await)
        }
        Err(problem) => Some(warning(format!(
            "{problem}; the exporter would run without spans"
        ))),
    }
}

/// Sends a request without `what` to the collector of these settings.
async fn send(connection: &Connection, what: &str, settings: &str) -> Outcome {
    let mut shortened = connection.clone();
    shortened.timeout = connection.timeout.min(MAX_TIME);
    let sender = match Sender::new(&Target::Collector(Box::new(shortened))) {
        Ok(sender) => sender,
        Err(error) => return bad(error),
    };
    let rejection = match sender.export(ExportLogsServiceRequest::default()).await {
        Verdict::Rejected(rejection) => rejection,
        _ => return good(format!("{connection} accepts {what}")),
    };
    let reason = rejection.reason;
    let said = match reason {
        // It names host and port.
        Reason::Connect | Reason::Timeout => rejection.message.clone(),
        _ => format!("{connection}: {}", rejection.message),
    };
    let outcome = match reason {
        Reason::Timeout => not_tested(format!(
            "{said}; the exporter waits for {}, and works without a collector",
            shown_duration(connection.timeout)
        )),
        Reason::Unavailable | Reason::RateLimited => warning(format!(
            "{said}; it takes no {what} at present: check the collector and what is behind it"
        )),
        _ if !reason.is_about_connection() => good(format!("{said}; so it is there")),
        _ if connections::advice(&rejection.message).is_some() => warning(said),
        Reason::Unauthorized => warning(format!(
            "{said}; correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS, or in the file of --otlp.bearer-token-file"
        )),
        _ if rejection.message.ends_with(REFUSED) => warning(format!(
            "{said}; start the collector, or correct {settings}"
        )),
        _ => warning(format!(
            "{said}; check port, path and protocol ({settings}; 4317 is gRPC and 4318 is HTTP by custom), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), any proxy or firewall in between, and that the collector runs and has a pipeline for {what}"
        )),
    };
    outcome.in_json(format!(
        "{}: {}",
        connection.protocol.as_str(),
        reason.as_str()
    ))
}
