//! `orgdata_certificate_not_after_timestamp_seconds` and `…_not_before_…`: when the exporter's own certificates expire and began.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

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
    /// From when that certificate is valid, in seconds since the epoch. The difference is its lifetime.
    NOT_BEFORE = "orgdata_certificate_not_before_timestamp_seconds" ["used_for"];
}

/// The value of the label `used_for`, and a function that returns from when until when the certificate that was last loaded is
/// valid. Each scrape calls it, so that it must not read a file.
pub type Certificate = (
    &'static str,
    Box<dyn Fn() -> Option<Range<Timestamp>> + Send + Sync>,
);

/// The certificates in use; none until they are [set](Self::set). Clones share them.
#[derive(Clone, Default)]
pub struct Certificates(Arc<OnceLock<Vec<Certificate>>>);

/// Returns from when until when the certificate of a PEM file that expires first is valid.
pub(crate) fn validity_pem(pem: &[u8]) -> Option<Range<Timestamp>> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    timestamps(exporter_web::validity(&chain.ok()?)?)
}

/// Converts a range of time; `None` if it is out of range.
pub(crate) fn timestamps(range: Range<SystemTime>) -> Option<Range<Timestamp>> {
    Some(range.start.try_into().ok()?..range.end.try_into().ok()?)
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
        let certificates = certificates
            .filter_map(|(used_for, validity)| Some(([*used_for], validity()?)))
            .collect::<Vec<_>>();
        let ends = certificates
            .iter()
            .map(|(of, it)| (*of, it.end.as_second()));
        let begins = certificates
            .iter()
            .map(|(of, it)| (*of, it.start.as_second()));
        let mut families = Writer(encoder);
        families.gauges(NOT_AFTER, ends)?;
        families.gauges(NOT_BEFORE, begins)
    }
}
