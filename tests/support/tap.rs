//! A forwarding address that stays the same when the server behind it changes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Forwards every connection until it is dropped. Without a server, connections are closed at once.
pub(crate) struct Tap {
    address: SocketAddr,
    to: Arc<Mutex<Option<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Tap {
    pub(crate) async fn new(to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let to = Arc::new(Mutex::new(to));
        let task = tokio::spawn(forward(listener, to.clone()));
        Self { address, to, task }
    }

    /// Returns its own address, as `127.0.0.1:40123`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads new connections elsewhere, or nowhere; open ones stay.
    pub(crate) fn lead(&self, to: Option<SocketAddr>) {
        *self.to.lock().unwrap() = to;
    }

    /// Leads new connections to a URL such as `http://127.0.0.1:4317`.
    pub(crate) fn lead_to_url(&self, url: &str) {
        let address = url.strip_prefix("http://").unwrap();
        self.lead(Some(address.parse().unwrap()));
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, to: Arc<Mutex<Option<SocketAddr>>>) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let Some(to) = *to.lock().unwrap() else {
            continue;
        };
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(to).await {
                // Small packets would wait for an acknowledgement otherwise.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}
