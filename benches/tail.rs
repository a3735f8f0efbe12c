//! What the tail costs: events per CPU-second, as a ratio to fetching and parsing the same pages and nothing else.
//!
//! `cargo bench --bench tail` starts itself a second time as the service and the collector, so that only the exporter's own CPU time is
//! counted here. Pages are rendered beforehand: serving one is a copy with new ids and times written over the old ones.
//! `ORGDATA_BENCH_PAGES` sets the number of pages (of 1000 entries each); 1000 unless set.

#[path = "../tests/support/settings.rs"]
mod settings;

mod support;

use std::process::Command;
use std::time::{Duration, Instant};

use orgdata_exporter::api::{AuditPage, Client, ClientSettings, KeySource};
use orgdata_exporter::audit::{Privacy, Start, Tail, TailSettings};
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::{LedgerHandle, LedgerOptions};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::simulator::{ClockSource, Config, Simulator};
use secrecy::SecretString;
use support::{Entry, PAGE, Peer, Usage};
use tokio_util::sync::CancellationToken;

/// At least this share of the floor's speed, metrics only.
const METRICS_ONLY: f64 = 0.85;

/// At least this share, with every record acknowledged over gRPC.
const WITH_RECORDS: f64 = 0.25;

const HOUR: Duration = Duration::from_secs(3600);

/// The poll interval of the measurement of delay.
const LIVE_POLL: Duration = Duration::from_secs(1);

/// The argument before what is measured.
const MODE: &str = "--measure";
const METRICS_MODE: &str = "metrics only";
const RECORDS_MODE: &str = "with log records over gRPC";
const SUSTAINED_MODE: &str = "sustained";

/// At least this share for entries that a pass meets again.
const KNOWN: f64 = 0.77;

/// At least this share for an hour of 100,000 events with the defaults: each is read five times.
const SUSTAINED: f64 = 0.2;

/// Most memory above idle, in MiB.
const MEMORY: f64 = 24.0;

fn main() {
    if std::env::args().any(|argument| argument == support::SERVE) {
        return support::serve();
    }
    let mode = std::env::args()
        .skip_while(|argument| argument != MODE)
        .nth(1);
    let Some(mode) = mode else {
        // A process for each: what one has touched is not in the other's memory.
        for mode in [METRICS_MODE, RECORDS_MODE, SUSTAINED_MODE] {
            let child = Command::new(std::env::current_exe().expect("a path"))
                .args([MODE, mode])
                .status();
            assert!(child.is_ok_and(|status| status.success()), "{mode}");
        }
        return;
    };
    let pages: u64 = std::env::var("ORGDATA_BENCH_PAGES")
        .ok()
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(1000);
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match mode == SUSTAINED_MODE {
        true => runtime.block_on(sustained()),
        false => runtime.block_on(run(&mode, pages)),
    }
}

async fn run(mode: &str, pages: u64) {
    let (events, records) = (pages * PAGE as u64, mode == RECORDS_MODE);
    println!(
        "\n{mode}: {pages} pages of {PAGE} entries, {} bytes each, in order of creation",
        support::page_bytes()
    );
    let peer = Peer::start(pages);
    let idle = support::resident_mib();

    let floor = floor(&peer, pages).await;
    report("floor: fetch and parse", events, &floor, None);
    let run = tail(&peer, pages, records).await;
    let ratio = report(mode, events, &run.usage, Some(&floor));
    verdict(
        "of the floor",
        ratio,
        if records { WITH_RECORDS } else { METRICS_ONLY },
    );
    let known = floor.cpu.as_secs_f64() / run.reread.as_secs_f64();
    verdict("known entries of a pass, of the floor", known, KNOWN);
    run.print(events);
    let peak = support::peak_resident_mib() - idle;
    println!(
        "  peak resident memory above idle: {peak:.1} MiB (limit {MEMORY}){}",
        if peak > MEMORY {
            "  ABOVE THE LIMIT"
        } else {
            ""
        }
    );
    if !records {
        let delay = live_delay().await.as_secs_f64();
        println!(
            "  from createdAt to counted, mean, at 50 events a second and a poll a second: {delay:.2} s"
        );
    }
}

/// The same pages, fetched with reqwest and parsed into the same types.
async fn floor(peer: &Peer, pages: u64) -> Usage {
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let started = Usage::now();
    for page in 0..pages {
        let url = format!(
            "{}/v1/audit-logs?limit={PAGE}&after={}",
            peer.base_url(),
            support::cursor(page)
        );
        let body = client
            .get(url)
            .header("x-api-key", "k")
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("a body");
        let page = AuditPage::parse(body, None).expect("a page");
        for raw in page.items() {
            std::hint::black_box(Entry::parse(raw).expect("an entry"));
        }
    }
    started.elapsed()
}

struct Run {
    usage: Usage,
    requests: u64,
    disk: u64,
    delay: Duration,
    reread: Duration,
}

impl Run {
    fn print(&self, events: u64) {
        println!(
            "  requests per 1000 events     {:.2}",
            self.requests as f64 * 1000.0 / events as f64
        );
        println!(
            "  bytes on disk per event      {:.1}",
            self.disk as f64 / events as f64
        );
        println!(
            "  from page to counted, mean   {:.1} ms",
            self.delay.as_secs_f64() * 1000.0
        );
    }
}

/// An exporter's reading half, with a ledger on disk.
struct Reader {
    client: Client,
    ledger: LedgerHandle,
    metrics: Metrics,
    tail: Tail,
}

fn reader(
    base_url: &str,
    key: &str,
    path: &std::path::Path,
    outbox: bool,
    poll_interval: Duration,
    reread_interval: Duration,
) -> Reader {
    let metrics = Metrics::new(Duration::ZERO);
    let api = ClientSettings {
        key: KeySource::Value(SecretString::from(key.to_owned())),
        timeout: Duration::from_secs(30),
        ..settings::api(base_url)
    };
    let ledger_settings = LedgerOptions {
        outbox,
        ..settings::ledger(Some(path.to_owned()), base_url)
    };
    let client = Client::new(api, metrics.api.clone()).expect("a client");
    let (ledger, state) = LedgerHandle::open(ledger_settings).expect("a ledger");
    let settings = TailSettings {
        poll_interval,
        start: Start::Now,
        reread_interval,
        reread_window: Duration::from_secs(3600),
        page_size: PAGE as u32,
        excluded: orgdata_exporter::audit::Excluded::default(),
        privacy: Privacy::default(),
    };
    let tail = Tail::new(
        client.clone(),
        ledger.clone(),
        state,
        metrics.clone(),
        settings,
    )
    .expect("a new ledger");
    Reader {
        client,
        ledger,
        metrics,
        tail,
    }
}

/// The mean time from `createdAt` to counted, of events that come one by one.
async fn live_delay() -> Duration {
    let config = Config {
        history: 10,
        rate: 50.0,
        clock: ClockSource::Real,
        ..Config::quiet()
    };
    let simulator = Simulator::spawn(config).await.expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let reader = reader(
        &simulator.base_url(),
        "demo-key",
        &directory.path().join("state.db"),
        false,
        LIVE_POLL,
        HOUR,
    );
    let stop = CancellationToken::new();
    let running = tokio::spawn(reader.tail.run(Health::default(), stop.clone()));
    tokio::time::sleep(10 * LIVE_POLL).await;
    stop.cancel();
    running.await.expect("no panic");
    let text = Format::Text
        .encode(reader.metrics.registry())
        .expect("encodes");
    let value = |suffix: &str| -> f64 {
        let name = format!("orgdata_audit_event_delay_seconds_{suffix} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&name)?.parse().ok())
            .expect("a histogram")
    };
    Duration::from_secs_f64(value("sum") / value("count"))
}

/// The tail into a ledger on disk; with a relay to the collector in the other process when asked for.
async fn tail(peer: &Peer, pages: u64, records: bool) -> Run {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let Reader {
        client,
        ledger,
        metrics,
        mut tail,
    } = reader(&peer.base_url(), "k", &path, records, HOUR, HOUR);
    peer.show(0);
    settle(&mut tail).await;
    peer.show(pages);

    let stop = CancellationToken::new();
    let relay = records.then(|| tokio::spawn(delivery(peer, &ledger, &metrics, stop.clone())));
    let started = Usage::now();
    let wall = Instant::now();
    let expected = pages * PAGE as u64;
    tail.hurry_sweep();
    let counted = || {
        metrics
            .audit
            .events()
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    // Records wait until a pass has met what was known before.
    while counted() < expected || tail.state().behind_since().is_some() {
        tail.round().await;
    }
    let delay = wall.elapsed() / u32::try_from(pages).expect("fewer pages");
    while records && ledger.backlog() > 0 {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let usage = started.elapsed();
    let disk = std::fs::metadata(&path)
        .map(|file| file.len())
        .unwrap_or_default();
    stop.cancel();
    if let Some(relay) = relay {
        relay.await.expect("no panic");
    }
    let requests = peer.requests();
    // Re-reads begin below the last poll.
    tail.hurry_sweep();
    settle(&mut tail).await;
    let reread = Usage::now();
    tail.hurry();
    settle(&mut tail).await;
    let _ = client.audit_page(1, None).await;
    Run {
        usage,
        requests,
        disk,
        delay,
        reread: reread.elapsed().cpu,
    }
}

/// Goes on until nothing is due within a minute.
async fn settle(tail: &mut Tail) {
    loop {
        match tail.round().await {
            Duration::ZERO => {}
            wait if wait > Duration::from_secs(60) => return,
            wait => tokio::time::sleep(wait).await,
        }
    }
}

/// The relay at work.
fn delivery(
    peer: &Peer,
    ledger: &LedgerHandle,
    metrics: &Metrics,
    stop: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let relay = peer.relay(ledger, metrics, 512, &|_| None);
    relay.run(Health::default(), stop, Duration::from_secs(1))
}

/// An hour of 100,000 events, with log records and the defaults: a poll every 15 seconds and a pass every 15 minutes, without the waits.
async fn sustained() {
    const POLLS: u64 = 240;
    const EVENTS: u64 = 100_000;
    let pages = EVENTS / PAGE as u64;
    let peer = Peer::start(pages);
    let floor = floor(&peer, pages).await;
    let apart = HOUR.as_millis() as u64 / EVENTS;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state.db");
    let Reader {
        client: _client,
        ledger,
        metrics,
        mut tail,
    } = reader(
        &peer.base_url(),
        "k",
        &path,
        true,
        HOUR,
        Duration::from_secs(900),
    );
    // The hours before: what re-reads will meet.
    peer.show_entries(2 * EVENTS, apart);
    settle(&mut tail).await;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(delivery(&peer, &ledger, &metrics, stop.clone()));
    let started = Usage::now();
    let mut requests = 0;
    for poll in 1..=POLLS {
        peer.show_entries(2 * EVENTS + EVENTS * poll / POLLS, apart);
        match poll % 60 {
            0 => tail.hurry(),
            _ => tail.hurry_sweep(),
        }
        settle(&mut tail).await;
        while ledger.backlog() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        requests += peer.requests();
    }
    let usage = started.elapsed();
    stop.cancel();
    relay.await.expect("no panic");
    let name = "sustained: an hour of events with log records, polls and passes";
    report("floor: fetch and parse", EVENTS, &floor, None);
    let ratio = report(name, EVENTS, &usage, Some(&floor));
    verdict("of the floor", ratio, SUSTAINED);
    println!(
        "  requests per 1000 events     {:.2}",
        requests as f64 * 1000.0 / EVENTS as f64
    );
}

fn report(name: &str, events: u64, usage: &Usage, floor: Option<&Usage>) -> f64 {
    let ratio = floor.map_or(1.0, |floor| {
        floor.cpu.as_secs_f64() / usage.cpu.as_secs_f64()
    });
    println!(
        "\n{name}: {:.0} events per CPU-second, {:.2} µs of CPU per event, {:.1} s wall, ratio {ratio:.2}",
        events as f64 / usage.cpu.as_secs_f64(),
        usage.cpu.as_secs_f64() * 1e6 / events as f64,
        usage.wall.as_secs_f64()
    );
    ratio
}

fn verdict(name: &str, ratio: f64, least: f64) {
    println!(
        "  {name}: {ratio:.2} (at least {least}){}",
        if ratio < least {
            "  BELOW THE LIMIT"
        } else {
            ""
        }
    );
}
