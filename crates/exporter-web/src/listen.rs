//! Listening sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

use crate::args::WebArgs;
use crate::config::WebConfig;

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections. Others wait in the queue of the system.
    pub connections: usize,
    /// The maximum time of a TLS handshake, and of a connection without a complete request, also between two requests.
    pub header_timeout: Duration,
    /// The maximum time in which a client takes nothing of a response.
    pub write_timeout: Duration,
    /// The maximum time for responses to finish when the exporter stops.
    pub shutdown_grace: Duration,
}

/// Listening sockets: clients can connect from here on, and are answered once [`serve`](crate::serve) runs.
#[derive(Debug)]
pub struct Bound {
    pub(crate) sockets: Vec<TcpListener>,
    pub(crate) config: WebConfig,
    /// What clients may use.
    pub limits: Limits,
}

/// Opens every address of the flags.
///
/// # Errors
/// One line that says why the first address that cannot be listened on cannot be, and what to do about it.
pub async fn bind(args: &WebArgs, config: WebConfig) -> io::Result<Bound> {
    let mut sockets = Vec::new();
    for address in &args.listen_addresses {
        let opened = open(address).await;
        sockets.push(opened.map_err(|error| failed(address, error))?);
    }
    Ok(Bound {
        sockets,
        config,
        limits: Limits::default(),
    })
}

/// Opens the first address that can be listened on. As in Go, that is one of IPv4 if a name has both.
async fn open(address: &str) -> io::Result<TcpListener> {
    if address.starts_with(':') {
        // Without IPv6, every address of IPv4.
        return match both(address) {
            Err(_) => TcpListener::bind(format!("0.0.0.0{address}")).await,
            bound => bound,
        };
    }
    let mut found: Vec<_> = lookup_host(address).await?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(&found[..]).await
}

/// Opens a port on every address of IPv6 and IPv4, also if the system separates them (`net.ipv6.bindv6only`).
fn both(port: &str) -> io::Result<TcpListener> {
    let address = format!("[::]{port}").parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v6()?;
    SockRef::from(&socket).set_only_v6(false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Returns an error of the same kind that says what to do about it.
fn failed(address: &str, error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "stop the program that listens there, or choose another address"
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => "give an IP address of this machine",
    };
    let text = format!("cannot listen on {address}: {error}; {advice} with --web.listen-address");
    io::Error::new(error.kind(), text)
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(3),
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Returns the addresses, with the actual port if 0 was given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let sockets = self.sockets.iter();
        sockets
            .filter_map(|socket| socket.local_addr().ok())
            .collect()
    }

    /// Returns the URL of the server on this machine, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let scheme = match self.config.current().tls {
            Some(_) => "https",
            None => "http",
        };
        Some(format!("{scheme}://{address}"))
    }
}
