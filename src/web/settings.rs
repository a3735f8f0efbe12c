//! Where the exporter listens, and under which path it shows its metrics.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::WebConfig;

/// The settings of the web surface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--web.listen-address`: every address is served alike.
    pub listen_addresses: Vec<ListenAddress>,
    /// `--web.systemd-socket`: the sockets that systemd hands over, instead of the addresses.
    pub systemd_socket: bool,
    /// `--web.config.file`.
    pub config: Option<WebConfig>,
    /// `--web.telemetry-path`.
    pub telemetry_path: TelemetryPath,
    /// What one client, and all of them together, may take.
    pub limits: Limits,
}

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

/// The path of the metrics; never one that the exporter needs for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetryPath(String);

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at the same time. Past it the one that has been idle longest gives way.
    pub connections: usize,
    /// From the connection, or from the first byte of a further request, to the end of the request's headers.
    pub header_timeout: Duration,
    /// How long a connection may be silent between two requests. Longer than any usual scrape interval, so that a scraper
    /// keeps its connection.
    pub idle_timeout: Duration,
    /// How long a client may take to read what it asked for.
    pub write_timeout: Duration,
    /// How long answers that are on their way may take when the exporter stops.
    pub shutdown_grace: Duration,
}

/// Why a listen address was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ListenAddressError {
    /// Nothing was given.
    #[error("it is empty; give an address and a port, like :10917 or 127.0.0.1:10917")]
    Empty,
    /// It has a scheme, a path, or something else that an address has not.
    #[error("it is not an address and a port; give it like :10917, 127.0.0.1:10917, [::1]:10917 or localhost:10917")]
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

/// Why a telemetry path was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TelemetryPathError {
    /// It does not start with a slash.
    #[error("it must start with /, like /metrics")]
    Relative,
    /// The exporter answers something else there.
    #[error("/ and everything under /-/ are taken by the exporter itself; choose another path, like /metrics")]
    Taken,
    /// A character that a path cannot have, or that would make two paths look the same.
    #[error("it may only hold letters, digits and the characters - . _ ~ /, and no empty or dotted parts")]
    Characters,
}

// === impl ListenAddress ===

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(ListenAddressError::Empty);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let plain = !path.is_empty() && !path.ends_with('/') && !path.contains(char::is_control);
            return if plain { Ok(Self::Unix(PathBuf::from(path))) } else { Err(ListenAddressError::NoPath) };
        }
        if text.contains("://") || text.contains(|c: char| c == '/' || c == '@' || c.is_whitespace() || c.is_control()) {
            return Err(ListenAddressError::NotAnAddress);
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(ListenAddressError::Brackets);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, _)) if host.starts_with('[') && !host.ends_with(']') => return Err(ListenAddressError::NoPort(text.to_owned())),
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
        if host.contains(['[', ']', ':']) || host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
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

// === impl TelemetryPath ===

impl TelemetryPath {
    /// The path, with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TelemetryPath {
    fn default() -> Self {
        Self("/metrics".to_owned())
    }
}

impl FromStr for TelemetryPath {
    type Err = TelemetryPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(path) = text.strip_prefix('/') else { return Err(TelemetryPathError::Relative) };
        if path.is_empty() || path == "-" || path.starts_with("-/") {
            return Err(TelemetryPathError::Taken);
        }
        let plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte));
        if !plain || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(TelemetryPathError::Characters);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TelemetryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Limits ===

impl Limits {
    /// How long one answer over HTTP/2 may take, from the request to the last byte read: as long again as a client may take to
    /// read it, for the scrape to have its turn and be encoded.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.write_timeout * 2
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(5 * 60),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(3),
        }
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
        assert_eq!("localhost:1".parse(), Ok(ListenAddress::Name("localhost".to_owned(), 1)));
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

    #[test]
    fn a_telemetry_path_is_kept() {
        for text in ["/metrics", "/probe/metrics", "/-metrics", "/m.e_t~r-1"] {
            assert_eq!(text.parse::<TelemetryPath>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_telemetry_path_is_refused_with_the_reason() {
        use TelemetryPathError as E;
        for (text, error) in [
            ("", E::Relative),
            ("metrics", E::Relative),
            ("/", E::Taken),
            ("/-", E::Taken),
            ("/-/healthy", E::Taken),
            ("/-/metrics", E::Taken),
            ("//", E::Characters),
            ("/metrics/", E::Characters),
            ("/a/../b", E::Characters),
            ("/metrics?x=1", E::Characters),
            ("/{metrics}", E::Characters),
            ("/m%65trics", E::Characters),
            ("/m\u{e9}trics", E::Characters),
        ] {
            assert_eq!(text.parse::<TelemetryPath>(), Err(error), "{text}");
        }
    }
}
