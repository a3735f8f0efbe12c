//! The state file, which is never changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use orgdata_exporter::simulator::{Config, Fields};

use super::{Checked, check, expect, organization, service};
use crate::support::binary::{Exporter, Launch, Scrape, exporter};
use crate::support::service::spawn;

/// An exporter that has read its first page into this file.
async fn running(base_url: &str, file: &Path) -> Exporter {
    let running = exporter(base_url).state(file).start();
    running.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
    running
}

fn with_file(base_url: &str, file: &Path) -> Launch {
    check(base_url).arg(&format!("--state.path={}", file.display()))
}

/// Every file of a directory with its bytes and the time of its last change.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let paths = std::fs::read_dir(dir).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let changed = path.metadata().unwrap().modified().unwrap();
        (path, (bytes, changed))
    };
    paths.map(content).collect()
}

/// Asserts also that nothing beside the file changes.
async fn unchanged(base_url: &str, file: &Path, expected: &str) -> Checked {
    let dir = file.parent().unwrap();
    let before = contents(dir);
    let checked = expect(with_file(base_url, file), expected).await;
    assert!(contents(dir) == before, "something changed: {file:?}");
    checked
}

#[tokio::test]
async fn a_state_file_that_cannot_be_used_is_named_with_what_to_do() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let database = rusqlite::Connection::open(at("foreign.db")).unwrap();
    let sql = "CREATE TABLE precious (it TEXT)";
    database.execute_batch(sql).unwrap();
    drop(database);
    std::fs::write(at("empty.db"), "").unwrap();
    unchanged(&api.base_url(), &at("empty.db"), "").await;
    std::fs::create_dir(at("directory")).unwrap();
    for line in [
        "foreign.db => not a state file of this program | --state.path",
        "directory => is not a regular file | --state.path",
        "/dev/null => is not a regular file | --state.path",
        "missing/state.db => No such file or directory | --state.path",
    ] {
        let (name, words) = line.split_once(" => ").unwrap();
        let launch = with_file(&api.base_url(), &at(name));
        expect(launch, &format!("bad state: {words}")).await;
    }
    let memory = expect(with_file(&api.base_url(), Path::new(":memory:")), "").await;
    memory.assert_good("state", "in memory");
}

#[tokio::test]
async fn the_file_of_a_stopped_and_of_a_killed_exporter_stays_as_it_is() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let missing = unchanged(&api.base_url(), &file, "").await;
    missing.assert_good("state", "does not exist yet and can be created");
    assert!(contents(dir.path()).is_empty());
    running(&api.base_url(), &file).await.stop().await;
    let stopped = unchanged(&api.base_url(), &file, "").await;
    let words = "can be used; not delivered: 0 log records; 0 dead letters";
    stopped.assert_good("state", words);

    running(&api.base_url(), &file).await.kill();
    assert!(dir.path().join("state.db-wal").exists());
    let checked = unchanged(&api.base_url(), &file, "").await;
    checked.assert_good(
        "organization",
        "4711, the same for the key and the state file",
    );

    // The organization decides, not the address.
    let moved = service().await;
    // Neither does one odd entry on top.
    let odd = Fields::new().with("organizationId", 9);
    moved.add_entry(&odd).unwrap();
    unchanged(&moved.base_url(), &file, "").await;
    let other = Config {
        organization_id: 9,
        ..organization()
    };
    let other = spawn(other).await;
    let words = "bad organization: belongs to organization 9, but the state file to 4711 | --state.path another file";
    unchanged(&other.base_url(), &file, words).await;
}

/// As after a power failure, or if it was killed while a damaged file was set aside.
#[tokio::test]
async fn a_state_file_that_lost_its_content_is_no_new_one() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    running(&api.base_url(), &file).await.kill();
    let log = dir.path().join("state.db-wal");
    assert!(log.metadata().unwrap().len() > 0);
    let page = std::fs::read(&file).unwrap();
    std::fs::write(&file, "").unwrap();
    let words = "warning state: it was in use before and is empty now | counters at 0";
    unchanged(&api.base_url(), &file, words).await;
    // Until the log is written back for the first time, all tables are in it. Without its index, it is not read.
    std::fs::write(&file, page).unwrap();
    std::fs::remove_file(dir.path().join("state.db-shm")).unwrap();
    unchanged(&api.base_url(), &file, "").await;
    std::fs::remove_file(log).unwrap();
    unchanged(&api.base_url(), &file, words).await;
}

#[tokio::test]
async fn a_running_exporter_is_recognized_and_not_disturbed() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let mut running = running(&api.base_url(), &file).await;
    let own = expect(with_file(&api.base_url(), &file), "").await;
    own.assert_good("state", "a running exporter uses it");
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let through = expect(with_file(&api.base_url(), &link), "").await;
    through.assert_good("state", "a running exporter uses it");
    through.assert_good("organization", "the same for the key and the state file");
    api.add_events(2);
    let counted = |scrape: &Scrape| scrape.sum("orgdata_audit_events_total") == 2.0;
    running.until("the events", counted).await;
    assert_eq!(running.stop().await, Some(0), "{}", running.stderr().text());
}
