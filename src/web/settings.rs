//! The addresses and the path of the metrics, and what clients may use.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::WebConfig;

/// The settings of the web surface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--web.listen-address`: every address is served alike.
    pub listen_addresses: Vec<ListenAddress>,
    /// `--web.systemd-socket`: serve the sockets that systemd passes instead.
    pub systemd_socket: bool,
    /// `--web.config.file`; the default without one.
    pub config: WebConfig,
    /// `--web.telemetry-path`.
    pub telemetry_path: String,
    /// What one client, and all of them together, may use.
    pub limits: Limits,
}

/// One `--web.listen-address`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Host and port: `127.0.0.1:10917`, `[::1]:10917`, `localhost:10917`, or `:10917` for every
    /// interface. Port 0 means a free one.
    Tcp(String, u16),
    /// `unix:/run/orgdata-exporter.sock`: a socket in the file system.
    Unix(PathBuf),
}

/// Bounds on clients. The defaults suit scrapers and probes; tests make them small.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of open connections, lowered to what `RLIMIT_NOFILE` allows. Above it,
    /// the connection that made no progress for longest is closed.
    pub connections: usize,
    /// The maximum time from the start of a connection, with its TLS handshake, to the end of the
    /// first request's headers.
    pub header_timeout: Duration,
    /// The maximum time between a response and the next request. Longer than usual scrape
    /// intervals, so that a scraper keeps its connection.
    pub idle_timeout: Duration,
    /// The maximum time that a write may be blocked. A whole response may take twice as long.
    pub write_timeout: Duration,
    /// The maximum time for responses to finish when the exporter stops.
    pub shutdown_grace: Duration,
}

// === impl ListenAddress ===

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() || path.ends_with('/') || path.contains(char::is_control) {
                return Err("it has no path; write a Unix socket like unix:/run/exporter.sock");
            }
            return Ok(Self::Unix(path.into()));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err("it has no port; write it like :10917 or localhost:10917");
        };
        if host.contains(':') && !host.starts_with('[') {
            return Err("an IPv6 address needs brackets, like [::1]:10917");
        }
        let port = match port.parse() {
            Ok(number) if !port.starts_with('+') => number,
            _ => return Err("its port is not a number from 0 to 65535; 0 means any free port"),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let is_name = host.chars().all(is_name) && !host.trim_start_matches(is_number).is_empty();
        if !host.is_empty() && !is_name && text.parse::<SocketAddr>().is_err() {
            return Err(
                "it is not an address and a port; write it like :10917, 127.0.0.1:10917, \
                 [::1]:10917 or localhost:10917",
            );
        }
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses `--web.telemetry-path`: never a path that the exporter uses for something else.
///
/// # Errors
/// What is wrong with it.
pub fn telemetry_path(text: &str) -> Result<String, &'static str> {
    let Some(path) = text.strip_prefix('/') else {
        return Err("it must start with /, like /metrics");
    };
    if path.is_empty() || path == "-" || path.starts_with("-/") {
        return Err("the exporter itself uses / and everything under /-/; choose another path");
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    if !path.bytes().all(plain) || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(
            "it may only contain letters, digits and - . _ ~ /, and no empty or dotted parts",
        );
    }
    Ok(text.to_owned())
}

// === impl Limits ===

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
    fn addresses_are_parsed_and_displayed_alike() {
        for text in [
            ":10917",
            ":0",
            "127.0.0.1:0",
            "0.0.0.0:80",
            "[::]:10917",
            "[::1]:65535",
            "exporter.example.org:1",
            "unix:/run/x.sock",
            "unix:x.sock",
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_the_reason() {
        for (texts, reason) in [
            (&["", "10917", "127.0.0.1", "localhost"][..], "has no port"),
            (
                &[":", ":http", ":65536", ":-1", ":+80", "[::1]"],
                "not a number",
            ),
            (&["::1", "::1:10917", "fe80::1%eth0:80"], "brackets"),
            (&["127.0.0.256:80", "[::g]:80", "local host:80"], "not an"),
            (&["http://localhost:10917", "a/b:80"], ""),
            (&["localhost:10917/metrics"], "not a number"),
            (&["unix:", "unix:/run/"], "has no path"),
        ] {
            for text in texts {
                let error = text.parse::<ListenAddress>().unwrap_err();
                assert!(error.contains(reason), "{text}: {error}");
            }
        }
    }

    #[test]
    fn a_telemetry_path_is_plain_and_not_used_otherwise() {
        for text in ["/metrics", "/probe/metrics", "/-metrics", "/m.e_t~r-1"] {
            assert_eq!(telemetry_path(text).as_deref(), Ok(text));
        }
        for (texts, reason) in [
            (&["", "metrics"][..], "start with /"),
            (&["/", "/-", "/-/healthy", "/-/metrics"], "itself uses"),
            (&["//", "/metrics/", "/a/../b"], "may only contain"),
            (&["/metrics?x=1", "/{m}", "/m%65"], "may only contain"),
        ] {
            for text in texts {
                let error = telemetry_path(text).unwrap_err();
                assert!(error.contains(reason), "{text}: {error}");
            }
        }
    }
}
