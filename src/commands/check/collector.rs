//! The collectors of log records and of spans: a request with nothing in it, with the protocol, TLS and headers of the exporter.
//!
//! An unreachable collector is a warning, because the exporter works without it. Any answer that is not about connection, credentials or
//! endpoint shows that the collector is there.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp_logs::{Connection, Export as _, Reason, Sender, Target, Verdict};

use super::{MAX_TIME, Outcome, bad, good, name_in, warning};
use crate::cli;
use crate::records::Delivery;
use crate::telemetry::{span_connection, span_provider};
use crate::util::shown_duration;

/// The end of a message that says that nothing listens at a port.
const REFUSED: &str = ": connection refused";

/// Tries the collector of log records.
pub(super) async fn logs(delivery: Option<&Delivery>) -> Outcome {
    match delivery.map(|delivery| &delivery.target) {
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
    let problem = match made.and_then(|()| span_connection(&cli::variable)) {
        Ok(connection) => {
            let settings = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and _PROTOCOL";
            return Some(send(&connection?, "spans", settings).await);
        }
        Err(problem) => problem,
    };
    let so = "the exporter would run without spans";
    let anonymous = format!("{} is wrong; {so}", name_in(&problem));
    Some(warning(format!("{problem}; {so}")).in_json(anonymous))
}

/// Sends a request without `what` to the collector of these settings.
async fn send(connection: &Connection, what: &str, settings: &str) -> Outcome {
    let (mut shortened, whole) = (connection.clone(), connection.timeout);
    shortened.timeout = whole.min(MAX_TIME);
    let sender = match Sender::new(&Target::Collector(Box::new(shortened))) {
        Ok(sender) => sender,
        Err(error) => {
            let anonymous = format!("{} cannot be used", name_in(&error));
            return bad(error).in_json(anonymous);
        }
    };
    let over = format!("over {}", connection.protocol.as_str());
    let rejection = match sender.export(ExportLogsServiceRequest::default()).await {
        Verdict::Rejected(rejection) => rejection,
        _ => {
            let anonymous = format!("{over}, accepts {what}");
            return good(format!("{connection} accepts {what}")).in_json(anonymous);
        }
    };
    let reason = rejection.reason;
    let anonymous = format!("{over}: {}", reason.as_str());
    if reason == Reason::Timeout && whole > MAX_TIME {
        let (limit, whole) = (shown_duration(MAX_TIME), shown_duration(whole));
        let late = format!(
            "no answer within {limit}, the longest that check waits; the exporter waits for {whole}"
        );
        return warning(format!("{connection}: {late}")).in_json(format!("{over}: {late}"));
    }
    let said = &rejection.message;
    if matches!(reason, Reason::Unavailable | Reason::RateLimited) {
        let said = format!(
            "{connection} takes no {what} at present: {said}; check the collector and what is behind it"
        );
        return warning(said).in_json(anonymous);
    }
    if !reason.is_about_connection() {
        let said = format!("{connection} is there, and answers a request without {what}: {said}");
        return good(said).in_json(format!("{anonymous}, so it is there"));
    }
    if connections::advice(&rejection.message).is_some() {
        return warning(format!("{connection}: {said}")).in_json(anonymous);
    }
    let advice = match reason {
        Reason::Unauthorized => {
            "correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS, or in the file of --otlp.bearer-token-file"
                .to_owned()
        }
        _ if rejection.message.ends_with(REFUSED) => {
            format!("start the collector, or correct {settings}")
        }
        _ => format!(
            "check port, path and protocol ({settings}; 4317 is gRPC and 4318 is HTTP by custom), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), any proxy or firewall in between, and that the collector runs and has a pipeline for {what}"
        ),
    };
    warning(format!("{connection}: {said}; {advice}")).in_json(format!("{anonymous}; {advice}"))
}
