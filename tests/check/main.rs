//! The commands `check`, `completions` and `man` of the built binary: each fault is named with what to do, and nothing is changed.

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/collector_peer.rs"]
mod collector_peer;
#[path = "../support/http_peer.rs"]
mod http_peer;

mod collector;
mod deadline;
mod faults;
mod readme;
mod report;
mod service;
mod shell;
mod state;
mod support;
mod web;
