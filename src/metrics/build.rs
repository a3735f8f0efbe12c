//! `orgdata_exporter_build_info`: which build this is.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit the binary was built from, `unknown` outside a checkout.
pub const REVISION: &str = env!("ORGDATA_REVISION");

/// The compiler the binary was built with.
pub const RUSTC: &str = env!("ORGDATA_RUSTC");

/// Registers the family.
pub fn register(registry: &mut Registry) {
    let info = Family::<[(&'static str, &'static str); 3], Gauge>::default();
    info.get_or_create(&[
        ("version", VERSION),
        ("revision", REVISION),
        ("rustc", RUSTC),
    ])
    .set(1);
    registry.register(
        "orgdata_exporter_build_info",
        "The build of this exporter; always 1",
        info,
    );
}
