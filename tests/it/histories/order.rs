//! What stands where in the listing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orgdata_exporter::simulator::{Fields, Readings, Simulator};

use super::{History, Scrape, add_dated, hours, two_bursts};
use crate::support::service::readings;

#[tokio::test]
async fn a_node_whose_clock_is_ahead_hides_nothing() {
    for node_ahead in [10, 60] {
        let readings = readings(|it| it.node_ahead = node_ahead);
        let history = History::with(200, readings, "--api.page-size=20").await;
        for _ in 0..6 {
            history.service.add_events(30);
            history.requested(3).await;
        }
        history.ends_with([180, 0, 0]).await;
    }
}

#[tokio::test]
async fn an_only_entry_dated_tomorrow_hides_nothing() {
    let mut history = History::of(0, Readings::default()).await;
    add_dated(&history.service, history.service.now() + hours(24));
    history.start("").await;
    for (added, total) in [(1, 1), (1, 2), (38, 40)] {
        history.service.add_events(added);
        history.ends_with([total, 0, 0]).await;
    }
}

#[tokio::test]
async fn a_burst_below_an_entry_dated_ahead_is_counted_by_polls() {
    let history = History::with(200, Readings::default(), "--audit.reread-interval=1h").await;
    add_dated(&history.service, history.service.now() + hours(24));
    history.ends_with([1, 0, 0]).await;
    history.service.add_events(50);
    history.counted(51).await;
    history.service.add_events(1);
    history.counted(52).await;
}

#[tokio::test]
async fn two_bursts_below_an_entry_dated_ahead_are_counted_by_polls() {
    let flags = "--audit.reread-interval=1h --api.page-size=10";
    let history = History::with(200, Readings::default(), flags).await;
    add_dated(&history.service, history.service.now() + hours(24));
    history.counted(1).await;
    let burst = |sim: &Simulator| sim.add_events(30);
    two_bursts(&history.service, burst, burst);
    history.counted(61).await;
}

#[tokio::test]
async fn re_reads_go_on_although_each_poll_finds_more_than_a_page() {
    let readings = readings(|it| it.page_cap = Some(20));
    let mut history = History::busy(readings).await;
    history.start("--audit.poll-interval=50ms").await;
    let is_flooded = Arc::new(AtomicBool::new(true));
    let flooded = is_flooded.clone();
    history.service.on_request(Box::new(move |request, sim| {
        if request.param("before").is_none() && flooded.load(Ordering::SeqCst) {
            sim.add_events(30);
        }
        None
    }));
    history.service.advance(Duration::from_secs(3600));
    history.requested(10).await;
    history.service.add_late(1, Duration::from_secs(1800));
    let series = "orgdata_audit_events_late_total";
    history.exporter().until_value(series, 1.0).await;
    is_flooded.store(false, Ordering::SeqCst);
    let events = history.service.entries().count() as u64 - 200;
    history.ends_with([events, 0, 0]).await;
}

#[tokio::test]
async fn each_task_goes_on_at_any_request_limit() {
    let flags = "--audit.start=oldest --api.page-size=50 --api.max-requests-per-second=30";
    let mut history = History::of(1500, Readings::default()).await;
    history.before = Some(1500);
    history.start(flags).await;
    history.service.add_events(200);
    history.counted(200).await;
    history.service.advance(Duration::from_secs(3600));
    history.service.add_events(1);
    history.service.add_late(1, Duration::from_secs(600));
    history.has_history().await;
    history.ends_with([202, 0, 0]).await;
}

#[tokio::test]
async fn matches_far_apart_are_all_counted() {
    for (rows, page_size) in [(40, 10), (3_000, 1000)] {
        let readings = readings(|it| it.filter_after_limit = true);
        let flags =
            format!("--audit.activity-types=RARE --api.page-size={page_size} --audit.start=oldest");
        let mut history = History::of(0, readings).await;
        history.is_wanted = |entry| entry.activity_type == "RARE";
        history.before = Some(1);
        let rare = Fields::new().with("type", "RARE");
        history.service.add_entry(&rare).unwrap();
        history.service.add_events(rows);
        history.service.advance(Duration::from_secs(2));
        history.start(&flags).await;
        for _ in 0..5 {
            history.service.add_events(rows);
            history.service.add_entry(&rare).unwrap();
        }
        history.ends_with([5, 0, 0]).await;
    }
}

#[tokio::test]
async fn a_renamed_organization_has_its_new_name() {
    let history = History::with(20, Readings::default(), "").await;
    for name in ["New Name", "Newer Name"] {
        history.service.rename(name);
        history.service.add_events(1);
        let is_named = |scrape: &Scrape| {
            let series = scrape.series("orgdata_organization_info");
            let names: Vec<String> = series.map(|(labels, _)| labels[1].clone()).collect();
            names == [name]
        };
        history.exporter().until(name, is_named).await;
    }
}
