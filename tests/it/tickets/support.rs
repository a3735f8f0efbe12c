//! A listing that a script controls, and short ways to say what is expected of a snapshot.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::Client;
use orgdata_exporter::simulator::Simulator;
use orgdata_exporter::tickets::{Doubt, Group, ScanError, Scanner, Settings, Snapshot};
use prometheus_client::metrics::counter::Counter;

use crate::support::settings::in_process;

/// The service's clock in every test that does not set another.
pub(crate) const NOON: &str = "2026-03-10T12:00:00Z";

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
    /// It resets the connection.
    Reset,
    /// It does not answer in time.
    Silence,
    Status(u16),
    /// It is not available, and asks for a pause of so many seconds.
    Pause(u64),
}

type Answer = Result<Page, Failure>;

/// The body of a page, and the service's clock.
pub(crate) struct Page {
    body: String,
    time: Timestamp,
}

/// A client of a service that answers as a closure says, and the requests that it sent.
#[derive(Clone)]
pub(crate) struct Script {
    client: Client,
    state: Arc<Mutex<State>>,
}

struct State {
    answer: Box<dyn FnMut(Request) -> Answer + Send>,
    requests: Vec<Request>,
    /// The failure that the client's own next attempts meet, and their number.
    again: Option<(Failure, u32)>,
}

impl Failure {
    /// How often the client tries again by itself.
    fn retries(self) -> u32 {
        match self {
            Self::Reset | Self::Status(429 | 500..) => 3,
            _ => 0,
        }
    }

    async fn response(self) -> Option<http::Response<reqwest::Body>> {
        let response = http::Response::builder();
        let response = match self {
            Self::Reset => return None,
            Self::Silence => std::future::pending().await,
            Self::Status(status) => response.status(status),
            Self::Pause(seconds) => response.status(503).header("retry-after", seconds),
        };
        Some(response.body("".into()).unwrap())
    }
}

impl Script {
    pub(crate) fn new(answer: impl FnMut(Request) -> Answer + Send + 'static) -> Self {
        let state = Arc::new(Mutex::new(State {
            answer: Box::new(answer),
            requests: Vec::new(),
            again: None,
        }));
        let shared = Arc::clone(&state);
        let client = in_process(Duration::from_secs(30), move |request| {
            let answer = shared.lock().unwrap().answer(request.url());
            async move {
                tokio::task::yield_now().await;
                match answer {
                    Ok(page) => {
                        let date = page.time.strftime("%a, %d %b %Y %H:%M:%S GMT");
                        let response = http::Response::builder().header("date", date.to_string());
                        response.body(page.body.into()).ok()
                    }
                    Err(failure) => failure.response().await,
                }
            }
        });
        Self { client, state }
    }

    /// A service as the specification describes it.
    pub(crate) fn listing(rows: Vec<String>) -> Self {
        Self::new(move |request| Ok(slice(&rows, request)))
    }

    /// The same, of which each page but the first has to wait for a minute.
    pub(crate) fn slow(rows: Vec<String>) -> Self {
        let mut paused_at = 0;
        Self::new(move |request| {
            let is_first = std::mem::replace(&mut paused_at, request.offset) < request.offset;
            match is_first {
                true => Err(Failure::Status(429)),
                false => Ok(slice(&rows, request)),
            }
        })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }
}

impl Deref for Script {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl State {
    fn answer(&mut self, url: &url::Url) -> Answer {
        if let Some((failure, left)) = self.again.take_if(|(_, left)| *left > 0) {
            self.again = Some((failure, left - 1));
            return Err(failure);
        }
        let pairs: BTreeMap<_, _> = url.query_pairs().collect();
        let request = Request {
            number: self.requests.len(),
            limit: pairs["limit"].parse().unwrap(),
            offset: pairs["offset"].parse().unwrap(),
        };
        self.requests.push(request);
        let answer = (self.answer)(request);
        let failure = answer.as_ref().err();
        self.again = failure.map(|failure| (*failure, failure.retries()));
        answer
    }
}

/// The rows of a page.
pub(crate) fn rows_of(rows: &[String], request: Request) -> &[String] {
    let from = (request.offset as usize).min(rows.len());
    &rows[from..(from + request.limit as usize).min(rows.len())]
}

/// The page that the specification asks for.
pub(crate) fn slice(rows: &[String], request: Request) -> Page {
    let total = rows.len() as u64;
    page(rows_of(rows, request), request, Some(total))
}

/// A page of these rows that echoes the request.
pub(crate) fn page(rows: &[String], request: Request, total: Option<u64>) -> Page {
    page_at(NOON, rows, request, total)
}

/// The same at another time of the service's clock.
pub(crate) fn page_at(
    time: &str,
    rows: &[String],
    Request { limit, offset, .. }: Request,
    total: Option<u64>,
) -> Page {
    let total = total.map_or(String::new(), |total| format!(r#","totalCount":{total}"#));
    let rows = rows.join(",");
    Page {
        body: format!(r#"{{"items":[{rows}],"limit":{limit},"offset":{offset}{total}}}"#),
        time: time.parse().unwrap(),
    }
}

pub(crate) fn settings(page_size: u32) -> Settings {
    Settings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: PRIORITIES.map(str::to_owned).to_vec(),
        page_size,
    }
}

pub(crate) fn bug(id: u64) -> String {
    format!(r#"{{"id":{id},"type":"BUG","state":"OPEN"}}"#)
}

pub(crate) fn bugs(ids: std::ops::Range<u64>) -> Vec<String> {
    ids.map(bug).collect()
}

/// What a round returns.
pub(crate) type Scanned = Result<(Arc<Snapshot>, Option<Doubt>), ScanError>;

/// One round; also how often the scan was repeated.
pub(crate) async fn round(script: &Script, page_size: u32) -> (Scanned, u64) {
    let retries = Counter::default();
    let mut scanner = Scanner::new(settings(page_size), retries.clone());
    let result = scanner.round(script).await;
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

/// The sum of the amounts of all open tickets.
pub(crate) fn open_amount(snapshot: &Snapshot) -> f64 {
    snapshot.open.values().map(Group::deal_amount).sum()
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

/// Asserts that these are the numbers of a family, such as `open`, that are not 0.
#[track_caller]
pub(crate) fn assert_shows(snapshot: &Snapshot, family: &str, expected: &[(&str, u64)]) {
    let numbers = numbers(snapshot).into_iter();
    let of_family = numbers.filter_map(|(name, number)| {
        let label = name.strip_prefix(family)?.strip_prefix(' ')?.to_owned();
        Some((label, number as u64))
    });
    let expected = expected.iter().map(|(label, n)| ((*label).to_owned(), *n));
    assert_eq!(of_family.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}
