//! Peers that break as they do in the field, and clients of them.

use std::any::Any;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::serve::ListenerExt as _;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use orgdata_exporter::api::Client;
use orgdata_exporter::metrics::Metrics;
use otlp_logs::{Connection, Export as _, Given, Sender, Signal, Target, Verdict};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::otlp::peer;
use crate::support::collector_peer::Reply;
use crate::support::files::tls;
use crate::support::http_peer::NO_ENTRIES;
use crate::support::settings;

/// The peers of the exporter, by the protocol.
pub(super) const PROTOCOLS: [&str; 3] = ["api", "http/protobuf", "grpc"];

/// A server of one of the protocols, which ends with the value.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    _task: Box<dyn Any>,
}

/// What the exporter reaches a server with.
pub(super) enum Subject {
    Api(Client),
    Collector(Sender),
}

/// A relay on a free loopback port between a client and a server.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    pub(super) route: Arc<Mutex<Route>>,
    /// What happens to the connections that there are.
    pub(super) event: watch::Sender<Event>,
    _task: JoinSet<()>,
}

/// Where a new connection leads, and how.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) server: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Event {
    #[default]
    Nothing,
    /// They stay open, and carry nothing any more.
    Silence,
    Close,
}

/// The files of a client that are replaced while it runs.
pub(super) struct Files(tempfile::TempDir);

// === impl Server ===

impl Server {
    /// A server that accepts everything.
    pub(super) async fn good(protocol: &str) -> Self {
        Self::answering(protocol, 200).await
    }

    /// A server that answers every request with this status.
    pub(super) async fn answering(protocol: &str, status: u16) -> Self {
        if protocol == "api" {
            return Self::api(status).await;
        }
        let collector = peer(protocol, 1 << 20).await;
        if status != 200 {
            let reply = Reply::Http(status, "text/plain", "moved", None);
            (0..100).for_each(|_| collector.reply(reply.clone()));
        }
        Self {
            address: collector.address,
            _task: Box::new(collector),
        }
    }

    /// A server of the API that keeps its connections and lists nothing.
    async fn api(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        let status = StatusCode::from_u16(status).unwrap();
        let answer = (status, [(CONTENT_TYPE, "application/json")], NO_ENTRIES);
        let app = axum::Router::new().fallback(async || answer);
        let mut task = JoinSet::new();
        task.spawn(async { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            _task: Box::new(task),
        }
    }
}

// === impl Subject ===

impl Subject {
    /// Returns a client of the server at this address; with TLS if there are files.
    pub(super) fn new(
        protocol: &str,
        address: SocketAddr,
        files: Option<&Files>,
    ) -> Result<Self, String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let scheme = if files.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let file = |name| files.map(|files| files.path(name));
        if protocol == "api" {
            let mut settings = settings::api(&url);
            settings.ca_file = file("ca.pem").map(Into::into);
            let observer = Metrics::new(Duration::ZERO).api.clone();
            return Ok(Self::Api(Client::new(settings, observer)?));
        }
        let connection = Connection::from_env(
            Signal::LOGS,
            Given::new("--otlp.endpoint", Some(&url)),
            Given::new("--otlp.protocol", Some(protocol)),
            "test",
            exporter_web::read_file,
            &|name| match name {
                "OTEL_EXPORTER_OTLP_CERTIFICATE" => file("ca.pem"),
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE" => file("client.pem"),
                "OTEL_EXPORTER_OTLP_CLIENT_KEY" => file("client.key"),
                _ => None,
            },
        );
        let target = Target::Collector(Box::new(connection?.unwrap()));
        Ok(Self::Collector(Sender::new(&target)?))
    }

    /// Sends a request, and returns why it failed.
    pub(super) async fn ask(&self) -> Result<(), String> {
        match self {
            Self::Api(client) => {
                let page = client.audit_page(100, None).await;
                page.map(drop).map_err(|error| error.to_string())
            }
            Self::Collector(sender) => {
                match sender.export(ExportLogsServiceRequest::default()).await {
                    Verdict::Accepted => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }
        }
    }
}

// === impl Relay ===

impl Relay {
    /// A relay that presents a certificate if it is given one.
    pub(super) async fn new(server: &Server, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.address;
        let route = Arc::new(Mutex::new(Route { server, tls }));
        let (event, _) = watch::channel(Event::default());
        let (routes, events) = (route.clone(), event.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let route = routes.lock().unwrap().clone();
                let mut event = events.subscribe();
                connections.spawn(async move {
                    let mut carrying = pin!(carry(client, route));
                    tokio::select! {
                        _ = &mut carrying => {}
                        _ = event.changed() => {}
                    }
                    if matches!(*event.borrow(), Event::Silence) {
                        std::future::pending::<()>().await;
                    }
                });
            }
        });
        Self {
            address,
            route,
            event,
            _task: task,
        }
    }

    /// Presents another certificate on new connections.
    pub(super) fn present(&self, tls: Arc<ServerConfig>) {
        self.route.lock().unwrap().tls = Some(tls);
        self.event.send_replace(Event::Close);
    }
}

/// Carries a connection until one of its ends closes it.
async fn carry(mut client: TcpStream, route: Route) -> std::io::Result<()> {
    let mut server = TcpStream::connect(route.server).await?;
    // While the system waits for more to send, the clock of a test would go on.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    match route.tls {
        None => copy_bidirectional(&mut client, &mut server).await?,
        Some(tls) => {
            let mut client = TlsAcceptor::from(tls).accept(client).await?;
            copy_bidirectional(&mut client, &mut server).await?
        }
    };
    Ok(())
}

/// Returns the settings of a server with this certificate, whose clients need one of `clients`, if it is given. It prefers
/// HTTP/2.
pub(super) fn presenting(certificate: &str, clients: Option<&str>) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = |name: &str| CertificateDer::from_pem_file(tls(&format!("{name}.pem"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls(&format!("{certificate}.key"))).unwrap();
    let config = ServerConfig::builder();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(name) => {
            let mut roots = RootCertStore::empty();
            roots.add(read(name)).unwrap();
            let verifier = WebPkiClientVerifier::builder(roots.into()).build();
            config.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let config = config.with_single_cert(vec![read(certificate)], key);
    let mut config = config.unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

// === impl Files ===

impl Files {
    /// Returns files with these contents, which are names in `tests/support/tls`.
    pub(super) fn new(ca: &str, client: &str) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.replace("ca.pem", ca);
        files.replace("client.pem", &format!("{client}.pem"));
        files.replace("client.key", &format!("{client}.key"));
        files
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn replace(&self, name: &str, with: &str) {
        std::fs::copy(tls(with), self.path(name)).unwrap();
    }
}
