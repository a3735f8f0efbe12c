//! The command `healthcheck` of the built binary, against the built exporter and against servers that misbehave.

// A test fails by panicking, also in its helpers.

use crate::support::binary;
use crate::support::http_peer;

use std::net::{Ipv6Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use binary::{Exporter, Finished, exporter, launch};
use http_peer::{Peer, Reply, answer, head};

/// An exporter is healthy, too, when its service is away.
const NOWHERE: &str = "http://127.0.0.1:9";

const VARIABLE: &str = "ORGDATA_WEB_LISTEN_ADDRESS";

/// Long enough for a machine that is busy with other tests.
const TIMEOUT: &str = "--timeout=20s";

/// A check of what listens there.
async fn check(address: &str) -> Finished {
    launch(&["healthcheck", TIMEOUT])
        .env(VARIABLE, address)
        .run()
        .await
}

async fn port(exporter: &Exporter) -> u16 {
    exporter
        .url()
        .await
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[track_caller]
fn assert_healthy(finished: &Finished) {
    assert_eq!(
        (finished.status, finished.stderr.as_str()),
        (Some(0), ""),
        "{finished:?}"
    );
    assert!(
        finished.stdout.ends_with('\n') && finished.stdout.lines().count() == 1,
        "{finished:?}"
    );
}

fn tls_file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/support/tls")
        .join(name)
        .display()
        .to_string()
}

/// An exporter behind this web configuration, and the file.
async fn behind(config: &str) -> (Exporter, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    (
        exporter(NOWHERE)
            .arg(&format!("--web.config.file={}", file.path().display()))
            .start(),
        file,
    )
}

fn tls() -> String {
    format!(
        "tls_server_config:\n  cert_file: {}\n  key_file: {}\n",
        tls_file("server.pem"),
        tls_file("server.key")
    )
}

#[tokio::test]
async fn an_exporter_is_found_by_its_listen_address() {
    let every_interface = &[
        "--web.listen-address=:0",
        "--state.path=:memory:",
        "--api.base-url",
        NOWHERE,
    ];
    let exporter = launch(every_interface)
        .env("ORGDATA_API_KEY", binary::KEY)
        .start();
    let port = port(&exporter).await;
    for address in [
        ":PORT",
        "127.0.0.1:PORT",
        "0.0.0.0:PORT",
        "[::]:PORT",
        "[::ffff:0.0.0.0]:PORT",
        "localhost:PORT",
        ":PORT,:1",
    ] {
        let finished = check(&address.replace("PORT", &port.to_string())).await;
        assert_healthy(&finished);
        assert!(
            finished
                .stdout
                .contains(&format!(":{port}/-/healthy: healthy")),
            "{address}: {finished:?}"
        );
    }
    // A flag wins over its variable.
    let flag = format!("--web.listen-address=:{port}");
    assert_healthy(
        &launch(&["healthcheck", TIMEOUT, &flag])
            .env(VARIABLE, "127.0.0.1:9")
            .run()
            .await,
    );
    // Where there is no IPv6 there is nothing to find.
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        assert_healthy(&check(&format!("[::1]:{port}")).await);
    }
}

#[tokio::test]
async fn a_unix_socket_is_asked_with_and_without_tls() {
    for config in ["", &tls()] {
        let dir = tempfile::tempdir().unwrap();
        let address = format!("unix:{}", dir.path().join("web.sock").display());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config).unwrap();
        let mut exporter = exporter(NOWHERE)
            .arg(&format!("--web.listen-address={address}"))
            .arg(&format!("--web.config.file={}", file.path().display()))
            .start();
        exporter.url().await;
        let finished = check(&address).await;
        assert_healthy(&finished);
        assert_eq!(finished.stdout, format!("{address}: healthy\n"));
        exporter.signal("KILL").await;
        exporter.ended().await;
        let finished = check(&address).await;
        let message = finished.refusal(1);
        assert!(
            message.starts_with(&address) && message.contains("refused"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_exporter_that_is_gone_is_not_healthy() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let finished = check(&free.to_string()).await;
    let message = finished.refusal(1);
    assert!(
        message.contains(&free.to_string()) && message.contains("refused"),
        "{message}"
    );
    let finished = check("no-such-host.invalid:10917").await;
    assert!(finished.refusal(1).contains("no-such-host.invalid"));
}

#[tokio::test]
async fn an_exporter_that_stands_still_is_not_healthy() {
    let mut exporter = exporter(NOWHERE).start();
    let port = port(&exporter).await;
    exporter.signal("STOP").await;
    let finished = launch(&["healthcheck", "--timeout=300ms"])
        .env(VARIABLE, &format!(":{port}"))
        .run()
        .await;
    let message = finished.refusal(1);
    assert!(message.contains("no answer within 300ms"), "{message}");
    exporter.signal("CONT").await;
    assert_healthy(&check(&format!(":{port}")).await);
    assert_eq!(exporter.stop().await, Some(0));
}

#[tokio::test]
async fn the_time_out_is_for_all_of_it() {
    let drip = Peer::start(|_, _| {
        Reply::Drip(
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            b"x: y\r\n".to_vec(),
            Duration::from_millis(50),
        )
    })
    .await;
    let stuck =
        Peer::start(|_, _| Reply::Held(head("503 Service Unavailable", &[], 100).into_bytes()))
            .await;
    // TLS is tried in vain.
    let neither = Peer::always(answer("400 Bad Request", &[], "")).await;
    for peer in [drip, stuck, neither] {
        let begun = Instant::now();
        let finished = launch(&["healthcheck", "--timeout", "400ms", "--url", &peer.url()])
            .run()
            .await;
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
async fn what_it_answers_decides() {
    for (status, healthy, part) in [
        ("200 OK", true, "healthy"),
        ("401 Unauthorized", true, "401"),
        ("429 Too Many Requests", true, "429"),
        (
            "503 Service Unavailable",
            false,
            "The loop audit has not turned for 6m.",
        ),
        ("500 Internal Server Error", false, "500"),
        // Another program.
        ("404 Not Found", false, "is that an orgdata-exporter?"),
        ("301 Moved Permanently", false, "301"),
    ] {
        let peer = Peer::start(move |seen, _| {
            let known = seen.target() == "/-/healthy";
            answer(
                if known { status } else { "418 I'm a teapot" },
                &["location: /elsewhere"],
                "The loop audit\nhas not turned for \x1b[31m6m.\n",
            )
        })
        .await;
        let finished = launch(&["healthcheck", TIMEOUT, "--url", &peer.url()])
            .run()
            .await;
        if healthy {
            assert_healthy(&finished);
            assert!(finished.stdout.contains(part), "{finished:?}");
        } else {
            let message = finished.refusal(1);
            assert!(
                message.replace("[31m", "").contains(part) && !message.contains('\x1b'),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_no_http_is_not_healthy() {
    for reply in [
        Reply::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        Reply::Bytes(Vec::new()),
        Reply::Reset(Vec::new()),
    ] {
        let peer = Peer::start(move |_, _| reply.clone()).await;
        let finished = launch(&["healthcheck", TIMEOUT, "--url", &peer.url()])
            .run()
            .await;
        assert!(finished.refusal(1).starts_with(&peer.url()));
    }
}

#[tokio::test]
async fn behind_tls_and_passwords_an_answer_is_enough() {
    let users = format!(
        "basic_auth_users:\n  prometheus: {}\n",
        bcrypt::hash("s3cret", 4).unwrap()
    );
    let clients = format!(
        "  client_ca_file: {}\n  client_auth_type: RequireAndVerifyClientCert\n",
        tls_file("ca.pem")
    );
    for (config, part) in [
        (tls(), ": healthy"),
        (users.clone(), "401"),
        (format!("{}{users}", tls()), "401"),
        (format!("{}{clients}", tls()), "client certificate"),
        (
            format!("{}{clients}  max_version: TLS12\n", tls()),
            "client certificate",
        ),
        (format!("{}  min_version: TLS13\n", tls()), ": healthy"),
    ] {
        let (exporter, _file) = behind(&config).await;
        let finished = check(&format!(":{}", port(&exporter).await)).await;
        assert_healthy(&finished);
        assert!(finished.stdout.contains(part), "{config}\n{finished:?}");
    }
}

#[tokio::test]
async fn a_frozen_exporter_behind_tls_is_not_healthy() {
    let (exporter, _file) = behind(&tls()).await;
    let port = port(&exporter).await;
    exporter.signal("STOP").await;
    let finished = launch(&[
        "healthcheck",
        "--timeout=300ms",
        "--url",
        &format!("https://127.0.0.1:{port}"),
    ])
    .run()
    .await;
    assert!(
        finished.refusal(1).contains("no answer within 300ms"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn a_configuration_file_that_broke_later_does_not_make_it_unhealthy() {
    let (exporter, file) = behind(&tls()).await;
    let port = port(&exporter).await;
    std::fs::write(
        file.path(),
        "tls_server_config: {cert_file: gone.pem, key_file: server.key}\n",
    )
    .unwrap();
    exporter.signal("HUP").await;
    exporter
        .stderr()
        .until("what is broken", |line| {
            line.contains("cannot use the changed web configuration")
        })
        .await;
    let config = file.path().display().to_string();
    let finished = launch(&["healthcheck", TIMEOUT])
        .env(VARIABLE, &format!(":{port}"))
        .env("ORGDATA_WEB_CONFIG_FILE", &config)
        .run()
        .await;
    assert_healthy(&finished);
}

#[tokio::test]
async fn a_proxy_is_not_asked() {
    let exporter = exporter(NOWHERE).start();
    let proxy = Peer::start(|_, _| answer("200 OK", &[], "")).await;
    let mut launch =
        launch(&["healthcheck", TIMEOUT]).env(VARIABLE, &format!(":{}", port(&exporter).await));
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        launch = launch.env(name, &proxy.url());
    }
    assert_healthy(&launch.run().await);
    assert_eq!(proxy.seen().len(), 0);
}

#[tokio::test]
async fn an_address_of_ones_own_is_asked_for_its_path() {
    let peer = Peer::start(|seen, _| {
        answer(
            if seen.target() == "/behind/-/healthy?token=s3cret" {
                "200 OK"
            } else {
                "404 Not Found"
            },
            &[],
            "",
        )
    })
    .await;
    let url = format!("{}/behind/-/healthy?token=s3cret", peer.url());
    let finished = launch(&["healthcheck", TIMEOUT, "--url", &url]).run().await;
    assert_healthy(&finished);
    assert!(!finished.stdout.contains("s3cret"), "{finished:?}");
}

#[tokio::test]
async fn wrong_settings_are_one_line_without_secrets_and_status_2() {
    for (arguments, parts) in [
        (
            &["--url=http://admin:s3cret@localhost:10917/"][..],
            &["--url", "command lines are public"][..],
        ),
        (
            &["--url=http://admin:s3cret@localhost:port/"],
            &["--url", "http://localhost:10917"],
        ),
        (&["--url=ftp://localhost/"], &["--url", "https://"]),
        (&["--url=localhost"], &["--url", "http://localhost:10917"]),
        (&["--url="], &["--url"]),
        (&["--timeout=0"], &["--timeout", "15s"]),
        (&["--timeout=fast"], &["--timeout", "15s"]),
        (
            &["--web.listen-address=:0"],
            &["--web.listen-address", "--url"],
        ),
        (
            &["--web.listen-address=unix:"],
            &["--web.listen-address", "unix:/run"],
        ),
        (&["--no-such-flag"], &["--no-such-flag"]),
    ] {
        let finished = launch(&["healthcheck"]).args(arguments).run().await;
        let message = finished.refusal(2);
        assert!(!message.contains("s3cret"), "{message}");
        for part in parts {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }
    let finished = check("10917").await;
    assert!(finished.refusal(2).contains(VARIABLE), "{finished:?}");
}
