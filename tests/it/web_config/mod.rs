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
use tokio::task::JoinSet;

use crate::support::captured::Captured;
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
    let three = [("alice", "right"), ("bob", "other"), ("al", "ri:ght")];
    let server = Server::start(&users(&three)).await;
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
    // `al:ri:ght`, and what is no password.
    for (header, status) in [
        ("basic YWw6cmk6Z2h0", 200),
        ("Bearer YWw6cmk6Z2h0", 401),
        ("Basic /w==", 401),
        ("Basic !", 401),
        ("Basic", 401),
        ("", 401),
    ] {
        let request = server.http("/metrics").header("authorization", header);
        assert_eq!(request.send().await.unwrap().status(), status, "{header}");
    }
    let response = server.http("/metrics").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let challenge = "Basic realm=\"metrics\", charset=\"UTF-8\"";
    assert_eq!(response.headers()["www-authenticate"], challenge);
    assert!(!response.text().await.unwrap().contains("orgdata_"));
}

/// Returns settings that ask clients for a certificate.
fn required() -> String {
    let policy = "client_auth_type: RequireAndVerifyClientCert";
    format!("{TLS}  client_ca_file: ca.pem\n  {policy}\n")
}

#[tokio::test]
async fn a_change_that_removes_protection_needs_a_restart() {
    let alice = users(&[("alice", "right")]);
    let if_given = required().replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven");
    for (before, after) in [
        (alice.clone(), String::new()),
        (alice.clone(), TLS.to_owned()),
        (format!("{TLS}{alice}"), alice),
        (TLS.to_owned(), String::new()),
        (required(), TLS.to_owned()),
        (required(), if_given),
    ] {
        let log = Captured::begin();
        let server = Server::start(&before).await;
        server.write("web.yml", &after);
        server.config.reload();
        let refusals =
            log.count("it removes TLS, client certificates or all users, which takes a restart");
        assert_eq!(refusals, 1, "{before} to {after}: {:?}", log.lines());
        let status = server.plain().await;
        assert!([0, 401].contains(&status), "{before} to {after}: {status}");
        if after.is_empty() {
            assert_eq!(Server::start(&after).await.plain().await, 200, "a restart");
        }
    }
}

#[tokio::test]
async fn an_empty_file_is_a_warning_at_the_start() {
    let log = Captured::begin();
    let _server = Server::start("").await;
    tokio::task::yield_now().await;
    assert_eq!(log.count("the web configuration is empty"), 1);
}

#[tokio::test]
async fn a_change_costs_no_new_check_of_a_password_that_has_the_same_hash() {
    let slow = bcrypt::hash("other", 11).unwrap();
    let config = users(&[("alice", "right")]) + &format!("  bob: {slow}\n");
    let server = Server::start(&config).await;
    assert_eq!(server.ask("/metrics", "alice", "right").await.status(), 200);
    let headers = "http_server_config:\n  headers:\n    X-A: b\n";
    server.write("web.yml", config + headers);
    let url = server.url("http", "/metrics");
    let mut flood = JoinSet::new();
    for number in 0..5 {
        let request = client().build().unwrap().get(&url);
        flood.spawn(request.basic_auth("bob", Some(number)).send());
    }
    let first = flood.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(first.status(), 401);
    // The others wait for their turns.
    assert_eq!(server.ask("/metrics", "alice", "right").await.status(), 200);
    assert!(flood.try_join_next().is_none(), "it waited for the flood");
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
