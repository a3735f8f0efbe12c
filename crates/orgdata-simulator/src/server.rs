//! The HTTP server: routes, connections, start and stop.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::map_response_with_state;
use axum::response::IntoResponse as _;
use axum_server::accept::NoDelayAcceptor;
use axum_server::{Handle, Server};
use http::header::DATE;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::Config;
use crate::response::{Reset, http_date};
use crate::sim::Simulator;
use crate::{answer, control};

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
    let router = control::routes()
        .fallback(answer::answer)
        .with_state(Arc::clone(&sim))
        .layer(map_response_with_state(sim, dated));
    let handle: Handle<SocketAddr> = Handle::new();
    let mut server = Server::from_listener(listener)
        .acceptor(NoDelayAcceptor::new())
        .handle(handle.clone())
        .http1_only();
    server.http_builder().http1().auto_date_header(false);
    tokio::select! {
        () = shutdown => {}
        // It only ends when it is stopped: a connection that cannot be accepted is not its end.
        _ = server.serve(router.into_make_service()) => {}
    }
    handle.shutdown();
}

/// Adds the date to a response: the simulator's, not the machine's, and that of a node whose clock may be wrong.
async fn dated(State(sim): State<Arc<Simulator>>, response: Response<Body>) -> Response<Body> {
    let ahead = sim.readings().date_ahead * 1000;
    let date = http_date(sim.clock.now().saturating_add(ahead));
    ([(DATE, date)], response).into_response()
}

// === impl Simulator ===

impl Simulator {
    /// Answers one request in this process; `None` stands for a connection that ends instead.
    pub async fn answer(self: &Arc<Self>, request: Request<Body>) -> Option<Response<Body>> {
        let response = answer::answer(State(Arc::clone(self)), request).await;
        let is_reset = response.extensions().get::<Reset>().is_some();
        match is_reset {
            true => None,
            false => Some(dated(State(Arc::clone(self)), response).await),
        }
    }

    /// Creates a simulator and serves it on a free loopback port.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn spawn(config: Config) -> io::Result<Running> {
        let sim = Self::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        let task = tokio::spawn(serve(Arc::clone(&sim), listener, stopped));
        Ok(Running {
            sim,
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
