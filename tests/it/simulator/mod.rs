//! The simulator over real sockets: the specification's rules, the readings of its silent spots, the faults.

mod control;
mod faults;
mod listing;
mod openapi;
mod support;
mod tickets;
mod truth;
