//! A client with a key, and the counters it moves.

use orgdata_exporter::api::{
    ApiError, AuditPage, AuditQuery, Client, KeySource, Priority, Settings,
};
use orgdata_exporter::metrics::ApiMetrics;
use prometheus_client::registry::Registry;
use secrecy::SecretString;

/// The key of every test: long enough to be found wherever it should not be.
pub(crate) const KEY: &str = "demo-key";

/// A client and its metrics.
pub(crate) struct Subject {
    pub(crate) client: Client,
    registry: Registry,
}

/// Settings for a service; requests are not held back.
pub(crate) fn settings(base_url: &str) -> Settings {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    Settings {
        key: KeySource::Value(SecretString::from(KEY.to_owned())),
        max_requests_per_second: 1000.0,
        ..crate::support::settings::api(base_url)
    }
}

// === impl Subject ===

impl Subject {
    pub(crate) fn new(base_url: &str) -> Self {
        Self::with(settings(base_url))
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let mut registry = Registry::default();
        let client = Client::new(settings, ApiMetrics::register(&mut registry)).expect("a client");
        Self { client, registry }
    }

    /// The newest audit log page.
    pub(crate) async fn audit(&self) -> Result<AuditPage, ApiError> {
        self.client
            .audit_page(
                &AuditQuery {
                    limit: 100,
                    ..AuditQuery::default()
                },
                Priority::Live,
            )
            .await
    }

    /// Why there is no audit log page.
    pub(crate) async fn refused(&self) -> ApiError {
        self.audit().await.expect_err("no page")
    }

    /// The value of a counter, written as in the exposition.
    pub(crate) fn count(&self, series: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("encodable");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {series} in:\n{text}"))
            .parse()
            .expect("a number")
    }

    /// Failures of the audit log listing with this reason.
    pub(crate) fn failures(&self, reason: &str) -> f64 {
        self.count(&format!(
            "orgdata_api_request_failures_total{{endpoint=\"audit-logs\",reason=\"{reason}\"}}"
        ))
    }
}
