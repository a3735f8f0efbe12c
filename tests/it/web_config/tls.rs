//! TLS: versions, certificates of clients, and clients that begin and do not end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::{StatusCode, Version, tls};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Server, TLS, client, directory, tls_file};
use crate::support::captured::Captured;
use crate::web::{GET, GET_HEALTH, assert_bounded, closed, tight};

/// Completes a handshake, with or without a certificate, and returns the bare connection.
async fn connect(address: SocketAddr, shown: Option<&str>) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let chain = |name| CertificateDer::from_pem_file(tls_file(&format!("{name}.pem"))).unwrap();
    roots.add(chain("ca")).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match shown {
        None => config.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(tls_file(&format!("{name}.key"))).unwrap();
            let config = config.with_client_auth_cert(vec![chain(name)], key);
            config.unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await
}

#[tokio::test]
async fn the_configured_versions_of_tls_and_http_1_1_are_spoken_and_nothing_else() {
    let config = format!("{TLS}  min_version: TLS13\nhttp_server_config:\n  http2: true\n");
    let server = Server::start(&config).await;
    assert_eq!(server.plain().await, 0);
    let ask = async |version| {
        let client = client().tls_version_max(version).build().unwrap();
        client.get(server.url("https", "/metrics")).send().await
    };
    assert!(ask(tls::Version::TLS_1_2).await.is_err());
    let response = ask(tls::Version::TLS_1_3).await.unwrap();
    let found = (response.status(), response.version());
    assert_eq!(found, (StatusCode::OK, Version::HTTP_11));
}

#[tokio::test]
async fn a_connection_takes_no_requests_after_a_change_of_what_admitted_it() {
    let required = format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n");
    let required = format!("{required}  client_ca_file: authority.pem\n");
    let authority = std::fs::read(tls_file("ca.pem")).unwrap();

    let server = Server::start("").await;
    let mut plain = TcpStream::connect(server.address()).await.unwrap();
    assert!(gets_healthy(&mut plain).await);
    server.write("authority.pem", &authority);
    server.write("web.yml", &required);
    assert_misdirected(&mut plain).await;

    let with_certificate = connect(server.address(), Some("client")).await;
    let mut with_certificate = with_certificate.unwrap();
    for _ in 0..2 {
        assert!(gets_healthy(&mut with_certificate).await);
    }
    let other = std::fs::read(tls_file("stranger.pem")).unwrap();
    server.write("authority.pem", other);
    assert_misdirected(&mut with_certificate).await;
}

/// Sends a request over a connection, and returns whether it is answered.
async fn gets_healthy(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> bool {
    // A server that wants another certificate says so after the handshake.
    let _ = stream.write_all(GET_HEALTH).await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"healthy.\n") {
        if stream.read_buf(&mut answer).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    answer.starts_with(b"HTTP/1.1 200 OK")
}

/// Asserts that a request over a connection is rejected without content, and that the connection is closed.
async fn assert_misdirected(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    stream.write_all(&GET_HEALTH.repeat(2)).await.unwrap();
    let answer = closed(stream).await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let is_complete = answer.contains("connection: close\r\n") && answer.ends_with("\r\n\r\n");
    assert!(is_complete, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
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
            let gets_in = match connect(server.address(), shown).await {
                Ok(mut stream) => gets_healthy(&mut stream).await,
                Err(_) => false,
            };
            assert_eq!(gets_in, wanted, "{policy} {shown:?}");
        }
        let logged = log.count("TLS handshake failed") > 0;
        assert_eq!(logged, wanted.contains(&false), "{:?}", log.lines());
    }
}

/// The first bytes of a handshake.
const BEGUN: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03";

#[tokio::test]
async fn a_handshake_that_never_ends_is_closed() {
    let server = Server::limited(TLS, tight()).await;
    for beginning in [&b""[..], BEGUN] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        closed(&mut stream).await;
    }
}

#[tokio::test]
async fn clients_of_tls_that_never_read_stop_no_scrape() {
    let dir = directory(TLS);
    let requests = GET.repeat(100);
    let connect = async |address| {
        let mut stream = connect(address, None).await.unwrap();
        let _ = stream.write_all(&requests).await;
        stream
    };
    let (config, client) = (dir.path().join("web.yml"), client().build().unwrap());
    assert_bounded(Some(&config), &client, connect).await;
}
