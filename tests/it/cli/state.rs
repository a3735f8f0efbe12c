//! The state file: what cannot be opened is refused with what to do, and a damaged one is set aside.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use orgdata_simulator::Running;

use super::{UP, organization};
use crate::support::binary::{Exporter, Launch, Scrape, exporter};
use crate::support::collector_peer::{Peer, Reply};

const GAPS: &str = "orgdata_audit_gaps_total";

async fn refused(launch: &Launch, file: &str, status: i32, words: &str) {
    let words = format!("{file} | --state.path | {words}");
    let launch = launch.clone().flag("--state.path", file);
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
    let api = organization().await;
    let (launch, file, mut running) = started(&api).await;
    assert_eq!(running.stop().await, Some(0));
    std::fs::create_dir(launch.dir().join("directory")).unwrap();
    for path in ["directory", "missing/state.db", "/proc/state.db"] {
        refused(&launch, path, 2, ":memory:").await;
    }
    // The file of a newer version that does not allow it is not changed.
    let database = rusqlite::Connection::open(&file).unwrap();
    let later = "UPDATE state SET schema_version = 9";
    database.execute_batch(later).unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    let version = "written by another version of this program (schema 9, not 7); run that version";
    refused(&launch, "state.db", 2, version).await;
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// SQLite takes such a name for a URI.
#[tokio::test]
async fn a_path_that_looks_like_a_uri_is_a_path_and_others_may_not_read_the_file() {
    let api = organization().await;
    let name = "file:x.db?mode=memory";
    let launch = exporter(&api.base_url()).flag("--state.path", name);
    // It was created with another umask.
    let file = launch.dir().join(name);
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mut running = launch.start();
    running.until_value(UP, 1.0).await;
    api.add_events(2);
    running.settled(2).await;
    for file in std::fs::read_dir(launch.dir()).unwrap() {
        let file = file.unwrap();
        let found = file.file_name().into_string().unwrap();
        assert!(found.starts_with(name), "{found}");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{found}");
    }
    assert_eq!(running.stop().await, Some(0));
    let again = launch.start();
    assert_eq!(again.settled(2).await.value(GAPS), Some(0.0));
}

/// No two processes use one file, whatever name they have for it. On a volume that knows no locks, the one that comes later goes on.
#[tokio::test]
async fn a_file_in_use_is_refused_and_a_process_whose_file_is_taken_over_ends_with_status_3() {
    let api = organization().await;
    let (launch, file, mut first) = started(&api).await;
    std::fs::hard_link(&file, file.with_file_name("hard.db")).unwrap();
    std::os::unix::fs::symlink(&file, file.with_file_name("soft.db")).unwrap();
    for name in ["state.db", "hard.db", "soft.db"] {
        refused(&launch, name, 3, "another process").await;
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
    next.until_value("orgdata_state_recreated_total", 1.0).await;
    let at = next.value("orgdata_state_recreated_timestamp_seconds");
    assert!(at.await > Some(1.6e9));
    next.logs("state.db.damaged").await;
    // Also if it is killed before anything else happens.
    next.kill();
    launch.start().until_value(GAPS, 1.0).await;
    assert!(file.with_extension("db.damaged").exists());
}

/// As after a change of `runAsUser`.
#[tokio::test]
async fn a_file_of_another_user_is_refused_with_its_owner() {
    let launch = exporter("http://127.0.0.1:9").unprivileged();
    let words = "belongs to user 0, and this process runs as user";
    refused(&launch, "/etc/shadow", 2, words).await;
}
