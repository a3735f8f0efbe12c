//! The state file: what cannot be opened is refused with what to do, and a damaged one is set aside.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use orgdata_simulator::{Running, Scope};

use super::{UP, organization};
use crate::support::binary::{Exporter, Launch, Scrape, event_counts, exporter};
use crate::support::collector_peer::{Peer, Reply};

const GAPS: &str = "orgdata_audit_gaps_total";

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
    let bad = "a-directory missing/state.db a-file/state.db /proc/state.db /dev/null /dev/full";
    for path in bad.split(' ') {
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
        "written by another version of this program (schema 9, not 7); run that version, or set";
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

/// SQLite takes such a name for a URI.
#[tokio::test]
async fn a_path_that_looks_like_a_uri_is_a_path() {
    let api = organization().await;
    for name in ["file:state.db", "file:x.db?mode=memory", "file::memory:"] {
        let launch = exporter(&api.base_url()).flag("--state.path", name);
        let mut running = launch.start();
        running.until_value(UP, 1.0).await;
        api.add_events(2);
        running.settled(2).await;
        assert_eq!(running.stop().await, Some(0));
        let again = launch.start();
        assert_eq!(again.settled(2).await.value(GAPS), Some(0.0));
        let files = std::fs::read_dir(launch.dir()).unwrap();
        for file in files.map(Result::unwrap) {
            let found = file.file_name().into_string().unwrap();
            assert!(found.starts_with(name), "{found}");
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{found}");
        }
    }
}

/// No two processes use one file, whatever name they have for it. On a volume that knows no locks, the one that comes later goes on.
#[tokio::test]
async fn a_file_in_use_is_refused_and_a_process_whose_file_is_taken_over_ends_with_status_3() {
    let api = organization().await;
    let (launch, file, mut first) = started(&api).await;
    std::fs::hard_link(&file, file.with_file_name("hard.db")).unwrap();
    std::os::unix::fs::symlink(&file, file.with_file_name("soft.db")).unwrap();
    for name in ["state.db", "hard.db", "soft.db"] {
        refused(launch.clone(), name, 3, "another process").await;
    }
    assert_eq!(first.value(UP).await, Some(1.0));
    let other = rusqlite::Connection::open(&file).unwrap();
    let take_over = "UPDATE state SET fence = fence + 1";
    other.execute_batch(take_over).unwrap();
    api.add_events(1);
    assert_eq!(first.ended().await, Some(3));
    assert!(first.stderr().text().contains("another process uses"));
}

/// Otherwise what it writes would be lost without a word at its next start.
#[tokio::test]
async fn a_file_that_is_deleted_or_replaced_ends_the_process_which_sends_what_it_has() {
    for is_replaced in [false, true] {
        let api = organization().await;
        let peer = Peer::http(1 << 20).await;
        let launch = exporter(&api.base_url()).on_disk();
        let file = launch.dir().join("state.db");
        let launch = launch.otlp("http/protobuf", &peer.url());
        let mut running = launch.start();
        running.until_value(UP, 1.0).await;
        // The collector is away, and the records wait.
        peer.reply(Reply::Http(503, "text/plain", "", Some("1")));
        api.add_events(7);
        let counted = |scrape: &Scrape| scrape.sum("orgdata_audit_events_total") == 7.0;
        running.until("the events", counted).await;
        if is_replaced {
            let copy = file.with_file_name("copy.db");
            std::fs::copy(&file, &copy).unwrap();
            std::fs::rename(copy, &file).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
        }
        assert_eq!(running.ended().await, Some(1));
        let log = running.stderr().text();
        let words = format!("{} was deleted or replaced", file.display());
        assert!(log.lines().last().unwrap().contains(&words), "{log}");
        assert_eq!(peer.taken_ids().len(), 7);
    }
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
    let aside: Vec<_> = names.filter(|name| name.contains("damaged")).collect();
    assert_eq!(aside, ["state.db.damaged"]);
    assert!(log.contains("state.db.damaged"), "{log}");
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
