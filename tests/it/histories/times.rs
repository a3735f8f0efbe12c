//! How times are written, and whose clocks are wrong.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use orgdata_exporter::simulator::{ClockSource, Fault, Readings, TimeForm};

use super::{History, add_dated};
use crate::support::binary::until;
use crate::support::service::{reading, readings};

#[tokio::test]
async fn times_are_read_in_any_form() {
    let forms = [TimeForm::Seconds, TimeForm::Millis];
    let play = async |times| {
        let readings = readings(|it| it.times = times);
        let history = History::with(2000, readings, "--api.page-size=20").await;
        // More than a page of them have the same second.
        history.service.add_events(60);
        history.ends_with([60, 0, 0]).await;
    };
    join_all(forms.map(play)).await;
}

#[tokio::test]
async fn times_without_a_zone_that_are_ahead_count_no_history() {
    let readings = readings(|it| (it.times, it.zone_hours) = (TimeForm::NoZone, 2));
    let mut history = History::of(1000, readings).await;
    let delay: Fault = "delay=2500ms".parse().unwrap();
    history.service.fault(delay.once());
    history.before = None;
    history.start("").await;
    history.service.add_events(10);
    history.ends_with([10, 0, 0]).await;
}

#[tokio::test]
async fn a_late_row_is_found_deep_below_times_without_a_zone_that_are_behind() {
    let readings = readings(|it| (it.times, it.zone_hours) = (TimeForm::NoZone, -5));
    let mut history = History::with(200, readings, "").await;
    history.service.add_events(1);
    history.service.advance(Duration::from_secs(900));
    history.service.add_events(2600);
    history.ends_with([2601, 0, 0]).await;
    history.stop().await;
    history.service.add_late(1, Duration::from_secs(600));
    history.start("").await;
    history.ends_with([2602, 0, 0]).await;
}

#[tokio::test]
async fn a_clock_that_is_wrong_changes_nothing() {
    let play = async |(date_ahead, years): (i64, u64)| {
        let readings = readings(|it| it.date_ahead = date_ahead);
        let mut history = History::of(200, readings).await;
        let years = Duration::from_secs(years * 365 * 24 * 3600);
        history.service.advance(years);
        history.before = None;
        history.start("--audit.reread-interval=1h").await;
        history.service.add_events(5);
        history.counted(5).await;
        history.service.clear_requests();
        history.service.add_events(15);
        history.ends_with([20, 0, 0]).await;
        let requests = history.service.requests().last.into_iter();
        let below = requests.filter(|request| request.param("before").is_some());
        assert!(below.count() < 10, "polls do not end their sweeps");
    };
    join_all([(5 * 3600, 0), (-5 * 3600, 0), (0, 56)].map(play)).await;
}

#[tokio::test]
async fn an_entry_dated_2099_keeps_no_ids() {
    let history = History::with(200, Readings::default(), "--audit.reread-window=1s").await;
    history.service.add_events(12_000);
    history.counted(12_000).await;
    add_dated(&history.service, "2099-01-01T00:00:00Z".parse().unwrap());
    history.counted(12_001).await;
    history.service.advance(Duration::from_secs(3600));
    history.service.add_events(30);
    history.counted(12_031).await;
    let is_small = async || (history.known() < 12_000).then_some(());
    until("ids are pruned", is_small).await;
    history.service.add_late(1, Duration::from_secs(10));
    history.ends_with([12_032, 0, 0]).await;
}

/// A re-read goes deeper than the window, and the window has more events than ids are kept in any case.
#[tokio::test]
async fn what_a_re_read_meets_below_the_window_is_not_delivered_again() {
    let config = reading(20, Readings::default());
    let clock = ClockSource::Manual(Timestamp::now());
    let mut history = History::serving(config, clock).await;
    history.start("--audit.reread-window=1s").await;
    history.service.add_events(3000);
    history.counted(3000).await;
    history.service.advance(Duration::from_secs(3600));
    history.service.add_events(10_500);
    history.counted(13_500).await;
    history.requested(200).await;
    history.ends_with([13_500, 0, 0]).await;
}
