//! `verify`: an export of the log store is compared with what the API lists, and what is missing is sent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    ClockSource, Config, Endpoint, Fault, FaultKind, Fields, KeyReading, Readings, Running, Served,
};
use serde_json::{Value, json};

use crate::support::binary::{Finished, KEY, Launch, exporter, free_address, launch, until};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::files::{file as page, masked, transcript};
use crate::support::http_peer;
use crate::support::service::{readings, spawn};

/// A service whose entries are of the last three hours.
async fn service(history: u64, readings: Readings) -> Running {
    let quiet = Config::quiet();
    spawn(Config {
        history,
        readings,
        history_span: Duration::from_secs(3 * 3600),
        clock: ClockSource::Real,
        ..quiet
    })
    .await
}

fn command(base_url: &str, arguments: &[&str]) -> Launch {
    launch(&["verify", "--from=oldest", "--format=json"])
        .arg("--api.max-requests-per-second=1000")
        .args(arguments)
        .env("ORGDATA_API_BASE_URL", base_url)
        .env("ORGDATA_API_KEY", KEY)
}

/// Compares everything up to now with an export.
fn verify(base_url: &str, export: &[u8]) -> Launch {
    let launch = command(base_url, &["--until=now", "export"]);
    fs::write(launch.dir().join("export"), export).unwrap();
    launch
}

/// A record of OTLP JSON.
fn record(entry: &Served) -> Value {
    let attribute = |key, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    json!({
        "timeUnixNano": entry.created_at.as_nanosecond().to_string(),
        "body": { "kvlistValue": { "values": [attribute("log.record.uid", "another")] } },
        "attributes": [attribute("user.id", "5"), attribute("log.record.uid", &entry.id)],
    })
}

fn request(records: Vec<Value>) -> Value {
    json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": records }] }] })
}

/// A line of an export in one of the three forms.
fn line(form: usize, entry: &Served) -> String {
    let Served { id, created_at, .. } = entry;
    let line = match form {
        0 => request(vec![record(entry)]),
        1 => json!({ "_time": created_at, "_msg": entry.json, "log.record.uid": id }),
        _ => {
            json!({ "labels": { "log_record_uid": id }, "line": entry.json, "timestamp": created_at })
        }
    };
    format!("{line}\n")
}

fn export<'a>(form: usize, entries: impl IntoIterator<Item = &'a Served>) -> Vec<u8> {
    let lines = entries.into_iter().map(|entry| line(form, entry));
    lines.collect::<String>().into_bytes()
}

/// What a run printed with `--format json`: its summary, and the other lines.
fn printed(finished: &Finished) -> (Value, Vec<Value>) {
    let lines = finished.stdout.lines().map(serde_json::from_str);
    let mut lines: Vec<Value> = lines.map(Result::unwrap).collect();
    let summary = lines.pop().unwrap_or_else(|| panic!("{finished:?}"));
    assert_eq!(summary["result"], "summary");
    (summary, lines)
}

fn ids(lines: &[Value], result: &str) -> BTreeSet<String> {
    let lines = lines.iter().filter(|line| line["result"] == result);
    let ids = lines.map(|line| line["id"].as_str().unwrap().to_owned());
    ids.collect()
}

/// Runs it and returns its summary.
async fn summary(launch: Launch, status: i32) -> Value {
    let finished = launch.run().await;
    assert_eq!(finished.status, Some(status), "{finished:?}");
    printed(&finished).0
}

/// Asserts that these numbers are in a summary, and no others but zeros.
#[track_caller]
fn assert_numbers(summary: &Value, expected: &str) {
    let numbers = summary.as_object().unwrap().iter();
    let numbers = numbers.filter(|(key, value)| value.as_u64() > Some(0) && *key != "lines");
    let numbers: BTreeSet<String> = numbers
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let expected: BTreeSet<String> = expected.split(' ').map(str::to_owned).collect();
    assert_eq!(numbers, expected, "{summary}");
}

#[tokio::test]
async fn seven_of_a_hundred_thousand_are_missing_and_three_are_there_more_than_once() {
    let api = service(100_000, Readings::default()).await;
    let mut entries: Vec<Served> = api.entries().collect();
    let mut random = fastrand::Rng::with_seed(1);
    random.shuffle(&mut entries);
    let (missing, found) = entries.split_at(7);
    let doubled = &found[..3];
    let requests = found.chunks(500).map(|entries| {
        let records = entries.iter().map(record);
        format!("{}\n", request(records.collect()))
    });
    let mut file = requests.collect::<String>().into_bytes();
    file.extend(export(1, doubled));
    let finished = verify(&api.base_url(), &file).run().await;
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    let (summary, lines) = printed(&finished);
    assert_numbers(&summary, "listed=100000 missing=7 repeated=3");
    let set =
        |entries: &[Served]| BTreeSet::from_iter(entries.iter().map(|entry| entry.id.clone()));
    assert_eq!(ids(&lines, "missing"), set(missing));
    assert_eq!(ids(&lines, "repeated"), set(doubled));
    for entry in missing {
        let is_it = |line: &&Value| line["id"] == entry.id.as_str();
        let line = lines.iter().find(is_it).unwrap();
        let expected = json!({
            "result": "missing", "id": entry.id, "type": entry.activity_type, "created_at": entry.created_at, "dead_letter": null,
        });
        assert_eq!(*line, expected);
    }
}

/// The borders of each window are the times of entries, several of which may have the same.
#[tokio::test]
async fn thirty_windows_in_all_forms_are_compared() {
    let api = service(300, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut borders = [0, 0].map(|_| entries[random.usize(..entries.len())].created_at);
        borders.sort();
        let [from, until] = borders;
        if from == until {
            continue;
        }
        let is_inside = |entry: &&Served| (from..until).contains(&entry.created_at);
        let (mut missing, mut repeated, mut outside) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut lines = Vec::new();
        for entry in &entries {
            let times = [0, 1, 1, 1, 1, 1, 1, 2, 3][random.usize(..9)];
            lines.extend((0..times).map(|_| line(random.usize(..3), entry)));
            match times {
                _ if !is_inside(&entry) => outside += 1,
                0 => drop(missing.insert(entry.id.clone())),
                1 => {}
                _ => drop(repeated.insert(entry.id.clone())),
            }
        }
        random.shuffle(&mut lines);
        let launch = verify(&api.base_url(), lines.concat().as_bytes());
        let launch = launch.flag("--from", &from.to_string());
        let launch = launch.flag("--until", &until.to_string());
        let finished = launch.flag("--api.page-size", "90").run().await;
        assert_eq!(
            finished.status,
            Some(i32::from(!missing.is_empty())),
            "{seed}: {finished:?}"
        );
        let (summary, lines) = printed(&finished);
        let found = (ids(&lines, "missing"), ids(&lines, "repeated"));
        assert_eq!(found, (missing, repeated), "{seed}");
        assert_eq!(summary["listed"], entries.len() - outside, "{seed}");
        assert_eq!(summary["from"], json!(from), "{seed}");
        assert_eq!(
            (&summary["unknown"], &summary["outside"]),
            (&json!(0), &json!(0))
        );
    }
}

#[tokio::test]
async fn lines_that_are_not_as_they_should_be_are_counted() {
    let api = service(10, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let now = Timestamp::now();
    let other = |id: &str, age: i64| {
        let created_at = now - SignedDuration::from_mins(age);
        let id = id.to_owned();
        Served {
            id,
            created_at,
            ..entries[0].clone()
        }
    };
    let mut file = export(2, &entries[..5]);
    file.extend(b"\n\r\n  \n");
    // Of another organization, of another time, of no time, and of the exporter itself.
    file.extend(export(
        1,
        [&other("odd\u{1b}[31m", 60), &other("older", 300)],
    ));
    file.extend(b"{\"log.record.uid\":\"timeless\"}\r\n");
    file.extend(export(0, [&other("orgdata.exporter.gap-1", 60)]));
    // The last entry stands in bodies only, or in lines that are not read.
    let last = &entries[9].id;
    let body = json!({ "body": { "log.record.uid": last }, "log.record.uid": "" });
    file.extend(format!("{body}\n").as_bytes());
    file.extend(format!("{{\"log.record.uid\":\"{last}\", oops\n").as_bytes());
    file.extend([b"{\"log.record.uid\":\"", last.as_bytes(), b"\xff\"}\n"].concat());
    file.extend(b"\"");
    file.resize(file.len() + (16 << 20), b' ');
    file.extend(format!("\",\"log.record.uid\":\"{last}\"\n").as_bytes());
    // A collector that was killed has written the beginning of a line.
    let whole = line(0, &entries[5]);
    file.extend(&whole.as_bytes()[..100]);
    file.extend(whole.as_bytes());
    // The last line does not end.
    file.extend(export(1, &entries[6..9]));
    file.pop();
    let launch = verify(&api.base_url(), &file);
    let finished = launch.clone().run().await;
    assert_eq!(finished.status, Some(1), "{finished:?}");
    let (summary, lines) = printed(&finished);
    let numbers =
        "listed=10 missing=1 unknown=1 outside=2 lines_without_id=1 broken_lines=3 long_lines=1";
    assert_numbers(&summary, numbers);
    assert_eq!(ids(&lines, "missing"), BTreeSet::from([last.clone()]));
    assert_eq!(
        ids(&lines, "unknown"),
        BTreeSet::from(["odd\u{1b}[31m".to_owned()])
    );
    let text = launch.clone().flag("--format", "text").run().await.stdout;
    assert!(
        text.contains("unknown   odd [31m\n") && text.contains(last),
        "{text}"
    );
    let piped = command(&api.base_url(), &["--until=now", "-"]);
    fs::write(piped.dir().join("export"), &file).unwrap();
    let piped = piped.script("\"$0\" \"$@\" < export").run().await;
    assert_eq!(printed(&piped).1, lines);
}

#[tokio::test]
async fn what_cannot_be_compared_ends_with_status_2() {
    let api = service(10, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let (url, all) = (api.base_url(), export(0, &entries));
    let forms = "3 lines | OTLP JSON | the key log.record.uid | log_record_uid";
    verify(&url, b"{}\n[]\n7\n").refused(2, forms).await;
    let missing = command(&url, &["missing"]);
    missing.refused(2, "cannot read missing").await;
    let directory = command(&url, &["/"]);
    directory.refused(2, "cannot read / | directory").await;
    let reversed = verify(&url, &all)
        .flag("--from", "1h")
        .flag("--until", "2h");
    reversed
        .refused(2, "--from | --until | nothing lies between")
        .await;
    let state = verify(&url, &all).arg("--state.path=no.db");
    state.refused(2, "no.db does not exist").await;
    let nothing = service(0, Readings::default()).await;
    let nothing = verify(&nothing.base_url(), &all);
    nothing.refused(2, "lists no audit logs | --audit").await;
    let wrong = verify(&url, &all).env("ORGDATA_API_KEY", "wrong");
    wrong
        .refused(2, "cannot compare: HTTP 401 | nothing was read")
        .await;
    // The window may be empty although there are entries.
    let early = verify(&url, b"").flag("--until", "30d");
    let summary = summary(early, 0).await;
    assert_eq!(
        (&summary["listed"], &summary["missing"]),
        (&json!(0), &json!(0))
    );
}

#[tokio::test]
async fn an_api_that_fails_in_the_middle_is_asked_again_and_given_up() {
    let api = service(60, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let launch = verify(&api.base_url(), &export(0, &entries)).arg("--api.page-size=10");
    let strike = |kind: FaultKind, at: u64, times: u64| {
        api.simulator().clear_requests();
        api.simulator().on_request(Box::new(move |request, _| {
            let is_struck = (at..at + times).contains(&request.number);
            is_struck.then(|| Fault::new(kind.clone()))
        }));
    };
    let status = |status| FaultKind::Status(StatusCode::from_u16(status).unwrap());
    let expired = FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST);
    for (kind, times) in [
        (status(503), 5),
        (FaultKind::Hang, 1),
        (FaultKind::EmptyPage, 1),
        (expired, 1),
    ] {
        strike(kind.clone(), 3, times);
        let summary = summary(launch.clone().arg("--api.timeout=1s"), 0).await;
        assert_eq!(summary["listed"], 60, "{kind:?}");
    }
    for (kind, words) in [(status(403), "HTTP 403"), (status(503), "HTTP 503")] {
        strike(kind, 3, 1000);
        let words = format!("{words} | before 20 | from oldest on, were not read");
        let launch = launch.clone().arg("--api.timeout=200ms");
        launch.refused(2, &words).await;
    }
    // What is missing is known, but cannot be named.
    strike(status(403), 8, 1000);
    let launch = verify(&api.base_url(), &export(0, &entries[1..])).arg("--api.page-size=10");
    let finished = launch.run().await;
    assert_eq!(finished.status, Some(1), "{finished:?}");
    assert_numbers(&printed(&finished).0, "listed=60 missing=1 gone=1");
    assert!(
        finished
            .stderr
            .contains("cannot list the missing entries: HTTP 403")
    );
}

#[tokio::test]
async fn every_reading_of_the_specification_lists_everything() {
    let changes: [fn(&mut Readings); 6] = [
        |it| it.before_inclusive = true,
        |it| it.page_cap = Some(7),
        |it| it.has_more = Some(false),
        |it| (it.has_more, it.before_inclusive) = (Some(true), true),
        |it| it.filter_after_limit = true,
        |it| it.key = KeyReading::Arrival,
    ];
    for change in changes {
        let api = service(100, readings(change)).await;
        api.add_late(20, Duration::from_secs(3600));
        let kind = api.entries().next().unwrap().activity_type;
        let entries: Vec<Served> = api.entries().collect();
        // Entries go on to arrive while it lists.
        api.simulator().on_request(Box::new(|_, service| {
            service.add_events(3);
            None
        }));
        let until = entries.iter().map(|entry| entry.created_at).max().unwrap();
        let until = until + SignedDuration::from_millis(1);
        let launch = verify(&api.base_url(), &export(1, &entries)).arg("--api.page-size=10");
        let launch = launch.flag("--until", &until.to_string());
        let all = summary(launch.clone(), 0).await;
        assert_eq!((&all["listed"], &all["unknown"]), (&json!(120), &json!(0)));
        let those = entries
            .iter()
            .filter(|entry| entry.activity_type == kind)
            .count();
        let filtered = launch.flag("--audit.activity-types", &kind);
        assert_eq!(summary(filtered, 0).await["listed"], those);
    }
}

#[tokio::test]
async fn excluded_types_are_not_expected_and_entries_without_an_id_are_not_compared() {
    let api = service(100, readings(|it| it.key = KeyReading::Arrival)).await;
    let entries: Vec<Served> = api.entries().collect();
    let kind = &entries[0].activity_type;
    let created_at = entries[99].created_at.to_string();
    let add = |entry: Fields| api.add_entry(&entry.unchecked()).unwrap();
    let entry = Fields::new()
        .with("createdAt", created_at)
        .with("type", "ODD");
    add(entry.clone().with("id", Value::Null));
    // It has the time of the entry above it.
    let timeless = Fields::new()
        .with("createdAt", "soon")
        .with("occurredAt", 0);
    add(timeless
        .with("updatedAt", 0)
        .with("type", "ODD")
        .with("id", "timeless"));
    add(entry);
    let others = entries.iter().filter(|entry| entry.activity_type != *kind);
    let others: Vec<&Served> = others.collect();
    let launch = verify(&api.base_url(), &export(0, others.iter().copied()));
    let launch = launch.flag(
        "--otlp.exclude-activity-types",
        &format!("{}*", &kind[..kind.len() - 1]),
    );
    let finished = launch.run().await;
    let (summary, lines) = printed(&finished);
    assert_eq!(summary["entries_without_id"], 1, "{summary}");
    assert_eq!(summary["listed"], others.len() + 2, "{summary}");
    assert!(ids(&lines, "missing").contains("timeless"), "{lines:?}");
}

/// Retention deletes the beginning of the window, before the comparison and during it.
#[tokio::test]
async fn the_window_begins_with_the_oldest_entry_that_the_api_has() {
    let api = service(100, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    api.retain(60);
    let launch = verify(&api.base_url(), &export(0, &entries)).flag("--from", "7d");
    let found = summary(launch, 0).await;
    assert_numbers(&found, "listed=60 outside=40");
    assert_eq!(found["from"], json!(entries[40].created_at));
    api.simulator().on_request(Box::new(|request, service| {
        if request.number > 6 {
            service.retain(50);
        }
        None
    }));
    api.simulator().clear_requests();
    let launch = verify(&api.base_url(), &export(0, &entries[55..])).arg("--api.page-size=10");
    assert_numbers(&summary(launch, 1).await, "listed=60 missing=15 gone=10");
}

/// The records that the collector took, as an export.
fn taken(collector: &Peer) -> Vec<u8> {
    let ids = collector.taken_ids().into_iter();
    let lines = ids.map(|id| json!({ "log.record.uid": id }).to_string() + "\n");
    lines.collect::<String>().into_bytes()
}

#[tokio::test]
async fn what_is_missing_is_sent_oldest_first_until_nothing_is() {
    let api = service(100, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let collector = Peer::grpc(4 << 20).await;
    let unavailable = tonic::Status::unavailable("later");
    collector.reply(Reply::Status(unavailable));
    collector.reject(&entries[30].id);
    let send = |export: &[u8]| {
        let launch = verify(&api.base_url(), export).arg("--send-missing");
        let launch = launch.args(&[
            "--api.page-size=30",
            "--otlp.batch-size=16",
            "--otlp.actor=none",
        ]);
        launch.otlp("grpc", &collector.url())
    };
    let finished = send(b"").run().await;
    assert_eq!(finished.status, Some(1), "{finished:?}");
    let (found, lines) = printed(&finished);
    assert_numbers(&found, "listed=100 missing=100 accepted=99 rejected=1");
    assert_eq!(
        ids(&lines, "rejected"),
        BTreeSet::from([entries[30].id.clone()])
    );
    let mut expected: Vec<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    expected.remove(30);
    assert_eq!(collector.taken_ids(), expected);
    let record = collector.script.taken.lock().unwrap()[0].clone();
    assert!(!format!("{record:?}").contains("user.id"), "{record:?}");

    collector.script.bad.lock().unwrap().clear();
    let again = summary(send(&taken(&collector)), 0).await;
    assert_numbers(&again, "listed=100 missing=1 accepted=1");
    let complete = summary(send(&taken(&collector)), 0).await;
    assert_numbers(&complete, "listed=100");
    // A part of a request may be rejected.
    collector.reply(Reply::Partial(2, "no"));
    let partly = summary(send(&taken(&collector)[..0]), 1).await;
    assert_numbers(&partly, "listed=100 missing=100 accepted=98 rejected=2");
}

#[tokio::test]
async fn a_collector_that_takes_nothing_is_given_up() {
    let api = service(150, Readings::default()).await;
    let send = |endpoint: &str| {
        let launch = verify(&api.base_url(), b"").args(&["--send-missing", "--api.timeout=200ms"]);
        launch.otlp("http/protobuf", endpoint)
    };
    let gone = send(&format!("http://{}", free_address())).run().await;
    assert_eq!(gone.status, Some(1), "{gone:?}");
    assert!(
        gone.stderr
            .contains("the collector does not accept records"),
        "{gone:?}"
    );
    assert_numbers(&printed(&gone).0, "listed=150 missing=150");
    // It rejects whatever it is sent.
    let rejecting = Peer::http(10).await;
    let rejected = send(&rejecting.url()).run().await;
    assert_eq!(rejected.status, Some(1), "{rejected:?}");
    assert!(
        rejected.stderr.contains("rejects every record"),
        "{rejected:?}"
    );
    assert_numbers(&printed(&rejected).0, "listed=150 missing=150 rejected=100");
}

#[tokio::test]
async fn standard_output_can_take_the_records_and_is_an_export_itself() {
    let api = service(100, Readings::default()).await;
    let launch = verify(&api.base_url(), b"");
    let launch = launch.args(&["--send-missing", "--otlp.protocol=stdout"]);
    let finished = launch.flag("--format", "text").run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    assert!(
        finished.stderr.contains("  100  sent and accepted\n"),
        "{finished:?}"
    );
    assert!(finished.stderr.contains("only 20 of each"), "{finished:?}");
    let complete = verify(&api.base_url(), finished.stdout.as_bytes());
    assert_numbers(&summary(complete, 0).await, "listed=100");
}

#[tokio::test]
async fn a_missing_entry_that_is_a_dead_letter_is_named_as_one() {
    let api = service(8, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let collector = Peer::grpc(4 << 20).await;
    collector.reject(&entries[3].id);
    let running = exporter(&api.base_url())
        .on_disk()
        .flag("--audit.start", "oldest");
    let running = running.otlp("grpc", &collector.url());
    let state = running.dir().join("state.db");
    let exporter = running.start();
    let kept = "orgdata_dead_letters_stored";
    exporter.until_value(kept, 1.0).await;
    exporter.settled(0).await;
    let launch = verify(&api.base_url(), &taken(&collector)).state(Path::new(&state));
    let (_, lines) = printed(&launch.clone().run().await);
    assert_eq!(
        ids(&lines, "missing"),
        BTreeSet::from([entries[3].id.clone()])
    );
    assert_eq!(lines[0]["dead_letter"], "1 (rejected)");
    let text = launch.flag("--format", "text").run().await.stdout;
    assert!(text.contains("  dead letter 1 (rejected)\n"), "{text}");
}

#[tokio::test]
async fn a_signal_stops_it_at_once() {
    let silent = http_peer::Peer::always(http_peer::Reply::Held(Vec::new())).await;
    let mut process = verify(&silent.url(), b"").start();
    let asked = async || (silent.count() > 0).then_some(());
    until("a request", asked).await;
    process.signal("INT").await;
    assert_eq!(process.ended().await, Some(2));
    let said = process.stderr().text();
    assert_eq!(
        said,
        "orgdata-exporter: stopped before the end; 0 records were sent\n"
    );
}

/// Without `--until`, late entries have been found by then, and records have been delivered.
#[tokio::test]
async fn by_default_the_window_ends_before_the_last_pass() {
    let api = service(100, Readings::default()).await;
    let launch = command(
        &api.base_url(),
        &["--audit.reread-interval=20m", "/dev/null"],
    );
    let found = summary(launch, 1).await;
    let until: Timestamp = found["until"].as_str().unwrap().parse().unwrap();
    let ago = Timestamp::now().duration_since(until).as_secs();
    assert!((1800..1900).contains(&ago), "{found}");
    assert!(
        api.simulator()
            .requests()
            .last
            .iter()
            .all(|it| it.endpoint == Endpoint::Audit)
    );
}

#[tokio::test]
async fn the_transcript_in_the_documentation_is_what_is_printed() {
    let api = service(1000, Readings::default()).await;
    let entries: Vec<Served> = api.entries().collect();
    let old = |it: &&Served| {
        let age = Timestamp::now().duration_since(it.created_at).as_secs();
        // A time without a fraction is printed without one.
        age > 3600 && it.created_at.subsec_nanosecond() > 0
    };
    let [missing, doubled] = [0, 1].map(|at| entries.iter().filter(old).nth(at).unwrap());
    let mut file = export(1, entries.iter().filter(|it| it.id != missing.id));
    file.extend(export(1, [doubled, doubled]));
    // As in an export that begins a day before the window.
    file.extend(br#"{"_time":"2026-01-01T00:00:00Z","log.record.uid":"older"}"#);
    let launch = launch(&["verify", "--from=7d", "export.jsonl"])
        .env("ORGDATA_API_BASE_URL", &api.base_url())
        .env("ORGDATA_API_KEY", KEY);
    fs::write(launch.dir().join("export.jsonl"), file).unwrap();
    let printed = launch.run().await.stdout;
    let page = page("docs/verify.md");
    let command = "verify --from 7d export.jsonl --api.base-url https://api.example.com --api.key-file api-key";
    let without_type = |lines: Vec<String>| -> Vec<String> {
        let word = |word: &str| match word.contains('_') {
            true => "TYPE".to_owned(),
            false => word.to_owned(),
        };
        let line = |line: &String| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
        lines.iter().map(line).collect()
    };
    let [shown, printed] = [transcript(&page, command), masked(&printed)].map(without_type);
    assert_eq!(shown, printed);
}
