//! Entries that the service cannot return.

use std::time::Duration;

use orgdata_exporter::simulator::{Fault, FaultKind, Fields, Readings, Simulator};

use super::{History, add_dated, two_bursts};
use crate::support::service::readings;

fn poison(id: &str) -> Fault {
    Fault::new(FaultKind::Poison(id.to_owned()))
}

#[tokio::test]
async fn a_counted_row_that_cannot_be_read_any_more_fails_nothing() {
    let history = History::with(200, Readings::default(), "").await;
    history.service.add_events(3);
    let id = history.service.add_entry(&Fields::new()).unwrap();
    history.service.add_events(4);
    history.counted(8).await;
    history.service.fault(poison(&id));
    history.exporter().logs("audit request failed").await;
    history.exporter().logs("work again").await;
    for _ in 0..20 {
        history.requested(3).await;
        let scrape = history.exporter().scrape().await;
        assert_eq!(scrape.value("orgdata_up{loop=\"audit\"}"), Some(1.0));
        assert!(scrape.sum("orgdata_api_request_failures_total") > 0.0);
    }
    history.service.clear_faults();
    history.service.add_events(5);
    history.ends_with([13, 0, 0]).await;
}

#[tokio::test]
async fn a_row_that_cannot_be_read_holds_up_what_is_below_it_in_its_sweep() {
    let mut history = History::busy(Readings::default()).await;
    history.start("--api.page-size=8").await;
    let first = |sim: &Simulator| sim.add_events(40);
    two_bursts(&history.service, first, |sim| {
        sim.add_events(10);
        let id = sim.add_entry(&Fields::new()).unwrap();
        sim.fault(poison(&id));
        sim.add_events(12);
    });
    history.counted(52).await;
    history.service.add_late(1, Duration::from_secs(1800));
    history.service.add_events(5);
    history.counted(58).await;
    assert_eq!(history.late().await, 1.0);
    history.service.clear_faults();
    history.ends_with([69, 0, 0]).await;
}

#[tokio::test]
async fn a_newest_row_that_cannot_be_read_stops_nothing() {
    let mut history = History::busy(Readings::default()).await;
    history.before = Some(200);
    history
        .start("--audit.start=oldest --api.page-size=20")
        .await;
    history.service.add_events(20);
    history.counted(20).await;
    let id = history.service.add_entry(&Fields::new()).unwrap();
    history.service.fault(poison(&id));
    history.requested(5).await;
    history.service.add_late(1, Duration::from_secs(1800));
    history.counted(21).await;
    history.has_history().await;
    history.service.add_events(4);
    history.counted(25).await;
    assert_eq!(history.late().await, 1.0);
    history.service.clear_faults();
    history.ends_with([26, 0, 0]).await;
}

#[tokio::test]
async fn more_entries_of_one_time_than_a_page_holds_are_no_end() {
    let readings = readings(|it| it.time_cursors = true);
    let mut history = History::busy(readings).await;
    history.start("--api.page-size=100").await;
    let now = history.service.now();
    for _ in 0..150 {
        add_dated(&history.service, now);
    }
    history.service.advance(Duration::from_secs(1));
    history.service.add_events(30);
    history.counted(130).await;
    history.service.add_events(5);
    history.stays_at([135, 0, 0]).await;
    let up = history.exporter().value("orgdata_up{loop=\"audit\"}").await;
    assert_eq!(up, Some(0.0), "entries cannot be read");
    history.start("--api.page-size=200").await;
    history.ends_with([185, 0, 0]).await;
}
