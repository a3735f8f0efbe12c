//! A history that is several times larger than the state file may be, with pages that are larger than the whole file, and no collector for a
//! while: metrics go on, memory and file stay bounded, the tail pauses while the file is full, and all drains once the collector is there.

use std::fs;
use std::time::Duration;

use orgdata_simulator::{Fields, Scope};
use serde_json::json;

use crate::support::binary::{Scrape, assert_complete, event_counts, exporter};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::service::organization;

/// `--state.max-size`.
const MAX_SIZE: u64 = 8 << 20;

/// The most memory in MiB: a page, its log records, and what a debug build needs.
const MEMORY: f64 = 128.0;

/// The tail pauses while the file is full and never for good, and the file with its write-ahead log stays below its limit.
#[tokio::test]
async fn a_history_larger_than_the_state_file_passes_through_it() {
    let simulator = organization(3, 0).await;
    for _ in 0..250 {
        // It cannot be compressed.
        let noise = std::iter::repeat_with(fastrand::alphanumeric).take(60_000);
        let metadata = json!({ "note": noise.collect::<String>() });
        let fields = Fields::new().with("metadata", metadata);
        simulator.add_entry(&fields).unwrap();
    }
    // The history is older than the process.
    simulator.advance(Duration::from_secs(3600));
    let peer = Peer::grpc(4 << 20).await;
    // The collector is away until the file is full.
    for _ in 0..3 {
        peer.reply(Reply::Status(tonic::Status::unavailable("away")));
    }
    let launch = exporter(&simulator.base_url());
    let state = launch.dir().join("state.db");
    let exporter = launch
        .state(&state)
        .args(&["--state.max-size=8MiB", "--audit.start=oldest"])
        .otlp("grpc", &peer.url())
        .listening()
        .await;
    let on_disk = || -> u64 {
        let files =
            ["state.db", "state.db-wal"].map(|name| fs::metadata(state.with_file_name(name)));
        files.into_iter().flatten().map(|file| file.len()).sum()
    };
    let is_bounded = || assert!(on_disk() <= MAX_SIZE, "{} bytes", on_disk());
    let is_full = |scrape: &Scrape| {
        is_bounded();
        scrape.value("orgdata_audit_paused") == Some(1.0)
    };
    exporter.until("a full file", is_full).await;
    assert!(exporter.is_healthy().await);
    // What happens meanwhile waits at the service.
    let paused = simulator.mark();
    simulator.add_events(700);
    let truth = simulator.truth_of(Scope::arrived_since(paused));
    let all = |scrape: &Scrape| {
        is_bounded();
        scrape.events() == event_counts(&truth)
            && scrape.value("orgdata_otlp_backlog_records") == Some(0.0)
            && scrape.value("orgdata_audit_history_complete") == Some(1.0)
            && scrape.value("orgdata_audit_paused") == Some(0.0)
            && on_disk() < MAX_SIZE / 2
    };
    let wanted = "everything delivered, and a small file";
    exporter.until(wanted, all).await;
    let again = assert_complete(&simulator, &peer.taken_ids());
    assert!(again.is_empty(), "each once: {again:?}");
    let [_, peak] = exporter.memory();
    assert!(peak <= MEMORY, "{peak} MiB at the peak");
}
