//! Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization.

pub mod api;
pub mod audit;
pub mod ledger;
pub mod metrics;
pub mod otlp;
pub mod simulator;
pub mod telemetry;
