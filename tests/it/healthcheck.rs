//! The command `healthcheck` of the built binary, against the built exporter and against servers that misbehave.

use std::net::{Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::support::binary::{self, Exporter, Finished, exporter, launch};
use crate::support::http_peer::{Peer, Reply, answer, head};

/// An exporter is healthy also if its API is away.
const NOWHERE: &str = "http://127.0.0.1:9";

const VARIABLE: &str = "ORGDATA_WEB_LISTEN_ADDRESS";

/// Long enough for a machine that is busy with other tests.
const TIMEOUT: &str = "--timeout=20s";

const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/tls/");

async fn check(address: &str) -> Finished {
    let launch = launch(&["healthcheck", TIMEOUT]).env(VARIABLE, address);
    launch.run().await
}

async fn check_url(url: &str, timeout: &str) -> Finished {
    launch(&["healthcheck", timeout, "--url", url]).run().await
}

async fn port(exporter: &Exporter) -> String {
    let url = exporter.url().await;
    url.rsplit(':').next().expect("a port").to_owned()
}

#[track_caller]
fn assert_healthy(finished: &Finished, words: &str) {
    let ended = (finished.status, finished.stderr.as_str());
    assert_eq!(ended, (Some(0), ""), "{finished:?}");
    let lines = finished.stdout.lines().count();
    assert!(
        lines == 1 && finished.stdout.contains(words),
        "{words}: {finished:?}"
    );
}

/// An exporter with this web configuration, and its file.
fn behind(config: &str) -> (Exporter, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), config).expect("writable");
    let flag = format!("--web.config.file={}", file.path().display());
    (exporter(NOWHERE).arg(&flag).start(), file)
}

fn tls() -> String {
    format!("tls_server_config:\n  cert_file: {TLS}server.pem\n  key_file: {TLS}server.key\n")
}

#[tokio::test]
async fn an_exporter_is_found_by_its_listen_address() {
    let proxy = Peer::always(answer("200 OK", &[], "")).await;
    let exporter = launch(&["--web.listen-address=:0", "--state.path=:memory:"])
        .env("ORGDATA_API_BASE_URL", NOWHERE)
        .env("ORGDATA_API_KEY", binary::KEY)
        .start();
    let port = port(&exporter).await;
    for address in [
        ":PORT",
        "127.0.0.1:PORT",
        "0.0.0.0:PORT",
        "[::]:PORT",
        "localhost:PORT",
        ":PORT,:1",
    ] {
        let launch = launch(&["healthcheck", TIMEOUT])
            .env(VARIABLE, &address.replace("PORT", &port))
            .env("HTTP_PROXY", &proxy.url())
            .env("ALL_PROXY", &proxy.url());
        assert_healthy(&launch.run().await, &format!(":{port}/-/healthy: healthy"));
    }
    assert_eq!(proxy.count(), 0);
    // A flag wins over its variable.
    let flag = format!("--web.listen-address=:{port}");
    let launch = launch(&["healthcheck", TIMEOUT, &flag]).env(VARIABLE, "127.0.0.1:9");
    assert_healthy(&launch.run().await, "healthy");
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        assert_healthy(&check(&format!("[::1]:{port}")).await, "healthy");
    }
}

#[tokio::test]
async fn a_unix_socket_is_asked_with_and_without_tls() {
    for config in ["", &tls()] {
        let dir = tempfile::tempdir().expect("a directory");
        let address = format!("unix:{}", dir.path().join("web.sock").display());
        let file = dir.path().join("web.yml");
        std::fs::write(&file, config).expect("writable");
        let mut exporter = exporter(NOWHERE)
            .arg(&format!("--web.listen-address={address}"))
            .arg(&format!("--web.config.file={}", file.display()))
            .start();
        exporter.url().await;
        assert_healthy(&check(&address).await, &format!("{address}: healthy"));
        exporter.signal("KILL").await;
        exporter.ended().await;
        let finished = check(&address).await;
        let line = finished.refusal(1);
        assert!(
            line.contains(&address) && line.contains("refused"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_missing_or_frozen_exporter_is_not_healthy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = listener.local_addr().expect("bound").to_string();
    drop(listener);
    for address in [&free, "no-such-host.invalid:10917"] {
        assert!(
            check(address).await.refusal(1).contains(address),
            "{address}"
        );
    }
    let mut plain = exporter(NOWHERE).start();
    let (with_tls, _file) = behind(&tls());
    for (scheme, exporter) in [("http", &plain), ("https", &with_tls)] {
        let url = format!("{scheme}://127.0.0.1:{}", port(exporter).await);
        exporter.signal("STOP").await;
        let finished = check_url(&url, "--timeout=300ms").await;
        assert!(
            finished.refusal(1).contains("no answer within 300ms"),
            "{finished:?}"
        );
        exporter.signal("CONT").await;
        assert_healthy(&check_url(&url, TIMEOUT).await, "healthy");
    }
    assert_eq!(plain.stop().await, Some(0));
}

#[tokio::test]
async fn the_timeout_is_for_the_whole_check() {
    let header = (b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".to_vec());
    let drip = Reply::Drip(header.0, header.1, Duration::from_millis(50));
    let stuck = Reply::Held(head("503 Service Unavailable", &[], 100).into_bytes());
    for reply in [drip, stuck, answer("400 Bad Request", &[], "")] {
        let peer = Peer::always(reply).await;
        let begun = Instant::now();
        let finished = check_url(&peer.url(), "--timeout=400ms").await;
        assert!(
            finished.refusal(1).contains("no answer within 400ms"),
            "{finished:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn the_answer_decides() {
    for (status, exit, words) in [
        ("200 OK", 0, "healthy"),
        ("401 Unauthorized", 0, "401"),
        ("429 Too Many Requests", 0, "429"),
        ("503 Service Unavailable", 1, "The loop audit is stuck"),
        ("500 Internal Server Error", 1, "500"),
        ("404 Not Found", 1, "is that an orgdata-exporter?"),
        ("301 Moved Permanently", 1, "301"),
    ] {
        let peer = Peer::start(move |seen, _| {
            let known = seen.target() == "/-/healthy";
            let status = if known { status } else { "418 I'm a teapot" };
            answer(
                status,
                &["location: /elsewhere"],
                "The loop audit is stuck\nfor \x1b[31m6m.\n",
            )
        })
        .await;
        let finished = check_url(&peer.url(), TIMEOUT).await;
        if exit == 0 {
            assert_healthy(&finished, words);
        } else {
            let line = finished.refusal(exit);
            assert!(line.contains(words) && !line.contains('\x1b'), "{line}");
        }
    }
    for reply in [
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Reset(Vec::new()),
    ] {
        let peer = Peer::always(reply).await;
        assert!(
            check_url(&peer.url(), TIMEOUT)
                .await
                .refusal(1)
                .contains(&peer.url())
        );
    }
}

#[tokio::test]
async fn an_answer_is_enough_with_tls_and_passwords() {
    let password = bcrypt::hash("s3cret", 4).expect("a hash");
    let users = format!("basic_auth_users:\n  prometheus: {password}\n");
    let clients =
        format!("  client_ca_file: {TLS}ca.pem\n  client_auth_type: RequireAndVerifyClientCert\n");
    for (config, words) in [
        (format!("{}  min_version: TLS13\n", tls()), ": healthy"),
        (users.clone(), "401"),
        (format!("{}{users}", tls()), "401"),
        (format!("{}{clients}", tls()), "client certificate"),
        (
            format!("{}{clients}  max_version: TLS12\n", tls()),
            "client certificate",
        ),
    ] {
        let (exporter, _file) = behind(&config);
        let finished = check(&format!(":{}", port(&exporter).await)).await;
        assert_healthy(&finished, words);
    }
    // A configuration file that was broken later is not in force.
    let (exporter, file) = behind(&tls());
    let port = port(&exporter).await;
    std::fs::write(file.path(), "tls_server_config: {}\n").expect("writable");
    assert_healthy(&check(&format!(":{port}")).await, "healthy");
}

#[tokio::test]
async fn a_url_is_asked_as_it_is_and_its_secrets_are_not_shown() {
    let peer = Peer::start(|seen, _| {
        let known = seen.target() == "/behind/-/healthy?token=s3cret";
        answer(if known { "200 OK" } else { "404 Not Found" }, &[], "")
    })
    .await;
    let url = peer.url().replace("http://", "http://user:s3cret@");
    let finished = check_url(&format!("{url}/behind/-/healthy?token=s3cret"), TIMEOUT).await;
    assert_healthy(&finished, "healthy");
    assert!(!finished.stdout.contains("s3cret"), "{finished:?}");
}

#[tokio::test]
async fn wrong_settings_are_one_line_without_secrets() {
    for (argument, words) in [
        ("--url=http://admin:s3cret@localhost:port/", "--url"),
        ("--url=ftp://localhost/", "https://"),
        ("--url=localhost", "http://localhost:10917"),
        ("--url=", "--url"),
        ("--timeout=0", "15s"),
        ("--timeout=1M", "1m for a minute"),
        ("--web.listen-address=:0", "--url"),
        ("--web.listen-address=unix:", "unix:/run"),
        ("--no-such-flag", "--no-such-flag"),
    ] {
        let finished = launch(&["healthcheck", argument]).run().await;
        let line = finished.refusal(2);
        assert!(
            line.contains(words) && !line.contains("s3cret"),
            "{words}: {line}"
        );
    }
}
