//! HTTP/1.1 and HTTP/2 on one connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt as _;

use super::activity::Activity;
use super::config::Peer;
use super::server::Shared;

/// The largest request line and headers together, in bytes. Prometheus sends some 400.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// How many header fields a request may have.
const MAX_HEADERS: usize = 64;

/// How many requests one HTTP/2 connection may have under way.
const MAX_STREAMS: u32 = 16;

/// What one HTTP/2 client may send before it is read, in bytes: no request here has a body that is read.
const WINDOW: u32 = 64 * 1024;

/// What is held ready for one HTTP/2 request whose client does not read, in bytes.
const SEND_BUFFER: usize = 64 * 1024;

/// Serves HTTP/1.1 to the end of the connection.
pub(super) async fn http1(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: Peer,
    activity: Arc<Activity>,
    shared: &Shared,
) {
    let service = hyper::service::service_fn(|request| {
        answer(request, peer, activity.clone(), shared.clone())
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // What hyper calls so counts from the end of the answer before; `Guarded` has the deadline for the headers alone.
        .header_read_timeout(shared.limits.idle_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEADER_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
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

/// Serves HTTP/2 to the end of the connection.
///
/// Here requests share the connection, and each has a window of its own: that the client takes bytes off the connection says
/// nothing of one answer. So the deadlines are looked at from outside: for being idle, and for the oldest answer.
pub(super) async fn http2<S>(stream: S, peer: Peer, activity: Arc<Activity>, shared: &Shared)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    activity.multiplexes();
    let limits = shared.limits;
    let service = {
        let (activity, shared) = (activity.clone(), shared.clone());
        hyper::service::service_fn(move |request| {
            answer(request, peer, activity.clone(), shared.clone())
        })
    };
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut looks = tokio::time::interval(
        (limits.idle_timeout.min(limits.answer_timeout()) / 4).max(Duration::from_millis(1)),
    );
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = shared.shutdown.cancelled() => break,
            _ = looks.tick() => {}
        }
        if activity
            .oldest_answer()
            .is_some_and(|since| since.elapsed() >= limits.answer_timeout())
        {
            return;
        }
        if activity
            .disposable_since()
            .is_some_and(|since| since.elapsed() >= limits.idle_timeout)
        {
            if told {
                return;
            }
            told = true;
            connection.as_mut().graceful_shutdown();
        }
    }
    connection.as_mut().graceful_shutdown();
    if activity.disposable_since().is_none() {
        let _ = connection.await;
    }
}

async fn answer(
    mut request: Request<Incoming>,
    peer: Peer,
    activity: Arc<Activity>,
    shared: Shared,
) -> Result<Response, Infallible> {
    let answering = activity.answering();
    request.extensions_mut().insert(peer);
    let Ok(answer) = shared.router.oneshot(request.map(Body::new)).await;
    Ok(answer.map(|body| answering.until_end_of(body)))
}
