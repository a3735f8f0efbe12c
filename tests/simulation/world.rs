//! The world around the exporter: time, what has happened in it, what happens next, and what is known of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};
use orgdata_exporter::api::Filters;
use orgdata_exporter::audit::Entry;
use orgdata_exporter::ledger::EventId;
use orgdata_exporter::machine::Machine as _;
use orgdata_exporter::metrics::Metrics;
use orgdata_exporter::metrics::exposition::Format;
use orgdata_exporter::simulator::{
    self, Config, Endpoint, Fault, FaultKind, Fields, Moment, Scope, Simulator,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::collector::{Collector, Delivered};
use super::disk::{Change, Copy, Files};
use super::plan::{End, Plan, fault, one_in, spread};
use super::support::scrape::Scrape;
use super::truth::WAITS;

/// Lives of the exporter before the last one.
const LIVES: u32 = 10;
/// The longest time in which all is done once nothing goes wrong any more.
const REST: Duration = Duration::from_secs(8 * 3600);
/// The file is at most so far behind what the exporter has read.
const UNSAVED: Duration = Duration::from_secs(300);
/// How often the world looks whether all is done.
const LOOK: Duration = Duration::from_secs(7);

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) sim: Arc<Simulator>,
    pub(super) crashed: Notify,
    pub(super) done: Notify,
    /// What the exporter's clock showed when its runtime began. It is read while the state is locked.
    pub(super) clock: Mutex<Option<(Instant, Timestamp)>>,
    /// What the exporter notices when it uses its file next. It does so while the state is locked.
    pub(super) changes: Mutex<Vec<Change>>,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// When the exporter's clock shows the beginning of the world.
    pub(super) epoch: Timestamp,
    /// The time of the world when the present runtime began.
    begun_at: Duration,
    began: Option<Instant>,
    world: Rng,
    pub(super) network: Rng,
    next: Duration,
    left: u32,
    /// Everything works from then on.
    pub(super) calm_at: Option<Duration>,
    // The service.
    pub(super) rows: Vec<Row>,
    pub(super) beginnings: Vec<Beginning>,
    /// How many rows have arrived.
    arrived: usize,
    /// The listing was empty at the last contact.
    pub(super) was_empty: bool,
    /// The first sync is done.
    pub(super) begun: bool,
    /// The filters of the last first sync, unless the state file waits for another one.
    pub(super) synced_filters: Option<String>,
    /// The filters of this life.
    pub(super) filters: Vec<String>,
    /// How many rows are dated ahead for ever.
    for_ever: u32,
    /// Complete and delivered through, at the last commit.
    pub(super) watermarks: [Option<Timestamp>; 2],
    /// Where history begins; `None` if none is wanted.
    pub(super) history_from: Option<Timestamp>,
    /// The oldest time that the first passes take.
    pub(super) taken_since: Option<Timestamp>,
    /// The first sync met fewer entries than a sweep reads, so the newest old ones may be delivered.
    pub(super) is_short_sync: bool,
    /// What is not newer is not counted, although it came after the first page with other filters.
    pub(super) uncounted_through: Option<Timestamp>,
    /// Some entries were not settled at the last commit.
    pub(super) is_mid_sweep: bool,
    /// Until then the key file holds an old key.
    pub(super) old_key_until: Duration,
    pub(super) requests_in_minute: (u64, u32),
    /// Pages of the listing that were served.
    pub(super) pages: u64,
    /// A page was empty by mistake while the exporter took the listing for empty: it cannot know (guarantees, "Counted late").
    pub(super) is_misled: bool,
    /// The cursors whose page was empty by mistake.
    pub(super) emptied: HashSet<String>,
    heal_api_at: Option<Duration>,
    // The exporter.
    pub(super) life: u32,
    pub(super) end: End,
    points: u64,
    pub(super) has_crashed: bool,
    pub(super) metrics: Option<Metrics>,
    /// What the last scrape of this life showed.
    pub(super) shown: BTreeMap<(String, String), u64>,
    pub(super) files: Files,
    /// Records may have been sent before older ones (guarantees, "Not in order").
    pub(super) has_released: bool,
    backup: Option<Backup>,
    pub(super) collector: Collector,
    // What came of it.
    trace: DefaultHasher,
    prints: bool,
    pub(super) failure: Option<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Drawn after the others, so that kept seeds stay what they were.
    operators: Rng,
}

/// An entry that arrived, and what is to become of it.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) event: EventId,
    pub(super) created: Timestamp,
    pub(super) series: (String, String),
    /// How many rows had arrived before.
    pub(super) number: usize,
    /// It arrived on top of the listing.
    pub(super) in_order: bool,
    /// It arrived some time after its creation.
    pub(super) is_late: bool,
    /// If the service deletes it before it is read, nothing shows that.
    pub(super) leaves_no_trace: bool,
    /// It has no type.
    pub(super) malformed: bool,
    /// The service has deleted it.
    pub(super) gone: bool,
    /// It is an import.
    pub(super) is_import: bool,
    pub(super) fate: Fate,
}

/// What has become, and is to become, of an entry.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    /// The ledger knows it.
    pub(super) known: bool,
    /// The first page has not met it, so it is counted.
    pub(super) live: bool,
    /// It is not counted, but delivered: it is an import, or came before the first page with other filters.
    pub(super) only_sent: bool,
    /// It is not counted, and need not be delivered.
    pub(super) may_be_sent: bool,
}

/// A copy of the file, and what was true when it was made.
struct Backup {
    copy: Copy,
    fates: HashMap<String, Fate>,
    filters: Option<String>,
    uncounted_through: Option<Timestamp>,
    delivered: Delivered,
}

/// A time at which the first pass began at the top of the listing.
#[derive(Clone, Copy)]
pub(super) struct Beginning {
    pub(super) at: Timestamp,
    /// How many rows had arrived.
    pub(super) rows: usize,
}

impl World {
    pub(super) fn new(seed: u64, files: PathBuf, prints: bool) -> Arc<Self> {
        let plan = Plan::new(seed);
        let config = Config {
            seed,
            history: plan.history,
            history_span: Duration::from_secs(plan.history * 20),
            tickets: plan.tickets,
            readings: plan.readings,
            ..Config::quiet()
        };
        let sim = Simulator::new(config);
        let mut seeds = Rng::with_seed(!seed);
        let mut rng = || seeds.fork();
        let ahead = SignedDuration::from_millis(plan.ahead);
        let state = State {
            epoch: sim.now() - ahead,
            world: rng(),
            network: rng(),
            left: plan.changes,
            was_empty: true,
            files: Files::new(files, rng()),
            collector: Collector::new(rng()),
            prints,
            operators: rng(),
            ..State::default()
        };
        let world = Self {
            sim,
            crashed: Notify::new(),
            done: Notify::new(),
            clock: Mutex::default(),
            changes: Mutex::default(),
            state: Mutex::new(state),
            plan,
        };
        world.arrived(&mut world.state(), None, true);
        Arc::new(world)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Ends the history, because something is not as it must be.
    pub(super) fn fail(&self, state: &mut State, failure: String) {
        if state.failure.is_none() {
            state.note(&failure, 0, 0);
            let at = state.now();
            let (life, seed) = (state.life, self.plan.seed);
            state.failure = Some(format!("seed {seed}, life {life}, {at:.3?}: {failure}"));
        }
        state.has_crashed = true;
        self.crashed.notify_one();
    }

    /// Passes a point at which the exporter may crash; returns whether it has.
    pub(super) fn point(&self, state: &mut State) -> bool {
        state.points += 1;
        if let End::Crash(points) | End::PowerCut(points) = state.end
            && state.points >= points
            && !state.has_crashed
        {
            state.note("crash", state.points, 0);
            state.has_crashed = true;
            self.crashed.notify_one();
        }
        state.has_crashed
    }

    /// Passes a point, and never returns if the exporter has crashed.
    pub(super) async fn pass(&self) {
        if self.point(&mut self.state()) {
            std::future::pending().await
        }
    }

    /// The clock of a new runtime goes on where that of the last one ended.
    pub(super) fn begin_runtime(self: &Arc<Self>) {
        let mut state = self.state();
        state.began = Some(Instant::now());
        *lock(&self.clock) = Some((Instant::now(), state.epoch + state.begun_at));
    }

    pub(super) fn end_runtime(&self) {
        let mut state = self.state();
        state.begun_at = state.now();
        state.began = None;
        state.metrics = None;
        *lock(&self.clock) = None;
        lock(&self.changes).clear();
    }

    /// Another life of the exporter begins, after the time that is returned.
    pub(super) fn begin_life(&self) -> Duration {
        let state = &mut *self.state();
        state.life += 1;
        (state.points, state.has_crashed) = (0, false);
        state.shown.clear();
        state.has_released |= state.is_mid_sweep;
        let rng = &mut state.world;
        let is_last = state.calm_at.is_some() || state.life > LIVES;
        state.end = if is_last { End::Never } else { End::draw(rng) };
        if !is_last && self.plan.takeovers && one_in(&mut state.operators, 3) {
            state.end = End::Takeover(spread(&mut state.operators, 100, 1_200_000));
        }
        let pause = match state.life {
            1 => Duration::ZERO,
            _ if one_in(rng, 6) => spread(rng, 60_000, 900_000),
            _ => spread(rng, 1, 10_000),
        };
        if self.plan.filters && one_in(&mut state.operators, 4) {
            let all = simulator::activity_types().map(str::to_owned);
            state.filters = if state.filters.is_empty() {
                all.collect()
            } else {
                Vec::new()
            };
        }
        state.note("life", state.life.into(), pause.as_millis() as u64);
        if self.plan.restores && state.begun && state.calm_at.is_none() {
            self.operate(state);
        }
        pause
    }

    /// An operator copies the file, or puts the last copy back.
    fn operate(&self, state: &mut State) {
        let which = state.operators.u8(0..4);
        let restored = state.backup.as_ref().filter(|_| which == 0);
        if let Some(backup) = restored {
            state.files.put_back(Some(backup.copy.clone()));
            for row in &mut state.rows {
                // What came later is to be counted, whatever other filters have made of it since.
                row.fate = backup.fates.get(&row.id).copied().unwrap_or(Fate {
                    live: !row.is_import,
                    only_sent: row.is_import,
                    ..Fate::default()
                });
            }
            state.synced_filters.clone_from(&backup.filters);
            state.uncounted_through = backup.uncounted_through;
            state.collector.forget_since(&backup.delivered);
            state.watermarks = [None; 2];
            state.note("restored", 0, 0);
        } else if which < 3
            && let Some(copy) = state.files.copy()
        {
            let fates = state.rows.iter().map(|row| (row.id.clone(), row.fate));
            state.backup = Some(Backup {
                copy,
                fates: fates.collect(),
                filters: state.synced_filters.clone(),
                uncounted_through: state.uncounted_through,
                delivered: state.collector.delivered(),
            });
            state.note("copied", 0, 0);
        }
    }

    /// Another exporter opens the file.
    pub(super) fn take_over(&self) {
        let state = &mut *self.state();
        state.files.take_over();
        state.note("taken over", state.files.is_taken.into(), 0);
    }

    /// Sets the service's clock.
    pub(super) fn tick(&self, state: &State) {
        let ahead = SignedDuration::from_millis(self.plan.ahead);
        self.sim.set_clock(state.epoch + state.now() + ahead);
    }

    /// Goes on for ever.
    pub(super) async fn script(self: &Arc<Self>) {
        loop {
            let wait = {
                let state = self.state();
                let heal = [state.heal_api_at, state.files.heal_at].into_iter();
                let next = heal.flatten().fold(state.next, Duration::min);
                next.saturating_sub(state.now())
            };
            sleep(wait).await;
            let (is_running, changes) = {
                let state = &mut *self.state();
                self.tick(state);
                self.heal(state);
                if state.now() >= state.next && !state.has_crashed {
                    match state.calm_at {
                        Some(since) => self.look_for_rest(state, since),
                        None => self.act(state),
                    }
                }
                let changes = std::mem::take(&mut state.files.changes);
                (state.metrics.is_some(), changes)
            };
            for change in changes.into_iter().filter(|_| is_running) {
                // It shows in a call of the disk.
                let world = Arc::clone(self);
                let call = move || lock(&world.changes).push(change);
                let _ = Arc::clone(self).start(Box::new(call)).await;
            }
        }
    }

    fn heal(&self, state: &mut State) {
        let now = state.now();
        if state.heal_api_at.is_some_and(|at| at <= now) {
            state.note("api works", 0, 0);
            self.sim.clear_faults();
            state.heal_api_at = None;
        }
        if state.files.heal_at.is_some_and(|at| at <= now) {
            state.note("disk works", 0, 0);
            state.files.heal();
        }
    }

    fn look_for_rest(&self, state: &mut State, since: Duration) {
        state.next = state.now() + LOOK;
        let rest = self.is_at_rest(state, since);
        if rest.is_ok() {
            state.note("rest", 0, 0);
            state.next += REST;
            self.done.notify_one();
        } else if state.now() > since + REST {
            let scrape = state.metrics.as_ref().map(rendered);
            let reasons = scrape
                .iter()
                .flat_map(|it| it.series("orgdata_last_failure_info"));
            let reasons: Vec<_> = reasons.map(|(labels, _)| labels).collect();
            let failure = format!("it does not come to rest: {rest:?}; {reasons:?}");
            self.fail(state, failure);
        } else {
            // Poison records that nothing else waits with look like a broken collector: another event tells them apart.
            if rest == Err(WAITS) && state.world.u8(0..16) == 0 {
                self.events(state, 1, true);
            }
            self.scrape(state);
        }
    }

    /// Something happens.
    fn act(&self, state: &mut State) {
        if state.left == 0 {
            self.be_calm(state);
            return;
        }
        state.left -= 1;
        let now = state.now();
        let rng = &mut state.world;
        state.next = now
            + match rng.u8(0..8) {
                0..3 => Duration::from_millis(rng.u64(0..300)),
                3..7 => spread(rng, 300, 120_000),
                _ => spread(rng, 120_000, 900_000),
            };
        let times = rng.u64(1..7);
        match rng.u8(0..32) {
            0..11 => {
                let count = rng.u64(1..4);
                self.events(state, count, false);
            }
            11..13 => {
                let count = rng.u64(4..40);
                self.events(state, count, false);
            }
            13..16 => self.late(state),
            16..18 => {
                let fault = fault(rng).times(times);
                state.note(&format!("{fault:?}"), 0, 0);
                self.sim.fault(fault);
            }
            18 => {
                let fault = fault(rng);
                state.heal_api_at = Some(now + spread(rng, 1_000, 1_200_000));
                state.note(&format!("{fault:?}"), 1, 0);
                self.sim.fault(fault);
            }
            19 => {
                let row = state.rows.last().map(|row| row.id.clone());
                if let Some(id) = row {
                    state.heal_api_at = Some(now + spread(rng, 1_000, 1_200_000));
                    state.note("unreadable row", 0, 0);
                    let fault = Fault::new(FaultKind::Poison(id));
                    self.sim.fault(fault.on(Endpoint::Audit));
                }
            }
            20 => {
                state.old_key_until = now + spread(rng, 1_000, 600_000);
                state.note("key rotates", 0, 0);
            }
            21..23 => {
                let (until, kind) = (now + spread(rng, 1_000, 1_200_000), rng.u8(..));
                state.collector.fail(until, kind);
                state.note("collector fails", u64::from(kind), 0);
            }
            23..25 => {
                let (until, kind) = (now + spread(rng, 300, 600_000), rng.u8(..));
                let kind = state.files.fail(until, kind);
                state.note("disk fails", kind, 0);
                // After a commit that failed, the sweep under way is forgotten, as after a restart.
                state.has_released = true;
            }
            25 => {
                let count = state.files.replay();
                state.note("replay", count as u64, 0);
            }
            26 => self.retain(state),
            27..30 => self.ticket(state, now),
            _ => self.scrape(state),
        }
    }

    /// From now on everything works, and nothing happens but two events: what is gone without a trace is only seen beside something new, and
    /// a record is only found to be poison beside another one.
    fn be_calm(&self, state: &mut State) {
        let now = state.now();
        state.note("calm", 0, 0);
        state.calm_at = Some(now);
        state.next = now + LOOK;
        state.end = End::Never;
        self.sim.clear_faults();
        state.heal_api_at = None;
        state.old_key_until = now;
        state.files.heal();
        state.collector.fail(now, 0);
        self.events(state, 2, true);
    }

    fn events(&self, state: &mut State, count: u64, good: bool) {
        // Events are spread over the last milliseconds, and none is dated before the beginning, or it need not be taken.
        let room = state.beginnings.last().map_or(u64::MAX, |beginning| {
            let since = self.sim.now().duration_since(beginning.at).as_millis();
            u64::try_from(since).unwrap_or(0)
        });
        let count = count.min(room);
        if count == 0 {
            return;
        }
        let mark = self.sim.mark();
        if !good && state.world.f64() < self.plan.malformed {
            let fields = Fields::new().with("type", serde_json::Value::Null);
            self.sim.add_entry(&fields).unwrap();
        }
        self.sim.add_events(count);
        state.note("events", count, 0);
        self.arrived(state, Some(mark), good);
    }

    /// Rows appear below others, or are dated in the future. Only what was created since the beginning must be counted, so nothing else
    /// arrives late.
    fn late(&self, state: &mut State) {
        let Some(beginning) = state.beginnings.last().copied().filter(|_| state.begun) else {
            return;
        };
        if self.plan.imports && one_in(&mut state.operators, 2) {
            self.import(state);
            return;
        }
        let most = (self.plan.window.as_millis() / 2) as u64;
        let (count, behind) = (state.world.u64(1..4), spread(&mut state.world, 1, most));
        // The beginning by the clock that the exporter goes by, if it is the later one.
        let behind_it = SignedDuration::from_millis((self.plan.ahead() - self.plan.ahead).max(0));
        let floor = beginning.at + behind_it;
        let mark = self.sim.mark();
        for i in 0..count {
            let now = self.sim.now();
            let at = match i {
                1 if self.plan.for_ever && state.for_ever < 5 => {
                    state.for_ever += 1;
                    now + SignedDuration::from_hours(24 * 365 * 60)
                }
                1 if self.plan.future => now + behind,
                _ => now - behind - Duration::from_millis(i),
            };
            let at = at.max(floor + SignedDuration::from_millis(1));
            let fields = Fields::new().with("createdAt", at.to_string());
            self.sim.add_entry(&fields).unwrap();
        }
        state.note("late", count, behind.as_millis() as u64);
        let first = state.rows.len();
        self.arrived(state, Some(mark), false);
        for row in &mut state.rows[first..] {
            row.leaves_no_trace = true;
        }
    }

    /// Entries of last year appear on top.
    fn import(&self, state: &mut State) {
        let (count, mark) = (state.operators.u64(1..60), self.sim.mark());
        let last_year = self.sim.now() - SignedDuration::from_hours(24 * 365);
        for i in 0..count {
            let at = last_year + Duration::from_secs(i);
            let fields = Fields::new().with("createdAt", at.to_string());
            self.sim.add_entry(&fields).unwrap();
        }
        state.note("import", count, 0);
        let first = state.rows.len();
        self.arrived(state, Some(mark), true);
        for row in &mut state.rows[first..] {
            (row.is_import, row.leaves_no_trace) = (true, true);
            (row.fate.live, row.fate.only_sent) = (false, true);
        }
    }

    /// Takes note of new rows.
    fn arrived(&self, state: &mut State, mark: Option<Moment>, good: bool) {
        let scope = mark.map_or(Scope::default(), Scope::arrived_since);
        let mut newest = state.rows.iter().map(|row| row.created).max();
        for entry in self.sim.entries_of(scope) {
            let actor = entry.actor.map_or("none".to_owned(), |id| id.to_string());
            if !good && state.world.f64() < self.plan.poison {
                state.collector.poison.insert(entry.id.clone());
            }
            state.rows.push(Row {
                number: state.arrived,
                event: Entry::read(&entry.json).id,
                created: entry.created_at,
                malformed: entry.activity_type.is_empty(),
                series: (entry.activity_type, actor),
                in_order: newest <= Some(entry.created_at),
                is_late: mark.is_some()
                    && entry.created_at < self.sim.now() - Duration::from_secs(1),
                leaves_no_trace: false,
                gone: false,
                is_import: false,
                fate: Fate {
                    live: state.begun,
                    ..Fate::default()
                },
                id: entry.id,
            });
            state.arrived += 1;
            newest = newest.max(Some(entry.created_at));
        }
    }

    /// The service deletes what is old.
    fn retain(&self, state: &mut State) {
        let Some(age) = self.plan.retention else {
            return;
        };
        let oldest = self.sim.now() - age;
        let there: Vec<_> = self.sim.entries().collect();
        let old = there.iter().take_while(|entry| entry.created_at < oldest);
        let old: HashSet<&str> = old.map(|entry| entry.id.as_str()).collect();
        self.sim.retain((there.len() - old.len()) as u64);
        state.note("retention", old.len() as u64, 0);
        // Only an entry that was read shows by its absence that others may be missing, unless the listing is empty without an outage.
        let is_first = state.was_empty || !state.rows.iter().any(|row| row.fate.known);
        let through = state.watermarks[0].map(|through| self.sim.now().duration_since(through));
        let patience = self.plan.reread + UNSAVED;
        let is_soon = through.is_none_or(|through| through.unsigned_abs() <= patience);
        let is_empty = old.len() == there.len();
        for row in &mut state.rows {
            row.gone |= old.contains(row.id.as_str());
            row.leaves_no_trace |= row.gone && (is_first || (is_empty && is_soon));
        }
    }

    fn ticket(&self, state: &mut State, now: Duration) {
        let (rng, ids) = (&mut state.world, self.sim.ticket_ids());
        let id = (!ids.is_empty()).then(|| ids[rng.usize(0..ids.len())]);
        match (rng.u8(0..3), id) {
            (0, Some(id)) => self.sim.remove_ticket(id).unwrap(),
            (1, Some(id)) => {
                let fields = Fields::new().with("state", "CLOSED");
                self.sim.change_ticket(id, fields).unwrap();
            }
            _ => drop(self.sim.add_ticket(Fields::new()).unwrap()),
        }
        state.note("ticket", now.as_millis() as u64, 0);
    }

    /// Renders `/metrics`: no counter is lower than before, and none is higher than what is on the disk.
    fn scrape(&self, state: &mut State) {
        let Some(metrics) = state.metrics.clone() else {
            return;
        };
        let began = Instant::now();
        let scrape = rendered(&metrics);
        metrics.audit.scraped(began);
        let shown = scrape.series("orgdata_audit_events_total");
        let shown = shown.map(|(labels, value)| {
            let [activity_type, actor] = labels.try_into().unwrap();
            ((activity_type, actor), value as u64)
        });
        let shown: BTreeMap<_, _> = shown.collect();
        for (series, before) in &state.shown {
            if shown.get(series).is_none_or(|now| now < before) {
                let failure = format!("{series:?} was {before} and is {:?}", shown.get(series));
                return self.fail(state, failure);
            }
        }
        for (series, value) in &shown {
            let counted = state.files.counted.get(series).copied().unwrap_or(0);
            if *value > counted {
                let failure = format!("{series:?} is shown as {value}, but is {counted}");
                return self.fail(state, failure);
            }
        }
        state.shown = shown;
    }

    /// Returns whether the next page of the top is a first page, or one with other filters.
    pub(super) fn is_beginning(&self, state: &State) -> bool {
        !state.begun || state.synced_filters != Some(fingerprint(&state.filters))
    }

    /// The first page is read.
    pub(super) fn begins(&self, state: &mut State) {
        let there: HashSet<String> = self.sim.entries().map(|entry| entry.id).collect();
        // What is gone before need not be taken.
        let is_there = |row: &Row| row.fate.known || there.contains(&row.id);
        state.rows.retain(is_there);
        state.beginnings.push(Beginning {
            at: self.sim.now(),
            rows: state.arrived,
        });
    }
}

/// Renders `/metrics`, as a scraper sees it.
pub(super) fn rendered(metrics: &Metrics) -> Scrape {
    Scrape(Format::OpenMetrics.encode(metrics.registry()).unwrap())
}

/// Locks what is still right after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns how the state file names filters for these types.
pub(super) fn fingerprint(activity_types: &[String]) -> String {
    let filters = Filters {
        activity_types: activity_types.to_vec(),
        ..Filters::default()
    };
    filters.fingerprint()
}

impl State {
    /// Returns the time since the beginning of the world.
    pub(super) fn now(&self) -> Duration {
        self.begun_at + self.began.map_or(Duration::ZERO, |began| began.elapsed())
    }

    /// Writes a line of the trace.
    pub(super) fn note(&mut self, what: &str, a: u64, b: u64) {
        let at = self.now();
        (at, what, a, b).hash(&mut self.trace);
        if self.prints {
            println!("{:>12.3} {} {what} {a} {b}", at.as_secs_f64(), self.life);
        }
    }

    pub(super) fn trace(&self) -> u64 {
        self.trace.finish()
    }
}
