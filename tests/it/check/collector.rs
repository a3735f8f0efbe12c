//! The collector: every way in which it does not accept records has a line with what to do, and no record is sent.

use super::{Checked, TLS, check, service};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply};
use crate::support::http_peer;

const LIMIT: usize = 4 * 1024 * 1024;

fn with(api: &str, protocol: &str, endpoint: &str) -> Launch {
    check(api)
        .arg(&format!("--otlp.endpoint={endpoint}"))
        .arg(&format!("--otlp.protocol={protocol}"))
}

async fn peer(protocol: &str) -> Peer {
    match protocol {
        "grpc" => Peer::grpc(LIMIT).await,
        _ => Peer::http(LIMIT).await,
    }
}

#[tokio::test]
async fn one_that_accepts_records_gets_none_and_the_headers() {
    let api = service().await;
    for protocol in ["grpc", "http/protobuf"] {
        let peer = peer(protocol).await;
        let launch = with(
            &api.base_url(),
            protocol,
            &format!("http://{}", peer.address),
        )
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme");
        let checked = Checked::of(launch).await;
        checked.assert_only(&[]);
        checked.assert_good("collector", &format!("over {protocol} accepts log records"));
        assert_eq!(peer.requests(), [Vec::<String>::new()], "{protocol}");
        let headers = peer.script.headers.lock().expect("lock");
        assert_eq!(headers["x-tenant"], "acme");
    }
}

/// Answers and what the report says. A gRPC answer is the name of a code, an HTTP answer a status.
const ANSWERS: &str = "
grpc Unauthenticated => bad collector: oops | OTEL_EXPORTER_OTLP_HEADERS
grpc Unimplemented => bad collector: Unimplemented | pipeline for logs
grpc Unavailable => bad collector: oops | see its log
grpc InvalidArgument => warning collector: oops | without records
grpc silence => bad collector: no answer | it hangs, or a firewall
http silence => bad collector: no answer | it hangs, or a firewall
http 400 => warning collector: HTTP 400: oops | without records
http 401 => bad collector: HTTP 401 | OTEL_EXPORTER_OTLP_HEADERS
http 404 => bad collector: HTTP 404 | path
http 429 => warning collector: HTTP 429 | waits and continues
http 500 => bad collector: HTTP 500: oops | see its log
http 200 => bad collector: --otlp.protocol
http warning => warning collector: accepts log records | oops
http rejected => warning collector: oops
";

fn reply(name: &str) -> Reply {
    use tonic::Code;
    let codes = [
        Code::Unauthenticated,
        Code::Unimplemented,
        Code::Unavailable,
        Code::InvalidArgument,
    ];
    let code = codes.into_iter().find(|code| format!("{code:?}") == name);
    match (name, code) {
        (_, Some(code)) => Reply::Status(tonic::Status::new(code, "oops")),
        ("silence", _) => Reply::Silence,
        ("warning", _) => Reply::Partial(0, "oops"),
        ("rejected", _) => Reply::Partial(3, "oops"),
        _ => Reply::Http(name.parse().expect("a status"), "text/plain", "oops", None),
    }
}

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    for line in ANSWERS.trim().lines() {
        let (answer, expected) = line.split_once(" => ").expect("an arrow");
        let (protocol, answer) = answer.split_once(' ').expect("a protocol");
        let protocol = protocol.replace("http", "http/protobuf");
        let peer = peer(&protocol).await;
        peer.reply(reply(answer));
        let endpoint = format!("http://{}", peer.address);
        let launch = with(&api.base_url(), &protocol, &endpoint);
        let launch = launch.env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000");
        Checked::of(launch).await.assert_only(&[expected]);
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let api = service().await;
    let (grpc, http) = (peer("grpc").await, peer("http").await);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let table = "
http/protobuf http://GRPC => does this port speak HTTP
grpc http://HTTP => HTTP 404 | --otlp.protocol | 4317 is gRPC
grpc http://CLOSED => Connection refused | nothing listens there
http/protobuf http://CLOSED => Connection refused | nothing listens there
grpc http://no-such-host.invalid:4317 => failed to lookup | check the name
http/protobuf http://no-such-host.invalid:4318 => failed to lookup | --otlp.endpoint
http/protobuf https://HTTP => does not speak TLS | http://";
    for line in table.trim().lines() {
        let (arguments, words) = line.split_once(" => ").expect("an arrow");
        let (protocol, endpoint) = arguments.split_once(' ').expect("a protocol");
        let endpoint = endpoint
            .replace("GRPC", &grpc.address.to_string())
            .replace("HTTP", &http.address.to_string())
            .replace("CLOSED", &closed);
        let checked = Checked::of(with(&api.base_url(), protocol, &endpoint)).await;
        checked.assert_only(&[&format!("bad collector: {words}")]);
    }
}

#[tokio::test]
async fn certificates_are_checked_as_the_exporter_does() {
    let api = service().await;
    let (grpc, http) = (Peer::grpc_tls(TLS).await, Peer::http_tls(TLS).await);
    let set = |launch: Launch, name: &str, file: &str| {
        let name = format!("OTEL_EXPORTER_OTLP_{name}");
        launch.env(&name, &format!("{}{file}", TLS))
    };
    for (protocol, address) in [("grpc", grpc.address), ("http/protobuf", http.address)] {
        let endpoint = format!("https://localhost:{}", address.port());
        let launch = || with(&api.base_url(), protocol, &endpoint);
        let rooted = || set(launch(), "CERTIFICATE", "ca.pem");
        let known = set(rooted(), "CLIENT_CERTIFICATE", "client.pem");
        Checked::of(set(known, "CLIENT_KEY", "client.key"))
            .await
            .assert_only(&[]);
        let table: [(Launch, &str); 3] = [
            (launch(), "UnknownIssuer | OTEL_EXPORTER_OTLP_CERTIFICATE"),
            (rooted(), "client certificate"),
            (
                set(launch(), "CERTIFICATE", "gone.pem"),
                "OTEL_EXPORTER_OTLP_CERTIFICATE | gone.pem | PEM",
            ),
        ];
        for (launch, words) in table {
            let expected = format!("bad collector: {words}");
            Checked::of(launch).await.assert_only(&[&expected]);
        }
    }
}

#[tokio::test]
async fn a_token_that_it_repeats_is_not_shown() {
    let api = service().await;
    let refusal = http_peer::answer("401 Unauthorized", &[], "no such token: t0p-s3cret");
    let peer = http_peer::Peer::always(refusal).await;
    let endpoint = format!("{}/v1/logs?token=al5o-s3cret", peer.url());
    let launch = with(&api.base_url(), "http/protobuf", &endpoint).env(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20t0p-s3cret",
    );
    let checked = Checked::of(launch).await;
    checked.assert_only(&["bad collector: no such token:"]);
    assert!(!checked.text.contains("s3cret"), "{}", checked.text);
}
