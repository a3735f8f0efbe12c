//! A server that a client can neither stall nor fill.

use std::convert::Infallible;
use std::io;
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
use super::{Bound, Limits, WebState};

/// The largest request line and headers together, in bytes. Prometheus sends some 400.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How many header fields a request may have.
const MAX_HEADERS: usize = 64;

/// The pause after an accept that failed for want of something, a file descriptor most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

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

async fn accept(listener: TcpListener, shared: Shared, tasks: TaskTracker) {
    let mut failures = 0_u32;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shared.shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                failures = 0;
                // Answers are small and written whole: nothing is gained by waiting for more.
                let _ = stream.set_nodelay(true);
                admit(stream, &shared, &tasks);
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
