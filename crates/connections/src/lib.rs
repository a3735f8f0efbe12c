//! Connections to any peer: when a client is renewed, which proxies it can use, whom it trusts, what TLS errors mean, and secrets in files.

mod proxy;
mod renewed;
mod secret;
mod tls;

pub use proxy::check_proxy;
pub use renewed::{Outcome, Renewed};
pub use secret::{ReadFile, SecretFile, secret};
pub use tls::{advice, authorities};

use std::error::Error;
use std::net::IpAddr;

/// Returns whether a host is this machine: a loopback address or `localhost`. Other names could resolve to any address.
pub fn is_loopback(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns an error and its sources, without repeating what the text already says.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let sources = std::iter::successors(error.source(), |&error| error.source());
    for cause in sources.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.extend([": ", &cause]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_an_address_or_localhost() {
        let these = ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"];
        assert!(these.into_iter().all(is_loopback));
        let others = ["127.evil.example", "x.localhost", "10.0.0.1", ""];
        assert!(!others.into_iter().any(is_loopback));
    }
}
