//! The exporter's own spans: they are sent like log records, and a collector that refuses them is one warning.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use orgdata_exporter::simulator::Running;
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

use crate::check::TLS;
use crate::support::binary::{Exporter, exporter, until};
use crate::support::collector_peer::{tls_server, unzipped};
use crate::support::service::organization;

/// Requests and their headers.
#[derive(Clone, Default)]
struct Traces {
    taken: Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>,
    is_broken: Arc<Mutex<bool>>,
}

impl Traces {
    /// Waits until so many requests have come.
    async fn until(&self, requests: usize) {
        let come = async || (self.taken.lock().unwrap().len() >= requests).then_some(());
        until("requests with spans", come).await;
    }

    /// Asserts that a request has spans and the resource and headers of the environment.
    fn check(&self) {
        let taken = self.taken.lock().unwrap();
        let (headers, request) = taken.first().unwrap();
        assert_eq!(headers["authorization"], "Bearer a b");
        let resource = request.resource_spans[0].resource.clone().unwrap();
        let resource = format!("{resource:?}");
        for text in ["te=am", "x y", "orgdata-exporter", "telemetry.sdk.name"] {
            assert!(resource.contains(text), "{text}: {resource}");
        }
        assert!(!request.resource_spans[0].scope_spans[0].spans.is_empty());
    }
}

#[tonic::async_trait]
impl TraceService for Traces {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let headers = request.metadata().clone().into_headers();
        let taken = (headers, request.into_inner());
        self.taken.lock().unwrap().push(taken);
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector over HTTP that takes compressed requests at the path of traces.
async fn http(traces: Traces) -> String {
    let export = async move |headers: HeaderMap, body: Bytes| {
        let plain = unzipped(&body);
        let request = ExportTraceServiceRequest::decode(plain.as_slice()).unwrap();
        traces.taken.lock().unwrap().push((headers, request));
        match *traces.is_broken.lock().unwrap() {
            true => StatusCode::INTERNAL_SERVER_ERROR,
            false => StatusCode::OK,
        }
    };
    let app = Router::new().route("/v1/traces", axum::routing::post(export));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    format!("http://{address}")
}

/// An exporter with variables that the SDK alone would read in another way.
async fn launch(variables: &[(&str, &str)]) -> (Exporter, Running) {
    let api = organization(0, 0).await;
    let mut launch = exporter(&api.base_url());
    for (name, value) in variables {
        launch = launch.env(&format!("OTEL_EXPORTER_OTLP_{name}"), value);
    }
    let launch = launch
        .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20a%20b")
        .env("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "")
        .env("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "")
        .env("OTEL_LOGS_EXPORTER", "none")
        .env("OTEL_RESOURCE_ATTRIBUTES", "te%3Dam=x%20y")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50");
    (launch.start(), api)
}

#[tokio::test]
async fn they_have_certificates_headers_and_resource_of_the_environment() {
    let traces = Traces::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let server = tls_server(TLS).add_service(TraceServiceServer::new(traces.clone()));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let file = |file: &str| format!("{TLS}{file}");
    let (exporter, _api) = launch(&[
        ("TRACES_ENDPOINT", &endpoint),
        ("PROTOCOL", "grpc"),
        ("CERTIFICATE", &file("ca.pem")),
        ("CLIENT_CERTIFICATE", &file("client.pem")),
        ("CLIENT_KEY", &file("client.key")),
    ])
    .await;
    traces.until(1).await;
    traces.check();
    assert_eq!(exporter.stderr().count("spans"), 0);
}

#[tokio::test]
async fn over_http_they_are_compressed_and_a_failing_collector_is_one_warning() {
    let traces = Traces::default();
    *traces.is_broken.lock().unwrap() = true;
    let endpoint = http(traces.clone()).await;
    let (exporter, _api) = launch(&[
        ("ENDPOINT", &endpoint),
        ("PROTOCOL", "http/protobuf"),
        ("COMPRESSION", "gzip"),
    ])
    .await;
    traces.until(4).await;
    traces.check();
    assert_eq!(exporter.stderr().count("cannot export spans"), 1);
    *traces.is_broken.lock().unwrap() = false;
    exporter.logs("spans are exported again").await;
}
