//! A disk that fails below the state file: all is tried again, nothing is lost or counted twice, and an intact file stays.

use std::time::Duration;

use orgdata_simulator::{Fields, Moment, Running, Scope};

use crate::support::binary::{Exporter, Launch, Scrape, event_counts, exporter};
use crate::support::collector_peer::Peer;
use crate::support::disk_faults::{ALL, Disk};
use crate::support::service::organization;

/// Writes fail, but what is there can be read.
const WRITES: &str = "write sync truncate";

/// What is in the file cannot be read. SQLite calls that damage if the error is EIO.
const READS: &str = "read pread";

/// What a check of the file needs beside its header. SQLite reports such errors as text, as it does damage.
const CHECK: &str = "check";

/// How long the disk fails.
const FAILS: Duration = Duration::from_secs(3);

struct World {
    api: Running,
    peer: Peer,
    launch: Launch,
    disk: Disk,
    /// The number of entries from before that are delivered.
    before: u64,
}

impl World {
    async fn new(history: u64, tickets: u64) -> Self {
        let api = organization(history, tickets).await;
        let peer = Peer::http(4 << 20).await;
        let launch = exporter(&api.base_url()).otlp("http/protobuf", &peer.url());
        let (launch, disk) = Disk::below(launch);
        Self {
            api,
            peer,
            launch,
            disk,
            before: 0,
        }
    }

    /// Lets the disk fail for a time in which events come, and waits until the log says so.
    async fn fail(&self, exporter: &Exporter, [error, operations, logged]: [&str; 3], events: u64) {
        self.disk.fail(error, operations);
        let begun = tokio::time::Instant::now();
        let is_over = |_: &Scrape| {
            self.api.add_events(events);
            begun.elapsed() > FAILS
        };
        exporter.until("the end of the outage", is_over).await;
        exporter.logs(&format!("state file | {logged}")).await;
        assert!(exporter.is_healthy().await);
        self.disk.heal();
    }

    /// Waits until an exporter has counted and delivered each of the entries that arrived since, and asserts that it did so once.
    async fn assert_complete(&self, exporter: &Exporter, since: Moment) {
        let truth = self.api.truth_of(Scope::arrived_since(since));
        let scrape = exporter.settled(truth.total).await;
        assert_eq!(scrape.events(), event_counts(&truth));
        assert_eq!(scrape.value("orgdata_audit_gaps_total"), Some(0.0));
        let mut ids = self.peer.taken_ids();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, self.before + truth.total);
    }
}

#[tokio::test]
async fn a_disk_that_fails_for_seconds_loses_nothing() {
    for failure in [
        ["EIO", WRITES, "disk I/O error"],
        ["ENOSPC", WRITES, "disk is full; free some space"],
        ["ETIMEDOUT", ALL, ""],
    ] {
        let world = World::new(10, 3).await;
        let running = world.launch.start();
        running.synced().await;
        let since = world.api.mark();
        world.api.add_events(20);
        running.settled(20).await;
        world.fail(&running, failure, 1).await;
        world.api.add_events(5);
        world.assert_complete(&running, since).await;
    }
}

#[tokio::test]
async fn a_disk_that_fails_at_the_start_is_tried_again_and_the_file_stays() {
    let world = World::new(10, 3).await;
    let mut before = world.launch.start();
    before.synced().await;
    let since = world.api.mark();
    world.api.add_events(5);
    before.settled(5).await;
    // It leaves its write-ahead log.
    before.kill();
    for (error, operations) in [
        ("EIO", READS),
        ("EIO", CHECK),
        ("ETIMEDOUT", ALL),
        ("ENOSPC", WRITES),
    ] {
        world.disk.fail(error, operations);
        let mut running = world.launch.start();
        running.logs("cannot open the state file").await;
        world.disk.heal();
        world.api.add_events(1);
        world.assert_complete(&running, since).await;
        // All is in the file itself.
        assert_eq!(running.stop().await, Some(0));
    }
    // A supervisor starts it again after this status.
    for operations in [ALL, CHECK] {
        // Nothing is left in the write-ahead log, which SQLite writes back whenever it closes the file.
        let file = rusqlite::Connection::open(world.disk.file()).unwrap();
        let written = file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        assert_eq!(written, Ok(0));
        drop(file);
        let before = std::fs::read(world.disk.file()).unwrap();
        world.disk.fail("EIO", operations);
        let finished = world.launch.clone().run().await;
        let said = finished.refusal_with_log(1);
        assert!(said.contains("Input/output error"), "{said}");
        assert!(!said.contains("damaged"), "{said}");
        world.disk.heal();
        let after = std::fs::read(world.disk.file()).unwrap();
        assert!(before == after, "the file stays byte for byte");
    }
    let running = world.launch.start();
    world.api.add_events(1);
    world.assert_complete(&running, since).await;
}

/// A page is larger than SQLite's cache, so that nothing can be read from memory after a commit that failed.
#[tokio::test]
async fn a_disk_that_fails_while_history_is_read_loses_nothing() {
    let mut world = World::new(0, 0).await;
    world.before = 2_500;
    for _ in 0..world.before {
        // It cannot be compressed.
        let noise = std::iter::repeat_with(fastrand::alphanumeric).take(3_000);
        let metadata = serde_json::json!({ "note": noise.collect::<String>() });
        let fields = Fields::new().with("metadata", metadata);
        world.api.add_entry(&fields).unwrap();
    }
    // The history is older than the process.
    world.api.advance(Duration::from_secs(7_200));
    let launch = world.launch.clone();
    let running = launch
        .flag("--api.max-requests-per-second", "3")
        .flag("--audit.poll-interval", "1s")
        .flag("--audit.start", "oldest")
        .start();
    let has_begun = |scrape: &Scrape| scrape.value("orgdata_state_size_bytes") > Some(4e6);
    running.until("a part of the history", has_begun).await;
    world.fail(&running, ["EIO", ALL, ""], 0).await;
    running.synced().await;
    let since = world.api.mark();
    world.api.add_events(20);
    running.until_value("orgdata_audit_behind", 0.0).await;
    world.assert_complete(&running, since).await;
}
