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
grpc Unauthenticated => warning collector: oops | OTEL_EXPORTER_OTLP_HEADERS
grpc Unimplemented => warning collector: Unimplemented | pipeline for logs
grpc Unavailable => warning collector: oops | the collector's log
grpc InvalidArgument => warning collector: oops | without records
http silence => warning collector: no answer | firewall
http 404 => warning collector: HTTP 404 | path
http 429 => warning collector: HTTP 429 | wait in the state file
http 200 => warning collector: --otlp.protocol
";

fn reply(name: &str) -> Reply {
    use tonic::Status;
    match name {
        "Unauthenticated" => Reply::Status(Status::unauthenticated("oops")),
        "Unimplemented" => Reply::Status(Status::unimplemented("oops")),
        "Unavailable" => Reply::Status(Status::unavailable("oops")),
        "InvalidArgument" => Reply::Status(Status::invalid_argument("oops")),
        "silence" => Reply::Silence,
        status => Reply::Http(status.parse().unwrap(), "text/plain", "oops", None),
    }
}

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    for line in ANSWERS.trim().lines() {
        let (answer, expected) = line.split_once(" => ").unwrap();
        let (protocol, answer) = answer.split_once(' ').unwrap();
        let protocol = protocol.replace("http", "http/protobuf");
        let peer = peer(&protocol, LIMIT).await;
        peer.reply(reply(answer));
        let endpoint = peer.url();
        expect(with(&api.base_url(), &protocol, &endpoint), expected).await;
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
