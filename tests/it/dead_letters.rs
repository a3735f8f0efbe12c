//! Dead letters as an operator handles them: beside a running exporter, and without one.

use std::path::Path;

use orgdata_exporter::simulator::Fields;
use serde_json::{Value, json};

use crate::support::binary::{Finished, Launch, exporter, launch};
use crate::support::collector_peer::Peer;
use crate::support::files::{assert_has, file, masked, transcript};
use crate::support::service::organization;

const KEPT: &str = "orgdata_dead_letters_stored";

const SENT: &str = "orgdata_otlp_records_sent_total";

fn with_state(base_url: &str, state: &Path) -> Launch {
    exporter(base_url).state(state).arg("--audit.start=oldest")
}

fn command(state: &Path, arguments: &[&str]) -> Launch {
    let launch = launch(&["dead-letters"]).args(arguments);
    launch.env("ORGDATA_STATE_PATH", state.to_str().unwrap())
}

async fn dead_letters(state: &Path, arguments: &[&str]) -> Finished {
    command(state, arguments).run().await
}

/// The lines of `list --format json`.
async fn listed(state: &Path) -> Vec<Value> {
    let finished = dead_letters(state, &["list", "--format=json"]).await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    let lines = finished.stdout.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_rejected_record_is_listed_replayed_and_deleted() {
    let api = organization(8, 0).await;
    let ids: Vec<String> = api.entries().map(|entry| entry.id).collect();
    let collector = Peer::grpc(4 << 20).await;
    let rejected = [&ids[0], &ids[2], &ids[5]];
    rejected.iter().for_each(|id| collector.reject(id));
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let launch = with_state(&api.base_url(), &state).otlp("grpc", &collector.url());
    let mut exporter = launch.start();
    exporter.until_value(KEPT, 3.0).await;

    let letters = listed(&state).await;
    for (letter, id) in letters.iter().zip(rejected) {
        // Not the text of the collector, which may contain anything.
        assert_has!(*letter, {
            "record": { "id": id }, "reason": "rejected", "kind": "entry", "queued": false, "message": "InvalidArgument",
        });
        assert!(letter["rejected_at"].is_string(), "{letter}");
    }
    let other = dead_letters(&state, &["list", "--reason=too_large"]).await;
    assert_eq!(other.stdout, "There are no dead letters.\n");

    // A wrong number changes nothing, not even the right one beside it.
    let [first, second] = [0, 1].map(|index: usize| letters[index]["id"].to_string());
    let wrong = command(&state, &["drop", &first, "4711"]);
    wrong.refused(2, "letter 4711 | dead-letters list").await;
    assert_eq!(listed(&state).await.len(), 3);

    // Beside the running exporter.
    let dropped = dead_letters(&state, &["drop", &second]).await;
    assert_eq!(dropped.stdout, "1 deleted\n");
    collector.script.bad.lock().unwrap().clear();
    let queued = dead_letters(&state, &["replay", &first]).await;
    assert!(queued.stdout.starts_with("1 queued"), "{queued:?}");
    exporter.until_value(SENT, 6.0).await;
    exporter.until_value(KEPT, 1.0).await;
    let replayed = "orgdata_dead_letters_replayed_total";
    assert_eq!(exporter.value(replayed).await, Some(1.0));

    // What is queued while no exporter runs is sent by the next one.
    assert_eq!(exporter.stop().await, Some(0));
    let queued = dead_letters(&state, &["replay", "--all"]).await;
    assert!(queued.stdout.starts_with("1 queued"), "{queued:?}");
    assert_eq!(listed(&state).await[0]["queued"], true);
    let next = launch.start();
    next.until_value(KEPT, 0.0).await;
    next.until_value(SENT, 1.0).await;
    let mut taken = collector.taken_ids();
    taken.sort();
    let mut wanted = ids;
    wanted.remove(2);
    wanted.sort();
    assert_eq!(taken, wanted, "each once, but for the deleted one");
    assert!(listed(&state).await.is_empty());
}

#[tokio::test]
async fn an_entry_without_a_type_is_a_dead_letter_also_without_a_collector() {
    let api = organization(1, 0).await;
    let user = json!({ "id": 1, "firstName": "Ada" });
    let entry = Fields::new().unchecked().with("id", "odd\u{1b}[31m");
    let entry = entry.with("type", Value::Null).with("metadata", 1);
    api.add_entry(&entry.with("actorUser", user)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let launch = with_state(&api.base_url(), &state).arg("--otlp.actor=none");
    let exporter = launch.start();
    exporter.until_value(KEPT, 1.0).await;
    let malformed = "orgdata_audit_entries_malformed_total";
    assert_eq!(exporter.value(malformed).await, Some(1.0));
    let letters = listed(&state).await;
    assert_has!(letters[0], { "reason": "malformed", "record": { "metadata": 1 } });
    assert!(!letters[0].to_string().contains("Ada"), "{}", letters[0]);
    let table = dead_letters(&state, &["list"]).await.stdout;
    let is_tame = !table.contains('\u{1b}') && table.lines().count() == 2;
    assert!(is_tame, "{table}");
    let dropped = dead_letters(&state, &["drop", "--reason=malformed"]).await;
    assert_eq!(dropped.stdout, "1 deleted\n");
    exporter.until_value(KEPT, 0.0).await;
}

#[tokio::test]
async fn wrong_files_and_arguments_are_refused_and_nothing_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("state.db");
    let other = directory.path().join("other.db");
    let database = rusqlite::Connection::open(&other).unwrap();
    database.execute_batch("CREATE TABLE theirs (x)").unwrap();
    for (file, arguments, words) in [
        (&missing, &["list"][..], "does not exist"),
        (&other, &["replay", "--all"], "not a state file"),
        (&missing, &["drop", "--all", "7"], "--all"),
    ] {
        command(file, arguments).refused(2, words).await;
    }
    assert!(!missing.exists());
}

#[tokio::test]
async fn the_transcript_in_the_documentation_is_what_is_printed() {
    let page = file("docs/delivery.md");
    let api = organization(1, 0).await;
    let entry = Fields::new().with("id", "evt_00042");
    let entry = entry.unchecked().with("type", Value::Null);
    api.add_entry(&entry).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let exporter = with_state(&api.base_url(), &state).start();
    exporter.until_value(KEPT, 1.0).await;
    for arguments in [&["list"][..], &["replay", "--all"]] {
        let command = format!("orgdata-exporter dead-letters {}", arguments.join(" "));
        let printed = dead_letters(&state, arguments).await.stdout;
        assert_eq!(transcript(&page, &command), masked(&printed));
    }
}
