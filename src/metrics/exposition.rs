//! The two forms of a scrape: OpenMetrics 1.0, and the classic text format 0.0.4.

use std::fmt;

use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

/// The form of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4, which every scraper and `promtool check metrics` can read.
    Text,
}

// === impl Format ===

impl Format {
    /// Returns the value of `Content-Type`, by which Prometheus chooses its parser.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => prometheus_text::CONTENT_TYPE,
        }
    }

    /// Encodes every family of `registry`.
    ///
    /// This takes tens of milliseconds for 100,000 series, so it must not run on a thread of the async runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if a collector fails.
    pub fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut scrape = String::new();
        match self {
            Self::OpenMetrics => text::encode(&mut scrape, registry)?,
            Self::Text => prometheus_text::encode(&mut scrape, registry)?,
        }
        Ok(scrape)
    }
}
