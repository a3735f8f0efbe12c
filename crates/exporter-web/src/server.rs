//! The server: HTTP/1.1 over connections of bounded number and time, with TLS as the configuration file asks for it at the
//! moment.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::{AddExtension, Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use axum_server::accept::Accept;
use axum_server::{Handle, Server};
use futures_util::future::{BoxFuture, join_all};
use hyper_util::rt::TokioTimer;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tower::{Layer as _, service_fn};
use tower_http::timeout::TimeoutLayer;

use crate::config::Current;
use crate::{Bound, WebConfig, tls};

/// The maximum size of the request line and headers together, and what is buffered of a response, in bytes. Prometheus
/// sends 400.
const MAX_BUFFER: usize = 32 * 1024;

/// What the system buffers of a response, in bytes. Its default grows to megabytes, which count as memory of a container.
const SEND_BUFFER: usize = 64 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// The maximum time to compute a response, with the check of its password.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

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
    /// The maximum time for responses to finish when the exporter stops.
    pub shutdown_grace: Duration,
}

/// Admits connections as the configuration file asks for it.
#[derive(Clone)]
struct Admission {
    config: WebConfig,
    limits: Limits,
    failed_handshakes: Arc<AtomicU64>,
}

/// A connection that ends if its client takes nothing of a response.
type Connection = Pin<Box<TimeoutStream<TcpStream>>>;

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
        .layer(from_fn_with_state(config.clone(), guard))
        .layer(TimeoutLayer::with_status_code(late, RESPONSE_TIMEOUT));
    let admission = Admission {
        config: config.clone(),
        limits,
        failed_handshakes: Arc::default(),
    };
    let handle: Handle<SocketAddr> = Handle::new();
    let permits = Arc::new(Semaphore::new(limits.connections));
    let servers = sockets.into_iter().map(|socket| {
        let mut server = Server::from_listener(socket)
            .acceptor(admission.clone())
            .handle(handle.clone())
            .http1_only();
        let mut http = server.http_builder().http1();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.header_timeout)
            .max_buf_size(MAX_BUFFER)
            .max_headers(MAX_HEADERS);
        let (router, permits) = (router.clone(), permits.clone());
        // The next connection is not accepted before this one has a permit, which it keeps to its end.
        server.serve(service_fn(move |_| {
            let (router, permit) = (router.clone(), permits.clone().acquire_owned());
            async { Ok::<_, io::Error>(Extension(Arc::new(permit.await)).layer(router)) }
        }))
    });
    let mut servers = pin!(join_all(servers));
    tokio::select! {
        _ = &mut servers => {}
        () = config.follow() => {}
        () = shutdown => {}
    }
    handle.graceful_shutdown(None);
    let _ = timeout(limits.shutdown_grace, servers).await;
    handle.shutdown();
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
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

// === impl Admission ===

impl<S: Send + 'static> Accept<TcpStream, S> for Admission {
    type Stream = Either<TlsStream<Connection>, Connection>;
    /// Each request knows the settings that admitted its connection.
    type Service = AddExtension<S, Arc<Current>>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, tcp: TcpStream, service: S) -> Self::Future {
        let admission = self.clone();
        Box::pin(async move {
            let admitted = admission.config.current();
            let stream = admission.admit(tcp, &admitted).await?;
            Ok((stream, Extension(admitted).layer(service)))
        })
    }
}

impl Admission {
    /// Returns a connection, with TLS if it is on.
    async fn admit(
        &self,
        tcp: TcpStream,
        current: &Current,
    ) -> io::Result<Either<TlsStream<Connection>, Connection>> {
        // Responses are written whole, so nothing is gained by waiting for more.
        tcp.set_nodelay(true)?;
        SockRef::from(&tcp).set_send_buffer_size(SEND_BUFFER)?;
        let mut stream = Box::pin(TimeoutStream::new(tcp));
        let write_timeout = Some(self.limits.write_timeout);
        stream.as_mut().set_write_timeout_pinned(write_timeout);
        let Some(tls) = &current.tls else {
            return Ok(Either::Right(stream));
        };
        let handshake = TlsAcceptor::from(tls.server.clone()).accept(stream);
        let accepted = timeout(self.limits.header_timeout, handshake).await?;
        // A probe that only connects is not a failure.
        if let Err(error) = &accepted
            && error.kind() == io::ErrorKind::InvalidData
        {
            let failures = self.failed_handshakes.fetch_add(1, Ordering::Relaxed) + 1;
            // Clients must not fill the log.
            if failures.is_power_of_two() {
                let error = error.to_string();
                let advice = tls::advice(&error);
                tracing::warn!(failures, error, "TLS handshake failed; {advice}");
            }
        }
        accepted.map(Either::Left)
    }
}
