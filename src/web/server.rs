//! Listening sockets, and a server that a client can neither stall nor fill.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::connection::{Activity, Guarded};
use super::pool::Pool;
use super::{Limits, ListenAddress, Settings, TelemetryPath, WebState};

/// Connections that the kernel holds for us; what Go's servers have on Linux by default is 4096, and scrapers are few.
const BACKLOG: i32 = 1024;

/// The largest request line and headers together, in bytes. Prometheus sends some 400.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How many header fields a request may have.
const MAX_HEADERS: usize = 64;

/// The pause after an accept that failed for want of something, a file descriptor most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Listening sockets: from here on clients can connect, and are answered once [`serve`] runs.
#[derive(Debug)]
pub struct Bound {
    listeners: Vec<TcpListener>,
    telemetry_path: TelemetryPath,
    limits: Limits,
}

/// Why an address cannot be listened on, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket is there.
    #[error(
        "cannot listen on {address}: the port is in use; stop what listens there (`ss -ltnp 'sport = :{port}'` names it), or choose another with --web.listen-address"
    )]
    InUse {
        /// The address as it was given.
        address: String,
        /// Its port.
        port: u16,
    },
    /// The process may not.
    #[error(
        "cannot listen on {address}: not permitted; ports below 1024 are for privileged processes, choose a higher one with --web.listen-address"
    )]
    Denied {
        /// The address as it was given.
        address: String,
    },
    /// No interface of this machine has the address.
    #[error(
        "cannot listen on {address}: no interface of this machine has that address; choose another with --web.listen-address, :{port} for all"
    )]
    NotLocal {
        /// The address as it was given.
        address: String,
        /// Its port.
        port: u16,
    },
    /// The name has no address.
    #[error("cannot listen on {address}: the name is not known ({source}); give an IP address with --web.listen-address")]
    Name {
        /// The address as it was given.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address was given.
    #[error("nothing to listen on; give at least one --web.listen-address, like :10917")]
    Nothing,
    /// Anything else.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address as it was given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What every connection of one server shares.
#[derive(Clone)]
struct Shared {
    router: Router,
    limits: Limits,
    pool: Arc<Pool>,
    /// No new connections, no further requests.
    shutdown: CancellationToken,
    /// Not even the answers that are on their way.
    abort: CancellationToken,
}

/// Opens every address of the settings.
///
/// # Errors
///
/// On the first address that cannot be listened on.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    let mut listeners = Vec::new();
    for address in &settings.listen_addresses {
        // `[::]` takes IPv4 too, unless IPv4 is asked for on its own.
        let only_v6 = settings.listen_addresses.iter().any(|other| other.is_ipv4_wildcard() && other.port() == address.port());
        bind_one(address, only_v6, &mut listeners).await.map_err(|source| BindError::new(address, source))?;
    }
    if listeners.is_empty() {
        return Err(BindError::Nothing);
    }
    Ok(Bound { listeners, telemetry_path: settings.telemetry_path.clone(), limits: settings.limits })
}

/// Answers requests until `shutdown`, then lets answers finish that are on their way, for at most
/// [`Limits::shutdown_grace`]. Clients that are only connected are not waited for.
pub async fn serve(bound: Bound, state: WebState, shutdown: CancellationToken) {
    let shared = Shared {
        router: super::router(state, &bound.telemetry_path),
        limits: bound.limits,
        pool: Arc::new(Pool::new(bound.limits.connections)),
        shutdown,
        abort: CancellationToken::new(),
    };
    let tasks = TaskTracker::new();
    for listener in bound.listeners {
        tasks.spawn(accept(listener, shared.clone(), tasks.clone()));
    }
    tasks.close();
    shared.shutdown.cancelled().await;
    if tokio::time::timeout(bound.limits.shutdown_grace, tasks.wait()).await.is_err() {
        shared.abort.cancel();
        tasks.wait().await;
    }
}

async fn bind_one(address: &ListenAddress, only_v6: bool, listeners: &mut Vec<TcpListener>) -> io::Result<()> {
    match address {
        ListenAddress::Any(port) => {
            let everywhere = listen((Ipv6Addr::UNSPECIFIED, *port).into(), only_v6);
            // A kernel without IPv6 has no `[::]`.
            let listener = match everywhere {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen((Ipv4Addr::UNSPECIFIED, *port).into(), false)?,
                everywhere => everywhere?,
            };
            listeners.push(listener);
        }
        ListenAddress::Socket(address) => listeners.push(listen(*address, only_v6)?),
        ListenAddress::Name(host, port) => {
            let mut failure = None;
            let before = listeners.len();
            for address in tokio::net::lookup_host((host.as_str(), *port)).await.map_err(NameError::wrap)? {
                match listen(address, true) {
                    Ok(listener) => listeners.push(listener),
                    // `localhost` is `::1` too in most hosts files, also where there is no IPv6.
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if listeners.len() == before {
                return Err(failure.unwrap_or_else(|| NameError::wrap(io::ErrorKind::NotFound.into())));
            }
        }
    }
    Ok(())
}

fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Said explicitly: the default is a setting of the machine.
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for the connections of the process before it.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn accept(listener: TcpListener, shared: Shared, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Answers are small and written whole: nothing is gained by waiting for more.
                let _ = stream.set_nodelay(true);
                admit(stream, &shared, &tasks);
            }
            // The client went away before it was accepted.
            Err(error) if is_about_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, pause_seconds = ACCEPT_PAUSE.as_secs_f64(), "cannot accept a connection; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn admit(stream: TcpStream, shared: &Shared, tasks: &TaskTracker) {
    let activity = Activity::new();
    // When every connection is being answered, a further one is closed: its client sees that at once, and tries again.
    let Some(place) = shared.pool.admit(activity.clone()) else { return };
    let shared = shared.clone();
    tasks.spawn(async move {
        let evicted = place.evicted();
        tokio::select! {
            biased;
            () = evicted.cancelled() => {}
            () = shared.abort.cancelled() => {}
            () = connection(stream, activity, &shared) => {}
        }
        drop(place);
    });
}

/// Serves one connection to its end.
async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, activity: Arc<Activity>, shared: &Shared) {
    let stream = TokioIo::new(Guarded::new(stream, activity.clone(), shared.limits));
    let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
        let answering = activity.answering();
        let answer = shared.router.clone().oneshot(request.map(Body::new));
        async move {
            let Ok(answer) = answer.await;
            Ok::<_, Infallible>(answer.map(|body| answering.until_end_of(body)))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // What hyper calls so counts from the end of the answer before; `Guarded` has the deadline for the headers alone.
        .header_read_timeout(shared.limits.idle_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEADER_BYTES);
    let connection = builder.serve_connection(stream, service);
    tokio::pin!(connection);
    // A connection that ends in an error is the client's affair, and as common as scrapers that restart.
    tokio::select! {
        biased;
        _ = &mut connection => return,
        () = shared.shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    if activity.disposable_since().is_none() {
        let _ = connection.await;
    }
}

// === impl Bound ===

impl Bound {
    /// The addresses that are listened on, with the port that was free where 0 was asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Where a person on this machine finds the server, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        Some(format!("http://{address}"))
    }

    /// The path of the metrics.
    pub fn telemetry_path(&self) -> &TelemetryPath {
        &self.telemetry_path
    }
}

// === impl BindError ===

/// Marks an error of the resolver, which has the same kinds as one of the socket.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NameError(io::Error);

impl NameError {
    fn wrap(error: io::Error) -> io::Error {
        io::Error::other(Self(error))
    }
}

impl BindError {
    fn new(address: &ListenAddress, source: io::Error) -> Self {
        let (address, port) = (address.to_string(), address.port());
        if source.get_ref().is_some_and(|inner| inner.is::<NameError>()) {
            return Self::Name { address, source };
        }
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address, port },
            io::ErrorKind::PermissionDenied => Self::Denied { address },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { address, port },
            _ => Self::Io { address, source },
        }
    }
}
