//! A million events without a collector: the built binary's metrics go on, its memory and its file stay bounded, the tail pauses where the
//! file is full, and all of it drains, oldest first, when the collector is there.

use crate::support::collector_peer;
use crate::support::exporter;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use exporter::Setup;
use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

/// Entries of a page.
const PAGE: u64 = 1000;

/// Pages of new entries.
const PAGES: u64 = 1000;

/// `--state.max-size` in MiB: a million events need more.
const MAX_SIZE: u64 = 48;

/// More than this above what it has at rest is not flat, in MiB.
const MEMORY: f64 = 48.0;

/// A service whose pages cost next to nothing to make: page `n` holds the entries `n * PAGE` to `(n + 1) * PAGE - 1`, newest first.
#[derive(Clone)]
struct Service {
    shown: Arc<AtomicU64>,
    started: Timestamp,
}

#[derive(serde::Deserialize)]
struct Asked {
    limit: u64,
    after: Option<String>,
    before: Option<String>,
}

/// A collector that takes everything and looks at the order.
#[derive(Clone, Default)]
struct Sink(Arc<AtomicU64>, Arc<AtomicU64>);

impl Service {
    async fn start() -> (Self, String) {
        let service = Self {
            shown: Arc::default(),
            started: Timestamp::now() - Duration::from_secs(3600),
        };
        let router = Router::new()
            .route("/v1/audit-logs", get(audit_logs))
            .with_state(service.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (service, url)
    }

    /// The entries `oldest` to `newest`, and the cursors of both: a cursor is the number of an entry.
    fn page(&self, oldest: u64, newest: u64, top: u64) -> String {
        let mut text = Vec::with_capacity(400 * (newest - oldest + 2) as usize);
        text.extend_from_slice(b"{\"items\":[");
        for number in (oldest..=newest).rev() {
            let at = (self.started + Duration::from_millis(number)).to_string();
            let (kind, actor, comma) = (
                number % 25,
                1000 + number % 40,
                if number == oldest { "" } else { "," },
            );
            write!(
                text,
                "{{\"id\":\"{number:09}\",\"type\":\"ACTIVITY_{kind:02}\",\"occurredAt\":\"{at}\",\"createdAt\":\"{at}\",\"updatedAt\":\"{at}\",\
                 \"organizationId\":7,\"actorUserId\":{actor},\"metadata\":{{\"note\":\"{:016x}{:016x}\"}}}}{comma}",
                // What does not compress away: real entries differ.
                (number ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                (number + 77).wrapping_mul(0xc2b2_ae3d_27d4_eb4f),
            )
            .expect("memory");
        }
        write!(
            text,
            "],\"startCursor\":\"{newest}\",\"endCursor\":\"{oldest}\",\"hasPrevious\":{},\"hasMore\":{}}}",
            newest < top,
            oldest > 0
        )
        .expect("memory");
        String::from_utf8(text).expect("JSON")
    }
}

async fn audit_logs(
    State(service): State<Service>,
    Query(asked): Query<Asked>,
) -> ([(&'static str, &'static str); 1], String) {
    let top = (service.shown.load(Ordering::Relaxed) + 1) * PAGE - 1;
    let number = |cursor: &String| cursor.parse::<u64>().expect("a cursor");
    let text = match (&asked.after, &asked.before) {
        (Some(after), _) if number(after) < top => service.page(number(after) + 1, (number(after) + asked.limit).min(top), top),
        (None, Some(before)) if number(before) > 0 => service.page(number(before).saturating_sub(asked.limit), number(before) - 1, top),
        (None, None) => service.page((top + 1).saturating_sub(asked.limit), top, top),
        _ => "{\"items\":[],\"startCursor\":null,\"endCursor\":null,\"hasPrevious\":false,\"hasMore\":false}".to_owned(),
    };
    ([("content-type", "application/json")], text)
}

#[tonic::async_trait]
impl LogsService for Sink {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, tonic::Status> {
        for record in request
            .into_inner()
            .resource_logs
            .iter()
            .flat_map(|logs| &logs.scope_logs)
            .flat_map(|logs| &logs.log_records)
        {
            let number: u64 = collector_peer::record_id(record).parse().expect("a number");
            if number == self.0.load(Ordering::Relaxed) {
                self.0.fetch_add(1, Ordering::Relaxed);
            } else {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the image's program"]
async fn a_million_events_wait_for_the_collector_and_drain_oldest_first() {
    let (service, url) = Service::start().await;
    let collector = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = collector.local_addr().expect("bound");
    // Nothing is there.
    drop(collector);
    let quiet =
        orgdata_exporter::simulator::Simulator::spawn(orgdata_exporter::simulator::Config::quiet())
            .await
            .expect("a free port");
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("state.db");
    let exporter = Setup::new(&quiet)
        .shipped()
        .state(&state)
        .flag("--api.base-url", &url)
        .flag("--tickets.enabled", "false")
        .flag("--state.max-size", &format!("{MAX_SIZE}MiB"))
        .flag("--otlp.endpoint", &format!("http://{endpoint}"))
        .flag("--otlp.protocol", "grpc")
        .start()
        .await;
    exporter.born().await;
    let (idle, _) = exporter.memory();
    let begun = Instant::now();
    service.shown.store(PAGES, Ordering::Relaxed);

    let on_disk = || {
        ["", "-wal"]
            .iter()
            .filter_map(|suffix| std::fs::metadata(format!("{}{suffix}", state.display())).ok())
            .map(|file| file.len())
            .sum::<u64>()
    };
    let paused = exporter
        .until("a full file", |scrape| {
            scrape.value("orgdata_audit_paused") == Some(1.0)
        })
        .await;
    let counted = paused.sum("orgdata_audit_events_total");
    let limit = MAX_SIZE << 20;
    println!(
        "paused after {counted} events and {:?}, {} bytes on disk",
        begun.elapsed(),
        on_disk()
    );
    assert!(
        counted > 100_000.0 && counted < (PAGES * PAGE) as f64,
        "{counted}"
    );
    assert_eq!(paused.value("orgdata_otlp_backlog_records"), Some(counted));
    assert!(on_disk() <= limit, "{} bytes", on_disk());
    assert_eq!(
        exporter
            .get("/-/healthy")
            .send()
            .await
            .expect("an answer")
            .status(),
        200
    );

    // It stays so: metrics are there, nothing moves.
    let still = exporter.until("another failed attempt", |scrape| {
        scrape.sum("orgdata_otlp_request_failures_total")
            > paused.sum("orgdata_otlp_request_failures_total")
    });
    assert_eq!(still.await.sum("orgdata_audit_events_total"), counted);

    let sink = Sink::default();
    // History is remembered, not delivered: the first page belongs to it.
    sink.0.store(PAGE, Ordering::Relaxed);
    let listener = TcpListener::bind(endpoint)
        .await
        .expect("the port is still free");
    let serve = tonic::transport::Server::builder()
        .add_service(
            LogsServiceServer::new(sink.clone())
                .accept_compressed(tonic::codec::CompressionEncoding::Gzip),
        )
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serve);
    let returned = Instant::now();
    let mut largest = 0;
    let scrape = loop {
        largest = largest.max(on_disk());
        let scrape = exporter.scrape().await;
        let done = scrape.sum("orgdata_audit_events_total") == (PAGES * PAGE) as f64
            && scrape.value("orgdata_otlp_backlog_records") == Some(0.0);
        if done {
            break scrape;
        }
        assert!(
            returned.elapsed() < Duration::from_secs(240),
            "it does not drain: {} of {}",
            sink.0.load(Ordering::Relaxed),
            PAGES * PAGE
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let (now, peak) = exporter.memory();
    println!(
        "drained after {:?}; at most {largest} bytes on disk; memory {idle:.1} MiB at rest, {now:.1} now, {peak:.1} at most",
        returned.elapsed()
    );
    assert_eq!(
        (
            sink.0.load(Ordering::Relaxed),
            sink.1.load(Ordering::Relaxed)
        ),
        ((PAGES + 1) * PAGE, 0),
        "each once, oldest first"
    );
    assert!(largest <= limit, "{largest} bytes");
    assert!(peak - idle <= MEMORY, "{peak} MiB at most, {idle} at rest");
    for (series, value) in [
        ("orgdata_audit_paused", 0.0),
        ("orgdata_audit_gaps_total", 0.0),
        ("orgdata_state_commit_failures_total", 0.0),
        ("orgdata_audit_events_duplicate_total", 0.0),
    ] {
        assert_eq!(scrape.value(series), Some(value), "{series}");
    }
}
