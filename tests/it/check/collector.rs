//! The collector: each way in which it does not take records is named, over both protocols, and no record is sent.

use orgdata_exporter::simulator::{Running, Simulator};

use super::support::{Checked, check, organization};
use crate::support::binary::Launch;
use crate::support::collector_peer::{Peer, Reply, https};
use crate::support::http_peer;

const LIMIT: usize = 4 * 1024 * 1024;

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");

async fn service() -> Running {
    Simulator::spawn(organization()).await.expect("a simulator")
}

fn with(sim: &Running, protocol: &str, endpoint: &str) -> Launch {
    check(&sim.base_url())
        .arg(&format!("--otlp.endpoint={endpoint}"))
        .arg(&format!("--otlp.protocol={protocol}"))
}

fn with_peer(sim: &Running, protocol: &str, peer: &Peer) -> Launch {
    with(sim, protocol, &format!("http://{}", peer.address))
}

async fn both() -> [(&'static str, Peer); 2] {
    [
        ("grpc", Peer::grpc(LIMIT).await),
        ("http/protobuf", Peer::http(LIMIT).await),
    ]
}

#[tokio::test]
async fn one_that_takes_records_gets_none_and_the_headers() {
    let sim = service().await;
    for (protocol, peer) in both().await {
        let checked = Checked::of(
            with_peer(&sim, protocol, &peer).env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=acme"),
        )
        .await;
        checked.assert_only(&[]);
        assert!(
            checked
                .line("collector")
                .1
                .ends_with(&format!("over {protocol} takes log records")),
            "{}",
            checked.text
        );
        assert_eq!(peer.requests(), [Vec::<String>::new()], "{protocol}");
        assert_eq!(
            peer.script.headers.lock().expect("lock")["x-tenant"],
            "acme"
        );
    }
}

#[tokio::test]
async fn what_it_says_is_said_with_what_to_do() {
    let sim = service().await;
    let status = |code, words: &str| Reply::Status(tonic::Status::new(code, words));
    for (protocol, reply, level, words) in [
        (
            "grpc",
            status(tonic::Code::Unauthenticated, "no token"),
            "bad",
            &["no token", "OTEL_EXPORTER_OTLP_HEADERS"][..],
        ),
        (
            "grpc",
            status(tonic::Code::Unimplemented, ""),
            "bad",
            &["Unimplemented", "no receiver of log records is there"],
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
            &["empty", "this request holds no records"],
        ),
        (
            "http/protobuf",
            Reply::Http(401, "text/plain", "who are you", None),
            "bad",
            &["HTTP 401", "OTEL_EXPORTER_OTLP_HEADERS"],
        ),
        (
            "http/protobuf",
            Reply::Http(404, "text/plain", "", None),
            "bad",
            &["HTTP 404", "no receiver of log records is there", "path"],
        ),
        (
            "http/protobuf",
            Reply::Http(429, "text/plain", "", Some("7")),
            "warning",
            &["HTTP 429", "records wait in the state file"],
        ),
        (
            "http/protobuf",
            Reply::Http(500, "text/plain", "oops", None),
            "bad",
            &["HTTP 500: oops", "see its log"],
        ),
        (
            "http/protobuf",
            Reply::Http(503, "text/plain", "busy", None),
            "bad",
            &["HTTP 503: busy", "see its log"],
        ),
        (
            "http/protobuf",
            Reply::Http(400, "text/plain", "empty", None),
            "warning",
            &["HTTP 400: empty", "this request holds no records"],
        ),
        (
            "http/protobuf",
            Reply::Http(200, "text/html", "<p>hello</p>", None),
            "bad",
            &["not an OTLP answer", "--otlp.protocol"],
        ),
        (
            "http/protobuf",
            Reply::Partial(0, "old protocol"),
            "warning",
            &["takes log records and says: old protocol"],
        ),
        (
            "http/protobuf",
            Reply::Partial(3, "quota"),
            "warning",
            &["rejects records of a request that has none: quota"],
        ),
    ] {
        let peer = if protocol == "grpc" {
            Peer::grpc(LIMIT).await
        } else {
            Peer::http(LIMIT).await
        };
        peer.reply(reply);
        Checked::of(with_peer(&sim, protocol, &peer))
            .await
            .assert_only(&[(level, "collector", words)]);
    }
}

#[tokio::test]
async fn the_wrong_port_or_protocol_is_named() {
    let sim = service().await;
    let (grpc, http) = (Peer::grpc(LIMIT).await, Peer::http(LIMIT).await);
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("bound"))
    };
    let checked =
        async |protocol, endpoint: &str| Checked::of(with(&sim, protocol, endpoint)).await;
    checked("http/protobuf", &format!("http://{}", grpc.address))
        .await
        .assert_only(&[("bad", "collector", &["does this port speak HTTP"])]);
    checked("grpc", &format!("http://{}", http.address))
        .await
        .assert_only(&[(
            "bad",
            "collector",
            &["HTTP 404", "--otlp.protocol", "4317 is gRPC"],
        )]);
    for protocol in ["grpc", "http/protobuf"] {
        checked(protocol, &closed).await.assert_only(&[(
            "bad",
            "collector",
            &["Connection refused", "nothing listens there"],
        )]);
        let unknown = checked(protocol, "http://no-such-host.invalid:4317").await;
        unknown.assert_only(&[(
            "bad",
            "collector",
            &["failed to lookup", "check the name in the endpoint"],
        )]);
    }
    let tls_to_plain = checked("http/protobuf", &format!("https://{}", http.address)).await;
    tls_to_plain.assert_only(&[("bad", "collector", &["does not speak TLS", "http://"])]);
}

#[tokio::test]
async fn certificates_are_checked_as_the_exporter_would() {
    let sim = service().await;
    let grpc = Peer::grpc_tls(TLS).await;
    for (protocol, address) in [("grpc", grpc.address), ("http/protobuf", https(TLS))] {
        let endpoint = format!("https://localhost:{}", address.port());
        let launch = || with(&sim, protocol, &endpoint);
        let unknown = Checked::of(launch()).await;
        unknown.assert_only(&[(
            "bad",
            "collector",
            &["UnknownIssuer", "OTEL_EXPORTER_OTLP_CERTIFICATE"],
        )]);
        let rooted = || launch().env("OTEL_EXPORTER_OTLP_CERTIFICATE", &format!("{TLS}ca.pem"));
        let anonymous = Checked::of(rooted()).await;
        anonymous.assert_only(&[("bad", "collector", &["client certificate"])]);
        let known = rooted().env(
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            &format!("{TLS}client.pem"),
        );
        Checked::of(known.env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &format!("{TLS}client.key")))
            .await
            .assert_only(&[]);
        let gone =
            Checked::of(launch().env("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent.pem")).await;
        gone.assert_only(&[(
            "bad",
            "collector",
            &["OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent.pem", "PEM"],
        )]);
    }
}

#[tokio::test]
async fn one_that_does_not_answer_is_waited_for_as_long_as_its_own_time_out() {
    let sim = service().await;
    for (protocol, peer) in both().await {
        peer.reply(Reply::Silence);
        let checked =
            Checked::of(with_peer(&sim, protocol, &peer).env("OTEL_EXPORTER_OTLP_TIMEOUT", "300"))
                .await;
        checked.assert_only(&[(
            "bad",
            "collector",
            &["no answer", "it hangs, or a firewall"],
        )]);
    }
}

#[tokio::test]
async fn a_token_that_it_repeats_is_not_shown() {
    let sim = service().await;
    let peer = http_peer::Peer::always(http_peer::answer(
        "401 Unauthorized",
        &[],
        "no such token: t0p-s3cret",
    ))
    .await;
    let launch = with(
        &sim,
        "http/protobuf",
        &format!("{}/v1/logs?token=al5o-s3cret", peer.url()),
    );
    let checked = Checked::of(launch.env(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20t0p-s3cret",
    ))
    .await;
    checked.assert_only(&[("bad", "collector", &["no such token: [secret]"])]);
    assert!(!checked.text.contains("s3cret"), "{}", checked.text);
}
