//! Standard output and standard error with nobody behind them: no panic, and the work goes on or ends in order.

use std::time::Duration;

use orgdata_exporter::simulator::{Config, Simulator};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use crate::binary::{PATIENCE, client, exporter, launch, until};

const QUIET_DEMO: [&str; 3] = ["demo", "--web.listen-address=127.0.0.1:0", "--log.level=warn"];

/// Reads so many lines of standard output, closes it, and gives how the process ended and what it complained about.
async fn head(arguments: &[&str], lines: usize) -> (Option<i32>, String) {
    let (mut child, _dir) = launch(arguments).spawn();
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..lines {
        let line = tokio::time::timeout(PATIENCE, out.next_line()).await.expect("in time").expect("text");
        line.expect("a line");
    }
    drop(out);
    let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends with its reader").expect("it ends");
    let mut complaints = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut complaints).await.expect("text");
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
    let sim = Simulator::spawn(Config { tickets: 2, ..Config::quiet() }).await.expect("a simulator");
    for format in ["--log.format=logfmt", "--log.format=json"] {
        let (mut child, _dir) = exporter(&sim.base_url()).arg(format).spawn();
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let url = loop {
            let line = tokio::time::timeout(PATIENCE, log.next_line()).await.expect("in time").expect("text").expect("a line");
            if let Some((_, rest)) = line.split_once("127.0.0.1:").filter(|_| line.contains("listening")) {
                let port = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                break format!("http://127.0.0.1:{port}");
            }
        };
        drop(log);
        // Both loops have something to say now, and then something else.
        sim.fault("404,times=4".parse().expect("a fault"));
        until("both loops well again", async || {
            let metrics = client().get(format!("{url}/metrics")).send().await.ok()?.text().await.ok()?;
            let well = ["audit", "tickets"].iter().all(|which| metrics.contains(&format!("orgdata_up{{loop=\"{which}\"}} 1")));
            (well && sim.faults().is_empty()).then_some(())
        })
        .await;
        child.start_kill().expect("it still runs");
        tokio::time::timeout(Duration::from_secs(5), child.wait()).await.expect("in time").expect("it ends");
    }
}
