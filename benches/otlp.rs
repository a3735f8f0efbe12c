//! What delivery costs: log records per CPU-second from a ledger on disk to a collector, as a ratio to making the same batches of
//! the same JSON with the protocol's own types and sending them, and nothing else.
//!
//! `cargo bench --bench otlp` starts itself a second time as the collector, so that only the exporter's own CPU time is counted here.
//! `ORGDATA_BENCH_PAGES` sets the number of pages (of 1000 entries each) in the outbox; 300 unless set.

#[path = "../tests/support/settings.rs"]
mod settings;

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use orgdata_exporter::health::Health;
use orgdata_exporter::ledger::{
    Commit, Disposition, Encode as _, EventId, LedgerHandle, LedgerOptions, NewEntry, RawRecord,
    RecordKind,
};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::records::{RecordEncoder, SCOPE};
use otlp_logs::Envelope;
use prost::Message;
use support::{PAGE, Peer, Usage};
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding;

/// Records in a request.
const BATCH: usize = 512;

/// Encodings of one entry.
const ENCODINGS: u32 = 200_000;

/// At least this share of the floor's speed.
const OF_THE_FLOOR: f64 = 0.8;

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
        "floor: bodies read from the same JSON into the protocol's own types, attributes given, sent by tonic's LogsServiceClient"
    );
    println!(
        "bare floor: the bodies are given too, so that nothing is read, only encoded and sent"
    );
    measure_encoder(&support::entries(1));
    let peer = Peer::start(pages);
    for gzip in [false, true] {
        let name = if gzip {
            "with gzip"
        } else {
            "without compression"
        };
        println!("\n{name}");
        let bare = floor(&peer, pages, gzip, false).await;
        report("bare floor", &peer, pages, bare);
        let floor = floor(&peer, pages, gzip, true).await;
        report("floor", &peer, pages, floor);
        let relay = relay(&peer, pages, gzip).await;
        report("relay", &peer, pages, relay);
        println!("  of the bare floor: {:.2}", bare / relay);
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

/// Some full requests, and the JSON of their records.
struct Batches {
    requests: Vec<ExportLogsServiceRequest>,
    entries: Vec<String>,
}

// === impl Batches ===

impl Batches {
    fn new() -> Self {
        let entries: Vec<String> = (1..=5).flat_map(support::entries).collect();
        let encoded: Vec<Bytes> = entries.iter().map(|json| encode(json)).collect();
        let resource = [("service.name".to_owned(), "orgdata-exporter".to_owned())];
        let envelope = Envelope::new(resource.into(), [SCOPE, "0", "https://example.com"]);
        let request = |records: &[Bytes]| envelope.request(records.iter());
        let requests = encoded
            .chunks_exact(BATCH)
            .map(|records| ExportLogsServiceRequest::decode(request(records)).expect("decodes"));
        Self {
            requests: requests.collect(),
            entries,
        }
    }

    /// Copies of the batches in turn, until so many records are out.
    fn in_turn(
        &self,
        mut left: usize,
    ) -> impl Iterator<Item = (ExportLogsServiceRequest, &[String])> {
        let batches = self
            .requests
            .iter()
            .zip(self.entries.chunks_exact(BATCH))
            .cycle();
        batches.map_while(move |(request, entries)| {
            let count = left.min(BATCH);
            left -= count;
            let mut request = request.clone();
            request.resource_logs[0].scope_logs[0]
                .log_records
                .truncate(count);
            (count > 0).then_some((request, &entries[..count]))
        })
    }
}

/// Seconds of CPU. The client takes requests by value: they are copies, and what copying costs is measured beside and taken off.
async fn floor(peer: &Peer, pages: u64, gzip: bool, read: bool) -> f64 {
    let records = usize::try_from(pages).expect("fewer pages") * PAGE;
    let batches = Batches::new();
    let mut client = LogsServiceClient::connect(peer.collector())
        .await
        .expect("a connection");
    if gzip {
        client = client.send_compressed(CompressionEncoding::Gzip);
    }
    let copying = Usage::now();
    batches
        .in_turn(records)
        .for_each(|batch| drop(std::hint::black_box(batch)));
    let copying = copying.elapsed().cpu;
    peer.show(pages);
    let sending = Usage::now();
    for (mut request, entries) in batches.in_turn(records) {
        if read {
            for (record, entry) in request.resource_logs[0].scope_logs[0]
                .log_records
                .iter_mut()
                .zip(entries)
            {
                record.body = Some(any_value(serde_json::from_str(entry).expect("JSON")));
            }
        }
        client.export(request).await.expect("taken");
    }
    sending.elapsed().cpu.saturating_sub(copying).as_secs_f64()
}

fn encode(json: &str) -> Bytes {
    let mut bytes = Vec::new();
    let record = RawRecord {
        kind: RecordKind::Entry,
        json,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        arrived_at: jiff::Timestamp::now(),
        trace: None,
    };
    RecordEncoder::default().encode(&record, &mut bytes);
    bytes.into()
}

fn any_value(json: serde_json::Value) -> AnyValue {
    use serde_json::Value as Json;
    let value = match json {
        Json::Null => return AnyValue { value: None },
        Json::Bool(value) => Value::BoolValue(value),
        Json::Number(number) => number.as_i64().map_or_else(
            || Value::DoubleValue(number.as_f64().expect("finite")),
            Value::IntValue,
        ),
        Json::String(text) => Value::StringValue(text),
        Json::Array(items) => Value::ArrayValue(ArrayValue {
            values: items.into_iter().map(any_value).collect(),
        }),
        Json::Object(members) => {
            let member = |(key, value)| KeyValue {
                key,
                value: Some(any_value(value)),
                ..KeyValue::default()
            };
            Value::KvlistValue(KeyValueList {
                values: members.into_iter().map(member).collect(),
            })
        }
    };
    AnyValue { value: Some(value) }
}

/// Prints the time to encode an entry on one core.
fn measure_encoder(entries: &[String]) {
    let entry = entries.iter().find(|entry| entry.len() >= 700);
    let entry = entry.unwrap_or(&entries[0]);
    let start = Usage::now();
    for _ in 0..ENCODINGS {
        std::hint::black_box(encode(std::hint::black_box(entry)));
    }
    let cpu = start.elapsed().cpu.as_secs_f64() * 1e6 / f64::from(ENCODINGS);
    println!(
        "encoder: {cpu:.2} µs of CPU for an entry of {} bytes",
        entry.len()
    );
}

/// Seconds of CPU from the start of a relay with a full outbox until the last acknowledgement is written down.
async fn relay(peer: &Peer, pages: u64, gzip: bool) -> f64 {
    let directory = tempfile::tempdir().expect("a directory");
    let metrics = Metrics::new(Duration::ZERO);
    let settings = LedgerOptions {
        max_size: 1 << 30,
        encoder: Arc::new(RecordEncoder::default()),
        ..settings::ledger(Some(directory.path().join("state.db")), "http://localhost")
    };
    let (ledger, _) = LedgerHandle::open(settings).expect("a ledger");
    let now = jiff::Timestamp::now();
    for page in 0..pages {
        let mut commit = Commit::new(now);
        commit.entries = (page * PAGE as u64..)
            .zip(support::entries(page))
            .map(|(number, raw)| entry(number, now, raw))
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

fn entry(number: u64, created_at: jiff::Timestamp, raw: String) -> NewEntry {
    NewEntry {
        id: EventId(number),
        created_at,
        disposition: Disposition::Live,
        activity_type: Some("X".to_owned()),
        actor: None,
        problem: None,
        is_uncounted: false,
        is_unsent: false,
        raw: settings::alone(raw),
    }
}
