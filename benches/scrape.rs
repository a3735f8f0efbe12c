//! What a scrape costs, and what the process costs that answers it.
//!
//! `cargo bench --bench scrape` encodes 1,000, 10,000 and 100,000 series beside prometheus-client's own encoder with a bare `Collector` of
//! the same series; scrapes over HTTP while the tail runs at full speed; and starts the built binary against the simulator, for its memory,
//! its size and its time to ready.

#[path = "../tests/support/settings.rs"]
mod settings;

mod support;

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use exporter_web::{WebArgs, WebConfig};
use jiff::Timestamp;
use orgdata_exporter::api::{Client, ClientSettings, KeySource};
use orgdata_exporter::audit::{Excluded, Privacy, Start, Tail, TailSettings};
use orgdata_exporter::endpoints;
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::{ActorRef, Commit, LedgerHandle, LedgerOptions, NewEntry};
use orgdata_exporter::metrics::audit::{Changes, EventLabels};
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::{AuditMetrics, Metrics};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use secrecy::SecretString;
use support::{PAGE, Peer};
use tokio_util::sync::CancellationToken;

/// At most so many times the encoding of the bare collector.
const OPENMETRICS: f64 = 1.3;
const TEXT: f64 = 2.0;

/// Resident memory of the process, in MiB.
const IDLE_MIB: f64 = 16.0;
const SERIES_MIB: f64 = 32.0;

/// The stripped release binary, in MiB.
const BINARY_MIB: f64 = 12.0;

/// From the start of the process to the first positive answer of its readiness probe, in milliseconds.
const READY_MS: f64 = 150.0;

/// Activity types; the rest of a number of series is made of actors.
const TYPES: usize = 10;

/// How often a process that starts is looked at.
const LOOK: Duration = Duration::from_micros(500);

/// How often one is looked at that is not in a hurry: a scrape each.
const NO_HURRY: Duration = Duration::from_millis(100);

fn main() {
    if std::env::args().any(|argument| argument == support::SERVE) {
        return support::serve();
    }
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    for series in [1_000, 10_000, 100_000] {
        encoding(series);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for series in [1_000, 10_000, 100_000] {
        runtime.block_on(over_http(series));
    }
    runtime.block_on(process());
}

fn verdict(what: &str, figure: f64, limit: f64, unit: &str) {
    println!(
        "  {what}: {figure:.2}{unit} (at most {limit}{unit}){}",
        if figure > limit {
            "  ABOVE THE LIMIT"
        } else {
            ""
        }
    );
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

// === encoding ===

/// The same series, as prometheus-client writes them.
#[derive(Debug)]
struct Bare(Vec<(EventLabels, u64)>);

impl Collector for Bare {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "orgdata_audit_events",
            "Audit events.",
            None,
            MetricType::Counter,
        )?;
        for (labels, value) in &self.0 {
            let labels = [
                ("activity_type", &*labels.activity_type),
                ("actor", labels.actor.as_deref().unwrap_or_default()),
            ];
            ConstCounter::new(*value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn labels(series: usize) -> Vec<(EventLabels, u64)> {
    let types: Vec<Arc<str>> = (0..TYPES)
        .map(|number| format!("ACTIVITY_TYPE_{number:02}").into())
        .collect();
    let actors: Vec<Arc<str>> = (0..series / TYPES)
        .map(|number| (1_000_000 + number).to_string().into())
        .collect();
    let sets = actors
        .iter()
        .flat_map(|actor| types.iter().map(move |kind| (kind, actor)));
    let mut sets: Vec<_> = sets
        .enumerate()
        .map(|(number, (kind, actor))| {
            (
                EventLabels {
                    activity_type: kind.clone(),
                    actor: Some(actor.clone()),
                },
                number as u64 * 7919 % 100_000,
            )
        })
        .collect();
    sets.sort();
    sets
}

fn filled(series: usize) -> AuditMetrics {
    let metrics = AuditMetrics::new(Duration::ZERO);
    metrics.publish(Changes {
        introduced: labels(series),
        ..Changes::default()
    });
    metrics
}

fn encoding(series: usize) {
    let (mut bare, mut ours) = (Registry::default(), Registry::default());
    bare.register_collector(Box::new(Bare(labels(series))));
    ours.register_collector(Box::new(Arc::new(filled(series))));
    let rounds = (2_000_000 / series).clamp(30, 500);
    let [mut floor, mut openmetrics, mut text] = [const { Vec::new() }; 3];
    let mut size = 0;
    // One after the other, so that what else the machine does hits all of them.
    for _ in 0..rounds {
        let began = Instant::now();
        let mut buffer = String::new();
        prometheus_client::encoding::text::encode(&mut buffer, &bare).expect("encodes");
        drop(std::hint::black_box(buffer));
        let bare = began.elapsed().as_secs_f64();
        floor.push(bare);
        for (format, ratios) in [
            (Format::OpenMetrics, &mut openmetrics),
            (Format::Text, &mut text),
        ] {
            let began = Instant::now();
            size = std::hint::black_box(format.encode(&ours).expect("encodes")).len();
            ratios.push(began.elapsed().as_secs_f64() / bare);
        }
    }
    println!(
        "\nencoding {series} series, {size} bytes: bare collector {:.2} ms",
        median(floor) * 1e3
    );
    verdict(
        "OpenMetrics, of the bare collector",
        median(openmetrics),
        OPENMETRICS,
        "",
    );
    verdict("text 0.0.4, of the bare collector", median(text), TEXT, "");
}

// === over HTTP ===

fn ledger_settings(path: Option<PathBuf>, base_url: String, max_actors: usize) -> LedgerOptions {
    LedgerOptions {
        outbox: false,
        max_actors,
        ..settings::ledger(path, base_url)
    }
}

/// Scrapes with and without a tail that never rests.
async fn over_http(series: usize) {
    let pages = 100_000;
    let peer = Peer::start(pages);
    let metrics = Metrics::new(Duration::ZERO);
    metrics.audit.publish(Changes {
        introduced: labels(series),
        ..Changes::default()
    });
    let args = WebArgs {
        listen_addresses: vec!["127.0.0.1:0".to_owned()],

        config_file: None,
        telemetry_path: "/metrics".to_owned(),
    };
    let bound = exporter_web::bind(&args, WebConfig::default())
        .await
        .expect("a port");
    let url = format!("{}/metrics", bound.url().expect("an address"));
    let health = Health::default();
    health.set_ready();
    let router = endpoints::router(metrics.clone(), health, &args.telemetry_path);
    let stop = CancellationToken::new();
    let served = exporter_web::serve(bound, router, stop.clone().cancelled_owned());
    let server = tokio::spawn(served);
    let quiet = scrapes(&url).await;

    let api = ClientSettings {
        key: KeySource::Value(SecretString::from("k".to_owned())),
        timeout: Duration::from_secs(30),
        ..settings::api(&peer.base_url())
    };
    let client = Client::new(api, metrics.api.clone()).expect("a client");
    let directory = tempfile::tempdir().expect("a directory");
    let path = Some(directory.path().join("state.db"));
    let (ledger, state) =
        LedgerHandle::open(ledger_settings(path, peer.base_url(), 1000)).expect("a ledger");
    let settings = TailSettings {
        poll_interval: Duration::from_secs(3600),
        start: Start::Now,
        reread_interval: Duration::from_secs(3600),
        reread_window: Duration::from_secs(3600),
        page_size: PAGE as u32,
        excluded: Excluded::default(),
        privacy: Privacy::default(),
    };
    let mut tail =
        Tail::new(client, ledger, state, metrics.clone(), settings).expect("a new ledger");
    peer.show(0);
    tail.round().await;
    peer.show(pages);
    let before = metrics.audit.counted();
    let began = Instant::now();
    let ending = stop.clone();
    let tail = tokio::spawn(async move {
        tail.hurry_sweep();
        while !ending.is_cancelled() {
            tail.round().await;
        }
    });
    let busy = scrapes(&url).await;
    let rate = (metrics.audit.counted() - before) as f64 / began.elapsed().as_secs_f64();
    stop.cancel();
    tail.await.expect("no panic");
    server.await.expect("no panic");

    println!("\nscrapes of {series} series over HTTP");
    println!("  without a tail               {quiet}");
    println!("  while the tail counts {rate:>6.0}/s {busy}");
}

struct Latency {
    median: f64,
    most: f64,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "median {:.1} ms, longest {:.1} ms",
            self.median * 1e3,
            self.most * 1e3
        )
    }
}

async fn scrapes(url: &str) -> Latency {
    let client = reqwest::Client::builder()
        .no_proxy()
        .gzip(false)
        .build()
        .expect("a client");
    let mut times = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        let request = client
            .get(url)
            .header("accept", "application/openmetrics-text;version=1.0.0")
            .header("accept-encoding", "gzip");
        let body = request
            .send()
            .await
            .expect("an answer")
            .bytes()
            .await
            .expect("a body");
        assert!(!body.is_empty());
        times.push(began.elapsed().as_secs_f64());
    }
    Latency {
        most: times.iter().copied().fold(0.0, f64::max),
        median: median(times),
    }
}

// === the process ===

/// A child that ends with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn resident_mib(&self) -> f64 {
        let process = procfs::process::Process::new(i32::try_from(self.0.id()).expect("an id"))
            .expect("/proc");
        process
            .status()
            .expect("/proc")
            .vmrss
            .expect("a line of its own") as f64
            / 1024.0
    }
}

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orgdata-exporter"));
    command
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
}

/// The answer of a request over a connection of its own; `None` where nobody listens.
fn ask(address: SocketAddr, path: &str, headers: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n")
                .as_bytes(),
        )
        .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn until(address: SocketAddr, path: &str, pause: Duration, accept: impl Fn(&str) -> bool) {
    let began = Instant::now();
    while !ask(address, path, "").is_some_and(|answer| accept(&answer)) {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "{path} never came"
        );
        std::thread::sleep(pause);
    }
}

fn start(simulator: SocketAddr, state: &Path) -> (Running, SocketAddr) {
    let address = free_address();
    let child = binary()
        .args([
            format!("--api.base-url=http://{simulator}"),
            format!("--web.listen-address={address}"),
        ])
        .args([
            "--audit.poll-interval=200ms",
            "--tickets.scan-interval=1s",
            "--metrics.zero-hold=0",
        ])
        .arg(format!("--state.path={}", state.display()))
        .env("ORGDATA_API_KEY", "demo-key")
        .spawn()
        .expect("the built binary can be run");
    (Running(child), address)
}

async fn process() {
    let size = std::fs::metadata(env!("CARGO_BIN_EXE_orgdata-exporter"))
        .expect("a file")
        .len();
    println!("\nthe process");
    verdict(
        "size of the stripped binary",
        size as f64 / (1 << 20) as f64,
        BINARY_MIB,
        " MiB",
    );

    let address = free_address();
    let simulator = binary()
        .args(["simulate", &format!("--listen={address}")])
        .spawn()
        .expect("the built binary can be run");
    let _simulator = Running(simulator);
    until(address, "/", LOOK, |_| true);
    let directory = tempfile::tempdir().expect("a directory");

    let mut times = Vec::new();
    for number in 0..11 {
        let began = Instant::now();
        let (_running, web) = start(address, &directory.path().join(format!("{number}.db")));
        until(web, "/-/ready", LOOK, |answer| {
            answer.starts_with("HTTP/1.1 200")
        });
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    verdict(
        "from start to ready, median of 11",
        median(times),
        READY_MS,
        " ms",
    );

    let (running, web) = start(address, &directory.path().join("idle.db"));
    settle(web);
    verdict(
        "resident memory at idle",
        running.resident_mib(),
        IDLE_MIB,
        " MiB",
    );
    drop(running);

    let path = directory.path().join("series.db");
    fill(&path, &format!("http://{address}")).await;
    let (running, web) = start(address, &path);
    settle(web);
    let series = ask(web, "/metrics", "")
        .expect("an answer")
        .lines()
        .filter(|line| line.starts_with("orgdata_audit_events_total{"))
        .count();
    assert!(series >= 10_000, "{series} series");
    verdict(
        &format!("resident memory with {series} series"),
        running.resident_mib(),
        SERIES_MIB,
        " MiB",
    );
}

/// Until both loops have turned, and what two Prometheus servers do in the first minutes.
fn settle(web: SocketAddr) {
    until(web, "/metrics", NO_HURRY, |answer| {
        ["audit", "tickets"]
            .iter()
            .all(|name| answer.contains(&format!("orgdata_up{{loop=\"{name}\"}} 1\n")))
    });
    for accept in ["application/openmetrics-text;version=1.0.0", "text/plain"] {
        for _ in 0..20 {
            let answer = ask(
                web,
                "/metrics",
                &format!("accept: {accept}\r\naccept-encoding: gzip\r\n"),
            )
            .expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"));
        }
    }
    assert!(ask(web, "/", "").is_some_and(|answer| answer.starts_with("HTTP/1.1 200")));
}

/// A ledger with 10,000 label sets, as an earlier process left it.
async fn fill(path: &Path, base_url: &str) {
    let settings = ledger_settings(Some(path.to_owned()), base_url.to_owned(), 1000);
    let (ledger, _) = LedgerHandle::open(settings).expect("a ledger");
    for (page, sets) in labels(10_000).chunks(PAGE).enumerate() {
        let now = Timestamp::now();
        let mut commit = Commit::new(now);
        let entries = sets
            .iter()
            .enumerate()
            .map(|(number, (labels, _))| NewEntry {
                created_at: now,
                activity_type: Some(labels.activity_type.to_string()),
                actor: Some(ActorRef {
                    id: labels.actor.as_deref().unwrap_or_default().to_owned(),
                    name: Some("First Last".to_owned()),
                }),
                ..settings::entry((page * PAGE + number) as u64, "{}".to_owned())
            });
        commit.entries = entries.collect();
        ledger.commit(commit).await.expect("written");
    }
}
