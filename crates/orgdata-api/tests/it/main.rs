//! The client over real sockets: what it sends, what it makes of every answer, and that no answer harms it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod bodies;
mod errors;
mod peer;
mod redirects;
mod requests;
mod retries;
mod support;
