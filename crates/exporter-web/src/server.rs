//! The server: connections of bounded number, time and size, with TLS as the configuration file asks for it at the moment.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::future::join_all;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
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

/// The time after which a silent HTTP/2 client is asked whether it is still there.
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(30);

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
const HEADERS: [(HeaderName, &str); 5] = [
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src data:; frame-ancestors 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
];

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
    let Bound {
        sockets,
        config,
        limits,
    } = bound;
    let router = router
        .route(landing::STYLE_PATH, get(landing::style))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            RESPONSE_TIMEOUT,
        ))
        .layer(from_fn_with_state(config.clone(), guard))
        // The lowest level takes an eighth of the time of the default and saves most of the size.
        .layer(CompressionLayer::new().quality(CompressionLevel::Fastest));
    let server = Arc::new(Server {
        http: http(),
        router,
        config: config.clone(),
        pool: Pool::new(limits),
        connections: TaskTracker::new(),
        stopping: CancellationToken::new(),
    });
    let accepting = sockets.iter().map(|socket| server.accept(socket));
    tokio::select! {
        _ = join_all(accepting) => {}
        () = server.pool.close_overdue() => {}
        () = config.follow() => {}
        () = shutdown => {}
    }
    drop(sockets);
    server.stopping.cancel();
    server.pool.close_idle();
    server.connections.close();
    tokio::select! {
        () = server.connections.wait() => {}
        () = server.pool.close_overdue() => {}
        () = tokio::time::sleep(limits.shutdown_grace) => {}
    }
    server.pool.close_all();
}

fn http() -> Builder<TokioExecutor> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1()
        .max_buf_size(MAX_BUFFER)
        .max_headers(MAX_HEADERS);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_BUFFER as u32)
        .initial_stream_window_size(HTTP2_BUFFER)
        .initial_connection_window_size(HTTP2_BUFFER)
        .max_send_buf_size(HTTP2_BUFFER as usize)
        .keep_alive_interval(HTTP2_KEEP_ALIVE)
        .keep_alive_timeout(HTTP2_KEEP_ALIVE);
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
    let usual = HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value)));
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
            let connection = self.pool.add(from.ip().to_canonical());
            let server = self.clone();
            self.connections.spawn(async move {
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
            self.answer(tcp, connection).await;
            return Ok(());
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
        self.answer(stream, connection).await;
        Ok(())
    }

    /// Answers the requests of a connection.
    async fn answer(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Arc<Connection>,
    ) {
        let service = Extension(connection).layer(self.router.clone());
        let service = TowerToHyperService::new(service);
        let mut serving = pin!(self.http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = serving.as_mut() => return,
            () = self.stopping.cancelled() => serving.as_mut().graceful_shutdown(),
        }
        // An error is the client's.
        let _ = serving.await;
    }
}
