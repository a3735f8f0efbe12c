//! The scan beside a listing that changes, fails and has another reading of the specification: random tickets, random steps before any request.
//!
//! [`Scanner`] says what a snapshot without a doubt promises. Only what no client can see is left out: a listing that is put into another order,
//! and loses a ticket, and gains one, all during one attempt; and a service that keeps a page back while its `totalCount` is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use orgdata_api::FailureReason;
use orgdata_exporter::metrics::tickets::{Flow, PERCENTILES, Snapshot, WINDOWS};
use orgdata_exporter::simulator::{
    Config as Organization, Fault, FaultKind, Fields, Readings, Simulator, TotalCount,
};
use orgdata_exporter::tickets::{Doubt, MAX_ATTEMPTS, ScanError, Scanner};
use prometheus_client::metrics::counter::Counter;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner};
use serde_json::Value;

use super::support::{Scanned, assert_true, settings};
use crate::support::settings::simulated;

/// Amounts tell tickets apart, a bit each, and a double holds so many.
const MOST: u64 = 48;

const DAY: i64 = 86_400_000;

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    tickets: u64,
    page_size: u32,
    readings: Readings,
    /// One scan each: what happens before its n-th request.
    scans: Vec<Vec<(u64, Step)>>,
}

#[derive(Clone, Debug)]
enum Step {
    Create,
    Delete(Index),
    /// Both at once: the count stays.
    Exchange(Index),
    /// Closed now.
    Close(Index),
    /// Open again, with the time at which it was closed or without.
    Reopen(Index, bool),
    /// A field with a time, and how many milliseconds ago it is.
    Date(Index, &'static str, i64),
    Shuffle(u64),
    Hours(u64),
    /// The request fails.
    Fail,
    /// The page has no rows.
    Empty,
}

/// The listing, and what the test knows of the present attempt.
struct Model {
    sim: Arc<Simulator>,
    /// The id before the first.
    base: u64,
    last: u64,
    steps: Vec<(u64, Step)>,
    requests: u64,
    /// There all through the attempt.
    steady: BTreeSet<u64>,
    /// There at some time of it.
    ever: BTreeSet<u64>,
    created: bool,
    deleted: bool,
    shuffled: bool,
    /// Something happened since the scan began.
    touched: bool,
    /// A page was kept back since.
    emptied: bool,
    /// A request failed since.
    failed: bool,
}

impl Model {
    fn new(case: &Case) -> Self {
        let base = case.seed % 1_000_000 * 64;
        let sim = Simulator::new(Organization::quiet());
        sim.set_clock("2026-01-01T00:00:00Z".parse().unwrap());
        sim.change_readings(|readings| *readings = case.readings);
        let mut model = Self {
            sim,
            base,
            last: base,
            steps: Vec::new(),
            requests: 0,
            steady: BTreeSet::new(),
            ever: BTreeSet::new(),
            created: false,
            deleted: false,
            shuffled: false,
            touched: false,
            emptied: false,
            failed: false,
        };
        for _ in 0..case.tickets {
            model.create();
            model.sim.advance(Duration::from_secs(86_400 * 3 + 3600));
        }
        model
    }

    fn begin_scan(&mut self, steps: Vec<(u64, Step)>) {
        self.steps = steps;
        self.requests = 0;
        (self.touched, self.emptied, self.failed) = (false, false, false);
    }

    /// The world goes on before a request. Returns what goes wrong with it.
    fn before(&mut self, offset: u64) -> Option<Fault> {
        let number = self.requests;
        self.requests += 1;
        let due = |(at, _): &mut (u64, Step)| *at == number;
        let due: Vec<(u64, Step)> = self.steps.extract_if(.., due).collect();
        for (_, step) in &due {
            self.touched = true;
            self.step(step);
        }
        if offset == 0 {
            self.steady = self.sim.ticket_ids().into_iter().collect();
            self.ever = self.steady.clone();
            (self.created, self.deleted, self.shuffled) = (false, false, false);
        }
        if due.iter().any(|(_, step)| matches!(step, Step::Fail)) {
            self.failed = true;
            return Some(Fault::status(StatusCode::UNAUTHORIZED));
        }
        let is_empty = due.iter().any(|(_, step)| matches!(step, Step::Empty));
        is_empty.then(|| Fault::new(FaultKind::EmptyPage))
    }

    fn step(&mut self, step: &Step) {
        let ids = self.sim.ticket_ids();
        let text = |ago: i64| {
            let at = self.sim.now().as_millisecond() - ago;
            format!("{:.3}", Timestamp::from_millisecond(at).unwrap())
        };
        let change = |index: &Index, fields: Fields| {
            if !ids.is_empty() {
                self.sim.change_ticket(*index.get(&ids), fields).unwrap();
            }
        };
        match step {
            Step::Create => self.create(),
            Step::Delete(index) if !ids.is_empty() => {
                let id = index.get(&ids);
                self.sim.remove_ticket(*id).unwrap();
                self.steady.remove(id);
                self.deleted = true;
            }
            Step::Exchange(index) => {
                self.step(&Step::Delete(*index));
                self.create();
            }
            Step::Close(index) => {
                let closed = Fields::new().with("state", "CLOSED");
                change(index, closed.with("closedAt", text(0)));
            }
            Step::Reopen(index, keeps) => {
                let open = Fields::new().with("state", "OPEN");
                let cleared = open.clone().with("closedAt", Value::Null);
                change(index, if *keeps { open } else { cleared });
            }
            Step::Date(index, field, ago) => change(index, Fields::new().with(field, text(*ago))),
            Step::Shuffle(seed) => {
                self.sim.shuffle_tickets(*seed);
                self.shuffled = true;
            }
            Step::Hours(hours) => self.sim.advance(Duration::from_secs(3600 * hours)),
            Step::Empty => self.emptied = true,
            Step::Delete(_) | Step::Fail => {}
        }
    }

    /// Adds a ticket whose amount is the power of two that its id says.
    fn create(&mut self) {
        let bit = self.last - self.base;
        if bit < MOST {
            self.last += 1;
            let fields = Fields::new().with("id", self.last);
            let fields = fields.with("dealAmountSum", 1_u64 << bit);
            self.ever.insert(self.sim.add_ticket(fields).unwrap());
            self.created = true;
        }
    }

    /// Returns the tickets of a snapshot.
    fn ids(&self, snapshot: &Snapshot) -> BTreeSet<u64> {
        let groups = snapshot.by_state.values();
        let sum: f64 = groups.map(|group| group.deal_amount()).sum();
        let bits = (0..MOST).filter(|bit| (sum as u64) & (1 << bit) != 0);
        bits.map(|bit| self.base + 1 + bit).collect()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let at = prop_oneof![3 => 0_u64..6, 1 => 6_u64..20];
    let scan = prop::collection::vec((at, step()), 0..4);
    let page_size = prop_oneof![4 => 2_u32..9, 1 => Just(1), 1 => Just(1000)];
    let scans = prop::collection::vec(scan, 1..4);
    let parts = (any::<u64>(), 0_u64..25, page_size, readings(), scans);
    parts.prop_map(|(seed, tickets, page_size, readings, scans)| Case {
        seed,
        tickets,
        page_size,
        readings,
        scans,
    })
}

fn readings() -> impl Strategy<Value = Readings> {
    let total = prop_oneof![
        8 => Just(TotalCount::Right),
        1 => Just(TotalCount::Missing),
        1 => Just(TotalCount::PageLength),
        1 => (1_i64..30).prop_map(TotalCount::Off),
        1 => (-30_i64..0).prop_map(TotalCount::Off),
    ];
    let cap = prop_oneof![4 => Just(None), 1 => (1_u64..8).prop_map(Some)];
    let parts = (total, any::<bool>(), cap, prop::bool::weighted(0.08));
    parts.prop_map(
        |(total_count, tickets_oldest_first, page_cap, ignore_offset)| Readings {
            total_count,
            tickets_oldest_first,
            page_cap,
            ignore_offset,
            ..Readings::default()
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let field = prop::sample::select(vec!["createdAt", "closedAt"]);
    let ago = prop_oneof![
        -DAY..40 * DAY,
        prop::sample::select(vec![0, DAY, 7 * DAY, 30 * DAY])
    ];
    prop_oneof![
        4 => Just(Step::Create),
        4 => index().prop_map(Step::Delete),
        6 => index().prop_map(Step::Exchange),
        3 => index().prop_map(Step::Close),
        2 => (index(), any::<bool>()).prop_map(|(index, keeps)| Step::Reopen(index, keeps)),
        4 => (index(), field, ago).prop_map(|(index, field, ago)| Step::Date(index, field, ago)),
        2 => any::<u64>().prop_map(Step::Shuffle),
        1 => (1_u64..5000).prop_map(Step::Hours),
        1 => Just(Step::Fail),
        1 => Just(Step::Empty),
    ]
}

fn go_through(case: &Case) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let model = Arc::new(Mutex::new(Model::new(case)));
    let (sim, shared) = (model.lock().unwrap().sim.clone(), model.clone());
    sim.on_request(Box::new(move |request, _| {
        let offset = request.param("offset").unwrap().parse().unwrap();
        shared.lock().unwrap().before(offset)
    }));
    let client = simulated(&sim);
    let retries = Counter::default();
    let mut scanner = Scanner::new(settings(case.page_size), retries.clone());
    // The last scan is a quiet one.
    for steps in case.scans.iter().cloned().chain([Vec::new()]) {
        model.lock().unwrap().begin_scan(steps);
        let before = retries.get();
        let result = runtime.block_on(scanner.round(&client));
        let model = model.lock().unwrap();
        check(case, &model, result, retries.get() - before);
    }
    // The hook holds the model, and the model the simulator.
    sim.on_request(Box::new(|_, _| None));
}

/// The flow as its documentation defines it.
fn reference(tickets: &[Value], end: Timestamp) -> BTreeMap<String, Flow> {
    let time = |ticket: &Value, field: &str| -> Option<i64> {
        let time: Timestamp = ticket[field].as_str()?.parse().unwrap();
        Some(time.as_millisecond())
    };
    let mut flows = BTreeMap::<String, Flow>::new();
    for (window, (_, length)) in WINDOWS.iter().enumerate() {
        let start = end.as_millisecond() - length.as_millis() as i64;
        let is_within = |at: i64| at > start && at <= end.as_millisecond();
        let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for ticket in tickets {
            let kind = ticket["type"].as_str().unwrap_or("unknown").to_owned();
            let flow = flows.entry(kind.clone()).or_default();
            let (created, closed) = (time(ticket, "createdAt"), time(ticket, "closedAt"));
            flow.opened[window] += u64::from(created.is_some_and(is_within));
            let closed = closed.filter(|at| ticket["state"] != "OPEN" && is_within(*at));
            if let Some(closed) = closed {
                flow.closed[window] += 1;
                let created = created.into_iter();
                let open = created.map(|created| (closed - created).max(0) / 1000);
                times.entry(kind).or_default().extend(open);
            }
        }
        for (kind, mut times) in times {
            times.sort_unstable();
            let percentile = |(_, percent)| {
                let is_enough = |at: &usize| (at + 1) * 100 >= times.len() * percent;
                let at = (0..times.len()).find(is_enough)?;
                u32::try_from(times[at]).ok()
            };
            flows.get_mut(&kind).unwrap().time_to_close[window] = PERCENTILES.map(percentile);
        }
    }
    if tickets.is_empty() {
        flows.entry("unknown".to_owned()).or_default();
    }
    flows
}

/// What must be true after a scan.
fn check(case: &Case, model: &Model, result: Scanned, retries: u64) {
    let Readings {
        total_count,
        page_cap,
        ignore_offset,
        ..
    } = case.readings;
    assert!(retries < u64::from(MAX_ATTEMPTS));
    let bound = u64::from(MAX_ATTEMPTS) * (model.ever.len() as u64 + 24);
    assert!(model.requests <= bound, "{} requests", model.requests);
    let has_failed = matches!(&result, Err(ScanError::Api(error)) if error.reason() == FailureReason::Unauthorized);
    assert_eq!(has_failed, model.failed, "an error on any page");
    let page = u64::from(case.page_size.max(2)).min(page_cap.unwrap_or(u64::MAX));
    let (snapshot, doubt) = match result {
        Ok(scanned) => scanned,
        Err(ScanError::Listing(text)) if text.contains("repeat the same tickets") => {
            return assert!(ignore_offset || model.touched, "offsets were obeyed");
        }
        Err(error) => return assert!(model.touched, "without a reason: {error}"),
    };
    let groups = snapshot.by_state.values();
    let tickets: u64 = groups.map(|group| group.tickets).sum();
    assert_eq!(tickets, snapshot.tickets);
    let (seen, steady) = (model.ids(&snapshot), &model.steady);
    assert_eq!(seen.len() as u64, snapshot.tickets, "counted twice");
    assert!(seen.is_subset(&model.ever), "{seen:?}, {:?}", model.ever);
    if doubt.is_none() {
        let hidden = model.shuffled && model.created && model.deleted
            || model.emptied && total_count != TotalCount::Right;
        assert!(hidden || steady.is_subset(&seen), "{seen:?}, {steady:?}");
        assert_ne!(total_count, TotalCount::Missing, "nothing to compare with");
    }
    if model.touched {
        return;
    }
    // Nothing moved, nothing failed.
    let all = model.sim.ticket_ids().len() as u64;
    if ignore_offset && all >= page {
        return assert!(doubt.is_some(), "{tickets} of {all}, no doubt");
    }
    assert_true(&snapshot, &model.sim);
    let flow = reference(&model.sim.tickets(), model.sim.now());
    let shown = snapshot.flow.iter();
    let shown = shown.map(|(kind, flow)| (kind.to_string(), *flow));
    assert_eq!((shown.collect(), snapshot.malformed), (flow, 0));
    let right =
        total_count == TotalCount::Right || total_count == TotalCount::PageLength && all < page;
    if right {
        // Pages of one row have none to overlap by.
        let expected = (page == 1 && all > 1).then_some(Doubt::NoOverlap);
        let repeated = u64::from(MAX_ATTEMPTS) - 1;
        let expected_retries = if expected.is_some() { repeated } else { 0 };
        assert_eq!((doubt, retries), (expected, expected_retries));
    } else {
        assert!(doubt.is_some(), "the count is wrong");
    }
}

/// The same cases in each run, unless `PROPTEST_CASES` says how many others are drawn.
#[test]
fn a_snapshot_is_the_truth_or_says_that_it_may_not_be() {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let regressions = FileFailurePersistence::Direct("proptest-regressions/cases.txt");
    let config = Config {
        cases: asked.as_ref().map_or(300, |cases| cases.parse().unwrap()),
        rng_seed: asked.map_or(RngSeed::Fixed(1), |_| RngSeed::Random),
        failure_persistence: Some(Box::new(regressions)),
        source_file: Some(file!()),
        ..Config::default()
    };
    let played = TestRunner::new(config).run(&cases(), |case| {
        go_through(&case);
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}
