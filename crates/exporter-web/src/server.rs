//! The server: connections of bounded number, time and size, with TLS as the configuration file asks for it at the moment.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::join_all;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Layer as _;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutLayer;

use crate::connections::{Connection, Pool, RESPONSE_TIMEOUT};
use crate::{Bound, WebConfig, landing};

/// The maximum size of the request line and headers together, and what is buffered of a response, in bytes. Prometheus
/// sends 400.
const MAX_BUFFER: usize = 32 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// The maximum number of requests under way on one HTTP/2 connection.
const MAX_STREAMS: u32 = 8;

/// What one HTTP/2 client may send before it is read, and what is buffered of one response, in bytes.
const HTTP2_BUFFER: u32 = 16 * 1024;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// What Go's servers answer to a request without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Connection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

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

/// What every connection needs.
struct Server {
    http: Builder<TokioExecutor>,
    router: Router,
    config: WebConfig,
    pool: Arc<Pool>,
    connections: TaskTracker,
    /// Cancelled when no connection may take another request.
    stopping: CancellationToken,
}

/// Serves requests until `shutdown`, then lets responses finish that are under way, for at most
/// [`Limits::shutdown_grace`](crate::Limits::shutdown_grace).
///
/// Every request is checked as the web configuration file asks, and every response is compressed if the client accepts it.
pub async fn serve(bound: Bound, router: Router, shutdown: impl Future<Output = ()>) {
    let (config, late) = (bound.config, StatusCode::SERVICE_UNAVAILABLE);
    let router = router
        .route(landing::STYLE_PATH, get(landing::style))
        .layer(TimeoutLayer::with_status_code(late, RESPONSE_TIMEOUT))
        .layer(from_fn_with_state(config.clone(), guard))
        // The lowest level takes an eighth of the time of the default and saves most of the size.
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest));
    let server = Arc::new(Server {
        http: http(),
        router,
        config: config.clone(),
        pool: Pool::new(bound.limits),
        connections: TaskTracker::new(),
        stopping: CancellationToken::new(),
    });
    let accepting = bound.sockets.iter().map(|socket| server.accept(socket));
    tokio::select! {
        _ = join_all(accepting) => {}
        () = server.pool.close_overdue() => {}
        () = config.follow() => {}
        () = shutdown => {}
    }
    drop(bound.sockets);
    server.stopping.cancel();
    server.pool.close_up_to(0);
    server.connections.close();
    tokio::select! {
        () = server.connections.wait() => {}
        () = tokio::time::sleep(bound.limits.shutdown_grace) => {}
    }
    server.pool.close_up_to(usize::MAX);
}

fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS);
    http.http2()
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_BUFFER as u32)
        .initial_stream_window_size(HTTP2_BUFFER)
        .initial_connection_window_size(HTTP2_BUFFER)
        .max_send_buf_size(HTTP2_BUFFER as usize);
    http
}

/// Checks every request, and completes every response. Probes are no exception, as in the toolkit.
async fn guard(
    State(config): State<WebConfig>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    let under_way = connection.begin_response();
    let current = config.current();
    let checked = config
        .passwords()
        .check(&current.users, request.headers(), connection.address);
    let mut response = match checked.await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal,
    };
    let from_static = |(name, value)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    let usual = HEADERS.map(from_static);
    for (name, value) in current.headers.iter().cloned().chain(usual) {
        response.headers_mut().entry(name).or_insert(value);
    }
    under_way.attach(response)
}

// === impl Server ===

impl Server {
    /// Accepts connections, for ever.
    async fn accept(self: &Arc<Self>, socket: &TcpListener) {
        loop {
            let (stream, from) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Most likely the process has no file descriptors left.
                    tracing::warn!(%error, "cannot accept a connection; closing the one without progress");
                    self.pool.close_stalest();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Responses are written whole, so nothing is gained by waiting for more.
            let _ = stream.set_nodelay(true);
            let (server, connection) = (self.clone(), self.pool.add(from.ip().to_canonical()));
            self.connections.spawn(async move {
                // An error is the client's.
                tokio::select! {
                    biased;
                    _ = server.connect(stream, connection.clone()) => {}
                    () = connection.closed.cancelled() => {}
                }
            });
        }
    }

    /// Serves a connection, with TLS if it is on.
    async fn connect(&self, mut tcp: TcpStream, connection: Arc<Connection>) -> io::Result<()> {
        let Some(tls) = self.config.tls() else {
            return self.answer(tcp, connection).await;
        };
        let mut first = [0];
        tcp.peek(&mut first).await?;
        if first != [HANDSHAKE] {
            tracing::debug!("a client did not begin a TLS handshake");
            // What is not read would reset the connection, and the client might not see the answer.
            let _ = tcp.try_read(&mut [0; 4096]);
            tcp.write_all(NOT_TLS).await?;
            return tcp.shutdown().await;
        }
        let handshake = TlsAcceptor::from(tls).accept_with(tcp, |session| {
            session.set_buffer_limit(Some(HTTP2_BUFFER as usize));
        });
        let stream = tokio::select! {
            stream = handshake => stream,
            () = connection.closed.cancelled() => Err(io::ErrorKind::TimedOut.into()),
        };
        let stream = stream.inspect_err(
            |error| tracing::warn!(%error, "TLS handshake failed; check the client's TLS settings"),
        )?;
        self.answer(stream, connection).await
    }

    /// Answers the requests of a connection.
    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Arc<Connection>,
    ) -> io::Result<()> {
        let service = Extension(connection).layer(self.router.clone());
        let service = TowerToHyperService::new(service);
        let mut serving = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = serving.as_mut() => return Ok(()),
            () = self.stopping.cancelled() => serving.as_mut().graceful_shutdown(),
        }
        serving.await.map_err(io::Error::other)
    }
}
