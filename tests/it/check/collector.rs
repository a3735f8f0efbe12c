//! The collector: every way in which it does not accept records has a line with what to do, and no record is sent.

use super::{Checked, Expected, TLS, check, service};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply, https};
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

#[tokio::test]
async fn its_answer_is_shown_with_what_to_do() {
    let api = service().await;
    let status = |code, words: &str| Reply::Status(tonic::Status::new(code, words));
    let table: Vec<(&str, Reply, &str, &'static [&'static str])> = vec![
        (
            "grpc",
            status(tonic::Code::Unauthenticated, "no token"),
            "bad",
            &["no token", "OTEL_EXPORTER_OTLP_HEADERS"],
        ),
        (
            "grpc",
            status(tonic::Code::Unimplemented, ""),
            "bad",
            &["Unimplemented", "pipeline for logs"],
        ),
        (
            "grpc",
            status(tonic::Code::Unavailable, "draining"),
            "bad",
            &["draining", "see its log"],
        ),
        (
            "grpc",
            status(tonic::Code::InvalidArgument, "empty"),
            "warning",
            &["empty", "without records"],
        ),
        (
            "grpc",
            Reply::Silence,
            "bad",
            &["no answer", "it hangs, or a firewall"],
        ),
        (
            "http",
            Reply::Silence,
            "bad",
            &["no answer", "it hangs, or a firewall"],
        ),
        (
            "http",
            Reply::Http(401, "text/plain", "who", None),
            "bad",
            &["HTTP 401", "OTEL_EXPORTER_OTLP_HEADERS"],
        ),
        (
            "http",
            Reply::Http(404, "text/plain", "", None),
            "bad",
            &["HTTP 404", "path"],
        ),
        (
            "http",
            Reply::Http(429, "text/plain", "", Some("7")),
            "warning",
            &["HTTP 429", "waits and continues"],
        ),
        (
            "http",
            Reply::Http(500, "text/plain", "oops", None),
            "bad",
            &["HTTP 500: oops", "see its log"],
        ),
        (
            "http",
            Reply::Http(400, "text/plain", "empty", None),
            "warning",
            &["HTTP 400: empty", "without records"],
        ),
        (
            "http",
            Reply::Http(200, "text/html", "<p>", None),
            "bad",
            &["--otlp.protocol"],
        ),
        (
            "http",
            Reply::Partial(0, "old protocol"),
            "warning",
            &["accepts log records", "old protocol"],
        ),
        ("http", Reply::Partial(3, "quota"), "warning", &["quota"]),
    ];
    for (protocol, reply, level, words) in table {
        let peer = peer(protocol).await;
        peer.reply(reply);
        let protocol = if protocol == "grpc" {
            "grpc"
        } else {
            "http/protobuf"
        };
        let launch = with(
            &api.base_url(),
            protocol,
            &format!("http://{}", peer.address),
        )
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "1000");
        Checked::of(launch)
            .await
            .assert_only(&[(level, "collector", words)]);
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let api = service().await;
    let (grpc, http) = (peer("grpc").await, peer("http").await);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("bound");
    drop(listener);
    let table: Vec<(&str, String, &'static [&'static str])> = vec![
        (
            "http/protobuf",
            format!("http://{}", grpc.address),
            &["does this port speak HTTP"],
        ),
        (
            "grpc",
            format!("http://{}", http.address),
            &["HTTP 404", "--otlp.protocol", "4317 is gRPC"],
        ),
        (
            "grpc",
            format!("http://{closed}"),
            &["Connection refused", "nothing listens there"],
        ),
        (
            "http/protobuf",
            format!("http://{closed}"),
            &["Connection refused", "nothing listens there"],
        ),
        (
            "grpc",
            "http://no-such-host.invalid:4317".to_owned(),
            &["failed to lookup", "check the name"],
        ),
        (
            "http/protobuf",
            "http://no-such-host.invalid:4318".to_owned(),
            &["failed to lookup", "--otlp.endpoint"],
        ),
        (
            "http/protobuf",
            format!("https://{}", http.address),
            &["does not speak TLS", "http://"],
        ),
    ];
    for (protocol, endpoint, words) in table {
        let checked = Checked::of(with(&api.base_url(), protocol, &endpoint)).await;
        checked.assert_only(&[("bad", "collector", words)]);
    }
}

#[tokio::test]
async fn certificates_are_checked_as_the_exporter_does() {
    let api = service().await;
    let grpc = Peer::grpc_tls(TLS).await;
    let set = |launch: Launch, name: &str, file: &str| {
        let name = format!("OTEL_EXPORTER_OTLP_{name}");
        launch.env(&name, &format!("{}{file}", TLS))
    };
    for (protocol, address) in [("grpc", grpc.address), ("http/protobuf", https(TLS))] {
        let endpoint = format!("https://localhost:{}", address.port());
        let launch = || with(&api.base_url(), protocol, &endpoint);
        let rooted = || set(launch(), "CERTIFICATE", "ca.pem");
        let known = set(rooted(), "CLIENT_CERTIFICATE", "client.pem");
        Checked::of(set(known, "CLIENT_KEY", "client.key"))
            .await
            .assert_only(&[]);
        let table: [(Launch, &'static [&'static str]); 3] = [
            (
                launch(),
                &["UnknownIssuer", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
            ),
            (rooted(), &["client certificate"]),
            (
                set(launch(), "CERTIFICATE", "gone.pem"),
                &["OTEL_EXPORTER_OTLP_CERTIFICATE", "gone.pem", "PEM"],
            ),
        ];
        for (launch, words) in table {
            let expected: Expected = ("bad", "collector", words);
            Checked::of(launch).await.assert_only(&[expected]);
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
    checked.assert_only(&[("bad", "collector", &["no such token:"])]);
    assert!(!checked.text.contains("s3cret"), "{}", checked.text);
}
