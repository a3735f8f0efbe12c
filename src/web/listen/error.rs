//! Why an address cannot be listened on, and what to do about it.

use std::io;

use crate::web::ListenAddress;

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
    /// Another process answers at the Unix socket, or the file is no socket.
    #[error(
        "cannot listen on {address}: {reason}; stop what listens there, or choose another path with --web.listen-address"
    )]
    Taken {
        /// The address as it was given.
        address: String,
        /// What is there.
        reason: String,
    },
    /// The process may not.
    #[error("cannot listen on {address}: not permitted; {way_out}")]
    Denied {
        /// The address as it was given.
        address: String,
        /// What to do.
        way_out: &'static str,
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
    #[error(
        "cannot listen on {address}: the name is not known ({source}); give an IP address with --web.listen-address"
    )]
    Name {
        /// The address as it was given.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// systemd handed over nothing that can be listened on.
    #[error(
        "--web.systemd-socket: {0}; start the service from a systemd socket unit, or give --web.listen-address instead"
    )]
    Systemd(String),
    /// No address was given.
    #[error("nothing to listen on; give at least one --web.listen-address, like :10917")]
    Nothing,
    /// Anything else.
    #[error("cannot listen on {address}: {source}; choose another with --web.listen-address")]
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
pub(super) struct NameError(io::Error);

/// Marks what stands in the way of a Unix socket.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct TakenError(pub(super) &'static str);

// === impl NameError ===

impl NameError {
    pub(super) fn wrap(error: io::Error) -> io::Error {
        io::Error::other(Self(error))
    }
}

// === impl BindError ===

impl BindError {
    pub(super) fn new(given: &ListenAddress, source: io::Error) -> Self {
        let (address, port) = (given.to_string(), given.port());
        if source
            .get_ref()
            .is_some_and(|inner| inner.is::<NameError>())
        {
            return Self::Name { address, source };
        }
        if source
            .get_ref()
            .is_some_and(|inner| inner.is::<TakenError>())
        {
            return Self::Taken {
                address,
                reason: source.to_string(),
            };
        }
        let unix = matches!(given, ListenAddress::Unix(_));
        match source.kind() {
            io::ErrorKind::PermissionDenied if unix => Self::Denied {
                address,
                way_out: "the directory of a Unix socket has to be writable; choose another path with --web.listen-address",
            },
            _ if unix => Self::Io { address, source },
            io::ErrorKind::AddrInUse => Self::InUse { address, port },
            io::ErrorKind::PermissionDenied => Self::Denied {
                address,
                way_out: "ports below 1024 are for privileged processes, choose a higher one with --web.listen-address",
            },
            io::ErrorKind::AddrNotAvailable => Self::NotLocal { address, port },
            _ => Self::Io { address, source },
        }
    }
}
