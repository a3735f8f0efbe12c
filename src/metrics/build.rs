//! The build of the exporter.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::family::{Labels, families, family};

/// The crate's version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit the binary was built from; `unknown` outside a checkout.
pub(crate) const REVISION: &str = env!("BUILD_REVISION");

/// The address of the repository, with the documentation; empty if it was not known.
pub(crate) const REPOSITORY: &str = env!("BUILD_REPOSITORY");

/// The compiler the binary was built with.
pub(crate) const RUSTC: &str = env!("BUILD_RUSTC");

/// The labels of the build.
const BUILD: Labels<3> = [
    ("version", VERSION),
    ("revision", REVISION),
    ("rustc", RUSTC),
];

families! {
    /// The families `orgdata_exporter_*`.
    pub struct ExporterMetrics {
        /// The build of this exporter; always 1.
        "orgdata_exporter_build_info" => build: Family<Labels<3>, Gauge> = family(one, [BUILD]),
    }
}

fn one() -> Gauge {
    let gauge = Gauge::default();
    gauge.set(1);
    gauge
}
