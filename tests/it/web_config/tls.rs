//! TLS: versions, protocols, certificates of clients, and clients that begin and do not end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Identity, StatusCode, Version, tls};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Server, TLS, client, directory, tls_file};
use crate::support::captured::Captured;
use crate::web::{assert_little_memory, closed, tight};

/// Completes a handshake and returns the bare connection.
async fn connect(address: SocketAddr, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(tls_file("ca.pem")).unwrap();
    roots.add(authority).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await
}

/// Returns whether a client that shows a certificate, or none, gets an answer.
pub(super) async fn gets_in(server: &Server, shown: Option<&str>) -> bool {
    let read = |name, suffix| std::fs::read(tls_file(&format!("{name}.{suffix}"))).unwrap();
    let client = shown.into_iter().fold(client(), |client, name| {
        let pem = [read(name, "pem"), read(name, "key")].concat();
        client.identity(Identity::from_pem(&pem).unwrap())
    });
    let request = client.build().unwrap().get(server.url("https", "/metrics"));
    let response = request.send().await;
    response.is_ok_and(|response| response.status() == StatusCode::OK)
}

/// Returns how many lines say that a handshake failed.
fn failures(log: &Captured) -> usize {
    log.count("TLS handshake failed")
}

#[tokio::test]
async fn everything_is_behind_tls_and_http2_is_offered_unless_it_is_switched_off() {
    let server = Server::start(TLS).await;
    for path in ["/metrics", "/", "/-/healthy"] {
        let response = server.https(path).send().await.unwrap();
        let found = (response.status(), response.version());
        assert_eq!(found, (StatusCode::OK, Version::HTTP_2));
    }
    let old = client().http1_only().build().unwrap();
    let old = old.get(server.url("https", "/metrics"));
    assert_eq!(old.send().await.unwrap().version(), Version::HTTP_11);
    let log = Captured::begin();
    let plain = server.http("/metrics").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::BAD_REQUEST);
    let expected = "Client sent an HTTP request to an HTTPS server.\n";
    assert_eq!(plain.text().await.unwrap(), expected);
    assert_eq!(failures(&log), 0, "the client was told");
    drop(log);

    let server = Server::start(&format!("{TLS}http_server_config:\n  http2: false\n")).await;
    let response = server.https("/metrics").send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
}

#[tokio::test]
async fn only_the_configured_versions_are_spoken() {
    for (field, tls12, tls13) in [("", true, true), ("  min_version: TLS13\n", false, true)] {
        let server = Server::start(&format!("{TLS}{field}")).await;
        let versions = [tls::Version::TLS_1_2, tls::Version::TLS_1_3];
        for (version, spoken) in versions.into_iter().zip([tls12, tls13]) {
            let client = client().tls_version_min(version).tls_version_max(version);
            let client = client.build().unwrap();
            let request = client.get(server.url("https", "/-/healthy"));
            assert_eq!(request.send().await.is_ok(), spoken, "{field} {version:?}");
        }
    }
}

#[tokio::test]
async fn a_client_needs_a_certificate_of_the_authority_if_the_policy_says_so() {
    // Without a certificate, with one of a stranger, with one that the authority signed.
    for (policy, wanted) in [
        ("NoClientCert", [true, true, true]),
        ("VerifyClientCertIfGiven", [true, false, true]),
        ("RequireAndVerifyClientCert", [false, false, true]),
    ] {
        let authority = ["", "  client_ca_file: ca.pem\n"][usize::from(policy != "NoClientCert")];
        let config = format!("{TLS}  client_auth_type: {policy}\n{authority}");
        let server = Server::start(&config).await;
        let log = Captured::begin();
        let shown = [None, Some("stranger"), Some("client")];
        for (shown, wanted) in shown.into_iter().zip(wanted) {
            assert_eq!(gets_in(&server, shown).await, wanted, "{policy} {shown:?}");
        }
        let refused = wanted.iter().filter(|gets_in| !**gets_in).count();
        assert_eq!(failures(&log), refused, "{policy}: {:?}", log.lines());
    }
}

/// The first bytes of a handshake.
const BEGUN: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03";

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the start of an HTTP/2 connection with these settings.
fn preface(settings: &[u8]) -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, settings);
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat()
}

/// The setting of a client that takes no byte of any response: its window is 0.
const NO_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

/// Returns a request for `/metrics`.
fn get(stream: u32) -> Vec<u8> {
    let path = [&[0x82, 0x87, 0x04, 8][..], b"/metrics", &[0x41, 1, b'x']].concat();
    frame(HEADERS, 0b101, stream, &path)
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_closed_and_logged() {
    let log = Captured::begin();
    let server = Server::limited(TLS, tight()).await;
    // A probe that sends nothing is not a failure.
    for (beginning, lines) in [(&b""[..], 0), (BEGUN, 1)] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        closed(&mut stream).await;
        assert_eq!(failures(&log), lines, "{:?}", log.lines());
    }
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(BEGUN).await.unwrap();
    let start = Instant::now();
    while stream.write_all(b"x").await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(3));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(failures(&log), 2, "{:?}", log.lines());
}

#[tokio::test]
async fn a_client_that_does_not_go_on_after_its_handshake_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    let headers = frame(HEADERS, 0, 1, &[0x82]);
    for (protocol, sent) in [
        (&b"h2"[..], vec![]),
        (b"http/1.1", vec![]),
        (b"h2", vec![0xff; 100]),
        (b"http/1.1", vec![0xff; 100]),
        (b"h2", [preface(NO_WINDOW), get(1), get(3)].concat()),
        // Headers without their end.
        (b"h2", [preface(NO_WINDOW), headers].concat()),
    ] {
        let mut stream = connect(server.address(), protocol).await.unwrap();
        stream.write_all(&sent).await.unwrap();
        closed(&mut stream).await;
    }
    let response = server.https("/metrics").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn clients_of_http2_that_take_no_response_use_little_memory() {
    let dir = directory(TLS);
    let requests = (0..30).map(|number| get(number * 2 + 1));
    let sent = [preface(NO_WINDOW), requests.collect::<Vec<_>>().concat()].concat();
    let connect = async |address| {
        let mut stream = connect(address, b"h2").await.unwrap();
        let _ = stream.write_all(&sent).await;
        stream
    };
    let (config, client) = (dir.path().join("web.yml"), client().build().unwrap());
    assert_little_memory(Some(&config), &client, 40, connect).await;
}
