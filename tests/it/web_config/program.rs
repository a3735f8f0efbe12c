//! The built binary with a web configuration file, a Unix socket, and sockets of systemd's.

use std::os::fd::OwnedFd;
use std::process::Stdio;

use orgdata_exporter::simulator::{Config, Simulator};
use reqwest::Certificate;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Command;

use super::{TLS, client, directory, tls_file, users};
use crate::support::binary::{Launch, exporter, until};

const NOWHERE: &str = "http://127.0.0.1:9";

fn with_config(base_url: &str, dir: &tempfile::TempDir) -> Launch {
    exporter(base_url).arg(&format!(
        "--web.config.file={}",
        dir.path().join("web.yml").display()
    ))
}

/// The status line of `GET /-/healthy` on a Unix socket.
async fn ask(path: &std::path::Path) -> Option<String> {
    let mut stream = UnixStream::connect(path).await.ok()?;
    stream
        .write_all(b"GET /-/healthy HTTP/1.0\r\n\r\n")
        .await
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().next().map(str::to_owned)
}

#[tokio::test]
async fn a_broken_file_is_one_line_and_status_2() {
    for (config, parts) in [
        (
            "tls_server_config:\n  cert_file: gone.pem\n  key_file: server.key\n",
            &["web.yml", "cert_file", "gone.pem"][..],
        ),
        (
            "basic_auth_users:\n  alice: secret\n",
            &["web.yml", "basic_auth_users.alice", "htpasswd"],
        ),
        (
            "tls_serverconfig: {}\n",
            &["web.yml", "tls_serverconfig", "tls_server_config"],
        ),
    ] {
        let dir = directory(config);
        let finished = with_config(NOWHERE, &dir).run().await;
        let message = finished.refusal(2);
        assert!(message.starts_with("--web.config.file"), "{message}");
        for part in parts {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }
    let missing = exporter(NOWHERE)
        .arg("--web.config.file=/nonexistent/web.yml")
        .run()
        .await;
    assert!(missing.refusal(2).contains("/nonexistent/web.yml"));
}

#[tokio::test]
async fn it_serves_as_the_file_says_and_sighup_reads_it_again_at_once() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let dir = directory(&format!("{TLS}{}", users(&[("alice", "old")])));
    let mut exporter = with_config(&sim.base_url(), &dir).start();
    let port = exporter.url().await.rsplit(':').next().unwrap().to_owned();
    let status = async |password: &str| {
        let request = client()
            .build()
            .unwrap()
            .get(format!("https://localhost:{port}/-/ready"))
            .basic_auth("alice", Some(password));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("old").await, 200);
    exporter
        .stderr()
        .until("what is in force", |line| {
            line.contains("web configuration loaded") && line.contains("tls=true")
        })
        .await;

    // Broken: said once, however often it is read.
    std::fs::write(
        dir.path().join("web.yml"),
        "tls_server_config: {cert_file: gone.pem, key_file: server.key}\n",
    )
    .unwrap();
    for _ in 0..3 {
        exporter.signal("HUP").await;
        exporter
            .stderr()
            .until("the signal", |line| line.contains("SIGHUP"))
            .await;
        assert_eq!(status("old").await, 200);
    }
    let broken = |line: &str| {
        line.contains("cannot use the changed web configuration")
            && line.contains("cert_file")
            && line.contains("stays in force")
    };
    exporter.stderr().until("what is broken", broken).await;

    std::fs::write(
        dir.path().join("web.yml"),
        format!("{TLS}{}", users(&[("alice", "new")])),
    )
    .unwrap();
    exporter.signal("HUP").await;
    until("the new password", async || {
        (status("new").await == 200).then_some(())
    })
    .await;
    assert_eq!(status("old").await, 401);
    assert_eq!(
        exporter
            .stderr()
            .text()
            .lines()
            .filter(|line| broken(line))
            .count(),
        1
    );
    assert_eq!(exporter.stop().await, Some(0));
    assert!(
        !exporter.stderr().text().contains("$2b$"),
        "no hash in the log"
    );
}

#[tokio::test]
async fn it_listens_on_a_unix_socket_and_takes_it_over_from_a_dead_process() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.sock");
    let launch =
        || exporter(&sim.base_url()).arg(&format!("--web.listen-address=unix:{}", path.display()));
    let mut first = launch().start();
    assert_eq!(
        until("an answer", async || ask(&path).await).await,
        "HTTP/1.0 200 OK"
    );
    first
        .stderr()
        .until("both addresses", |line| {
            line.contains("listening") && line.contains("127.0.0.1:") && line.contains("unix:")
        })
        .await;
    let second = launch().run().await;
    assert!(second.refusal(2).contains("another process listens there"));
    first.signal("KILL").await;
    first.ended().await;
    assert!(path.exists(), "a killed process leaves the file");
    let mut third = launch().start();
    assert_eq!(
        until("an answer", async || ask(&path).await).await,
        "HTTP/1.0 200 OK"
    );
    assert_eq!(third.stop().await, Some(0));
    assert!(!path.exists(), "a process that stops removes the file");
}

#[tokio::test]
async fn it_takes_the_sockets_that_systemd_hands_over() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("handed.sock");
    let handed = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // As systemd does it: descriptor 3, and variables for exactly this process.
    let script = "exec env LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web \"$0\" \"$@\" 3<&0";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_orgdata-exporter")])
        .args([
            "--web.systemd-socket",
            "--state.path=:memory:",
            "--api.base-url",
            &sim.base_url(),
        ])
        .env("ORGDATA_API_KEY", crate::support::binary::KEY)
        .stdin(Stdio::from(OwnedFd::from(handed)))
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    assert_eq!(
        until("an answer", async || ask(&path).await).await,
        "HTTP/1.0 200 OK"
    );
    assert!(child.try_wait().unwrap().is_none());
    child.kill().await.unwrap();
    assert!(path.exists(), "the file is systemd's");
}

#[tokio::test]
async fn without_sockets_of_systemd_s_it_says_so() {
    let finished = exporter(NOWHERE).arg("--web.systemd-socket").run().await;
    assert!(finished.refusal(2).contains("--web.systemd-socket"));
    let others = exporter(NOWHERE)
        .arg("--web.systemd-socket")
        .env("LISTEN_PID", "1")
        .env("LISTEN_FDS", "1")
        .run()
        .await;
    assert!(others.refusal(2).contains("LISTEN_PID"));
}

#[tokio::test]
async fn the_metrics_say_when_its_certificates_end() {
    const END: &str = "4948858020";
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let dir = tempfile::tempdir().unwrap();
    for name in ["server.pem", "server.key"] {
        std::fs::copy(tls_file(name), dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("web.yml"), TLS).unwrap();
    let file = |name: &str| tls_file(name).display().to_string();
    let exporter = exporter(&sim.base_url())
        .arg(&format!(
            "--web.config.file={}",
            dir.path().join("web.yml").display()
        ))
        .arg("--otlp.endpoint=https://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem"))
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client.key"))
        .start();
    let url = exporter.url().await.replace("http://", "https://");
    let roots = ["ca.pem", "stranger.pem"]
        .map(|name| Certificate::from_pem(&std::fs::read(tls_file(name)).unwrap()).unwrap());
    let client = super::client().tls_certs_only(roots).build().unwrap();
    let metrics = async || {
        client
            .get(format!("{url}/metrics"))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    };
    let series = |used_for: &str, end: &str| {
        format!(
            "orgdata_certificate_not_after_timestamp_seconds{{used_for=\"{used_for}\"}} {end}\n"
        )
    };
    let shown = metrics().await;
    assert!(
        shown.contains(&series("web", END)) && shown.contains(&series("otlp", END)),
        "{shown}"
    );

    // Renewed: as the connection after the next request has it.
    for name in ["pem", "key"] {
        std::fs::copy(
            tls_file(&format!("stranger.{name}")),
            dir.path().join(format!("server.{name}")),
        )
        .unwrap();
    }
    until("the end of the new certificate", async || {
        metrics()
            .await
            .contains(&series("web", "4948871395"))
            .then_some(())
    })
    .await;
}
