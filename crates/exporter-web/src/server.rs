//! The server: HTTP/1.1 over connections of bounded number and time, with TLS as the configuration file asks for it at the
//! moment.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use futures_util::future::join_all;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::config::{Current, WebConfig};
use crate::listen::{Bound, Limits};

/// The maximum size of the request line and headers together, and what is buffered of a response, in bytes. Prometheus
/// sends 400.
const MAX_BUFFER: usize = 32 * 1024;

/// The size of the system's send buffer, in bytes. Its default grows to megabytes, which count as memory of a container.
const SEND_BUFFER: usize = 64 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// The maximum time to compute a response, with the check of its password.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The header that asks for a password.
const CHALLENGE: &str = "Basic realm=\"metrics\", charset=\"UTF-8\"";

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
    router: Router,
    config: WebConfig,
    limits: Limits,
    failed_handshakes: AtomicU64,
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
    let server = Arc::new(Server {
        router,
        config: config.clone(),
        limits,
        failed_handshakes: AtomicU64::default(),
    });
    let permits = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let abort = CancellationToken::new();
    let _abort_at_the_end = abort.clone().drop_guard();
    let accept = async |mut socket: TcpListener| {
        loop {
            let permit = permits.clone().acquire_owned().await;
            let (tcp, _) = Listener::accept(&mut socket).await;
            let connection = server.clone().admit(tcp, graceful.watcher());
            tokio::spawn(abort.clone().run_until_cancelled_owned(async {
                // A client that disconnects, or sends what is not HTTP, is no event.
                let _ = connection.await;
                drop(permit);
            }));
        }
    };
    tokio::select! {
        _ = join_all(sockets.into_iter().map(accept)) => {}
        () = config.follow() => {}
        () = shutdown => {}
    }
    let _ = timeout(limits.shutdown_grace, graceful.shutdown()).await;
}

// === impl Server ===

impl Server {
    /// Serves a connection, with TLS if it is on.
    async fn admit(self: Arc<Self>, tcp: TcpStream, watcher: Watcher) -> io::Result<()> {
        // Responses are written whole, so nothing is gained by waiting for more.
        tcp.set_nodelay(true)?;
        SockRef::from(&tcp).set_send_buffer_size(SEND_BUFFER)?;
        let mut stream = TimeoutStream::new(tcp);
        stream.set_write_timeout(Some(self.limits.write_timeout));
        let stream = Box::pin(stream);
        let admitted = self.config.current();
        let Some(tls) = &admitted.tls else {
            self.http(stream, admitted, watcher).await;
            return Ok(());
        };
        let handshake = TlsAcceptor::from(tls.server.clone()).accept(stream);
        match timeout(self.limits.header_timeout, handshake).await? {
            Ok(stream) => self.http(stream, admitted, watcher).await,
            // A probe that only connects is not a failure.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let failures = self.failed_handshakes.fetch_add(1, Ordering::Relaxed) + 1;
                // Clients must not fill the log.
                if failures.is_power_of_two() {
                    tracing::warn!(
                        failures,
                        %error,
                        "TLS handshake failed; check that the client uses https:// and, if client_ca_file is set, a certificate of that authority"
                    );
                }
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Serves the requests of a connection that these settings admitted.
    async fn http(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        admitted: Arc<Current>,
        watcher: Watcher,
    ) {
        let service = service_fn(async |request: hyper::Request<hyper::body::Incoming>| {
            let request = request.map(axum::body::Body::new);
            Ok::<_, Infallible>(self.answer(request, &admitted).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_buf_size(MAX_BUFFER)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        let _ = watcher.watch(connection).await;
    }

    /// Checks a request, and completes the response. Probes are no exception, as in the toolkit.
    async fn answer(&self, request: Request, admitted: &Arc<Current>) -> Response {
        let current = self.config.current();
        let answer = async {
            if !Arc::ptr_eq(&current, admitted) {
                // The connection may lack TLS, or a certificate, that is required now.
                (StatusCode::MISDIRECTED_REQUEST, [(CONNECTION, "close")]).into_response()
            } else if current.users.allow(request.headers()).await {
                self.router.clone().oneshot(request).await.into_response()
            } else {
                let challenge = [(WWW_AUTHENTICATE, CHALLENGE)];
                (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
            }
        };
        let late = |_| StatusCode::SERVICE_UNAVAILABLE.into_response();
        let mut response = timeout(RESPONSE_TIMEOUT, answer).await.unwrap_or_else(late);
        let headers = response.headers_mut();
        for (name, value) in &current.headers {
            headers.entry(name).or_insert(value.clone());
        }
        for (name, value) in HEADERS {
            headers
                .entry(name)
                .or_insert(HeaderValue::from_static(value));
        }
        response
    }
}
