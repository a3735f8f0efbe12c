//! The collector: every way in which it does not accept records has a line with what to do, and no record is sent.

use tonic::{Code, Status};

use super::{TLS, check, expect, service};
use crate::otlp::{DEFAULT_LIMIT as LIMIT, peer};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply};
use crate::web_config;

const HTTP: &str = "http/protobuf";

fn with(api: &str, protocol: &str, endpoint: &str) -> Launch {
    let launch = check(api).otlp(protocol, endpoint);
    launch.env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
}

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    let status = |code| Reply::Status(Status::new(code, "oops"));
    let http = |status| Reply::Http(status, "text/plain", "oops", None);
    for (protocol, reply, expected) in [
        ("grpc", status(Code::Unauthenticated), "warning: HEADERS"),
        ("grpc", status(Code::Unimplemented), "warning: pipeline"),
        (HTTP, Reply::Silence, "warning: no answer within 2s"),
        (HTTP, http(404), "warning: HTTP 404 | path"),
        (HTTP, http(200), "warning: --otlp.protocol"),
        (
            "grpc",
            status(Code::Unavailable),
            "warning: Unavailable | takes no log records at present",
        ),
        // These show that it is there.
        (HTTP, http(413), "good: HTTP 413"),
        (HTTP, Reply::Partial(1, "oops"), "good: accepts"),
    ] {
        let peer = peer(protocol, LIMIT).await;
        peer.reply(reply);
        let expected = expected.replace(':', " collector:");
        expect(with(&api.base_url(), protocol, &peer.url()), &expected).await;
    }
    // One that accepts records gets none, and the headers.
    for protocol in ["grpc", HTTP] {
        let peer = peer(protocol, LIMIT).await;
        let launch = with(&api.base_url(), protocol, &peer.url());
        let launch = launch.env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme");
        let expected = format!("good collector: over {protocol} accepts log records");
        expect(launch, &expected).await;
        assert_eq!(peer.requests(), [Vec::<String>::new()], "{protocol}");
        let headers = peer.script.headers.lock().unwrap();
        assert_eq!(headers["x-tenant"], "acme");
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let api = service().await;
    let (grpc, http) = (peer("grpc", LIMIT).await, peer(HTTP, LIMIT).await);
    let tls = Peer::grpc_tls(TLS).await;
    let secure = web_config::Server::start(web_config::TLS).await;
    let tls = format!("https://localhost:{}", tls.address.port());
    let plain = http.url().replace("http", "https");
    for (protocol, endpoint, words) in [
        (HTTP, &*grpc.url(), "--otlp.protocol"),
        ("grpc", &http.url(), "HTTP 404 | --otlp.protocol"),
        ("grpc", "http://127.0.0.1:1", "connection refused"),
        (HTTP, "http://no-such-host.invalid", "failed to lookup"),
        (HTTP, &plain, "that port speaks plain HTTP"),
        ("grpc", &tls, "UnknownIssuer | OTLP_CERTIFICATE"),
        (HTTP, &secure.url("https", ""), "UnknownIssuer"),
    ] {
        let launch = with(&api.base_url(), protocol, endpoint);
        expect(launch, &format!("warning collector: {words}")).await;
    }
}

#[tokio::test]
async fn the_endpoint_of_traces_is_tried_too() {
    let api = service().await;
    let (grpc, http) = (peer("grpc", LIMIT).await, peer(HTTP, LIMIT).await);
    let path = |path: &str| format!("{}{path}", http.url());
    let other = "ftp://there".to_owned();
    for (protocol, endpoint, expected) in [
        // A collector that takes log records only.
        ("grpc", grpc.url(), "warning traces: pipeline for spans"),
        (HTTP, path("/v1/traces"), "warning traces: HTTP 404"),
        (HTTP, path("/v1/logs"), ""),
        ("grpc", other, "warning traces: without spans"),
    ] {
        let launch = check(&api.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint)
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol);
        expect(launch, expected).await;
    }
    // If spans are off, it is not named.
    let off = check(&api.base_url())
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
        .env("OTEL_TRACES_EXPORTER", "none");
    let checked = expect(off, "").await;
    assert!(!checked.0.contains("traces"), "{}", checked.0);
}
