//! The built binary and its disk: full and emptied again, read-only, and a file that is damaged while it is open.

use crate::support::exporter;
use crate::support::parts;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use exporter::{Exporter, Scrape, Setup, event_counts};
use orgdata_exporter::simulator::{Config, Scope, Simulator};
use parts::Collector;

fn world(history: u64) -> Config {
    Config {
        history,
        tickets: 10,
        ..Config::quiet()
    }
}

/// The counted events by label set, as a scrape shows them.
fn events(scrape: &Scrape) -> BTreeMap<Vec<String>, f64> {
    let mut events = BTreeMap::new();
    for line in scrape
        .0
        .lines()
        .filter(|line| line.starts_with("orgdata_audit_events_total{"))
    {
        let label = |name: &str| {
            line.split(&format!("{name}=\""))
                .nth(1)
                .and_then(|rest| rest.split('"').next())
                .expect(name)
                .to_owned()
        };
        let value: f64 = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .expect("a value");
        if value > 0.0 {
            events.insert(vec![label("activity_type"), label("actor")], value);
        }
    }
    events
}

async fn healthy(exporter: &Exporter) -> bool {
    exporter
        .get("/-/healthy")
        .send()
        .await
        .expect("the exporter answers")
        .status()
        == 200
}

/// Takes all the room that is left.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("a file without content takes no room");
    let mut chunk = vec![0x55; 64 * 1024];
    while !chunk.is_empty() {
        match file.write(&chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => chunk.truncate(chunk.len() / 2),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A disk fills up while events come, is full for a while, and has room again: the exporter is there all the time, says what is wrong,
/// and afterwards every number is true and every record was delivered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the OpenTelemetry Collector, and to be root or user namespaces"]
async fn a_full_disk_pauses_commits_and_heals() {
    let simulator = Simulator::spawn(world(1_000)).await.expect("a free port");
    let mut collector = Collector::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let exporter = Setup::new(&simulator)
        .mount(directory.path(), "size=12m")
        .state(&directory.path().join("state.db"))
        .flag("--audit.start", "oldest")
        .flag("--api.page-size", "200")
        .flag("--otlp.endpoint", &collector.grpc_endpoint())
        .flag("--otlp.protocol", "grpc")
        .start()
        .await;
    exporter.born().await;
    let born = simulator.mark();
    simulator.add_events(500);
    exporter.settled(500).await;

    for (episode, outage) in [false, true].into_iter().enumerate() {
        let full = exporter.inside(&directory.path().join("filler"));
        fill(&full);
        if outage {
            // Meanwhile the collector is gone, too.
            collector.stop();
        }
        // There is room left inside the files that are there already.
        let failures = exporter
            .scrape()
            .await
            .value("orgdata_state_commit_failures_total")
            .expect("a value");
        let stuck = exporter
            .until("commits that fail", |scrape| {
                simulator.add_events(20);
                scrape.value("orgdata_state_commit_failures_total") > Some(failures + 1.0)
                    && scrape.value("orgdata_up{loop=\"audit\"}") == Some(0.0)
            })
            .await;
        simulator.add_events(1_000);
        let told = exporter
            .log()
            .into_iter()
            .filter(|line| {
                line["error"]
                    .as_str()
                    .is_some_and(|error| error.contains("disk"))
            })
            .count();
        assert!(told > 0 && told < 20, "told {told} times");
        let later = exporter
            .until("more attempts", |scrape| {
                scrape.value("orgdata_state_commit_failures_total")
                    >= stuck
                        .value("orgdata_state_commit_failures_total")
                        .map(|n| n + 2.0)
            })
            .await;
        assert_eq!(
            events(&later),
            events(&stuck),
            "nothing moves until there is room"
        );
        assert!(healthy(&exporter).await, "waiting for a disk is turning");

        std::fs::remove_file(&full).expect("removed");
        if outage {
            collector.start_again().await;
        }
        let truth = simulator.truth_of(Scope::arrived_since(born));
        let scrape = exporter.settled(truth.total).await;
        assert_eq!(events(&scrape), event_counts(&truth), "episode {episode}");
        for (series, value) in [
            ("orgdata_up{loop=\"audit\"}", 1.0),
            ("orgdata_up{loop=\"otlp\"}", 1.0),
            ("orgdata_audit_gaps_total", 0.0),
            ("orgdata_audit_events_duplicate_total", 0.0),
            ("orgdata_state_recreated_total", 0.0),
        ] {
            assert_eq!(scrape.value(series), Some(value), "{series}");
        }
    }

    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    for record in collector.records() {
        *came
            .entry(
                record.attributes["log.record.uid"]
                    .as_str()
                    .expect("an id is a string")
                    .to_owned(),
            )
            .or_default() += 1;
    }
    let missing = simulator
        .entries()
        .filter(|entry| !came.contains_key(&entry.id))
        .count();
    assert_eq!((missing, came.len() as u64), (0, simulator.event_count()));
    // Only a request whose answer was lost with the collector goes again.
    let again: usize = came.values().map(|times| times - 1).sum();
    println!("{} records, {again} of them again", came.len());
    assert!(again <= 512, "{again} records came again");
}

/// A disk that cannot be written is a matter of settings: one line, which says what to do.
#[tokio::test]
#[ignore = "needs to be root, or user namespaces"]
async fn a_disk_that_cannot_be_written_is_refused_with_the_way_out() {
    let simulator = Simulator::spawn(world(0)).await.expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    // Read-only; and without room for a file at all.
    for options in ["ro", "size=4k,nr_inodes=2"] {
        let mut exporter = Setup::new(&simulator)
            .mount(directory.path(), options)
            .state(&state)
            .spawn();
        let (status, said) = exporter.ended().await;
        assert_eq!(status, Some(2), "{options}: {said}");
        assert!(
            said.contains("--state.path") && said.contains("state.db") && said.lines().count() == 1,
            "{options}: {said}"
        );
    }
}

/// A file that is damaged while it is open is set aside, and the process begins anew with a fresh one: at the same address, with a metric
/// and a log line, and without counting anything twice.
#[tokio::test]
#[ignore = "needs the OpenTelemetry Collector"]
async fn a_file_damaged_while_it_is_open_is_set_aside_and_the_process_goes_on() {
    let simulator = Simulator::spawn(world(2_000)).await.expect("a free port");
    let collector = Collector::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    let exporter = Setup::new(&simulator)
        .state(&state)
        .flag("--otlp.endpoint", &collector.http_endpoint())
        .start()
        .await;
    exporter.born().await;
    simulator.add_events(400);
    exporter.settled(400).await;

    {
        // Another program writes, so that the exporter looks at the file again; then everything but the first page is overwritten.
        let other = rusqlite::Connection::open(&state).expect("opens");
        other
            .execute_batch("UPDATE state SET newest_at = newest_at")
            .expect("runs");
        other
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .expect("runs");
    }
    let length = std::fs::metadata(&state).expect("a file").len() as usize;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&state)
        .expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0x5a; length - 4096], 4096)
        .expect("written");
    let damaged = simulator.mark();
    simulator.add_events(100);

    // Until then the port may be closed for a moment.
    exporter.listens_again(2).await;
    let scrape = exporter
        .until("a fresh ledger", |scrape| {
            scrape.value("orgdata_state_recreated_total") == Some(1.0)
                && scrape.value("orgdata_up{loop=\"audit\"}") == Some(1.0)
        })
        .await;
    assert!(scrape.value("orgdata_state_recreated_timestamp_seconds") > Some(1.7e9));
    assert_eq!(
        scrape.sum("orgdata_audit_events_total"),
        0.0,
        "what was there when it began anew is history"
    );
    let born = simulator.mark();
    assert!(damaged < born);
    simulator.add_events(300);
    let truth = simulator.truth_of(Scope::arrived_since(born));
    let scrape = exporter.settled(300).await;
    assert_eq!(events(&scrape), event_counts(&truth));
    assert!(healthy(&exporter).await);
    let aside = std::fs::read_dir(directory.path())
        .expect("readable")
        .filter_map(Result::ok);
    let aside = aside
        .filter(|file| file.file_name().to_string_lossy().contains(".damaged-"))
        .count();
    assert_eq!(aside, 1);
    let told = exporter
        .log()
        .into_iter()
        .filter(|line| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains("set aside"))
        })
        .count();
    assert_eq!(told, 1);
}
