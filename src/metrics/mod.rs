//! Everything that `/metrics` shows: one file per group of families, and the exposition formats.

pub mod api;
pub mod audit;
pub mod build;
pub mod certificates;
pub mod dead_letters;
pub mod exposition;
mod family;
pub mod loops;
pub mod negotiate;
pub mod otlp;
#[cfg(target_os = "linux")]
pub mod process;
mod series;
pub mod state;
pub mod tickets;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;

pub use api::{ApiMetrics, Violation};
pub use audit::AuditMetrics;
pub use build::ExporterMetrics;
pub use certificates::Certificates;
pub use dead_letters::DeadLetterMetrics;
pub use loops::Loops;
pub use otlp::OtlpMetrics;
pub use state::StateMetrics;
pub use tickets::TicketMetrics;

/// All metric families of one exporter. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Requests to the Organization Data API.
    pub api: ApiMetrics,
    /// Audit events.
    pub audit: Arc<AuditMetrics>,
    /// The exporter's own certificates.
    pub certificates: Certificates,
    /// Dead letters.
    pub dead_letters: DeadLetterMetrics,
    /// Whether each loop works.
    pub loops: Arc<Loops>,
    /// Delivery of log records.
    pub otlp: Arc<OtlpMetrics>,
    /// The state file.
    pub state: StateMetrics,
    /// Tickets.
    pub tickets: Arc<TicketMetrics>,
    registry: Arc<Registry>,
}

// === impl Metrics ===

impl Metrics {
    /// Registers every family; `zero_hold` is `--metrics.zero-hold`.
    pub fn new(zero_hold: Duration) -> Self {
        let mut registry = Registry::default();
        let audit = Arc::new(AuditMetrics::new(zero_hold));
        let loops = Arc::new(Loops::default());
        let tickets = Arc::new(TicketMetrics::default());
        let certificates = Certificates::default();
        registry.register_collector(Box::new(audit.clone()));
        registry.register_collector(Box::new(loops.clone()));
        registry.register_collector(Box::new(tickets.clone()));
        registry.register_collector(Box::new(certificates.clone()));
        #[cfg(target_os = "linux")]
        registry.register_collector(Box::<process::ProcessCollector>::default());
        let api = ApiMetrics::register(&mut registry);
        ExporterMetrics::register(&mut registry);
        Self {
            api,
            audit,
            certificates,
            dead_letters: DeadLetterMetrics::register(&mut registry),
            loops,
            otlp: Arc::new(OtlpMetrics::register(&mut registry)),
            state: StateMetrics::register(&mut registry),
            tickets,
            registry: Arc::new(registry),
        }
    }

    /// Returns the registry, for the encoders.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
