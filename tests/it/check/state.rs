//! The state file.

use std::path::Path;

use orgdata_exporter::simulator::{Config, Fields};

use super::{check, expect, organization, service};
use crate::support::binary::{Exporter, Launch, Scrape, exporter};
#[cfg(target_os = "linux")]
use crate::support::disk_faults::Disk;
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
    expect(with_file(&api.base_url(), &at("empty.db")), "").await;
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
async fn the_file_of_a_stopped_of_a_killed_and_of_a_running_exporter_can_be_used() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let missing = expect(with_file(&api.base_url(), &file), "").await;
    missing.assert_good("state", "does not exist yet and can be created");
    assert_eq!(files(), 0);
    running(&api.base_url(), &file).await.stop().await;
    let stopped = expect(with_file(&api.base_url(), &file), "").await;
    let words = "can be used; not delivered: 0 log records; 0 dead letters; ";
    stopped.assert_good("state", words);
    stopped.assert_good("state", "iB free on its disk");
    assert_eq!(files(), 1);

    running(&api.base_url(), &file).await.kill();
    let checked = expect(with_file(&api.base_url(), &file), "").await;
    checked.assert_good(
        "organization",
        "4711, the same for the key and the state file",
    );

    // It has the file, and its port is another one.
    let mut running = running(&api.base_url(), &file).await;
    let address = running.address().to_string();
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for name in [&file, &link] {
        let with_file = with_file(&api.base_url(), name);
        let own = with_file.clone().flag("--web.listen-address", &address);
        let own = expect(own, "").await;
        own.assert_good(
            "state",
            "is in use by another process; not delivered: 0 log records",
        );
        own.assert_good("port", "held by an exporter that answers");
        let words = "warning state: no exporter answers at --web.listen-address | --state.path another file";
        expect(with_file, words).await;
    }
    api.add_events(2);
    let counted = |scrape: &Scrape| scrape.sum("orgdata_audit_events_total") == 2.0;
    running.until("the events", counted).await;
    assert_eq!(running.stop().await, Some(0), "{}", running.stderr().text());

    // The organization decides, not the address.
    let moved = service().await;
    // Neither does one odd entry on top.
    let odd = Fields::new().with("organizationId", 9);
    moved.add_entry(&odd).unwrap();
    expect(with_file(&moved.base_url(), &file), "").await;
    let other = Config {
        organization_id: 9,
        ..organization()
    };
    let other = spawn(other).await;
    let words = "bad organization: belongs to organization 9, but the state file to 4711 | set --state.path to another file";
    for tickets_only in [false, true] {
        let launch = with_file(&other.base_url(), &file);
        let launch = launch.flag("--audit.enabled", &(!tickets_only).to_string());
        expect(launch, words).await;
    }
}

#[tokio::test]
async fn tickets_of_another_organization_are_named() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    running(&api.base_url(), &file).await.stop().await;
    let base = api.base_url();
    for id in api.ticket_ids() {
        let other = Fields::new().with("organizationId", 9);
        api.change_ticket(id, other).unwrap();
    }
    let words = "bad organization: belongs to organization 9, but the state file to 4711";
    expect(with_file(&base, &file), words).await;
    expect(
        check(&base),
        "bad organization: entries belong to 4711 and tickets to 9",
    )
    .await;
    let one = with_file(&base, &file).arg("--audit.enabled=false");
    expect(one, words).await;
    expect(with_file(&base, &file).arg("--tickets.enabled=false"), "").await;
}

/// The next start would do the same.
#[tokio::test]
async fn damage_is_named_and_the_file_stays() {
    let api = service().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    running(&api.base_url(), &file).await.stop().await;
    let whole = std::fs::read(&file).unwrap();
    for at in [0, 20, 4096] {
        let mut bytes = whole.clone();
        bytes[at..at + 16].fill(0xa5);
        std::fs::write(&file, &bytes).unwrap();
        let words = "bad state: is damaged | restore a copy | set it aside";
        expect(with_file(&api.base_url(), &file), words).await;
        assert!(!dir.path().join("state.db.damaged").exists());
    }
}

#[tokio::test]
async fn a_disk_with_less_room_than_the_file_may_take_is_a_warning() {
    let api = service().await;
    let launch = check(&api.base_url()).arg("--state.max-size=900PiB");
    expect(
        launch,
        "warning state: free on its disk | less than --state.max-size (900.0 PiB)",
    )
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state.db");
    running(&api.base_url(), &file).await.stop().await;
    let launch = with_file(&api.base_url(), &file).arg("--state.max-size=900PiB");
    expect(launch, "warning state: less than --state.max-size").await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_that_is_full_or_fails_is_not_well() {
    let api = service().await;
    for (error, operations) in [
        ("ENOSPC", "write"),
        ("EIO", "sync"),
        ("EROFS", "open"),
        ("EDQUOT", "write"),
    ] {
        let (launch, disk) = Disk::below(check(&api.base_url()));
        let launch = launch.state(disk.file());
        expect(launch.clone(), "").await;
        disk.fail(error, operations);
        expect(launch.clone(), "bad state: cannot open state file").await;
        disk.heal();
        expect(launch, "").await;
    }
}
