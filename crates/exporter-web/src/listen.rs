//! Listening sockets.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::{TcpListener, lookup_host};

use crate::{Limits, WebArgs, WebConfig};

/// One `--web.listen-address`: `127.0.0.1:9999`, `[::1]:9999`, `localhost:9999`, or `:9999` for every interface. Port 0
/// means a free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// A name, an IPv4 address, an IPv6 address in brackets, or nothing.
    pub host: String,
    /// The port.
    pub port: u16,
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
    if sockets.is_empty() {
        let message = "--web.listen-address is empty; give it like :PORT";
        return Err(io::Error::other(message));
    }
    Ok(Bound {
        sockets,
        config,
        limits: Limits::default(),
    })
}

/// Opens the first address that can be listened on. As in Go, that is one of IPv4 if a name has both.
async fn open(address: &ListenAddress) -> io::Result<TcpListener> {
    if address.host.is_empty() {
        // The first one includes IPv4. Without IPv6, it is the second.
        let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let all = all.map(|ip| SocketAddr::new(ip, address.port));
        return TcpListener::bind(&all[..]).await;
    }
    let mut found: Vec<_> = lookup_host(address.to_string()).await?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(&found[..]).await
}

/// Returns an error of the same kind that says what to do about it.
fn failed(address: &ListenAddress, error: io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "stop what listens there, or choose another address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
        _ => "give an IP address of this machine",
    };
    let text = format!("cannot listen on {address}: {error}; {advice} with --web.listen-address");
    io::Error::new(error.kind(), text)
}

// === impl ListenAddress ===

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HELP: &str = "it is not an address and a port; write it like :PORT, 127.0.0.1:PORT, [::1]:PORT or localhost:PORT, where port 0 means any free one";
        let (host, port) = text.rsplit_once(':').ok_or(HELP)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let is_right = host.chars().all(is_name) || text.parse::<SocketAddr>().is_ok();
        match port.parse() {
            Ok(number) if is_right && !port.starts_with('+') => Ok(Self {
                host: host.to_owned(),
                port: number,
            }),
            _ => Err(HELP),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
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
        let scheme = if self.config.is_tls() {
            "https"
        } else {
            "http"
        };
        Some(format!("{scheme}://{address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_displayed_alike_and_others_are_refused() {
        let right = ":9999 :0 127.0.0.1:0 [::]:9999 [::1]:65535 exporter.example.org:1";
        for text in right.split(' ') {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        let wrong = "|9999|127.0.0.1|localhost|:|:http|:65536|:-1|:+80|[::1]|::1|::1:9999|[::g]:80|local host:80|\
            http://localhost:9999|localhost:9999/metrics|unix:/run/x.sock";
        for text in wrong.split('|') {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains("localhost:PORT"), "{text}: {error}");
        }
    }
}
