//! The two forms of a scrape: OpenMetrics 1.0, and the classic text format 0.0.4 derived from it.

use std::fmt;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub use super::series::true_values;

/// The form of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// OpenMetrics 1.0, as `prometheus-client` writes it.
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
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Encodes every family of `registry` as a scraper sees it; for anybody else, within [`true_values`].
    ///
    /// This takes tens of milliseconds for 100,000 series, so it must not run on a thread of the async runtime.
    ///
    /// # Errors
    ///
    /// Returns an error if a collector fails.
    pub fn encode(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut openmetrics = String::new();
        text::encode(&mut openmetrics, registry)?;
        Ok(match self {
            Self::OpenMetrics => openmetrics,
            Self::Text => classic(&openmetrics),
        })
    }
}

/// Derives the classic text format from OpenMetrics: descriptors name a family like its samples. All families are counters,
/// gauges or histograms.
fn classic(openmetrics: &str) -> String {
    // Descriptors of counters grow by `_total`.
    let mut out = String::with_capacity(openmetrics.len() + openmetrics.len() / 16 + 64);
    let mut help = "";
    for line in openmetrics.lines() {
        if let Some(descriptor) = line.strip_prefix("# HELP ") {
            // The type comes next, and it decides the name.
            help = descriptor;
        } else if let Some(descriptor) = line.strip_prefix("# TYPE ") {
            let (name, kind) = descriptor.split_once(' ').unwrap_or((descriptor, ""));
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            out.extend(["# HELP ", name, suffix, &help.replace('\\', "\\\\"), "\n"]);
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_form_names_counters_as_their_samples() {
        for (openmetrics, text) in [
            (
                "# HELP a_b Help.\n# TYPE a_b counter\na_b_total{x=\"1\"} 5\n# EOF\n",
                "# HELP a_b_total Help.\n# TYPE a_b_total counter\na_b_total{x=\"1\"} 5\n",
            ),
            (
                "# HELP a \n# TYPE a gauge\na 1\n",
                "# HELP a \n# TYPE a gauge\na 1\n",
            ),
            (
                "# HELP a say \"C:\\x\" # now\n# TYPE a gauge\n",
                "# HELP a say \"C:\\\\x\" # now\n# TYPE a gauge\n",
            ),
            ("# EOF\n", ""),
        ] {
            assert_eq!(classic(openmetrics), text);
        }
    }
}
