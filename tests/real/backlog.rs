//! A million events without a collector: the built binary's metrics go on, its memory and its file stay bounded, the tail pauses when the
//! file is full, and everything drains once the collector is there, oldest first as far as the file could hold it.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;

use crate::support::binary::{Scrape, exporter, free_address};
use crate::support::collector_peer::record_id;
use crate::support::http_peer::{Peer, json};

/// The number of entries of a page.
const PAGE: u64 = 1000;

/// The number of pages of new entries.
const PAGES: u64 = 1000;

/// The number of pages that come one after the other, so that nothing is missing between them. They are delivered in order.
const IN_ORDER: u64 = 300;

/// `--state.max-size` in MiB: a million events need more.
const MAX_SIZE: u64 = 48;

/// More than this above what it has at rest is not flat, in MiB.
const MEMORY: f64 = 56.0;

/// How long a million events may take to drain.
const DRAIN: Duration = Duration::from_secs(240);

/// A collector that takes everything and remembers the numbers.
#[derive(Clone, Default)]
pub(super) struct Sink(pub(super) Arc<Mutex<Vec<u64>>>);

/// Returns a number of a query; `name` ends with `=`.
pub(super) fn asked(target: &str, name: &str) -> Option<u64> {
    let mut parameters = target.split(['?', '&']);
    parameters.find_map(|parameter| parameter.strip_prefix(name)?.parse().ok())
}

/// Returns the page of a service with so many entries that costs next to nothing to make. A cursor is the number of an entry, for which
/// `entry` says type, actor and time.
pub(super) fn page(
    target: &str,
    total: u64,
    entry: impl Fn(u64) -> (u64, u64, Timestamp),
) -> String {
    let end = asked(target, "before=").unwrap_or(total);
    let start = end.saturating_sub(asked(target, "limit=").unwrap_or(100));
    let items = (start..end).rev().map(|number| {
        let (kind, actor, at) = entry(number);
        // What does not compress away: real entries differ.
        let one = (number + 77).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let other = one.rotate_left(21).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "{{\"id\":\"{number:09}\",\"type\":\"ACTIVITY_{kind:02}\",\"occurredAt\":\"{at}\",\"createdAt\":\"{at}\",\
             \"updatedAt\":\"{at}\",\"organizationId\":7,\"actorUserId\":{actor},\"metadata\":{{\"note\":\"{one:016x}{other:016x}\"}}}}"
        )
    });
    let items = items.collect::<Vec<_>>().join(",");
    let cursors = match start < end {
        true => format!("\"startCursor\":\"{}\",\"endCursor\":\"{start}\"", end - 1),
        false => "\"startCursor\":null,\"endCursor\":null".to_owned(),
    };
    let (newer, older) = (end < total, start > 0);
    format!("{{\"items\":[{items}],{cursors},\"hasPrevious\":{newer},\"hasMore\":{older}}}")
}

#[tonic::async_trait]
impl LogsService for Sink {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, tonic::Status> {
        let resources = request.into_inner().resource_logs.into_iter();
        let scopes = resources.flat_map(|logs| logs.scope_logs);
        let records = scopes.flat_map(|logs| logs.log_records);
        let numbers = records.map(|record| record_id(&record).parse::<u64>().unwrap());
        self.0.lock().unwrap().extend(numbers);
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the image's program"]
async fn a_million_events_wait_for_the_collector() {
    let started = Timestamp::now() - Duration::from_secs(3600);
    let entries = Arc::new(AtomicU64::new(PAGE));
    let total = entries.clone();
    let service = Peer::start(move |request, _| {
        let total = total.load(Ordering::Relaxed);
        let entry = |number| {
            let at = started + Duration::from_millis(number);
            (number % 25, 1000 + number % 40, at)
        };
        json("200 OK", page(request.target(), total, entry))
    });
    let service = service.await;
    let endpoint = free_address();
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state.db");
    let exporter = exporter(&service.url())
        .shipped()
        .state(&state)
        .flag("--tickets.enabled", "false")
        .flag("--state.max-size", &format!("{MAX_SIZE}MiB"))
        .otlp("grpc", &format!("http://{endpoint}"))
        .listening()
        .await;
    exporter.synced().await;
    let [idle, _] = exporter.memory();
    let begun = Instant::now();
    for pages in (50..=IN_ORDER).step_by(50) {
        entries.store((pages + 1) * PAGE, Ordering::Relaxed);
        let caught_up = |scrape: &Scrape| {
            scrape.sum("orgdata_audit_events_total") == (pages * PAGE) as f64
                && scrape.value("orgdata_audit_sweep_open") == Some(0.0)
        };
        exporter.until("the pages", caught_up).await;
    }
    // The rest at once: more than the file can hold.
    let total = (PAGES + 1) * PAGE;
    entries.store(total, Ordering::Relaxed);

    let on_disk = || {
        let files = ["", "-wal"].map(|suffix| format!("{}{suffix}", state.display()));
        let files = files.iter().filter_map(|file| fs::metadata(file).ok());
        files.map(|file| file.len()).sum::<u64>()
    };
    // The backlog is shown a moment after the counters.
    let is_paused = |scrape: &Scrape| {
        let counted = scrape.sum("orgdata_audit_events_total");
        scrape.value("orgdata_audit_paused") == Some(1.0)
            && scrape.value("orgdata_otlp_backlog_records") == Some(counted)
    };
    let paused = exporter.until("a full file", is_paused).await;
    let counted = paused.sum("orgdata_audit_events_total");
    let limit = MAX_SIZE << 20;
    println!("paused after {counted} events and {:?}", begun.elapsed());
    let is_part = counted > 100_000.0 && counted < (PAGES * PAGE) as f64;
    assert!(is_part, "{counted}");
    assert!(on_disk() <= limit, "{} bytes", on_disk());
    assert!(exporter.is_healthy().await);

    // It stays so: metrics are there, nothing moves.
    let failures = "orgdata_otlp_request_failures_total";
    let still = exporter.until("another failed attempt", |scrape| {
        scrape.sum(failures) > paused.sum(failures)
    });
    assert_eq!(still.await.sum("orgdata_audit_events_total"), counted);

    let sink = Sink::default();
    let listener = TcpListener::bind(endpoint).await.unwrap();
    let service = LogsServiceServer::new(sink.clone()).accept_compressed(CompressionEncoding::Gzip);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let returned = Instant::now();
    let mut largest = 0;
    let scrape = loop {
        largest = largest.max(on_disk());
        let scrape = exporter.scrape().await;
        let all = scrape.sum("orgdata_audit_events_total") == (PAGES * PAGE) as f64;
        if all && scrape.value("orgdata_otlp_backlog_records") == Some(0.0) {
            break scrape;
        }
        let drained = sink.0.lock().unwrap().len();
        assert!(returned.elapsed() < DRAIN, "{drained} records");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let [now, peak] = exporter.memory();
    let took = returned.elapsed();
    println!(
        "drained after {took:?}; {largest} bytes; {idle:.1} MiB at rest, {now:.1} now, {peak:.1} at most"
    );
    // The first page is history: it is known, not delivered.
    let mut came = std::mem::take(&mut *sink.0.lock().unwrap());
    let in_order = PAGE..(IN_ORDER + 1) * PAGE;
    let first = came.iter().copied().take((IN_ORDER * PAGE) as usize);
    assert!(first.eq(in_order), "oldest first");
    came.sort_unstable();
    assert!(came.into_iter().eq(PAGE..total), "each once");
    assert!(largest <= limit, "{largest} bytes");
    assert!(peak - idle <= MEMORY, "{peak} MiB at most, {idle} at rest");
    let zeros =
        "audit_paused audit_gaps_total state_commit_failures_total audit_events_duplicate_total";
    for series in zeros.split(' ') {
        let value = scrape.value(&format!("orgdata_{series}"));
        assert_eq!(value, Some(0.0), "{series}");
    }
}
