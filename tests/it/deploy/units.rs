//! The systemd units. `tests/real/systemd.rs` runs them.

use crate::support::files::file;

#[test]
fn a_dump_of_the_process_is_never_written() {
    let unit = file("deploy/systemd/orgdata-exporter.service");
    // It would hold the key.
    assert!(unit.lines().any(|line| line == "LimitCORE=0"), "{unit}");
}
