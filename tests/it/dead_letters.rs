//! Dead letters as an operator handles them: beside a running exporter, and without one.

use std::path::Path;

use orgdata_exporter::simulator::Running;
use serde_json::{Value, json};

use crate::support::binary::{Finished, Launch, exporter, launch};
use crate::support::collector_peer::Peer;
use crate::support::files::missing;
use crate::support::http_peer::{self, NO_TICKETS};
use crate::support::service::organization;

const KEPT: &str = "orgdata_otlp_dead_letters";

const SENT: &str = "orgdata_otlp_records_sent_total";

/// A simulated organization with eight entries, their ids, and a collector.
async fn world() -> (Running, Vec<String>, Peer) {
    let api = organization(8, 0).await;
    let ids = api.simulator().entries().map(|entry| entry.id).collect();
    (api, ids, Peer::grpc(4 << 20).await)
}

fn with_state(base_url: &str, state: &Path) -> Launch {
    exporter(base_url).state(state).arg("--audit.start=oldest")
}

fn with_collector(base_url: &str, collector: &Peer, state: &Path) -> Launch {
    let endpoint = format!("http://{}", collector.address);
    with_state(base_url, state).otlp("grpc", &endpoint)
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
async fn a_rejected_record_is_listed_replayed_and_deleted_beside_the_running_exporter() {
    let (api, ids, collector) = world().await;
    collector.refuse(&ids[2]);
    collector.refuse(&ids[5]);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let mut exporter = with_collector(&api.base_url(), &collector, &state).start();
    exporter.until_value(KEPT, 2.0).await;

    let letters = listed(&state).await;
    let keys = "id rejected_at arrived_at reason message kind queued record";
    let found: Vec<&str> = letters[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(found.join(" "), keys);
    for (letter, id) in letters.iter().zip([&ids[2], &ids[5]]) {
        let wanted = json!({ "record": { "id": id }, "reason": "refused", "kind": "entry", "queued": false });
        assert_eq!(missing(letter, &wanted, ""), None);
        // Not the text of the collector, which may contain anything.
        assert_eq!(letter["message"], "InvalidArgument");
        assert!(letter["rejected_at"].is_string(), "{letter}");
    }
    let table = dead_letters(&state, &["list"]).await.stdout;
    let has_all = table.contains("NUMBER") && table.contains(&ids[2]);
    assert!(has_all && table.lines().count() == 3, "{table}");
    let other = dead_letters(&state, &["list", "--reason=too_large"]).await;
    assert_eq!(other.stdout, "There are no dead letters.\n");

    // A wrong number changes nothing, not even the right one beside it.
    let [first, second] = [0, 1].map(|index: usize| letters[index]["id"].to_string());
    let wrong = command(&state, &["drop", &first, "4711"]);
    wrong.refused(2, "letter 4711 | dead-letters list").await;
    assert_eq!(listed(&state).await.len(), 2);

    let dropped = dead_letters(&state, &["drop", &second]).await;
    assert_eq!(dropped.stdout, "1 deleted\n");
    collector.script.bad.lock().unwrap().clear();
    let queued = dead_letters(&state, &["replay", &first]).await;
    assert!(queued.stdout.starts_with("1 queued"), "{queued:?}");
    exporter.until_value(SENT, 7.0).await;
    exporter.until_value(KEPT, 0.0).await;
    let replayed = exporter.value("orgdata_otlp_records_replayed_total").await;
    assert_eq!(replayed, Some(1.0));
    let taken = collector.taken_ids();
    assert_eq!(taken.iter().filter(|id| **id == ids[2]).count(), 1);
    assert!(!taken.contains(&ids[5]));
    assert!(listed(&state).await.is_empty());
    assert_eq!(exporter.stop().await, Some(0));
}

#[tokio::test]
async fn what_is_queued_while_no_exporter_runs_is_sent_by_the_next_one() {
    let (api, ids, collector) = world().await;
    collector.refuse(&ids[0]);
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let mut first = with_collector(&api.base_url(), &collector, &state).start();
    first.until_value(KEPT, 1.0).await;
    assert_eq!(first.stop().await, Some(0));

    collector.script.bad.lock().unwrap().clear();
    let queued = dead_letters(&state, &["replay", "--all"]).await;
    let said = queued.stdout;
    let is_told = said.contains("without a collector, nothing sends them");
    assert!(is_told && said.starts_with("1 queued"), "{said}");
    assert_eq!(listed(&state).await[0]["queued"], true);
    let second = with_collector(&api.base_url(), &collector, &state).start();
    second.until_value(KEPT, 0.0).await;
    second.until_value(SENT, 1.0).await;
    assert!(collector.taken_ids().contains(&ids[0]));

    let state = directory.path().join("other.db");
    let away = with_state(&api.base_url(), &state).otlp("grpc", "http://127.0.0.1:1");
    let mut away = away.start();
    away.until_value("orgdata_otlp_backlog_records", 8.0).await;
    assert_eq!(away.stop().await, Some(0));
    let without = with_state(&api.base_url(), &state).start();
    without
        .logs("level=warn | log records wait | backlog_records=8 | --otlp.endpoint")
        .await;
}

#[tokio::test]
async fn an_entry_without_a_type_is_a_dead_letter_also_without_a_collector() {
    let page = "{\"items\":[{\"id\":\"odd\\u001b[31m\",\n\"createdAt\":\"2026-01-01T00:00:00Z\",\"metadata\":1,\"actorUser\":{\"id\":1,\"firstName\":\"Ada\"}}]}";
    let api = http_peer::Peer::start(move |seen, _| match seen.target() {
        target if target.contains("/v1/tickets") => http_peer::json("200 OK", NO_TICKETS),
        target if target.contains("before=") => http_peer::json("200 OK", http_peer::NO_ENTRIES),
        _ => http_peer::json("200 OK", page),
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let launch = with_state(&api.url(), &state).arg("--otlp.actor=none");
    let exporter = launch.start();
    exporter.until_value(KEPT, 1.0).await;
    let letters = listed(&state).await;
    assert_eq!(letters[0]["message"], "the entry has no type");
    assert!(!letters[0].to_string().contains("Ada"), "{}", letters[0]);
    assert_eq!(letters[0]["reason"], "malformed");
    assert_eq!(letters[0]["record"]["metadata"], 1);
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
    let sql = "CREATE TABLE theirs (x)";
    database.execute_batch(sql).unwrap();
    let not_ours = "not a state file of this program";
    // As for the user of another directory: whether there is a file is not known.
    let hidden = other.join("state.db");
    for (file, arguments, words) in [
        (&*missing, &["list"][..], "does not exist"),
        (
            &hidden,
            &["list"],
            "cannot open state file | Not a directory",
        ),
        (&other, &["replay", "--all"], not_ours),
        (Path::new(":memory:"), &["list"], ":memory:"),
        (&missing, &["drop", "--all", "7"], "--all"),
        (&missing, &["list", "--reason=odd"], "too_large"),
    ] {
        command(file, arguments).refused(2, words).await;
    }
    assert!(!missing.exists());
}
