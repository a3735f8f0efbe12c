//! A key or a certificate that cannot be used is named with what to do. `check` tests a port that speaks plain HTTP.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::peers::{Files, PROTOCOLS, Relay, Server, Subject, presenting};
use crate::support::captured::Captured;
use crate::support::files::tls;
use crate::support::http_peer::NO_ENTRIES;

/// A fatal alert, `handshake_failure`: what servers send if their only key is one for P-521.
const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

/// The server ends the connection without ending TLS, as some load balancers do.
#[tokio::test]
async fn a_page_without_the_end_of_tls_is_read_and_a_bad_certificate_of_a_bundle_passed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(presenting("server", None));
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = format!("HTTP/1.1 200 OK\r\n\r\n{NO_ENTRIES}");
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.flush().await;
        }
    });
    let good = std::fs::read_to_string(tls("ca.pem")).unwrap();
    let not_der = good.replacen("\nMII", "\nAAA", 1);
    let not_base64 = good.replacen("\nMII", "\n*?*", 1);
    for (bundle, position) in [
        (good.clone() + &not_der, 2),
        (not_base64.clone() + &good, 1),
        (not_der.clone() + &not_base64, 0),
    ] {
        let files = Files::new("ca.pem", "client");
        let path = files.path("ca.pem");
        std::fs::write(&path, bundle).unwrap();
        let log = Captured::begin();
        let subject = Subject::new("api", address, Some(&files));
        if position == 0 {
            let error = subject.err().expect("none is left");
            let wanted = format!("--api.ca-file: {path}: certificate 1 cannot be read: ");
            assert!(error.starts_with(&wanted), "{error}");
            continue;
        }
        assert_eq!(subject.unwrap().ask().await, Ok(()), "{position}");
        let warning = format!("--api.ca-file: {path}: certificate {position} cannot be read: ");
        assert_eq!(log.count(&warning), 1, "{:?}", log.lines());
    }
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
        let own_root = Relay::new(&server, Some(presenting("own-root", None))).await;
        let p521 = Relay::new(&server, Some(presenting("p521-signed", None))).await;
        for (address, ca, words) in [
            (alerting, "ca.pem", "its key may be P-521"),
            (
                own_root.address,
                "own-root.pem",
                "basicConstraints=CA:FALSE",
            ),
            (p521.address, "p521-root.pem", "P-521: use P-256"),
        ] {
            let subject = Subject::new(protocol, address, Some(&Files::new(ca, "client")));
            let error = subject.unwrap().ask().await.expect_err(protocol);
            assert!(error.contains(words), "{protocol}: {error}");
        }
        // The key of the exporter itself, at the start.
        let files = Files::new("ca.pem", "p521-root");
        if let Err(error) = Subject::new(protocol, alerting, Some(&files)) {
            assert!(error.contains("P-521 is not supported"), "{error}");
        } else {
            assert_eq!(protocol, "api", "it has no key");
        }
    }
}
