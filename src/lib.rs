//! Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization.
//!
//! The path of an event:
//!
//! ```text
//!     Organization Data API
//!         │  GET /v1/audit-logs                    │  GET /v1/tickets
//!         ▼                                        ▼
//!       audit ── one page ──▶ ledger             tickets ── whole snapshot ──▶ metrics
//!                               │ one transaction per page: known ids, counters, outbox
//!                    ┌──────────┴───────────┐
//!                    ▼                      ▼
//!                 metrics                records ── batch ──▶ collector
//!          after the commit            a record leaves the outbox when the collector has acknowledged it
//!                    ▼
//!       endpoints: /metrics
//! ```
//!
//! [`audit`], [`tickets`] and [`records`] each have a loop, in their `run.rs`. [`app`] wires the parts and owns start and stop.
//! [`cli`] turns flags into settings, and [`commands`] holds the other commands of the binary. [`machine`] is what a simulation of the
//! program replaces.

pub use orgdata_api as api;
pub mod app;
pub mod audit;
pub mod cli;
pub mod commands;
pub mod endpoints;
pub mod health;
mod landing;
pub mod ledger;
pub mod machine;
pub mod metrics;
pub mod records;
pub mod shutdown;
pub use orgdata_simulator as simulator;
pub mod telemetry;
pub mod tickets;
mod util;
