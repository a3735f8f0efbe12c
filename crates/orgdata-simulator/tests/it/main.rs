//! The simulator over real sockets: the rules of the specification, the readings of its silent spots, the faults.

mod control;
mod faults;
mod listing;
mod support;
mod tickets;
mod truth;
