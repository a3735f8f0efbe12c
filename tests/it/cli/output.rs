//! Standard output and standard error with nobody behind them: no panic, and the work goes on or ends in order.

use std::time::Duration;

use orgdata_exporter::simulator::{Config, Simulator};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::support::binary::{PATIENCE, client, exporter, launch, until};

const QUIET_DEMO: [&str; 3] = [
    "demo",
    "--web.listen-address=127.0.0.1:0",
    "--log.level=warn",
];

/// Reads so many lines of standard output, closes it, and gives how the process ended and what it complained about.
async fn head(arguments: &[&str], lines: usize) -> (Option<i32>, String) {
    let (mut child, _dir) = launch(arguments).spawn();
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..lines {
        let line = tokio::time::timeout(PATIENCE, out.next_line())
            .await
            .expect("in time")
            .expect("text");
        line.expect("a line");
    }
    drop(out);
    let status = tokio::time::timeout(PATIENCE, child.wait())
        .await
        .expect("it ends with its reader")
        .expect("it ends");
    let mut complaints = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut complaints)
        .await
        .expect("text");
    (status.code(), complaints)
}

#[tokio::test]
async fn the_demo_ends_in_order_when_its_reader_goes() {
    for lines in [0, 3, 12] {
        let (status, complaints) = head(&QUIET_DEMO, lines).await;
        assert_eq!(status, Some(0), "after {lines} lines: {complaints}");
        assert!(!complaints.contains("panic"), "{complaints}");
    }
}

#[tokio::test]
async fn help_for_a_reader_that_goes_is_no_panic() {
    let (_, complaints) = head(&["--help"], 0).await;
    assert_eq!(complaints, "");
}

#[tokio::test]
async fn the_exporter_goes_on_when_nobody_reads_its_log() {
    let sim = Simulator::spawn(Config {
        tickets: 2,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    for format in ["--log.format=logfmt", "--log.format=json"] {
        let (mut child, _dir) = exporter(&sim.base_url()).arg(format).spawn();
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let url = loop {
            let line = tokio::time::timeout(PATIENCE, log.next_line())
                .await
                .expect("in time")
                .expect("text")
                .expect("a line");
            if let Some((_, rest)) = line
                .split_once("127.0.0.1:")
                .filter(|_| line.contains("listening"))
            {
                let port = rest
                    .split(|c: char| !c.is_ascii_digit())
                    .next()
                    .unwrap_or_default();
                break format!("http://127.0.0.1:{port}");
            }
        };
        drop(log);
        // Both loops have something to say now, and then something else.
        sim.fault("404,times=4".parse().expect("a fault"));
        until("both loops well again", async || {
            let metrics = client()
                .get(format!("{url}/metrics"))
                .send()
                .await
                .ok()?
                .text()
                .await
                .ok()?;
            let well = ["audit", "tickets"]
                .iter()
                .all(|which| metrics.contains(&format!("orgdata_up{{loop=\"{which}\"}} 1")));
            (well && sim.faults().is_empty()).then_some(())
        })
        .await;
        child.start_kill().expect("it still runs");
        tokio::time::timeout(Duration::from_secs(5), child.wait())
            .await
            .expect("in time")
            .expect("it ends");
    }
}

#[tokio::test]
async fn one_line_says_at_the_start_what_it_will_do() {
    let sim = Simulator::spawn(Config {
        tickets: 2,
        ..Config::quiet()
    })
    .await
    .expect("a simulator");
    let arguments = [
        "--tickets.enabled=false",
        "--audit.start=24h",
        "--otlp.endpoint=http://127.0.0.1:1/?token=s3cret",
        "--log.format=json",
    ];
    let exporter = exporter(&sim.base_url()).args(&arguments).start();
    exporter
        .stderr()
        .until("a line that says where it listens", |line| {
            line.contains("listening")
        })
        .await;
    let log = exporter.stderr().text();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("no JSON: {error}: {line}"))
        })
        .collect();
    for line in &lines {
        for field in ["timestamp", "level", "target", "message"] {
            assert!(line[field].is_string(), "{field} is in every line: {line}");
        }
    }
    let first = lines
        .iter()
        .find(|line| line["message"] == "listening")
        .expect("it says where it listens");
    for (field, said) in [
        ("version", env!("CARGO_PKG_VERSION")),
        ("service", &sim.base_url()),
        ("key", "variable ORGDATA_API_KEY"),
        ("audit_logs", "every 100ms, log records from 1day"),
        ("tickets", "off"),
        (
            "log_records",
            "http://127.0.0.1:1/v1/logs over http/protobuf",
        ),
        ("state", ":memory:"),
        ("state_max_size", "256.0 MiB"),
    ] {
        assert_eq!(
            first[field].as_str().map(|text| text.trim_end_matches('/')),
            Some(said.trim_end_matches('/')),
            "{field}: {first}"
        );
    }
    assert!(
        !log.contains("s3cret") && !log.contains(crate::support::binary::KEY),
        "{log}"
    );
}
