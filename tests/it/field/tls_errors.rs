//! A certificate that cannot be used, and a port that speaks plain HTTP, are named with what to do.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::peers::{Files, PROTOCOLS, Relay, Server, Subject, presenting};
use crate::web_config;

/// A fatal alert, `handshake_failure`: what servers send if their only key is one for P-521.
const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

/// Asserts that a request to this address fails with these words.
async fn fails(protocol: &str, address: SocketAddr, ca: &str, words: &str) {
    let files = Files::new(ca, "client");
    let subject = Subject::new(protocol, address, Some(&files));
    let error = subject.ask().await.expect_err(protocol);
    assert!(error.contains(words), "{protocol}: {error}");
}

#[tokio::test]
async fn what_is_wrong_with_tls_is_named_with_the_remedy() {
    let alert = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let alerting = alert.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = alert.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(HANDSHAKE_FAILURE).await;
        }
    });
    for protocol in PROTOCOLS {
        let server = Server::good(protocol).await;
        let plain = "; that port speaks plain HTTP and not TLS: correct the port, or use http://";
        fails(protocol, server.address, "ca.pem", plain).await;
        let kind = "its key may be for P-521, which is not supported";
        fails(protocol, alerting, "ca.pem", kind).await;
        for (certificate, ca, words) in [
            ("own-root", "own-root.pem", "basicConstraints=CA:FALSE"),
            ("p521-signed", "p521-root.pem", "P-521: use P-256"),
        ] {
            let relay = Relay::new(server.address, Some(presenting(certificate, None))).await;
            fails(protocol, relay.address, ca, words).await;
        }
    }
}

#[tokio::test]
async fn a_key_of_the_exporter_that_is_not_supported_is_named_at_the_start() {
    let address = "127.0.0.1:9".parse().unwrap();
    for protocol in ["http/protobuf", "grpc"] {
        let files = Files::new("ca.pem", "p521-root");
        let subject = Subject::try_new(protocol, address, Some(&files));
        let error = subject.err().expect(protocol);
        assert!(error.contains("P-521 is not supported"), "{error}");
    }
    let directory = web_config::directory(&web_config::TLS.replace(": server", ": p521-root"));
    let config = exporter_web::WebConfig::load(&directory.path().join("web.yml"));
    let error = config.expect_err("a key for P-521");
    let is_named = error.contains("key_file") && error.contains("P-521 is not supported");
    assert!(is_named, "{error}");
}
