//! The open connections: a bounded number, of which the one without progress for longest is closed
//! for a new one, and deadlines for clients that begin and do not end.
//!
//! "Progress" is a new connection, a response that was computed, and bytes of a response that the
//! client took. What a client sends is not: a slow request must not hold a connection open.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use futures_util::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_io_timeout::TimeoutWriter;

use super::Limits;

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
    open: Mutex<Vec<Arc<Connection>>>,
}

/// One open connection, shared by its stream, its requests and the pool.
#[derive(Debug)]
pub(super) struct Connection {
    closed: AtomicBool,
    /// Wakes the task of the connection after it was closed.
    waker: AtomicWaker,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Since when no response is under way, or one is.
    since: Instant,
    /// When the client last took bytes of a response.
    taken: Instant,
    /// Whether there was a request.
    requested: bool,
    /// The number of responses that are being computed.
    computing: usize,
    /// The number of responses that are not complete.
    responses: usize,
}

/// A response from its request to the last byte of its body; dropped at its end.
#[derive(Debug)]
pub(super) struct Response {
    connection: Arc<Connection>,
    computed: bool,
}

/// A body, which ends its response when it is dropped.
struct TrackedBody {
    body: Body,
    _response: Response,
}

/// The stream of one connection. It ends when the pool closes the connection.
pub(super) struct Stream {
    inner: Pin<Box<dyn Transport>>,
    peeked: Option<u8>,
    connection: Arc<Connection>,
    pool: Arc<Pool>,
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
    pub(super) fn add(self: &Arc<Self>, transport: impl Transport + 'static) -> Stream {
        if self.open().len() >= self.limits.connections {
            self.close_stalest();
        }
        let now = Instant::now();
        let connection = Arc::new(Connection {
            closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            state: Mutex::new(State {
                since: now,
                taken: now,
                requested: false,
                computing: 0,
                responses: 0,
            }),
        });
        self.open().push(connection.clone());
        let mut inner = TimeoutWriter::new(transport);
        inner.set_timeout(Some(self.limits.write_timeout));
        Stream {
            inner: Box::pin(inner),
            peeked: None,
            connection,
            pool: self.clone(),
        }
    }

    /// Closes the connection that made no progress for longest.
    pub(super) fn close_stalest(&self) {
        let mut open = self.open();
        let stalest = open.iter().enumerate().min_by_key(|(_, connection)| {
            let state = connection.state();
            (state.computing > 0, state.since.max(state.taken))
        });
        if let Some((index, _)) = stalest {
            open.swap_remove(index).close();
        }
    }

    /// Closes the connections whose deadline has passed.
    pub(super) fn close_overdue(&self) {
        self.close_if(|connection| connection.is_overdue(&self.limits));
    }

    /// Closes the connections without a response under way.
    pub(super) fn close_idle(&self) {
        self.close_if(|connection| connection.state().responses == 0);
    }

    /// Closes all connections.
    pub(super) fn close_all(&self) {
        self.close_if(|_| true);
    }

    fn close_if(&self, condition: impl Fn(&Connection) -> bool) {
        self.open().retain(|connection| {
            let close = condition(connection);
            if close {
                connection.close();
            }
            !close
        });
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Connection ===

impl Connection {
    /// Begins a response.
    pub(super) fn respond(self: &Arc<Self>) -> Response {
        let mut state = self.state();
        if state.responses == 0 {
            state.since = Instant::now();
        }
        state.requested = true;
        state.computing += 1;
        state.responses += 1;
        Response {
            connection: self.clone(),
            computed: false,
        }
    }

    fn is_overdue(&self, limits: &Limits) -> bool {
        let state = self.state();
        let limit = match (state.responses, state.requested) {
            (0, false) => limits.header_timeout,
            (0, true) => limits.idle_timeout,
            // A client can take a few bytes now and then to keep the connection.
            _ => limits.write_timeout * 2,
        };
        state.since.elapsed() >= limit
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.waker.wake();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Response ===

impl Response {
    fn computed(&mut self) {
        if !std::mem::replace(&mut self.computed, true) {
            let mut state = self.connection.state();
            state.computing -= 1;
            state.taken = Instant::now();
        }
    }

    /// Ties the response to its body: hyper drops it after the last byte.
    pub(super) fn attach(mut self, body: Body) -> Body {
        self.computed();
        Body::new(TrackedBody {
            body,
            _response: self,
        })
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        self.computed();
        let mut state = self.connection.state();
        state.responses -= 1;
        if state.responses == 0 {
            state.since = Instant::now();
        }
    }
}

// === impl TrackedBody ===

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Stream ===

impl Stream {
    /// Returns the state of the connection.
    pub(super) fn connection(&self) -> Arc<Connection> {
        self.connection.clone()
    }

    /// Returns the first byte of the client, which is read again.
    pub(super) async fn peek(&mut self) -> io::Result<u8> {
        let byte = self.read_u8().await?;
        self.peeked = Some(byte);
        Ok(byte)
    }

    fn check(&self, cx: &Context<'_>) -> io::Result<()> {
        self.connection.waker.register(cx.waker());
        match self.connection.closed.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut state = self.connection.state();
        if matches!(written, Poll::Ready(Ok(1..))) && state.responses > 0 {
            state.taken = Instant::now();
        }
        drop(state);
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        if let Some(byte) = self.peeked.take() {
            buffer.put_slice(&[byte]);
            return Poll::Ready(Ok(()));
        }
        self.inner.as_mut().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = self.inner.as_mut().poll_write(cx, buffer);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let written = self.inner.as_mut().poll_write_vectored(cx, buffers);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        self.inner.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        self.inner.as_mut().poll_shutdown(cx)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let this = &self.connection;
        self.pool.open().retain(|other| !Arc::ptr_eq(other, this));
    }
}
