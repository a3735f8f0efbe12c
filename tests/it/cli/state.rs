//! The state file: what cannot be opened is refused with the way out, what is damaged is set aside.

use std::path::Path;

use orgdata_exporter::simulator::{Config, Simulator};

use crate::support::binary::{Launch, exporter, until};

const UP: &str = "orgdata_up{loop=\"audit\"}";

/// An exporter whose state is in `state.db` of its directory.
fn with_file(base_url: &str) -> Launch {
    exporter(base_url)
        .without_env("ORGDATA_STATE_PATH")
        .arg("--state.path=state.db")
}

fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("readable");
    entries
        .map(|entry| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect()
}

#[tokio::test]
async fn a_place_where_no_file_can_be_is_refused_with_what_to_give_instead() {
    for path in [
        "a-directory",
        "missing/state.db",
        "a-file/state.db",
        "/proc/state.db",
        "",
    ] {
        let launch = exporter("http://127.0.0.1:1").env("ORGDATA_STATE_PATH", path);
        std::fs::create_dir(launch.dir().join("a-directory")).expect("writable");
        std::fs::write(launch.dir().join("a-file"), "").expect("writable");
        let finished = launch.run().await;
        let line = finished.refusal(2);
        assert!(
            line.contains(path) && line.contains("--state.path") && line.contains(":memory:"),
            "{line}"
        );
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_may_only_be_read_is_refused_too() {
    use std::os::unix::fs::PermissionsExt as _;
    let launch = exporter("http://127.0.0.1:1").env("ORGDATA_STATE_PATH", "read-only/state.db");
    let dir = launch.dir().join("read-only");
    std::fs::create_dir(&dir).expect("writable");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o555)).expect("ours");
    if std::fs::write(dir.join("probe"), "").is_ok() {
        // Permissions do not bind root.
        return;
    }
    let finished = launch.run().await;
    assert!(
        finished.refusal(2).contains("read-only/state.db"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn a_file_in_use_is_refused_with_a_status_of_its_own() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let launch = with_file(&sim.base_url());
    let path = launch.dir().join("state.db").display().to_string();
    let mut first = launch.start();
    first.until_value(UP, 1.0).await;
    let finished = exporter(&sim.base_url())
        .env("ORGDATA_STATE_PATH", &path)
        .run()
        .await;
    let line = finished.refusal(3);
    assert!(
        line.contains(&path) && line.contains("another process") && line.contains("--state.path"),
        "{line}"
    );
    // The first one did not notice.
    assert_eq!(first.value(UP).await, Some(1.0));
    assert_eq!(first.stop().await, Some(0));
}

#[tokio::test]
async fn another_service_s_file_is_refused() {
    let (one, two) = tokio::join!(
        Simulator::spawn(Config::quiet()),
        Simulator::spawn(Config::quiet())
    );
    let (one, two) = (one.expect("a simulator"), two.expect("a simulator"));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.db").display().to_string();
    let mut first = exporter(&one.base_url())
        .env("ORGDATA_STATE_PATH", &path)
        .start();
    first.until_value(UP, 1.0).await;
    first.stop().await;
    let finished = exporter(&two.base_url())
        .env("ORGDATA_STATE_PATH", &path)
        .run()
        .await;
    let line = finished.refusal(2);
    assert!(
        line.contains(&one.base_url())
            && line.contains(&two.base_url())
            && line.contains("--state.path"),
        "{line}"
    );
    // The same service with a slash at the end is the same service.
    let again = exporter(&format!("{}/", one.base_url()))
        .env("ORGDATA_STATE_PATH", &path)
        .start();
    again.until_value(UP, 1.0).await;
}

#[tokio::test]
async fn another_program_s_database_is_refused_and_left_alone() {
    let launch = with_file("http://127.0.0.1:1");
    let file = launch.dir().join("state.db");
    let database = rusqlite::Connection::open(&file).expect("writable");
    database
        .execute_batch(
            "CREATE TABLE precious (it TEXT); INSERT INTO precious VALUES ('still here')",
        )
        .expect("valid");
    drop(database);
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("other.db");
    std::fs::copy(&file, &copy).expect("readable");
    let finished = exporter("http://127.0.0.1:1")
        .env("ORGDATA_STATE_PATH", &copy.display().to_string())
        .run()
        .await;
    let line = finished.refusal(2);
    assert!(
        line.contains("other.db")
            && line.contains("another program")
            && line.contains("--state.path"),
        "{line}"
    );
    let database = rusqlite::Connection::open(&copy).expect("still there");
    let text: String = database
        .query_row("SELECT it FROM precious", [], |row| row.get(0))
        .expect("untouched");
    assert_eq!(text, "still here");
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_the_exporter_works() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let launch = with_file(&sim.base_url());
    let (file, dir) = (launch.dir().join("state.db"), launch.dir().to_owned());
    let garbage = "this was a state file once ".repeat(500);
    std::fs::write(&file, &garbage).expect("writable");
    let exporter = launch.start();
    exporter.until_value(UP, 1.0).await;
    let names = files(&dir);
    let aside = names
        .iter()
        .find(|name| name.starts_with("state.db.damaged-"))
        .unwrap_or_else(|| panic!("not set aside: {names:?}"));
    assert_eq!(
        std::fs::read_to_string(dir.join(aside)).expect("readable"),
        garbage
    );
    assert_eq!(
        exporter.value("orgdata_state_recreated_total").await,
        Some(1.0)
    );
    assert!(
        exporter
            .value("orgdata_state_recreated_timestamp_seconds")
            .await
            .is_some_and(|at| at > 1.6e9)
    );
    exporter
        .stderr()
        .until("where it is now", |line| {
            line.contains("damaged") && line.contains(aside.as_str())
        })
        .await;
    exporter
        .stderr()
        .until("the gap", |line| {
            line.contains("gap in the audit trail") && line.contains("state_recreated")
        })
        .await;
}

/// What a failing disk does while nobody looks: all but the first page is something else, and nothing of it is in memory any more.
fn damage(file: &Path) {
    let database = rusqlite::Connection::open(file).expect("opens");
    database
        .pragma_update(None, "user_version", 7)
        .expect("written");
    database
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .expect("runs");
    let mut bytes = std::fs::read(file).expect("readable");
    bytes[4096..].fill(0x5a);
    std::fs::write(file, bytes).expect("writable");
}

#[tokio::test]
async fn every_damage_is_counted_also_while_it_runs() {
    let sim = Simulator::spawn(Config::quiet())
        .await
        .expect("a simulator");
    let launch = with_file(&sim.base_url());
    let file = launch.dir().join("state.db");
    std::fs::write(&file, "no database").expect("writable");
    let mut exporter = launch.start();
    exporter.until_value(UP, 1.0).await;
    for damages in [2_u8, 3] {
        damage(&file);
        sim.add_events(1);
        let listens = usize::from(damages);
        until("it begins anew", async || {
            (exporter.stderr().text().matches("listening").count() == listens).then_some(())
        })
        .await;
        exporter.until_value(UP, 1.0).await;
        assert_eq!(
            exporter.value("orgdata_state_recreated_total").await,
            Some(damages.into())
        );
    }
    assert_eq!(exporter.stop().await, Some(0));
}
