//! `orgdata_certificate_not_after_timestamp_seconds`: when the exporter's own certificates end.

use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode as _;

/// The certificates in use; none until they are [set](Self::set). A clone shows the same ones.
#[derive(Clone, Default)]
pub struct Certificates {
    sources: Arc<OnceLock<Vec<Certificate>>>,
}

/// What a certificate is used for, and a look at when it ends, made at each scrape.
pub type Certificate = (
    &'static str,
    Box<dyn Fn() -> Option<Timestamp> + Send + Sync>,
);

/// When the first certificate of a chain ends; `None` where none can be read.
pub fn not_after<'a>(chain: impl IntoIterator<Item = &'a CertificateDer<'a>>) -> Option<Timestamp> {
    let ends = chain.into_iter().filter_map(|certificate| {
        let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
        let end = certificate
            .tbs_certificate
            .validity
            .not_after
            .to_unix_duration();
        Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
    });
    ends.min()
}

// === impl Certificates ===

impl Certificates {
    /// Shows these from now on; the first call counts.
    pub fn set(&self, sources: Vec<Certificate>) {
        // A second one could only be the same settings once more.
        let _ = self.sources.set(sources);
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(
                self.sources
                    .get()
                    .into_iter()
                    .flatten()
                    .map(|(used_for, _)| used_for),
            )
            .finish()
    }
}

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sources = self.sources.get().into_iter().flatten();
        let ends: Vec<_> = sources
            .filter_map(|(used_for, not_after)| Some((used_for, not_after()?)))
            .collect();
        let Some(((_, any), _)) = ends.split_first() else {
            return Ok(());
        };
        let gauge = |end: &Timestamp| ConstGauge::new(end.as_second());
        let mut family = encoder.encode_descriptor(
            "orgdata_certificate_not_after_timestamp_seconds",
            "When a certificate of the exporter ends, in seconds since the epoch: web (its own pages and metrics), otlp (shown to the \
             collector). The earliest of its chain; without a certificate there is no series.",
            None,
            gauge(any).metric_type(),
        )?;
        for (used_for, end) in &ends {
            gauge(end).encode(family.encode_family(&[("used_for", **used_for)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::Metrics;
    use crate::metrics::exposition::Format;

    #[test]
    fn a_certificate_that_cannot_be_read_has_no_series() {
        let metrics = Metrics::new(Duration::ZERO);
        let shown = || {
            Format::OpenMetrics
                .encode(metrics.registry(), 0)
                .expect("encodes")
        };
        assert!(!shown().contains("orgdata_certificate"));
        let end = Timestamp::from_second(1_800_000_000).expect("a time");
        metrics.certificates.set(vec![
            ("web", Box::new(move || Some(end))),
            ("otlp", Box::new(|| None)),
        ]);
        assert!(shown().contains(
            "orgdata_certificate_not_after_timestamp_seconds{used_for=\"web\"} 1800000000\n"
        ));
        assert!(!shown().contains("used_for=\"otlp\""));
        assert_eq!(
            not_after(&[CertificateDer::from(b"no certificate".to_vec())]),
            None
        );
    }
}
