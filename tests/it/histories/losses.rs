//! Entries that vanish.

use std::time::Duration;

use futures_util::future::join_all;
use orgdata_exporter::simulator::{Fault, Readings};

use super::History;
use crate::support::service::readings;

/// The client repeats a request three times by itself.
#[tokio::test]
async fn errors_at_the_first_start_count_no_history() {
    let play = async |(fault, times): (&str, u64)| {
        let mut history = History::of(6000, Readings::default()).await;
        let fault: Fault = fault.parse().unwrap();
        history.service.fault(fault.times(times));
        history.start("").await;
        history.service.add_events(3);
        history.ends_with([3, 0, 0]).await;
    };
    join_all([("status=503", 4)].map(play)).await;
}

#[tokio::test]
async fn a_first_sync_that_failed_once_is_a_success_in_the_end() {
    let mut history = History::of(20, Readings::default()).await;
    let fault: Fault = "status=503".parse().unwrap();
    history.service.fault(fault.times(4));
    history.start("").await;
    history.exporter().synced().await;
}

#[tokio::test]
async fn entries_that_the_listing_dropped_are_one_gap() {
    let readings = readings(|it| it.keep = Some(500));
    let history = History::with(500, readings, "").await;
    history.service.advance(Duration::from_secs(60));
    history.service.add_events(2000);
    history.ends_with([500, 0, 1]).await;
    history.service.add_events(100);
    history.ends_with([600, 0, 1]).await;
}

#[tokio::test]
async fn an_entry_that_came_late_while_the_exporter_was_off_is_found() {
    let mut history = History::with(200, Readings::default(), "").await;
    history.service.add_events(20);
    history.counted(20).await;
    history.requested(60).await;
    history.stop().await;
    history.service.advance(Duration::from_secs(15 * 60));
    history.service.add_late(1, Duration::ZERO);
    history.service.advance(Duration::from_secs(165 * 60));
    history.service.add_events(30);
    history.start("").await;
    history.ends_with([51, 0, 0]).await;
}

#[tokio::test]
async fn rows_erased_while_they_are_read_hide_no_others() {
    let readings = readings(|it| it.row_cursors = true);
    let mut history = History::of(1000, readings).await;
    let ids: Vec<String> = history.service.entries().map(|entry| entry.id).collect();
    let erased: Vec<String> = ids.iter().skip(780 % 21).step_by(21).cloned().collect();
    history.before = Some(1000 - erased.len() as u64);
    history.service.on_request(Box::new(move |request, sim| {
        if request.number == 1 {
            sim.delete(&erased);
        }
        None
    }));
    history
        .start("--audit.start=oldest --api.page-size=20")
        .await;
    history.service.add_events(5);
    history.ends_with([5, 0, 0]).await;
}

#[tokio::test]
async fn a_replica_that_is_behind_now_and_then_changes_nothing() {
    let history = History::with(200, Readings::default(), "").await;
    history.service.on_request(Box::new(|request, sim| {
        sim.change_readings(|readings| readings.behind = 3 * (request.number as usize % 2));
        None
    }));
    for total in 1..=10 {
        history.service.add_events(1);
        history.counted(total).await;
    }
    history.ends_with([10, 0, 0]).await;
}
