//! `verify`: an export of the log store is compared with what the API lists, and what is missing is sent.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::simulator::{
    ClockSource, Config, Fault, FaultKind, Fields, KeyReading, Readings, Running, Served,
};
use serde_json::{Value, json};

use crate::support::binary::{Finished, KEY, Launch, exporter, free_address, launch};
use crate::support::collector_peer::{Peer, Reply};
use crate::support::files::{assert_has, file as page, masked, transcript};
use crate::support::http_peer;
use crate::support::service::spawn;

/// An API whose entries are of the last three hours, and these entries, oldest first.
async fn service(history: u64, change: impl FnOnce(&mut Readings)) -> (Running, Vec<Served>) {
    let mut config = Config::quiet();
    config.history = history;
    config.history_span = Duration::from_secs(3 * 3600);
    config.clock = ClockSource::Real;
    change(&mut config.readings);
    let api = spawn(config).await;
    // A `Date` has no fraction of a second: the newest entries would be later than the window until now.
    api.advance(Duration::from_secs(1));
    let entries = api.entries().collect();
    (api, entries)
}

async fn of(history: u64) -> (Running, Vec<Served>) {
    service(history, |_| {}).await
}

fn command(base_url: &str, arguments: &[&str]) -> Launch {
    launch(&["verify", "--from=oldest", "--format=json"])
        .arg("--api.max-requests-per-second=1000")
        .args(arguments)
        .env("ORGDATA_API_BASE_URL", base_url)
        .env("ORGDATA_API_KEY", KEY)
}

/// Compares everything up to now with an export.
fn verify(base_url: &str, export: impl AsRef<[u8]>) -> Launch {
    let launch = command(base_url, &["--until=now", "export"]);
    fs::write(launch.dir().join("export"), export).unwrap();
    launch
}

/// The number of forms of [`line`].
const FORMS: usize = 7;

/// A line of an export in one of the forms: OTLP JSON whole or a record alone, VictoriaLogs, Elasticsearch, Splunk, ClickHouse and Loki.
fn line(form: usize, entry: &Served) -> String {
    let (id, at, json) = (&entry.id, entry.created_at, &entry.json);
    let attribute = |key, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let record = json!({
        "timeUnixNano": at.as_nanosecond().to_string(),
        "body": { "kvlistValue": { "values": [attribute("log.record.uid", "another")] } },
        "attributes": [attribute("user.id", "5"), attribute("log.record.uid", id)],
    });
    let line = match form {
        0 => json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] }),
        1 => record,
        2 => json!({ "_time": at, "_msg": json, "log.record.uid": id }),
        3 => {
            json!({ "_source": { "@timestamp": at, "attributes": { "log.record.uid": id }, "body": { "text": json } } })
        }
        4 => {
            json!({ "preview": false, "result": { "_time": at, "_raw": json, "log.record.uid": id } })
        }
        5 => {
            json!({ "Timestamp": at.strftime("%F %T%.9f").to_string(), "Body": json, "LogAttributes": { "log.record.uid": id } })
        }
        _ => json!({ "labels": { "log_record_uid": id }, "line": json, "timestamp": at }),
    };
    format!("{line}\n")
}

fn export<'a>(form: usize, entries: impl IntoIterator<Item = &'a Served>) -> String {
    entries.into_iter().map(|entry| line(form, entry)).collect()
}

/// Returns the summary and the other lines.
fn printed(finished: &Finished) -> (Value, Vec<Value>) {
    let lines = finished.stdout.lines().map(serde_json::from_str);
    let mut lines: Vec<Value> = lines.map(Result::unwrap).collect();
    let summary = lines.pop().unwrap_or_else(|| panic!("{finished:?}"));
    assert_eq!(summary["result"], "summary");
    (summary, lines)
}

/// Runs it with `--format json`, and returns its summary and the other lines. `expected` is the exit status, and the numbers of the summary
/// that are not 0.
async fn run(launch: Launch, expected: &str) -> (Value, Vec<Value>) {
    judge(&launch.run().await, expected)
}

fn judge(finished: &Finished, expected: &str) -> (Value, Vec<Value>) {
    let (summary, lines) = printed(finished);
    let numbers = summary.as_object().unwrap().iter();
    let numbers = numbers.filter(|(key, value)| value.as_u64() > Some(0) && *key != "found");
    let numbers = numbers.map(|(key, value)| format!("{key}={value}"));
    let found: BTreeSet<String> = numbers.collect();
    let (status, expected) = expected.split_once(' ').unwrap_or((expected, ""));
    assert_eq!(finished.status, status.parse().ok(), "{finished:?}");
    let expected = expected.split_whitespace().map(str::to_owned).collect();
    assert_eq!(found, expected, "{}", finished.stderr);
    (summary, lines)
}

fn ids<'a>(lines: &'a [Value], result: &str) -> BTreeSet<&'a str> {
    let lines = lines.iter().filter(|line| line["result"] == result);
    lines.map(|line| line["id"].as_str().unwrap()).collect()
}

/// The borders of each window are the times of entries, several of which may have the same.
#[tokio::test]
async fn windows_of_exports_in_all_forms_are_compared() {
    let (api, entries) = of(300).await;
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut borders = [0, 0].map(|_| entries[random.usize(..entries.len())].created_at);
        borders.sort();
        let [from, until] = borders;
        if from == until {
            continue;
        }
        let (mut missing, mut repeated, mut listed) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut lines = Vec::new();
        for entry in &entries {
            let times = [0, 1, 1, 1, 1, 1, 1, 2, 3][random.usize(..9)];
            lines.extend((0..times).map(|_| line(random.usize(..FORMS), entry)));
            if (from..until).contains(&entry.created_at) {
                listed += 1;
                match times {
                    0 => drop(missing.insert(&*entry.id)),
                    1 => {}
                    _ => drop(repeated.insert(&*entry.id)),
                }
            }
        }
        random.shuffle(&mut lines);
        let launch = verify(&api.base_url(), lines.concat()).arg("--api.page-size=90");
        let launch = launch.flag("--from", &from.to_string());
        let finished = launch.flag("--until", &until.to_string()).run().await;
        let (summary, lines) = printed(&finished);
        let status = i32::from(!missing.is_empty());
        assert_eq!(finished.status, Some(status), "{seed}");
        assert_has!(summary, {
            "listed": listed, "missing": missing.len(), "repeated": repeated.len(), "unknown": 0, "from": from,
        });
        let found = (ids(&lines, "missing"), ids(&lines, "repeated"));
        assert_eq!(found, (missing, repeated), "{seed}");
        for entry in entries.iter().filter(|entry| found.0.contains(&*entry.id)) {
            let line = json!({
                "result": "missing", "id": entry.id, "type": entry.activity_type, "created_at": entry.created_at, "dead_letter": null,
            });
            assert!(lines.contains(&line), "{line}");
        }
    }
}

#[tokio::test]
async fn lines_that_are_not_as_they_should_be_are_counted() {
    let (api, entries) = of(10).await;
    let other = |id: &str, age: i64| Served {
        id: id.to_owned(),
        created_at: Timestamp::now() - SignedDuration::from_mins(age),
        ..entries[0].clone()
    };
    let mut file = export(6, &entries[..5]).into_bytes();
    file.extend(b"\n\r\n  \n");
    // Of another organization, of another time, of no time, and of the exporter itself.
    let older: Vec<Served> = (0..FORMS)
        .map(|form| other(&format!("older{form}"), 300))
        .collect();
    for (form, older) in older.iter().enumerate() {
        file.extend(line(form, older).as_bytes());
    }
    file.extend(export(2, [&other("odd\u{1b}[31m", 60)]).as_bytes());
    file.extend(b"{\"log.record.uid\":\"timeless\"}\r\n");
    file.extend(export(0, [&other("orgdata.exporter.gap-1", 60)]).as_bytes());
    // The last entry stands in bodies only, or in lines that are not read.
    let last = &entries[9].id;
    let body = json!({ "body": { "log.record.uid": last }, "log.record.uid": "" });
    file.extend(format!("{body}\n{{\"log.record.uid\":\"{last}\", oops\n").as_bytes());
    file.extend([b"{\"log.record.uid\":\"", last.as_bytes(), b"\xff\"}\n"].concat());
    file.extend(b"\"");
    file.resize(file.len() + (16 << 20), b' ');
    file.extend(format!("\",\"log.record.uid\":\"{last}\"\n").as_bytes());
    // A collector that was killed has written the beginning of a line.
    let whole = line(0, &entries[5]);
    file.extend(&whole.as_bytes()[..100]);
    file.extend(whole.as_bytes());
    // The last line does not end.
    file.extend(export(2, &entries[6..9]).trim_end().as_bytes());
    let launch = verify(&api.base_url(), &file);
    let numbers = "1 listed=10 missing=1 unknown=1 outside=8 without_id=1 broken=3 long=1";
    let (_, lines) = run(launch.clone(), numbers).await;
    assert_eq!(ids(&lines, "missing"), BTreeSet::from([&**last]));
    assert_eq!(ids(&lines, "unknown"), BTreeSet::from(["odd\u{1b}[31m"]));
    let text = launch.flag("--format", "text").run().await.stdout;
    assert!(text.contains("unknown   odd [31m\n"), "{text}");
    let piped = command(&api.base_url(), &["--until=now", "-"]);
    fs::write(piped.dir().join("export"), &file).unwrap();
    let piped = piped.script("\"$0\" \"$@\" < export");
    assert_eq!(run(piped, numbers).await.1, lines);
}

#[tokio::test]
async fn what_cannot_be_compared_ends_with_status_2() {
    let (api, entries) = of(10).await;
    let (url, all) = (api.base_url(), export(0, &entries));
    let nothing = of(0).await.0;
    let backwards = verify(&url, &all).flag("--from", "1h");
    let backwards = backwards.flag("--until", "2h");
    let unknown = verify(&url, &all).env("ORGDATA_API_KEY", "wrong");
    for (launch, words) in [
        (verify(&url, "{}\n[]\n7\n"), "3 lines | log.record.uid"),
        (command(&url, &["missing"]), "cannot read missing"),
        (backwards, "--from | --until | the window is empty"),
        (verify(&nothing.base_url(), &all), "lists no audit logs"),
        (unknown, "cannot compare: HTTP 401 | nothing was read"),
    ] {
        launch.refused(2, words).await;
    }
    // The window may be empty although there are entries.
    run(verify(&url, "").flag("--until", "30d"), "0").await;
}

#[tokio::test]
async fn an_api_that_fails_in_the_middle_is_asked_again_and_given_up() {
    let (api, entries) = of(60).await;
    let launch = verify(&api.base_url(), export(0, &entries)).arg("--api.page-size=10");
    let strike = |kind: &FaultKind, at: u64, times: u64| {
        let kind = kind.clone();
        api.simulator().clear_requests();
        api.simulator().on_request(Box::new(move |request, _| {
            let is_struck = (at..at + times).contains(&request.number);
            is_struck.then(|| Fault::new(kind.clone()))
        }));
    };
    let status = |status| FaultKind::Status(StatusCode::from_u16(status).unwrap());
    let expired = FaultKind::ExpiredCursor(StatusCode::BAD_REQUEST);
    for (kind, times) in [(status(503), 5), (FaultKind::EmptyPage, 1), (expired, 1)] {
        strike(&kind, 3, times);
        run(launch.clone().arg("--api.timeout=1s"), "0 listed=60").await;
    }
    // The listing ends although it has more: at a page without entries, and at one without a cursor.
    strike(&FaultKind::EmptyPage, 3, 1000);
    let words = "cannot compare: | says that there are more entries | the audit logs before 20";
    launch.clone().refused(2, words).await;
    let (endless, entries_of_it) = service(60, |it| it.has_more = Some(true)).await;
    verify(&endless.base_url(), export(0, &entries_of_it))
        .refused(2, words)
        .await;
    strike(&status(503), 3, 1000);
    let given_up = launch.arg("--api.timeout=1s");
    let words = "cannot compare: HTTP 503 | the audit logs before 20 | were not read";
    given_up.refused(2, words).await;
    // What is missing is known, but cannot be named.
    strike(&status(403), 8, 1000);
    let launch = verify(&api.base_url(), export(0, &entries[1..])).arg("--api.page-size=10");
    run(launch, "1 listed=60 missing=1 gone=1").await;
}

/// A cursor may be encrypted, with a random part.
#[tokio::test]
async fn a_listing_ends_with_an_empty_page_that_has_yet_another_cursor() {
    let api = http_peer::Peer::start(|request, number| {
        let is_first = !request.target().contains("before=");
        let entry =
            r#"{"id":"1","type":"X","createdAt":"2026-01-01T00:00:00Z","organizationId":7}"#;
        let items = if is_first { entry } else { "" };
        let page = format!(r#"{{"items":[{items}],"endCursor":"{number}","hasMore":false}}"#);
        http_peer::json("200 OK", page)
    });
    run(verify(&api.await.url(), ""), "1 listed=1 missing=1").await;
}

/// Entries go on to arrive while it lists.
#[tokio::test]
async fn every_reading_of_the_specification_lists_everything() {
    let changes: [fn(&mut Readings); 5] = [
        |it| it.before_inclusive = true,
        |it| it.page_cap = Some(7),
        |it| it.has_more = Some(false),
        |it| it.filter_after_limit = true,
        |it| it.key = KeyReading::Arrival,
    ];
    for change in changes {
        let (api, _) = service(100, change).await;
        api.add_late(20, Duration::from_secs(3600));
        let entries: Vec<Served> = api.entries().collect();
        api.simulator().on_request(Box::new(|_, service| {
            service.add_events(3);
            None
        }));
        let until = entries.iter().map(|entry| entry.created_at).max().unwrap();
        let until = until + SignedDuration::from_millis(1);
        let launch = verify(&api.base_url(), export(2, &entries)).arg("--api.page-size=10");
        let launch = launch.flag("--until", &until.to_string());
        run(launch, "0 listed=120").await;
    }
}

#[tokio::test]
async fn excluded_types_are_not_expected_and_those_outside_of_the_filters_are_unknown() {
    let (api, entries) = of(100).await;
    let kind = &entries[0].activity_type;
    let (those, others): (Vec<&Served>, Vec<&Served>) = entries
        .iter()
        .partition(|entry| entry.activity_type == *kind);
    let pattern = format!("{}*", &kind[..kind.len() - 1]);
    let excluded = verify(&api.base_url(), export(0, others.clone()));
    let excluded = excluded.flag("--otlp.exclude-activity-types", &pattern);
    run(excluded, &format!("0 listed={}", others.len())).await;
    let filtered = verify(&api.base_url(), export(0, &entries));
    let filtered = filtered.flag("--audit.activity-types", kind);
    let numbers = format!("0 listed={} unknown={}", those.len(), others.len());
    run(filtered, &numbers).await;
}

#[tokio::test]
async fn an_entry_without_a_time_has_that_of_the_one_above() {
    let (api, entries) = service(10, |it| it.key = KeyReading::Arrival).await;
    let odd = Fields::new().unchecked().with("createdAt", "soon");
    let odd = odd.with("occurredAt", 0).with("updatedAt", 0);
    api.add_entry(&odd.with("id", "timeless")).unwrap();
    let above = Fields::new().with("createdAt", entries[9].created_at.to_string());
    api.add_entry(&above.with("id", "above")).unwrap();
    let launch = verify(&api.base_url(), export(0, &entries));
    let (_, lines) = run(launch, "1 listed=12 missing=2").await;
    let expected = BTreeSet::from(["above", "timeless"]);
    assert_eq!(ids(&lines, "missing"), expected);
}

/// Retention deletes the beginning of the window, before the comparison and during it.
#[tokio::test]
async fn the_window_begins_with_the_oldest_entry_that_the_api_has() {
    let (api, entries) = of(100).await;
    api.retain(60);
    let launch = verify(&api.base_url(), export(0, &entries)).flag("--from", "7d");
    let (summary, _) = run(launch, "0 listed=60 outside=40").await;
    assert_eq!(summary["from"], json!(entries[40].created_at));
    api.simulator().on_request(Box::new(|request, service| {
        if request.number > 6 {
            service.retain(50);
        }
        None
    }));
    api.simulator().clear_requests();
    let launch = verify(&api.base_url(), export(0, &entries[55..])).arg("--api.page-size=10");
    run(launch, "1 listed=60 missing=15 gone=10").await;
}

/// The records that the collector took, as an export.
fn taken(collector: &Peer) -> String {
    let ids = collector.taken_ids().into_iter();
    let lines = ids.map(|id| json!({ "log.record.uid": id }).to_string() + "\n");
    lines.collect()
}

#[tokio::test]
async fn what_is_missing_is_sent_oldest_first_until_nothing_is() {
    let (api, entries) = of(100).await;
    let collector = Peer::grpc(4 << 20).await;
    collector.reply(Reply::Status(tonic::Status::unavailable("later")));
    collector.reject(&entries[30].id);
    let send = |export: &str| {
        let launch = verify(&api.base_url(), export).args(&["--send-missing", "--otlp.actor=none"]);
        let launch = launch.args(&["--api.page-size=30", "--otlp.batch-size=16"]);
        launch.otlp("grpc", &collector.url())
    };
    let (_, lines) = run(send(""), "1 listed=100 missing=100 accepted=99 rejected=1").await;
    assert_eq!(ids(&lines, "rejected"), BTreeSet::from([&*entries[30].id]));
    // The one behind the rejected one was its witness.
    let mut expected: Vec<&str> = entries.iter().map(|entry| &*entry.id).collect();
    expected.remove(30);
    assert_eq!(collector.taken_ids(), expected);
    let record = collector.script.taken.lock().unwrap()[0].clone();
    assert!(!format!("{record:?}").contains("user.id"), "{record:?}");

    collector.script.bad.lock().unwrap().clear();
    run(
        send(&taken(&collector)),
        "0 listed=100 missing=1 accepted=1",
    )
    .await;
    run(send(&taken(&collector)), "0 listed=100").await;
    // A part of a request may be rejected.
    collector.reply(Reply::Partial(2, "no"));
    run(send(""), "1 listed=100 missing=100 accepted=98 rejected=2").await;
}

#[tokio::test]
async fn a_collector_that_takes_nothing_is_given_up() {
    let (api, _) = of(50).await;
    let launch = verify(&api.base_url(), "").args(&["--send-missing", "--api.timeout=1s"]);
    let nobody = format!("http://{}", free_address());
    let finished = launch.otlp("http/protobuf", &nobody).run().await;
    let words = "the collector does not accept records: ";
    assert!(finished.stderr.contains(words), "{finished:?}");
    judge(&finished, "1 listed=50 missing=50");
}

#[tokio::test]
async fn standard_output_can_take_the_records_and_is_an_export_itself() {
    let (api, _) = of(100).await;
    let launch = verify(&api.base_url(), "");
    let launch = launch.args(&["--send-missing", "--otlp.protocol=stdout"]);
    let finished = launch.flag("--format", "text").run().await;
    assert_eq!(finished.status, Some(0), "{finished:?}");
    for words in ["  100  sent and accepted\n", "only 20 of each"] {
        assert!(finished.stderr.contains(words), "{finished:?}");
    }
    let complete = verify(&api.base_url(), finished.stdout);
    run(complete, "0 listed=100").await;
}

#[tokio::test]
async fn a_missing_entry_that_is_a_dead_letter_is_named_as_one() {
    let (api, entries) = of(8).await;
    let collector = Peer::grpc(4 << 20).await;
    collector.reject(&entries[3].id);
    let running = exporter(&api.base_url()).on_disk();
    let running = running.flag("--audit.start", "oldest");
    let running = running.otlp("grpc", &collector.url());
    let state = running.dir().join("state.db");
    let exporter = running.start();
    let letters = "orgdata_dead_letters_stored";
    exporter.until_value(letters, 1.0).await;
    exporter.settled(0).await;
    let launch = verify(&api.base_url(), taken(&collector)).state(&state);
    let launch = launch.flag("--audit.start", "oldest");
    let (_, lines) = run(launch, "1 listed=8 missing=1").await;
    assert_eq!(lines[0]["dead_letter"], 1);
}

/// Without `--until`, late entries have been found by then, and records have been delivered.
#[tokio::test]
async fn by_default_the_window_ends_before_the_last_pass() {
    let (api, _) = of(100).await;
    let flags = [
        "--audit.reread-interval=20m",
        "--audit.reread-window=2h",
        "/dev/null",
    ];
    let (summary, _) = printed(&command(&api.base_url(), &flags).run().await);
    let until: Timestamp = summary["until"].as_str().unwrap().parse().unwrap();
    let ago = Timestamp::now().duration_since(until).as_secs();
    assert!((9000..9100).contains(&ago), "{summary}");
}

#[tokio::test]
async fn the_transcript_in_the_documentation_is_what_is_printed() {
    let (api, entries) = of(1000).await;
    let is_shown = |it: &&Served| {
        let age = Timestamp::now().duration_since(it.created_at).as_secs();
        // A time without a fraction is printed without one.
        let has_fraction = it.created_at.subsec_nanosecond() > 0;
        age > 3600 && has_fraction && it.activity_type == "TASK_UPDATED"
    };
    let [missing, doubled] = [0, 1].map(|at| entries.iter().filter(is_shown).nth(at).unwrap());
    let mut file = export(2, entries.iter().filter(|it| it.id != missing.id));
    file += &export(2, [doubled, doubled]);
    // As in an export that begins a day before the window.
    file += r#"{"_time":"2026-01-01T00:00:00Z","log.record.uid":"older"}"#;
    let launch = launch(&["verify", "--from=7d", "export.jsonl"])
        .env("ORGDATA_API_BASE_URL", &api.base_url())
        .env("ORGDATA_API_KEY", KEY);
    fs::write(launch.dir().join("export.jsonl"), file).unwrap();
    let printed = launch.run().await.stdout;
    let command = "verify --from 7d export.jsonl --api.base-url https://api.example.com --api.key-file api-key";
    let shown = transcript(&page("docs/verify.md"), command);
    assert_eq!(shown, masked(&printed));
}

/// The state file says what the exporter cannot have sent. An entry without an id cannot be looked for, and is not sent on each run.
#[tokio::test]
async fn what_no_export_can_have_is_not_missing() {
    let (api, entries) = of(20).await;
    let odd = Fields::new().unchecked().with("id", json!(null));
    let odd = odd.with("createdAt", entries[19].created_at.to_string());
    api.add_entry(&odd).unwrap();
    let running = exporter(&api.base_url()).on_disk();
    let state = running.dir().join("state.db");
    let mut exporter = running.start();
    exporter.synced().await;
    exporter.stop().await;
    let created = entries[17].created_at.as_microsecond();
    let file = rusqlite::Connection::open(&state).unwrap();
    file.execute("UPDATE state SET created_at = ?1", [created])
        .unwrap();
    let launch = verify(&api.base_url(), export(0, &entries[18..])).state(&state);
    let numbers = "1 listed=3 missing=1 before_first_sync=17 listed_without_id=1";
    run(launch.clone(), numbers).await;
    let history = launch.clone().flag("--audit.start", "oldest");
    run(history, "1 listed=20 missing=18 listed_without_id=1").await;
    let collector = Peer::grpc(4 << 20).await;
    for (there, numbers) in [
        (15, "0 listed=20 missing=5 accepted=5 listed_without_id=1"),
        (20, "0 listed=20 listed_without_id=1"),
    ] {
        let launch = verify(&api.base_url(), export(0, &entries[..there])).state(&state);
        let launch = launch.arg("--send-missing").otlp("grpc", &collector.url());
        run(launch, numbers).await;
    }
}

/// What an auditor files: who was asked, when, about what, and which export it was.
#[tokio::test]
async fn the_summary_is_evidence() {
    let (api, entries) = of(3).await;
    let launch = verify(&api.base_url(), export(0, &entries[..1]));
    let kind = &entries[0].activity_type;
    let launch = launch.flag("--audit.activity-types", kind);
    let launch = launch.flag("--otlp.exclude-activity-types", "TASK_*");
    let file = launch.dir().join("export");
    fs::write(&file, "{\"log.record.uid\":\"abc\"}\n").unwrap();
    let before = Timestamp::now();
    let (summary, _) = printed(&launch.flag("--until", "now").run().await);
    assert_has!(summary, {
        "version": env!("CARGO_PKG_VERSION"),
        "api": { "host": "127.0.0.1", "organization": 4711 },
        "export": { "lines": 1, "sha256": "71e425267fd62e13da4b9d4c8a1bbfa120af81e2a01b18c83191adc8f6d6b11b" },
        "filters": {
            "activity_types": [kind], "deal_ids": [], "actor_emails": [], "target_emails": [], "excluded": ["TASK_*"],
        },
    });
    let time: Timestamp = summary["time"].as_str().unwrap().parse().unwrap();
    assert!(time >= before && time <= Timestamp::now());
}

/// A record as VictoriaLogs exports it; a checkpoint if it names dead letters.
fn numbered(stream: &str, number: u64, id: &str, dead: Option<(&str, &str)>) -> String {
    let mut line = json!({
        "_time": "2026-03-01T10:00:00Z", "service.instance.id": stream,
        "log.record.uid": id, "orgdata.record.sequence": number.to_string(),
    });
    if let Some((at, dead)) = dead {
        line["_time"] = json!(at);
        line["log.record.uid"] = json!(format!("orgdata.exporter.checkpoint-{number}"));
        line["orgdata.checkpoint.last_sequence"] = json!((number - 1).to_string());
        line["orgdata.checkpoint.complete_through"] = json!(at);
        line["orgdata.checkpoint.dead_letter_sequences"] = json!(dead);
    }
    format!("{line}\n")
}

async fn offline(export: &str, expected: &str) -> Vec<Value> {
    let launch = launch(&["verify", "--offline", "--format=json", "export"]);
    fs::write(launch.dir().join("export"), export).unwrap();
    run(launch, expected).await.1
}

/// An export may begin and end anywhere, and is in any order.
#[tokio::test]
async fn an_export_alone_says_what_is_missing() {
    let is = |stream, numbers: &[u64]| {
        let lines = numbers
            .iter()
            .map(|n| numbered(stream, *n, &n.to_string(), None));
        lines.collect::<String>()
    };
    let at = |hour| format!("2026-03-01T{hour:02}:00:05Z");
    let checkpoint = |number, hour, dead| numbered("a", number, "", Some((&at(hour), dead)));
    let whole = is("a", &[7, 5, 6]);
    offline(&whole, "0 streams=1 records=3").await;
    offline(
        &(whole.clone() + &is("a", &[6])),
        "0 streams=1 records=4 repeated=1",
    )
    .await;
    let two = whole.clone() + &is("a", &[9, 12]) + &is("b", &[1, 2]);
    let lines = offline(&two, "1 streams=2 records=7 missing=3").await;
    let expected = json!({ "result": "missing", "first": 10, "last": 11, "stream": "a" });
    assert_eq!(lines[1], expected);
    assert_has!(lines[2], { "result": "stream", "stream": "a", "first": 5, "last": 12, "missing": 3 });
    // Dead letters that a checkpoint names are not missing, also if a later one does not name them.
    let dead = whole.clone() + &checkpoint(14, 1, "8-9,11") + &checkpoint(15, 2, "8");
    let lines = offline(&dead, "1 streams=1 records=5 missing=3 dead_letters=3").await;
    assert_eq!(
        lines[2],
        json!({ "result": "dead", "first": 8, "last": 9, "stream": "a" })
    );
    assert_has!(lines[4], { "complete_through": at(2), "checkpoints": 2 });
    let silent = checkpoint(1, 1, "") + &checkpoint(2, 2, "") + &checkpoint(3, 6, "");
    let lines = offline(&silent, "0 streams=1 records=3 silent=3").await;
    assert_has!(lines[0], { "result": "silent", "from": at(2), "until": at(6), "hours": 3 });
    // A state file that was restored gives its numbers again.
    let restored = whole.clone() + &numbered("a", 6, "other", None);
    offline(&restored, "1 streams=1 records=4 conflicts=1").await;
    // What was sent by `--send-missing` has no number.
    let sent = whole + "{\"log.record.uid\":\"x\"}\n{}\n";
    offline(&sent, "0 streams=1 records=3 without_number=1 without_id=1").await;
    let launch = launch(&["verify", "--offline", "-"]).script("echo {} | \"$0\" \"$@\"");
    launch
        .refused(2, "cannot judge | orgdata.record.sequence")
        .await;
}

#[tokio::test]
async fn the_transcript_of_an_export_alone_is_what_is_printed() {
    let stream = "a6b8c1d0-93f4-4e0f-8f0e-5ad4f2a3c7b1";
    let mut file = String::new();
    for number in (15..=28).filter(|number| ![18, 19, 23].contains(number)) {
        let hour = [(20, 1), (21, 2), (24, 6), (28, 7)].into_iter();
        let hour = hour.clone().find(|(at, _)| *at == number);
        let at = hour.map(|(_, hour)| format!("2026-03-01T{hour:02}:00:05Z"));
        let checkpoint = at.as_deref().map(|at| (at, "23"));
        file += &numbered(stream, number, &number.to_string(), checkpoint);
    }
    let launch = launch(&["verify", "--offline", "export.jsonl"]);
    fs::write(launch.dir().join("export.jsonl"), file).unwrap();
    let printed = launch.run().await.stdout;
    let shown = transcript(&page("docs/verify.md"), "verify --offline export.jsonl");
    assert_eq!(shown, masked(&printed));
}

/// The forms in which stores have numbers: as text or not, in a stream that is beside them or around them.
#[tokio::test]
async fn numbers_are_found_in_the_exports_of_all_stores() {
    let attribute = |key: &str, value: Value| json!({ "key": key, "value": value });
    let otlp = json!({ "resourceLogs": [{
        "resource": { "attributes": [attribute("service.instance.id", json!({ "stringValue": "s" }))] },
        "scopeLogs": [{ "logRecords": [{
            "body": { "stringValue": "{\"orgdata.record.sequence\":9}" },
            "attributes": [
                attribute("log.record.uid", json!({ "stringValue": "1" })),
                attribute("orgdata.record.sequence", json!({ "intValue": "1" })),
            ],
        }] }],
    }] });
    let loki = json!({ "line": "{}", "timestamp": "2026-03-01T10:00:00Z",
        "labels": { "service_instance_id": "s", "log_record_uid": "2", "orgdata_record_sequence": "2" } });
    let elasticsearch = json!({ "_source": { "@timestamp": "2026-03-01T10:00:00Z",
        "resource": { "attributes": { "service.instance.id": "s" } },
        "attributes": { "log.record.uid": "3", "orgdata.record.sequence": 3 } } });
    let splunk = json!({ "result": { "_time": "2026-03-01T10:00:00Z", "service.instance.id": "s",
        "log.record.uid": "4", "orgdata.record.sequence": "4" } });
    let clickhouse = json!({ "Timestamp": "2026-03-01 10:00:00.000000000",
        "ResourceAttributes": { "service.instance.id": "s" },
        "LogAttributes": { "log.record.uid": "5", "orgdata.record.sequence": "5" } });
    let lines = [otlp, loki, elasticsearch, splunk, clickhouse].map(|line| format!("{line}\n"));
    let lines = offline(&lines.concat(), "0 streams=1 records=5").await;
    assert_has!(lines[0], { "stream": "s", "first": 1, "last": 5 });
}

#[tokio::test]
async fn what_the_exporter_writes_proves_itself() {
    let (api, _) = of(30).await;
    let launch = exporter(&api.base_url()).on_disk();
    let launch = launch.args(&["--otlp.protocol=stdout", "--audit.start=oldest"]);
    let mut file = String::new();
    for run in 0..2 {
        let mut exporter = launch.start();
        exporter.synced().await;
        api.advance(Duration::from_secs(1));
        api.add_events(4);
        exporter.settled(4 * (run + 1)).await;
        assert_eq!(exporter.stop().await, Some(0));
        file += &exporter.stdout().text();
    }
    let lines = offline(&file, "0 streams=1 records=39").await;
    assert_has!(lines[0], { "first": 1, "last": 39, "checkpoints": 1 });
}
