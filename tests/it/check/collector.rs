//! The collector: every way in which it does not accept records has a line with what to do, and no record is sent.

use tonic::{Code, Status};

use super::{check, expect, service};
use crate::otlp::{DEFAULT_LIMIT as LIMIT, peer};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply};

const HTTP: &str = "http/protobuf";

fn with(api: &str, protocol: &str, endpoint: &str) -> Launch {
    let launch = check(api).otlp(protocol, endpoint);
    launch.env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
}

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    let status = |code| Reply::Status(Status::new(code, "oops"));
    for (protocol, reply, expected) in [
        ("grpc", status(Code::Unauthenticated), "warning: HEADERS"),
        ("grpc", status(Code::Unimplemented), "warning: pipeline"),
        ("grpc", status(Code::Unavailable), "warning: at present"),
        (HTTP, Reply::Silence, "not tested: no answer within 2s"),
        // It is there.
        ("grpc", status(Code::InvalidArgument), "good: it is there"),
        (
            HTTP,
            Reply::Accept,
            "good: over http/protobuf (--otlp.endpoint) accepts log records",
        ),
    ] {
        let peer = peer(protocol, LIMIT).await;
        peer.reply(reply);
        let launch = with(&api.base_url(), protocol, &peer.url());
        let launch = launch.env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme");
        expect(launch, &expected.replace(':', " collector:")).await;
        let no_record = [Vec::<String>::new()];
        assert_eq!(peer.requests(), no_record, "{expected}");
        let headers = peer.script.headers.lock().unwrap();
        assert_eq!(headers["x-tenant"], "acme");
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let api = service().await;
    let (grpc, secure) = (peer("grpc", LIMIT).await, Peer::grpc_tls().await);
    let secure = format!("https://localhost:{}", secure.address.port());
    for (protocol, endpoint, words) in [
        (HTTP, &*grpc.url(), "--otlp.protocol"),
        (
            "grpc",
            "http://127.0.0.1:1",
            "127.0.0.1, port 1 (--otlp.endpoint): | connection refused",
        ),
        (
            "grpc",
            "localhost:1",
            "localhost, port 1 (--otlp.endpoint, without a scheme: https):",
        ),
        ("grpc", &secure, "UnknownIssuer | OTLP_CERTIFICATE"),
    ] {
        let launch = with(&api.base_url(), protocol, endpoint);
        expect(launch, &format!("warning collector: {words}")).await;
    }
}

#[tokio::test]
async fn the_endpoint_of_traces_is_tried_too() {
    let api = service().await;
    let (grpc, http) = (peer("grpc", LIMIT).await, peer(HTTP, LIMIT).await);
    let http = format!("{}/v1/logs", http.url());
    for (protocol, endpoint, expected) in [
        // A collector that takes log records only.
        ("grpc", &*grpc.url(), "warning traces: pipeline for spans"),
        (HTTP, &http, "good traces: accepts spans"),
        ("grpc", "ftp://there", "warning traces: without spans"),
        (
            "grpc",
            "http://127.0.0.1:1",
            "warning traces: port 1 (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT):",
        ),
    ] {
        let launch = check(&api.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol);
        expect(launch, expected).await;
    }
}
