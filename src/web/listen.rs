//! Listening sockets: TCP, Unix sockets, and sockets that systemd passes.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use listenfd::ListenFd;
use rustix::fs::Access;
use socket2::{Domain, SockAddr, Type};
use tokio::net::{TcpListener, UnixListener};

use super::{ListenAddress, Settings};

/// The number of connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// The mode of a Unix socket: a proxy in front of the exporter is given its group.
const UNIX_MODE: u32 = 0o660;

/// Listening sockets: clients can connect from here on, and are answered once
/// [`serve`](super::serve) runs. A clone has the same sockets.
#[derive(Clone, Debug)]
pub struct Bound {
    pub(super) sockets: Vec<Arc<Socket>>,
    pub(super) settings: Settings,
}

/// One listening socket.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removed with the socket, if this process created it.
        file: Option<PathBuf>,
    },
}

/// Opens every address of the settings, or takes the sockets that systemd passes.
///
/// # Errors
/// Why the first address that cannot be listened on cannot be, and what to do about it.
pub async fn bind(settings: &Settings) -> io::Result<Bound> {
    let mut sockets = Vec::new();
    if settings.systemd_socket {
        sockets = systemd_sockets().map_err(|error| {
            io::Error::other(format!(
                "--web.systemd-socket: {error}; start the service from a systemd socket unit, or \
                 use --web.listen-address instead"
            ))
        })?;
    } else {
        for address in &settings.listen_addresses {
            sockets.extend(open(address, &settings.listen_addresses).await?);
        }
    }
    Ok(Bound {
        sockets: sockets.into_iter().map(Arc::new).collect(),
        settings: settings.clone(),
    })
}

/// Checks whether each address could be listened on, without creating a file.
pub async fn try_bind(addresses: &[ListenAddress]) -> Vec<io::Result<()>> {
    let mut results = Vec::new();
    for address in addresses {
        results.push(match address {
            ListenAddress::Tcp(..) => open(address, addresses).await.map(drop),
            ListenAddress::Unix(path) => check_path(path).map_err(|error| failed(address, error)),
        });
    }
    results
}

async fn open(address: &ListenAddress, all: &[ListenAddress]) -> io::Result<Vec<Socket>> {
    let (host, port) = match address {
        ListenAddress::Tcp(host, port) => (host, *port),
        ListenAddress::Unix(path) => {
            let socket = unix_socket(path).map_err(|error| failed(address, error))?;
            return Ok(vec![socket]);
        }
    };
    let ipv4 = Ipv4Addr::UNSPECIFIED;
    // `[::]` includes IPv4, unless the IPv4 wildcard is given for the same port.
    let only_v6 = all.contains(&ListenAddress::Tcp(ipv4.to_string(), port));
    let found: Vec<SocketAddr> = match host.as_str() {
        "" => vec![(Ipv6Addr::UNSPECIFIED, port).into(), (ipv4, port).into()],
        host => {
            let found = tokio::net::lookup_host(format!("{host}:{port}")).await;
            let found = found.map_err(|error| {
                let said = format!("the name is not known: {error}");
                failed(address, io::Error::new(io::ErrorKind::NotFound, said))
            });
            each_once(found?)
        }
    };
    let (mut sockets, mut missing) = (Vec::new(), io::ErrorKind::AddrNotAvailable.into());
    for to in found {
        match tcp_socket(to, only_v6) {
            Ok(socket) => sockets.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(failed(address, error));
            }
            // `localhost` is `::1` in most hosts files, also without IPv6.
            Err(error) => missing = error,
        }
        if host.is_empty() && !sockets.is_empty() {
            break;
        }
    }
    match sockets.is_empty() {
        true => Err(failed(address, missing)),
        false => Ok(sockets),
    }
}

/// Keeps each address once: a hosts file can list a name twice, and the second socket would find the
/// port in use.
fn each_once(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut known = HashSet::new();
    found.filter(|address| known.insert(*address)).collect()
}

/// Returns an error of the same kind that says what to do about it.
fn failed(address: &ListenAddress, error: io::Error) -> io::Error {
    let advice = match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, _) => {
            "stop what listens there (`ss -ltnpx` names it), or choose another address"
        }
        (_, ListenAddress::Unix(_)) => {
            "its directory must exist and be writable; choose another path"
        }
        (io::ErrorKind::NotFound, _) => "give an IP address",
        (io::ErrorKind::PermissionDenied, _) => {
            "ports below 1024 need privileges; choose a higher one"
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "no interface of this machine has that address; choose another"
        }
        _ => "choose another address",
    };
    let said = format!("cannot listen on {address}: {error}; {advice} with --web.listen-address");
    io::Error::new(error.kind(), said)
}

fn tcp_socket(address: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // The default is a setting of the machine.
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for connections of the previous process.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into()).map(Socket::Tcp)
}

/// Listens on a path. The socket of a process that is gone is replaced.
fn unix_socket(path: &Path) -> io::Result<Socket> {
    check_path(path)?;
    if path.exists() {
        fs::remove_file(path)?;
    }
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Before `listen`, so that no client connects before the mode is set.
    fs::set_permissions(path, fs::Permissions::from_mode(UNIX_MODE))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(socket.into())?;
    let file = Some(path.to_owned());
    Ok(Socket::Unix { listener, file })
}

/// Checks that nothing is at this path but a socket that does not answer, and that its directory
/// can be written.
fn check_path(path: &Path) -> io::Result<()> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other("there is a file that is not a socket"));
        }
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    Ok(rustix::fs::access(
        directory,
        Access::WRITE_OK | Access::EXEC_OK,
    )?)
}

/// Takes every socket that systemd passes to this process (`sd_listen_fds(3)`).
fn systemd_sockets() -> io::Result<Vec<Socket>> {
    let for_process = std::env::var("LISTEN_PID").unwrap_or_default();
    let is_for_us = for_process == std::process::id().to_string();
    let (mut passed, mut sockets) = (ListenFd::from_env(), Vec::new());
    let count = if is_for_us { passed.len() } else { 0 };
    for index in 0..count {
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            listener.set_nonblocking(true)?;
            sockets.push(Socket::Tcp(TcpListener::from_std(listener)?));
        } else if let Some(listener) = passed.take_unix_listener(index)? {
            listener.set_nonblocking(true)?;
            let (listener, file) = (UnixListener::from_std(listener)?, None);
            sockets.push(Socket::Unix { listener, file });
        }
    }
    if sockets.is_empty() {
        return Err(io::Error::other(
            "no sockets were passed to this process (LISTEN_PID, LISTEN_FDS)",
        ));
    }
    Ok(sockets)
}

// === impl Socket ===

impl Socket {
    fn name(&self) -> Option<String> {
        match self {
            Self::Tcp(listener) => Some(listener.local_addr().ok()?.to_string()),
            Self::Unix { listener, .. } => {
                let address = listener.local_addr().ok()?;
                let path = address.as_pathname().unwrap_or(Path::new("unnamed"));
                Some(format!("unix:{}", path.display()))
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix {
            file: Some(path), ..
        } = self
        {
            let _ = fs::remove_file(path);
        }
    }
}

// === impl Bound ===

impl Bound {
    /// Returns the TCP addresses, with the actual port if 0 was given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let address = |socket: &Arc<Socket>| match &**socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix { .. } => None,
        };
        self.sockets.iter().filter_map(address).collect()
    }

    /// Returns all addresses, in the form of `--web.listen-address`.
    pub fn names(&self) -> Vec<String> {
        let sockets = self.sockets.iter();
        sockets.filter_map(|socket| socket.name()).collect()
    }

    /// Returns the URL of the server on this machine, without a trailing slash.
    pub fn url(&self) -> Option<String> {
        let mut address = *self.addresses().first()?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let is_tls = self.settings.config.is_tls();
        Some(format!("http{}://{address}", if is_tls { "s" } else { "" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_hosts_file_lists_twice_does_not_find_its_own_port_in_use() {
        let found = ["[::1]:80", "127.0.0.1:80", "127.0.0.1:80", "[::1]:80"];
        let found = found.map(|address| address.parse().unwrap());
        assert_eq!(each_once(found.into_iter()), found[..2]);
    }

    #[tokio::test]
    async fn only_the_socket_of_a_dead_process_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("web.sock");
        // Dropped without removing its file, as by a kill.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = unix_socket(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, UNIX_MODE);
        let error = unix_socket(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(live);
        assert!(!path.exists());

        fs::write(&path, "data").unwrap();
        assert!(unix_socket(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }
}
