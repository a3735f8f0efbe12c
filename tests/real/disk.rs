//! The built binary on a disk that is full and emptied again.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use orgdata_simulator::Scope;

use crate::support::binary::{Scrape, assert_complete, event_counts, exporter};
use crate::support::parts::Collector;
use crate::{organization, sending};

/// Takes all the space that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let mut chunk = vec![0x55; 64 * 1024];
    while !chunk.is_empty() {
        match file.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => chunk.truncate(chunk.len() / 2),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A disk fills up while events come, is full for a while, and has space again: the exporter answers all the time, says what is wrong, and
/// afterwards every number is true and every record was delivered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTelemetry Collector, and to be root or user namespaces"]
async fn a_full_disk_pauses_commits_and_heals() {
    let simulator = organization(1_000, 10).await;
    let mut collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let exporter = sending(&simulator, "grpc", &collector.endpoint("grpc"))
        .mount(directory.path(), "size=12m")
        .state(&directory.path().join("state.db"))
        .flag("--api.page-size", "200")
        .listening()
        .await;
    exporter.synced().await;
    let synced = simulator.mark();
    simulator.add_events(500);
    exporter.settled(500).await;

    let failures = "orgdata_state_commit_failures_total";
    for outage in [false, true] {
        let full = exporter.inside(&directory.path().join("filler"));
        fill(&full);
        if outage {
            // Meanwhile the collector is gone, too.
            collector.stop();
        }
        // There is space left inside the files that are there already.
        let before = exporter.value(failures).await.unwrap();
        let stuck = exporter.until("commits that fail", |scrape| {
            simulator.add_events(20);
            scrape.value(failures) > Some(before + 1.0)
                && scrape.value("orgdata_up{loop=\"audit\"}") == Some(0.0)
        });
        let stuck = stuck.await;
        simulator.add_events(1_000);
        let logged = exporter.stderr().count("disk");
        assert!((1..20).contains(&logged), "logged {logged} times");
        let more = stuck.value(failures).map(|failures| failures + 2.0);
        let has_more = |scrape: &Scrape| scrape.value(failures) >= more;
        exporter.until("more attempts", has_more).await;
        assert!(exporter.is_healthy().await);

        fs::remove_file(&full).unwrap();
        if outage {
            collector.start_again().await;
        }
        let truth = simulator.truth_of(Scope::arrived_since(synced));
        let scrape = exporter.settled(truth.total).await;
        assert_eq!(scrape.events(), event_counts(&truth), "outage: {outage}");
        for (series, value) in [
            ("orgdata_audit_gaps_total", 0.0),
            ("orgdata_audit_entries_repeated_total", 0.0),
        ] {
            assert_eq!(scrape.value(series), Some(value), "{series}");
        }
    }
    // Only a request whose answer was lost with the collector is sent again.
    let again: usize = assert_complete(simulator.entries().map(|entry| entry.id), &collector.ids())
        .values()
        .sum();
    assert!(again <= 512, "{again} records came again");
}

/// It ends with status 1 if there is still none after ten seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs to be root or user namespaces"]
async fn a_start_on_a_full_disk_says_so_and_waits_for_room() {
    let simulator = organization(100, 10).await;
    let directory = tempfile::tempdir().unwrap();
    // Its file system lives as long as this one.
    let holder = exporter(&simulator.base_url())
        .mount(directory.path(), "size=12m")
        .listening()
        .await;
    let launch = exporter(&simulator.base_url())
        .beside(&holder)
        .state(&directory.path().join("state.db"));
    let mut first = launch.start();
    first.synced().await;
    simulator.add_events(50);
    first.settled(50).await;
    assert_eq!(first.stop().await, Some(0));

    let full = holder.inside(&directory.path().join("filler"));
    fill(&full);
    simulator.add_events(50);
    let finished = launch.clone().run().await;
    assert!(finished.refusal_with_log(1).contains("No space left"));
    let again = launch.start();
    again
        .logs("cannot open the state file | No space left")
        .await;
    fs::remove_file(&full).unwrap();
    again.settled(100).await;
}
