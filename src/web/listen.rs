//! Listening sockets, and why one cannot be had.

mod error;
#[cfg(unix)]
mod systemd;
#[cfg(unix)]
mod unix;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

pub use error::BindError;
use error::NameError;

use super::{Limits, ListenAddress, Settings, TelemetryPath, WebConfig};

/// Connections that the kernel holds until they are accepted; scrapers and probes are few.
const BACKLOG: i32 = 1024;

/// Listening sockets: from here on clients can connect, and are answered once [`serve`](super::serve) runs. A clone has the
/// same sockets, so that one can serve after the other, and no client finds the port closed in between.
#[derive(Clone, Debug)]
pub struct Bound {
    pub(super) listeners: Vec<Listener>,
    pub(super) telemetry_path: TelemetryPath,
    pub(super) limits: Limits,
    pub(super) config: Option<WebConfig>,
}

/// One listening socket.
#[derive(Clone, Debug)]
pub(super) enum Listener {
    Tcp(Arc<TcpListener>),
    #[cfg(unix)]
    Unix(Arc<unix::Socket>),
}

/// Opens every address of the settings, or takes the sockets that systemd hands over.
///
/// # Errors
///
/// On the first address that cannot be listened on.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    let listeners = if settings.systemd_socket {
        inherited()?
    } else {
        open(&settings.listen_addresses).await?
    };
    if listeners.is_empty() {
        return Err(BindError::Nothing);
    }
    let (telemetry_path, limits, config) = (
        settings.telemetry_path.clone(),
        settings.limits,
        settings.config.clone(),
    );
    Ok(Bound {
        listeners,
        telemetry_path,
        limits,
        config,
    })
}

/// Whether each of the addresses could be listened on. Nobody can connect meanwhile, and no file is made.
pub async fn try_bind(addresses: &[ListenAddress]) -> Vec<Result<(), BindError>> {
    let mut free = Vec::new();
    for address in addresses {
        let tried = open_one(
            address,
            only_v6(address, addresses),
            Purpose::Try,
            &mut Vec::new(),
        )
        .await;
        free.push(tried.map_err(|source| BindError::new(address, source)));
    }
    free
}

/// What an address is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Listen,
    Try,
}

async fn open(addresses: &[ListenAddress]) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let opened = open_one(
            address,
            only_v6(address, addresses),
            Purpose::Listen,
            &mut listeners,
        )
        .await;
        opened.map_err(|source| BindError::new(address, source))?;
    }
    Ok(listeners)
}

/// `[::]` takes IPv4 too, unless IPv4 is asked for on its own.
fn only_v6(address: &ListenAddress, addresses: &[ListenAddress]) -> bool {
    addresses
        .iter()
        .any(|other| other.is_ipv4_wildcard() && other.port() == address.port())
}

async fn open_one(
    address: &ListenAddress,
    only_v6: bool,
    purpose: Purpose,
    listeners: &mut Vec<Listener>,
) -> io::Result<()> {
    match address {
        ListenAddress::Any(port) => {
            let everywhere = listen((Ipv6Addr::UNSPECIFIED, *port).into(), only_v6, purpose);
            // A kernel without IPv6 has no `[::]`.
            let listener = match everywhere {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listen((Ipv4Addr::UNSPECIFIED, *port).into(), false, purpose)?
                }
                everywhere => everywhere?,
            };
            listeners.push(listener);
        }
        ListenAddress::Socket(address) => listeners.push(listen(*address, only_v6, purpose)?),
        ListenAddress::Name(host, port) => {
            let mut failure = None;
            let before = listeners.len();
            for address in tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(NameError::wrap)?
            {
                match listen(address, true, purpose) {
                    Ok(listener) => listeners.push(listener),
                    // `localhost` is `::1` too in most hosts files, also where there is no IPv6.
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                        failure = Some(error)
                    }
                    Err(error) => return Err(error),
                }
            }
            if listeners.len() == before {
                return Err(
                    failure.unwrap_or_else(|| NameError::wrap(io::ErrorKind::NotFound.into()))
                );
            }
        }
        #[cfg(unix)]
        ListenAddress::Unix(path) if purpose == Purpose::Try => unix::try_open(path)?,
        #[cfg(unix)]
        ListenAddress::Unix(path) => {
            listeners.push(Listener::Unix(Arc::new(unix::Socket::open(path)?)))
        }
        #[cfg(not(unix))]
        ListenAddress::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
    }
    Ok(())
}

#[cfg(unix)]
fn inherited() -> Result<Vec<Listener>, BindError> {
    systemd::sockets().map_err(BindError::Systemd)
}

#[cfg(not(unix))]
fn inherited() -> Result<Vec<Listener>, BindError> {
    Err(BindError::Systemd(
        "there is no systemd on this system".to_owned(),
    ))
}

fn listen(address: SocketAddr, only_v6: bool, purpose: Purpose) -> io::Result<Listener> {
    use socket2::{Domain, Protocol, Socket, Type};

    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // Said explicitly: the default is a setting of the machine.
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for the connections of the process before it.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if purpose == Purpose::Listen {
        socket.listen(BACKLOG)?;
    }
    Ok(Listener::Tcp(Arc::new(socket.into())))
}

// === impl Bound ===

impl Bound {
    /// The network addresses that are listened on, with the port that was free where 0 was asked for.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |listener: &Listener| match listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Listener::Unix(_) => None,
        };
        self.listeners.iter().filter_map(address).collect()
    }

    /// Everything that is listened on, as it is given to `--web.listen-address`.
    pub fn names(&self) -> Vec<String> {
        let name = |listener: &Listener| match listener {
            Listener::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "unknown".to_owned(), |address| address.to_string()),
            #[cfg(unix)]
            Listener::Unix(socket) => socket.to_string(),
        };
        self.listeners.iter().map(name).collect()
    }

    /// Where a person on this machine finds the server, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let scheme = if self.config.as_ref().is_some_and(WebConfig::is_tls) {
            "https"
        } else {
            "http"
        };
        Some(format!("{scheme}://{address}"))
    }

    /// The path of the metrics.
    pub fn telemetry_path(&self) -> &TelemetryPath {
        &self.telemetry_path
    }
}
