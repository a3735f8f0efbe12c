//! The other side of the benchmarks, in a process of its own; and what this process has used.

#![allow(dead_code, unused_imports, reason = "each benchmark uses its part")]

mod counted;
mod entry;
mod usage;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use futures_util::TryStreamExt;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use orgdata_exporter::api::AuditPage;
use orgdata_exporter::ledger::LedgerHandle;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::records::{Delivery, Relay};
use otlp_logs::Sender;
use tonic::codec::CompressionEncoding;

use counted::Counted;

pub(crate) use self::entry::Entry;
pub(crate) use self::usage::{Usage, peak_resident_mib, resident_mib};

/// Entries on a page.
pub(crate) const PAGE: usize = 1000;

/// The argument that makes the benchmark the other side.
pub(crate) const SERVE: &str = "--serve-the-other-side";

/// The first entry was created this long ago.
const FIRST: Duration = Duration::from_secs(4 * 3600);

/// Digits of an entry's number, in its id.
const DIGITS: usize = 12;

/// The service and the collector.
pub(crate) struct Peer {
    child: Child,
    address: String,
    collector: String,
}

/// Pages as one text, with the places where ids and times stand.
struct Template {
    text: Vec<u8>,
    ids: Vec<usize>,
    times: Vec<usize>,
    /// Where each entry ends.
    ends: Vec<usize>,
}

#[derive(Clone)]
struct Service {
    template: Arc<Template>,
    shown: Arc<AtomicU64>,
    apart: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
    sink: Sink,
    started: jiff::Timestamp,
}

/// What the collector took.
#[derive(Clone, Default)]
struct Sink {
    requests: Arc<AtomicU64>,
    records: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

// === impl Peer ===

impl Peer {
    pub(crate) fn start(pages: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .arg(SERVE)
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut line = || lines.next().expect("a line").expect("text");
        let (address, collector) = (line(), line());
        let peer = Self {
            child,
            address,
            collector,
        };
        peer.show(pages);
        peer
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn collector(&self) -> String {
        format!("http://{}", self.collector)
    }

    /// Shows this many pages of new entries, a millisecond apart.
    pub(crate) fn show(&self, pages: u64) {
        self.show_entries(pages * PAGE as u64, 1);
    }

    /// Shows this many new entries, so many milliseconds apart.
    pub(crate) fn show_entries(&self, entries: u64, apart: u64) {
        self.ask(&format!("/show/{entries}/{apart}"));
    }

    /// Requests since the last call of `show`.
    pub(crate) fn requests(&self) -> u64 {
        self.ask("/requests").trim().parse().expect("a number")
    }

    /// Requests, records and bytes that reached the collector since the last call of `show`.
    pub(crate) fn collected(&self) -> [f64; 3] {
        let answer = self.ask("/collected");
        let mut numbers = answer
            .split_whitespace()
            .map(|number| number.parse().expect("a number"));
        [(); 3].map(|()| numbers.next().expect("three numbers"))
    }

    /// A relay to the collector over gRPC.
    pub(crate) fn relay(
        &self,
        ledger: &LedgerHandle,
        metrics: &Metrics,
        batch_size: u32,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Relay<Sender> {
        let endpoint = self.collector();
        let delivery = Delivery::from_env(Some(&endpoint), Some("grpc"), None, batch_size, env)
            .expect("settings")
            .expect("an endpoint");
        let sender = Sender::new(&delivery.target).expect("a sender");
        let (otlp, loops) = (metrics.otlp.clone(), metrics.loops.clone());
        Relay::new(ledger.clone(), sender, &delivery, otlp, loops)
    }

    /// One request over a connection of its own: a client would cost memory that is measured.
    fn ask(&self, path: &str) -> String {
        use std::io::Read;
        let mut stream = std::net::TcpStream::connect(&self.address).expect("a connection");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer
            .rsplit("\r\n\r\n")
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The entries of a page as the service wrote them, oldest first.
pub(crate) fn entries(page: u64) -> Vec<String> {
    let started = jiff::Timestamp::now() - Duration::from_secs(1200);
    let newest = (page + 1) * PAGE as u64 - 1;
    let text = Template::new().page(newest, PAGE, started, 1);
    let page = AuditPage::parse(text, Some(started)).expect("a page");
    page.items().rev().map(str::to_owned).collect()
}

pub(crate) fn page_bytes() -> usize {
    Template::new().text.len()
}

/// The cursor of the newest entry of a page.
pub(crate) fn cursor(page: u64) -> String {
    ((page + 1) * PAGE as u64 - 1).to_string()
}

// === impl Template ===

impl Template {
    /// A page of entries like those of the simulator: 25 activity types, 40 actors, a metadata object each.
    fn new() -> Self {
        let mut text = Vec::new();
        let (mut ids, mut times, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        text.extend_from_slice(b"{\"items\":[");
        for index in 0..PAGE {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(b"{\"id\":\"evt-");
            ids.push(text.len());
            text.extend_from_slice(&[b'0'; DIGITS]);
            write!(
                text,
                "\",\"type\":\"ACTIVITY_{:02}\",\"occurredAt\":\"",
                index % 25
            )
            .expect("memory");
            for field in ["", "\",\"createdAt\":\"", "\",\"updatedAt\":\""] {
                text.extend_from_slice(field.as_bytes());
                times.push(text.len());
                text.extend_from_slice(b"2026-01-01T00:00:00.000Z");
            }
            let (actor, deal) = (1000 + index % 40, 5000 + index % 97);
            write!(
                text,
                "\",\"organizationId\":7,\"dealId\":{deal},\"evaluationId\":{index},\"actorUserId\":{actor},\"targetUserId\":null,\"modifiedTargetUserId\":null,\
                 \"metadata\":{{\"changes\":[{{\"field\":\"status\",\"from\":\"OPEN\",\"to\":\"DONE\"}}],\"score\":0.75,\"note\":null}},\
                 \"organization\":{{\"id\":7,\"name\":\"Example\"}},\"evaluation\":{{\"id\":{index},\"title\":\"Proof of concept {index}\",\"deal\":{{\"id\":{deal},\"name\":\"Deal {deal}\"}}}},\
                 \"deal\":{{\"id\":{deal},\"name\":\"Deal {deal}\"}},\"actorUser\":{{\"id\":{actor},\"firstName\":\"First {actor}\",\"lastName\":\"Last {actor}\",\"profileImageUrl\":null}},\
                 \"targetUser\":null,\"modifiedTargetUser\":null,\"task\":{{\"id\":{index},\"title\":\"Task {index}\",\"type\":null}},\"requirement\":null,\"meeting\":null,\"ticket\":null,\"teamRequest\":null}}"
            )
            .expect("memory");
            ends.push(text.len());
        }
        Self {
            text,
            ids,
            times,
            ends,
        }
    }

    /// The entries from number `newest` down, `count` of them.
    fn page(&self, newest: u64, count: usize, started: jiff::Timestamp, apart: u64) -> String {
        let end = count
            .checked_sub(1)
            .map_or("{\"items\":[".len(), |last| self.ends[last]);
        let mut text = self.text[..end].to_vec();
        for (index, place) in self.ids.iter().enumerate().take(count) {
            let number = newest - index as u64;
            text[*place..*place + DIGITS].copy_from_slice(format!("{number:0DIGITS$}").as_bytes());
        }
        for (index, place) in self.times.iter().enumerate().take(3 * count) {
            let at = started + Duration::from_millis((newest - index as u64 / 3) * apart);
            text[*place..*place + 24].copy_from_slice(format!("{at:.3}").as_bytes());
        }
        let mut text = String::from_utf8(text).expect("JSON");
        let cursors = match count {
            0 => "null,\"endCursor\":null".to_owned(),
            _ => format!(
                "\"{newest}\",\"endCursor\":\"{}\"",
                newest + 1 - count as u64
            ),
        };
        text.push_str(&format!(
            "],\"startCursor\":{cursors},\"hasPrevious\":true,\"hasMore\":{}}}",
            count as u64 <= newest
        ));
        text
    }
}

/// The other side: prints its two addresses and serves until its standard input ends.
pub(crate) fn serve() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let service = Service {
            template: Arc::new(Template::new()),
            shown: Arc::default(),
            apart: Arc::new(AtomicU64::new(1)),
            requests: Arc::default(),
            sink: Sink::default(),
            started: jiff::Timestamp::now() - FIRST,
        };
        let sink = service.sink.clone();
        let router = Router::new()
            .route("/v1/audit-logs", get(audit_logs))
            .route("/show/{entries}/{apart}", get(show))
            .route("/requests", get(requests))
            .route("/collected", get(collected))
            .with_state(service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let collector = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        println!("{}", listener.local_addr().expect("an address"));
        println!("{}", collector.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let bytes = sink.bytes.clone();
        let incoming =
            tonic::transport::server::TcpIncoming::from(collector).map_ok(move |stream| Counted {
                stream,
                bytes: bytes.clone(),
            });
        let service = LogsServiceServer::new(sink)
            .max_decoding_message_size(64 << 20)
            .accept_compressed(CompressionEncoding::Gzip);
        tokio::spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
        tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop))
            .await
            .expect("no panic");
    });
}

#[derive(serde::Deserialize)]
struct Asked {
    limit: u64,
    after: Option<u64>,
    before: Option<u64>,
}

/// The entries of page 0 were there before; those after them are new.
async fn audit_logs(State(service): State<Service>, Query(asked): Query<Asked>) -> String {
    service.requests.fetch_add(1, Ordering::Relaxed);
    let entries = service.shown.load(Ordering::Relaxed) + PAGE as u64;
    let limit = asked.limit.min(PAGE as u64);
    // Entries from `lowest` to below `end`.
    let (lowest, end) = match (asked.after, asked.before) {
        (Some(after), _) => (after + 1, (after + 1 + limit).min(entries)),
        (None, before) => {
            let end = before.unwrap_or(entries);
            (end.saturating_sub(limit), end)
        }
    };
    let count = end.saturating_sub(lowest) as usize;
    let newest = end.saturating_sub(1);
    let apart = service.apart.load(Ordering::Relaxed);
    service.template.page(newest, count, service.started, apart)
}

async fn show(
    State(service): State<Service>,
    axum::extract::Path((entries, apart)): axum::extract::Path<(u64, u64)>,
) {
    service.shown.store(entries, Ordering::Relaxed);
    service.apart.store(apart, Ordering::Relaxed);
    for count in [
        &service.requests,
        &service.sink.requests,
        &service.sink.records,
        &service.sink.bytes,
    ] {
        count.store(0, Ordering::Relaxed);
    }
}

async fn requests(State(service): State<Service>) -> String {
    service.requests.load(Ordering::Relaxed).to_string()
}

async fn collected(State(Service { sink, .. }): State<Service>) -> String {
    [sink.requests, sink.records, sink.bytes]
        .map(|count| count.load(Ordering::Relaxed).to_string())
        .join(" ")
}

#[tonic::async_trait]
impl LogsService for Sink {
    async fn export(
        &self,
        request: tonic::Request<ExportLogsServiceRequest>,
    ) -> Result<tonic::Response<ExportLogsServiceResponse>, tonic::Status> {
        let scopes = request
            .get_ref()
            .resource_logs
            .iter()
            .flat_map(|logs| &logs.scope_logs);
        self.records.fetch_add(
            scopes.map(|logs| logs.log_records.len() as u64).sum(),
            Ordering::Relaxed,
        );
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(tonic::Response::new(ExportLogsServiceResponse::default()))
    }
}
