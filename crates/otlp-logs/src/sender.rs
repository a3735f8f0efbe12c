//! Sends requests and returns exactly one verdict for each.

use std::sync::{Arc, Mutex, PoisonError};

use connections::{Outcome, Renewed, error_chain};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message as _;
use tokio::time::Instant;
use tonic::transport::Channel;
use tracing::Instrument;

use crate::settings::{Connection, Protocol};
use crate::stdout::{self, Render};
use crate::verdict::{Reason, Rejection, Verdict};
use crate::{grpc, http};

/// Accepts export requests.
pub trait Export: Send + Sync {
    /// Sends a request once. One without records only asks whether there is a collector.
    fn export(&self, request: ExportLogsServiceRequest) -> impl Future<Output = Verdict> + Send;
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
    output: Output,
    certificate: Certificate,
}

#[derive(Debug)]
enum Output {
    Collector(Box<Connection>, Renewed<Client>),
    Stdout {
        render: Render,
        /// Whether the last line may be incomplete. Locked while lines are written.
        is_cut: Arc<tokio::sync::Mutex<bool>>,
    },
}

/// The exporter's own certificates (PEM) as they were last read, if there are any.
pub type Certificate = Arc<Mutex<Option<Vec<u8>>>>;

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
        let certificate = Certificate::default();
        let output = match target {
            Target::Collector(connection) => {
                let (of, shown) = (connection.clone(), certificate.clone());
                let client = Renewed::new(move || load(&of, &shown))?;
                Output::Collector(connection.clone(), client)
            }
            Target::Stdout(render) => Output::Stdout {
                render: *render,
                // A process that was killed may have left a part of a line.
                is_cut: Arc::new(tokio::sync::Mutex::new(true)),
            },
        };
        Ok(Self {
            output,
            certificate,
        })
    }

    /// Returns the certificates that the sender presents. They change when it reads them again.
    pub fn certificate(&self) -> Certificate {
        self.certificate.clone()
    }
}

impl Export for Sender {
    async fn export(&self, request: ExportLogsServiceRequest) -> Verdict {
        let (connection, client) = match &self.output {
            Output::Stdout { render, is_cut } => {
                return stdout::print(*render, request, is_cut.clone()).await;
            }
            Output::Collector(connection, client) => (connection, client),
        };
        let span = span(connection, &request);
        let request = send(connection, client.client().await, request);
        let mut verdict = request.instrument(span.clone()).await;
        if let Verdict::Rejected(rejection) = &mut verdict
            && matches!(rejection.reason, Reason::Connect | Reason::Timeout)
        {
            rejection.message = format!("{}: {}", connection.peer(), rejection.message);
        }
        client.report(outcome(&verdict)).await;
        if let Some(reason) = verdict.reason() {
            span.record("error.type", reason.as_ref());
        }
        verdict
    }
}

/// Sends a request within the time limit.
async fn send(
    connection: &Connection,
    client: Client,
    request: ExportLogsServiceRequest,
) -> Verdict {
    let deadline = Instant::now() + connection.timeout;
    let exchange = async {
        let headers = match connection.request_headers(deadline).await {
            Ok(headers) => headers,
            Err(error) => return Verdict::Rejected(Rejection::new(Reason::Unauthorized, error)),
        };
        match client {
            Client::Grpc(channel) => grpc::export(channel, connection, headers, request).await,
            Client::Http(client) => {
                let body = request.encode_to_vec().into();
                drop(request);
                http::export(client, connection, headers, body).await
            }
        }
    };
    let exchange = tokio::time::timeout_at(deadline, exchange).await;
    exchange.unwrap_or_else(|_| {
        let message = format!("no answer within {:?}", connection.timeout);
        Verdict::Rejected(Rejection::new(Reason::Timeout, message))
    })
}

fn outcome(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Accepted | Verdict::Warned { .. } | Verdict::PartlyRejected { .. } => {
            Outcome::Success
        }
        Verdict::Rejected(rejection) => match rejection.reason {
            Reason::Connect | Reason::Timeout => Outcome::Broken,
            _ => Outcome::Error,
        },
    }
}

/// Reads the certificates and makes a client.
fn load(connection: &Connection, shown: &Certificate) -> Result<Client, String> {
    let client = match connection.protocol {
        Protocol::Grpc => connection.channel().map(Client::Grpc),
        Protocol::HttpProtobuf => connection.http_client().and_then(|client| {
            let wrong = |error| format!("OTLP endpoint: {}", error_chain(&error));
            client.build().map(Client::Http).map_err(wrong)
        }),
    };
    let client = client.map_err(|error| match connections::advice(&error) {
        Some(advice) => format!("{error}; {advice}"),
        None => error,
    })?;
    if let Some((certificate, _)) = &connection.client {
        let pem = certificate.read_pem(connection.read_file)?;
        *shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(pem);
    }
    Ok(client)
}

/// Returns a span with the names of the semantic conventions.
fn span(connection: &Connection, request: &ExportLogsServiceRequest) -> tracing::Span {
    tracing::info_span!(
        "export",
        otel.name = "opentelemetry.proto.collector.logs.v1.LogsService/Export",
        otel.kind = "client",
        url.full = connection.place(),
        server.address = connection.endpoint.host_str().unwrap_or_default(),
        server.port = connection.endpoint.port_or_known_default(),
        network.protocol.name = connection.protocol.as_str(),
        request.size = request.encoded_len(),
        rpc.grpc.status_code = tracing::field::Empty,
        http.response.status_code = tracing::field::Empty,
        error.r#type = tracing::field::Empty,
    )
}
