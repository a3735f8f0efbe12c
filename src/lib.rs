//! Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization.
//!
//! The way of an event, one way and without cycles:
//!
//! ```text
//!     Organization Data API
//!         │  GET /v1/audit-logs                         │  GET /v1/tickets
//!         ▼                                             ▼
//!     audit::tail ── one page ──▶ ledger            tickets::scan ── whole snapshot ──▶ published at once
//!                                   │ one transaction per page:
//!                                   │ seen ids · counters · outbox · frontier
//!                       ┌───────────┴────────────┐
//!                       ▼                        ▼
//!            counters, published        otlp::relay ── batch ──▶ collector
//!            after the commit             └ records leave the outbox only when the collector acknowledged them
//!                       ▼
//!                    /metrics
//! ```
//!
//! [`api`] knows HTTP and JSON and nothing else; `audit` and `tickets` know [`api`] and the ledger; [`otlp`] and
//! [`metrics`] read the ledger; `web` shows what [`metrics`] holds; `app` wires them and owns start and stop.

pub use orgdata_api as api;
pub mod app;
pub mod audit;
pub mod cli;
pub mod commands;
pub mod health;
pub mod ledger;
pub mod metrics;
pub mod otlp;
pub mod shutdown;
pub use orgdata_simulator as simulator;
pub mod telemetry;
pub mod tickets;
pub mod util;
pub mod web;
