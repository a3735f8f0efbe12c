//! The `orgdata-exporter` binary.
fn main() {}
