//! A collector that does as it is told: OTLP over gRPC or HTTP on a free loopback port.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum_server::tls_rustls::RustlsConfig;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::{ServerTlsConfig, TcpIncoming};
use tonic::transport::{Certificate, Identity};

/// What the peer says to one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// It takes the records.
    Accept,
    /// It takes the request and refuses so many records.
    Partial(i64, &'static str),
    /// A gRPC status. Over HTTP it is a 500.
    Status(tonic::Status),
    /// An HTTP status with a body of a type, and perhaps `Retry-After`.
    Http(u16, &'static str, &'static str, Option<&'static str>),
    /// Nothing, ever.
    Silence,
}

/// What the peer does and what it has seen.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Replies to come, before the rules.
    pub(crate) replies: Mutex<VecDeque<Reply>>,
    /// Any request that holds a record of this id is refused: 400, `INVALID_ARGUMENT`.
    pub(crate) bad: Mutex<Vec<String>>,
    /// The ids of every request, refused ones too.
    pub(crate) requests: Mutex<Vec<Vec<String>>>,
    /// Records that were taken.
    pub(crate) taken: Mutex<Vec<LogRecord>>,
    /// Headers of the last request, gRPC metadata included.
    pub(crate) headers: Mutex<HeaderMap>,
    /// The last request that was taken.
    pub(crate) last: Mutex<Option<ExportLogsServiceRequest>>,
}

/// A running peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Script>,
    task: tokio::task::JoinHandle<()>,
}

struct Grpc(Arc<Script>);

// === impl Peer ===

impl Peer {
    /// A gRPC collector that takes requests of up to `limit` bytes.
    pub(crate) async fn grpc(limit: usize) -> Self {
        Self::start_grpc(limit, None).await
    }

    /// The same over TLS, with the certificates of a directory; clients must show one.
    pub(crate) async fn grpc_tls(directory: &str) -> Self {
        let read = |file: &str| std::fs::read(format!("{directory}{file}")).expect("a file");
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.pem"), read("server.key")))
            .client_ca_root(Certificate::from_pem(read("ca.pem")));
        Self::start_grpc(4 * 1024 * 1024, Some(tls)).await
    }

    async fn start_grpc(limit: usize, tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, script) = (
            listener.local_addr().expect("bound"),
            Arc::new(Script::default()),
        );
        let service = LogsServiceServer::new(Grpc(script.clone()))
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(limit);
        let mut server = tonic::transport::Server::builder();
        if let Some(tls) = tls {
            server = server.tls_config(tls).expect("a TLS configuration");
        }
        let serve = server
            .add_service(service)
            .serve_with_incoming(TcpIncoming::from(listener));
        let task = tokio::spawn(async move { serve.await.expect("serves") });
        Self {
            address,
            script,
            task,
        }
    }

    /// An HTTP collector that takes requests of up to `limit` bytes at `/v1/logs`.
    pub(crate) async fn http(limit: usize) -> Self {
        Self::start_http(limit, None).await
    }

    /// The same over TLS, with the certificates of a directory; clients must show one.
    pub(crate) async fn http_tls(directory: &str) -> Self {
        let path = |file: &str| format!("{directory}{file}");
        let chain = |file: &str| {
            let chain = CertificateDer::pem_file_iter(path(file)).expect("a file");
            chain.map(|certificate| certificate.expect("a certificate"))
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(chain("ca.pem"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .build()
                .expect("a verifier");
        let key = PrivateKeyDer::from_pem_file(path("server.key")).expect("a key");
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(chain("server.pem").collect(), key)
            .expect("a certificate");
        Self::start_http(4 * 1024 * 1024, Some(Arc::new(config))).await
    }

    async fn start_http(limit: usize, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let (address, script) = (
            listener.local_addr().expect("bound"),
            Arc::new(Script::default()),
        );
        let route =
            axum::routing::post(http_export).layer(axum::extract::DefaultBodyLimit::max(limit));
        let app = Router::new()
            .route("/v1/logs", route)
            .with_state(script.clone())
            .into_make_service();
        let task = match tls {
            None => tokio::spawn(async move {
                let server = axum_server::from_tcp(listener).expect("a listener");
                server.serve(app).await.expect("serves");
            }),
            Some(config) => tokio::spawn(async move {
                let config = RustlsConfig::from_config(config);
                let server = axum_server::from_tcp_rustls(listener, config).expect("a listener");
                server.serve(app).await.expect("serves");
            }),
        };
        Self {
            address,
            script,
            task,
        }
    }

    /// Something that takes connections and closes them at the first byte.
    pub(crate) async fn hangs_up() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                stream.readable().await.expect("readable");
            }
        });
        Self {
            address,
            script: Arc::default(),
            task,
        }
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.script.replies.lock().expect("lock").push_back(reply);
    }

    pub(crate) fn refuse(&self, id: &str) {
        self.script.bad.lock().expect("lock").push(id.to_owned());
    }

    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        self.script.requests.lock().expect("lock").clone()
    }

    pub(crate) fn taken_ids(&self) -> Vec<String> {
        self.script
            .taken
            .lock()
            .expect("lock")
            .iter()
            .map(record_id)
            .collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Script ===

impl Script {
    fn take(&self, request: ExportLogsServiceRequest, headers: HeaderMap) -> Reply {
        let records: Vec<LogRecord> = request
            .resource_logs
            .iter()
            .flat_map(|logs| &logs.scope_logs)
            .flat_map(|logs| logs.log_records.clone())
            .collect();
        let ids: Vec<String> = records.iter().map(record_id).collect();
        *self.headers.lock().expect("lock") = headers;
        self.requests.lock().expect("lock").push(ids.clone());
        if let Some(reply) = self.replies.lock().expect("lock").pop_front() {
            return reply;
        }
        if ids
            .iter()
            .any(|id| self.bad.lock().expect("lock").contains(id))
        {
            return Reply::Status(tonic::Status::invalid_argument("cannot take this record"));
        }
        self.taken.lock().expect("lock").extend(records);
        *self.last.lock().expect("lock") = Some(request);
        Reply::Accept
    }
}

// === impl Grpc ===

#[tonic::async_trait]
impl LogsService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, tonic::Status> {
        let headers = request.metadata().clone().into_headers();
        match self.0.take(request.into_inner(), headers) {
            Reply::Accept => Ok(tonic::Response::new(ExportLogsServiceResponse::default())),
            Reply::Partial(rejected, message) => {
                Ok(tonic::Response::new(partial(rejected, message)))
            }
            Reply::Status(status) => Err(status),
            Reply::Http(..) => Err(tonic::Status::internal("a reply for HTTP")),
            Reply::Silence => std::future::pending().await,
        }
    }
}

async fn http_export(
    State(script): State<Arc<Script>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = if headers
        .get("content-encoding")
        .is_some_and(|encoding| encoding == "gzip")
    {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(body.as_ref())
            .read_to_end(&mut plain)
            .expect("gzip");
        plain
    } else {
        body.to_vec()
    };
    let request = ExportLogsServiceRequest::decode(body.as_slice()).expect("a request");
    let protobuf = |answer: ExportLogsServiceResponse| {
        (
            [("content-type", "application/x-protobuf")],
            answer.encode_to_vec(),
        )
            .into_response()
    };
    match script.take(request, headers) {
        Reply::Accept => protobuf(ExportLogsServiceResponse::default()),
        Reply::Partial(rejected, message) => protobuf(partial(rejected, message)),
        Reply::Status(status) => {
            let code = if status.code() == tonic::Code::InvalidArgument {
                400
            } else {
                500
            };
            (
                StatusCode::from_u16(code).expect("a status"),
                status.message().to_owned(),
            )
                .into_response()
        }
        Reply::Http(status, content_type, body, retry_after) => {
            let mut response = (
                StatusCode::from_u16(status).expect("a status"),
                [("content-type", content_type)],
                body,
            )
                .into_response();
            if let Some(retry_after) = retry_after {
                response
                    .headers_mut()
                    .insert("retry-after", http::HeaderValue::from_static(retry_after));
            }
            response
        }
        Reply::Silence => std::future::pending().await,
    }
}

fn partial(rejected: i64, message: &str) -> ExportLogsServiceResponse {
    let partial = ExportLogsPartialSuccess {
        rejected_log_records: rejected,
        error_message: message.to_owned(),
    };
    ExportLogsServiceResponse {
        partial_success: Some(partial),
    }
}

/// `log.record.uid` of a record.
pub(crate) fn record_id(record: &LogRecord) -> String {
    let uid = record
        .attributes
        .iter()
        .find(|attribute| attribute.key == "log.record.uid");
    match uid
        .and_then(|uid| uid.value.as_ref())
        .and_then(|value| value.value.as_ref())
    {
        Some(Value::StringValue(id)) => id.clone(),
        _ => String::new(),
    }
}
