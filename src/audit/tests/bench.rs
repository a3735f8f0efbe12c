//! An exporter's tail beside a simulator, driven step by step, and what must be true of the two.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use crate::api::{Client, Filters, Settings as ApiSettings};
use crate::audit::{Settings, Tail};
use crate::ledger::{LedgerHandle, LedgerState, Settings as LedgerSettings, Settled};
use crate::metrics::audit::{EventLabels, Total};
use crate::metrics::{Loop, Metrics};
use crate::simulator::{Config, Running, Simulator};
use jiff::Timestamp;

use super::case::{Case, Step};
use super::world::World;
use crate::support::settings;

/// Longer than twice the interval of polls: what is lost meanwhile is reported.
pub(super) const SILENCE: Duration = Duration::from_secs(1201);

/// Longer than any wait after a failure: a round that asks for it has nothing left to do.
const REST: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    pub(super) case: Case,
    pub(super) running: Running,
    world: Arc<Mutex<World>>,
    client: Client,
    metrics: Metrics,
    ledger_settings: LedgerSettings,
    /// Absent only while the state file is closed.
    parts: Option<(LedgerHandle, Tail)>,
    /// Known once the ledger is begun.
    pub(super) start_floor: Option<Timestamp>,
    /// Ids that left the outbox, in its order.
    pub(super) delivered: Vec<String>,
    /// The API does not return every entry.
    pub(super) lossy: bool,
}

impl Bench {
    pub(super) async fn new(case: &Case, path: Option<PathBuf>) -> Self {
        Self::filtered(case, path, Filters::default()).await
    }

    pub(super) async fn filtered(case: &Case, path: Option<PathBuf>, filters: Filters) -> Self {
        let config = Config {
            seed: case.seed,
            history: case.history,
            history_span: Duration::from_secs(case.history * 20),
            readings: case.readings,
            ..Config::quiet()
        };
        let (running, client) = serve(config, filters).await;
        let world = Arc::new(Mutex::new(World::new(running.simulator())));
        let shared = world.clone();
        let sim = running.simulator();
        sim.on_request(Box::new(move |request, sim| {
            shared.lock().unwrap().requested(request, sim);
            None
        }));
        let ledger_settings = LedgerSettings {
            filters: client.settings().filters.fingerprint(),
            ..settings::ledger(path, running.base_url())
        };
        let (ledger, state) = LedgerHandle::open(ledger_settings.clone()).unwrap();
        let mut bench = Self {
            case: case.clone(),
            running,
            world,
            client,
            metrics: Metrics::new(Duration::ZERO),
            ledger_settings,
            parts: None,
            start_floor: None,
            delivered: Vec::new(),
            lossy: false,
        };
        bench.start_tail(ledger, state);
        bench
    }

    fn start_tail(&mut self, ledger: LedgerHandle, state: LedgerState) {
        let hour = Duration::from_secs(3600);
        let settings = Settings {
            // Nothing is polled before its turn.
            poll_interval: SILENCE / 2,
            start: self.case.start,
            reread_interval: hour,
            reread_window: hour,
            page_size: self.case.page_size,
        };
        let (client, metrics) = (self.client.clone(), self.metrics.clone());
        let tail = Tail::new(client, ledger.clone(), state, metrics, settings);
        self.parts = Some((ledger, tail));
    }

    pub(super) fn sim(&self) -> &Simulator {
        self.running.simulator()
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(super) fn ledger(&self) -> &LedgerHandle {
        &self.parts.as_ref().unwrap().0
    }

    pub(super) fn tail(&mut self) -> &mut Tail {
        &mut self.parts.as_mut().unwrap().1
    }

    pub(super) async fn step(&mut self, step: &Step) {
        match step {
            Step::Now(change) => self.world().change(self.sim(), change),
            Step::During(at, change) => self.world().pending.push((*at, change.clone())),
            Step::Rounds(rounds) => {
                self.tail().hurry();
                for _ in 0..*rounds {
                    self.round().await;
                }
            }
            Step::Settle => self.settle().await,
            Step::Die(polls) => {
                self.tail().hurry();
                self.world().looks = true;
                polled(*polls, self.tail().round()).await;
                self.restart().await;
            }
            Step::Restart => self.restart().await,
            Step::Fail(table, rounds) => self.fail(table, *rounds).await,
        }
    }

    /// Another tail on the same ledger; a file is opened anew. A commit that the dead one left to the disk comes first: the runtime has
    /// one thread for these.
    pub(super) async fn restart(&mut self) {
        let state = self.ledger().state().await.unwrap();
        let (ledger, tail) = self.parts.take().unwrap();
        drop(tail);
        let (ledger, state) = if self.ledger_settings.path.is_none() {
            (ledger, state)
        } else {
            drop(ledger);
            self.metrics = Metrics::new(Duration::ZERO);
            LedgerHandle::open(self.ledger_settings.clone()).unwrap()
        };
        self.start_tail(ledger, state);
        self.look().await;
    }

    /// Another tail with other filters on the same ledger.
    pub(super) async fn filter(&mut self, filters: Filters) {
        let api = ApiSettings {
            filters,
            ..self.client.settings().clone()
        };
        self.client = Client::new(api, self.metrics.api.clone()).unwrap();
        self.restart().await;
    }

    /// Another tail on the same ledger, that of a backfill.
    pub(super) async fn into_backfill(mut self) -> Tail {
        self.restart().await;
        let (_, tail) = self.parts.take().unwrap();
        tail.for_backfill(None)
    }

    /// Rounds while every commit fails that changes a table.
    async fn fail(&mut self, table: &str, rounds: u64) {
        let Some(path) = &self.ledger_settings.path else {
            return;
        };
        let other = rusqlite::Connection::open(path).unwrap();
        for on in ["INSERT", "UPDATE", "DELETE"] {
            let trigger = format!(
                "CREATE TRIGGER fail_{on} BEFORE {on} ON {table} BEGIN SELECT RAISE(ABORT, 'injected'); END"
            );
            other.execute_batch(&trigger).unwrap();
        }
        self.tail().hurry();
        for _ in 0..rounds {
            self.world().looks = true;
            self.tail().round().await;
            self.look_for_beginning().await;
        }
        let drop = "DROP TRIGGER fail_INSERT; DROP TRIGGER fail_UPDATE; DROP TRIGGER fail_DELETE";
        other.execute_batch(drop).unwrap();
        self.look().await;
    }

    pub(super) async fn settle(&mut self) {
        self.tail().hurry();
        let most = 300 + 20 * self.sim().event_count();
        for _ in 0..most {
            if self.round().await > REST {
                return;
            }
        }
        let failure = self.metrics.loops.state(Loop::Audit).last_failure;
        panic!("the tail does not come to rest in {most} rounds: {failure:?}");
    }

    pub(super) async fn round(&mut self) -> Duration {
        self.world().looks = true;
        let wait = polled(100_000, self.tail().round()).await;
        self.look().await;
        wait.expect("the round ends")
    }

    /// Takes what may be sent from the outbox, and checks that whatever is missing lies in an open range.
    async fn look(&mut self) {
        self.look_for_beginning().await;
        let records = self.ledger().outbox_batch(0, usize::MAX, usize::MAX).await;
        let records = records.unwrap();
        let settled = Settled {
            records: records.clone(),
            ..Settled::default()
        };
        if !records.is_empty() {
            self.ledger().outbox_settle(settled).await.unwrap();
        }
        let entries = settings::entries(&records);
        self.delivered.extend(entries.iter().map(|raw| id(raw)));
        // Entries dated in the future hide new ones from small pages, until the re-read.
        let page = self.case.readings.page_cap.unwrap_or(50);
        let is_hidden = self.case.has_future() && page.min(self.case.page_size.into()) < 50;
        if !self.lossy && !is_hidden && self.parts.as_ref().unwrap().1.state().ranges.is_empty() {
            self.check_range();
        }
    }

    async fn look_for_beginning(&mut self) {
        if !self.world().begun
            && let Some(first) = self.ledger().state().await.unwrap().tail.first_sync
        {
            self.start_floor = first.history_floor;
            self.world().begun = true;
        }
    }

    /// Lets go of the address.
    pub(super) async fn stop(self) {
        drop(self.parts);
        self.running.stop().await;
    }

    pub(super) fn counted(&self) -> BTreeMap<(String, String), u64> {
        let events = self.metrics.audit.events().into_iter();
        let key = |labels: EventLabels| {
            let actor = labels.actor.unwrap().to_string();
            (labels.activity_type.to_string(), actor)
        };
        let counts = events.filter(|(_, count)| *count > 0);
        counts.map(|(labels, n)| (key(labels), n)).collect()
    }

    pub(super) fn total(&self, total: Total) -> u64 {
        self.metrics.audit.total(total)
    }
}

/// A simulator, and a client of it. To make a client takes longer than most cases, so the next simulator on this thread has the same
/// address and with it the same client, where the last one has let go of it.
async fn serve(config: Config, filters: Filters) -> (Running, Client) {
    thread_local! {
        static LAST: RefCell<Option<(SocketAddr, Client)>> = const { RefCell::new(None) };
    }
    let sim = Simulator::new(config);
    if let Some((address, client)) = LAST.take()
        && client.settings().filters == filters
        && let Ok(running) = sim.clone().run_on(address).await
    {
        LAST.set(Some((address, client.clone())));
        return (running, client);
    }
    let running = sim.run_on((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let api = ApiSettings {
        filters,
        ..settings::api(&running.base_url())
    };
    let client = Client::new(api, Metrics::new(Duration::ZERO).api.clone()).unwrap();
    LAST.set(Some((running.address(), client.clone())));
    (running, client)
}

/// What a future comes to when it is polled so often at most.
async fn polled<T>(most: u64, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = most;
    std::future::poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The id of an entry, which comes first in its JSON.
fn id(raw: &str) -> String {
    raw.split('"').nth(3).unwrap().to_owned()
}
