//! The server: `axum-server` over the sockets of [`Bound`], with a bounded [`Pool`] of connections
//! and TLS as the configuration file asks for it at the moment.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum_server::accept::Accept;
use axum_server::{AddrListener, Address, Handle, Server};
use futures_util::future::join_all;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

use super::connections::{Connection, Pool, Stream, Transport};
use super::listen::{Bound, Socket};
use super::{WebConfig, WebState};

/// The maximum size of the request line and headers together, and what is buffered of a response,
/// in bytes. Prometheus sends 400.
const MAX_BUFFER: usize = 32 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// The maximum number of requests under way on one HTTP/2 connection.
const MAX_STREAMS: u32 = 8;

/// What one HTTP/2 client may send before it is read, and what is buffered of one response, in
/// bytes.
const HTTP2_BUFFER: u32 = 16 * 1024;

/// The time after which a silent HTTP/2 client is asked whether it is still there.
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(30);

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// What Go's servers answer to a request without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\
    Content-Type: text/plain; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Connection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// The origin of a connection.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) connection: Arc<Connection>,
}

/// A listening socket that adds its connections to the pool.
pub(super) struct Listener {
    socket: Arc<Socket>,
    pool: Arc<Pool>,
}

/// Adds TLS to a connection if the configuration asks for it.
#[derive(Clone)]
struct Tls(WebConfig);

/// Serves requests until `shutdown`, then lets responses finish that are under way, for at most
/// [`Limits::shutdown_grace`](super::Limits::shutdown_grace).
pub async fn serve(bound: Bound, state: WebState, shutdown: CancellationToken) {
    let Bound { sockets, settings } = bound;
    let pool = Pool::new(settings.limits);
    let router = super::router(state, &settings);
    let service = tower::service_fn(move |client: Client| {
        let router = Extension(client).layer(router.clone());
        std::future::ready(Ok::<_, Infallible>(router))
    });
    let handle: Handle<Client> = Handle::new();
    let servers = sockets.into_iter().map(|socket| {
        let pool = pool.clone();
        let mut server = Server::from_listener(Listener { socket, pool })
            .acceptor(Tls(settings.config.clone()))
            .handle(handle.clone());
        let http = server.http_builder();
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
        server.serve(service.clone())
    });
    let stop = async {
        shutdown.cancelled().await;
        handle.graceful_shutdown(Some(settings.limits.shutdown_grace));
        pool.close_idle();
        std::future::pending().await
    };
    tokio::select! {
        _ = join_all(servers) => {}
        () = pool.close_overdue() => {}
        () = stop => {}
        () = settings.config.follow() => {}
    }
    pool.close_all();
}

// === impl Client ===

impl Address for Client {
    type Stream = Stream;
    type Listener = Listener;
}

// === impl Listener ===

impl AddrListener<Stream, Client> for Listener {
    async fn bind_to(_: Client) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn accept_stream(&self) -> io::Result<(Stream, Client)> {
        let accepted = match &*self.socket {
            Socket::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                // Responses are written whole, so nothing is gained by waiting for more.
                let _ = stream.set_nodelay(true);
                (self.pool.add(stream), Some(from.ip().to_canonical()))
            }),
            Socket::Unix { listener, .. } => {
                let accepted = listener.accept().await;
                accepted.map(|(stream, _)| (self.pool.add(stream), None))
            }
        };
        let (stream, address) = accepted.inspect_err(|error| {
            if error.kind() != io::ErrorKind::ConnectionAborted {
                // Most likely the process has no file descriptors left.
                tracing::warn!(%error, "cannot accept a connection; closing the one without progress");
                self.pool.close_stalest();
            }
        })?;
        let connection = stream.connection.clone();
        let client = Client {
            address,
            connection,
        };
        Ok((stream, client))
    }

    fn get_local_addr(&self) -> io::Result<Client> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

// === impl Tls ===

impl<S: Send + 'static> Accept<Stream, S> for Tls {
    type Stream = Pin<Box<dyn Transport>>;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: Stream, service: S) -> Self::Future {
        let Tls(config) = self.clone();
        Box::pin(async move { Ok((handshake(stream, &config).await?, service)) })
    }
}

/// Completes a TLS handshake, if TLS is on. Its deadline is that of a request's headers.
async fn handshake(stream: Stream, config: &WebConfig) -> io::Result<Pin<Box<dyn Transport>>> {
    let Some(tls) = config.tls() else {
        return Ok(Box::pin(stream));
    };
    let mut stream = BufReader::with_capacity(1, stream);
    let first = stream.fill_buf().await?;
    if first != [HANDSHAKE] {
        // The healthcheck asks without TLS first.
        tracing::debug!("a client did not begin a TLS handshake");
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    let accepted = TlsAcceptor::from(tls).accept_with(stream, |session| {
        session.set_buffer_limit(Some(HTTP2_BUFFER as usize));
    });
    Ok(Box::pin(accepted.await.inspect_err(log_failure)?))
}

fn log_failure(error: &io::Error) {
    let text = error.to_string();
    let advice = match text.contains("UnsupportedCertVersion") {
        true => {
            "the certificate is X.509 version 1; create version 3 with `openssl x509 -req \
             -extfile FILE`, where FILE contains for example `subjectAltName=DNS:client`"
        }
        false => "check the client's TLS settings",
    };
    tracing::warn!(error = text, advice, "TLS handshake failed");
}
