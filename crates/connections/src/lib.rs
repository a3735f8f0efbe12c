//! Connections to any peer: when a client is renewed, which proxies it can use, and what TLS errors mean.

mod proxy;
mod renewed;
mod tls;

pub use proxy::check_proxy;
pub use renewed::{Outcome, Renewed};
pub use tls::advice;
