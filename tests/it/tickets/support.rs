//! A listing that a script controls, and short ways to say what is expected of a snapshot.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use orgdata_exporter::api::{ApiError, TicketPage};
use orgdata_exporter::simulator::{TicketGroup, TicketSums, TicketTruth};
use orgdata_exporter::tickets::{Group, PageSource, ScanError, Scanner, Settings, Snapshot};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

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
    /// Requests that wait for their answer, and the most there have been.
    waiting: usize,
    most: usize,
}

// === impl Script ===

impl Script {
    pub(crate) fn new(
        answer: impl FnMut(Request) -> Result<TicketPage, ApiError> + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            answer: Box::new(answer),
            requests: Vec::new(),
            waiting: 0,
            most: 0,
        })))
    }

    /// A service as the specification describes it.
    pub(crate) fn listing(rows: Vec<String>) -> Self {
        Self::new(move |request| Ok(slice(&rows, request)))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().requests.clone()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().most
    }
}

impl PageSource for Script {
    fn page(
        &self,
        limit: u32,
        offset: u64,
    ) -> impl Future<Output = Result<TicketPage, ApiError>> + Send {
        let mut state = self.0.lock().unwrap();
        let request = Request {
            number: state.requests.len(),
            limit,
            offset,
        };
        state.requests.push(request);
        let answer = (state.answer)(request);
        state.waiting += 1;
        state.most = state.most.max(state.waiting);
        drop(state);
        async move {
            tokio::task::yield_now().await;
            self.0.lock().unwrap().waiting -= 1;
            answer
        }
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
    TicketPage::parse(body, time.parse::<Timestamp>().unwrap())
        .unwrap()
        .0
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
    snapshot
        .by_state()
        .map(|((state, kind), group)| (format!("{state}/{kind}"), group.tickets))
        .collect()
}

/// What is not 0 among the open tickets, by `type/priority`.
pub(crate) fn open(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    snapshot
        .open()
        .filter(|(_, group)| group.tickets > 0)
        .map(|((kind, priority), group)| (format!("{kind}/{priority}"), group.tickets))
        .collect()
}

pub(crate) fn map<const N: usize>(pairs: [(&str, u64); N]) -> BTreeMap<String, u64> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Every number of a snapshot is what the simulator knows; states, types and priorities without a ticket apart.
pub(crate) fn assert_true(snapshot: &Snapshot, truth: &TicketTruth) {
    let label = |text: &str| {
        if text == "none" {
            "unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    let sums = |key: &dyn Fn(&TicketGroup) -> Option<(String, String)>| {
        let mut all: BTreeMap<(String, String), (u64, f64)> = BTreeMap::new();
        for (key, sums) in truth
            .groups
            .iter()
            .filter_map(|(group, sums)| Some((key(group)?, sums)))
        {
            let sum = all.entry(key).or_default();
            (sum.0, sum.1) = (sum.0 + sums.tickets, sum.1 + sums.cents as f64);
        }
        all
    };
    let shown = |groups: &mut dyn Iterator<Item = ((&str, &str), Group)>| {
        let all = groups.filter(|(_, group)| group.tickets > 0);
        all.map(|((a, b), group)| {
            (
                (a.to_owned(), b.to_owned()),
                (group.tickets, (group.deal_amount.as_f64() * 100.0).round()),
            )
        })
        .collect()
    };
    let is_open = |group: &TicketGroup| group.state == "OPEN";
    assert_eq!(snapshot.tickets, truth.total);
    let by_state: BTreeMap<_, _> = shown(&mut snapshot.by_state());
    assert_eq!(
        by_state,
        sums(&|group| Some((label(&group.state), label(&group.ticket_type))))
    );
    let open: BTreeMap<_, _> = shown(&mut snapshot.open());
    assert_eq!(
        open,
        sums(&|group| is_open(group).then(|| (label(&group.ticket_type), group.priority.clone())))
    );
    let mut overdue: BTreeMap<String, u64> = BTreeMap::new();
    let mut oldest: BTreeMap<String, f64> = BTreeMap::new();
    for (
        group,
        TicketSums {
            overdue: late,
            oldest_created_ms,
            ..
        },
    ) in truth.groups.iter().filter(|(group, _)| is_open(group))
    {
        *overdue.entry(label(&group.ticket_type)).or_default() += late;
        if let Some(created) = oldest_created_ms.map(|created| created as f64 / 1000.0) {
            oldest
                .entry(label(&group.ticket_type))
                .and_modify(|oldest| *oldest = oldest.min(created))
                .or_insert(created);
        }
    }
    overdue.retain(|_, tickets| *tickets > 0);
    assert_eq!(nonzero(snapshot.overdue()), overdue);
    assert_eq!(
        snapshot
            .oldest_created()
            .map(|(kind, created)| (kind.to_owned(), created))
            .collect::<BTreeMap<_, _>>(),
        oldest
    );
    assert_eq!(nonzero(snapshot.deals()), truth.open_deals);
}

fn nonzero<'a>(series: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    series
        .filter(|(_, value)| *value > 0)
        .map(|(label, value)| (label.to_owned(), value))
        .collect()
}

/// The samples of a scrape whose names begin with one of the tickets' names, without descriptions.
pub(crate) fn scrape(registry: &Registry) -> Vec<String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
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
