//! The simulator over real sockets: the specification's rules, the readings of its silent spots, the faults.

#![allow(clippy::unwrap_used, reason = "what goes wrong here is a failed test")]

mod control;
mod faults;
mod listing;
mod openapi;
mod support;
mod tickets;
mod truth;
