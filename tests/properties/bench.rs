//! An exporter's tail beside a simulator, driven step by step, and what must be true of the two.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::api::{BaseUrl, Client, Filters, KeySource, Settings as ApiSettings};
use orgdata_exporter::audit::{Settings, Tail};
use orgdata_exporter::ledger::{ActorLabel, LedgerHandle, RecordKind, Settings as LedgerSettings, StatePath};
use orgdata_exporter::metrics::audit::Total;
use orgdata_exporter::metrics::{Loop, Metrics};
use orgdata_exporter::simulator::{Config, Fields, KeyReading, Mark, RequestInfo, Running, Scope, Served, Simulator};
use secrecy::SecretString;

use super::case::{Case, Change, Step};

/// Longer than any wait after a failure: a round that asks for it has nothing left to do.
const REST: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    case: Case,
    running: Running,
    client: Client,
    metrics: Metrics,
    ledger_settings: LedgerSettings,
    /// Absent only while the state file is closed.
    parts: Option<(LedgerHandle, Tail)>,
    model: Arc<Mutex<Model>>,
    /// Records in the outbox when the range was checked last.
    checked: u64,
    /// Not everything can be had.
    pub(super) lossy: bool,
}

/// What the test knows that the simulator does not tell.
#[derive(Default)]
pub(super) struct Model {
    /// The moment of the first answer: later arrivals are counted.
    birth: Option<(Mark, Timestamp)>,
    born: bool,
    /// Changes to come, each so many requests from now.
    pending: Vec<(u64, Change)>,
    /// Rows that did not arrive on top of the listing, or that stay there whatever comes.
    out_of_order: HashSet<String>,
    /// Rows that arrived below the newest one.
    late: u64,
}

// === impl Model ===

impl Model {
    /// Before each request: the world goes on.
    fn requested(&mut self, request: &RequestInfo, sim: &Simulator) {
        for (left, _) in &mut self.pending {
            *left = left.saturating_sub(1);
        }
        let due: Vec<Change> = self.pending.extract_if(.., |(left, _)| *left == 0).map(|(_, change)| change).collect();
        for change in due {
            self.change(sim, &change);
        }
        // The ledger begins with the last newest page before its first commit.
        if !self.born && request.param("before").is_none() {
            self.birth = Some((sim.mark(), sim.now()));
        }
    }

    fn change(&mut self, sim: &Simulator, change: &Change) {
        let (mark, newest) = (sim.mark(), newest(sim));
        match change {
            Change::Events(count) => {
                // Events are spread over the last milliseconds, and none is dated before the birth, or it need not be taken.
                if let Some((_, birth)) = self.birth.filter(|_| self.born)
                    && sim.now().duration_since(birth) <= SignedDuration::from_millis(count.cast_signed())
                {
                    sim.advance(Duration::from_millis(count + 1));
                }
                sim.add_events(*count);
            }
            Change::Pass(millis) => sim.advance(Duration::from_millis(*millis)),
            Change::Late(count, behind) => {
                // Only what was created since the birth must be counted, so nothing else arrives late.
                let Some((_, birth)) = self.birth.filter(|_| self.born) else { return };
                for i in 0..*count {
                    let created = sim.now().checked_sub(SignedDuration::from_millis((behind + i).cast_signed())).unwrap();
                    insert(sim, created.max(birth.checked_add(SignedDuration::from_millis(1)).unwrap()));
                }
            }
            Change::Ahead(millis) => {
                // Where the newest page has nothing but entries from the future, or the clock is wrong, nobody can tell what is the future.
                if self.born && sim.config().history > 0 && !sim.readings().no_date {
                    let id = insert(sim, sim.now().checked_add(SignedDuration::from_millis(millis.cast_signed())).unwrap());
                    self.out_of_order.insert(id);
                }
            }
            Change::Fault(fault) => drop(sim.fault(fault.clone())),
        }
        for entry in sim.entries_of(Scope { since: Some(mark), ..Scope::default() }) {
            if newest.is_some_and(|newest| entry.created_at < newest) {
                self.late += 1;
                self.out_of_order.insert(entry.id);
            }
        }
    }
}

/// Creation time of the newest row that is not from the future.
fn newest(sim: &Simulator) -> Option<Timestamp> {
    let future = sim.now().checked_add(SignedDuration::from_mins(5)).unwrap();
    sim.entries().map(|entry| entry.created_at).filter(|at| *at <= future).max()
}

fn insert(sim: &Simulator, created: Timestamp) -> String {
    sim.add_entry(&Fields::new().with("createdAt", created.to_string())).unwrap()
}

// === impl Bench ===

impl Bench {
    pub(super) async fn new(case: &Case, path: StatePath) -> Self {
        Self::filtered(case, path, Filters::default()).await
    }

    pub(super) async fn filtered(case: &Case, path: StatePath, filters: Filters) -> Self {
        let config = Config {
            seed: case.seed,
            history: case.history,
            history_span: Duration::from_secs(case.history * 20),
            readings: case.readings,
            request_log: 4,
            ..Config::quiet()
        };
        let running = Simulator::spawn(config).await.unwrap();
        let model = Arc::new(Mutex::new(Model::default()));
        let shared = model.clone();
        running.simulator().on_request(Box::new(move |request, sim| {
            shared.lock().unwrap().requested(request, sim);
            None
        }));
        let api = ApiSettings {
            base_url: BaseUrl::parse(&running.base_url()).unwrap(),
            key: KeySource::Value(SecretString::from("demo-key".to_owned())),
            timeout: Duration::from_secs(10),
            max_requests_per_second: 1e6,
            ca_file: None,
            filters,
        };
        let ledger_settings = LedgerSettings {
            path,
            max_size: 256 << 20,
            base_url: running.base_url(),
            filters: api.filters.fingerprint(),
            outbox: true,
            actor_label: ActorLabel::Id,
            max_actors: 1000,
            actor_idle: Duration::from_secs(30 * 86400),
            reread_window: Duration::from_secs(3600),
            id_retention: Duration::from_secs(86400),
            max_dead_letters: 1000,
            redact: Arc::new(str::to_owned),
        };
        let metrics = Metrics::new(Duration::ZERO);
        let client = Client::new(api, metrics.api.clone()).unwrap();
        let (ledger, state) = LedgerHandle::open(ledger_settings.clone(), metrics.clone()).unwrap();
        let tail = Tail::new(client.clone(), ledger.clone(), state, metrics.clone(), settings(case));
        let parts = Some((ledger, tail));
        Self { case: case.clone(), running, client, metrics, ledger_settings, parts, model, checked: 0, lossy: false }
    }

    pub(super) fn sim(&self) -> &Simulator {
        self.running.simulator()
    }

    pub(super) async fn step(&mut self, step: &Step) {
        match step {
            Step::Now(change) => self.model.lock().unwrap().change(self.running.simulator(), change),
            Step::During(requests, change) => self.model.lock().unwrap().pending.push((*requests, change.clone())),
            Step::Rounds(rounds) => {
                self.tail().hurry();
                for _ in 0..*rounds {
                    self.round().await;
                }
            }
            Step::Settle => self.settle().await,
            Step::Die(polls) => {
                self.tail().hurry();
                {
                    let mut left = *polls;
                    let mut round = pin!(self.tail().round());
                    std::future::poll_fn(|context| {
                        left -= 1;
                        let ready = round.as_mut().poll(context).is_ready();
                        if ready || left == 0 { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                }
                self.restart().await;
            }
            Step::Restart => self.restart().await,
            Step::Fail(table, rounds) => {
                let StatePath::File(path) = &self.ledger_settings.path else { return };
                let other = rusqlite::Connection::open(path).unwrap();
                for on in ["INSERT", "UPDATE", "DELETE"] {
                    other
                        .execute_batch(&format!(
                            "CREATE TRIGGER fail_{on} BEFORE {on} ON {table} BEGIN SELECT RAISE(ABORT, 'injected'); END"
                        ))
                        .unwrap();
                }
                self.tail().hurry();
                for _ in 0..*rounds {
                    self.round().await;
                }
                other.execute_batch("DROP TRIGGER fail_INSERT; DROP TRIGGER fail_UPDATE; DROP TRIGGER fail_DELETE").unwrap();
            }
        }
    }

    /// Another tail on the same ledger; a file is opened anew. A commit that the dead one left to the disk comes first: the runtime has
    /// one thread for these.
    async fn restart(&mut self) {
        let state = self.ledger().state().await.unwrap();
        let (ledger, tail) = self.parts.take().unwrap();
        drop(tail);
        let (ledger, state) = if self.ledger_settings.path == StatePath::Memory {
            (ledger, state)
        } else {
            drop(ledger);
            self.metrics = Metrics::new(Duration::ZERO);
            LedgerHandle::open(self.ledger_settings.clone(), self.metrics.clone()).unwrap()
        };
        let tail = Tail::new(self.client.clone(), ledger.clone(), state, self.metrics.clone(), settings(&self.case));
        self.parts = Some((ledger, tail));
        self.after_round().await;
    }

    fn ledger(&self) -> &LedgerHandle {
        &self.parts.as_ref().unwrap().0
    }

    fn tail(&mut self) -> &mut Tail {
        &mut self.parts.as_mut().unwrap().1
    }

    /// Another tail with other filters on the same ledger.
    pub(super) async fn filter(&mut self, filters: Filters) {
        let api = ApiSettings { filters, ..self.client.settings().clone() };
        self.client = Client::new(api, self.metrics.api.clone()).unwrap();
        self.restart().await;
    }

    /// Rounds until there is nothing left to do.
    pub(super) async fn settle(&mut self) {
        self.tail().hurry();
        let most = 300 + 20 * self.sim().event_count();
        for _ in 0..most {
            let wait = self.round().await;
            if wait > REST {
                return;
            }
        }
        panic!("the tail does not come to rest in {most} rounds: {:?}", self.metrics.loops.state(Loop::Audit).last_failure);
    }

    async fn round(&mut self) -> Duration {
        let wait = tokio::time::timeout(Duration::from_secs(20), self.tail().round()).await.expect("the round ends");
        if std::env::var("DBG").is_ok() {
            let s = self.ledger().state().await.unwrap();
            eprintln!(
                "wait {wait:?} walk {:?} frontier {:?} {:?} birth {:?} req {} {:?} late {} out {:?}",
                s.walk,
                s.frontier_at,
                s.frontier,
                s.birth,
                self.sim().requests().audit,
                self.sim().requests().last.iter().map(|r| format!("{} -> {:?}", r.raw_query, r.status)).collect::<Vec<_>>(),
                self.total(Total::Late),
                self.delivered().await
            );
            for e in self.sim().entries() {
                eprintln!("   {} {}", e.id, e.created_at);
            }
        }
        self.after_round().await;
        wait
    }

    async fn after_round(&mut self) {
        if !self.model.lock().unwrap().born {
            let born = self.ledger().state().await.unwrap().birth.is_some();
            self.model.lock().unwrap().born = born;
        }
        let records = self.ledger().backlog().records;
        if records != self.checked && !self.lossy {
            self.checked = records;
            self.check_range().await;
        }
    }

    /// The ledger is one unbroken range: of the rows in the order of the listing that arrived on top of it, from the start floor on,
    /// those delivered are the first ones, without a hole. Rows that arrived below others, and those dated in the future, are left out.
    async fn check_range(&self) {
        let delivered: HashSet<String> = self.delivered().await.into_iter().collect();
        let mut missing = None;
        for entry in self.wanted(false).await {
            let in_order = self.case.readings.key == KeyReading::Arrival || !self.model.lock().unwrap().out_of_order.contains(&entry.id);
            if !in_order {
                continue;
            }
            match (delivered.contains(&entry.id), &missing) {
                (false, None) => missing = Some(entry.id),
                (true, Some(missing)) => panic!("{} was taken before {missing}, which is below it", entry.id),
                _ => {}
            }
        }
    }

    /// What must be delivered in the end, in the order of the listing.
    async fn wanted(&self, removed: bool) -> Vec<Served> {
        let Some(birth) = self.ledger().state().await.unwrap().birth else { return Vec::new() };
        let mark = self.model.lock().unwrap().birth.unwrap().0;
        let all = Scope { removed, ..Scope::default() };
        let since: HashSet<String> = self.sim().entries_of(Scope { since: Some(mark), ..all }).map(|entry| entry.id).collect();
        let from_history = |entry: &Served| {
            self.case.start != orgdata_exporter::audit::Start::Now && birth.start_floor.is_none_or(|floor| entry.created_at >= floor)
        };
        self.sim().entries_of(all).filter(|entry| since.contains(&entry.id) || from_history(entry)).collect()
    }

    pub(super) async fn delivered(&self) -> Vec<String> {
        let records = self.ledger().outbox_batch(usize::MAX, usize::MAX).await.unwrap();
        let entries = records.iter().filter(|record| record.kind == RecordKind::Entry);
        entries.map(|record| record.raw.strip_prefix("{\"id\":\"").unwrap().split('"').next().unwrap().to_owned()).collect()
    }

    /// Everything has happened: what the exporter shows is the truth.
    pub(super) async fn check_all(&mut self) {
        self.sim().clear_faults();
        self.model.lock().unwrap().pending.clear();
        self.settle().await;
        self.settle().await;
        let delivered = self.delivered().await;
        let distinct: HashSet<&String> = delivered.iter().collect();
        assert_eq!(delivered.len(), distinct.len(), "delivered twice");
        let wanted = self.wanted(false).await;
        let lost: Vec<&str> = wanted.iter().filter(|entry| !distinct.contains(&entry.id)).map(|entry| entry.id.as_str()).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
        assert_eq!(delivered.len(), wanted.len(), "more was delivered than there is");

        let mark = self.model.lock().unwrap().birth.unwrap().0;
        let truth: BTreeMap<(String, String), u64> = self
            .sim()
            .truth_of(Scope::arrived_since(mark))
            .counts
            .into_iter()
            .map(|((kind, actor), count)| ((kind, actor.map_or_else(|| "none".to_owned(), |actor| actor.to_string())), count))
            .collect();
        assert_eq!(self.counted(), truth, "counters");
        let late = self.model.lock().unwrap().late;
        if !self.case.steps.iter().any(Step::is_fault) {
            assert_eq!(self.total(Total::Recoveries), 0, "recoveries");
        }
        assert!(self.total(Total::Late) <= late, "{} rows are called late, {late} were", self.total(Total::Late));
        assert_eq!([Total::Gaps, Total::Malformed, Total::Duplicate].map(|total| self.total(total)), [0; 3], "gaps, malformed, duplicates");
    }

    /// Nothing is new: one request says so.
    pub(super) async fn check_quiet(&mut self) {
        let before = self.sim().requests().audit;
        self.tail().hurry();
        self.round().await;
        assert_eq!(self.sim().requests().audit - before, 1, "requests of a quiet poll");
    }

    pub(super) fn counted(&self) -> BTreeMap<(String, String), u64> {
        let events = self.metrics.audit.events().into_iter().filter(|(_, value)| *value > 0);
        events.map(|(labels, value)| ((labels.activity_type.to_string(), labels.actor.unwrap().to_string()), value)).collect()
    }

    pub(super) fn total(&self, total: Total) -> u64 {
        self.metrics.audit.total(total)
    }
}

fn settings(case: &Case) -> Settings {
    Settings {
        poll_interval: Duration::from_secs(3600),
        start: case.start,
        reread_interval: Duration::from_secs(3600),
        reread_window: Duration::from_secs(3600),
        page_size: case.page_size,
    }
}
