//! Everything that `/metrics` shows: one file per family group, the exposition formats, the process's own metrics.

pub mod api;
pub mod audit;
pub mod build;
pub mod certificates;
pub mod exposition;
mod family;
pub mod loops;
pub mod otlp;
pub mod process;
pub mod recent;
pub mod state;
pub mod tickets;

use std::sync::Arc;

use prometheus_client::registry::Registry;

pub use api::ApiMetrics;
pub use audit::AuditMetrics;
pub use certificates::Certificates;
pub use loops::{Loop, Loops};
pub use otlp::OtlpMetrics;
pub use process::ProcessCollector;
pub use recent::Recent;
pub use state::StateMetrics;
pub use tickets::TicketMetrics;

/// All metric families of one exporter; cheap to clone, every clone shows the same values.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Requests to the Organization Data API.
    pub api: ApiMetrics,
    /// Audit events, as the ledger has committed them.
    pub audit: Arc<AuditMetrics>,
    /// The exporter's own certificates.
    pub certificates: Certificates,
    /// Whether each loop works.
    pub loops: Arc<Loops>,
    /// Delivery of log records.
    pub otlp: Arc<OtlpMetrics>,
    /// The state file.
    pub state: StateMetrics,
    /// Tickets, as the last scan saw them.
    pub tickets: Arc<TicketMetrics>,
    registry: Arc<Registry>,
}

// === impl Metrics ===

impl Metrics {
    /// Registers every family. `zero_hold` is how long a series shows the value it was introduced with, counted from the
    /// first scrape that showed it.
    pub fn new(zero_hold: std::time::Duration) -> Self {
        let mut registry = Registry::default();
        let audit = Arc::new(AuditMetrics::new(zero_hold));
        registry.register_collector(Box::new(audit.clone()));
        let otlp = Arc::new(OtlpMetrics::register(&mut registry));
        let loops = Arc::new(Loops::register(&mut registry));
        let api = ApiMetrics::register(&mut registry);
        let state = StateMetrics::register(&mut registry);
        let tickets = TicketMetrics::register(&mut registry);
        build::register(&mut registry);
        registry.register_collector(Box::new(ProcessCollector::new()));
        let certificates = Certificates::default();
        registry.register_collector(Box::new(certificates.clone()));
        Self {
            api,
            audit,
            certificates,
            loops,
            otlp,
            state,
            tickets,
            registry: Arc::new(registry),
        }
    }

    /// The registry, for the encoders.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
