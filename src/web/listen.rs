//! Listening sockets, and why one cannot be had.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use super::{Limits, ListenAddress, Settings, TelemetryPath};

/// Connections that the kernel holds until they are accepted; scrapers and probes are few.
const BACKLOG: i32 = 1024;

/// Listening sockets: from here on clients can connect, and are answered once [`serve`](super::serve) runs.
#[derive(Debug)]
pub struct Bound {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) telemetry_path: TelemetryPath,
    pub(super) limits: Limits,
}

/// Why an address cannot be listened on, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket is there.
    #[error(
        "cannot listen on {address}: the port is in use; stop what listens there (`ss -ltnp 'sport = :{port}'` names it), or choose another with --web.listen-address"
    )]
    InUse {
        /// The address as it was given.
        address: String,
        /// Its port.
        port: u16,
    },
    /// The process may not.
    #[error(
        "cannot listen on {address}: not permitted; ports below 1024 are for privileged processes, choose a higher one with --web.listen-address"
    )]
    Denied {
        /// The address as it was given.
        address: String,
    },
    /// No interface of this machine has the address.
    #[error(
        "cannot listen on {address}: no interface of this machine has that address; choose another with --web.listen-address, :{port} for all"
    )]
    NotLocal {
        /// The address as it was given.
        address: String,
        /// Its port.
        port: u16,
    },
    /// The name has no address.
    #[error("cannot listen on {address}: the name is not known ({source}); give an IP address with --web.listen-address")]
    Name {
        /// The address as it was given.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// No address was given.
    #[error("nothing to listen on; give at least one --web.listen-address, like :10917")]
    Nothing,
    /// Anything else.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// The address as it was given.
        address: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Marks an error of the resolver, which has the same kinds as one of the socket.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NameError(io::Error);

/// Opens every address of the settings.
///
/// # Errors
///
/// On the first address that cannot be listened on.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    let mut listeners = Vec::new();
    for address in &settings.listen_addresses {
        // `[::]` takes IPv4 too, unless IPv4 is asked for on its own.
        let only_v6 = settings.listen_addresses.iter().any(|other| other.is_ipv4_wildcard() && other.port() == address.port());
        bind_one(address, only_v6, &mut listeners).await.map_err(|source| BindError::new(address, source))?;
    }
    if listeners.is_empty() {
        return Err(BindError::Nothing);
    }
    Ok(Bound { listeners, telemetry_path: settings.telemetry_path.clone(), limits: settings.limits })
}

async fn bind_one(address: &ListenAddress, only_v6: bool, listeners: &mut Vec<TcpListener>) -> io::Result<()> {
    match address {
        ListenAddress::Any(port) => {
            let everywhere = listen((Ipv6Addr::UNSPECIFIED, *port).into(), only_v6);
            // A kernel without IPv6 has no `[::]`.
            let listener = match everywhere {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => listen((Ipv4Addr::UNSPECIFIED, *port).into(), false)?,
                everywhere => everywhere?,
            };
            listeners.push(listener);
        }
        ListenAddress::Socket(address) => listeners.push(listen(*address, only_v6)?),
        ListenAddress::Name(host, port) => {
            let mut failure = None;
            let before = listeners.len();
            for address in tokio::net::lookup_host((host.as_str(), *port)).await.map_err(NameError::wrap)? {
                match listen(address, true) {
                    Ok(listener) => listeners.push(listener),
                    // `localhost` is `::1` too in most hosts files, also where there is no IPv6.
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => failure = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if listeners.len() == before {
                return Err(failure.unwrap_or_else(|| NameError::wrap(io::ErrorKind::NotFound.into())));
            }
        }
    }
    Ok(())
}

fn listen(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Said explicitly: the default is a setting of the machine.
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for the connections of the process before it.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

// === impl Bound ===

impl Bound {
    /// The addresses that are listened on, with the port that was free where 0 was asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Where a person on this machine finds the server, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        Some(format!("http://{address}"))
    }

    /// The path of the metrics.
    pub fn telemetry_path(&self) -> &TelemetryPath {
        &self.telemetry_path
    }
}

// === impl NameError ===

impl NameError {
    fn wrap(error: io::Error) -> io::Error {
        io::Error::other(Self(error))
    }
}

// === impl BindError ===

impl BindError {
    fn new(address: &ListenAddress, source: io::Error) -> Self {
        let (address, port) = (address.to_string(), address.port());
        if source.get_ref().is_some_and(|inner| inner.is::<NameError>()) {
            return Self::Name { address, source };
        }
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address, port },
            io::ErrorKind::PermissionDenied => Self::Denied { address },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { address, port },
            _ => Self::Io { address, source },
        }
    }
}
