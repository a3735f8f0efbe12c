//! The client of the Organization Data API over real sockets: what it sends, what it makes of every answer, and what no answer can do to it.

#[path = "../support/fast.rs"]
mod fast;
#[path = "../support/http_peer.rs"]
mod http_peer;
#[path = "../support/settings.rs"]
mod settings;
mod support;

mod bodies;
mod errors;
mod hostile;
mod redirects;
mod requests;
mod retries;
mod tls;
