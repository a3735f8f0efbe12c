//! The state file: whose it is and whether it can be used, without a change to it, beside a running exporter too.

use std::collections::BTreeMap;
use std::path::Path;

use orgdata_exporter::simulator::{Config, Running, Simulator};

use super::support::{Checked, check, organization};
use crate::support::binary::{Exporter, Launch, exporter};

async fn service() -> Running {
    Simulator::spawn(organization()).await.expect("a simulator")
}

/// An exporter that keeps its state in a file, once it has read both listings.
async fn running(sim: &Running, file: &Path) -> Exporter {
    let running = exporter(&sim.base_url())
        .env("ORGDATA_STATE_PATH", &file.display().to_string())
        .start();
    running.until_value("orgdata_up{loop=\"audit\"}", 1.0).await;
    running
}

fn with_file(sim: &Running, file: &Path) -> Launch {
    check(&sim.base_url()).arg(&format!("--state.path={}", file.display()))
}

/// Every file of a directory with its bytes and when it was changed.
fn contents(dir: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entries = std::fs::read_dir(dir)
        .expect("readable")
        .map(|entry| entry.expect("readable"));
    entries
        .map(|entry| {
            let changed = entry
                .metadata()
                .expect("it is there")
                .modified()
                .expect("known");
            (
                entry.file_name().to_string_lossy().into_owned(),
                (std::fs::read(entry.path()).expect("readable"), changed),
            )
        })
        .collect()
}

/// What `check` says of the file; nothing beside it changes.
async fn unchanged(sim: &Running, file: &Path) -> Checked {
    let dir = file.parent().expect("it has one");
    let before = contents(dir);
    let checked = Checked::of(with_file(sim, file)).await;
    assert!(
        contents(dir) == before,
        "{:?} became {:?}",
        before.keys(),
        contents(dir).keys()
    );
    checked
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let checked = unchanged(&sim, &dir.path().join("state.db")).await;
    checked.assert_only(&[]);
    assert!(
        checked
            .line("state")
            .1
            .ends_with("is not there yet, and can be made"),
        "{}",
        checked.text
    );
    assert!(contents(dir.path()).is_empty());
    let nowhere = Checked::of(with_file(&sim, Path::new("/nonexistent/state.db"))).await;
    nowhere.assert_only(&[(
        "bad",
        "state",
        &["there is no directory /nonexistent", "--state.path"],
    )]);
    let memory = Checked::of(with_file(&sim, Path::new(":memory:"))).await;
    assert_eq!(memory.line("state").0, "good");
}

#[tokio::test]
async fn a_running_exporter_is_said_and_not_disturbed() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state.db");
    let mut running = running(&sim, &file).await;
    let checked = Checked::of(with_file(&sim, &file)).await;
    checked.assert_only(&[]);
    assert!(
        checked
            .line("state")
            .1
            .contains("of this service, and a running exporter has it"),
        "{}",
        checked.text
    );
    assert_eq!(
        checked.line("organization"),
        ("good", "4711, of the key and of the state file")
    );
    // It goes on writing.
    sim.add_events(2);
    crate::support::binary::until("the events", async || {
        (running.sum("orgdata_audit_events_total").await == 2.0).then_some(())
    })
    .await;
    assert_eq!(running.stop().await, Some(0), "{}", running.stderr().text());
    assert!(
        !running.stderr().text().contains("ERROR"),
        "{}",
        running.stderr().text()
    );
}

#[tokio::test]
async fn the_file_of_a_stopped_exporter_and_of_a_killed_one_stays_as_it_is() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state.db");
    let mut stopped = running(&sim, &file).await;
    stopped.stop().await;
    let checked = unchanged(&sim, &file).await;
    checked.assert_only(&[]);
    assert!(
        checked
            .line("state")
            .1
            .contains("is of this service; 0 log records wait, 0 dead letters"),
        "{}",
        checked.text
    );

    let killed = running(&sim, &file).await;
    killed.signal("KILL").await;
    crate::support::binary::until("its end", async || {
        let lock = std::fs::File::open(dir.path().join("state.db.lock")).expect("it is there");
        lock.try_lock_shared().is_ok().then_some(())
    })
    .await;
    assert!(dir.path().join("state.db-wal").exists());
    let checked = unchanged(&sim, &file).await;
    checked.assert_only(&[]);
    assert!(
        checked.line("state").1.contains("is of this service;"),
        "{}",
        checked.text
    );
    assert_eq!(
        checked.line("organization"),
        ("good", "4711, of the key and of the state file")
    );
}

#[tokio::test]
async fn the_file_of_another_service_or_organization_is_refused() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state.db");
    running(&sim, &file).await.stop().await;
    let other = Simulator::spawn(organization()).await.expect("a simulator");
    let checked = unchanged(&other, &file).await;
    checked.assert_only(&[(
        "bad",
        "state",
        &[
            "belongs to the service at http://127.0.0.1",
            "give --state.path another file",
        ],
    )]);

    let (url, of_another) = (
        sim.base_url(),
        Config {
            organization_id: 9,
            ..organization()
        },
    );
    let database = rusqlite::Connection::open(&file).expect("opens");
    let other = Simulator::spawn(of_another).await.expect("a simulator");
    database
        .execute("UPDATE state SET base_url = ?1", [other.base_url()])
        .expect("changed");
    drop(database);
    assert_ne!(url, other.base_url());
    let checked = unchanged(&other, &file).await;
    checked.assert_only(&[(
        "bad",
        "organization",
        &[
            "belongs to organization 9, but the state file to 4711",
            "--state.path another file",
        ],
    )]);
}

#[tokio::test]
async fn a_file_that_is_none_of_ours_is_refused_and_a_damaged_one_is_a_warning() {
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    let foreign = dir.path().join("foreign.db");
    let database = rusqlite::Connection::open(&foreign).expect("opens");
    database
        .execute_batch("CREATE TABLE precious (it TEXT)")
        .expect("made");
    drop(database);
    unchanged(&sim, &foreign).await.assert_only(&[(
        "bad",
        "state",
        &["database of another program", "--state.path"],
    )]);

    let newer = dir.path().join("newer.db");
    running(&sim, &newer).await.stop().await;
    let database = rusqlite::Connection::open(&newer).expect("opens");
    database
        .execute(
            "UPDATE state SET schema_version = 99, oldest_reader = 99",
            [],
        )
        .expect("changed");
    drop(database);
    unchanged(&sim, &newer).await.assert_only(&[(
        "bad",
        "state",
        &["newer version (schema 99)", "run that version"],
    )]);

    let damaged = dir.path().join("damaged.db");
    std::fs::write(&damaged, "this was a state file once ".repeat(500)).expect("writable");
    unchanged(&sim, &damaged).await.assert_only(&[(
        "warning",
        "state",
        &["is damaged", "set it aside and begin afresh"],
    )]);

    let empty = dir.path().join("empty.db");
    std::fs::write(&empty, "").expect("writable");
    unchanged(&sim, &empty).await.assert_only(&[]);
    Checked::of(with_file(&sim, dir.path()))
        .await
        .assert_only(&[("bad", "state", &["is a directory", "--state.path"])]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_this_user_cannot_write_in_is_bad() {
    use std::os::unix::fs::PermissionsExt as _;
    let sim = service().await;
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o500)).expect("changed");
    let checked = Checked::of(with_file(&sim, &dir.path().join("state.db"))).await;
    // The superuser can write everywhere.
    if std::fs::write(dir.path().join("probe"), "").is_ok() {
        checked.assert_only(&[]);
    } else {
        checked.assert_only(&[(
            "bad",
            "state",
            &[
                "cannot open state file",
                "Permission denied",
                "a directory that this user can write",
            ],
        )]);
    }
}

#[tokio::test]
async fn a_limit_above_what_is_free_is_a_warning() {
    let sim = service().await;
    let checked = Checked::of(check(&sim.base_url()).arg("--state.max-size=4000PB")).await;
    checked.assert_only(&[(
        "warning",
        "disk",
        &["free, and the state file may grow to", "--state.max-size"],
    )]);
}
