//! A server that a client can neither stall nor fill.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::activity::Activity;
use super::config::{Peer, WebConfig};
use super::connection::Guarded;
use super::listen::Listener;
use super::pool::Pool;
use super::{Bound, Limits, WebState, protocol};

/// The pause after an accept that failed for want of something, a file descriptor most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// The first byte of a TLS connection: a record of the handshake.
const HANDSHAKE: u8 = 0x16;

/// What somebody gets who speaks HTTP where TLS is spoken; Go's servers say the same.
const NOT_TLS: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n\
Client sent an HTTP request to an HTTPS server.\n";

/// What every connection of one server shares.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) router: Router,
    pub(super) limits: Limits,
    config: Option<WebConfig>,
    pool: Arc<Pool>,
    /// No new connections, no further requests.
    pub(super) shutdown: CancellationToken,
    /// Not even the answers that are on their way.
    abort: CancellationToken,
}

/// A listening socket of this server.
enum Acceptor {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

/// A new connection; for one over the network, where from.
enum Accepted {
    Tcp(TcpStream, IpAddr),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// Answers requests until `shutdown`, then lets answers finish that are on their way, for at most
/// [`Limits::shutdown_grace`]. Clients that are only connected are not waited for.
pub async fn serve(bound: Bound, state: WebState, shutdown: CancellationToken) {
    let shared = Shared {
        router: super::router(state, &bound.telemetry_path, bound.config.clone()),
        limits: bound.limits,
        config: bound.config,
        pool: Arc::new(Pool::new(bound.limits.connections)),
        shutdown,
        abort: CancellationToken::new(),
    };
    if let Some(config) = &shared.config {
        config.announce();
    }
    let tasks = TaskTracker::new();
    // Kept until the end: with the last handle the file of a Unix socket goes.
    let listeners = bound.listeners;
    for listener in &listeners {
        match Acceptor::new(listener) {
            Ok(acceptor) => drop(tasks.spawn(accept(acceptor, shared.clone(), tasks.clone()))),
            Err(error) => {
                tracing::error!(%error, "a listening socket cannot be used; the others go on")
            }
        }
    }
    tasks.close();
    shared.shutdown.cancelled().await;
    if tokio::time::timeout(bound.limits.shutdown_grace, tasks.wait())
        .await
        .is_err()
    {
        shared.abort.cancel();
        tasks.wait().await;
    }
}

async fn accept(listener: Acceptor, shared: Shared, tasks: TaskTracker) {
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => {
                failures = 0;
                match accepted {
                    Accepted::Tcp(stream, client) => admit(stream, Some(client), &shared, &tasks),
                    #[cfg(unix)]
                    Accepted::Unix(stream) => admit(stream, None, &shared, &tasks),
                }
            }
            // The client went away before it was accepted.
            Err(error) if is_about_the_client(&error) => {}
            Err(error) => {
                failures = failures.saturating_add(1);
                if failures.is_power_of_two() {
                    tracing::warn!(%error, failures, "cannot accept connections; trying again twice a second");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

fn admit<S>(stream: S, client: Option<IpAddr>, shared: &Shared, tasks: &TaskTracker)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let activity = Activity::new();
    // When every connection is being answered, a further one is closed: its client sees that at once, and tries again.
    let Some(place) = shared.pool.admit(activity.clone()) else {
        return;
    };
    let shared = shared.clone();
    tasks.spawn(async move {
        let evicted = place.evicted();
        tokio::select! {
            biased;
            () = evicted.cancelled() => {}
            () = shared.abort.cancelled() => {}
            () = connection(stream, Peer(client), activity, &shared) => {}
        }
        drop(place);
    });
}

/// Serves one connection to its end. A handshake has the deadline of a request's headers, since it comes before them.
async fn connection<S>(stream: S, peer: Peer, activity: Arc<Activity>, shared: &Shared)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Guarded::new(stream, activity.clone(), shared.limits);
    let tls = match &shared.config {
        Some(config) => config.current().await.tls(),
        None => None,
    };
    let Some(tls) = tls else {
        return protocol::http1(stream, peer, activity, shared).await;
    };
    let handshake = async {
        if stream.first_byte().await? != HANDSHAKE {
            stream.write_all(NOT_TLS).await?;
            stream.shutdown().await?;
            return Err(io::ErrorKind::InvalidData.into());
        }
        TlsAcceptor::from(tls).accept(stream).await
    };
    let shaken = tokio::select! {
        biased;
        () = shared.shutdown.cancelled() => return,
        shaken = handshake => shaken,
    };
    // A handshake that fails is the client's affair, as a request that ends halfway.
    let Ok(stream) = shaken else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        protocol::http2(stream, peer, activity, shared).await;
    } else {
        protocol::http1(stream, peer, activity, shared).await;
    }
}

// === impl Acceptor ===

impl Acceptor {
    fn new(listener: &Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(socket) => Self::Tcp(TcpListener::from_std(socket.try_clone()?)?),
            #[cfg(unix)]
            Listener::Unix(socket) => Self::Unix(tokio::net::UnixListener::from_std(
                socket.listener.try_clone()?,
            )?),
        })
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                // Answers are small and written whole: nothing is gained by waiting for more.
                let _ = stream.set_nodelay(true);
                Ok(Accepted::Tcp(stream, from.ip().to_canonical()))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}
