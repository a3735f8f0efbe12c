//! `orgdata_certificate_not_after_timestamp_seconds`: when the exporter's own certificates expire.

use std::fmt;
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::family::{Writer, descriptors};

descriptors! {
    /// When a certificate of the exporter expires, in seconds since the epoch: web (its own endpoints), otlp (presented to
    /// the collector). The earliest of the chain; absent without a certificate.
    NOT_AFTER = "orgdata_certificate_not_after_timestamp_seconds" ["used_for"];
}

/// The value of the label `used_for`, and a function that returns when the certificate that was last loaded expires. Each
/// scrape calls it, so that it must not read a file.
pub type Certificate = (
    &'static str,
    Box<dyn Fn() -> Option<Timestamp> + Send + Sync>,
);

/// The certificates in use; none until they are [set](Self::set). Clones share them.
#[derive(Clone, Default)]
pub struct Certificates(Arc<OnceLock<Vec<Certificate>>>);

/// Returns when the first certificate of a PEM file expires.
pub fn not_after_pem(pem: &[u8]) -> Option<Timestamp> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    Timestamp::try_from(exporter_web::not_after(&chain.ok()?)?).ok()
}

// === impl Certificates ===

impl Certificates {
    /// Sets the certificates; later calls have no effect.
    pub fn set(&self, certificates: Vec<Certificate>) {
        let _ = self.0.set(certificates);
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates")
    }
}

impl Collector for Certificates {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let certificates = self.0.get().into_iter().flatten();
        let expiries = certificates
            .filter_map(|(used_for, not_after)| Some(([used_for], not_after()?.as_second())));
        Writer(encoder).gauges(NOT_AFTER, expiries)
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
        let scrape = || {
            let scrape = Format::OpenMetrics.encode(metrics.registry());
            scrape.expect("encodes")
        };
        assert!(!scrape().contains("orgdata_certificate"));
        let end = Timestamp::from_second(1_800_000_000).expect("a time");
        metrics.certificates.set(vec![
            ("web", Box::new(move || Some(end))),
            ("otlp", Box::new(|| None)),
        ]);
        assert!(scrape().contains("{used_for=\"web\"} 1800000000\n"));
        assert!(!scrape().contains("used_for=\"otlp\""));
    }
}
