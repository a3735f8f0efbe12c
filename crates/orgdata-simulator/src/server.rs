//! The HTTP server: routes, connections, start and stop.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse as _;
use http::header::DATE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;
use tower_http::compression::{CompressionLayer, CompressionLevel};

use crate::config::Config;
use crate::sim::Simulator;
use crate::strike::{Reset, http_date};
use crate::{answer, control};

/// The wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A simulator that listens on a port of its own. It stops when this is dropped.
#[derive(Debug)]
pub struct Running {
    sim: Arc<Simulator>,
    address: SocketAddr,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// Serves until `shutdown` completes. Pending requests are cut off then.
pub async fn serve(
    sim: Arc<Simulator>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let compression = CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .gzip(sim.config().compression);
    let router = control::routes()
        .fallback(answer::answer)
        .with_state(Arc::clone(&sim))
        .layer(compression);
    // Dropping the set ends its connections, so nothing outlives this function.
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&sim), router.clone()));
                }
                // Too many connections are open, or this one failed. Others can still be served.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

/// Serves one connection until it ends.
async fn connection(stream: TcpStream, sim: Arc<Simulator>, router: Router) {
    // Without it, small responses wait for an acknowledgement.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, sim) = (router.clone(), Arc::clone(&sim));
        async move {
            let Ok(response) = router.oneshot(request.map(Body::new)).await;
            let response = sim.finished(response);
            response.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))
        }
    });
    let mut serving = http1::Builder::new()
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service);
    if (&mut serving).await.is_err() {
        // Closing a socket without lingering resets the connection.
        let _ = serving.into_parts().io.inner().set_zero_linger();
    }
}

// === impl Simulator ===

impl Simulator {
    /// Answers one request in this process; `None` stands for a connection that is reset.
    pub async fn answer(self: &Arc<Self>, request: Request<Body>) -> Option<Response<Body>> {
        let response = answer::answer(State(Arc::clone(self)), request).await;
        self.finished(response)
    }

    /// Adds the date to a response; `None` if the connection is reset instead.
    fn finished(&self, response: Response<Body>) -> Option<Response<Body>> {
        if response.extensions().get::<Reset>().is_some() {
            return None;
        }
        // The date is the simulator's, not the machine's, and that of a node whose clock may be wrong.
        let readings = self.readings();
        let now = self.clock.now().saturating_add(readings.date_ahead * 1000);
        let date = (!readings.no_date).then(|| [(DATE, http_date(now))]);
        Some((date, response).into_response())
    }

    /// Creates a simulator and serves it on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn spawn(config: Config) -> io::Result<Running> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self::new(config).run_on(address).await
    }

    /// Serves this simulator on an address. It can be served again after the server stopped, and by several servers at a
    /// time.
    ///
    /// # Errors
    ///
    /// If the address is not available.
    pub async fn run_on(self: Arc<Self>, address: SocketAddr) -> io::Result<Running> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(serve(Arc::clone(&self), listener, stopped));
        Ok(Running {
            sim: self,
            address,
            stop: stop.drop_guard(),
            task,
        })
    }
}

// === impl Running ===

impl Running {
    /// Returns the base address for a client, like `http://127.0.0.1:40123`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the simulator that is served.
    pub fn simulator(&self) -> &Arc<Simulator> {
        &self.sim
    }

    /// Stops listening and waits until the port is free.
    pub async fn stop(self) {
        drop(self.stop);
        // A task that panicked has stopped as well.
        let _ = self.task.await;
    }
}

impl Deref for Running {
    type Target = Simulator;

    fn deref(&self) -> &Simulator {
        &self.sim
    }
}
