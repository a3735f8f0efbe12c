//! Dead letters as an operator handles them: beside a running exporter, and without one.

use crate::support::binary;
use crate::support::collector_peer;

use std::path::{Path, PathBuf};

use binary::{Finished, Launch, exporter, launch, until};
use collector_peer::Peer;
use orgdata_exporter::simulator::{Config, Fields, Running, Simulator};
use serde_json::Value;

const KEPT: &str = "orgdata_otlp_dead_letters";

async fn world() -> (Running, Peer) {
    (
        Simulator::spawn(Config {
            history: 8,
            ..Config::quiet()
        })
        .await
        .expect("a free port"),
        Peer::grpc(4 << 20).await,
    )
}

fn with_collector(simulator: &Running, peer: &Peer, state: &Path) -> Launch {
    exporter(&simulator.base_url())
        .without_env("ORGDATA_STATE_PATH")
        .arg(&format!("--state.path={}", state.display()))
        .arg("--audit.start=oldest")
        .arg(&format!("--otlp.endpoint=http://{}", peer.address))
        .arg("--otlp.protocol=grpc")
}

async fn dead_letters(state: &Path, arguments: &[&str]) -> Finished {
    let [action, rest @ ..] = arguments else {
        panic!("no action")
    };
    launch(&[
        "dead-letters",
        action,
        &format!("--state.path={}", state.display()),
    ])
    .args(rest)
    .run()
    .await
}

/// What `list --format json` says.
async fn listed(state: &Path) -> Vec<Value> {
    let finished = dead_letters(state, &["list", "--format", "json"]).await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    finished
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn state(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("state.db")
}

#[tokio::test]
async fn a_refused_record_is_listed_sent_again_and_deleted_beside_the_running_exporter() {
    let (simulator, peer) = world().await;
    let ids: Vec<String> = simulator
        .simulator()
        .entries()
        .map(|entry| entry.id)
        .collect();
    peer.refuse(&ids[2]);
    peer.refuse(&ids[5]);
    let directory = tempfile::tempdir().expect("a directory");
    let state = state(&directory);
    let mut exporter = with_collector(&simulator, &peer, &state).start();
    exporter.until_value(KEPT, 2.0).await;
    assert_eq!(
        exporter
            .value("orgdata_otlp_records_dead_lettered_total")
            .await,
        Some(2.0)
    );

    let letters = listed(&state).await;
    for (letter, id) in letters.iter().zip([&ids[2], &ids[5]]) {
        assert_eq!(
            (
                &letter["record"]["id"],
                &letter["reason"],
                &letter["queued"]
            ),
            (&id.as_str().into(), &"refused".into(), &false.into())
        );
        assert!(
            letter["message"]
                .as_str()
                .is_some_and(|message| message.contains("cannot take this record")),
            "{letter}"
        );
    }
    let table = dead_letters(&state, &["list"]).await.stdout;
    assert!(
        table.starts_with("NUMBER")
            && table.contains(&ids[2])
            && table.contains("refused")
            && table.lines().count() == 3,
        "{table}"
    );
    assert_eq!(
        dead_letters(&state, &["list", "--reason", "too_large"])
            .await
            .stdout,
        "There are no dead letters.\n"
    );

    // A wrong number changes nothing, not even for the right one beside it.
    let first = letters[0]["id"].to_string();
    let line = dead_letters(&state, &["drop", &first, "4711"])
        .await
        .refusal(2)
        .to_owned();
    assert!(
        line.contains("only 1") && line.contains("dead-letters list"),
        "{line}"
    );
    assert_eq!(listed(&state).await.len(), 2);

    // It comes back as long as the collector does not change, and arrives once it has.
    assert_eq!(
        dead_letters(&state, &["drop", &letters[1]["id"].to_string()])
            .await
            .stdout,
        "1 deleted\n"
    );
    peer.script.bad.lock().expect("lock").clear();
    let queued = dead_letters(&state, &["replay", &first]).await;
    assert!(queued.stdout.starts_with("1 queued"), "{queued:?}");
    exporter
        .until_value("orgdata_otlp_records_sent_total", 7.0)
        .await;
    exporter.until_value(KEPT, 0.0).await;
    assert_eq!(
        exporter.value("orgdata_otlp_records_replayed_total").await,
        Some(1.0)
    );
    assert_eq!(
        peer.taken_ids().iter().filter(|id| **id == ids[2]).count(),
        1
    );
    assert!(!peer.taken_ids().contains(&ids[5]));
    assert_eq!(listed(&state).await, Vec::<Value>::new());
    assert_eq!(exporter.stop().await, Some(0));
}

#[tokio::test]
async fn what_is_queued_while_no_exporter_runs_is_sent_by_the_next_one() {
    let (simulator, peer) = world().await;
    let ids: Vec<String> = simulator
        .simulator()
        .entries()
        .map(|entry| entry.id)
        .collect();
    peer.refuse(&ids[0]);
    // It cannot be read, so that only the dead letter has it.
    let unreadable = Fields::new()
        .unchecked()
        .with("type", Value::Null)
        .with("id", "odd")
        .with("metadata", "a\nb");
    simulator
        .simulator()
        .add_entry(&unreadable)
        .expect("unchecked");
    let directory = tempfile::tempdir().expect("a directory");
    let state = state(&directory);
    let mut first = with_collector(&simulator, &peer, &state).start();
    first.until_value(KEPT, 2.0).await;
    assert_eq!(first.stop().await, Some(0));

    peer.script.bad.lock().expect("lock").clear();
    let before = peer.taken_ids().len();
    assert!(
        dead_letters(&state, &["replay", "--all"])
            .await
            .stdout
            .starts_with("2 queued")
    );
    assert!(
        listed(&state)
            .await
            .iter()
            .all(|letter| letter["queued"] == true)
    );
    let second = with_collector(&simulator, &peer, &state).start();
    until("both are sent", async || {
        (peer.taken_ids().len() == before + 2).then_some(())
    })
    .await;
    assert!(
        peer.taken_ids().contains(&ids[0]) && peer.taken_ids().contains(&"odd".to_owned()),
        "{:?}",
        peer.taken_ids()
    );
    second.until_value(KEPT, 0.0).await;
}

#[tokio::test]
async fn without_a_collector_the_gauge_follows_what_is_deleted_too() {
    let simulator = Simulator::spawn(Config::quiet())
        .await
        .expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let state = state(&directory);
    let exporter = exporter(&simulator.base_url())
        .without_env("ORGDATA_STATE_PATH")
        .arg(&format!("--state.path={}", state.display()))
        .arg("--audit.start=oldest")
        .start();
    exporter
        .until_value("orgdata_up{loop=\"audit\"}", 1.0)
        .await;
    let unreadable = Fields::new()
        .unchecked()
        .with("type", Value::Null)
        .with("id", "odd");
    simulator
        .simulator()
        .add_entry(&unreadable)
        .expect("unchecked");
    exporter.until_value(KEPT, 1.0).await;
    assert_eq!(
        dead_letters(&state, &["drop", "--all"]).await.stdout,
        "1 deleted\n"
    );
    exporter.until_value(KEPT, 0.0).await;
}

#[tokio::test]
async fn what_is_no_state_file_is_refused_and_nothing_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = state(&directory);
    assert!(
        dead_letters(&missing, &["list"])
            .await
            .refusal(2)
            .contains("there is no state file")
    );
    assert!(!missing.exists());
    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other)
        .expect("opens")
        .execute_batch("CREATE TABLE theirs (x)")
        .expect("runs");
    assert!(
        dead_letters(&other, &["replay", "--all"])
            .await
            .refusal(2)
            .contains("another program")
    );
    assert!(
        dead_letters(Path::new(":memory:"), &["list"])
            .await
            .refusal(2)
            .contains(":memory:")
    );
    assert!(
        dead_letters(&missing, &["drop"])
            .await
            .refusal(2)
            .contains("--all")
    );
}
