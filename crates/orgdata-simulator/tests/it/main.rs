//! The simulator over real sockets: the rules of the specification, and its control endpoint.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod control;
mod listing;
mod support;
