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
pub(crate) fn users(users: &[(&str, &str)]) -> String {
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
    for (path, user, password, status) in [
        ("/metrics", "alice", "right", 200),
        ("/no", "bob", "other", 404),
        ("/metrics", "alice", "other", 401),
        ("/metrics", "Alice", "right", 401),
        ("/", "carol", "right", 401),
        ("/-/healthy", "", "", 401),
        ("/no", "", "", 401),
    ] {
        let response = server.ask(path, user, password).await;
        assert_eq!(response.status(), status, "{path} {user} {password}");
    }
    let response = server.http("/metrics").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let challenge = "Basic realm=\"metrics\", charset=\"UTF-8\"";
    assert_eq!(response.headers()["www-authenticate"], challenge);
    assert!(!response.text().await.unwrap().contains("orgdata_"));
}

#[tokio::test]
async fn configured_headers_take_precedence() {
    let config = "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n    Strict-Transport-Security: max-age=600\n";
    let server = Server::start(&format!("{config}{}", users(&[("alice", "right")]))).await;
    for (path, password, status) in [("/no", "right", 404), ("/", "wrong", 401)] {
        let response = server.ask(path, "alice", password).await;
        assert_eq!(response.status(), status, "{path}");
        for (name, value) in [
            ("x-frame-options", "sameorigin"),
            ("strict-transport-security", "max-age=600"),
            ("referrer-policy", "no-referrer"),
        ] {
            let values: Vec<_> = response.headers().get_all(name).iter().collect();
            assert_eq!(values, [value], "{path}");
        }
    }
}
