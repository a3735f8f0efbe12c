//! Everything that `/metrics` shows: one file per group of families, and the exposition formats.

pub(crate) mod api;
pub mod audit;
pub(crate) mod build;
pub mod certificates;
pub(crate) mod dead_letters;
pub mod exposition;
mod family;
pub(crate) mod loops;
pub mod negotiate;
pub(crate) mod otlp;
#[cfg(target_os = "linux")]
pub(crate) mod process;
mod series;
pub(crate) mod state;
pub mod tickets;

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::registry::Registry;

pub use api::{ApiMetrics, Violation};
pub use audit::{AuditMetrics, TrueValues};
pub use build::ExporterMetrics;
pub(crate) use certificates::Certificates;
pub(crate) use dead_letters::DeadLetterMetrics;
pub(crate) use loops::Loops;
pub(crate) use otlp::OtlpMetrics;
pub(crate) use state::StateMetrics;
pub(crate) use tickets::TicketMetrics;

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
    pub(crate) dead_letters: DeadLetterMetrics,
    /// Whether each loop works.
    pub loops: Arc<Loops>,
    /// Delivery of log records.
    pub otlp: Arc<OtlpMetrics>,
    /// The state file.
    pub state: StateMetrics,
    /// Tickets.
    pub tickets: Arc<TicketMetrics>,
    scraped: Arc<Registry>,
    current: Arc<Registry>,
}

// === impl Metrics ===

impl Metrics {
    /// Registers every family; `zero_hold` is `--metrics.zero-hold`.
    pub fn new(zero_hold: Duration) -> Self {
        let mut metrics = Self {
            api: ApiMetrics::default(),
            audit: Arc::new(AuditMetrics::new(zero_hold)),
            certificates: Certificates::default(),
            dead_letters: DeadLetterMetrics::default(),
            loops: Arc::default(),
            otlp: Arc::default(),
            state: StateMetrics::default(),
            tickets: Arc::default(),
            scraped: Arc::default(),
            current: Arc::default(),
        };
        let audit = metrics.audit.clone();
        metrics.scraped = Arc::new(metrics.registered(Box::new(audit.clone())));
        metrics.current = Arc::new(metrics.registered(Box::new(TrueValues(audit))));
        metrics
    }

    /// Returns what a scraper sees: the first increase of a series after the hold.
    pub fn registry(&self) -> &Registry {
        &self.scraped
    }

    /// Returns what anybody else sees: the true values.
    pub(crate) fn true_values(&self) -> &Registry {
        &self.current
    }

    /// Returns a registry of all families in the order of the documentation.
    fn registered(&self, audit: Box<dyn Collector>) -> Registry {
        let mut registry = Registry::default();
        registry.register_collector(audit);
        registry.register_collector(Box::new(self.tickets.clone()));
        registry.register_collector(Box::new(self.loops.clone()));
        registry.register_collector(Box::new(self.certificates.clone()));
        // A registry shows its collectors before those that are in it.
        let exporter = registry.sub_registry_with_labels(iter::empty());
        self.api.register(exporter);
        self.otlp.register(exporter);
        self.dead_letters.register(exporter);
        self.state.register(exporter);
        ExporterMetrics::default().register(exporter);
        #[cfg(target_os = "linux")]
        exporter.register_collector(Box::<process::ProcessCollector>::default());
        registry
    }
}
