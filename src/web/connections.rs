//! The open connections: a bounded number, of which the one without progress for longest is closed
//! for a new one, and a deadline for each.
//!
//! "Progress" is a new connection, a request, its response as soon as it is computed, and bytes of
//! it that the client took. What a client sends of a request is not: a slow request must not hold a
//! connection open.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{Limits, RESPONSE_TIMEOUT};
use crate::util::lock;

/// The number of file descriptors that are kept for everything but connections of clients: files,
/// listeners, requests to the API and to the collector.
const RESERVED_FILES: u64 = 28;

/// The minimum number of connections, however few file descriptors there are.
const MIN_CONNECTIONS: usize = 4;

/// A transport: TCP, a Unix socket, or TLS over one of them.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Transport for T {}

/// The open connections of one server.
#[derive(Debug)]
pub(super) struct Pool {
    limits: Limits,
    open: Mutex<Vec<Weak<Connection>>>,
}

/// One open connection, shared by its stream and its requests.
#[derive(Debug)]
pub(super) struct Connection {
    limits: Limits,
    closed: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the last progress was made.
    progress: Instant,
    deadline: Instant,
    /// The number of responses that are not complete.
    responses: usize,
    /// The number of those that are not computed yet.
    computing: usize,
}

/// A response from its request to the last byte of its body; dropped at its end.
#[derive(Debug)]
pub(super) struct UnderWay {
    connection: Arc<Connection>,
    is_computed: bool,
}

/// The stream of one connection. It ends when the pool closes the connection.
pub(super) struct Stream {
    inner: Pin<Box<dyn Transport>>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    pub(super) connection: Arc<Connection>,
}

// === impl Pool ===

impl Pool {
    /// An empty pool, with as many connections as the limits and `RLIMIT_NOFILE` allow.
    pub(super) fn new(mut limits: Limits) -> Arc<Self> {
        if let Some(files) = getrlimit(Resource::Nofile).current {
            let files = usize::try_from(files.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX);
            limits.connections = limits.connections.min(files).max(MIN_CONNECTIONS);
        }
        let open = Mutex::default();
        Arc::new(Self { limits, open })
    }

    /// Adds a connection, and closes another one if there are too many.
    pub(super) fn add(&self, transport: impl Transport + 'static) -> Stream {
        if self.open().len() >= self.limits.connections {
            self.close_stalest();
        }
        let now = Instant::now();
        let connection = Arc::new(Connection {
            limits: self.limits,
            closed: CancellationToken::new(),
            state: Mutex::new(State {
                progress: now,
                deadline: now + self.limits.header_timeout,
                responses: 0,
                computing: 0,
            }),
        });
        lock(&self.open).push(Arc::downgrade(&connection));
        let mut inner = TimeoutWriter::new(transport);
        inner.set_timeout(Some(self.limits.write_timeout));
        Stream {
            inner: Box::pin(inner),
            closed: Box::pin(connection.closed.clone().cancelled_owned()),
            connection,
        }
    }

    /// Closes the connection that made no progress for longest, and one that waits for the exporter
    /// only if all do.
    pub(super) fn close_stalest(&self) {
        let open = self.open();
        let stalest = open.iter().min_by_key(|open| {
            let state = lock(&open.state);
            (state.computing > 0, state.progress)
        });
        if let Some(stalest) = stalest {
            stalest.closed.cancel();
        }
    }

    /// Closes connections at their deadlines, for ever.
    pub(super) async fn close_overdue(&self) {
        let limits = &self.limits;
        let shortest = limits.header_timeout.min(limits.write_timeout);
        let every = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut ticks = tokio::time::interval(every);
        loop {
            let now = ticks.tick().await;
            self.close_if(|state| state.deadline <= now);
        }
    }

    /// Closes the connections without a response under way.
    pub(super) fn close_idle(&self) {
        self.close_if(|state| state.responses == 0);
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        self.close_if(|_| true);
    }

    fn close_if(&self, condition: impl Fn(&State) -> bool) {
        for connection in self.open() {
            if condition(&lock(&connection.state)) {
                connection.closed.cancel();
            }
        }
    }

    fn open(&self) -> Vec<Arc<Connection>> {
        let mut open = lock(&self.open);
        let is_open = |connection: &Arc<Connection>| !connection.closed.is_cancelled();
        open.retain(|connection| connection.upgrade().as_ref().is_some_and(is_open));
        open.iter().filter_map(Weak::upgrade).collect()
    }
}

// === impl Connection ===

impl Connection {
    /// Begins a response.
    pub(super) fn begin_response(self: &Arc<Self>) -> UnderWay {
        let (mut state, now) = (lock(&self.state), Instant::now());
        if state.responses == 0 {
            state.deadline = now + RESPONSE_TIMEOUT + self.limits.write_timeout * 2;
        }
        state.progress = now;
        state.responses += 1;
        state.computing += 1;
        UnderWay {
            connection: self.clone(),
            is_computed: false,
        }
    }
}

// === impl UnderWay ===

impl UnderWay {
    /// Ties the response to its body: hyper drops it after the last byte.
    pub(super) fn attach(mut self, body: Body) -> Body {
        let (mut state, now) = (lock(&self.connection.state), Instant::now());
        // A client can take a few bytes now and then to keep the connection.
        let latest = now + self.connection.limits.write_timeout * 2;
        state.deadline = state.deadline.min(latest);
        state.progress = now;
        state.computing -= 1;
        drop(state);
        self.is_computed = true;
        Body::new(body.map_err(move |error| {
            let _held = &self;
            error
        }))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (mut state, now) = (lock(&self.connection.state), Instant::now());
        state.responses -= 1;
        state.computing -= usize::from(!self.is_computed);
        if state.responses == 0 {
            state.deadline = now + self.connection.limits.idle_timeout;
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Returns the transport, if the connection is not closed.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut dyn Transport>> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(self.inner.as_mut()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.open(cx)?.poll_write(cx, buffer);
        let mut state = lock(&self.connection.state);
        if state.responses > 0 && matches!(written, Poll::Ready(Ok(1..))) {
            state.progress = Instant::now();
        }
        drop(state);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open(cx)?.poll_shutdown(cx)
    }
}
