//! A service that loses entries: what it lost before it was read is a gap, and nothing else changes.

use orgdata_exporter::ledger::StatePath;

use super::bench::Bench;
use super::case::forgetful;
use super::exact::block_on;
use crate::support::cases::check;

#[test]
fn what_the_service_loses_is_reported_and_the_rest_is_exact() {
    check(
        "what_the_service_loses_is_reported_and_the_rest_is_exact",
        400,
        &forgetful(),
        |case| {
            block_on(async {
                let mut bench = Bench::new(case, StatePath::Memory).await;
                bench.lossy = true;
                for step in &case.steps {
                    bench.step(step).await;
                }
                bench.check_rest().await;
                bench.stop().await;
            });
        },
    );
}
