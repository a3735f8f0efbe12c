//! The state file: what cannot be opened is refused with what to do, and a damaged one is set aside.

use std::path::PathBuf;

use orgdata_simulator::{Running, Scope};

use super::{UP, organization};
use crate::support::binary::{Exporter, Launch, event_counts, exporter};
use crate::support::collector_peer::Peer;

async fn refused(launch: Launch, file: &str, status: i32, words: &str) {
    let words = format!("{file} | --state.path | {words}");
    let launch = launch.flag("--state.path", file);
    launch.refused(status, &words).await;
}

/// Starts an exporter with a state file, and waits until it works.
async fn started(api: &Running) -> (Launch, PathBuf, Exporter) {
    let launch = exporter(&api.base_url()).on_disk();
    let running = launch.start();
    running.until_value(UP, 1.0).await;
    let file = launch.dir().join("state.db");
    (launch, file, running)
}

#[tokio::test]
async fn a_place_where_no_file_can_be_is_refused_with_what_to_give_instead() {
    let launch = exporter("http://127.0.0.1:1");
    let at = |name: &str| launch.dir().join(name);
    std::fs::create_dir(at("a-directory")).unwrap();
    std::fs::write(at("a-file"), "").unwrap();
    for path in "a-directory missing/state.db a-file/state.db /proc/state.db".split(' ') {
        refused(launch.clone(), path, 2, ":memory:").await;
    }
    // The database of another program, and the file of a newer version that does not allow it, are not changed.
    let api = organization().await;
    let newer = exporter(&api.base_url()).state(&at("newer.db"));
    let mut newer = newer.start();
    newer.until_value(UP, 1.0).await;
    assert_eq!(newer.stop().await, Some(0));
    let other = "CREATE TABLE precious (it TEXT); INSERT INTO precious VALUES ('still here')";
    let later = "UPDATE state SET schema_version = 9";
    let version =
        "written by another version of this program (schema 9, not 6); run that version, or set";
    for (file, sql, words) in [
        ("other.db", other, "not a state file of this program"),
        ("newer.db", later, version),
    ] {
        let database = rusqlite::Connection::open(at(file)).unwrap();
        database.execute_batch(sql).unwrap();
        drop(database);
        let before = std::fs::read(at(file)).unwrap();
        refused(launch.clone(), file, 2, words).await;
        assert_eq!(std::fs::read(at(file)).unwrap(), before);
    }
}

/// Without its lock file nothing keeps a second process out, but only one of them goes on.
#[tokio::test]
async fn a_file_in_use_is_refused_and_a_process_whose_file_is_taken_over_ends_with_status_3() {
    let api = organization().await;
    let (launch, file, mut first) = started(&api).await;
    refused(launch.clone(), "state.db", 3, "another process").await;
    assert_eq!(first.value(UP).await, Some(1.0));
    std::fs::remove_file(file.with_extension("db.lock")).unwrap();
    // A slash at the end makes no difference to the API.
    let url = format!("{}/", api.base_url());
    let second = exporter(&url).state(&file).start();
    second.until_value(UP, 1.0).await;
    api.add_events(1);
    assert_eq!(first.ended().await, Some(3));
    assert!(first.stderr().text().contains("another process uses"));
    second.settled(1).await;
}

#[tokio::test]
async fn damage_ends_the_process_and_the_next_one_begins_with_a_new_file() {
    let api = organization().await;
    let (launch, file, mut running) = started(&api).await;
    // All but the first page is overwritten, as by a failing disk.
    let database = rusqlite::Connection::open(&file).unwrap();
    let sql = "PRAGMA user_version = 7; PRAGMA wal_checkpoint(TRUNCATE)";
    database.execute_batch(sql).unwrap();
    drop(database);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::write(&file, bytes).unwrap();
    api.add_events(1);
    assert_eq!(running.ended().await, Some(1));
    let mut next = launch.start();
    next.until_value(UP, 1.0).await;
    let recreated = next.value("orgdata_state_recreated_total").await;
    assert_eq!(recreated, Some(1.0));
    let at = next.value("orgdata_state_recreated_timestamp_seconds");
    assert!(at.await > Some(1.6e9));
    // Also if it is killed before anything else happens.
    next.kill();
    let mut again = launch.start();
    again.until_value("orgdata_audit_gaps_total", 1.0).await;
    assert_eq!(again.stop().await, Some(0));
    let log = running.stderr().text() + &next.stderr().text();
    let names = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let set_aside: Vec<_> = names
        .filter(|name| name.starts_with("state.db.damaged-"))
        .collect();
    let are_named = set_aside.iter().all(|name| log.contains(name));
    assert!(are_named && !set_aside.is_empty(), "{set_aside:?}: {log}");
}

/// As docs/operations.md says: from a running exporter, or the file of one that was stopped.
#[tokio::test]
async fn an_older_copy_put_back_counts_and_sends_again_what_came_after_it() {
    let api = organization().await;
    // The history is not counted.
    let history = api.mark();
    let launch = exporter(&api.base_url());
    let (file, copy) = (launch.dir().join("state.db"), launch.dir().join("copy.db"));
    for is_running in [true, false] {
        let peer = Peer::http(1 << 20).await;
        let launch = launch.clone().state(&file);
        let launch = launch.otlp("http/protobuf", &peer.url());
        let mut exporter = launch.start();
        exporter.synced().await;
        let before = exporter.sum("orgdata_audit_events_total").await as u64;
        api.add_events(5);
        exporter.settled(before + 5).await;
        if is_running {
            let database = rusqlite::Connection::open(&file).unwrap();
            let copy = copy.to_str().unwrap();
            database.execute("VACUUM INTO ?1", [copy]).unwrap();
        } else {
            assert_eq!(exporter.stop().await, Some(0));
            std::fs::copy(&file, &copy).unwrap();
            exporter = launch.start();
        }
        api.add_events(7);
        exporter.settled(before + 12).await;
        // What a killed exporter leaves in its log is no part of the copy.
        exporter.kill();
        for name in ["state.db-wal", "state.db-shm"] {
            std::fs::remove_file(file.with_file_name(name)).unwrap();
        }
        std::fs::rename(&copy, &file).unwrap();

        let mut exporter = launch.start();
        let again = exporter.settled(before + 12).await;
        let counted = api.truth_of(Scope::arrived_since(history));
        assert_eq!(again.events(), event_counts(&counted));
        assert_eq!(again.value("orgdata_audit_gaps_total"), Some(0.0));
        let ids = peer.taken_ids();
        let (first, second) = ids.split_at(12);
        assert_eq!(second, &first[5..], "the same records, in the same order");
        assert_eq!(exporter.stop().await, Some(0));
        assert!(!exporter.stderr().text().contains("damaged"));
    }
}
