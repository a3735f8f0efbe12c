//! A key or a certificate that cannot be used is named with what to do. `check` tests a port that speaks plain HTTP.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::peers::{Files, PROTOCOLS, Relay, Server, Subject, presenting};

/// A fatal alert, `handshake_failure`: what servers send if their only key is one for P-521.
const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

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
            (alerting, "ca.pem", "its key may be for P-521"),
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
