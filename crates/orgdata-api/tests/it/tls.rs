//! TLS: a private root is trusted if it is given, and an untrusted certificate is an error that says so.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orgdata_api::Settings;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::peer::{NO_ENTRIES, head};
use crate::support::{Subject, settings};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/support/tls")
        .join(name)
}

/// A server with the test certificate that answers every request with an empty page. Its thread ends with the process.
fn server() -> SocketAddr {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let chain = CertificateDer::pem_file_iter(file("server.pem"))
        .expect("readable")
        .collect::<Result<_, _>>()
        .expect("PEM");
    let key = PrivateKeyDer::from_pem_file(file("server.key")).expect("PEM");
    let config = Arc::new(
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("they fit"),
    );
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = StreamOwned::new(
                ServerConnection::new(Arc::clone(&config)).expect("a right configuration"),
                stream,
            );
            // A client that does not trust this server disconnects.
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).is_ok_and(|read| read > 0) {
                let _ = stream
                    .write_all((head("200 OK", &[], NO_ENTRIES.len()) + NO_ENTRIES).as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    address
}

fn at(address: SocketAddr, ca_file: Option<PathBuf>) -> Settings {
    Settings {
        ca_file,
        ..settings(&format!("https://localhost:{}", address.port()))
    }
}

#[tokio::test]
async fn a_private_root_is_trusted_when_it_is_given() {
    let address = server();
    assert!(
        Subject::with(at(address, Some(file("ca.pem"))))
            .audit()
            .await
            .expect("a page")
            .is_empty()
    );
}

#[tokio::test]
async fn an_untrusted_server_is_refused_with_the_reason_and_what_to_do() {
    let address = server();
    // The certificate is for localhost and 127.0.0.1. On a machine without 127.0.0.2 there is no connection either.
    let other_name = Settings {
        ca_file: Some(file("ca.pem")),
        ..settings(&format!("https://127.0.0.2:{}", address.port()))
    };
    let (unknown_root, other_name) = (Subject::with(at(address, None)), Subject::with(other_name));
    let (unknown_root, other_name) = tokio::join!(unknown_root.failed(), other_name.failed());
    assert_eq!(
        (unknown_root.reason().as_str(), other_name.reason().as_str()),
        ("connect", "connect")
    );
    let text = unknown_root.to_string();
    assert!(
        text.contains("certificate")
            && text.contains("UnknownIssuer")
            && text.contains("--api.ca-file"),
        "{text}"
    );
}
