//! The scan beside the simulator, over HTTP: random tickets, readings of the specification, changes and faults before any request.
//!
//! What a snapshot without a doubt promises is said at [`Scanner`]. What no client can see is left out here, and only that: a service whose
//! listing is put into another order, and loses a ticket, and gains one, all during one attempt; and a service that keeps a page back while
//! its `totalCount` is wrong.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use http::StatusCode;
use orgdata_exporter::api::{Client, Settings as ApiSettings};
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::tickets::TicketSource as _;
use orgdata_exporter::simulator::{
    Config, Endpoint, Fault, FaultKind, Fields, Readings, RequestInfo, RetryAfter, Running,
    Simulator, TicketOrder, TotalCount,
};
use orgdata_exporter::tickets::{Doubt, MAX_ATTEMPTS, ScanError, Scanner, Snapshot};
use prometheus_client::metrics::counter::Counter;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::support::{assert_true, settings};
use crate::support::cases;
use crate::support::fast::hold_clock;

/// Amounts tell tickets apart, a bit each, and a double holds so many.
const MOST: u64 = 48;

/// Attempts of the client's for one page, at most.
const TRIES: u64 = 8;

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
    Delete(prop::sample::Index),
    /// Both at once: the count stays.
    Exchange(prop::sample::Index),
    Close(prop::sample::Index),
    Shuffle(u64),
    Hours(u64),
    Strike(Fault),
}

/// A service and a client of it, for one case after the other: to set them up takes longer than a scan.
struct Bench {
    /// Holds a blocking task, and so the clock: where it leaps when nobody has work, it leaps too while an answer is on its way.
    _hold: mpsc::Sender<()>,
    runtime: Runtime,
    running: Running,
    client: Client,
}

/// What the test knows of the present attempt.
#[derive(Debug, Default)]
struct Model {
    steps: Vec<(u64, Step)>,
    /// The last id that was given to a ticket, and the one before the first.
    last: u64,
    base: u64,
    /// Requests of this scan.
    requests: u64,
    /// There all through the attempt.
    steady: BTreeSet<u64>,
    /// There at some time of it.
    ever: BTreeSet<u64>,
    created: bool,
    deleted: bool,
    shuffled: bool,
    /// Something happened since the scan began, faults included.
    touched: bool,
    /// Faults among it.
    struck: bool,
    /// A fault that changes what is on a page.
    mangled: bool,
    /// A fault that keeps a page back.
    emptied: bool,
}

// === impl Model ===

impl Model {
    fn begin(&mut self, sim: &Simulator) {
        self.steady = sim.ticket_ids().into_iter().collect();
        self.ever = self.steady.clone();
        (self.created, self.deleted, self.shuffled) = (false, false, false);
    }

    /// Before a request: the world goes on, and what strikes the request is returned.
    fn requested(&mut self, request: &RequestInfo, sim: &Simulator) -> Option<Fault> {
        let number = self.requests;
        self.requests += 1;
        let due: Vec<Step> = self
            .steps
            .extract_if(.., |(at, _)| *at == number)
            .map(|(_, step)| step)
            .collect();
        let mut fault = None;
        for step in due {
            self.touched = true;
            self.step(sim, step, &mut fault);
        }
        if request.param("offset") == Some("0") {
            self.begin(sim);
        }
        fault
    }

    fn step(&mut self, sim: &Simulator, step: Step, fault: &mut Option<Fault>) {
        let ids = sim.ticket_ids();
        match step {
            Step::Create => {
                if let Some(id) = self.create(sim) {
                    self.ever.insert(id);
                    self.created = true;
                }
            }
            Step::Delete(index) if !ids.is_empty() => {
                let id = *index.get(&ids);
                sim.remove_ticket(id).unwrap();
                self.steady.remove(&id);
                self.deleted = true;
            }
            Step::Exchange(index) => {
                self.step(sim, Step::Delete(index), fault);
                self.step(sim, Step::Create, fault);
            }
            Step::Close(index) if !ids.is_empty() => {
                sim.change_ticket(*index.get(&ids), Fields::new().with("state", "CLOSED"))
                    .unwrap();
            }
            Step::Shuffle(seed) => {
                sim.shuffle_tickets(seed);
                self.shuffled = true;
            }
            Step::Hours(hours) => sim.advance(Duration::from_secs(3600 * hours)),
            Step::Strike(strike) => {
                self.mangled |= matches!(
                    strike.kind,
                    FaultKind::WrongTypes
                        | FaultKind::MissingId
                        | FaultKind::NotAnObject
                        | FaultKind::Duplicate
                );
                self.emptied |= matches!(strike.kind, FaultKind::EmptyPage);
                self.struck = true;
                *fault = Some(strike);
            }
            Step::Delete(_) | Step::Close(_) => {}
        }
    }

    /// A ticket whose amount is the power of two that its id says.
    fn create(&mut self, sim: &Simulator) -> Option<u64> {
        let bit = self.last - self.base;
        (bit < MOST).then(|| {
            self.last += 1;
            sim.add_ticket(
                Fields::new()
                    .with("id", self.last)
                    .with("dealAmountSum", 1_u64 << bit),
            )
            .unwrap()
        })
    }

    /// The tickets of a snapshot.
    fn ids(&self, snapshot: &Snapshot) -> BTreeSet<u64> {
        let groups = snapshot.series().by_state;
        let sum: f64 = groups.iter().map(|(_, group)| group.deal_amount).sum();
        (0..MOST)
            .filter(|bit| (sum as u64) & (1 << bit) != 0)
            .map(|bit| self.base + 1 + bit)
            .collect()
    }
}

fn case() -> impl Strategy<Value = Case> {
    let scan = prop::collection::vec((prop_oneof![3 => 0_u64..6, 1 => 6_u64..20], step()), 0..4);
    let page_size = prop_oneof![4 => 2_u32..9, 1 => Just(1), 1 => Just(1000)];
    (
        any::<u64>(),
        0_u64..25,
        page_size,
        readings(),
        prop::collection::vec(scan, 1..4),
    )
        .prop_map(|(seed, tickets, page_size, readings, scans)| Case {
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
        1 => Just(TotalCount::Null),
        1 => Just(TotalCount::PageLength),
        1 => (1_i64..30).prop_map(TotalCount::Off),
        1 => (-30_i64..0).prop_map(TotalCount::Off),
    ];
    let order = prop_oneof![
        Just(TicketOrder::NewestFirst),
        Just(TicketOrder::OldestFirst)
    ];
    let cap = prop_oneof![4 => Just(None), 1 => (1_u64..8).prop_map(Some)];
    (total, order, cap, prop::bool::weighted(0.08)).prop_map(
        |(total_count, ticket_order, page_cap, ignore_offset)| Readings {
            total_count,
            ticket_order,
            page_cap,
            ignore_offset,
            ..Readings::default()
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => Just(Step::Create),
        4 => index().prop_map(Step::Delete),
        6 => index().prop_map(Step::Exchange),
        2 => index().prop_map(Step::Close),
        2 => any::<u64>().prop_map(Step::Shuffle),
        1 => (1_u64..5000).prop_map(Step::Hours),
        3 => fault().prop_map(Step::Strike),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let status = prop::sample::select(vec![400_u16, 401, 403, 404, 429, 500, 502, 503]);
    let kind = prop_oneof![
        2 => status.prop_map(|status| Fault::status(StatusCode::from_u16(status).unwrap()).kind),
        4 => prop::sample::select(vec![
            FaultKind::TooManyRequests(RetryAfter::Seconds(3)),
            FaultKind::Reset,
            FaultKind::ResetBody,
            FaultKind::TruncatedJson,
            FaultKind::Html(StatusCode::OK),
            FaultKind::Empty(StatusCode::OK),
            FaultKind::UnknownFields,
            FaultKind::WrongTypes,
            FaultKind::MissingId,
            FaultKind::NotAnObject,
            FaultKind::Duplicate,
            FaultKind::EmptyPage,
        ]),
    ];
    kind.prop_map(|kind| Fault::new(kind).on(Endpoint::Tickets))
}

// === impl Bench ===

impl Bench {
    fn new() -> Self {
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let running = runtime
            .block_on(Simulator::spawn(Config { ..Config::quiet() }))
            .unwrap();
        let api = ApiSettings {
            timeout: Duration::from_secs(3600),
            ..crate::support::settings::api(&running.base_url())
        };
        let client = runtime
            .block_on(async { Client::new(api, Metrics::new(Duration::ZERO).api.clone()) })
            .unwrap();
        let hold = hold_clock(runtime.handle());
        Self {
            _hold: hold,
            runtime,
            running,
            client,
        }
    }

    fn go_through(&self, case: &Case) {
        let sim = self.running.simulator();
        let base = case.seed % 1_000_000 * 64;
        let model = Arc::new(Mutex::new(Model {
            base,
            last: base,
            ..Model::default()
        }));
        sim.on_request(Box::new(|_, _| None));
        sim.clear_tickets();
        sim.set_clock("2030-01-01T00:00:00Z".parse().unwrap());
        sim.change_readings(|readings| *readings = case.readings);
        for _ in 0..case.tickets {
            model.lock().unwrap().create(sim).unwrap();
            sim.advance(Duration::from_secs(86_400 * 3 + 3600));
        }
        let shared = model.clone();
        sim.on_request(Box::new(move |request, sim| {
            shared.lock().unwrap().requested(request, sim)
        }));
        let retries = Counter::default();
        let mut scanner = Scanner::new(settings(case.page_size), retries.clone());
        // The last scan is a quiet one.
        for steps in case.scans.iter().cloned().chain([Vec::new()]) {
            let last = model.lock().unwrap().last;
            *model.lock().unwrap() = Model {
                steps,
                base,
                last,
                ..Model::default()
            };
            let before = retries.get();
            let result = self.runtime.block_on(async {
                // What the service asked the last scan to wait is over.
                tokio::time::advance(Duration::from_secs(10)).await;
                let mut round = pin!(scanner.round(&self.client));
                loop {
                    // Only after a fault is there anything to wait for.
                    let step = if model.lock().unwrap().struck {
                        Duration::from_millis(10)
                    } else {
                        Duration::ZERO
                    };
                    tokio::select! {
                        biased;
                        result = &mut round => break result,
                        () = tokio::time::advance(step) => {}
                    }
                }
            });
            check(
                case,
                sim,
                &model.lock().unwrap(),
                result,
                retries.get() - before,
            );
        }
    }
}

/// What must be true after a scan.
fn check(
    case: &Case,
    sim: &Simulator,
    model: &Model,
    result: Result<Arc<Snapshot>, ScanError>,
    retries: u64,
) {
    let Readings {
        total_count,
        page_cap,
        ignore_offset,
        ..
    } = case.readings;
    assert!(retries < u64::from(MAX_ATTEMPTS));
    let rows = model.ever.len() as u64 + 8;
    let bound = u64::from(MAX_ATTEMPTS) * TRIES * (rows + 16);
    assert!(
        model.requests <= bound,
        "{} requests for at most {rows} tickets",
        model.requests
    );
    let page = u64::from(case.page_size.max(2)).min(page_cap.unwrap_or(u64::MAX));
    let snapshot = match result {
        Ok(snapshot) => snapshot,
        Err(ScanError::Repeated { .. }) => {
            return assert!(ignore_offset || model.touched, "offsets were obeyed");
        }
        Err(error) => return assert!(model.touched, "without a reason: {error}"),
    };
    let groups = snapshot.series().by_state;
    let tickets: u64 = groups.iter().map(|(_, group)| group.tickets).sum();
    assert_eq!(tickets, snapshot.tickets);
    let seen = model.ids(&snapshot);
    if !model.mangled {
        assert_eq!(seen.len() as u64, snapshot.tickets, "counted twice");
        assert!(
            seen.is_subset(&model.ever),
            "{seen:?} is more than {:?}",
            model.ever
        );
    }
    if snapshot.doubt.is_none() {
        let hidden = model.shuffled && model.created && model.deleted
            || model.emptied && total_count != TotalCount::Right;
        assert!(
            hidden || model.mangled || model.steady.is_subset(&seen),
            "{seen:?} is less than {:?}",
            model.steady
        );
        assert!(
            !matches!(total_count, TotalCount::Missing | TotalCount::Null),
            "nothing to compare with"
        );
    }
    if model.touched {
        return;
    }
    // Nothing moved, nothing failed.
    let all = sim.ticket_ids().len() as u64;
    if ignore_offset && all > page {
        return assert!(
            snapshot.doubt.is_some(),
            "{} of {all} without a doubt",
            snapshot.tickets
        );
    }
    assert_true(&snapshot, &sim.ticket_truth(&["OPEN"]));
    let right =
        total_count == TotalCount::Right || total_count == TotalCount::PageLength && all < page;
    if right {
        // Pages of one row have none to overlap by.
        let expected = (page == 1 && all > 1).then_some(Doubt::NoOverlap);
        assert_eq!((snapshot.doubt, retries), (expected, 0));
    } else {
        assert!(snapshot.doubt.is_some(), "the count is wrong");
    }
}

#[test]
fn a_snapshot_is_the_truth_or_says_that_it_may_not_be() {
    let bench = Bench::new();
    cases::check(
        "a_snapshot_is_the_truth_or_says_that_it_may_not_be",
        200,
        &case(),
        |case| bench.go_through(case),
    );
}
