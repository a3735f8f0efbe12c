//! Sends encoded requests and returns exactly one verdict for each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tonic::transport::Channel;
use tracing::Instrument;

use crate::settings::{Connection, Protocol};
use crate::stdout::{self, Render};
use crate::verdict::{Reason, Rejection, Verdict};
use crate::{error_chain, grpc, http};

/// The maximum time to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a silent connection is checked.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(60);

/// The maximum size of an answer, in bytes: it is a number and a message, but some say something about each record.
pub(crate) const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Accepts export requests.
pub trait Export: Send + Sync {
    /// Sends an encoded `ExportLogsServiceRequest` once.
    fn export(&self, body: Bytes) -> impl Future<Output = Verdict> + Send;
}

/// The destination of records.
#[derive(Clone, Debug)]
pub enum Target {
    /// A collector.
    Collector(Box<Connection>),
    /// Standard output, as lines.
    Stdout(Render),
}

/// A client for a target.
#[derive(Debug)]
pub struct Sender {
    target: Target,
    /// Locked during a request: there is one at a time. `None` if it has to be made again.
    client: tokio::sync::Mutex<Option<Client>>,
    certificate: Certificate,
    /// Whether the last line on standard output may be incomplete. Locked while lines are written.
    is_cut: Arc<tokio::sync::Mutex<bool>>,
}

/// The exporter's own certificates (PEM) as they were last read, if there are any.
pub type Certificate = Arc<Mutex<Option<Vec<u8>>>>;

type Loaded = (Client, Option<Vec<u8>>);

#[derive(Clone, Debug)]
enum Client {
    Grpc(Channel),
    Http(reqwest::Client),
}

// === impl Sender ===

impl Sender {
    /// Returns a sender that connects when the first request is sent. Call it inside a tokio runtime. TLS needs rustls'
    /// process-wide provider.
    ///
    /// # Errors
    /// If a certificate or key cannot be read or used.
    pub fn new(target: &Target) -> Result<Self, String> {
        let (client, certificate) = match target {
            Target::Collector(connection) => {
                let (client, certificate) = load(connection)?;
                (Some(client), certificate)
            }
            Target::Stdout(_) => (None, None),
        };
        Ok(Self {
            target: target.clone(),
            client: tokio::sync::Mutex::new(client),
            certificate: Arc::new(Mutex::new(certificate)),
            // A process that was killed may have left a part of a line.
            is_cut: Arc::new(tokio::sync::Mutex::new(true)),
        })
    }

    /// Returns the certificates that the sender presents. They change when it reads them again.
    pub fn certificate(&self) -> Certificate {
        self.certificate.clone()
    }

    async fn send(&self, connection: &Connection, body: Bytes) -> Verdict {
        let mut client = self.client.lock().await;
        let exchange = async {
            match self.client(connection, &mut client).await {
                Ok(Client::Grpc(channel)) => grpc::export(channel, connection, body).await,
                Ok(Client::Http(client)) => http::export(client, connection, body).await,
                Err(error) => Verdict::Rejected(Rejection::new(Reason::Connect, error)),
            }
        };
        let exchange = tokio::time::timeout(connection.timeout, exchange).await;
        let verdict = exchange.unwrap_or_else(|_| {
            let message = format!("no answer within {:?}", connection.timeout);
            Verdict::Rejected(Rejection::new(Reason::Timeout, message))
        });
        if may_be_stale(connection, &verdict) {
            *client = None;
        }
        verdict
    }

    /// Returns the client. If it has to be made again, the certificates are read on another thread.
    async fn client(
        &self,
        connection: &Connection,
        made: &mut Option<Client>,
    ) -> Result<Client, String> {
        if let Some(client) = made {
            return Ok(client.clone());
        }
        let connection = connection.clone();
        let loaded = tokio::task::spawn_blocking(move || load(&connection)).await;
        let (client, certificate) = loaded.map_err(|error| error.to_string())??;
        let shown = self.certificate.lock();
        *shown.unwrap_or_else(PoisonError::into_inner) = certificate;
        Ok(made.insert(client).clone())
    }
}

impl Export for Sender {
    async fn export(&self, body: Bytes) -> Verdict {
        let connection = match &self.target {
            Target::Stdout(render) => {
                return stdout::print(*render, body, self.is_cut.clone()).await;
            }
            Target::Collector(connection) => connection,
        };
        let span = span(connection, body.len());
        let request = self.send(connection, body).instrument(span.clone());
        let verdict = request.await;
        if let Some(reason) = verdict.reason() {
            span.record("error.type", reason.as_str());
        }
        verdict
    }
}

/// Returns whether another connection may do better: this one may hang until the kernel gives it up, and the certificates may
/// have been renewed. Some servers answer an expired client certificate with an HTTP error.
fn may_be_stale(connection: &Connection, verdict: &Verdict) -> bool {
    match verdict.reason() {
        Some(Reason::Connect | Reason::Timeout) => true,
        Some(Reason::Unauthorized | Reason::BadRecord) => connection.client.is_some(),
        _ => false,
    }
}

/// Reads the certificates and makes a client.
fn load(connection: &Connection) -> Result<Loaded, String> {
    let client = match connection.protocol {
        Protocol::Grpc => Client::Grpc(connection.channel()?),
        Protocol::HttpProtobuf => {
            let client = connection.http_client()?.build();
            let wrong = |error| format!("OTLP endpoint: {}", error_chain(&error));
            Client::Http(client.map_err(wrong)?)
        }
    };
    let own = connection.client.as_ref();
    let certificate = own.map(|(certificate, _)| certificate.read_pem(connection.read_file));
    Ok((client, certificate.transpose()?))
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
