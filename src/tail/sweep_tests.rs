//! Thousands of random histories: does the state machine take every entry once, whatever happens between two requests?
//!
//! The service lists by creation or by arrival, with entries dated ahead; its cursors are inclusive or not, positions or pointers to rows that
//! may be deleted; pages are capped, or filtered after they were cut; entries come late, are deleted, or disappear with age; pages fail for a
//! while or are empty by accident; cursors expire and are refused, answered with nothing, or with the newest page. The exporter crashes before
//! or after any request and any commit, and is off for longer than the window.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::start::Start;
use super::step::{Limits, Page, Request, Row, Step, Task};
use super::sweep::Sweep;
use super::walk::Cause;
use crate::ledger::{Disposition, EventId, Standing, TailState};

/// The re-read window and interval, in seconds.
const WINDOW: i64 = 40;
const INTERVAL: u64 = 5;

/// What answers a request, or does not.
enum Answer {
    Page(Vec<(u64, i64)>, Option<String>),
    Failed,
    Refused,
}

#[derive(Clone, Copy, PartialEq)]
enum Expired {
    Refused,
    Nothing,
    Newest,
}

#[derive(Clone, PartialEq)]
struct Entry {
    /// What the listing is sorted by.
    key: (i64, u64),
    at: i64,
    id: u64,
    is_visible: bool,
    /// The service's clock when it was added.
    added: i64,
}

struct Service {
    /// Newest first.
    entries: Vec<Entry>,
    clock: i64,
    last: u64,
    inclusive: bool,
    by_arrival: bool,
    pointers: bool,
    sparse: bool,
    cap: usize,
    expired: Expired,
    ahead: i64,
    /// Inserted below a newer entry, and deleted with age.
    below: BTreeSet<u64>,
    gone: BTreeSet<u64>,
    broken: u32,
    age: u32,
    glitch: u8,
}

struct World {
    seed: u64,
    rng: Rng,
    service: Service,
    calm: bool,
    lossy: bool,
    erasing: bool,
    down: bool,
    page_size: u32,
    start: Start,
    // What the ledger holds.
    stored: TailState,
    known: HashMap<u64, (i64, i64)>,
    pruned: Option<i64>,
    newest: Option<i64>,
    taken: BTreeMap<u64, Disposition>,
    gaps: u32,
    sweep: Sweep,
    /// Time passes by a second at each request.
    at: Duration,
}

/// The process ends here.
struct Crash;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn chance(rng: &mut Rng, probability: f64) -> bool {
    rng.f64() < probability
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(0..of.len())]
}

// === impl Service ===

impl Service {
    fn new(rng: &mut Rng) -> Self {
        Self {
            entries: Vec::new(),
            clock: 0,
            last: 0,
            inclusive: chance(rng, 0.2),
            by_arrival: chance(rng, 0.2),
            pointers: chance(rng, 0.2),
            sparse: chance(rng, 0.2),
            cap: pick(rng, &[2, 3, 5, 100]),
            expired: pick(rng, &[Expired::Refused, Expired::Nothing, Expired::Newest]),
            ahead: pick(rng, &[0, 0, 0, 3, 15]),
            below: BTreeSet::new(),
            gone: BTreeSet::new(),
            broken: 0,
            age: 0,
            glitch: 0,
        }
    }

    fn add(&mut self, rng: &mut Rng, is_late: bool) {
        self.last += 1;
        self.clock += pick(rng, &[0, 0, 1, 1, 2]);
        let at = match is_late {
            true => (self.clock - rng.i64(1..30)).max(0),
            false if chance(rng, 0.4) => self.clock + self.ahead,
            false => self.clock,
        };
        let (id, key) = match self.by_arrival {
            true => (self.last, (self.last.cast_signed(), 0)),
            false => (self.last, (at, self.last)),
        };
        if self.entries.first().is_some_and(|first| key < first.key) {
            self.below.insert(id);
        }
        let place = self.entries.partition_point(|entry| entry.key > key);
        let is_visible = !self.sparse || id % 4 == 0;
        let entry = Entry {
            key,
            at,
            id,
            is_visible,
            added: self.clock,
        };
        self.entries.insert(place, entry);
    }

    fn visible(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_visible)
    }

    fn page(&mut self, before: Option<&str>, limit: usize) -> Answer {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        if let Some(cursor) = before {
            let parts = cursor.split('.').map(|part| part.parse().unwrap());
            let parts: Vec<i64> = parts.collect();
            let is_fresh = parts[0] == i64::from(self.age);
            let key = (parts[1], parts[2].cast_unsigned());
            if self.broken > 0 {
                self.broken -= 1;
                return Answer::Failed;
            }
            if self.glitch == 1 {
                self.glitch = 2;
                return Answer::Page(vec![], None);
            }
            if self.pointers && !entries.iter().any(|entry| entry.key == key) {
                return Answer::Refused;
            }
            match self.expired {
                _ if is_fresh => {
                    entries.retain(|entry| entry.key < key || (self.inclusive && entry.key == key))
                }
                Expired::Refused => return Answer::Refused,
                Expired::Nothing => return Answer::Page(vec![], None),
                Expired::Newest => {}
            }
        }
        entries.truncate(limit.min(self.cap));
        let last = entries.last().map(|last| last.key);
        let end = last.map(|(at, id)| format!("{}.{at}.{id}", self.age));
        let shown = entries.into_iter().filter(|entry| entry.is_visible);
        Answer::Page(shown.map(|entry| (entry.id, entry.at)).collect(), end)
    }
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut service = Service::new(&mut rng);
        for _ in 0..pick(&mut rng, &[0, 5, 20, 150]) {
            service.add(&mut rng, false);
        }
        let start = match pick(&mut rng, &[0, 0, 5, 1000]) {
            0 => Start::Now,
            back => Start::At(time(service.clock - back)),
        };
        let page_size = pick(&mut rng, &[2, 3, 7, 50]);
        let [lossy, erasing, down] = [0.15, 0.2, 0.3].map(|of| chance(&mut rng, of));
        let stored = TailState::new(String::new());
        let sweep = Sweep::new(stored.clone(), limits(page_size, start), None, None);
        Self {
            seed,
            rng,
            service,
            calm: true,
            lossy,
            erasing,
            down,
            page_size,
            start,
            stored,
            known: HashMap::new(),
            pruned: None,
            newest: None,
            taken: BTreeMap::new(),
            gaps: 0,
            sweep,
            at: Duration::ZERO,
        }
    }

    /// Something happens between two steps of the exporter.
    fn chaos(&mut self) -> Result<(), Crash> {
        if self.calm {
            return Ok(());
        }
        let (rng, service) = (&mut self.rng, &mut self.service);
        match rng.f64() {
            r if r < 0.15 => {
                for _ in 0..pick(rng, &[1, 1, 2, 3, 10, 30]) {
                    service.add(rng, false);
                }
            }
            r if r < 0.19 => service.add(rng, true),
            r if r < 0.20 && self.lossy => {
                let left = service.entries.len().saturating_sub(rng.usize(1..30));
                for entry in service.entries.split_off(left) {
                    if entry.is_visible {
                        service.gone.insert(entry.id);
                    }
                }
            }
            r if r < 0.203 && self.erasing && !service.entries.is_empty() => {
                service.entries.remove(rng.usize(0..service.entries.len()));
            }
            r if r < 0.206 => {
                service.age += 1;
                self.at += Duration::from_secs(60);
            }
            // Two accidents in a row would be the end of the listing.
            r if r < 0.212 && service.glitch == 0 && service.expired != Expired::Nothing => {
                service.glitch = 1;
            }
            r if r < 0.22 => service.broken = rng.u32(1..12),
            r if r < 0.243 && self.down => {
                for _ in 0..pick(rng, &[60, 200]) {
                    let is_late = chance(rng, 0.04);
                    service.add(rng, is_late);
                }
                return Err(Crash);
            }
            r if r < 0.25 => return Err(Crash),
            _ => {}
        }
        Ok(())
    }

    fn restart(&mut self) {
        let (newest, pruned) = (self.newest.map(time), self.pruned.map(time));
        let limits = limits(self.page_size, self.start);
        self.sweep = Sweep::new(self.stored.clone(), limits, newest, pruned);
    }

    /// One request of a task; reports whether it had one.
    fn round(&mut self, task: Task) -> Result<bool, Crash> {
        if task == Task::Reread {
            self.sweep.begin_reread(self.at);
        }
        let Some(request) = self.sweep.request(task) else {
            return Ok(false);
        };
        let requested = self.at;
        self.chaos()?;
        let before = request.before.as_deref();
        let answer = self.service.page(before, request.limit as usize);
        let now = time(self.service.clock);
        self.chaos()?;
        self.at += Duration::from_secs(1);
        match answer {
            Answer::Failed => drop(self.sweep.failed(&request, Cause::Page)),
            Answer::Refused => drop(self.sweep.failed(&request, Cause::Refused)),
            Answer::Page(rows, end) => self.take(&request, rows, end, now, requested)?,
        }
        Ok(true)
    }

    fn take(
        &mut self,
        request: &Request,
        found: Vec<(u64, i64)>,
        end: Option<String>,
        now: Timestamp,
        requested: Duration,
    ) -> Result<(), Crash> {
        let number = self.sweep.state.number;
        let standing = |id: &u64| match self.known.get(id) {
            None => Standing::Unknown,
            Some((sweep, _)) if *sweep > number => Standing::Upper,
            Some((sweep, _)) if *sweep == number => Standing::Current,
            Some(_) => Standing::Settled,
        };
        let rows = found.iter().map(|(id, at)| Row {
            id: EventId(*id),
            at: Some(time(*at)),
            standing: standing(id),
        });
        let page = Page {
            rows: rows.collect(),
            end,
            now,
            requested,
            at: self.at,
        };
        let step = self.sweep.page(request, &page, Timestamp::UNIX_EPOCH);
        if step.must_save {
            self.chaos()?;
            self.commit(step, &found);
            self.chaos()?;
        }
        Ok(())
    }

    fn commit(&mut self, step: Step, found: &[(u64, i64)]) {
        for (index, taken) in step.take {
            let (id, at) = found[index];
            self.known.insert(id, (step.number, at));
            self.newest = self.newest.max(Some(at));
            // What may have been known once is delivered again, and not counted.
            if !matches!(taken, Disposition::Ignored | Disposition::Backdated) {
                let before = self.taken.insert(id, taken);
                assert_eq!(before, None, "seed {}: {id} is taken twice", self.seed);
            }
        }
        self.gaps += u32::from(step.gap.is_some());
        let before = self.stored.complete_through;
        self.stored = self.sweep.state.clone();
        assert!(self.stored.complete_through >= before, "seed {}", self.seed);
        self.check_complete();
    }

    /// What was listed at the time that the tail claims to be complete through is taken, unless it came late.
    fn check_complete(&self) {
        let through = self.stored.complete_through;
        let watermark = self.stored.floor.max(self.pruned.map(time));
        let is_missing = |entry: &&Entry| {
            Some(time(entry.added)) < through
                && Some(time(entry.at)) <= through
                && Some(time(entry.at)) > watermark
                && !self.known.contains_key(&entry.id)
                && !self.service.below.contains(&entry.id)
        };
        let missing: Vec<u64> = self
            .service
            .visible()
            .filter(is_missing)
            .map(|entry| entry.id)
            .collect();
        assert!(
            missing.is_empty(),
            "seed {}: complete through {through:?} without {missing:?}",
            self.seed
        );
    }

    /// Forgets old ids, as the ledger does, of which it keeps the newest.
    fn prune(&mut self) {
        let state = &self.stored;
        let (Some(read_to), None, None) = (state.read_to, &state.first, &state.history) else {
            return;
        };
        let cutoff = time(self.service.clock - 2 * WINDOW).min(read_to);
        let known = self.known.iter();
        let known = known.map(|(id, (sweep, at))| (*sweep, *at, *id));
        let mut settled: Vec<_> = known.filter(|known| known.0 < state.number).collect();
        settled.sort_unstable();
        let kept = settled.len().saturating_sub(20);
        for (_, at, id) in &settled[..kept] {
            if time(*at) < cutoff {
                self.known.remove(id);
                self.pruned = self.pruned.max(Some(*at));
            }
        }
        self.sweep.pruned(self.pruned.map(time));
    }

    fn drain(&mut self, task: Task) {
        for _ in 0..8000 {
            match self.round(task) {
                Ok(true) => {}
                _ => return,
            }
            if task == Task::Reread && !self.sweep.is_rereading() {
                return;
            }
        }
        panic!("seed {}: {task:?} does not end", self.seed);
    }

    fn poll(&mut self) {
        drop(self.round(Task::Poll));
        self.drain(Task::Sweep);
    }

    /// Returns what came after the start, should have been counted or delivered, and was not.
    fn missing(&self, base: u64) -> BTreeSet<u64> {
        let watermark = self.stored.floor.max(self.pruned.map(time));
        let is_wanted = |entry: &&Entry| entry.id > base && Some(time(entry.at)) > watermark;
        let wanted = self.service.visible().filter(is_wanted);
        self.not_taken(wanted).collect()
    }

    fn not_taken<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> impl Iterator<Item = u64> {
        let ids = entries.map(|entry| entry.id);
        ids.filter(|id| !self.taken.contains_key(id))
    }

    fn play(mut self) {
        let seed = self.seed;
        self.drain(Task::First);
        self.calm = false;
        let there: Vec<Entry> = self.service.visible().cloned().collect();
        let base = self.service.last;
        let floor = self.stored.history.as_ref().map(|history| history.from);
        for _ in 0..self.rng.u32(3..60) {
            let result = match self.rng.f64() {
                r if r < 0.4 && self.sweep.is_begun() => self.round(Task::Poll),
                r if r < 0.4 => self.round(Task::First),
                r if r > 0.95 => {
                    self.prune();
                    Ok(true)
                }
                r if r > 0.9 => self.round(Task::History),
                r if r < 0.8 => match self.round(Task::Sweep) {
                    Ok(false) => self.round(Task::Reread),
                    other => other,
                },
                _ => self.round(Task::Reread),
            };
            if result.is_err() {
                self.restart();
            }
        }
        self.calm = true;
        (self.service.broken, self.service.glitch) = (0, 2);
        self.poll();
        let is_whole = !self.lossy && !self.erasing;
        let is_plain = !self.service.sparse && self.service.ahead == 0;
        if self.sweep.is_begun() && is_plain && is_whole {
            let missing = self.missing(base);
            let missing: Vec<_> = missing.difference(&self.service.below).collect();
            let is_none = missing.is_empty();
            assert!(is_none, "seed {seed}: polls and sweeps missed {missing:?}");
        }
        self.poll();
        self.drain(Task::History);
        self.poll();
        // A re-read may be under way, and have passed what came meanwhile; it is given up if its place is lost.
        for _ in 0..3 {
            self.at += Duration::from_secs(WINDOW.cast_unsigned());
            self.drain(Task::Reread);
        }
        let missing = self.missing(base);
        assert!(missing.is_empty(), "seed {seed}: missed {missing:?}");
        for entry in &there {
            let taken = self.taken.get(&entry.id);
            let is_counted = matches!(taken, Some(Disposition::Live | Disposition::Late));
            assert!(
                !is_counted,
                "seed {seed}: {} is history, and counted",
                entry.id
            );
        }
        if let Some(floor) = floor {
            let is_old =
                |entry: &&Entry| time(entry.at) >= floor && self.service.entries.contains(entry);
            let missing: Vec<u64> = self.not_taken(there.iter().filter(is_old)).collect();
            assert!(
                missing.is_empty(),
                "seed {seed}: history missed {missing:?}"
            );
        }
        if is_whole {
            assert_eq!(self.gaps, 0, "seed {seed}: a gap, and nothing was lost");
        }
    }
}

fn limits(page_size: u32, start: Start) -> Limits {
    Limits {
        page_size,
        reread_interval: Duration::from_secs(INTERVAL),
        window: Duration::from_secs(WINDOW.cast_unsigned()),
        start,
    }
}

#[test]
fn every_entry_is_taken_once_in_any_history() {
    let first = std::env::var("FIRST_SEED").map_or(0, |seed| seed.parse().unwrap());
    let seeds = std::env::var("SEEDS").map_or(3000, |seeds| seeds.parse().unwrap());
    for seed in first..first + seeds {
        World::new(seed).play();
    }
}
