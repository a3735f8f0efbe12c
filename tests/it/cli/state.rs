//! The state file: what cannot be opened or is damaged is refused with what to do, and stays.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use orgdata_simulator::{ClockSource, Config, Fault, FaultKind, Running, Scope};

use super::{UP, organization};
use crate::support::binary::{Exporter, KEY, Launch, Scrape, exporter, launch};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::service::spawn;

const GAPS: &str = "orgdata_audit_gaps_total";

const EVENTS: &str = "orgdata_audit_events_total";

const ORGANIZATION: &str = "orgdata_organization_info";

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
    // What another version wrote stays, also if only the state of the tail cannot be read.
    for (later, why) in [
        ("tail = '{\"pass\":7}'", "the state of the audit tail"),
        ("schema_version = 99", "its schema is 99"),
    ] {
        let database = rusqlite::Connection::open(&file).unwrap();
        let sql = format!("UPDATE state SET version = '7.8.9', {later}");
        database.execute_batch(&sql).unwrap();
        drop(database);
        for _ in 0..2 {
            let words = format!("written by version 7.8.9 | {why} | run that version | mv '");
            launch.clone().refused(2, &words).await;
        }
        let left = std::fs::read(&file).unwrap();
        assert!(left.windows(5).any(|text| text == b"7.8.9"));
    }
}

/// From the first release on, a newer version opens the files of the one before. This one has 20 entries of history, 7 events since then, and
/// records of all of them, and a checkpoint, that wait.
#[tokio::test]
async fn a_state_file_that_was_stored_goes_on() {
    let api = organization().await;
    api.fault(Fault::new(FaultKind::Hang));
    let peer = Peer::http(1 << 20).await;
    let launch = exporter(&api.base_url()).otlp("http/protobuf", &peer.url());
    std::fs::write(
        launch.dir().join("state.db"),
        include_bytes!("../../golden/state-file"),
    )
    .unwrap();
    let running = launch.on_disk().start();
    // The last checkpoint of the file is long ago, so there is a new one.
    let is_sent = |scrape: &Scrape| scrape.value("orgdata_otlp_records_sent_total") == Some(29.0);
    let scrape = running.until("the records that wait", is_sent).await;
    let expected = [
        (EVENTS, 7.0),
        ("orgdata_audit_entries_backdated_total", 20.0),
        (GAPS, 0.0),
    ];
    for (name, value) in expected {
        assert_eq!(scrape.sum(name), value, "{name}");
    }
    assert!(scrape.has(ORGANIZATION));
    assert!(peer.taken_ids().iter().all(|id| id.contains('-')));
    api.clear_faults();
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

/// The collector comes in the second run, which reads no audit logs.
#[tokio::test]
async fn what_was_read_without_a_collector_is_a_gap_and_the_logged_command_sends_it() {
    const DELIVERED: &str = "orgdata_otlp_delivered_through_timestamp_seconds";
    // The command names times of the machine.
    let mut config = Config::quiet();
    (config.history, config.clock) = (3, ClockSource::Real);
    let api = spawn(config).await;
    let (exporter, _, mut first) = started(&api).await;
    let since = api.mark();
    api.add_events(5);
    let scrape = first.until("the events", |scrape| scrape.sum(EVENTS) == 5.0);
    let scrape = scrape.await;
    assert!(scrape.has(ORGANIZATION) && !scrape.has(DELIVERED));
    assert_eq!(first.stop().await, Some(0));

    let peer = Peer::http(1 << 20).await;
    let exporter = exporter.otlp("http/protobuf", &peer.url());
    let mut tickets = exporter.clone().flag("--audit.enabled", "false").start();
    let is_sent = |scrape: &Scrape| scrape.value("orgdata_otlp_records_sent_total") == Some(1.0);
    let scrape = tickets.until("the gap", is_sent).await;
    assert_eq!(scrape.value(GAPS), Some(1.0));
    assert!(!scrape.has(ORGANIZATION) && !scrape.has(DELIVERED));
    let said = tickets.stderr().text();
    assert_eq!(tickets.stop().await, Some(0));

    let mut third = exporter.start();
    // A `Date` has whole seconds.
    api.advance(Duration::from_secs(2));
    api.add_events(2);
    third
        .until("delivery", |scrape| scrape.has(DELIVERED))
        .await;
    assert_eq!(third.settled(7).await.value(GAPS), Some(1.0));
    assert_eq!(third.stop().await, Some(0));
    let (_, command) = said.split_once("command=\"orgdata-exporter ").unwrap();
    let (command, _) = command.split_once('"').unwrap();
    let command: Vec<&str> = command.split(' ').collect();
    let verify = launch(&command)
        .otlp("http/protobuf", &peer.url())
        .env("ORGDATA_API_BASE_URL", &api.base_url())
        .env("ORGDATA_API_KEY", KEY);
    api.advance(Duration::from_secs(2));
    let finished = verify.run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    let (gaps, mut sent): (Vec<_>, Vec<_>) = peer
        .taken_ids()
        .into_iter()
        .partition(|id| id.starts_with("orgdata.exporter.gap-"));
    let entries = api.entries_of(Scope::arrived_since(since));
    let mut expected: Vec<_> = entries.map(|entry| entry.id).collect();
    sent.sort();
    expected.sort();
    assert_eq!((gaps.len(), sent), (1, expected), "{finished:?}");
}

#[tokio::test]
async fn damage_ends_the_process_and_the_next_one_until_the_file_is_moved_away() {
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
    let command = format!("mv '{0}' '{0}.old'", file.display());
    let said = running.stderr().text();
    assert!(said.lines().last().unwrap().contains(&command), "{said}");
    let before = std::fs::read(&file).unwrap();
    let again = launch.clone().run().await;
    let again = again.refusal_with_log(1);
    assert!(again.lines().last().unwrap().contains(&command), "{again}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let moved = Command::new("sh").arg("-c").arg(command).status();
    assert!(moved.unwrap().success());
    launch.start().until_value(GAPS, 0.0).await;
}

/// As after a change of `runAsUser`.
#[tokio::test]
async fn a_file_of_another_user_is_refused_with_its_owner() {
    let launch = exporter("http://127.0.0.1:9").unprivileged();
    let words = "belongs to user 0, and this process runs as user";
    refused(&launch, "/etc/shadow", 2, words).await;
}
