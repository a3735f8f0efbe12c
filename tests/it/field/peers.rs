//! Peers that break as they do in the field, and clients of them.

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use orgdata_exporter::api::Client;
use orgdata_exporter::metrics::Metrics;
use otlp_logs::{Connection, Export as _, Given, Sender, Signal, Target, Verdict};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::support::collector_peer::{Peer, Reply};
use crate::support::files::tls;
use crate::support::http_peer::{NO_ENTRIES, NO_TICKETS};
use crate::support::settings;

/// The peers of the exporter, by the protocol.
pub(super) const PROTOCOLS: [&str; 3] = ["api", "http/protobuf", "grpc"];

/// A server of one of the protocols that accepts or rejects everything.
pub(super) enum Server {
    Api(Api),
    Collector(Peer),
}

/// A server of the API over HTTP/1.1 and HTTP/2 that keeps its connections.
pub(super) struct Api {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// What the exporter reaches a server with.
pub(super) enum Subject {
    Api(Client),
    Collector(Sender),
}

/// A relay on a free loopback port between a client and a server.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    route: Arc<Mutex<Route>>,
    /// What happens to the connections that there are.
    pub(super) event: watch::Sender<Event>,
    open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// Where a new connection leads, and how.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) server: SocketAddr,
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// The client sends `CONNECT` first.
    pub(super) is_proxy: bool,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Event {
    #[default]
    Nothing,
    /// They stay open, and carry nothing any more.
    Silence,
    Close,
}

/// Keeps the paused clock from jumping while a socket is waited for.
pub(super) struct Clock {
    _hold: mpsc::Sender<()>,
}

/// The files of a client that are replaced while it runs.
pub(super) struct Files(tempfile::TempDir);

// === impl Server ===

impl Server {
    /// A server that accepts everything.
    pub(super) async fn good(protocol: &str) -> Self {
        match protocol {
            "api" => Self::Api(Api::start(StatusCode::OK).await),
            "grpc" => Self::Collector(Peer::grpc(1 << 20).await),
            _ => Self::Collector(Peer::http(1 << 20).await),
        }
    }

    /// A server that answers every request with an error.
    pub(super) async fn failing(protocol: &str, status: u16) -> Self {
        if protocol == "api" {
            return Self::Api(Api::start(StatusCode::from_u16(status).unwrap()).await);
        }
        let server = Self::good(protocol).await;
        if let Self::Collector(peer) = &server {
            for _ in 0..100 {
                peer.reply(match protocol {
                    "grpc" => Reply::Status(tonic::Status::unavailable("moved")),
                    _ => Reply::Http(status, "text/plain", "moved", None),
                });
            }
        }
        server
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Api(api) => api.address,
            Self::Collector(peer) => peer.address,
        }
    }
}

// === impl Api ===

impl Api {
    async fn start(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                connections.spawn(async move {
                    let answer = service_fn(move |request: http::Request<_>| {
                        let is_tickets = request.uri().path().ends_with("/tickets");
                        let body = if is_tickets { NO_TICKETS } else { NO_ENTRIES };
                        let response = Response::builder().status(status);
                        let response = response.header(CONTENT_TYPE, "application/json");
                        std::future::ready(response.body(Full::<Bytes>::from(body)))
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Self { address, task }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Subject ===

impl Subject {
    /// Returns a client of the server at this address; with TLS if there are files.
    pub(super) fn new(protocol: &str, address: SocketAddr, files: Option<&Files>) -> Self {
        Self::try_new(protocol, address, files).unwrap()
    }

    pub(super) fn try_new(
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
            Self::Collector(sender) => match sender.export(Bytes::new()).await {
                Verdict::Accepted => Ok(()),
                other => Err(format!("{other:?}")),
            },
        }
    }
}

// === impl Relay ===

impl Relay {
    pub(super) async fn start(server: SocketAddr) -> Self {
        Self::with(Route {
            server,
            tls: None,
            is_proxy: false,
        })
        .await
    }

    pub(super) async fn with(route: Route) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let route = Arc::new(Mutex::new(route));
        let (event, _) = watch::channel(Event::default());
        let open = Arc::new(AtomicUsize::new(0));
        let (routes, events, counter) = (route.clone(), event.clone(), open.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let route = routes.lock().unwrap().clone();
                let (mut event, open) = (events.subscribe(), counter.clone());
                connections.spawn(async move {
                    open.fetch_add(1, Ordering::Relaxed);
                    let mut carrying = pin!(carry(client, route));
                    tokio::select! {
                        _ = &mut carrying => {}
                        _ = event.changed() => {}
                    }
                    open.fetch_sub(1, Ordering::Relaxed);
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
            open,
            task,
        }
    }

    /// Leads new connections, and no others, elsewhere.
    pub(super) fn lead_to(&self, server: &Server) {
        self.route.lock().unwrap().server = server.address();
    }

    /// Presents another certificate on new connections.
    pub(super) fn present(&self, tls: Arc<ServerConfig>) {
        self.route.lock().unwrap().tls = Some(tls);
        self.event.send_replace(Event::Close);
    }

    pub(super) fn silence(&self) {
        self.event.send_replace(Event::Silence);
    }

    /// Returns the number of connections that carry something.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries a connection until one of its ends closes it.
async fn carry(mut client: TcpStream, route: Route) -> std::io::Result<()> {
    if route.is_proxy {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        assert!(head.starts_with(b"CONNECT "), "not a tunnel");
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    }
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
    let read = |name: &str| CertificateDer::from_pem_file(tls(name)).unwrap();
    let chain = vec![read(&format!("{certificate}.pem"))];
    let key = PrivateKeyDer::from_pem_file(tls(&format!("{certificate}.key"))).unwrap();
    let config = ServerConfig::builder();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(name) => {
            let mut roots = RootCertStore::empty();
            roots.add(read(&format!("{name}.pem"))).unwrap();
            let verifier = WebPkiClientVerifier::builder(roots.into()).build();
            config.with_client_cert_verifier(verifier.unwrap())
        }
    };
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

// === impl Clock ===

impl Clock {
    pub(super) fn hold() -> Self {
        let (hold, held) = mpsc::channel();
        tokio::task::spawn_blocking(move || {
            let _ = held.recv();
        });
        Self { _hold: hold }
    }

    /// Waits for a future while time passes in small steps.
    pub(super) async fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = tokio::time::advance(Duration::from_millis(1)) => {}
            }
        }
    }
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

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn replace(&self, name: &str, with: &str) {
        std::fs::copy(tls(with), self.path(name)).unwrap();
    }

    /// Replaces half of a file.
    pub(super) fn replace_half(&self, name: &str, with: &str) {
        let whole = std::fs::read(Path::new(&tls(with))).unwrap();
        std::fs::write(self.path(name), &whole[..whole.len() / 2]).unwrap();
    }
}
