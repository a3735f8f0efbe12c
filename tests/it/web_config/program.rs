//! The built binary with a web configuration file.

use tempfile::TempDir;

use super::{TLS, certificate, client, directory, tls_file, users};
use crate::support::binary::{Launch, exporter, until};

/// The address of the API: nothing listens there, which web clients do not notice.
const NOWHERE: &str = "http://127.0.0.1:9";

fn with_config(dir: &TempDir) -> Launch {
    let path = dir.path().join("web.yml");
    exporter(NOWHERE).arg(&format!("--web.config.file={}", path.display()))
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
    let words = "the previous one stays in force | cert_file";
    exporter.logs(words).await;
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
