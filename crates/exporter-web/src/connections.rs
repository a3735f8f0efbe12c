//! The open connections: a bounded number of them, a deadline for each, and a bounded size of all responses that are under
//! way.
//!
//! Above a bound, the connection that made no progress for longest is closed. "Progress" is a new connection, a request, its
//! response as soon as it is computed, and parts of it that the client took. What a client sends of a request is not: a
//! slow request must not hold a connection open.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::response::Response;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock;

/// The maximum time to compute a response.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of file descriptors that are kept for everything but connections of clients.
const RESERVED_FILES: u64 = 28;

/// The minimum number of connections, however few file descriptors there are.
const MIN_CONNECTIONS: usize = 4;

/// The maximum size of all responses that are under way, in bytes. The two newest are always kept.
const MAX_UNDER_WAY: u64 = 16 * 1024 * 1024;

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections, lowered to what `RLIMIT_NOFILE` allows.
    pub connections: usize,
    /// The maximum time from the start of a connection, with its TLS handshake, to the end of the first request's headers.
    pub header_timeout: Duration,
    /// The maximum time between a response and the next request. Longer than usual scrape intervals, so that a scraper
    /// keeps its connection.
    pub idle_timeout: Duration,
    /// The maximum time for a client to take a computed response.
    pub send_timeout: Duration,
    /// The maximum time for responses to finish when the exporter stops.
    pub shutdown_grace: Duration,
}

/// The open connections of one server.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) limits: Limits,
    open: Mutex<Vec<Weak<Connection>>>,
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The address of the client.
    pub(crate) address: IpAddr,
    /// Cancelled when the connection must be closed.
    pub(crate) closed: CancellationToken,
    pool: Arc<Pool>,
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
    /// The size of the others, in bytes.
    size: u64,
}

/// A response from its request to the last byte of its body; dropped at its end.
#[derive(Debug)]
pub(crate) struct UnderWay {
    connection: Arc<Connection>,
    /// The size of its body, once that is computed.
    size: Option<u64>,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5 * 60),
            send_timeout: Duration::from_secs(60),
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

// === impl Pool ===

impl Pool {
    /// An empty pool, with as many connections as the limits and `RLIMIT_NOFILE` allow.
    pub(crate) fn new(mut limits: Limits) -> Arc<Self> {
        if let Some(files) = getrlimit(Resource::Nofile).current {
            let files = usize::try_from(files.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX);
            limits.connections = limits.connections.min(files).max(MIN_CONNECTIONS);
        }
        let open = Mutex::default();
        Arc::new(Self { limits, open })
    }

    /// Adds a connection, and closes another one if there are too many.
    pub(crate) fn add(self: &Arc<Self>, address: IpAddr) -> Arc<Connection> {
        if self.open().len() >= self.limits.connections {
            self.close_stalest();
        }
        let now = Instant::now();
        let connection = Arc::new(Connection {
            address,
            closed: CancellationToken::new(),
            pool: self.clone(),
            state: Mutex::new(State {
                progress: now,
                deadline: now + self.limits.header_timeout,
                responses: 0,
                computing: 0,
                size: 0,
            }),
        });
        lock(&self.open).push(Arc::downgrade(&connection));
        connection
    }

    /// Closes the connection that made no progress for longest, and one that waits for the exporter only if all do.
    pub(crate) fn close_stalest(&self) {
        let open = self.open();
        let stalest = open.iter().min_by_key(|open| {
            let state = lock(&open.state);
            (state.computing > 0, state.progress)
        });
        if let Some(stalest) = stalest {
            stalest.closed.cancel();
        }
    }

    /// Closes connections until the responses that are under way are small enough together.
    fn close_largest(&self) {
        let mut open = self.open();
        open.sort_by_cached_key(|open| Reverse(lock(&open.state).progress));
        let (mut sum, mut count) = (0, 0);
        for connection in open {
            let size = lock(&connection.state).size;
            sum += size;
            count += u32::from(size > 0);
            if size > 0 && count > 2 && sum > MAX_UNDER_WAY {
                connection.closed.cancel();
            }
        }
    }

    /// Closes connections at their deadlines, for ever.
    pub(crate) async fn close_overdue(&self) {
        let limits = &self.limits;
        let shortest = limits.header_timeout.min(limits.send_timeout);
        let every = (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut ticks = tokio::time::interval(every);
        loop {
            let now = ticks.tick().await;
            self.close_if(|state| state.deadline <= now);
        }
    }

    /// Closes the connections with at most so many responses under way.
    pub(crate) fn close_up_to(&self, responses: usize) {
        self.close_if(|state| state.responses <= responses);
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
    pub(crate) fn begin_response(self: &Arc<Self>) -> UnderWay {
        let (mut state, now) = (lock(&self.state), Instant::now());
        if state.responses == 0 {
            state.deadline = now + RESPONSE_TIMEOUT + self.pool.limits.send_timeout;
        }
        state.progress = now;
        state.responses += 1;
        state.computing += 1;
        drop(state);
        UnderWay {
            connection: self.clone(),
            size: None,
        }
    }
}

// === impl UnderWay ===

impl UnderWay {
    /// Ties the response to its body, which hyper drops after the last byte.
    pub(crate) fn attach(mut self, response: Response) -> Response {
        let (mut parts, body) = response.into_parts();
        // The size of the new body is not known to hyper.
        if let Some(size) = body.size_hint().exact().filter(|size| *size > 0) {
            parts.headers.entry(CONTENT_LENGTH).or_insert(size.into());
        }
        let size = parts.headers.get(CONTENT_LENGTH);
        let size = size.and_then(|size| size.to_str().ok()?.parse().ok());
        let size = size.unwrap_or(0);
        let (mut state, now) = (lock(&self.connection.state), Instant::now());
        // A client can take a few bytes now and then to keep the connection.
        let latest = now + self.connection.pool.limits.send_timeout;
        state.deadline = state.deadline.min(latest);
        state.progress = now;
        state.computing -= 1;
        state.size += size;
        drop(state);
        self.size = Some(size);
        self.connection.pool.close_largest();
        // The next part is asked for when the client has taken the ones before.
        let body = Body::new(body.map_frame(move |frame| {
            lock(&self.connection.state).progress = Instant::now();
            frame
        }));
        Response::from_parts(parts, body)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let (mut state, now) = (lock(&self.connection.state), Instant::now());
        state.responses -= 1;
        match self.size {
            Some(size) => state.size -= size,
            None => state.computing -= 1,
        }
        if state.responses == 0 {
            state.deadline = now + self.connection.pool.limits.idle_timeout;
        }
    }
}
