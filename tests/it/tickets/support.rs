//! A listing that a script controls, and short ways to say what is expected of a snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::Client;
use orgdata_exporter::metrics::tickets::Snapshot;
use orgdata_exporter::simulator::Simulator;
use orgdata_exporter::tickets::{Doubt, ScanError, ScanSettings, Scanner};
use prometheus_client::metrics::counter::Counter;

use crate::support::settings::in_process;

/// The service's clock.
const NOON: &str = "Tue, 10 Mar 2026 12:00:00 GMT";

/// Priorities of deals, highest first.
const PRIORITIES: [&str; 4] = ["BLOCKER", "HIGH", "MEDIUM", "LOW"];

/// One request, as a script sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Counted from 0.
    pub(crate) number: usize,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
}

/// What the service does instead of returning a page.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// It does not answer in time.
    Silence,
    Status(u16),
    /// It is not available, and asks for a pause of so many seconds.
    Pause(u64),
}

/// A client of a service that answers as a closure says, with the body of a page, and the requests that it sent.
pub(crate) struct Script {
    pub(crate) client: Client,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Failure {
    async fn response(self) -> http::Response<reqwest::Body> {
        let response = http::Response::builder();
        let response = match self {
            Self::Silence => std::future::pending().await,
            Self::Status(status) => response.status(status),
            Self::Pause(seconds) => response.status(503).header("retry-after", seconds),
        };
        response.body("".into()).unwrap()
    }
}

impl Script {
    pub(crate) fn new(
        answer: impl FnMut(Request) -> Result<String, Failure> + Send + 'static,
    ) -> Self {
        Self::paced(Duration::ZERO, answer)
    }

    fn paced(
        pace: Duration,
        answer: impl FnMut(Request) -> Result<String, Failure> + Send + 'static,
    ) -> Self {
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (answer, log) = (Mutex::new(answer), requests.clone());
        let client = in_process(Duration::from_secs(30), move |request| {
            let pairs: BTreeMap<_, _> = request.url().query_pairs().collect();
            let mut log = log.lock().unwrap();
            let request = Request {
                number: log.len(),
                limit: pairs["limit"].parse().unwrap(),
                offset: pairs["offset"].parse().unwrap(),
            };
            log.push(request);
            let answer = (answer.lock().unwrap())(request);
            async move {
                tokio::task::yield_now().await;
                tokio::time::sleep(pace).await;
                let page = match answer {
                    Ok(page) => http::Response::builder()
                        .header("date", NOON)
                        .body(page.into()),
                    Err(failure) => Ok(failure.response().await),
                };
                page.ok()
            }
        });
        Self { client, requests }
    }

    /// A service as the specification describes it.
    pub(crate) fn listing(rows: Vec<String>) -> Self {
        Self::new(move |request| Ok(slice(&rows, request)))
    }

    /// The same, of which each page takes nearly as long as it may.
    pub(crate) fn slow(rows: Vec<String>) -> Self {
        let pace = Duration::from_secs(29);
        Self::paced(pace, move |request| Ok(slice(&rows, request)))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// The rows of a page.
pub(crate) fn rows_of(rows: &[String], request: Request) -> &[String] {
    let from = (request.offset as usize).min(rows.len());
    &rows[from..(from + request.limit as usize).min(rows.len())]
}

/// The page that the specification asks for.
pub(crate) fn slice(rows: &[String], request: Request) -> String {
    let total = rows.len() as u64;
    page(rows_of(rows, request), request, Some(total))
}

/// A page of these rows that echoes the request.
pub(crate) fn page(rows: &[String], request: Request, total: Option<u64>) -> String {
    let Request { limit, offset, .. } = request;
    let total = total.map_or(String::new(), |total| format!(r#","totalCount":{total}"#));
    let rows = rows.join(",");
    format!(r#"{{"items":[{rows}],"limit":{limit},"offset":{offset}{total}}}"#)
}

pub(crate) fn settings(page_size: u32) -> ScanSettings {
    ScanSettings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: PRIORITIES.map(str::to_owned).to_vec(),
        page_size,
    }
}

pub(crate) fn bugs(ids: std::ops::Range<u64>) -> Vec<String> {
    let bug = |id| format!(r#"{{"id":{id},"type":"BUG","state":"OPEN"}}"#);
    ids.map(bug).collect()
}

/// What a round returns.
pub(crate) type Scanned = Result<(Arc<Snapshot>, Option<Doubt>), ScanError>;

/// One round; also how often the scan was repeated.
pub(crate) async fn round(script: &Script, page_size: u32) -> (Scanned, u64) {
    let retries = Counter::default();
    let mut scanner = Scanner::new(settings(page_size), retries.clone());
    let result = scanner.round(&script.client).await;
    (result, retries.get())
}

/// The snapshot of rows that do not move.
pub(crate) async fn snapshot<T: ToString>(rows: &[T]) -> Arc<Snapshot> {
    let script = Script::listing(rows.iter().map(ToString::to_string).collect());
    round(&script, 1000).await.0.unwrap().0
}

/// Every number of a snapshot that is not 0, as in `open BUG/HIGH`; amounts are in cents and times in milliseconds.
fn numbers(snapshot: &Snapshot) -> BTreeMap<String, f64> {
    let mut numbers = BTreeMap::from([("tickets".to_owned(), snapshot.tickets as f64)]);
    for (name, groups) in [("state", &snapshot.by_state), ("open", &snapshot.open)] {
        for ([a, b], group) in groups {
            let cents = (group.deal_amount() * 100.0).round();
            numbers.insert(format!("{name} {a}/{b}"), group.tickets as f64);
            numbers.insert(format!("{name}-cents {a}/{b}"), cents);
        }
    }
    for (priority, deals) in &snapshot.deals {
        numbers.insert(format!("deals {priority}"), *deals as f64);
    }
    for (kind, times) in &snapshot.times {
        numbers.insert(format!("overdue {kind}"), times.overdue as f64);
        if let Some(at) = times.oldest_created {
            numbers.insert(format!("oldest {kind}"), at.as_millisecond() as f64);
        }
    }
    numbers.retain(|_, number| *number != 0.0);
    numbers
}

/// Asserts that every number of a snapshot is what the simulator's tickets add up to.
pub(crate) fn assert_true(snapshot: &Snapshot, sim: &Simulator) {
    let (tickets, now) = (sim.tickets(), sim.now());
    let mut wanted = BTreeMap::from([("tickets".to_owned(), tickets.len() as f64)]);
    let mut add = |name: String, number: f64| *wanted.entry(name).or_default() += number;
    let (mut oldest, mut deals) = (BTreeMap::new(), BTreeMap::new());
    for ticket in &tickets {
        let text = |field: &str| ticket[field].as_str().unwrap_or("unknown").to_owned();
        let (state, kind) = (text("state"), text("type"));
        let cents = (ticket["dealAmountSum"].as_f64().unwrap_or(0.0) * 100.0).round();
        add(format!("state {state}/{kind}"), 1.0);
        add(format!("state-cents {state}/{kind}"), cents);
        if state != "OPEN" {
            continue;
        }
        let links = ticket["linkedDeals"].as_array().into_iter().flatten();
        let ranks = links.map(|link| {
            let priority = &link["priority"];
            let rank = PRIORITIES.iter().position(|known| priority == known);
            let rank = rank.unwrap();
            let best = deals.entry(link["id"].as_u64()).or_insert(rank);
            *best = rank.min(*best);
            rank
        });
        let priority = ranks.min().map_or("none", |rank| PRIORITIES[rank]);
        add(format!("open {kind}/{priority}"), 1.0);
        add(format!("open-cents {kind}/{priority}"), cents);
        let due = text("targetDueDate").parse::<Timestamp>();
        add(
            format!("overdue {kind}"),
            f64::from(due.is_ok_and(|due| due < now)),
        );
        let created: Timestamp = text("createdAt").parse().unwrap();
        let first = oldest.entry(kind).or_insert(created);
        *first = created.min(*first);
    }
    for rank in deals.into_values() {
        add(format!("deals {}", PRIORITIES[rank]), 1.0);
    }
    for (kind, created) in oldest {
        add(format!("oldest {kind}"), created.as_millisecond() as f64);
    }
    wanted.retain(|_, number| *number != 0.0);
    assert_eq!(numbers(snapshot), wanted);
}
