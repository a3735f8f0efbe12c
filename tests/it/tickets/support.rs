//! A listing that a script controls, and short ways to say what is expected of a snapshot.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::{ApiError, TicketPage};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::metrics::tickets::{Label, TicketCount, TicketSource as _};
use orgdata_exporter::simulator::TicketTruth;
use orgdata_exporter::tickets::{PageSource, ScanError, Scanner, Settings, Snapshot};
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

/// A page source that answers as a closure says, and remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Script(Arc<Mutex<State>>);

struct State {
    answer: Answer,
    requests: Vec<Request>,
}

// === impl Script ===

impl Script {
    pub(crate) fn new(
        answer: impl FnMut(Request) -> Result<TicketPage, ApiError> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            answer: Box::new(answer),
            requests: Vec::new(),
        })))
    }

    /// A service as the specification describes it.
    pub(crate) fn listing(rows: Vec<String>) -> Self {
        Self::new(move |request| Ok(slice(&rows, request)))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().requests.clone()
    }
}

impl PageSource for Script {
    async fn page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        let answer = {
            let mut state = self.0.lock().unwrap();
            let request = Request {
                number: state.requests.len(),
                limit,
                offset,
            };
            state.requests.push(request);
            (state.answer)(request)
        };
        tokio::task::yield_now().await;
        answer
    }
}

/// The page that the specification asks for.
pub(crate) fn slice(rows: &[String], request: Request) -> TicketPage {
    let from = usize::try_from(request.offset).unwrap().min(rows.len());
    let to = (from + request.limit as usize).min(rows.len());
    page(&rows[from..to], request, Some(rows.len() as u64))
}

/// A page of these rows that echoes the request.
pub(crate) fn page(rows: &[String], request: Request, total: Option<u64>) -> TicketPage {
    page_at(NOON, rows, request, total)
}

/// The same at another time of the service's clock.
pub(crate) fn page_at(
    time: &str,
    rows: &[String],
    request: Request,
    total: Option<u64>,
) -> TicketPage {
    let total = total.map_or(String::new(), |total| format!(r#","totalCount":{total}"#));
    let body = format!(
        r#"{{"items":[{}],"limit":{},"offset":{}{total}}}"#,
        rows.join(","),
        request.limit,
        request.offset
    );
    TicketPage::parse(body, time.parse::<Timestamp>().ok()).unwrap()
}

pub(crate) fn settings(page_size: u32) -> Settings {
    Settings {
        scan_interval: Duration::from_secs(60),
        max_age: Duration::from_secs(900),
        open_states: vec!["OPEN".to_owned()],
        priorities: ["BLOCKER", "HIGH", "MEDIUM", "LOW"]
            .map(str::to_owned)
            .to_vec(),
        page_size,
    }
}

/// An open bug.
pub(crate) fn bug(id: u64) -> String {
    format!(r#"{{"id":{id},"type":"BUG","state":"OPEN"}}"#)
}

pub(crate) fn bugs(ids: std::ops::Range<u64>) -> Vec<String> {
    ids.map(bug).collect()
}

/// One round; also how often the scan was repeated.
pub(crate) async fn round(
    script: &Script,
    page_size: u32,
) -> (Result<Arc<Snapshot>, ScanError>, u64) {
    let retries = Counter::default();
    let mut scanner = Scanner::new(settings(page_size), retries.clone());
    let result = scanner.round(script).await;
    (result, retries.get())
}

/// The snapshot of rows that do not move.
pub(crate) async fn snapshot(rows: &[&str]) -> Arc<Snapshot> {
    let script = Script::listing(rows.iter().map(|row| (*row).to_owned()).collect());
    round(&script, 100).await.0.unwrap()
}

/// Tickets by `state/type`.
pub(crate) fn by_state(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let groups = snapshot.series().by_state.into_iter();
    groups
        .map(|([state, kind], group)| (format!("{state}/{kind}"), group.tickets))
        .collect()
}

/// What is not 0 among the open tickets, by `type/priority`.
pub(crate) fn open(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let groups = snapshot.series().open.into_iter();
    groups
        .filter(|(_, group)| group.tickets > 0)
        .map(|([kind, priority], group)| (format!("{kind}/{priority}"), group.tickets))
        .collect()
}

pub(crate) fn map<const N: usize>(pairs: [(&str, u64); N]) -> BTreeMap<String, u64> {
    let pairs = pairs.into_iter();
    pairs.map(|(key, value)| (key.to_owned(), value)).collect()
}

pub(crate) fn overdue(snapshot: &Snapshot) -> u64 {
    snapshot.series().overdue_total()
}

/// Every number of a snapshot is what the simulator knows; states, types and priorities without a ticket are left out.
pub(crate) fn assert_true(snapshot: &Snapshot, truth: &TicketTruth) {
    let series = snapshot.series();
    let label = |text: &str| if text == "none" { "unknown" } else { text }.to_owned();
    let shown = |groups: &[([Label; 2], TicketCount)]| -> BTreeMap<_, _> {
        let groups = groups.iter().filter(|(_, group)| group.tickets > 0);
        groups
            .map(|([a, b], group)| {
                let cents = (group.deal_amount * 100.0).round();
                ((a.to_string(), b.to_string()), (group.tickets, cents))
            })
            .collect()
    };
    let mut by_state: BTreeMap<(String, String), (u64, f64)> = BTreeMap::new();
    let mut open = by_state.clone();
    let mut overdue: BTreeMap<String, u64> = BTreeMap::new();
    let mut oldest: BTreeMap<String, i64> = BTreeMap::new();
    for (group, sums) in &truth.groups {
        let kind = label(&group.ticket_type);
        let add = |groups: &mut BTreeMap<_, (u64, f64)>, key| {
            let sum = groups.entry(key).or_default();
            *sum = (sum.0 + sums.tickets, sum.1 + sums.cents as f64);
        };
        add(&mut by_state, (label(&group.state), kind.clone()));
        if group.state == "OPEN" {
            add(&mut open, (kind.clone(), group.priority.clone()));
            *overdue.entry(kind.clone()).or_default() += sums.overdue;
            if let Some(created) = sums.oldest_created_ms {
                let oldest = oldest.entry(kind).or_insert(created);
                *oldest = created.min(*oldest);
            }
        }
    }
    overdue.retain(|_, tickets| *tickets > 0);
    assert_eq!(series.tickets, truth.total);
    assert_eq!(shown(&series.by_state), by_state);
    assert_eq!(shown(&series.open), open);
    assert_eq!(nonzero(&series.overdue), overdue);
    assert_eq!(nonzero(&series.deals), truth.open_deals);
    let created = series.oldest_created.iter();
    let created: BTreeMap<_, _> = created
        .map(|([kind], at)| (kind.to_string(), at.as_millisecond()))
        .collect();
    assert_eq!(created, oldest);
}

pub(crate) fn nonzero(series: &[([Label; 1], u64)]) -> BTreeMap<String, u64> {
    let series = series.iter().filter(|(_, value)| *value > 0);
    series
        .map(|([label], value)| (label.to_string(), *value))
        .collect()
}

/// The ticket samples of a scrape.
pub(crate) fn scrape(metrics: &Metrics) -> Vec<String> {
    let text = Format::OpenMetrics.encode(metrics.registry(), 0).unwrap();
    let names = [
        "orgdata_tickets",
        "orgdata_open_tickets",
        "orgdata_deals_with",
    ];
    text.lines()
        .filter(|line| names.iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect()
}
