//! The HTTP server: routes, start and stop.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Extensions, HeaderMap, Request, StatusCode, Version, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower_http::compression::predicate::{Predicate as _, SizeAbove};
use tower_http::compression::{CompressionLayer, CompressionLevel};

use super::answer::{self, message};
use super::config::Config;
use super::control;
use super::ending::{AsIs, http_date};
use super::sim::Simulator;
use super::wire::{Cut, Wire};

/// Smaller answers are not compressed, in bytes.
const COMPRESS_ABOVE: u16 = 512;
/// How long requests under way may take once the server stops.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the two listings serve, for machines.
const OPENAPI: &str = include_str!("openapi.json");
/// What there is, for people.
const INDEX: &str = "\
Simulator of the Organization Data API: audit logs and tickets of one made-up organization.

/v1/audit-logs    audit log entries, newest first, paged by cursors; header X-API-Key
/v1/tickets       tickets, paged by offset; header X-API-Key
/openapi.json     both in OpenAPI 3.1
/control/         add events, faults and tickets at run time; the truth to compare with
";

/// What a handler needs.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) sim: Arc<Simulator>,
    /// Ends what would keep a connection open for ever.
    pub(super) stopping: CancellationToken,
}

/// A simulator that listens on a port of its own; it stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Simulator>,
    address: SocketAddr,
    stop: CancellationToken,
    task: Option<tokio::task::JoinHandle<io::Result<()>>>,
}

/// Serves until `shutdown` is done; requests under way then have a second to end.
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve(
    sim: Arc<Simulator>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let stopping = CancellationToken::new();
    let server = Server {
        sim,
        stopping: stopping.clone(),
    };
    let router = router(server.clone());
    // Dropping the set ends its connections, so nothing outlives this function.
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, server.clone(), router.clone())); }
                Err(error) if is_fatal(&error) => return Err(error),
                // One connection failed, or too many are open: others can still be served.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    stopping.cancel();
    let drained = async { while connections.join_next().await.is_some() {} };
    // What takes longer is cut.
    let _ = tokio::time::timeout(GRACE, drained).await;
    Ok(())
}

fn router(server: Server) -> Router {
    let compression = CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .gzip(server.sim.config().compression)
        .compress_when(SizeAbove::new(COMPRESS_ABOVE).and(may_change));
    Router::new()
        .route(
            "/",
            get(|| async { text("text/plain; charset=utf-8", INDEX) }),
        )
        .route(
            "/openapi.json",
            get(|| async { text("application/json", OPENAPI) }),
        )
        .merge(control::routes())
        .fallback(answer::answer)
        .method_not_allowed_fallback(|| async {
            message(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        })
        .with_state(server)
        .layer(compression)
}

fn text(
    kind: &'static str,
    body: &'static str,
) -> ([(header::HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, kind)], body)
}

/// Whether a response may be compressed: a fault may have made its very bytes matter.
fn may_change(_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions) -> bool {
    extensions.get::<AsIs>().is_none()
}

/// Serves one connection until it ends or the server stops.
async fn connection(stream: TcpStream, server: Server, router: Router) {
    // Without it small answers wait for an acknowledgement. It is only slower when it fails.
    let _ = stream.set_nodelay(true);
    let cut = Cut::default();
    let io = TokioIo::new(Wire::new(stream, cut.clone()));
    let sim = Arc::clone(&server.sim);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, cut, sim) = (router.clone(), cut.clone(), Arc::clone(&sim));
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(cut);
            let mut response = router.oneshot(request).await?;
            if !sim.readings().no_date {
                response
                    .headers_mut()
                    .insert(header::DATE, http_date(sim.millis()));
            }
            Ok::<_, Infallible>(response)
        }
    });
    // The date is the simulator's, not the machine's.
    let serving = http1::Builder::new()
        .auto_date_header(false)
        .header_read_timeout(None)
        .serve_connection(io, service);
    let mut serving = pin!(serving);
    tokio::select! {
        // A connection that fails is the client's affair.
        _ = serving.as_mut() => {}
        () = server.stopping.cancelled() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}

/// Errors after which a listener accepts nothing more.
fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected
    )
}

// === impl Simulator ===

impl Simulator {
    /// Makes a simulator and serves it on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn spawn(config: Config) -> io::Result<Running> {
        Self::new(config).run().await
    }

    /// Serves this simulator on a free loopback port. It can be done again after the first server stopped, and more
    /// than once at a time.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn run(self: Arc<Self>) -> io::Result<Running> {
        self.run_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
    }

    /// Serves this simulator on that address.
    ///
    /// # Errors
    ///
    /// When the address cannot be had.
    pub async fn run_on(self: Arc<Self>, address: SocketAddr) -> io::Result<Running> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(
            Arc::clone(&self),
            listener,
            stop.clone().cancelled_owned(),
        ));
        Ok(Running {
            sim: self,
            address,
            stop,
            task: Some(task),
        })
    }
}

// === impl Running ===

impl Running {
    /// The base address for a client, as `http://127.0.0.1:40123`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it serves.
    pub fn simulator(&self) -> &Arc<Simulator> {
        &self.sim
    }

    /// Stops listening and waits until the port is free.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            // A task that panicked or failed has stopped as well.
            let _ = task.await;
        }
    }
}

impl std::ops::Deref for Running {
    type Target = Simulator;

    fn deref(&self) -> &Simulator {
        &self.sim
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
