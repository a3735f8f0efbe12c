//! A month in an hour: the clock of the service runs 720 times as fast as ours. `SOAK_MINUTES` says how long it takes, by default one minute.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::LogsServiceServer;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;

use super::backlog::{Sink, asked, page};
use crate::support::binary::{exporter, free_address};
use crate::support::http_peer::{Peer, Reply, answer};
use crate::support::parts::{Prometheus, number};

/// How many of the service's seconds pass in one of ours: 30 days in an hour.
const SPEED: u64 = 720;

/// Milliseconds of a day and of an hour.
const DAY: u64 = 86_400_000;
const HOUR: u64 = 3_600_000;

/// The service's milliseconds between two events: 200,000 a day.
const EVERY: u64 = DAY / 200_000;

/// Entries that exist when the exporter starts, one for each minute before.
const HISTORY: u64 = 5_000;

const ACTORS: u64 = 2_000;
const TYPES: u64 = 5;

/// Tickets at any time.
const TICKETS: u64 = 1_000;
const STATES: [&str; 3] = ["OPEN", "IN_PROGRESS", "CLOSED"];

const SAMPLES: &str = "scrape_samples_post_metric_relabeling";

/// How often Prometheus scrapes.
const SCRAPE: Duration = Duration::from_secs(5);

/// The service: what it has is a function of its clock.
#[derive(Clone)]
struct Service {
    started: Timestamp,
    /// Milliseconds since then.
    clock: Arc<AtomicU64>,
}

/// A collector that can go away at once, with its connections.
struct Collector {
    address: SocketAddr,
    sink: Sink,
    runtime: Option<Runtime>,
}

/// Returns bits that look random.
fn hash(number: u64) -> u64 {
    let bits = (number + 77).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (bits ^ (bits >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

/// Returns the type and the actor of an entry. On the first day everybody is there, and then on about half of the days.
fn labels(entry: u64) -> [u64; 2] {
    let day = entry.saturating_sub(HISTORY) * EVERY / DAY;
    let is_there = |actor: &u64| day == 0 || hash(day * ACTORS + actor).is_multiple_of(2);
    let first = hash(entry) % ACTORS;
    let mut actors = (first..).map(|actor| actor % ACTORS);
    let actor = actors.find(is_there).unwrap();
    [hash(entry) / ACTORS % TYPES, actor]
}

/// Returns state and type of a ticket in an hour.
fn ticket(id: u64, hour: u64) -> [&'static str; 2] {
    let state = STATES[((hour + id) / 24 + id) as usize % STATES.len()];
    [state, ["BUG", "QUESTION"][id as usize % 2]]
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Service {
    fn millis(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn entries(&self) -> u64 {
        HISTORY + self.millis() / EVERY
    }

    /// In each hour two tickets come and two go.
    fn tickets(&self) -> (u64, std::ops::Range<u64>) {
        let hour = self.millis() / HOUR;
        (hour, 2 * hour..2 * hour + TICKETS)
    }

    fn answer(&self, target: &str) -> Reply {
        let body = match target.contains("/tickets") {
            true => self.ticket_page(target),
            false => self.audit_page(target),
        };
        let now = self.started + Duration::from_millis(self.millis());
        let date = format!("date: {}", now.strftime("%a, %d %b %Y %H:%M:%S GMT"));
        answer("200 OK", &["content-type: application/json", &date], body)
    }

    fn audit_page(&self, target: &str) -> String {
        page(target, self.entries(), |entry| {
            let [kind, actor] = labels(entry);
            let at = match entry.checked_sub(HISTORY) {
                Some(since) => self.started + Duration::from_millis(since * EVERY),
                None => self.started - Duration::from_secs(60 * (HISTORY - entry)),
            };
            (kind, actor, at)
        })
    }

    fn ticket_page(&self, target: &str) -> String {
        let (hour, ids) = self.tickets();
        let asked = |name| asked(target, name);
        let limit = asked("limit=").unwrap_or(100);
        let offset = asked("offset=").unwrap_or(0);
        let items = ids.skip(offset as usize).take(limit as usize).map(|id| {
            let ([state, kind], at) = (ticket(id, hour), self.started.to_string());
            json!({
                "id": id, "type": kind, "state": state, "title": "", "createdAt": at, "updatedAt": at,
                "organizationId": 7, "createdByUserId": 1,
            })
        });
        let items: Vec<Value> = items.collect();
        let page =
            json!({ "items": items, "limit": limit, "offset": offset, "totalCount": TICKETS });
        page.to_string()
    }
}

impl Collector {
    fn start() -> Self {
        let mut collector = Self {
            address: free_address(),
            sink: Sink::default(),
            runtime: None,
        };
        collector.be_there(true);
        collector
    }

    fn be_there(&mut self, there: bool) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if !there {
            return;
        }
        let service = LogsServiceServer::new(self.sink.clone());
        let service = service.accept_compressed(CompressionEncoding::Gzip);
        let address = self.address;
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let server = tonic::transport::Server::builder().add_service(service);
            let incoming = TcpIncoming::from(listener);
            server.serve_with_incoming(incoming).await
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // A runtime cannot be dropped where a test awaits.
        self.be_there(false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Prometheus and the image's program"]
async fn a_month_changes_neither_memory_nor_files_and_every_number_is_true() {
    let minutes = std::env::var("SOAK_MINUTES").map_or(1, |minutes| minutes.parse().unwrap());
    let length = Duration::from_secs(60 * minutes);
    let service = Service {
        started: Timestamp::now() - length * SPEED as u32,
        clock: Arc::default(),
    };
    let answering = service.clone();
    let peer = Peer::start(move |request, _| answering.answer(request.target())).await;
    let mut collector = Collector::start();
    let directory = tempfile::tempdir().unwrap();
    let exporter = exporter(&peer.url())
        .shipped()
        .state(&directory.path().join("state.db"))
        .flag("--audit.poll-interval", "1s")
        // An hour of the service's, as its clock is the one by which entries grow old.
        .flag("--audit.reread-interval", "5s")
        .flag("--tickets.scan-interval", "5s")
        .flag("--metrics.zero-hold", "10s")
        .flag("--metrics.max-actors", &ACTORS.to_string())
        .otlp("grpc", &format!("http://{}", collector.address))
        .listening()
        .await;
    exporter.synced().await;
    let address = exporter.address().to_string();
    let interval = format!("{}s", SCRAPE.as_secs());
    let prometheus = Prometheus::start("prometheus3", &[&address], &interval).await;
    prometheus.shows("orgdata_up{loop=\"tickets\"}", 1.0).await;

    let begun = (Instant::now(), Timestamp::now());
    let mut is_there = true;
    while begun.0.elapsed() < length {
        let millis = begun.0.elapsed().as_millis() as u64 * SPEED;
        service.clock.store(millis, Ordering::Relaxed);
        // One hour in ten.
        let should = millis / HOUR % 10 != 9;
        if should != is_there {
            collector.be_there(should);
            is_there = should;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !is_there {
        collector.be_there(true);
    }
    let total = service.entries();
    exporter.settled(total - HISTORY).await;
    let sum = "sum(orgdata_audit_events_total)";
    prometheus.shows(sum, (total - HISTORY) as f64).await;

    // Every record came, and again only what was under way when the collector went.
    let mut came = std::mem::take(&mut *collector.sink.0.lock().unwrap());
    let requests = came.len() as u64;
    came.sort_unstable();
    came.dedup();
    assert!(came.iter().copied().eq(HISTORY..total), "each once");
    let again = requests - came.len() as u64;
    let outages = service.millis() / HOUR / 10 + 1;
    assert!(again <= outages * 512, "{again} records came again");

    // Seen by Prometheus, at its last scrape: increase() then has nothing to extrapolate.
    let newest = "max(timestamp(orgdata_audit_events_total))";
    let last = number(&prometheus.query(newest).await[0]["value"][1]);
    let window = begun.0.elapsed().as_secs() + 60;
    let mut truth: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for [kind, actor] in (HISTORY..total).map(labels) {
        let key = vec![format!("ACTIVITY_{kind:02}"), actor.to_string()];
        *truth.entry(key).or_default() += 1.0;
    }
    let increase = format!("increase(orgdata_audit_events_total[{window}s])");
    let names = ["activity_type", "actor"];
    let mut seen = prometheus
        .by_at(&names, &increase, &format!("{last:.3}"))
        .await;
    seen.values_mut().for_each(|value| *value = value.round());
    assert_eq!(seen, truth);
    let (hour, ids) = service.tickets();
    let mut tickets: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    for id in ids {
        let key = ticket(id, hour).map(str::to_owned).to_vec();
        *tickets.entry(key).or_default() += 1.0;
    }
    let labels = ["state", "ticket_type"];
    assert_eq!(prometheus.by(&labels, "orgdata_tickets > 0").await, tickets);

    let day = DAY / 1000 / SPEED;
    let days = 60 * minutes / day;
    let (events, series) = (total - HISTORY, truth.len());
    println!(
        "{days} days, {events} events, {series} series: each increase() is true; {again} records came again"
    );
    // What grows lifts the least value of each day; the largest ones scatter, and so may differ by more.
    let mut grown = Vec::new();
    for (name, metric, bounds) in [
        ("memory", "process_resident_memory_bytes", [1.05, 1.2]),
        ("state file", "orgdata_state_size_bytes", [1.05, 1.5]),
        ("open files", "process_open_fds", [1.05, 1.1]),
        ("series", SAMPLES, [1.01, 1.01]),
        ("backlog", "orgdata_otlp_backlog_records", [1.05, 2.0]),
    ] {
        for (what, bound) in ["min", "max"].into_iter().zip(bounds) {
            let of_day = format!("{what}_over_time({metric}[{day}s])");
            let mut values = Vec::new();
            for end in 1..=days {
                let end = begun.1.as_second() + (end * day).cast_signed();
                let value = prometheus.by_at(&[], &of_day, &end.to_string()).await;
                values.push(value[&vec![]]);
            }
            println!("{name}, {what} by day: {values:?}");
            // Everything is new on the first day.
            let values = values.get(1..).unwrap_or_default();
            let third = values.len() / 3;
            let (early, late) = (&values[..third], &values[values.len() - third..]);
            if third > 0 && median(late) > median(early) * bound {
                grown.push(format!("{name}, {what}: {early:?}, later {late:?}"));
            }
        }
    }
    assert!(grown.is_empty(), "{grown:?}");
}
