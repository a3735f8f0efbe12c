//! What once lost or miscounted entries in the field: each is played to the whole program.

use std::time::Duration;

use orgdata_exporter::simulator::{Fault, FaultKind, Fields, Readings, Simulator};

use super::{History, add_dated, hours};

/// Adds entries of one type, a second apart.
fn add_typed(sim: &Simulator, count: u64) {
    let fields = Fields::new().with("type", "TASK_COMPLETED");
    for _ in 0..count {
        sim.advance(Duration::from_secs(1));
        sim.add_entry(&fields).unwrap();
    }
}

#[tokio::test]
async fn an_organization_without_any_entry_is_up_and_counts_its_first_event() {
    let history = History::with(0, Readings::default(), "").await;
    history.exporter().synced().await;
    history.service.add_events(1);
    history.ends_with([1, 0, 0]).await;
}

#[tokio::test]
async fn after_a_change_of_the_filters_what_came_meanwhile_is_delivered_and_not_counted() {
    for (changed, events) in [("TASK_COMPLETED,TASK_CREATED", 0), ("TASK_COMPLETED", 2500)] {
        let flags = "--audit.activity-types=TASK_COMPLETED";
        let mut history = History::with(200, Readings::default(), flags).await;
        history.is_wanted = |entry| entry.activity_type == "TASK_COMPLETED";
        history.before = Some(2500 - events);
        history.requested(5).await;
        history.stop().await;
        add_typed(&history.service, 2500);
        let flags = format!("--audit.activity-types={changed}");
        history.start(&flags).await;
        if events == 0 {
            history.exporter().logs("the filters changed").await;
        }
        history.ends_with([events, 0, 0]).await;
    }
}

#[tokio::test]
async fn an_entry_dated_days_ahead_hides_nothing_after_an_outage() {
    let history = History::with(200, Readings::default(), "--audit.reread-interval=1h").await;
    add_dated(&history.service, history.service.now() + hours(72));
    history.counted(1).await;
    let fault: Fault = "status=503".parse().unwrap();
    history.service.fault(fault);
    history.exporter().logs("audit request failed").await;
    history.service.clear_faults();
    history.service.add_events(35);
    history.ends_with([36, 0, 0]).await;
}

/// A page of a catch-up is an empty last one every other time, although the page before said that there is more.
#[tokio::test]
async fn an_end_that_comes_and_goes_ends_nothing() {
    let mut history = History::of(5000, Readings::default()).await;
    history.before = Some(5000);
    history.service.on_request(Box::new(|request, _| {
        let is_below = request.param("before").is_some();
        let is_empty = is_below && request.number.is_multiple_of(2);
        is_empty.then(|| Fault::new(FaultKind::EmptyPage))
    }));
    history
        .start("--audit.start=oldest --api.page-size=200")
        .await;
    history.service.add_events(10);
    history.ends_with([10, 0, 0]).await;
}

/// A page with an entry that cannot be read stops neither sweeps nor what is above it.
#[tokio::test]
async fn an_entry_that_cannot_be_read_stops_nothing_else() {
    let mut history = History::with(200, Readings::default(), "--api.page-size=20").await;
    history.service.add_events(20);
    history.counted(20).await;
    history.stop().await;
    history.service.add_events(300);
    let id = history.service.add_entry(&Fields::new()).unwrap();
    history.service.add_events(400);
    history.service.fault(Fault::new(FaultKind::Poison(id)));
    history.start("--api.page-size=20").await;
    // All above it, and what comes now.
    history.counted(420).await;
    history.service.add_events(5);
    history.counted(425).await;
    let series = "orgdata_audit_behind";
    assert_eq!(history.exporter().value(series).await, Some(1.0));
    history.service.clear_faults();
    history.ends_with([726, 0, 0]).await;
}
