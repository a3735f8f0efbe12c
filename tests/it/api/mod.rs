//! The client of the Organization Data API over real sockets: what it sends, what it makes of every answer, and what no answer can do to it.

mod support;

mod bodies;
mod errors;
mod hostile;
mod redirects;
mod requests;
mod retries;
mod tls;
