//! The command `backfill`, as an operator runs it: the built binary, the simulated service, and a collector that does as it is told.

mod file;
#[path = "../support/openmetrics.rs"]
mod openmetrics;
mod otlp;
mod refusals;
mod support;

#[path = "../support/binary.rs"]
mod binary;
#[path = "../support/collector_peer.rs"]
mod collector_peer;
