//! The simulator over real sockets: the rules of the specification, the readings of its ambiguous places, the faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod control;
mod faults;
mod listing;
mod support;
mod tickets;
mod truth;
