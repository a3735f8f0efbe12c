//! Sends encoded requests and returns exactly one verdict for each, over either protocol.

use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tonic::transport::Channel;
use tracing::Instrument;

use super::settings::{Connection, Protocol, Settings, Target};
use super::stdout;
use super::verdict::{FailureReason, Refusal, Verdict};
use super::{grpc, http};
use crate::util::{error_chain, shown_duration};

/// The name of the exporter in requests.
pub(super) const USER_AGENT: &str = concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION"));

/// The maximum time to connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent connection is checked.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(60);

/// The maximum size of an answer, in bytes: it is a number and a message, but some say something about each record.
pub(super) const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Accepts export requests.
pub trait Export: Send + Sync {
    /// Sends an encoded `ExportLogsServiceRequest` once.
    fn export(&self, body: Bytes) -> impl Future<Output = Verdict> + Send;
}

/// A client for the target of the settings.
#[derive(Debug)]
pub struct Sender {
    /// `None` for standard output.
    connection: Option<(Box<Connection>, ArcSwap<Client>)>,
}

#[derive(Debug)]
enum Client {
    Grpc(Channel),
    Http(reqwest::Client),
}

// === impl Sender ===

impl Sender {
    /// Returns a sender that connects when the first request is sent. TLS needs rustls' process-wide provider.
    ///
    /// # Errors
    /// If a certificate or key cannot be read or used.
    pub fn new(settings: &Settings) -> Result<Self, String> {
        let connection = match &settings.target {
            Target::Stdout => None,
            Target::Collector(connection) => {
                let client = ArcSwap::from_pointee(Client::new(connection)?);
                Some((connection.clone(), client))
            }
        };
        Ok(Self { connection })
    }
}

impl Export for Sender {
    async fn export(&self, body: Bytes) -> Verdict {
        let Some((connection, client)) = &self.connection else {
            return stdout::print(body);
        };
        let span = span(connection, body.len());
        let request = client.load_full();
        let request = async {
            match &*request {
                Client::Grpc(channel) => grpc::export(channel.clone(), connection, body).await,
                Client::Http(client) => http::export(client.clone(), connection, body).await,
            }
        };
        let request = tokio::time::timeout(connection.timeout, request.instrument(span.clone()));
        let verdict = request.await.unwrap_or_else(|_| {
            let limit = shown_duration(connection.timeout);
            let message = format!("no answer within {limit}");
            Verdict::Refused(Refusal::new(FailureReason::Timeout, message))
        });
        if let Some(reason) = verdict.reason() {
            span.record("error.type", reason.as_str());
            // A connection may hang until the kernel gives it up, and the certificates may have been renewed. Some servers answer an expired
            // client certificate with an HTTP error.
            use FailureReason as R;
            let may_be_stale = match reason {
                R::Connect | R::Timeout => true,
                R::Unauthorized | R::BadRecord | R::Other => connection.client.is_some(),
                _ => false,
            };
            if may_be_stale {
                match Client::new(connection) {
                    Ok(new) => client.store(new.into()),
                    Err(error) => tracing::warn!(%error, "cannot read the certificates again"),
                }
            }
        }
        verdict
    }
}

// === impl Client ===

impl Client {
    fn new(connection: &Connection) -> Result<Self, String> {
        match connection.protocol {
            Protocol::Grpc => grpc::channel(connection).map(Self::Grpc),
            Protocol::HttpProtobuf => {
                let client = http::client(connection)?.build();
                client
                    .map(Self::Http)
                    .map_err(|error| format!("OTLP endpoint: {}", error_chain(&error)))
            }
        }
    }
}

/// Returns a span with the names of the semantic conventions.
fn span(connection: &Connection, bytes: usize) -> tracing::Span {
    tracing::info_span!(
        "export",
        otel.name = "opentelemetry.proto.collector.logs.v1.LogsService/Export",
        otel.kind = "client",
        url.full = connection.place(),
        server.address = connection.endpoint.host_str().unwrap_or_default(),
        server.port = connection.endpoint.port_or_known_default(),
        network.protocol.name = connection.protocol.as_str(),
        request.size = bytes,
        rpc.grpc.status_code = tracing::field::Empty,
        http.response.status_code = tracing::field::Empty,
        error.r#type = tracing::field::Empty,
    )
}
