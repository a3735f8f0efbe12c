//! What once lost or miscounted entries in the field: each is played to the whole program.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    Config, Fault, FaultKind, Fields, KeyReading, Readings, Simulator,
};

use super::{History, add_dated, hours};
use crate::support::binary::{exporter, until};
use crate::support::service::{reading, readings};

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
    for (changed, events) in [("TASK_COMPLETED,TASK_CREATED", 0), ("TASK_COMPLETED", 600)] {
        let flags = "--audit.activity-types=TASK_COMPLETED";
        let mut history = History::with(200, Readings::default(), flags).await;
        history.is_wanted = |entry| entry.activity_type == "TASK_COMPLETED";
        history.before = Some(600 - events);
        history.requested(5).await;
        history.stop().await;
        add_typed(&history.service, 600);
        let flags = format!("--audit.activity-types={changed}");
        history.start(&flags).await;
        if events == 0 {
            history.exporter().logs("the filters changed").await;
        }
        history.ends_with([events, 0, 0]).await;
    }
}

/// It is below the ten newest entries, so a pass has to find it.
#[tokio::test]
async fn what_appears_late_across_a_first_sync_is_delivered_and_not_counted() {
    let mut history = History::of(0, Readings::default()).await;
    let now = history.service.now();
    let add = |service: &Simulator, seconds: i64| {
        let at = now - SignedDuration::from_secs(seconds);
        let fields = Fields::new().with("createdAt", format!("{at:.3}"));
        let fields = fields.with("type", "TASK_COMPLETED");
        service.add_entry(&fields).unwrap();
    };
    for minute in (1..=40).rev() {
        add(&history.service, 60 * minute);
    }
    for (late, flags) in [(1, ""), (2, "--audit.activity-types=TASK_COMPLETED")] {
        history.start(flags).await;
        history.requested(5).await;
        add(&history.service, 1200 + 7 * late);
        history.ends_with([0, late as u64, 0]).await;
    }
}

/// The first page with other filters has entries that the history was still to read.
#[tokio::test]
async fn a_history_under_way_goes_on_with_other_filters() {
    let mut history = History::of(0, Readings::default()).await;
    add_typed(&history.service, 400);
    history.before = Some(400);
    history.service.on_request(Box::new(|request, _| {
        request
            .param("before")
            .map(|_| "status=503".parse().unwrap())
    }));
    history
        .start("--audit.start=oldest --api.page-size=20")
        .await;
    history.stop().await;
    history.service.on_request(Box::new(|_, _| None));
    let flags = "--audit.start=oldest --api.page-size=100 --audit.activity-types=TASK_COMPLETED";
    history.start(flags).await;
    history.has_history().await;
    history.ends_with([0, 0, 0]).await;
}

/// The first answer of all is an empty page by accident.
#[tokio::test]
async fn an_empty_first_answer_ends_no_history() {
    let mut history = History::of(300, Readings::default()).await;
    history.service.on_request(Box::new(|request, _| {
        (request.number == 1).then(|| Fault::new(FaultKind::EmptyPage))
    }));
    // A sweep takes its ten pages as if they had come just now.
    history.before = Some(200);
    history
        .start("--audit.start=oldest --api.page-size=10")
        .await;
    history.has_history().await;
    history.ends_with([0, 100, 0]).await;
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

/// For some seconds a page of a catch-up is an empty last one every other time, although the page before said that there is more.
#[tokio::test]
async fn an_end_that_comes_and_goes_ends_nothing() {
    let mut history = History::of(1500, Readings::default()).await;
    history.before = Some(1500);
    history.service.on_request(Box::new(|request, _| {
        let is_below = request.param("before").is_some();
        let is_empty = is_below && request.number < 300 && request.number.is_multiple_of(2);
        is_empty.then(|| Fault::new(FaultKind::EmptyPage))
    }));
    history
        .start("--audit.start=oldest --api.page-size=100")
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

/// Every cursor leads to the newest page for a while.
#[tokio::test]
async fn a_listing_that_leads_back_to_its_top_is_read_once_it_no_longer_does() {
    let to_top = |it: &mut Readings| {
        (it.expired_is_newest, it.cursor_ttl) = (true, Some(0));
    };
    let mut history = History::of(1000, readings(to_top)).await;
    history.before = Some(1000);
    history
        .start("--audit.start=oldest --api.page-size=100")
        .await;
    history.service.add_events(150);
    history.requested(40).await;
    history.service.change_readings(|it| it.cursor_ttl = None);
    history.ends_with([150, 0, 0]).await;
    history.has_history().await;
}

/// One answer has a `Date` of tomorrow, the first one or a later one.
#[tokio::test]
async fn a_date_of_tomorrow_in_one_answer_changes_nothing() {
    for which in [1, 10] {
        let mut history = History::serving(Config {
            history_span: Duration::from_secs(3600),
            ..reading(200, Readings::default())
        })
        .await;
        history.before = Some(200);
        history.service.on_request(Box::new(move |request, sim| {
            let ahead = if request.number == which { 86_400 } else { 0 };
            sim.change_readings(|it| it.date_ahead = ahead);
            None
        }));
        history.start("--audit.start=24h --api.page-size=20").await;
        history.requested(20).await;
        history.service.add_events(20);
        history.ends_with([20, 0, 0]).await;
        history.has_history().await;
        let through = "orgdata_audit_complete_through_timestamp_seconds";
        let through = history.exporter().value(through).await.unwrap();
        assert!(through <= Timestamp::now().as_second() as f64 + 1.0);
    }
}

/// Adds so many events while nothing runs, of which a catch-up makes 20 pages.
async fn behind(readings: Readings) -> History {
    let mut history = History::with(200, readings, "").await;
    history.stop().await;
    history.service.add_events(2000);
    history
}

#[tokio::test]
async fn a_catch_up_ends_although_one_request_in_five_fails() {
    let mut history = behind(Readings::default()).await;
    let fault: Fault = "status=500".parse().unwrap();
    history.service.fault(fault.every(5));
    history.start("--api.page-size=100").await;
    history.counted(2000).await;
    history.service.clear_faults();
    history.ends_with([2000, 0, 0]).await;
}

#[tokio::test]
async fn a_catch_up_ends_although_the_exporter_is_killed_all_the_time() {
    let mut history = behind(Readings::default()).await;
    for _ in 0..8 {
        // As slow as the API: a life has time for a few pages below those of the sweep. Nobody takes records, because what a killed
        // exporter was sending comes twice.
        history
            .start("--api.page-size=40 --api.max-requests-per-second=40 --otlp.endpoint=http://127.0.0.1:1")
            .await;
        history.requested(15).await;
        history.exporter.take().unwrap().kill();
    }
    history.start("--api.page-size=40").await;
    history.requested(30).await;
    history.ends_with([2000, 0, 0]).await;
}

#[tokio::test]
async fn a_catch_up_ends_with_few_requests_of_small_pages() {
    let mut history = behind(readings(|it| it.page_cap = Some(50))).await;
    history.start("--api.max-requests-per-second=20").await;
    history.ends_with([2000, 0, 0]).await;
}

/// Polls are due twice as often as requests may be made.
#[tokio::test]
async fn history_passes_and_polls_all_go_on_although_requests_are_scarce() {
    let mut history = History::of(300, Readings::default()).await;
    history.before = Some(300);
    history
        .start("--audit.start=oldest --api.page-size=50 --audit.poll-interval=100ms --api.max-requests-per-second=5")
        .await;
    history.service.add_events(3);
    history.service.add_late(2, Duration::from_secs(1));
    history.counted(5).await;
    history.has_history().await;
    history.ends_with([5, 0, 0]).await;
}

#[tokio::test]
async fn the_start_of_history_is_counted_from_the_first_start() {
    let mut history = History::of(200, Readings::default()).await;
    history.service.fault(Fault::new(FaultKind::Hang));
    let mut created = Vec::new();
    for start in 1..=5 {
        let launch = exporter(&history.service.base_url()).flag("--audit.start", "24h");
        let mut exporter = launch.state(&history.dir.path().join("state.db")).start();
        history.asked(start).await;
        exporter.kill();
        created.push(history.created());
    }
    history.service.clear_faults();
    history.before = None;
    history.start("--audit.start=24h").await;
    created.push(history.created());
    created.dedup();
    assert_eq!(created.len(), 1, "the file was created at {created:?}");
    let from = created[0] - hours(24);
    history
        .exporter()
        .logs(&format!("history_from={from}"))
        .await;
}

/// A replica is empty just when a pass begins to read what a sweep left out.
#[tokio::test]
async fn an_empty_page_at_the_beginning_of_a_pass_ends_nothing() {
    let mut history = History::with(200, Readings::default(), "").await;
    history.stop().await;
    history.service.add_events(800);
    let mut below = 0;
    history.service.on_request(Box::new(move |request, _| {
        let is_top = request.param("before").is_none();
        below += u32::from(!is_top);
        // After the ten pages of the first sweep.
        let is_first = is_top && below == 9;
        below += u32::from(is_first);
        is_first.then(|| Fault::new(FaultKind::EmptyPage))
    }));
    history.start("--api.page-size=20").await;
    history.ends_with([800, 0, 0]).await;
}

#[tokio::test]
async fn an_import_on_top_hides_nothing_although_a_page_fails() {
    let by_arrival = readings(|it| it.key = KeyReading::Arrival);
    let history = History::with(200, by_arrival, "--api.page-size=20").await;
    let last_year = history.service.now() - hours(365 * 24);
    history.service.on_request(Box::new({
        let mut is_done = false;
        move |_, sim| {
            if !std::mem::replace(&mut is_done, true) {
                sim.add_events(20);
                for minute in 0..500 {
                    add_dated(sim, last_year + SignedDuration::from_mins(minute));
                }
                let below = sim.entries().nth(400).unwrap();
                sim.fault(Fault::new(FaultKind::Poison(below.id)).times(6));
            }
            None
        }
    }));
    history.ends_with([20, 500, 0]).await;
}

/// The listing is empty for weeks, because all of it was deleted.
#[tokio::test]
async fn a_first_entry_after_weeks_without_any_is_no_gap() {
    let history = History::with(20, Readings::default(), "").await;
    history.service.retain(0);
    history.service.advance(Duration::from_secs(15 * 24 * 3600));
    history.requested(20).await;
    history.service.add_events(1);
    history.ends_with([1, 0, 0]).await;
}

#[tokio::test]
async fn a_replica_that_is_behind_now_and_then_changes_nothing() {
    let history = History::with(200, Readings::default(), "").await;
    history.service.on_request(Box::new(|request, sim| {
        sim.change_readings(|readings| readings.behind = 3 * (request.number as usize % 2));
        None
    }));
    for total in 1..=5 {
        history.service.add_events(1);
        history.counted(total).await;
    }
    history.ends_with([5, 0, 0]).await;
}

#[tokio::test]
async fn an_entry_dated_2099_keeps_no_ids() {
    let history = History::with(
        200,
        Readings::default(),
        "--audit.reread-window=1s --api.page-size=500",
    )
    .await;
    history.service.add_events(4_000);
    history.counted(4_000).await;
    add_dated(&history.service, "2099-01-01T00:00:00Z".parse().unwrap());
    history.counted(4_001).await;
    history.service.advance(Duration::from_secs(3600));
    history.service.add_events(30);
    let is_small = async || (history.known() < 4_000).then_some(());
    until("ids are pruned", is_small).await;
    history.service.add_late(1, Duration::from_secs(10));
    history.ends_with([4_032, 0, 0]).await;
}
