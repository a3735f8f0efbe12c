//! A scripted collector: OTLP over gRPC or HTTP on a free loopback port.

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use prost::Message;
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::server::{ServerTlsConfig, TcpIncoming};
use tonic::transport::{Certificate, Identity};

use super::files::tls;

/// What the peer says to one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Accept,
    /// It takes the request and rejects so many records.
    Partial(i64, &'static str),
    Status(tonic::Status),
    /// An HTTP status with a body of a type, and perhaps `Retry-After`.
    Http(u16, &'static str, &'static str, Option<&'static str>),
    Silence,
}

/// Makes a reply to the records of these ids.
type Says = Box<dyn Fn(&[String]) -> Reply + Send + Sync>;

/// What the peer does and what it has seen.
#[derive(Default)]
pub(crate) struct Script {
    /// Replies to come, before the rules.
    pub(crate) replies: Mutex<VecDeque<Reply>>,
    /// Any request that holds a record of this id is rejected: 400, `INVALID_ARGUMENT`, unless the peer `says` something else.
    pub(crate) bad: Mutex<Vec<String>>,
    says: Mutex<Option<Says>>,
    /// It says so to every request, and takes the records.
    says_to_all: Mutex<Option<Says>>,
    /// Header fields of every answer.
    more: Mutex<HeaderMap>,
    /// The ids of every request, rejected ones too.
    pub(crate) requests: Mutex<Vec<Vec<String>>>,
    pub(crate) taken: Mutex<Vec<LogRecord>>,
    /// Checkpoints, which are nowhere else; it takes a request that has nothing else.
    pub(crate) checkpoints: Mutex<Vec<LogRecord>>,
    /// Headers of the last request, gRPC metadata included.
    pub(crate) headers: Mutex<HeaderMap>,
    pub(crate) last: Mutex<Option<ExportLogsServiceRequest>>,
}

pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Script>,
    task: tokio::task::JoinHandle<()>,
}

struct Grpc(Arc<Script>);

impl Peer {
    async fn serve<F: Future<Output: Send> + Send + 'static>(
        server: impl FnOnce(TcpListener, Arc<Script>) -> F,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Script> = Arc::default();
        let server = server(listener, script.clone());
        Self {
            address,
            script,
            task: tokio::spawn(async move { drop(server.await) }),
        }
    }

    /// A gRPC collector that takes requests of up to `limit` bytes.
    pub(crate) async fn grpc(limit: usize) -> Self {
        Self::start_grpc(limit, tonic::transport::Server::builder()).await
    }

    /// The same over TLS; clients must show a certificate.
    pub(crate) async fn grpc_tls() -> Self {
        let read = |file: &str| std::fs::read(tls(file)).unwrap();
        let config = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.pem"), read("server.key")))
            .client_ca_root(Certificate::from_pem(read("ca.pem")));
        let server = tonic::transport::Server::builder().tls_config(config);
        Self::start_grpc(4 * 1024 * 1024, server.unwrap()).await
    }

    async fn start_grpc(limit: usize, mut server: tonic::transport::Server) -> Self {
        Self::serve(|listener, script| {
            let service = LogsServiceServer::new(Grpc(script))
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(limit);
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            server.add_service(service).serve_with_incoming(incoming)
        })
        .await
    }

    /// An HTTP collector that takes requests of up to `limit` bytes at `/v1/logs`.
    pub(crate) async fn http(limit: usize) -> Self {
        let route = axum::routing::post(http_export).layer(DefaultBodyLimit::max(limit));
        let app = Router::new().route("/v1/logs", route);
        let serve = |listener, script| axum::serve(listener, app.with_state(script)).into_future();
        Self::serve(serve).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.script.replies.lock().unwrap().push_back(reply);
    }

    pub(crate) fn reject(&self, id: &str) {
        self.script.bad.lock().unwrap().push(id.to_owned());
    }

    /// Sets the reply to requests with a record that is rejected.
    pub(crate) fn says(&self, says: impl Fn(&[String]) -> Reply + Send + Sync + 'static) {
        *self.script.says.lock().unwrap() = Some(Box::new(says));
    }

    /// Sets the reply to all requests, whose records are taken.
    pub(crate) fn says_to_all(&self, says: impl Fn(&[String]) -> Reply + Send + Sync + 'static) {
        *self.script.says_to_all.lock().unwrap() = Some(Box::new(says));
    }

    /// Adds a header field to every answer.
    pub(crate) fn add_header(&self, name: &str, value: &str) {
        let (name, value): (HeaderName, _) = (name.parse().unwrap(), value.parse().unwrap());
        self.script.more.lock().unwrap().insert(name, value);
    }

    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        self.script.requests.lock().unwrap().clone()
    }

    pub(crate) fn taken_ids(&self) -> Vec<String> {
        let taken = self.script.taken.lock().unwrap();
        taken.iter().map(record_id).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Script {
    fn take(&self, request: ExportLogsServiceRequest, headers: HeaderMap) -> Reply {
        let resources = request.resource_logs.iter();
        let scopes = resources.flat_map(|logs| &logs.scope_logs);
        let records: Vec<LogRecord> = scopes.flat_map(|logs| logs.log_records.clone()).collect();
        let (checkpoints, records): (Vec<_>, Vec<_>) = records
            .into_iter()
            .partition(|record| record.event_name == "orgdata.exporter.checkpoint");
        let is_alone = records.is_empty() && !checkpoints.is_empty();
        self.checkpoints.lock().unwrap().extend(checkpoints);
        if is_alone {
            return Reply::Accept;
        }
        let ids: Vec<String> = records.iter().map(record_id).collect();
        *self.headers.lock().unwrap() = headers;
        self.requests.lock().unwrap().push(ids.clone());
        if let Some(reply) = self.replies.lock().unwrap().pop_front() {
            return reply;
        }
        let bad = self.bad.lock().unwrap();
        if ids.iter().any(|id| bad.contains(id)) {
            return match &*self.says.lock().unwrap() {
                Some(says) => says(&ids),
                None => Reply::Status(tonic::Status::invalid_argument("cannot take this record")),
            };
        }
        self.taken.lock().unwrap().extend(records);
        *self.last.lock().unwrap() = Some(request);
        let says = self.says_to_all.lock().unwrap();
        says.as_ref().map_or(Reply::Accept, |says| says(&ids))
    }
}

#[tonic::async_trait]
impl LogsService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, tonic::Status> {
        let headers = request.metadata().clone().into_headers();
        let answer = match self.0.take(request.into_inner(), headers) {
            Reply::Accept => ExportLogsServiceResponse::default(),
            Reply::Partial(rejected, message) => partial(rejected, message),
            Reply::Status(status) => return Err(status),
            Reply::Http(..) => return Err(tonic::Status::internal("a reply for HTTP")),
            Reply::Silence => std::future::pending().await,
        };
        let mut answer = tonic::Response::new(answer);
        let more = self.0.more.lock().unwrap().clone();
        *answer.metadata_mut() = MetadataMap::from_headers(more);
        Ok(answer)
    }
}

async fn http_export(
    State(script): State<Arc<Script>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut plain = Vec::new();
    let encoding = headers.get("content-encoding");
    if encoding.is_some_and(|encoding| encoding == "gzip") {
        let mut decoder = flate2::read::GzDecoder::new(&*body);
        decoder.read_to_end(&mut plain).unwrap();
    } else {
        plain = body.to_vec();
    }
    let request = ExportLogsServiceRequest::decode(plain.as_slice());
    let protobuf = |answer: ExportLogsServiceResponse| {
        let headers = [("content-type", "application/x-protobuf")];
        (headers, answer.encode_to_vec()).into_response()
    };
    let more = script.more.lock().unwrap().clone();
    let mut response = match script.take(request.unwrap(), headers) {
        Reply::Accept => protobuf(ExportLogsServiceResponse::default()),
        Reply::Partial(rejected, message) => protobuf(partial(rejected, message)),
        Reply::Status(status) => {
            let is_bad = status.code() == tonic::Code::InvalidArgument;
            let code = StatusCode::from_u16(if is_bad { 400 } else { 500 }).unwrap();
            (code, status.message().to_owned()).into_response()
        }
        Reply::Http(status, content_type, body, retry_after) => {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", content_type.parse().unwrap());
            if let Some(value) = retry_after {
                headers.insert("retry-after", value.parse().unwrap());
            }
            (StatusCode::from_u16(status).unwrap(), headers, body).into_response()
        }
        Reply::Silence => std::future::pending().await,
    };
    response.headers_mut().extend(more);
    response
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

/// Returns `log.record.uid` of a record; empty if it has none.
pub(crate) fn record_id(record: &LogRecord) -> String {
    let mut attributes = record.attributes.iter();
    let uid = attributes.find(|attribute| attribute.key == "log.record.uid");
    match uid.and_then(|uid| uid.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(id)) => id.clone(),
        _ => String::new(),
    }
}
