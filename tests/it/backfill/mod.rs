//! The command `backfill`, as an operator runs it: the built binary, the simulated service, and a scripted collector.

mod file;
mod otlp;
mod refusals;
mod support;
