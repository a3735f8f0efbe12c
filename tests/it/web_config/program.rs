//! The built binary with a web configuration file.

use tempfile::TempDir;

use super::{TLS, certificate, client, directory, tls_file, users};
use crate::support::binary::{Launch, Scrape, exporter, until};

/// The address of the API: nothing listens there, which web clients do not notice.
const NOWHERE: &str = "http://127.0.0.1:9";

fn with_config(dir: &TempDir) -> Launch {
    let path = dir.path().join("web.yml");
    exporter(NOWHERE).arg(&format!("--web.config.file={}", path.display()))
}

#[tokio::test]
async fn sighup_reads_the_file_again_and_a_broken_one_is_logged_once_and_changes_nothing() {
    let dir = directory(&format!("{TLS}{}", users(&[("alice", "old")])));
    let mut exporter = with_config(&dir).start();
    let url = exporter.url().await;
    let url = url.replace("http://127.0.0.1", "https://localhost") + "/-/ready";
    let status = async |user: &str, password: &str| {
        let request = client().build().unwrap().get(&url);
        let request = request.basic_auth(user, Some(password));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status("alice", "old").await, 200);
    let protection = "tls=true client_certificates=Off basic_auth=true";
    exporter
        .logs(&format!("web configuration loaded | {protection}"))
        .await;
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
        assert_eq!(status("alice", "old").await, 200);
    }
    let words = "the previous one stays in use | cert_file";
    exporter.logs(words).await;
    // What was found right for a user is not right for a removed one.
    write(format!("{TLS}{}", users(&[("carol", "old")])));
    exporter.signal("HUP").await;
    until("the new user", async || {
        (status("carol", "old").await == 200).then_some(())
    })
    .await;
    assert_eq!(status("alice", "old").await, 401);
    assert_eq!(exporter.stop().await, Some(0));
    let log = exporter.stderr().text();
    assert_eq!(log.matches("the previous one stays in use").count(), 1);
    assert!(!log.contains("$2b$"), "{log}");
}

/// Without a signal, within a second.
#[tokio::test]
async fn a_renewed_certificate_is_shown_and_the_metrics_say_when_it_expires() {
    let dir = directory(TLS);
    let file = |name: &str| tls_file(name).display().to_string();
    let exporter = with_config(&dir)
        .arg("--otlp.endpoint=https://127.0.0.1:1")
        .env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &file("client.pem"))
        .env("OTEL_EXPORTER_OTLP_CLIENT_KEY", &file("client.key"))
        .start();
    let url = exporter.url().await.replace("http://", "https://") + "/metrics";
    // Returns when the certificates expire, if the web server's is of this authority or of the usual one.
    let ends = async |authority: &str| {
        let client = client().tls_certs_only([certificate(authority)]);
        let response = client.build().unwrap().get(&url).send().await.ok()?;
        let scrape = Scrape(response.text().await.unwrap());
        Some(["web", "otlp"].map(|used_for| {
            let name = "orgdata_certificate_not_after_timestamp_seconds";
            scrape.value(&format!("{name}{{used_for=\"{used_for}\"}}"))
        }))
    };
    let old = Some(4_948_858_020.0);
    assert_eq!(ends("ca.pem").await, Some([old, old]));
    // Certificate and key are two files: in between they do not match.
    for kind in ["pem", "key"] {
        assert!(ends("ca.pem").await.is_some());
        let renewed = dir.path().join(format!("server.{kind}"));
        std::fs::copy(tls_file(&format!("stranger.{kind}")), renewed).unwrap();
    }
    until("the new certificate", async || {
        ends("ca.pem").await.is_none().then_some(())
    })
    .await;
    let renewed = Some(4_948_871_395.0);
    assert_eq!(ends("stranger.pem").await, Some([renewed, old]));
}
