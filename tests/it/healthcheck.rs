//! The command `healthcheck` of the built binary, against the built exporter and against servers that misbehave.

use std::time::Duration;

use crate::support::binary::{Exporter, exporter, launch};
use crate::support::http_peer::{Peer, Reply, answer};
use crate::web_config::{TLS, directory, users};

/// An exporter is healthy also if its API is away.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Long enough for a machine that is busy with other tests.
const TIMEOUT: &str = "--timeout=20s";

/// Asserts that this check succeeds, or fails with this status, with one line that contains these words.
async fn expect(flag: &str, timeout: &str, status: i32, words: &str) {
    let launch = launch(&["healthcheck", timeout, flag]);
    let finished = launch.run().await;
    assert_eq!(finished.status, Some(status), "{finished:?}");
    let line = match status {
        0 => finished.stdout.strip_suffix('\n').unwrap(),
        status => finished.refusal(status),
    };
    let is_right = line.contains(words) && !line.contains(['\n', '\x1b']);
    assert!(is_right && !line.contains("s3cret"), "{words}: {line}");
}

async fn at(address: &str, status: i32, words: &str) {
    let flag = format!("--web.listen-address={address}");
    expect(&flag, TIMEOUT, status, words).await;
}

async fn url(url: &str, timeout: &str, status: i32, words: &str) {
    expect(&format!("--url={url}"), timeout, status, words).await;
}

/// An exporter at this address with this web configuration, and the directory of its file.
async fn behind(address: &str, config: &str) -> (Exporter, tempfile::TempDir) {
    let dir = directory(config);
    let file = dir.path().join("web.yml").display().to_string();
    let launch = exporter(NOWHERE).flag("--web.config.file", &file);
    let launch = launch.flag("--web.listen-address", address);
    (launch.listening().await, dir)
}

#[tokio::test]
async fn an_exporter_is_found_by_its_listen_address() {
    let (exporter, _dir) = behind(":0", "").await;
    let port = exporter.address().port();
    for host in ["", "0.0.0.0", "[::]", "[::1]", "localhost"] {
        let words = format!(":{port}/-/healthy: healthy");
        at(&format!("{host}:{port}"), 0, &words).await;
    }
    // The variable is read too, and no proxy is used.
    let proxy = Peer::always(answer("200 OK", &[], "")).await;
    let launch = launch(&["healthcheck", TIMEOUT])
        .env("ORGDATA_WEB_LISTEN_ADDRESS", &format!(":{port},:1"))
        .env("ALL_PROXY", &proxy.url());
    assert_eq!((launch.run().await.status, proxy.count()), (Some(0), 0));
}

#[tokio::test]
async fn a_missing_or_frozen_exporter_is_not_healthy() {
    at("127.0.0.1:1", 1, "127.0.0.1:1").await;
    let (exporter, _dir) = behind("127.0.0.1:0", TLS).await;
    let address = format!("https://{}", exporter.address());
    exporter.signal("STOP").await;
    url(&address, "--timeout=300ms", 1, "no answer within 300ms").await;
    exporter.signal("CONT").await;
    url(&address, TIMEOUT, 0, "healthy").await;
    // The timeout is for the whole check.
    let (begin, more) = (b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".to_vec());
    let peer = Peer::always(Reply::Drip(begin, more, Duration::from_millis(50))).await;
    url(&peer.url(), "--timeout=400ms", 1, "no answer within 400ms").await;
}

#[tokio::test]
async fn the_answer_decides() {
    for (status, exit, words) in [
        ("200 OK", 0, "healthy"),
        ("401 Unauthorized", 0, "401"),
        ("503 Unavailable", 1, "The loop audit is stuck"),
        ("301 Moved Permanently", 1, "is that an orgdata-exporter?"),
    ] {
        let peer = Peer::start(move |seen, _| {
            let known = seen.target() == "/behind/-/healthy?token=s3cret";
            let status = if known { status } else { "418 I'm a teapot" };
            let body = "The loop audit is stuck\nfor \x1b[31m6m.\n";
            answer(status, &["location: /elsewhere"], body)
        })
        .await;
        // A URL is asked as it is, and its secrets are not shown.
        let address = peer.url().replace("http://", "http://user:s3cret@");
        let address = format!("{address}/behind/-/healthy?token=s3cret");
        url(&address, TIMEOUT, exit, words).await;
    }
}

#[tokio::test]
async fn an_answer_is_enough_with_tls_and_passwords() {
    let users = users(&[("prometheus", "s3cret")]);
    let clients = "  client_ca_file: ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n";
    for (config, words) in [
        (format!("{TLS}{users}"), "401"),
        (format!("{TLS}{clients}"), "client cert"),
    ] {
        let (exporter, _dir) = behind("127.0.0.1:0", &config).await;
        at(&exporter.address().to_string(), 0, words).await;
    }
}
