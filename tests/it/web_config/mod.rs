//! The web configuration file over real sockets, with real certificates: who gets in, who does not, and when a change counts.

// A test fails by panicking, also in its helpers.

use crate::support::binary;

mod clients;
mod hostile;
mod program;
mod reload;
mod tls;
mod users;
mod verdicts;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::web::{
    self, Health, Limits, Overview, Settings, TelemetryPath, WebConfig, WebState,
};
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The usual beginning of a file: TLS with the server's certificate.
const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

/// A server behind a configuration file, which lies beside the certificates.
struct Server {
    address: SocketAddr,
    dir: TempDir,
    _stop: DropGuard,
}

/// The file `name` of `tests/support/tls`.
fn tls_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/support/tls")
        .join(name)
}

/// A directory with all certificates and the configuration file `web.yml`.
fn directory(config: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(tls_file("")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
    }
    std::fs::write(dir.path().join("web.yml"), config).unwrap();
    dir
}

/// A user's line with the cheapest hash there is.
fn user(name: &str, password: &str) -> String {
    format!("  {name}: {}\n", bcrypt::hash(password, 4).unwrap())
}

/// A client that trusts the test root, and asks on a connection of its own each time.
fn client() -> ClientBuilder {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let root = Certificate::from_pem(&std::fs::read(tls_file("ca.pem")).unwrap()).unwrap();
    Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .tls_certs_only([root])
        .timeout(Duration::from_secs(20))
}

/// The certificate and key `name`, to show to a server.
fn identity(name: &str) -> Identity {
    let read = |suffix| std::fs::read(tls_file(&format!("{name}.{suffix}"))).unwrap();
    Identity::from_pem(&[read("pem"), read("key")].concat()).unwrap()
}

impl Server {
    async fn start(config: &str) -> Self {
        Self::limited(config, Limits::default()).await
    }

    async fn limited(config: &str, limits: Limits) -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let dir = directory(config);
        // Looked at before every request, so that no test waits for a change.
        let config = WebConfig::load(&dir.path().join("web.yml"))
            .unwrap()
            .rechecked(Duration::ZERO);
        let settings = Settings {
            listen_addresses: vec!["127.0.0.1:0".parse().unwrap()],
            systemd_socket: false,
            config: Some(config),
            telemetry_path: TelemetryPath::default(),
            limits,
        };
        let bound = web::bind(&settings).await.unwrap();
        let address = bound.addresses()[0];
        let (metrics, health, shutdown) = (
            Metrics::new(Duration::ZERO),
            Health::default(),
            CancellationToken::new(),
        );
        health.set_ready(true);
        let state = WebState {
            metrics,
            health,
            overview: Arc::new(Overview::default),
        };
        tokio::spawn(web::serve(bound, state, shutdown.clone()));
        Self {
            address,
            dir,
            _stop: shutdown.drop_guard(),
        }
    }

    fn https(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    fn http(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        // Put in place whole, as careful tools do it.
        let new = self.dir.path().join(".new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.dir.path().join(name)).unwrap();
    }
}
