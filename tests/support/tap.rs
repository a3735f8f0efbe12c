//! A wire between two programs that can be cut, led to another one, and listened to: an address that stays when what
//! is behind it does not.

#![allow(dead_code, reason = "each test crate uses what it needs")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Bytes of answers that are kept: some heads, not the traffic of a test.
const KEPT: usize = 64 * 1024;

/// Forwards every connection; dropped, it ends them.
pub(crate) struct Tap {
    address: SocketAddr,
    wire: Arc<Wire>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Wire {
    /// Where it leads at present; nowhere: connections are closed at once.
    to: Mutex<Option<SocketAddr>>,
    asked: AtomicU64,
    answered: Mutex<Vec<u8>>,
}

// === impl Tap ===

impl Tap {
    /// A wire on a free port of loopback.
    pub(crate) async fn new(to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let wire = Arc::new(Wire {
            to: Mutex::new(to),
            ..Wire::default()
        });
        let task = tokio::spawn(forward(listener, wire.clone()));
        Self {
            address,
            wire,
            task,
        }
    }

    /// Its own address, as `127.0.0.1:40123`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Leads new connections elsewhere, or nowhere; those that are open stay until one of their ends closes them.
    pub(crate) fn lead(&self, to: Option<SocketAddr>) {
        *self.wire.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    /// Bytes that went from those who connected.
    pub(crate) fn asked(&self) -> u64 {
        self.wire.asked.load(Ordering::Relaxed)
    }

    /// The first bytes that came back, as text.
    pub(crate) fn answered(&self) -> String {
        String::from_utf8_lossy(
            &self
                .wire
                .answered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
        .to_lowercase()
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
        let to = *wire.to.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(to) = to else { continue };
        let wire = wire.clone();
        connections.spawn(async move {
            let Ok(server) = TcpStream::connect(to).await else {
                return;
            };
            // Without it small packets wait for an acknowledgement. It is only slower when it fails.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let asking = pump(from_client, to_server, |bytes| {
                wire.asked.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            });
            let answering = pump(from_server, to_client, |bytes| {
                let mut kept = wire.answered.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..room]);
            });
            tokio::join!(asking, answering);
        });
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    saw: impl Fn(&[u8]),
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = from.read(&mut buffer).await {
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
        saw(&buffer[..read]);
    }
    // The other side may have gone already.
    let _ = to.shutdown().await;
}
