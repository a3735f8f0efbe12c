//! The HTTP server: routes, start and stop.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::answer;
use super::config::Config;
use super::sim::Simulator;

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

/// Serves until `shutdown` is done, and the requests under way with it.
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve(sim: Arc<Simulator>, listener: TcpListener, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let stopping = CancellationToken::new();
    let server = Server { sim: Arc::clone(&sim), stopping: stopping.clone() };
    let router = Router::new().fallback(answer::answer).with_state(server);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            shutdown.await;
            stopping.cancel();
        })
        .await
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
        self.run_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
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
        let task = tokio::spawn(serve(Arc::clone(&self), listener, stop.clone().cancelled_owned()));
        Ok(Running { sim: self, address, stop, task: Some(task) })
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
