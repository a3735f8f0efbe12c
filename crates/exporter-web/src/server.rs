//! The server: HTTP/1.1 over connections of bounded number, time and size, with TLS as the configuration file asks for it at
//! the moment.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::join_all;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Layer as _;
use tower_http::timeout::TimeoutLayer;

use crate::config::Current;
use crate::{Bound, WebConfig, landing, tls};

/// The maximum size of the request line and headers together, and what is buffered of a response, in bytes. Prometheus
/// sends 400.
const MAX_BUFFER: usize = 32 * 1024;

/// What the system buffers of a response, in bytes. Its default grows to megabytes.
const SEND_BUFFER: usize = 64 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// The maximum time to compute a response, with the check of its password.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The pause after a connection could not be accepted. Most likely the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Headers of every response, unless the configuration file or the exporter sets them.
const HEADERS: [(&str, &str); 5] = [
    ("cache-control", "no-store"),
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'";

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections. Others wait in the queue of the system.
    pub connections: usize,
    /// The maximum time of a TLS handshake, and of a connection without a complete request, also between two requests.
    pub header_timeout: Duration,
    /// The maximum time in which a client takes nothing of a response.
    pub write_timeout: Duration,
    /// How long a connection takes requests.
    pub connection_age: Duration,
    /// The maximum time for a response to finish after that, or when the exporter stops.
    pub shutdown_grace: Duration,
}

/// What every connection needs.
struct Server {
    http: http1::Builder,
    router: Router,
    config: WebConfig,
    limits: Limits,
    permits: Arc<Semaphore>,
    connections: TaskTracker,
    failed_handshakes: AtomicU64,
    /// Cancelled when no connection may take another request.
    stopping: CancellationToken,
}

/// Serves requests until `shutdown`, then lets responses finish that are under way, for at most [`Limits::shutdown_grace`].
///
/// Every request is checked as the web configuration file asks.
pub async fn serve(bound: Bound, router: Router, shutdown: impl Future<Output = ()>) {
    let Bound {
        sockets,
        config,
        limits,
    } = bound;
    let late = StatusCode::SERVICE_UNAVAILABLE;
    let router = router
        .route(landing::STYLE_PATH, get(landing::style))
        .layer(from_fn_with_state(config.clone(), guard))
        .layer(TimeoutLayer::with_status_code(late, RESPONSE_TIMEOUT));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS);
    let server = Arc::new(Server {
        http,
        router,
        config: config.clone(),
        limits,
        permits: Arc::new(Semaphore::new(limits.connections)),
        connections: TaskTracker::new(),
        failed_handshakes: AtomicU64::new(0),
        stopping: CancellationToken::new(),
    });
    tokio::select! {
        _ = join_all(sockets.iter().map(|socket| server.accept(socket))) => {}
        () = config.follow() => {}
        () = shutdown => {}
    }
    drop(sockets);
    server.stopping.cancel();
    server.connections.close();
    server.connections.wait().await;
}

/// Checks every request, and completes every response. Probes are no exception, as in the toolkit.
async fn guard(
    State(config): State<WebConfig>,
    Extension(admitted): Extension<Arc<Current>>,
    request: Request,
    next: Next,
) -> Response {
    let current = config.current();
    let mut response = if Arc::ptr_eq(&current, &admitted) {
        let passwords = config.passwords();
        match passwords.check(&current.users, request.headers()).await {
            Ok(()) => next.run(request).await,
            Err(denied) => denied,
        }
    } else {
        // The connection may lack TLS, or a certificate, that is required now.
        (StatusCode::MISDIRECTED_REQUEST, [(CONNECTION, "close")]).into_response()
    };
    let headers = response.headers_mut();
    for (name, value) in current.headers.iter().cloned() {
        headers.entry(name).or_insert(value);
    }
    for (name, value) in HEADERS {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            connection_age: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

// === impl Server ===

impl Server {
    /// Accepts connections, for ever.
    async fn accept(self: &Arc<Self>, socket: &TcpListener) {
        // The semaphore is never closed.
        while let Ok(permit) = self.permits.clone().acquire_owned().await {
            match socket.accept().await {
                Ok((tcp, _)) => {
                    let server = self.clone();
                    self.connections.spawn(async move {
                        server.connect(tcp).await;
                        drop(permit);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a connection, with TLS if it is on.
    async fn connect(&self, tcp: TcpStream) {
        // Responses are written whole, so nothing is gained by waiting for more.
        let _ = tcp.set_nodelay(true);
        let _ = SockRef::from(&tcp).set_send_buffer_size(SEND_BUFFER);
        let mut stream = TimeoutStream::new(tcp);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        let (stream, admitted) = (Box::pin(stream), self.config.current());
        let Some(tls) = &admitted.tls else {
            return self.answer(stream, admitted).await;
        };
        let handshake = TlsAcceptor::from(tls.server.clone()).accept(stream);
        let handshake = timeout(self.limits.header_timeout, handshake);
        match self.stopping.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => self.answer(stream, admitted).await,
            // A probe that only connects is not a failure.
            Some(Ok(Err(error))) if error.kind() == io::ErrorKind::InvalidData => {
                let failures = self.failed_handshakes.fetch_add(1, Ordering::Relaxed) + 1;
                // Clients must not fill the log.
                if failures.is_power_of_two() {
                    let error = error.to_string();
                    let advice = tls::advice(&error);
                    tracing::warn!(failures, error, "TLS handshake failed; {advice}");
                }
            }
            _ => {}
        }
    }

    /// Answers the requests of a connection that these settings admitted.
    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admitted: Arc<Current>,
    ) {
        let service = Extension(admitted).layer(self.router.clone());
        let service = TowerToHyperService::new(service);
        let mut serving = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        // An error is the client's.
        tokio::select! {
            _ = serving.as_mut() => return,
            () = self.stopping.cancelled() => {}
            () = sleep(self.limits.connection_age) => {}
        }
        serving.as_mut().graceful_shutdown();
        let _ = timeout(self.limits.shutdown_grace, serving).await;
    }
}
