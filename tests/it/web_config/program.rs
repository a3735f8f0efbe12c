//! The built binary with a web configuration file, a Unix socket, and sockets of systemd.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::{TLS, certificate, client, directory, tls_file, users};
use crate::support::binary::{KEY, Launch, exporter, until};

/// The address of the API: nothing listens there, which web clients do not notice.
const NOWHERE: &str = "http://127.0.0.1:9";

fn with_config(dir: &TempDir) -> Launch {
    let path = dir.path().join("web.yml");
    exporter(NOWHERE).arg(&format!("--web.config.file={}", path.display()))
}

/// Returns the status line of a path on a Unix socket.
async fn ask(socket: &Path, path: &str) -> Option<String> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().next().map(str::to_owned)
}

async fn is_served(socket: &Path) {
    let answer = until("an answer", async || ask(socket, "/-/healthy").await);
    assert_eq!(answer.await, "HTTP/1.0 200 OK");
}

/// Runs the exporter from a shell script, in which `"$0" "$@"` is its command line.
fn script(script: &str, stdin: Stdio, arguments: &[&str]) -> Child {
    let binary = env!("CARGO_BIN_EXE_orgdata-exporter");
    let mut command = Command::new("sh");
    command.args(["-c", script, binary, "--state.path=:memory:"]);
    command.args(arguments).env("ORGDATA_API_KEY", KEY);
    command.stdin(stdin).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn a_broken_file_is_one_line_and_status_2() {
    let missing = "tls_server_config:\n  cert_file: gone.pem\n  key_file: server.key\n";
    for (config, part) in [
        (missing, "gone.pem"),
        ("basic_auth_users:\n  alice: secret\n", "htpasswd"),
        ("tls_serverconfig: {}\n", "tls_serverconfig"),
    ] {
        let dir = directory(config);
        let words = format!("--web.config.file | web.yml | {part}");
        with_config(&dir).refused(2, &words).await;
    }
    let missing = exporter(NOWHERE).arg("--web.config.file=/nonexistent/web.yml");
    missing.refused(2, "/nonexistent/web.yml").await;
}

#[tokio::test]
async fn sighup_reads_the_file_again_and_a_broken_one_is_logged_once() {
    let dir = directory(&format!("{TLS}{}", users(&[("alice", "old")])));
    let mut exporter = with_config(&dir).start();
    let url = exporter.url().await;
    let url = url.replace("http://127.0.0.1", "https://localhost") + "/-/ready";
    let status = async |password: &str| {
        let request = client().build().unwrap().get(&url);
        let request = request.basic_auth("alice", Some(password));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("old").await, 200);
    // At once: a part of the file would be another mistake.
    let write = |config: String| {
        let (new, file) = (dir.path().join("new.yml"), dir.path().join("web.yml"));
        std::fs::write(&new, config).unwrap();
        std::fs::rename(new, file).unwrap();
    };
    write("tls_server_config: {cert_file: gone.pem, key_file: server.key}\n".to_owned());
    for _ in 0..3 {
        exporter.signal("HUP").await;
        exporter.logs("SIGHUP").await;
        assert_eq!(status("old").await, 200);
    }
    exporter
        .logs("the previous one stays in force | cert_file")
        .await;
    write(format!("{TLS}{}", users(&[("alice", "new")])));
    exporter.signal("HUP").await;
    until("the new password", async || {
        (status("new").await == 200).then_some(())
    })
    .await;
    assert_eq!(status("old").await, 401);
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert_eq!(log.matches("the previous one stays in force").count(), 1);
    assert!(log.contains("web configuration loaded"), "{log}");
    assert!(!log.contains("$2b$"), "{log}");
}

#[tokio::test]
async fn it_listens_on_a_unix_socket_and_takes_it_over_from_a_dead_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.sock");
    let address = format!("--web.listen-address=unix:{}", path.display());
    let launch = || exporter(NOWHERE).arg(&address);
    let mut first = launch().start();
    is_served(&path).await;
    first.logs("127.0.0.1: | unix:").await;
    launch()
        .refused(2, "address in use | stop what listens there")
        .await;
    first.signal("KILL").await;
    first.ended().await;
    assert!(path.exists(), "a killed process leaves the file");
    let mut third = launch().start();
    is_served(&path).await;
    assert_eq!(third.stop().await, Some(0));
    assert!(!path.exists(), "a process that stops removes the file");
}

#[tokio::test]
async fn it_takes_the_sockets_that_systemd_passes_and_refuses_to_start_without_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passed.sock");
    let passed = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // As systemd does it: descriptor 3, and variables for exactly this process.
    let run = "exec env LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=web \"$0\" \"$@\" 3<&0";
    let arguments = ["--web.systemd-socket", "--api.base-url", NOWHERE];
    let mut child = script(run, Stdio::from(OwnedFd::from(passed)), &arguments);
    is_served(&path).await;
    child.kill().await.unwrap();
    assert!(path.exists(), "the file belongs to systemd");
    for pid in ["", "1"] {
        let launch = exporter(NOWHERE).arg("--web.systemd-socket");
        let launch = launch.env("LISTEN_PID", pid).env("LISTEN_FDS", "1");
        launch.refused(2, "--web.systemd-socket | LISTEN_PID").await;
    }
}

#[tokio::test]
async fn with_few_file_descriptors_idle_clients_do_not_keep_a_scraper_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.sock");
    let address = format!("--web.listen-address=unix:{}", path.display());
    let arguments = [address.as_str(), "--api.base-url", NOWHERE];
    let limited = "ulimit -n 40; exec \"$0\" \"$@\"";
    let _child = script(limited, Stdio::null(), &arguments);
    is_served(&path).await;
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(UnixStream::connect(&path).await.unwrap());
    }
    for path_asked in ["/metrics", "/-/healthy", "/metrics"] {
        let answer = ask(&path, path_asked).await;
        assert_eq!(answer.as_deref(), Some("HTTP/1.0 200 OK"), "{path_asked}");
    }
}

#[tokio::test]
async fn the_metrics_show_when_its_certificates_expire() {
    let dir = directory(TLS);
    let file = |name: &str| tls_file(name).display().to_string();
    let exporter = with_config(&dir)
        .arg("--otlp.endpoint=https://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem"))
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client.key"))
        .start();
    let url = exporter.url().await.replace("http://", "https://") + "/metrics";
    let roots = ["ca.pem", "stranger.pem"].map(certificate);
    let client = client().tls_certs_only(roots).build().unwrap();
    let shows = async |used_for: &str, end: &str| {
        let text = client.get(&url).send().await.unwrap().text().await.unwrap();
        let name = "orgdata_certificate_not_after_timestamp_seconds";
        text.contains(&format!("{name}{{used_for=\"{used_for}\"}} {end}\n"))
    };
    assert!(shows("web", "4948858020").await && shows("otlp", "4948858020").await);
    for name in ["pem", "key"] {
        let renewed = dir.path().join(format!("server.{name}"));
        std::fs::copy(tls_file(&format!("stranger.{name}")), renewed).unwrap();
    }
    until("the new certificate", async || {
        shows("web", "4948871395").await.then_some(())
    })
    .await;
}
