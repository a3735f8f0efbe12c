//! `--to openmetrics FILE`: the counters as they would have been, and where they meet the live ones.

use futures_util::future::join_all;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::Fields;
use serde_json::{Value, json};

use super::support::{World, done, fails, hours, label, labels, series, sum};
use crate::support::binary::{Scrape, until};

#[tokio::test]
async fn the_counters_are_those_of_the_range_at_each_step() {
    let world = World::new(3_000).await;
    let (from, end) = (world.hours_ago(48), world.hours_ago(7));
    let flags = format!(
        "--from={from} --until={end} --label=job=orgdata-exporter --label=instance=a:1 --step=30s"
    );
    let stdout = done(world.to_file(&flags)).await;
    let is_inside = |at: Timestamp| at >= from && at < end;
    let expected = world.truth(is_inside);
    let events = sum(&expected);
    assert!(events > 500.0);
    assert_eq!(world.totals(), expected);
    let file = world.path("h.om");
    let words = format!(
        "promtool tsdb create-blocks-from --max-block-duration=744h openmetrics {} ",
        file.display()
    );
    let is_told = stdout.contains(&format!("{events} audit events")) && stdout.contains(&words);
    assert!(is_told, "{stdout}");
    assert_eq!(world.files(), 1, "nothing else is left");

    // Each sample shows the events until then. The last one shows those of the last minute too.
    let last = (end - SignedDuration::from_mins(1)).as_second() as f64;
    let entries = world.entries(is_inside);
    for sample in world.samples() {
        let time = sample.time.expect("a time");
        assert!(time % 30.0 == 0.0 && time <= last);
        let target = ["job", "instance"].map(|name| label(&sample, name));
        assert_eq!(target, ["orgdata-exporter", "a:1"]);
        let series = series(&sample);
        let by_then = entries.iter().filter(|entry| {
            let created = entry.created_at.as_millisecond() as f64;
            labels(entry) == series && created <= time * 1000.0
        });
        if time + 30.0 <= last {
            assert_eq!(sample.value, by_then.count() as f64);
        }
    }
}

/// What the exporter found when it began is in the file, what came since is in its counters, and nothing is in both.
/// The newest entry may be of the very moment when it began, or older.
#[tokio::test]
async fn the_file_ends_where_the_live_counters_begin() {
    let cases = [(0, "now"), (45, "now"), (45, "oldest")];
    join_all(cases.map(|(quiet, start)| nothing_is_in_both(quiet, start))).await;
}

async fn nothing_is_in_both(quiet: u32, start: &str) {
    let world = World::new(1_500).await;
    let service = world.service();
    service.add_events(5);
    service.advance(hours(1) * quiet / 60);
    let start = format!("--audit.start={start}");
    let flags = ["--audit.reread-interval=100ms", &start];
    let exporter = world.exporter("state.db", &flags).await;
    // A moment later, later, and late.
    service.advance(hours(1) / 3600);
    service.add_events(40);
    service.advance(hours(1) / 6);
    service.add_events(60);
    service.add_late(4, hours(1) / 12);
    let is_all = |scrape: &Scrape| sum(&scrape.events()) == 104.0;
    exporter.until("all is counted", is_all).await;
    service.add_late(6, hours(24));
    done(world.to_file("")).await;
    let (mut all, live) = (world.totals(), exporter.scrape().await.events());
    let sums = (sum(&all), sum(&live));
    assert_eq!(sums, (1_511.0, 104.0), "{quiet}, {start}");
    for (labels, count) in live {
        *all.entry(labels).or_default() += count;
    }
    assert_eq!(all, world.truth(|_| true));

    // Another end is a warning.
    for (until, words) in [("6h", "in neither"), ("3h", "counted twice")] {
        let other = world.to_file(&format!("--until={until}")).run().await;
        assert!(other.stderr.contains(words), "{until}: {other:?}");
    }
    let filtered = world.to_file("--audit.deal-ids=1");
    fails(filtered, 2, &["other filters"]).await;
}

#[tokio::test]
async fn soon_after_the_exporter_began_it_says_when_it_will_work() {
    let world = World::new(100).await;
    world.service().advance(hours(5));
    world.service().add_events(1);
    let _exporter = world.exporter("state.db", &[]).await;
    let words = ["too early", "run this again from", "--until live"];
    fails(world.to_file(""), 2, &words).await;
    assert!(!world.path("h.om").exists());
    done(world.to_file("--until=live")).await;
    assert_eq!(sum(&world.totals()), 101.0);
}

#[tokio::test]
async fn a_kill_leaves_no_file_and_the_next_run_writes_it() {
    let world = World::new(2_000).await;
    let slow = "--until=4h --api.page-size=20 --api.max-requests-per-second=20";
    for signal in ["KILL", "TERM"] {
        world.service().clear_requests();
        let mut running = world.to_file(slow).start();
        let reads = async || (world.service().requests().audit > 3).then_some(());
        until("it reads", reads).await;
        running.signal(signal).await;
        let status = running.ended().await;
        assert!(!world.path("h.om").exists());
        if signal == "TERM" {
            let is_last = |line: &str| line.contains("nothing was written");
            running.stderr().until("the last words", is_last).await;
            assert_eq!((status, world.files()), (Some(1), 0));
        }
    }
    done(world.to_file("--until=4h")).await;
    assert_eq!((sum(&world.totals()), world.files()), (2_000.0, 1));
}

#[tokio::test]
async fn labels_are_those_of_the_exporter() {
    let world = World::new(1_000).await;
    done(world.to_file("--until=4h --metrics.max-actors=3")).await;
    let totals = world.totals();
    let actors: BTreeSet<&str> = totals.keys().map(|labels| &*labels[1]).collect();
    let is_folded = actors.len() <= 5 && actors.contains("other") && actors.contains("none");
    assert!(is_folded && sum(&totals) == 1_000.0, "{actors:?}");

    done(world.to_file("--until=4h --metrics.actor-label=none")).await;
    let mut samples = world.samples().into_iter();
    assert!(samples.all(|sample| sample.labels.len() == 1));
    assert_eq!(sum(&world.totals()), 1_000.0);

    // Names need escaping, and control characters are not for labels.
    let user = json!({ "id": 1, "firstName": "Zoë \"Zed\" \\", "lastName": "back\nslash\u{0}", "profileImageUrl": null });
    let entry = Fields::new().with("actorUserId", 1).with("actorUser", user);
    world.service().add_entry(&entry).expect("valid fields");
    done(world.to_file("--until=4h --metrics.actor-label=name")).await;
    let name = "Zoë \"Zed\" \\ back slash";
    assert!(world.totals().keys().any(|labels| labels[1] == name));
}

#[tokio::test]
async fn it_says_what_there_is() {
    let world = World::new(1_234).await;
    // Also without a time, it is part of the history.
    let timeless = Fields::new().unchecked().with("createdAt", Value::Null);
    world.service().add_entry(&timeless).expect("unchecked");
    for target in ["otlp", "openmetrics", "openmetrics x.om"] {
        let launch = world.backfill(&format!("--dry-run --until=4h --to {target}"));
        let file = launch.dir().join("x.om");
        let stdout = done(launch).await;
        let is_counted = stdout.starts_with("1235 audit entries; oldest 20");
        assert!(is_counted, "{stdout}");
        assert!(!file.exists());
    }
    let world = World::new(0).await;
    let with_slash = format!("{}/", world.path("h.om").display());
    let arguments = format!("--to openmetrics {with_slash} --until=4h");
    let stdout = done(world.backfill(&arguments)).await;
    assert!(stdout.contains("nothing to create blocks from"));
    assert!(world.totals().is_empty());
}
