//! What holds for the connections to every peer: when a client is made anew, which proxies it can use, and what TLS errors mean.

mod proxy;
mod renewed;
mod tls;

pub use proxy::check_proxy;
pub use renewed::{Outcome, Renewed};
pub use tls::advice;
