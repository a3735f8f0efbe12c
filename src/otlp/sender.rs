//! Sends one encoded request and gives exactly one verdict, whatever the protocol.

use bytes::Bytes;
use http::HeaderMap;
use tracing::Instrument;

use super::grpc::GrpcSender;
use super::http::HttpSender;
use super::settings::{Connection, Protocol, Settings, SettingsError, Target};
use super::stdout::StdoutSender;
use super::verdict::Verdict;

/// A header's value at least so long is taken out of what the collector says, in bytes; a shorter one is no secret.
const SECRET_BYTES: usize = 6;

/// What stands for such a value.
const HIDDEN: &str = "[a header's value]";

/// Something that takes export requests; tests script it.
pub trait Export: Send + Sync {
    /// Sends an encoded `ExportLogsServiceRequest`; exactly one request leaves.
    fn export(&self, body: Bytes) -> impl Future<Output = Verdict> + Send;
}

/// A client of whatever the settings name.
#[derive(Debug)]
pub enum Sender {
    /// A collector, over gRPC.
    Grpc(Box<Connection>, GrpcSender),
    /// A collector, over HTTP.
    Http(Box<Connection>, HttpSender),
    /// Standard output.
    Stdout(StdoutSender),
}

// === impl Sender ===

impl Sender {
    /// A sender for these settings; it connects when the first request is sent. TLS needs rustls' process-wide provider.
    ///
    /// # Errors
    /// Where a certificate or key cannot be read or used.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        match &settings.target {
            Target::Stdout => Ok(Self::Stdout(StdoutSender::default())),
            Target::Collector(connection) => match connection.protocol {
                Protocol::Grpc => Ok(Self::Grpc(connection.clone(), GrpcSender::new(connection)?)),
                Protocol::HttpProtobuf => {
                    Ok(Self::Http(connection.clone(), HttpSender::new(connection)?))
                }
            },
        }
    }

    /// A span with the semantic conventions' names for the protocol.
    fn span(connection: &Connection, bytes: usize) -> tracing::Span {
        let host = connection.endpoint.host_str().unwrap_or_default();
        let port = connection
            .endpoint
            .port_or_known_default()
            .unwrap_or_default();
        match connection.protocol {
            Protocol::Grpc => tracing::info_span!(
                "export",
                otel.name = "opentelemetry.proto.collector.logs.v1.LogsService/Export",
                otel.kind = "client",
                rpc.system = "grpc",
                rpc.service = "opentelemetry.proto.collector.logs.v1.LogsService",
                rpc.method = "Export",
                server.address = host,
                server.port = port,
                rpc.request.size = bytes,
                rpc.grpc.status_code = tracing::field::Empty,
                error.r#type = tracing::field::Empty,
            ),
            Protocol::HttpProtobuf => tracing::info_span!(
                "export",
                otel.name = format!("POST {}", connection.endpoint.path()),
                otel.kind = "client",
                http.request.method = "POST",
                url.full = connection.place(),
                server.address = host,
                server.port = port,
                http.request.body.size = bytes,
                http.response.status_code = tracing::field::Empty,
                error.r#type = tracing::field::Empty,
            ),
        }
    }
}

/// Takes the values of the headers out of a text: some servers repeat a token that they refuse.
fn hide(text: &mut String, headers: &HeaderMap) {
    for value in headers.values().filter_map(|value| value.to_str().ok()) {
        let scheme_and_token = std::iter::once(value).chain(value.split(' '));
        for secret in scheme_and_token
            .filter(|secret| secret.len() >= SECRET_BYTES && !secret.eq_ignore_ascii_case("bearer"))
        {
            if text.contains(secret) {
                *text = text.replace(secret, HIDDEN);
            }
            // What was cut off in the middle of it.
            let Some(cut) = text.strip_suffix('…') else {
                continue;
            };
            let part = secret
                .char_indices()
                .map(|(index, _)| &secret[..index])
                .filter(|part| part.len() >= SECRET_BYTES);
            if let Some(rest) = part.rev().find_map(|part| cut.strip_suffix(part)) {
                *text = format!("{rest}{HIDDEN}…");
            }
        }
    }
}

impl Export for Sender {
    async fn export(&self, body: Bytes) -> Verdict {
        let (span, connection, mut verdict) = match self {
            Self::Stdout(sender) => return sender.export(&body),
            Self::Grpc(connection, sender) => {
                let span = Self::span(connection, body.len());
                (
                    span.clone(),
                    connection,
                    sender.export(body).instrument(span).await,
                )
            }
            Self::Http(connection, sender) => {
                let span = Self::span(connection, body.len());
                (
                    span.clone(),
                    connection,
                    sender.export(body).instrument(span).await,
                )
            }
        };
        if let Some(words) = verdict.words() {
            hide(words, &connection.headers);
        }
        if let Some(reason) = verdict.reason() {
            span.record("error.type", reason.as_str());
        }
        verdict
    }
}
