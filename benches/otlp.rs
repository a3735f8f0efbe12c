//! What delivery costs: log records per CPU-second from a ledger on disk to a collector, as a ratio to a floor that is not our code: the same
//! requests, made before the clock starts, cloned, encoded and sent by the protocol's own types and its own client.
//!
//! `cargo bench --bench otlp` starts itself a second time as the collector, so that only the exporter's own CPU time is counted here.
//! `ORGDATA_BENCH_PAGES` sets the number of pages (of 1000 entries each) in the outbox; 300 unless set.

#[path = "../tests/support/settings.rs"]
mod settings;

mod support;

use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::{Commit, LedgerHandle, LedgerOptions, NewEntry, Stored};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::records::{Envelope, log_record};
use prost::Message as _;
use support::{PAGE, Peer, Usage};
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;

/// Records in a request.
const BATCH: usize = 512;

/// Encodings of one entry.
const ENCODINGS: u32 = 200_000;

/// At least this share of the floor's speed.
const OF_THE_FLOOR: f64 = 0.2;

fn main() {
    if std::env::args().any(|argument| argument == support::SERVE) {
        return support::serve();
    }
    let pages: u64 = std::env::var("ORGDATA_BENCH_PAGES")
        .ok()
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(300);
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(run(pages));
}

async fn run(pages: u64) {
    println!("{pages} pages of {PAGE} entries, {BATCH} records a request");
    println!(
        "floor: the same requests, made before, encoded and sent by opentelemetry-proto's LogsServiceClient"
    );
    measure_record(&support::entries(1));
    let peer = Peer::start(pages);
    for gzip in [false, true] {
        let name = if gzip {
            "with gzip"
        } else {
            "without compression"
        };
        println!("\n{name}");
        let floor = floor(&peer, pages, gzip).await;
        report("floor", &peer, pages, floor);
        let relay = relay(&peer, pages, gzip).await;
        report("relay", &peer, pages, relay);
        let ratio = floor / relay;
        println!(
            "  of the floor: {ratio:.2} (at least {OF_THE_FLOOR}){}",
            if ratio < OF_THE_FLOOR {
                "  BELOW THE LIMIT"
            } else {
                ""
            }
        );
    }
}

fn report(name: &str, peer: &Peer, pages: u64, cpu: f64) {
    let events = (pages * PAGE as u64) as f64;
    let [requests, records, bytes] = peer.collected();
    assert!(
        (records - events).abs() < 1.0,
        "{records} of {events} records arrived"
    );
    println!(
        "  {name}: {:.0} records per CPU-second, {:.2} µs of CPU per record, {:.2} requests per 1000 records, {:.0} bytes on the wire per record",
        events / cpu,
        cpu * 1e6 / events,
        requests * 1000.0 / events,
        bytes / events
    );
}

/// Returns some full requests.
fn requests() -> Vec<ExportLogsServiceRequest> {
    let entries: Vec<String> = (1..=5).flat_map(support::entries).collect();
    let lines: Vec<String> = entries.iter().map(|json| line(json)).collect();
    let resource = [("service.name".to_owned(), "orgdata-exporter".to_owned())];
    let envelope = Envelope::new(resource.into());
    let requests = lines.chunks_exact(BATCH);
    let request = |lines: &[String]| envelope.request(lines.iter().map(String::as_bytes)).0;
    requests.map(request).collect()
}

/// Returns copies of the requests in turn, until so many records are out.
fn in_turn(
    requests: &[ExportLogsServiceRequest],
    mut left: usize,
) -> impl Iterator<Item = ExportLogsServiceRequest> {
    requests.iter().cycle().map_while(move |request| {
        let count = left.min(BATCH);
        left -= count;
        let mut request = request.clone();
        request.resource_logs[0].scope_logs[0]
            .log_records
            .truncate(count);
        (count > 0).then_some(request)
    })
}

/// Seconds of CPU. The client takes requests by value: they are copies, and what copying costs is measured beside and taken off.
async fn floor(peer: &Peer, pages: u64, gzip: bool) -> f64 {
    let records = usize::try_from(pages).expect("fewer pages") * PAGE;
    let requests = requests();
    let mut client = LogsServiceClient::connect(peer.collector())
        .await
        .expect("a connection");
    if gzip {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let copying = Usage::now();
    in_turn(&requests, records).for_each(|request| drop(std::hint::black_box(request)));
    let copying = copying.elapsed().cpu;
    peer.show(pages);
    let sending = Usage::now();
    for request in in_turn(&requests, records) {
        client.export(request).await.expect("taken");
    }
    sending.elapsed().cpu.saturating_sub(copying).as_secs_f64()
}

/// Returns an entry as the outbox holds it.
fn line(json: &str) -> String {
    let now = jiff::Timestamp::now();
    let stored = Stored {
        created: now,
        arrived: now,
        entry: json.into(),
        ..Stored::default()
    };
    stored.line()
}

/// Prints the time from a line of the outbox to the bytes of a record, on one core.
fn measure_record(entries: &[String]) {
    let entry = entries.iter().find(|entry| entry.len() >= 700);
    let entry = entry.unwrap_or(&entries[0]);
    let line = line(entry);
    let measure = |work: &dyn Fn()| {
        let start = Usage::now();
        (0..ENCODINGS).for_each(|_| work());
        start.elapsed().cpu.as_secs_f64() * 1e6 / f64::from(ENCODINGS)
    };
    let stored = || Stored::read(std::hint::black_box(line.as_bytes()));
    let written = measure(&|| drop(std::hint::black_box(stored().line())));
    let read = measure(&|| drop(std::hint::black_box(stored())));
    let bytes = measure(&|| drop(std::hint::black_box(log_record(stored()).encode_to_vec())));
    println!(
        "record: for an entry of {} bytes, {read:.2} µs of CPU to read its line, {:.2} to write it, {:.2} from that to bytes",
        entry.len(),
        written - read,
        bytes - read
    );
}

/// Seconds of CPU from the start of a relay with a full outbox until the last acknowledgement is written down.
async fn relay(peer: &Peer, pages: u64, gzip: bool) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let metrics = Metrics::new(Duration::ZERO);
    let settings = LedgerOptions {
        max_size: 1 << 30,
        ..settings::ledger(Some(directory.path().join("state.db")), "http://localhost")
    };
    let (ledger, _) = LedgerHandle::open(settings).expect("a ledger");
    let now = jiff::Timestamp::now();
    for page in 0..pages {
        let mut commit = Commit::new(now);
        commit.entries = (page * PAGE as u64..)
            .zip(support::entries(page))
            .map(|(number, raw)| NewEntry {
                created_at: now,
                ..settings::entry(number, raw)
            })
            .collect();
        ledger.commit(commit).await.expect("written");
    }

    let compression =
        |name: &str| (gzip && name == "OTEL_EXPORTER_OTLP_COMPRESSION").then(|| "gzip".to_owned());
    let relay = peer.relay(&ledger, &metrics, BATCH as u32, &compression);
    peer.show(pages);
    let stop = CancellationToken::new();
    let delivering = Usage::now();
    let relay = tokio::spawn(relay.run(Health::default(), stop.clone(), Duration::from_secs(1)));
    while ledger.backlog() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cpu = delivering.elapsed().cpu;
    stop.cancel();
    relay.await.expect("no panic");
    cpu.as_secs_f64()
}
