//! The exporter's own spans: they are sent like log records, and a collector that rejects them is one warning.

use std::sync::{Arc, Mutex};

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;

use crate::check::TLS;
use crate::support::binary::{exporter, until};
use crate::support::collector_peer::tls_server;
use crate::support::service::organization;

/// Requests and their headers. The first four are rejected.
#[derive(Clone, Default)]
struct Traces(Arc<Mutex<Vec<(HeaderMap, ExportTraceServiceRequest)>>>);

#[tonic::async_trait]
impl TraceService for Traces {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let headers = request.metadata().clone().into_headers();
        let mut taken = self.0.lock().unwrap();
        taken.push((headers, request.into_inner()));
        match taken.len() {
            ..5 => Err(tonic::Status::internal("broken")),
            _ => Ok(tonic::Response::new(ExportTraceServiceResponse::default())),
        }
    }
}

/// Some of these variables the SDK alone would read in another way.
#[tokio::test]
async fn they_have_certificates_headers_and_resource_of_the_environment() {
    let traces = Traces::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(traces.clone());
    let service = service.accept_compressed(CompressionEncoding::Gzip);
    let server = tls_server(TLS).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let api = organization(0, 0).await;
    let file = |file: &str| format!("{TLS}{file}");
    let launch = [
        ("OTLP_TRACES_ENDPOINT", &*endpoint),
        ("OTLP_PROTOCOL", "grpc"),
        ("OTLP_COMPRESSION", "gzip"),
        ("OTLP_CERTIFICATE", &file("ca.pem")),
        ("OTLP_CLIENT_CERTIFICATE", &file("client.pem")),
        ("OTLP_CLIENT_KEY", &file("client.key")),
        ("OTLP_HEADERS", "authorization=Bearer%20a%20b"),
        ("OTLP_TRACES_HEADERS", ""),
        ("OTLP_TRACES_TIMEOUT", ""),
    ]
    .into_iter()
    .fold(exporter(&api.base_url()), |launch, (name, value)| {
        launch.env(&format!("OTEL_EXPORTER_{name}"), value)
    });
    let exporter = launch
        .env("OTEL_LOGS_EXPORTER", "none")
        .env("OTEL_RESOURCE_ATTRIBUTES", "te%3Dam=x%20y")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .start();
    let come = async || (traces.0.lock().unwrap().len() >= 4).then_some(());
    until("requests with spans", come).await;
    exporter.logs("spans are exported again").await;
    assert_eq!(exporter.stderr().count("cannot export spans"), 1);

    let taken = traces.0.lock().unwrap();
    let (headers, request) = &taken[0];
    assert_eq!(headers["authorization"], "Bearer a b");
    assert_eq!(headers["grpc-encoding"], "gzip");
    let spans = &request.resource_spans[0];
    let resource = format!("{:?}", spans.resource);
    for text in ["te=am", "x y", "orgdata-exporter", "telemetry.sdk.name"] {
        assert!(resource.contains(text), "{text}: {resource}");
    }
    assert!(!spans.scope_spans[0].spans.is_empty());
}
