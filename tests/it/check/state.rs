//! The state file.

use std::path::Path;

use orgdata_exporter::simulator::Fields;

use super::{check, expect, organization, service};
use crate::support::binary::{Exporter, Launch, Scrape, exporter};
use crate::support::service::spawn;

/// An exporter that has read its first page into this file.
async fn running(base_url: &str, file: &Path) -> Exporter {
    let running = exporter(base_url).state(file).start();
    running.synced().await;
    running
}

fn with_file(base_url: &str, file: &Path) -> Launch {
    check(base_url).state(file)
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
    for (name, expected) in [
        ("foreign.db", "bad state: not a state file | --state.path"),
        (".", "bad state: is not a regular file"),
        ("missing/state.db", "bad state: No such file"),
    ] {
        expect(with_file(&api.base_url(), &at(name)), expected).await;
    }
    let memory = with_file(&api.base_url(), Path::new(":memory:"));
    expect(memory, "good state: in memory").await;
    let large = check(&api.base_url()).arg("--state.max-size=900PiB");
    let words = "warning state: free on its disk | less than --state.max-size (900.0 PiB)";
    expect(large, words).await;
}

#[tokio::test]
async fn the_file_of_a_stopped_of_a_killed_and_of_a_running_exporter_can_be_used() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let with_own = || with_file(&api.base_url(), &file);
    let missing = "good state: does not exist yet and can be created";
    expect(with_own(), missing).await;
    assert_eq!(files(), 0);
    running(&api.base_url(), &file).await.stop().await;
    let stopped = "good state: can be used; not delivered: 0 log records; 0 dead letters; | iB free on its disk";
    expect(with_own(), stopped).await;
    assert_eq!(files(), 1);

    running(&api.base_url(), &file).await.kill();
    let log = file.with_extension("db-wal");
    let left = std::fs::read(&log).unwrap();
    let killed = "good organization: 4711, the same for the key and the state file";
    expect(with_own(), killed).await;
    assert!(
        std::fs::read(&log).unwrap() == left,
        "the next start needs it"
    );

    // It has the file, and its port is another one.
    let running = running(&api.base_url(), &file).await;
    let port = running.address().to_string();
    let own = with_own().flag("--web.listen-address", &port);
    let in_use = "good state: is in use by another process; not delivered: 0 log records";
    let own = expect(own, in_use).await;
    own.assert("good", "port", "in use, as the state file is");
    let no_other = with_file(&api.base_url(), Path::new("other.db"));
    let no_other = no_other.flag("--web.listen-address", &port);
    expect(no_other, "bad port: Address already in use").await;
    let other = "warning state: nothing listens at --web.listen-address | --state.path";
    expect(with_own(), other).await;
    api.add_events(2);
    let counted = |scrape: &Scrape| scrape.sum("orgdata_audit_events_total") == 2.0;
    running.until("the events", counted).await;
}

/// The organization decides, not the address.
#[tokio::test]
async fn another_organization_is_named() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    running(&api.base_url(), &file).await.stop().await;
    let moved = service().await;
    // Neither does one odd entry on top.
    let odd = Fields::new().with("organizationId", 9);
    moved.add_entry(&odd).unwrap();
    expect(with_file(&moved.base_url(), &file), "").await;
    let mut other = organization();
    other.organization_id = 9;
    let other = spawn(other).await;
    let words = "bad organization: belongs to organization 9, but the state file to 4711 | set --state.path to another file";
    for off in ["--audit.enabled", "--tickets.enabled"] {
        let launch = with_file(&other.base_url(), &file).flag(off, "false");
        expect(launch, words).await;
    }
}
