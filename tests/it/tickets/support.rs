//! A listing that a script controls, and short ways to say what is expected of a snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orgdata_api::{ApiError, TicketPage};
use orgdata_exporter::metrics::snapshot::Group;
use orgdata_exporter::simulator::TicketTruth;
use orgdata_exporter::tickets::{Doubt, PageSource, ScanError, Scanner, Settings, Snapshot};
use prometheus_client::metrics::counter::Counter;

/// The service's clock in every test that does not set another.
pub(crate) const NOON: &str = "2026-03-10T12:00:00Z";

/// One request, as a script sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Counted from 0.
    pub(crate) number: usize,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
}

type Answer = Box<dyn FnMut(Request) -> Result<TicketPage, ApiError> + Send>;

/// A page source that answers as a closure says, and remembers the requests.
#[derive(Clone)]
pub(crate) struct Script(Arc<Mutex<(Answer, Vec<Request>)>>);

impl Script {
    pub(crate) fn new(
        answer: impl FnMut(Request) -> Result<TicketPage, ApiError> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new((Box::new(answer), Vec::new()))))
    }

    /// A service as the specification describes it.
    pub(crate) fn listing(rows: Vec<String>) -> Self {
        Self::new(move |request| Ok(slice(&rows, request)))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().1.clone()
    }
}

impl PageSource for Script {
    async fn page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        tokio::task::yield_now().await;
        let (answer, requests) = &mut *self.0.lock().unwrap();
        let number = requests.len();
        requests.push(Request {
            number,
            limit,
            offset,
        });
        answer(requests[number])
    }
}

/// The rows of a page.
pub(crate) fn rows_of(rows: &[String], request: Request) -> &[String] {
    let from = (request.offset as usize).min(rows.len());
    &rows[from..(from + request.limit as usize).min(rows.len())]
}

/// The page that the specification asks for.
pub(crate) fn slice(rows: &[String], request: Request) -> TicketPage {
    let total = rows.len() as u64;
    page(rows_of(rows, request), request, Some(total))
}

/// A page of these rows that echoes the request.
pub(crate) fn page(rows: &[String], request: Request, total: Option<u64>) -> TicketPage {
    page_at(NOON, rows, request, total)
}

/// The same at another time of the service's clock.
pub(crate) fn page_at(
    time: &str,
    rows: &[String],
    Request { limit, offset, .. }: Request,
    total: Option<u64>,
) -> TicketPage {
    let total = total.map_or(String::new(), |total| format!(r#","totalCount":{total}"#));
    let rows = rows.join(",");
    let body = format!(r#"{{"items":[{rows}],"limit":{limit},"offset":{offset}{total}}}"#);
    TicketPage::parse(body, time.parse().ok()).unwrap()
}

pub(crate) fn settings(page_size: u32) -> Settings {
    let priorities = ["BLOCKER", "HIGH", "MEDIUM", "LOW"];
    Settings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: priorities.map(str::to_owned).to_vec(),
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
    round(&script, 100).await.0.unwrap().0
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
    for (priority, count) in &snapshot.deals {
        numbers.insert(format!("deals {priority}"), *count as f64);
    }
    for (kind, times) in &snapshot.times {
        let overdue = snapshot.passed(&times.overdue);
        numbers.insert(format!("overdue {kind}"), overdue as f64);
        if let Some(at) = times.oldest_created {
            numbers.insert(format!("oldest {kind}"), at.as_millisecond() as f64);
        }
    }
    numbers.retain(|_, number| *number != 0.0);
    numbers
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

/// The sum of the amounts of all open tickets.
pub(crate) fn open_amount(snapshot: &Snapshot) -> f64 {
    snapshot.open.values().map(Group::deal_amount).sum()
}

/// Asserts that every number of a snapshot is what the simulator knows.
pub(crate) fn assert_true(snapshot: &Snapshot, truth: &TicketTruth) {
    let label = |text: &str| if text == "none" { "unknown" } else { text }.to_owned();
    let mut wanted = BTreeMap::from([("tickets".to_owned(), truth.total as f64)]);
    let mut add = |name: String, number: f64| *wanted.entry(name).or_default() += number;
    let mut oldest: BTreeMap<String, i64> = BTreeMap::new();
    for (group, sums) in &truth.groups {
        let (state, kind) = (label(&group.state), label(&group.ticket_type));
        let (tickets, cents) = (sums.tickets as f64, sums.cents as f64);
        add(format!("state {state}/{kind}"), tickets);
        add(format!("state-cents {state}/{kind}"), cents);
        if group.state == "OPEN" {
            let priority = &group.priority;
            add(format!("open {kind}/{priority}"), tickets);
            add(format!("open-cents {kind}/{priority}"), cents);
            add(format!("overdue {kind}"), sums.overdue as f64);
            if let Some(created) = sums.oldest_created_ms {
                let oldest = oldest.entry(kind).or_insert(created);
                *oldest = created.min(*oldest);
            }
        }
    }
    for (priority, deals) in &truth.open_deals {
        add(format!("deals {priority}"), *deals as f64);
    }
    for (kind, created) in oldest {
        add(format!("oldest {kind}"), created as f64);
    }
    wanted.retain(|_, number| *number != 0.0);
    assert_eq!(numbers(snapshot), wanted);
}
