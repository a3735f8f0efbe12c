//! The command `backfill`, as an operator runs it: the built binary, the simulated service, and a collector that does as it is told.

mod file;
mod otlp;
mod refusals;
mod support;
