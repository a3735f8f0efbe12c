//! Listening sockets: TCP, Unix sockets, and sockets that systemd passes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use listenfd::ListenFd;

use super::{ListenAddress, Settings, TelemetryPath, WebConfig};

/// The number of connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// The mode of a Unix socket: a proxy in front of the exporter is given its group.
const UNIX_MODE: u32 = 0o660;

/// Listening sockets: clients can connect from here on, and are answered once
/// [`serve`](super::serve) runs. A clone has the same sockets.
#[derive(Clone, Debug)]
pub struct Bound {
    pub(super) sockets: Vec<Socket>,
    pub(super) settings: Settings,
}

/// One listening socket.
#[derive(Clone, Debug)]
pub(super) enum Socket {
    Tcp(Arc<TcpListener>),
    Unix(Arc<UnixSocket>),
}

/// A listening Unix socket, whose file is removed with the last handle.
#[derive(Debug)]
pub(super) struct UnixSocket {
    pub(super) listener: UnixListener,
    /// The file and its device and inode, if this process created it.
    file: Option<(PathBuf, (u64, u64))>,
}

/// Why an address cannot be listened on, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket uses the port.
    #[error(
        "cannot listen on {0}: the port is in use; stop what listens there \
         (`ss -ltnp 'sport = :{port}'` names it), or choose another with --web.listen-address",
        port = .0.port()
    )]
    InUse(ListenAddress),
    /// Another process listens on the Unix socket, or the file is not a socket.
    #[error(
        "cannot listen on {0}: {1}; stop what listens there, or choose another path with \
         --web.listen-address"
    )]
    Taken(ListenAddress, &'static str),
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}; {2} with --web.listen-address")]
    Unusable(ListenAddress, io::Error, &'static str),
    /// systemd passed no socket that can be used.
    #[error(
        "--web.systemd-socket: {0}; start the service from a systemd socket unit, or use \
         --web.listen-address instead"
    )]
    Systemd(String),
    /// No address was given.
    #[error("nothing to listen on; give at least one --web.listen-address, like :10917")]
    Nothing,
}

/// Opens every address of the settings, or takes the sockets that systemd passes.
///
/// # Errors
/// The first address that cannot be listened on.
pub async fn bind(settings: &Settings) -> Result<Bound, BindError> {
    let mut sockets = Vec::new();
    if settings.systemd_socket {
        sockets = systemd_sockets().map_err(BindError::Systemd)?;
    }
    let addresses = match settings.systemd_socket {
        true => &[][..],
        false => &settings.listen_addresses,
    };
    for address in addresses {
        sockets.extend(open(address, addresses, true).await?);
    }
    if sockets.is_empty() {
        return Err(BindError::Nothing);
    }
    let settings = settings.clone();
    Ok(Bound { sockets, settings })
}

/// Checks whether each address could be listened on, without accepting a connection or creating a
/// file.
pub async fn try_bind(addresses: &[ListenAddress]) -> Vec<Result<(), BindError>> {
    let mut results = Vec::new();
    for address in addresses {
        results.push(open(address, addresses, false).await.map(drop));
    }
    results
}

async fn open(
    address: &ListenAddress,
    all: &[ListenAddress],
    listen: bool,
) -> Result<Vec<Socket>, BindError> {
    let error = |error| bind_error(address, error);
    // `[::]` includes IPv4, unless the IPv4 wildcard is given for the same port.
    let ipv4 = ListenAddress::Socket((Ipv4Addr::UNSPECIFIED, address.port()).into());
    let only_v6 = all.contains(&ipv4);
    let tcp = |to: SocketAddr, only_v6| tcp_socket(to, only_v6, listen);
    Ok(match address {
        ListenAddress::Unix(path) => unix_socket(address, path, listen)?.into_iter().collect(),
        ListenAddress::Socket(to) => vec![tcp(*to, only_v6).map_err(error)?],
        ListenAddress::Any(port) => {
            let socket = match tcp((Ipv6Addr::UNSPECIFIED, *port).into(), only_v6) {
                // A kernel without IPv6 has no `[::]`.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    tcp((Ipv4Addr::UNSPECIFIED, *port).into(), false)
                }
                socket => socket,
            };
            vec![socket.map_err(error)?]
        }
        ListenAddress::Name(name, port) => {
            let found = tokio::net::lookup_host((name.as_str(), *port)).await;
            let found = found.map_err(|error| {
                let error = io::Error::other(format!("the name is not known: {error}"));
                BindError::Unusable(address.clone(), error, "give an IP address")
            })?;
            let mut sockets = Vec::new();
            let mut missing = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for to in found {
                match tcp(to, true) {
                    Ok(socket) => sockets.push(socket),
                    // `localhost` is `::1` in most hosts files, also without IPv6.
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                        missing = error;
                    }
                    Err(failed) => return Err(error(failed)),
                }
            }
            if sockets.is_empty() {
                return Err(error(missing));
            }
            sockets
        }
    })
}

fn bind_error(address: &ListenAddress, error: io::Error) -> BindError {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => return BindError::InUse(address.clone()),
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has that address; choose another"
        }
        _ => "choose another",
    };
    BindError::Unusable(address.clone(), error, advice)
}

fn tcp_socket(address: SocketAddr, only_v6: bool, listen: bool) -> io::Result<Socket> {
    use socket2::{Domain, Protocol, Type};

    let domain = Domain::for_address(address);
    let socket = socket2::Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The default is a setting of the machine.
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for connections of the previous process.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    if listen {
        socket.listen(BACKLOG)?;
    }
    Ok(Socket::Tcp(Arc::new(socket.into())))
}

/// Listens on a path. The file of a process that is gone is replaced; a socket that is in use, or
/// another file, is not.
fn unix_socket(
    address: &ListenAddress,
    path: &Path,
    listen: bool,
) -> Result<Option<Socket>, BindError> {
    let unusable = |error| {
        let advice = "its directory must exist and be writable; choose another path";
        BindError::Unusable(address.clone(), error, advice)
    };
    let taken = |reason| Err(BindError::Taken(address.clone(), reason));
    let abandoned = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(unusable(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return taken("there is a file that is not a socket");
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return taken("another process listens there"),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => true,
            Err(error) => return Err(unusable(error)),
        },
    };
    if !listen {
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(parent.unwrap_or(Path::new(".")), access)
            .map_err(|error| unusable(error.into()))?;
        return Ok(None);
    }
    let bind = || -> io::Result<Socket> {
        use socket2::{Domain, SockAddr, Type};

        if abandoned {
            fs::remove_file(path)?;
        }
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Before `listen`, so that no client connects before the mode is set.
        fs::set_permissions(path, fs::Permissions::from_mode(UNIX_MODE))?;
        let file = Some((path.to_owned(), inode(path)?));
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = socket.into();
        Ok(Socket::Unix(Arc::new(UnixSocket { listener, file })))
    };
    bind().map(Some).map_err(unusable)
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Takes every socket that systemd passes to this process (`sd_listen_fds(3)`).
fn systemd_sockets() -> Result<Vec<Socket>, String> {
    let pid = std::env::var("LISTEN_PID").unwrap_or_default();
    if pid != std::process::id().to_string() {
        return Err("no sockets were passed to this process (LISTEN_PID is another)".to_owned());
    }
    let mut passed = ListenFd::from_env();
    if passed.len() == 0 {
        return Err("no sockets were passed to this process (LISTEN_FDS is 0)".to_owned());
    }
    let mut take = |index| -> io::Result<Option<Socket>> {
        if let Ok(listener) = passed.take_tcp_listener(index) {
            let Some(listener) = listener else {
                return Ok(None);
            };
            listener.set_nonblocking(true)?;
            return Ok(Some(Socket::Tcp(Arc::new(listener))));
        }
        let Some(listener) = passed.take_unix_listener(index)? else {
            return Ok(None);
        };
        listener.set_nonblocking(true)?;
        let file = None;
        Ok(Some(Socket::Unix(Arc::new(UnixSocket { listener, file }))))
    };
    let mut sockets = Vec::new();
    while let Some(socket) =
        take(sockets.len()).map_err(|error| format!("cannot use a passed socket: {error}"))?
    {
        sockets.push(socket);
    }
    Ok(sockets)
}

// === impl UnixSocket ===

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Some((path, created)) = &self.file
            && inode(path).is_ok_and(|found| found == *created)
        {
            let _ = fs::remove_file(path);
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Returns the TCP addresses, with the actual port if 0 was given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |socket: &Socket| match socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        };
        self.sockets.iter().filter_map(address).collect()
    }

    /// Returns all addresses, in the form of `--web.listen-address`.
    pub fn names(&self) -> Vec<String> {
        let unix = |socket: &Socket| match socket {
            Socket::Unix(socket) => socket.listener.local_addr().ok(),
            Socket::Tcp(_) => None,
        };
        let unix = self.sockets.iter().filter_map(unix).map(|address| {
            let path = address.as_pathname().unwrap_or(Path::new("unnamed"));
            format!("unix:{}", path.display())
        });
        let tcp = self.addresses().into_iter().map(|at| at.to_string());
        tcp.chain(unix).collect()
    }

    /// Returns the URL of the server on this machine, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let config = self.settings.config.as_ref();
        let scheme = match config.is_some_and(WebConfig::is_tls) {
            true => "https",
            false => "http",
        };
        Some(format!("{scheme}://{address}"))
    }

    /// Returns the path of the metrics.
    pub fn telemetry_path(&self) -> &TelemetryPath {
        &self.settings.telemetry_path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_unix(path: &Path) -> Result<Option<Socket>, BindError> {
        unix_socket(&ListenAddress::Unix(path.to_owned()), path, true)
    }

    #[test]
    fn the_socket_of_a_dead_process_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.sock");
        // Dropped without removing its file, as by a kill.
        drop(UnixListener::bind(&path).unwrap());
        let live = open_unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, UNIX_MODE);
        let error = open_unix(&path).unwrap_err().to_string();
        assert!(error.contains("another process listens there"), "{error}");
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn another_file_is_not_replaced_and_the_socket_of_a_successor_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(open_unix(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");

        let path = dir.path().join("web.sock");
        let old = open_unix(&path).unwrap();
        // Kept beside it, so that the successor cannot get the same inode.
        fs::rename(&path, dir.path().join("old.sock")).unwrap();
        let _successor = open_unix(&path).unwrap();
        drop(old);
        assert!(path.exists());
    }
}
