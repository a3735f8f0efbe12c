//! The process: its first log lines, its signals, and its output without a reader.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use orgdata_exporter::simulator::Running;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{UP, organization};
use crate::support::binary::{Exporter, PATIENCE, client, exporter, free_address, launch, until};
use crate::support::http_peer::{Peer, Reply};

/// Of a peer that accepts connections and never answers.
const SILENT: Reply = Reply::Held(Vec::new());

/// The grace period without the flag.
const DEFAULT: &str = "";

/// An exporter with three records that its collector does not acknowledge.
async fn with_backlog(api: &Running, collector: &Peer, grace: &str) -> Exporter {
    // An entry of the second before the start may be delivered too.
    api.advance(Duration::from_secs(60));
    let exporter = exporter(&api.base_url()).otlp("http/protobuf", &collector.url());
    let exporter = match grace {
        DEFAULT => exporter.start(),
        _ => exporter.flag("--shutdown.grace", grace).start(),
    };
    exporter.until_value(UP, 1.0).await;
    api.add_events(3);
    let backlog = "orgdata_otlp_backlog_records";
    exporter.until_value(backlog, 4.0).await;
    exporter
}

#[tokio::test]
async fn the_first_lines_say_what_it_will_do_and_that_it_works() {
    let api = organization().await;
    let mut exporter = exporter(&api.base_url())
        .args(&["--audit.start=24h", "--log.format=json"])
        .args(&["--otlp.endpoint=127.0.0.1:1", "--otlp.protocol=grpc"])
        .start();
    let refused = "127.0.0.1, port 1 (--otlp.endpoint, | connection refused";
    for words in ["\"working\"", refused] {
        exporter.logs(words).await;
    }
    let log = exporter.stderr().text();
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for field in ["ts", "level", "msg"] {
            assert!(line[field].is_string(), "{field} is in every line: {line}");
        }
    }
    let collector = "https://127.0.0.1:1/ over grpc (--otlp.endpoint, without a scheme: https)";
    assert!(log.contains(collector), "{log}");
    for signal in ["HUP", "USR1", "USR2", "INT"] {
        exporter.signal(signal).await;
    }
    assert_eq!(exporter.ended().await, Some(0));
    exporter.logs("\"stopped\"").await;
    assert_eq!(exporter.stdout().text(), "");
}

#[tokio::test]
async fn a_peer_or_a_file_system_that_hangs_does_not_delay_the_stop() {
    let (api, peer) = (organization().await, Peer::always(SILENT).await);
    let api_hangs = exporter(&peer.url()).start();
    let both = async || (peer.count() >= 2).then_some(());
    until("both loops wait", both).await;
    let collector_hangs = with_backlog(&api, &peer, DEFAULT).await;
    let traced = exporter(&api.base_url())
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &peer.url())
        .env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
        .start();
    traced.until_value(UP, 1.0).await;
    let key_hangs = exporter(&api.base_url())
        .env("ORGDATA_API_KEY", "")
        .args(&["--api.key-file=mounted/key", "--api.timeout=300ms"]);
    let key = key_hangs.dir().join("mounted/key");
    std::fs::create_dir(key.with_file_name("")).unwrap();
    let key_hangs = key_hangs.start();
    key_hangs.until_value(UP, 0.0).await;
    let pipe = std::process::Command::new("mkfifo").arg(&key).status();
    assert!(pipe.unwrap().success());
    key_hangs.logs("mounted/key | in time").await;
    let unsent = collector_hangs.stderr().clone();
    for mut exporter in [api_hangs, collector_hangs, traced, key_hangs] {
        let begun = Instant::now();
        let status = exporter.stop().await;
        assert_eq!(status, Some(0), "{}", exporter.stderr().text());
        // Docker kills it after ten.
        assert!(begun.elapsed() < Duration::from_secs(9));
    }
    let left = |line: &str| line.contains("stopped") && line.contains("unsent=4");
    unsent.until("what is left", left).await;
}

#[tokio::test]
async fn a_second_signal_stops_it_at_once_unless_it_is_an_echo() {
    let (api, peer) = (organization().await, Peer::always(SILENT).await);
    let mut patient = with_backlog(&api, &peer, "10m").await;
    patient.signal("TERM").await;
    patient.logs("stopping").await;
    // The first repetitions may be taken for an echo.
    until("the end", async || {
        patient.signal("INT").await;
        (!patient.runs()).then_some(())
    })
    .await;
    assert_eq!(patient.ended().await, Some(1));

    let mut twice = with_backlog(&api, &peer, "700ms").await;
    let both = "kill -TERM $0; kill -INT $0";
    let mut shell = std::process::Command::new("sh");
    let shell = shell
        .args(["-c", both])
        .arg(twice.proc("").file_name().unwrap());
    assert!(shell.status().unwrap().success());
    assert_eq!(twice.ended().await, Some(0), "{}", twice.stderr().text());
}

#[tokio::test]
async fn a_command_whose_reader_goes_ends_quietly() {
    let demo = "demo --web.listen-address=127.0.0.1:0 --state.path=:memory: --log.level=error";
    for (line, lines) in [("--help", 0), (demo, 12)] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let (mut process, out) = launch(&arguments).piped();
        let mut out = BufReader::new(out).lines();
        for _ in 0..lines {
            let line = tokio::time::timeout(PATIENCE, out.next_line()).await;
            line.expect("in time").unwrap().unwrap();
        }
        drop(out);
        let ended = (process.ended().await, process.stderr().text());
        assert_eq!(ended, (Some(0), String::new()), "{line}");
    }
}

#[tokio::test]
async fn other_processes_of_its_user_cannot_read_its_memory_and_it_reads_its_own_figures() {
    let api = organization().await;
    let exporter = exporter(&api.base_url()).unprivileged().start();
    exporter.until_value(UP, 1.0).await;
    // The system gives the files of a process that must not be dumped to root.
    let environment = std::fs::metadata(exporter.proc("environ")).unwrap();
    assert_eq!(environment.uid(), 0);
    let scrape = exporter.scrape().await;
    for name in
        "resident_memory_bytes virtual_memory_bytes virtual_memory_max_bytes max_fds open_fds"
            .split(' ')
    {
        assert!(
            scrape.value(&format!("process_{name}")) > Some(1.0),
            "{name}"
        );
    }
    assert!(scrape.value("process_cpu_seconds_total") >= Some(0.0));
    let started = scrape.value("process_start_time_seconds").unwrap();
    let age = jiff::Timestamp::now().as_second() as f64 - started;
    assert!((-2.0..600.0).contains(&age), "started {age} s ago");
}

/// A large state file takes a while to check. Reading a pipe without a writer takes for ever.
#[tokio::test]
async fn it_answers_probes_and_stops_while_it_opens_the_state_file() {
    let api = organization().await;
    let launch = exporter(&api.base_url());
    let state = launch.dir().join("state.db");
    // What a killed process has not finished is looked for in the journal beside the file.
    std::fs::write(&state, [0; 4096]).unwrap();
    let journal = state.with_extension("db-journal");
    let pipe = std::process::Command::new("mkfifo").arg(journal).status();
    assert!(pipe.unwrap().success());
    let address = free_address().to_string();
    let launch = launch.state(&state).flag("--web.listen-address", &address);
    let mut exporter = launch.start();
    let client = client();
    let status = async |path: &str| {
        let response = client.get(format!("http://{address}{path}")).send().await;
        Some(response.ok()?.status().as_u16())
    };
    let alive = until("it answers", async || status("/-/healthy").await).await;
    assert_eq!(alive, 200);
    assert_eq!(status("/-/ready").await, Some(503));
    let waited = tokio::join!(status("/metrics"), status("/"));
    assert_eq!(waited, (Some(503), Some(200)), "no counter is shown as 0");
    assert_eq!(exporter.stop().await, Some(0));
}
