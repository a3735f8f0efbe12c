//! The built binary and its disk: full and emptied again, read-only, and a file that is damaged while it is open.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use orgdata_simulator::Scope;

use crate::organization;
use crate::support::binary::{Scrape, assert_complete, event_counts, exporter, until};
use crate::support::parts::Collector;

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
    let exporter = exporter(&simulator.base_url())
        .mount(directory.path(), "size=12m")
        .state(&directory.path().join("state.db"))
        .flag("--audit.start", "oldest")
        .flag("--api.page-size", "200")
        .otlp("grpc", &collector.endpoint("grpc"))
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
        let later = exporter.until("more attempts", has_more).await;
        assert_eq!(later.events(), stuck.events(), "nothing moves");
        assert!(exporter.is_healthy().await);

        fs::remove_file(&full).unwrap();
        if outage {
            collector.start_again().await;
        }
        let truth = simulator.truth_of(Scope::arrived_since(synced));
        let scrape = exporter.settled(truth.total).await;
        assert_eq!(scrape.events(), event_counts(&truth), "outage: {outage}");
        for (series, value) in [
            ("orgdata_up{loop=\"audit\"}", 1.0),
            ("orgdata_up{loop=\"otlp\"}", 1.0),
            ("orgdata_audit_gaps_total", 0.0),
            ("orgdata_audit_events_duplicate_total", 0.0),
            ("orgdata_state_recreated_total", 0.0),
        ] {
            assert_eq!(scrape.value(series), Some(value), "{series}");
        }
    }
    // Only a request whose answer was lost with the collector is sent again.
    let again: usize = assert_complete(&simulator, &collector.ids()).values().sum();
    assert!(again <= 512, "{again} records came again");
}

/// A disk that cannot be written is a matter of settings: one line, which says what to do.
#[tokio::test]
#[ignore = "needs to be root, or user namespaces"]
async fn a_disk_that_cannot_be_written_is_refused_with_the_way_out() {
    let simulator = organization(0, 0).await;
    let directory = tempfile::tempdir().unwrap();
    // Read-only; and without space for a file at all.
    for options in ["ro", "size=4k,nr_inodes=2"] {
        let refused = exporter(&simulator.base_url())
            .mount(directory.path(), options)
            .state(&directory.path().join("state.db"));
        let refused = refused.run().await;
        let message = refused.refusal(2);
        let words = ["--state.path", "state.db"];
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

/// A file that is damaged while it is open is set aside and the exporter continues with a new one: at the same address, with a metric and a
/// log line, and without counting anything twice.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_file_damaged_while_it_is_open_is_set_aside_and_the_process_goes_on() {
    let simulator = organization(2_000, 10).await;
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let exporter = exporter(&simulator.base_url())
        .state(&state)
        .otlp("http/protobuf", &collector.endpoint("http/protobuf"))
        .listening()
        .await;
    exporter.synced().await;
    simulator.add_events(400);
    exporter.settled(400).await;

    // Another program writes, so that the exporter looks at the file again; then everything but the first page is overwritten.
    let other = rusqlite::Connection::open(&state).unwrap();
    let write = "UPDATE state SET newest_at = newest_at";
    other.execute(write, []).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    other.query_row(checkpoint, [], |_| Ok(())).unwrap();
    drop(other);
    let length = fs::metadata(&state).unwrap().len() as usize;
    let file = File::options().write(true).open(&state).unwrap();
    file.write_all_at(&vec![0x5a; length - 4096], 4096).unwrap();
    simulator.add_events(100);

    // Until then the port may be closed for a moment.
    let listens_again = async || (exporter.stderr().count("listening") == 2).then_some(());
    until("it listens again", listens_again).await;
    let scrape = exporter.until("the first sync", |scrape| {
        scrape.value("orgdata_state_recreated_total") == Some(1.0)
            && scrape.value("orgdata_up{loop=\"audit\"}") == Some(1.0)
    });
    let scrape = scrape.await;
    assert!(scrape.value("orgdata_state_recreated_timestamp_seconds") > Some(1.7e9));
    let counted = scrape.sum("orgdata_audit_events_total");
    assert_eq!(counted, 0.0, "what was there before is history");
    let synced = simulator.mark();
    simulator.add_events(300);
    let truth = simulator.truth_of(Scope::arrived_since(synced));
    assert_eq!(exporter.settled(300).await.events(), event_counts(&truth));
    assert!(exporter.is_healthy().await);
    assert_eq!(exporter.stderr().count("set aside"), 1);
    let names = fs::read_dir(directory.path()).unwrap();
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains(".damaged-")).count(), 1);
}
