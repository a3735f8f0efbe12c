//! The web configuration file over real sockets: who gets in, who does not, and when a change counts.

mod program;
mod tls;
mod verdicts;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use exporter_web::{Limits, WebConfig};
use reqwest::{Certificate, Client, ClientBuilder, RequestBuilder, Response, StatusCode};
use tempfile::TempDir;

use crate::support::files;
use crate::web::Server as Running;

/// The usual beginning of a file: TLS with the server's certificate.
pub(crate) const TLS: &str =
    "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

/// A server with a configuration file, which is beside the certificates.
pub(crate) struct Server {
    running: Running,
    dir: TempDir,
    config: WebConfig,
}

/// Returns the path of a file in `tests/support/tls`.
fn tls_file(name: &str) -> PathBuf {
    files::path("tests/support/tls").join(name)
}

/// Returns a directory with all certificates and the configuration file `web.yml`.
pub(crate) fn directory(config: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    files::copy(&tls_file(""), dir.path());
    std::fs::write(dir.path().join("web.yml"), config).unwrap();
    dir
}

/// Returns the section with these users, with the cheapest hashes there are.
fn users(users: &[(&str, &str)]) -> String {
    let hash = |password: &str| bcrypt::hash(password, 4).unwrap();
    let line = |(user, password): &(&str, &str)| format!("  {user}: {}\n", hash(password));
    let lines = users.iter().map(line);
    format!("basic_auth_users:\n{}", lines.collect::<String>())
}

fn certificate(name: &str) -> Certificate {
    Certificate::from_pem(&std::fs::read(tls_file(name)).unwrap()).unwrap()
}

/// A client that trusts the test root and opens a connection for each request.
pub(crate) fn client() -> ClientBuilder {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().pool_max_idle_per_host(0);
    let client = client.tls_certs_only([certificate("ca.pem")]);
    client.timeout(Duration::from_secs(20))
}

impl Server {
    pub(crate) async fn start(config: &str) -> Self {
        Self::limited(config, Limits::default()).await
    }

    async fn limited(config: &str, limits: Limits) -> Self {
        let dir = directory(config);
        let config = WebConfig::load(&dir.path().join("web.yml")).unwrap();
        let running = Running::limited(limits, config.clone()).await;
        Self {
            running,
            dir,
            config,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.running.addresses[0]
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        let port = self.address().port();
        format!("{scheme}://localhost:{port}{path}")
    }

    fn http(&self, path: &str) -> RequestBuilder {
        client().build().unwrap().get(self.url("http", path))
    }

    async fn ask(&self, path: &str, user: &str, password: &str) -> Response {
        let request = self.http(path).basic_auth(user, Some(password));
        request.send().await.unwrap()
    }

    async fn status(&self, user: &str, password: &str) -> u16 {
        self.ask("/metrics", user, password).await.status().as_u16()
    }

    /// Returns the status without TLS and without a user, 0 if there is no response.
    async fn plain(&self) -> u16 {
        let response = self.http("/metrics").send().await;
        response.map_or(0, |response| response.status().as_u16())
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        // Renamed into place, as careful tools do.
        let new = self.dir.path().join(".new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.dir.path().join(name)).unwrap();
        self.config.reload();
    }
}

#[tokio::test]
async fn only_a_user_with_the_right_password_gets_in() {
    let server = Server::start(&users(&[("alice", "right"), ("bob", "other")])).await;
    for path in ["/metrics", "/", "/-/healthy", "/no"] {
        let found = if path == "/no" { 404 } else { 200 };
        for (user, password, status) in [
            ("alice", "right", found),
            ("alice", "other", 401),
            ("alice", "", 401),
            ("Alice", "right", 401),
            ("carol", "right", 401),
            ("", "", 401),
        ] {
            let response = server.ask(path, user, password).await;
            assert_eq!(response.status(), status, "{path} {user} {password}");
        }
    }
    let response = server.http("/metrics").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let challenge = "Basic realm=\"metrics\", charset=\"UTF-8\"";
    assert_eq!(response.headers()["www-authenticate"], challenge);
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert!(!response.text().await.unwrap().contains("orgdata_"));
}

#[tokio::test]
async fn configured_headers_take_precedence() {
    let config = "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n    X-XSS-Protection: 1\n    \
        Strict-Transport-Security: max-age=600\n    Content-Security-Policy: \"default-src 'self'\"\n";
    let server = Server::start(&format!("{config}{}", users(&[("alice", "right")]))).await;
    for (path, password, status) in [("/no", "right", 404), ("/", "wrong", 401)] {
        let response = server.ask(path, "alice", password).await;
        assert_eq!(response.status(), status, "{path}");
        for (name, value) in [
            ("x-frame-options", "sameorigin"),
            ("strict-transport-security", "max-age=600"),
            ("x-xss-protection", "1"),
            ("referrer-policy", "no-referrer"),
            ("content-security-policy", "default-src 'self'"),
        ] {
            let values: Vec<_> = response.headers().get_all(name).iter().collect();
            assert_eq!(values, [value], "{path}");
        }
    }
}

#[tokio::test]
async fn a_broken_file_changes_nothing_until_it_is_repaired() {
    let server = Server::start(&users(&[("alice", "right")])).await;
    for broken in [
        "basic_auth_users: [",
        "tls_server_config:\n  cert_file: no.pem\n",
    ] {
        server.write("web.yml", broken);
        let statuses = (server.status("alice", "right").await, server.plain().await);
        assert_eq!(statuses, (200, 401), "{broken}");
    }
    std::fs::remove_file(server.dir.path().join("web.yml")).unwrap();
    server.config.reload();
    assert_eq!(server.status("alice", "right").await, 200);
    server.write("web.yml", users(&[("alice", "his")]));
    assert_eq!(server.status("alice", "right").await, 401);
    assert_eq!(server.status("alice", "his").await, 200);
    // What was found right for a user is not right for a removed one.
    server.write("web.yml", users(&[("carol", "his")]));
    assert_eq!(server.status("alice", "his").await, 401);
}

#[tokio::test]
async fn tls_can_be_switched_on_and_a_renewed_certificate_is_shown_to_the_next_connection() {
    let server = Server::start("").await;
    assert_eq!(server.plain().await, 200);
    server.write("web.yml", TLS);
    assert_eq!(server.plain().await, 0);
    let url = format!("https://{}/-/healthy", server.address());
    let accepted = async |name| {
        let client = client().tls_certs_only([certificate(name)]);
        let client = client.build().unwrap();
        client.get(&url).send().await.is_ok()
    };
    assert!(accepted("ca.pem").await);
    // Certificate and key are two files: in between they do not match.
    for kind in ["pem", "key"] {
        assert!(accepted("ca.pem").await);
        let new = tls_file(&format!("stranger.{kind}"));
        server.write(&format!("server.{kind}"), std::fs::read(new).unwrap());
    }
    assert!(!accepted("ca.pem").await && accepted("stranger.pem").await);
}
