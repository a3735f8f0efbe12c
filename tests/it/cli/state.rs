//! The state file: what cannot be opened is refused with what to do, and a damaged one is set aside.

use std::path::Path;

use super::{UP, organization};
use crate::support::binary::{Launch, exporter, until};

/// An exporter whose state is in `state.db` of its directory.
fn with_file(base_url: &str) -> Launch {
    exporter(base_url)
        .without_env("ORGDATA_STATE_PATH")
        .arg("--state.path=state.db")
}

#[tokio::test]
async fn a_place_where_no_file_can_be_is_refused_with_what_to_give_instead() {
    for path in [
        "a-directory",
        "missing/state.db",
        "a-file/state.db",
        "/proc/state.db",
    ] {
        let launch = exporter("http://127.0.0.1:1").env("ORGDATA_STATE_PATH", path);
        std::fs::create_dir(launch.dir().join("a-directory")).unwrap();
        std::fs::write(launch.dir().join("a-file"), "").unwrap();
        let finished = launch.run().await;
        let line = finished.refusal(2);
        for part in [path, "--state.path", ":memory:"] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
    }
}

#[tokio::test]
async fn a_directory_that_may_only_be_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let launch = exporter("http://127.0.0.1:1").env("ORGDATA_STATE_PATH", "read-only/state.db");
    let dir = launch.dir().join("read-only");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not bind root.
    if std::fs::write(dir.join("probe"), "").is_err() {
        let finished = launch.run().await;
        assert!(
            finished.refusal(2).contains("read-only/state.db"),
            "{finished:?}"
        );
    }
}

#[tokio::test]
async fn a_file_in_use_is_refused_with_status_3() {
    let api = organization().await;
    let launch = with_file(&api.base_url());
    let path = launch.dir().join("state.db").display().to_string();
    let mut first = launch.start();
    first.until_value(UP, 1.0).await;
    let second = exporter(&api.base_url()).env("ORGDATA_STATE_PATH", &path);
    let finished = second.run().await;
    let line = finished.refusal(3);
    for part in [&path, "another process", "--state.path"] {
        assert!(line.contains(part), "{part} is missing in: {line}");
    }
    assert_eq!(first.value(UP).await, Some(1.0));
    assert_eq!(first.stop().await, Some(0));
    // A slash at the end makes no difference to the API.
    let again = exporter(&format!("{}/", api.base_url())).env("ORGDATA_STATE_PATH", &path);
    again.start().until_value(UP, 1.0).await;
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.db");
    let database = rusqlite::Connection::open(&file).unwrap();
    let sql = "CREATE TABLE precious (it TEXT); INSERT INTO precious VALUES ('still here')";
    database.execute_batch(sql).unwrap();
    drop(database);
    let before = std::fs::read(&file).unwrap();
    let launch =
        exporter("http://127.0.0.1:1").env("ORGDATA_STATE_PATH", &file.display().to_string());
    let finished = launch.run().await;
    let line = finished.refusal(2);
    for part in [
        "other.db",
        "not a state file of this program",
        "--state.path",
    ] {
        assert!(line.contains(part), "{part} is missing in: {line}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

/// Overwrites all but the first page, as a failing disk does.
fn damage(file: &Path) {
    let database = rusqlite::Connection::open(file).unwrap();
    database.pragma_update(None, "user_version", 7).unwrap();
    let truncated = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    truncated.unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::write(file, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_also_while_the_exporter_runs() {
    let api = organization().await;
    let launch = with_file(&api.base_url());
    let file = launch.dir().join("state.db");
    let mut exporter = launch.start();
    exporter.until_value(UP, 1.0).await;
    for damages in [1_u8, 2] {
        damage(&file);
        api.add_events(1);
        let starts = usize::from(damages) + 1;
        until("a new start", async || {
            let log = exporter.stderr().text();
            (log.matches("listening").count() == starts).then_some(())
        })
        .await;
        exporter.until_value(UP, 1.0).await;
        let recreated = exporter.value("orgdata_state_recreated_total").await;
        assert_eq!(recreated, Some(damages.into()));
    }
    let at = exporter
        .value("orgdata_state_recreated_timestamp_seconds")
        .await;
    assert!(at.is_some_and(|at| at > 1.6e9), "{at:?}");
    let names = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let aside: Vec<String> = names
        .filter(|name| name.starts_with("state.db.damaged-"))
        .collect();
    assert!(!aside.is_empty());
    let log = exporter.stderr().text();
    assert!(
        aside.iter().all(|name| log.contains(name)),
        "{aside:?}: {log}"
    );
    assert!(log.contains("state_recreated"), "{log}");
    assert_eq!(exporter.stop().await, Some(0));
}
