//! `--web.listen-address`: where the exporter listens.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// One `--web.listen-address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// `:10917`: every interface, IPv4 and IPv6.
    Any(u16),
    /// `127.0.0.1:0`, `[::]:10917`; port 0 means a free one.
    Socket(SocketAddr),
    /// `localhost:10917`: every address the name has.
    Name(String, u16),
    /// `unix:/run/orgdata-exporter.sock`: a socket in the file system.
    Unix(PathBuf),
}

/// Why a listen address was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenAddressError {
    /// Nothing was given.
    #[error("it is empty; give an address and a port, like :10917 or 127.0.0.1:10917")]
    Empty,
    /// It has a scheme, a path, or something else that an address has not.
    #[error(
        "it is not an address and a port; give it like :10917, 127.0.0.1:10917, [::1]:10917 or localhost:10917"
    )]
    NotAnAddress,
    /// No port was given.
    #[error("it has no port; give it like {0}:10917")]
    NoPort(String),
    /// What follows the last colon is not a port.
    #[error("{0:?} is not a port; a port is a number from 0 to 65535, 0 for any free one")]
    Port(String),
    /// An IPv6 address without brackets cannot be told from its port.
    #[error("an IPv6 address needs brackets, like [::1]:10917")]
    Brackets,
    /// A Unix socket without a path.
    #[error("it has no path; give a Unix socket like unix:/run/orgdata-exporter.sock")]
    NoPath,
}

// === impl ListenAddress ===

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ListenAddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let plain =
                !path.is_empty() && !path.ends_with('/') && !path.contains(char::is_control);
            return if plain {
                Ok(Self::Unix(PathBuf::from(path)))
            } else {
                Err(ListenAddressError::NoPath)
            };
        }
        if text.contains("://")
            || text.contains(|c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control())
        {
            return Err(ListenAddressError::NotAnAddress);
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(ListenAddressError::Brackets);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, _)) if host.starts_with('[') && !host.ends_with(']') => {
                return Err(ListenAddressError::NoPort(text.to_owned()));
            }
            Some(parts) => parts,
            None => return Err(ListenAddressError::NoPort(text.to_owned())),
        };
        // `u16` would also take a leading plus.
        let port = match port.parse() {
            Ok(port) if !text.ends_with(':') && !text.contains(":+") => port,
            _ => return Err(ListenAddressError::Port(port.to_owned())),
        };
        if host.is_empty() {
            return Ok(Self::Any(port));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Socket(address));
        }
        if host.contains(':') && !host.starts_with('[') {
            return Err(ListenAddressError::Brackets);
        }
        if host.contains(['[', ']', ':'])
            || host
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
        {
            return Err(ListenAddressError::NotAnAddress);
        }
        Ok(Self::Name(host.to_owned(), port))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(port) => write!(f, ":{port}"),
            Self::Socket(address) => address.fmt(f),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// The port, 0 for any free one; a Unix socket has none, which is 0 too.
    pub fn port(&self) -> u16 {
        match self {
            Self::Any(port) | Self::Name(_, port) => *port,
            Self::Socket(address) => address.port(),
            Self::Unix(_) => 0,
        }
    }

    /// Whether this is every IPv4 interface and nothing else.
    pub(super) fn is_ipv4_wildcard(&self) -> bool {
        matches!(self, Self::Socket(address) if address.ip() == Ipv4Addr::UNSPECIFIED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in [
            ":10917",
            ":0",
            "127.0.0.1:0",
            "0.0.0.0:80",
            "[::]:10917",
            "[::1]:65535",
            "localhost:10917",
            "exporter.example.org:1",
            "unix:/run/x.sock",
            "unix:x.sock",
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        assert_eq!(":10917".parse(), Ok(ListenAddress::Any(10917)));
        assert_eq!(
            "localhost:1".parse(),
            Ok(ListenAddress::Name("localhost".to_owned(), 1))
        );
    }

    #[test]
    fn an_address_is_refused_with_the_reason() {
        use ListenAddressError as E;
        for (text, error) in [
            ("", E::Empty),
            ("10917", E::NoPort("10917".to_owned())),
            ("127.0.0.1", E::NoPort("127.0.0.1".to_owned())),
            ("[::1]", E::NoPort("[::1]".to_owned())),
            ("localhost", E::NoPort("localhost".to_owned())),
            (":", E::Port(String::new())),
            (":http", E::Port("http".to_owned())),
            (":65536", E::Port("65536".to_owned())),
            (":-1", E::Port("-1".to_owned())),
            (":+80", E::Port("+80".to_owned())),
            ("::1", E::Brackets),
            ("::1:10917", E::Brackets),
            ("fe80::1%eth0:80", E::Brackets),
            ("http://localhost:10917", E::NotAnAddress),
            ("localhost:10917/metrics", E::NotAnAddress),
            ("127.0.0.256:80", E::NotAnAddress),
            ("[::g]:80", E::NotAnAddress),
            ("local host:80", E::NotAnAddress),
            ("unix:", E::NoPath),
            ("unix:/run/", E::NoPath),
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(error), "{text}");
        }
    }
}
