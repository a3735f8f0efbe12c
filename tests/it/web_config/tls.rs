//! TLS: protocols, versions, cipher suites.

use std::sync::Arc;

use reqwest::{StatusCode, Version, tls};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Server, TLS, client, tls_file};

/// What a bare TLS client offers.
pub(super) async fn connect(
    server: &Server,
    suites: &[CipherSuite],
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut provider = rustls::crypto::ring::default_provider();
    if !suites.is_empty() {
        let offered = |wanted: &CipherSuite| {
            provider
                .cipher_suites
                .iter()
                .copied()
                .find(|suite| suite.suite() == *wanted)
                .unwrap()
        };
        provider.cipher_suites = suites.iter().map(offered).collect();
    }
    let mut roots = RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_file(tls_file("ca.pem")).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let stream = TcpStream::connect(server.address).await?;
    TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

#[tokio::test]
async fn everything_is_behind_tls() {
    let server = Server::start(TLS).await;
    let client = client().build().unwrap();
    for path in ["/metrics", "/", "/-/healthy", "/-/ready"] {
        assert_eq!(
            client
                .get(server.https(path))
                .send()
                .await
                .unwrap()
                .status(),
            StatusCode::OK,
            "{path}"
        );
    }
}

#[tokio::test]
async fn http_where_tls_is_spoken_is_told_so() {
    let server = Server::start(TLS).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.0 400")
            && answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn http2_is_offered_unless_it_is_switched_off() {
    let both = Server::start(TLS).await;
    let response = client()
        .build()
        .unwrap()
        .get(both.https("/metrics"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    assert!(response.text().await.unwrap().contains("process_open_fds"));
    let old = client().http1_only().build().unwrap();
    assert_eq!(
        old.get(both.https("/metrics"))
            .send()
            .await
            .unwrap()
            .version(),
        Version::HTTP_11
    );
    let one = Server::start(&format!("{TLS}http_server_config:\n  http2: false\n")).await;
    assert_eq!(
        client()
            .build()
            .unwrap()
            .get(one.https("/metrics"))
            .send()
            .await
            .unwrap()
            .version(),
        Version::HTTP_11
    );
}

#[tokio::test]
async fn only_the_versions_asked_for_are_spoken() {
    let only = |version| {
        client()
            .tls_version_min(version)
            .tls_version_max(version)
            .build()
            .unwrap()
    };
    for (field, tls12, tls13) in [
        ("", true, true),
        ("  min_version: TLS13\n", false, true),
        ("  max_version: TLS12\n", true, false),
    ] {
        let server = Server::start(&format!("{TLS}{field}")).await;
        for (version, wanted) in [
            (tls::Version::TLS_1_2, tls12),
            (tls::Version::TLS_1_3, tls13),
        ] {
            assert_eq!(
                only(version)
                    .get(server.https("/-/healthy"))
                    .send()
                    .await
                    .is_ok(),
                wanted,
                "{field} {version:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_server_s_order_of_ciphers_counts_unless_it_is_left_to_the_client() {
    const AES128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    const AES256: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    const CHACHA: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let list = "  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n";
    for (prefer, chosen) in [("true", AES128), ("false", AES256)] {
        let server = Server::start(&format!(
            "{TLS}{list}  prefer_server_cipher_suites: {prefer}\n"
        ))
        .await;
        let stream = connect(&server, &[AES256, AES128], &[]).await.unwrap();
        assert_eq!(
            stream
                .get_ref()
                .1
                .negotiated_cipher_suite()
                .unwrap()
                .suite(),
            chosen
        );
        assert!(
            connect(&server, &[CHACHA], &[]).await.is_err(),
            "a cipher that is not in the list"
        );
    }
}

#[tokio::test]
async fn only_the_curves_asked_for_are_used() {
    let server = Server::start(&format!("{TLS}  curve_preferences: [CurveP384]\n")).await;
    let stream = connect(&server, &[], &[]).await.unwrap();
    assert_eq!(
        stream
            .get_ref()
            .1
            .negotiated_key_exchange_group()
            .unwrap()
            .name(),
        NamedGroup::secp384r1
    );
}
