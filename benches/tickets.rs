//! What a scan of the tickets costs: CPU per ticket, as a ratio to fetching and parsing the same pages and nothing else; and memory.
//!
//! `cargo bench --bench tickets` starts itself a second time as the service, so that only the exporter's own CPU time is counted here. What
//! the snapshot says is compared with what the tickets add up to, to the cent. `ORGDATA_BENCH_TICKETS` sets how many there are; a million
//! unless set.

#[path = "support/tickets.rs"]
mod peer;
#[path = "../tests/support/settings.rs"]
mod settings;
#[path = "support/usage.rs"]
mod usage;

use std::time::Duration;

use orgdata_exporter::api::{
    Bounded, Client, ClientSettings, KeySource, NumberText, Text, TicketPage,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::tickets::Snapshot;
use orgdata_exporter::tickets::{ScanSettings, Scanner};
use peer::{Peer, Truth};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::value::RawValue;
use usage::Usage;

/// Tickets on a page.
const PAGE: u32 = 1000;

/// At most so many times the CPU of fetching and parsing.
const CPU: f64 = 1.5;

/// Most memory above idle, over the whole run, in MiB.
const MEMORY: f64 = 32.0;

/// Scans in a row: from the second on, an earlier snapshot is held beside the one that grows.
const SCANS: u32 = 2;

/// The fields that a scan uses, as `serde` alone reads them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ticket<'a> {
    #[serde(borrow)]
    id: Option<NumberText<'a>>,
    r#type: Option<Text<'a>>,
    state: Option<Text<'a>>,
    created_at: Option<&'a RawValue>,
    closed_at: Option<&'a RawValue>,
    organization_id: Option<NumberText<'a>>,
    target_due_date: Option<&'a RawValue>,
    linked_deals: Option<Bounded<Deal<'a>, 10_000>>,
    deal_amount_sum: Option<NumberText<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Deal<'a> {
    #[serde(borrow)]
    id: Option<NumberText<'a>>,
    evaluation_id: Option<NumberText<'a>>,
    name: Option<Text<'a>>,
    priority: Option<Text<'a>>,
}

fn main() {
    if std::env::args().any(|argument| argument == peer::SERVE) {
        return peer::serve();
    }
    let tickets: u64 = std::env::var("ORGDATA_BENCH_TICKETS")
        .ok()
        .and_then(|tickets| tickets.parse().ok())
        .unwrap_or(1_000_000);
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(tickets));
}

async fn run(tickets: u64) {
    println!(
        "{tickets} tickets in pages of {PAGE}, {} bytes each",
        peer::page_bytes(PAGE.into())
    );
    let truth = Truth::of(tickets);
    let peer = Peer::start(tickets);
    let idle = usage::resident_mib();

    let floor = floor(&peer, tickets).await;
    let least = report("floor: fetch and parse", tickets, &floor);
    println!(
        "  resident memory above idle: {:.1} MiB at its peak",
        usage::peak_resident_mib() - idle
    );
    let scans = scan(&peer, &truth).await;
    let ratio = report("scan", tickets * u64::from(SCANS), &scans) / least;
    println!(
        "  CPU per ticket, of the floor: {ratio:.2} (at most {CPU}){}",
        verdict(ratio, CPU)
    );
    let peak = usage::peak_resident_mib() - idle;
    println!(
        "\npeak resident memory above idle: {peak:.1} MiB (at most {MEMORY}){}",
        verdict(peak, MEMORY)
    );
}

/// The same pages, fetched with reqwest and parsed into the same types. They overlap by one row as the scan's do.
async fn floor(peer: &Peer, tickets: u64) -> Usage {
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let started = Usage::now();
    let mut read = 0;
    for offset in (0..tickets.saturating_sub(1)).step_by(PAGE as usize - 1) {
        let url = format!(
            "{}/v1/tickets?limit={PAGE}&offset={offset}",
            peer.base_url()
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
        let page = TicketPage::parse(body, None).expect("a page");
        for raw in page.items() {
            std::hint::black_box(serde_json::from_str::<Ticket>(raw).expect("a ticket"));
        }
        read = offset + page.len() as u64;
    }
    assert_eq!(read, tickets, "all were read");
    started.elapsed()
}

/// Scans one after the other, as the loop does them.
async fn scan(peer: &Peer, truth: &Truth) -> Usage {
    let metrics = Metrics::new(Duration::ZERO);
    let api = ClientSettings {
        key: KeySource::Value(SecretString::from("k".to_owned())),
        timeout: Duration::from_secs(30),
        ..settings::api(&peer.base_url())
    };
    let client = Client::new(api, metrics.api.clone()).expect("a client");
    let settings = ScanSettings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: ["BLOCKER", "HIGH", "MEDIUM", "LOW"]
            .map(str::to_owned)
            .to_vec(),
        page_size: PAGE,
    };
    let mut scanner = Scanner::new(settings, metrics.tickets.retries().clone());
    let started = Usage::now();
    for _ in 0..SCANS {
        let (snapshot, doubt) = scanner.round(&client).await.expect("a snapshot");
        assert_eq!(doubt, None);
        assert_eq!(&seen(&snapshot), truth);
        metrics.tickets.publish(snapshot, Duration::from_secs(900));
    }
    started.elapsed()
}

/// What a snapshot says, in whole cents.
fn seen(snapshot: &Snapshot) -> Truth {
    let open = snapshot.open.values();
    let cents = open.map(|group| group.deal_amount() * 100.0).sum::<f64>();
    Truth {
        tickets: snapshot.tickets,
        open: snapshot.open_total(),
        open_cents: cents.round() as u64,
    }
}

/// Microseconds of CPU per ticket.
fn report(name: &str, tickets: u64, usage: &Usage) -> f64 {
    let each = usage.cpu.as_secs_f64() * 1e6 / tickets as f64;
    println!(
        "\n{name}: {each:.2} µs of CPU per ticket, {:.0} tickets per CPU-second, {:.1} s wall",
        1e6 / each,
        usage.wall.as_secs_f64()
    );
    each
}

fn verdict(value: f64, most: f64) -> &'static str {
    if value > most {
        "  ABOVE THE LIMIT"
    } else {
        ""
    }
}
