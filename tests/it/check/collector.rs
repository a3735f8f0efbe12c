//! The collector: every way in which it does not accept records has a line with what to do, and no record is sent.

use super::{TLS, check, expect, service};
use crate::otlp::{DEFAULT_LIMIT as LIMIT, peer};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply};
use crate::web_config;

fn with(api: &str, protocol: &str, endpoint: &str) -> Launch {
    let launch = check(api).otlp(protocol, endpoint);
    launch.env("OTEL_EXPORTER_OTLP_TIMEOUT", "2000")
}

/// Answers and what the report says. A gRPC answer is the name of a code, an HTTP answer a status.
const ANSWERS: &str = "
grpc Unauthenticated => warning collector: Unauthenticated | OTEL_EXPORTER_OTLP_HEADERS
grpc Unimplemented => warning collector: Unimplemented | pipeline for log records
http silence => warning collector: no answer within 2s | firewall
http 401 => warning collector: HTTP 401 | OTEL_EXPORTER_OTLP_HEADERS
http 404 => warning collector: HTTP 404 | path
http 200 => warning collector: --otlp.protocol
";

/// Answers of a collector that is there.
const THERE: &str = "
grpc Unavailable => Unavailable
grpc InvalidArgument => InvalidArgument
grpc ResourceExhausted => ResourceExhausted
grpc Internal => Internal
http 400 => HTTP 400
http 413 => HTTP 413
http 429 => HTTP 429
http 500 => HTTP 500
http 503 => HTTP 503
http partly => accepts
";

fn reply(name: &str) -> Reply {
    use tonic::{Code, Status};
    let codes = [
        Code::Unauthenticated,
        Code::Unimplemented,
        Code::Unavailable,
        Code::InvalidArgument,
        Code::ResourceExhausted,
        Code::Internal,
    ];
    if let Some(code) = codes.into_iter().find(|code| format!("{code:?}") == name) {
        return Reply::Status(Status::new(code, "oops"));
    }
    match name {
        "partly" => Reply::Partial(1, "oops"),
        "silence" => Reply::Silence,
        status => Reply::Http(status.parse().unwrap(), "text/plain", "oops", None),
    }
}

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    let there = THERE.trim().lines();
    for line in ANSWERS.trim().lines().chain(there) {
        let (answer, words) = line.split_once(" => ").unwrap();
        let (protocol, answer) = answer.split_once(' ').unwrap();
        let protocol = protocol.replace("http", "http/protobuf");
        let peer = peer(&protocol, LIMIT).await;
        peer.reply(reply(answer));
        let launch = with(&api.base_url(), &protocol, &peer.url());
        match words.starts_with("warning") {
            true => drop(expect(launch, words).await),
            false => expect(launch, "").await.assert_good("collector", words),
        }
    }
    // One that accepts records gets none, and the headers.
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol, LIMIT).await;
        let endpoint = peer.url();
        let launch = with(&api.base_url(), protocol, &endpoint);
        let launch = launch.env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme");
        let good = expect(launch, "").await;
        good.assert_good("collector", &format!("over {protocol} accepts log records"));
        assert_eq!(peer.requests(), [Vec::<String>::new()], "{protocol}");
        let headers = peer.script.headers.lock().unwrap();
        assert_eq!(headers["x-tenant"], "acme");
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let api = service().await;
    let (grpc, http) = (peer("grpc", LIMIT).await, peer("http", LIMIT).await);
    let table = "
http/protobuf http://GRPC => --otlp.protocol
grpc http://HTTP => HTTP 404 | --otlp.protocol
grpc http://127.0.0.1:1 => connection refused | --otlp.endpoint
http/protobuf http://no-such-host.invalid:4318 => failed to lookup | --otlp.endpoint
http/protobuf https://HTTP => that port speaks plain HTTP
grpc https://TLS => UnknownIssuer | OTEL_EXPORTER_OTLP_CERTIFICATE
http/protobuf https://SECURE => UnknownIssuer | OTEL_EXPORTER_OTLP_CERTIFICATE";
    let tls = Peer::grpc_tls(TLS).await;
    let secure = web_config::Server::start(web_config::TLS).await;
    for line in table.trim().lines() {
        let (arguments, words) = line.split_once(" => ").unwrap();
        let (protocol, endpoint) = arguments.split_once(' ').unwrap();
        let endpoint = endpoint
            .replace("TLS", &format!("localhost:{}", tls.address.port()))
            .replace("SECURE", &format!("localhost:{}", secure.address().port()))
            .replace("GRPC", &grpc.address.to_string())
            .replace("HTTP", &http.address.to_string());
        let launch = with(&api.base_url(), protocol, &endpoint);
        expect(launch, &format!("warning collector: {words}")).await;
    }
}

#[tokio::test]
async fn the_endpoint_of_traces_is_tried_too() {
    let api = service().await;
    let (grpc, http) = (peer("grpc", LIMIT).await, peer("http", LIMIT).await);
    let url = |peer: &Peer, path: &str| format!("{}{path}", peer.url());
    for (protocol, endpoint, expected) in [
        // A collector that takes log records only.
        (
            "grpc",
            url(&grpc, ""),
            "warning traces: Unimplemented | pipeline for spans",
        ),
        (
            "http/protobuf",
            url(&http, "/v1/traces"),
            "warning traces: HTTP 404 | OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        ("http/protobuf", url(&http, "/v1/logs"), ""),
        (
            "grpc",
            "http://127.0.0.1:1".to_owned(),
            "warning traces: connection refused | OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        ),
        (
            "http/json",
            url(&http, ""),
            "warning traces: OTEL_EXPORTER_OTLP_TRACES_PROTOCOL | without spans",
        ),
        (
            "grpc",
            "ftp://there".to_owned(),
            "warning traces: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT | without spans",
        ),
    ] {
        let launch = check(&api.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint)
            .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol);
        expect(launch, expected).await;
    }
    let launch = check(&api.base_url())
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/nowhere");
    expect(
        launch,
        "warning traces: OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE | without spans",
    )
    .await;
    // Without one, or if spans are off, it is not named.
    for launch in [
        check(&api.base_url()),
        check(&api.base_url())
            .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
            .env("OTEL_TRACES_EXPORTER", "none"),
    ] {
        let checked = expect(launch, "").await;
        assert!(
            checked
                .findings()
                .iter()
                .all(|(_, about, _)| *about != "traces")
        );
    }
}
