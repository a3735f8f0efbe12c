//! Histories that take longer than a test may: the tail on a clock that stands still while it works.

use std::time::Duration;

use orgdata_exporter::audit::Start;
use orgdata_exporter::simulator::{ExpiredReading, Fault, Readings, Simulator};

use crate::support::service::{reading, readings};
use crate::tail::Bench;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns a tail that counts.
async fn paused(history: u64, readings: Readings) -> Bench {
    let service = Simulator::new(reading(history, readings));
    let mut paused = Bench::new(service, Start::Now, 10, Duration::from_secs(15));
    paused.pass(Duration::from_secs(120)).await;
    assert!(paused.tail.state().is_synced);
    paused
}

#[tokio::test(start_paused = true)]
async fn cursors_that_expire_during_a_pause_are_no_end() {
    let readings = readings(|it| (it.cursor_ttl, it.expired) = (Some(60), ExpiredReading::Empty));
    let mut paused = paused(200, readings).await;
    paused.service.add_events(100);
    let polls = paused.service.requests().audit;
    while paused.service.requests().audit < polls + 4 {
        paused.tail.hurry_sweep();
        paused.tail.round().await;
    }
    let pause: Fault = "retry-after=90".parse().unwrap();
    paused.service.fault(pause.once());
    paused.pass(Duration::from_secs(600)).await;
    assert_eq!(paused.taken().await, (100, 100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_first_entry_after_weeks_without_any_is_no_gap() {
    let mut paused = paused(20, Readings::default()).await;
    paused.service.retain(0);
    paused.pass(15 * DAY).await;
    paused.service.add_events(1);
    paused.pass(Duration::from_secs(60)).await;
    assert_eq!(paused.taken().await, (1, 1, 0));
}
