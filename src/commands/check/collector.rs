//! The collectors of log records and of spans: an empty request, with the protocol, TLS and headers of the exporter.
//!
//! An unreachable collector is a warning, because the exporter works without it. Any answer that is not about connection, credentials or
//! endpoint shows that the collector is there.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use otlp_logs::{Connection, Export as _, Reason, Sender, Target, Verdict};

use super::api::MAX_TIME;
use super::report::Level::{Bad, Good, NotTested, Warning};
use super::report::Line;
use crate::cli::{self, ExporterSettings};
use crate::telemetry::{span_connection, span_provider};
use crate::util::shown_duration;

/// Tries the collector of log records.
pub(super) async fn logs(settings: Arc<ExporterSettings>) -> Line {
    let text = match settings.otlp.as_ref().map(|delivery| &delivery.target) {
        Some(Target::Collector(connection)) => {
            return send(connection, "collector", "log records").await;
        }
        Some(Target::Stdout(_)) => "log records go to standard output",
        None => "none, so no log records are sent (--otlp.endpoint)",
    };
    Line::new(Good, "collector", text)
}

/// Tries the collector of the exporter's own spans; `None` if there is none.
pub(super) async fn traces() -> Option<Line> {
    // Its blocking client must not be dropped by a thread of the runtime.
    let made = tokio::task::spawn_blocking(|| span_provider(&cli::variable).map(drop)).await;
    let made = made.unwrap_or_else(|error| Err(error.to_string()));
    match made.and_then(|()| span_connection(&cli::variable)) {
        Ok(connection) => Some(send(&connection?, "traces", "spans").await),
        Err(problem) => {
            let text = format!("{problem}; the exporter would run without spans");
            Some(Line::new(Warning, "traces", text))
        }
    }
}

/// Sends a request without `what`.
async fn send(connection: &Connection, check: &'static str, what: &str) -> Line {
    let mut shortened = connection.clone();
    shortened.timeout = connection.timeout.min(MAX_TIME);
    let sender = match Sender::new(&Target::Collector(Box::new(shortened))) {
        Ok(sender) => sender,
        Err(error) => return Line::new(Bad, check, error),
    };
    let Verdict::Rejected(rejection) = sender.export(ExportLogsServiceRequest::default()).await
    else {
        return Line::new(Good, check, format!("{connection} accepts {what}"));
    };
    let (reason, message) = (rejection.reason, rejection.message);
    let (level, advice) = match reason {
        Reason::Timeout => {
            let wait = shown_duration(connection.timeout);
            let advice = format!("; the exporter waits for {wait}, and works without a collector");
            (NotTested, advice)
        }
        Reason::Unavailable | Reason::RateLimited => {
            let advice = "at present: check the collector and what is behind it";
            (Warning, format!("; it accepts no {what} {advice}"))
        }
        Reason::Unauthorized => {
            let advice = "; correct the token or the tenant in OTEL_EXPORTER_OTLP_HEADERS, or in the file of --otlp.bearer-token-file";
            (Warning, advice.to_owned())
        }
        // The message says what to do.
        Reason::Connect if connections::advice(&message).is_some() => (Warning, String::new()),
        Reason::Connect | Reason::WrongEndpoint => {
            let advice = format!(
                "; check that the collector runs and has a pipeline for {what}, the port and the protocol (--otlp.protocol; by convention 4317 is grpc and 4318 http/protobuf), the certificates (OTEL_EXPORTER_OTLP_CERTIFICATE and _CLIENT_CERTIFICATE), and any proxy or firewall in between"
            );
            (Warning, advice)
        }
        _ => (Good, "; so it is there".to_owned()),
    };
    let text = match reason {
        // The message has host and port.
        Reason::Connect | Reason::Timeout => message + &advice,
        _ => format!("{connection}: {message}{advice}"),
    };
    Line::new(level, check, text).because(reason.into())
}
