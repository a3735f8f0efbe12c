//! Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization.

pub mod simulator;
