//! A forwarding address that stays the same when the server behind it changes: it can be cut, led elsewhere and listened to.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The number of bytes of answers that are kept: some heads, not the traffic of a test.
const KEPT: usize = 64 * 1024;

/// Forwards every connection until it is dropped.
pub(crate) struct Tap {
    address: SocketAddr,
    wire: Arc<Wire>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Wire {
    /// The server; without one, connections are closed at once.
    to: Mutex<Option<SocketAddr>>,
    asked: AtomicU64,
    answered: Mutex<Vec<u8>>,
}

// === impl Tap ===

impl Tap {
    /// Listens on a free port of loopback.
    pub(crate) async fn new(to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let wire = Arc::new(Wire::default());
        *wire.to.lock().unwrap() = to;
        let task = tokio::spawn(forward(listener, wire.clone()));
        Self {
            address,
            wire,
            task,
        }
    }

    /// Forwards to a URL such as `http://127.0.0.1:4317`.
    pub(crate) async fn to_url(url: &str) -> Self {
        let tap = Self::new(None).await;
        tap.lead_to_url(url);
        tap
    }

    /// Returns its own address, as `127.0.0.1:40123`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Returns its own address as a URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads new connections elsewhere, or nowhere; open ones stay.
    pub(crate) fn lead(&self, to: Option<SocketAddr>) {
        *self.wire.to.lock().unwrap() = to;
    }

    /// Leads new connections to a URL such as `http://127.0.0.1:4317`.
    pub(crate) fn lead_to_url(&self, url: &str) {
        let address = url.strip_prefix("http://").unwrap();
        self.lead(Some(address.parse().unwrap()));
    }

    /// Returns the number of bytes that the clients sent.
    pub(crate) fn asked(&self) -> u64 {
        self.wire.asked.load(Ordering::Relaxed)
    }

    /// Returns the first bytes of the answers as lower-case text.
    pub(crate) fn answered(&self) -> String {
        String::from_utf8_lossy(&self.wire.answered.lock().unwrap()).to_lowercase()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, wire: Arc<Wire>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let Some(to) = *wire.to.lock().unwrap() else {
            continue;
        };
        let wire = wire.clone();
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(to).await else {
                return;
            };
            // Small packets would wait for an acknowledgement otherwise.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let asking = pump(from_client, to_server, |bytes| {
                wire.asked.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            });
            let answering = pump(from_server, to_client, |bytes| {
                let mut kept = wire.answered.lock().unwrap();
                let room = KEPT.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..room]);
            });
            tokio::join!(asking, answering);
        });
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, saw: impl Fn(&[u8])) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
        saw(&buffer[..read]);
    }
    // The other side may be gone already.
    let _ = to.shutdown().await;
}
