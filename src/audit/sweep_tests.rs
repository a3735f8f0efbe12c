//! Thousands of random histories: does the state machine take every entry once, whatever happens between two requests?
//!
//! The API lists by creation or by arrival, with entries dated ahead, a little or for ever; its cursors are inclusive or not, positions or pointers
//! to rows that may be deleted; pages are capped, or filtered after they were cut; entries come late, in transactions that commit late, or as
//! imports of old ones; they are deleted, the newest too, or disappear with age; pages fail for a while or are empty by accident, the first one
//! too; cursors expire and are refused, answered with nothing, or with the newest page. The exporter crashes before or after any request and
//! any commit, is off for longer than the window, and gets other filters.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::entry;
use super::start::Start;
use super::state::TailState;
use super::sweep::{Cause, Problem, ReadPage, Request, Step, Task, WalkSettings, Walks};
use crate::ledger::{Disposition, EventId, Seen};

/// The re-read window and interval, in seconds.
const WINDOW: u64 = 40;
const INTERVAL: u64 = 5;
/// A walk that takes more requests has no end.
const MAX_ROUNDS: u32 = 40_000;
/// After so many failures, more of them say nothing new.
const ENOUGH_FAILURES: u32 = 10;

/// What answers a request, or does not.
enum Answer {
    /// Entries, the cursor, and whether there are more.
    Page(Vec<(u64, i64)>, Option<String>, bool),
    Failed,
    Refused,
}

#[derive(Clone, Copy, PartialEq)]
enum Expired {
    Refused,
    Nothing,
    Newest,
}

/// How an entry is added.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Now,
    Late,
    Import,
}

#[derive(Clone, PartialEq)]
struct Entry {
    /// What the listing is sorted by.
    key: (i64, u64),
    at: i64,
    id: u64,
    is_visible: bool,
    /// The API's clock when it was added.
    added: i64,
}

struct Api {
    /// Newest first.
    entries: Vec<Entry>,
    /// The clock at each arrival.
    arrivals: Vec<i64>,
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
    gone: Vec<Entry>,
    /// At some time it had no entry that could be compared with.
    was_empty: bool,
    /// The next pages below the first that fail, and that are empty; the same for the first page.
    broken: u32,
    glitch: u32,
    empty_top: u32,
    age: u32,
}

struct World {
    seed: u64,
    rng: Rng,
    api: Api,
    /// The oldest time of history that is wanted, in seconds.
    from: Option<i64>,
    calm: bool,
    lossy: bool,
    erasing: bool,
    down: bool,
    empties: bool,
    imports: bool,
    glitches: u32,
    limits: WalkSettings,
    // What the ledger holds.
    stored: TailState,
    known: HashMap<u64, (u32, i64)>,
    pruned: Option<i64>,
    counted: BTreeSet<u64>,
    /// Delivered and not counted, because they may have been known once.
    backdated: BTreeSet<u64>,
    /// How often an entry was delivered that had been before.
    again: u32,
    /// The last entry when the first sync was stored.
    synced: u64,
    gaps: u32,
    cuts: u32,
    walks: Walks,
    /// The filters in use, and what decides whether they change: not the other numbers, so that kept seeds stay what they were.
    filters: String,
    changes: Option<Rng>,
    /// This machine's clock. Time passes by a second at each request.
    at: Timestamp,
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

// === impl Api ===

impl Api {
    fn new(rng: &mut Rng) -> Self {
        Self {
            entries: Vec::new(),
            arrivals: Vec::new(),
            clock: 0,
            last: 0,
            inclusive: chance(rng, 0.2),
            by_arrival: chance(rng, 0.2),
            pointers: chance(rng, 0.2),
            sparse: chance(rng, 0.2),
            cap: pick(rng, &[2, 3, 5, 100]),
            expired: pick(rng, &[Expired::Refused, Expired::Nothing, Expired::Newest]),
            ahead: pick(rng, &[0, 0, 0, 3, 15, 90, 10_000]),
            below: BTreeSet::new(),
            gone: Vec::new(),
            was_empty: false,
            broken: 0,
            glitch: 0,
            empty_top: 0,
            age: 0,
        }
    }

    fn add(&mut self, rng: &mut Rng, how: How) {
        self.last += 1;
        self.clock += pick(rng, &[0, 0, 1, 1, 2]);
        let (id, arrived) = (self.last, self.arrivals.len().cast_signed() as i64);
        self.arrivals.push(self.clock);
        let mut at = match how {
            How::Late => (self.clock - rng.i64(1..30)).max(0),
            How::Import => (self.clock - rng.i64(200..900)).max(0),
            How::Now if chance(rng, 0.4) => self.clock + self.ahead,
            How::Now => self.clock,
        };
        let mut key = match self.by_arrival {
            true => (2 * arrived, 0),
            false => (at, id),
        };
        // A transaction that got its place in the order before others, and commits later.
        if self.by_arrival && how == How::Late && rng.bool() {
            let place = arrived - rng.i64(1..60);
            let got_at = usize::try_from(place)
                .ok()
                .map(|place| self.arrivals[place]);
            if got_at.is_some_and(|got_at| got_at >= self.clock - 30) {
                (key, at) = ((2 * place - 1, id), self.clock);
            }
        }
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
        if before.is_none() && self.empty_top > 0 {
            self.empty_top -= 1;
            return Answer::Page(vec![], None, false);
        }
        if let Some(cursor) = before {
            let parts = cursor.split('.').map(|part| part.parse().unwrap());
            let parts: Vec<i64> = parts.collect();
            let is_fresh = parts[0] == i64::from(self.age);
            let key = (parts[1], parts[2].cast_unsigned());
            if self.broken > 0 {
                self.broken -= 1;
                return Answer::Failed;
            }
            if self.glitch > 0 {
                self.glitch -= 1;
                return Answer::Page(vec![], None, false);
            }
            if self.pointers && !entries.iter().any(|entry| entry.key == key) {
                return Answer::Refused;
            }
            match self.expired {
                _ if is_fresh => {
                    entries.retain(|entry| entry.key < key || (self.inclusive && entry.key == key))
                }
                Expired::Refused => return Answer::Refused,
                Expired::Nothing => return Answer::Page(vec![], None, false),
                Expired::Newest => {}
            }
        }
        let limit = limit.min(self.cap);
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let last = entries.last().map(|last| last.key);
        let end = last.map(|(at, id)| format!("{}.{at}.{id}", self.age));
        let shown = entries.into_iter().filter(|entry| entry.is_visible);
        let shown = shown.map(|entry| (entry.id, entry.at)).collect();
        Answer::Page(shown, end, has_more)
    }
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut api = Api::new(&mut rng);
        for _ in 0..pick(&mut rng, &[0, 5, 20, 150]) {
            api.add(&mut rng, How::Now);
        }
        let from = match pick(&mut rng, &[0, 0, 5, 1000]) {
            0 => None,
            back => Some(api.clock - back),
        };
        let page_size = pick(&mut rng, &[2, 3, 7, 50]);
        let limits = WalkSettings {
            page_size,
            interval: Duration::from_secs(INTERVAL),
            window: Duration::from_secs(WINDOW),
            start: from.map_or(Start::Now, |from| Start::At(time(from))),
            created_at: time(0),
            max_pages: pick(&mut rng, &[1, 3, 8]),
            max_older: 2 * page_size + 600,
        };
        let [lossy, erasing, down, empties, imports] =
            [0.15, 0.2, 0.3, 0.3, 0.3].map(|probability| chance(&mut rng, probability));
        let stored = TailState::default();
        let mut changes = Rng::with_seed(!seed);
        if empties && chance(&mut changes, 0.3) {
            api.empty_top = 1;
        }
        Self {
            seed,
            filters: String::new(),
            changes: chance(&mut changes, 0.2).then_some(changes),
            glitches: pick(&mut rng, &[0, 0, 1, 2, 6]),
            rng,
            api,
            from,
            calm: true,
            lossy,
            erasing,
            down,
            empties,
            imports,
            walks: Walks::new(stored.clone(), limits.clone(), None, ""),
            limits,
            stored,
            known: HashMap::new(),
            pruned: None,
            counted: BTreeSet::new(),
            backdated: BTreeSet::new(),
            again: 0,
            synced: 0,
            gaps: 0,
            cuts: 0,
            at: time(0),
        }
    }

    /// Something happens between two steps of the exporter.
    fn chaos(&mut self) -> Result<(), Crash> {
        if self.calm {
            return Ok(());
        }
        let (rng, api) = (&mut self.rng, &mut self.api);
        match rng.f64() {
            r if r < 0.15 => {
                for _ in 0..pick(rng, &[1, 1, 2, 3, 10, 30]) {
                    api.add(rng, How::Now);
                }
            }
            r if r < 0.19 => api.add(rng, How::Late),
            r if r < 0.20 && self.lossy => {
                let left = api.entries.len().saturating_sub(rng.usize(1..30));
                let old = api.entries.split_off(left);
                api.gone
                    .extend(old.into_iter().filter(|entry| entry.is_visible));
                let is_empty = api.visible().next().is_none();
                api.was_empty |= is_empty;
            }
            r if r < 0.203 && self.erasing && !api.entries.is_empty() => {
                api.entries.remove(rng.usize(0..api.entries.len()));
            }
            r if r < 0.206 => {
                // Cursors live for ten minutes at least.
                api.age += 1;
                self.at += Duration::from_secs(601);
            }
            r if r < 0.212 && self.glitches > 0 => {
                api.glitch = std::mem::take(&mut self.glitches);
            }
            r if r < 0.215 && self.glitches == 0 && self.empties => api.empty_top = 1,
            r if r < 0.217 && self.imports => {
                for _ in 0..pick(rng, &[3, 40, 400]) {
                    api.add(rng, How::Import);
                }
            }
            r if r < 0.218 && self.erasing => {
                let newest = pick(rng, &[1, 12]).min(api.entries.len());
                api.entries.drain(..newest);
            }
            r if r < 0.22 => api.broken = rng.u32(1..12),
            r if r < 0.243 && self.down => {
                for _ in 0..pick(rng, &[60, 200]) {
                    let is_late = chance(rng, 0.04);
                    api.add(rng, if is_late { How::Late } else { How::Now });
                }
                return Err(Crash);
            }
            r if r < 0.25 => return Err(Crash),
            _ => {}
        }
        Ok(())
    }

    fn restart(&mut self) {
        let pruned = self.pruned.map(time);
        let stored = TailState::from_json(&self.stored.to_json()).unwrap();
        assert_eq!(stored, self.stored, "seed {}", self.seed);
        if let Some(rng) = &mut self.changes
            && chance(rng, 0.2)
        {
            self.filters = rng.u32(..).to_string();
        }
        self.walks = Walks::new(stored, self.limits.clone(), pruned, &self.filters);
    }

    /// One request of a task; reports whether it had one, and whether there was an answer that could be used.
    fn round(&mut self, task: Task) -> Result<bool, Crash> {
        let Some(request) = self.walks.request(task) else {
            return Ok(false);
        };
        self.chaos()?;
        let (as_of, requested_at) = (time(self.api.clock), self.at);
        let before = request.before.as_deref();
        let answer = self.api.page(before, request.limit as usize);
        let now = time(self.api.clock);
        self.chaos()?;
        self.at += Duration::from_secs(1);
        match answer {
            Answer::Failed => self.failed(&request, Cause::Page),
            Answer::Refused => self.failed(&request, Cause::Rejected),
            Answer::Page(found, end, has_more) => {
                let mut page = ReadPage {
                    entries: found.iter().map(|found| self.entry(*found)).collect(),
                    end,
                    has_more,
                    now,
                    as_of,
                    requested_at,
                    at: self.at,
                    is_full: false,
                };
                let step = self.walks.page(&request, &mut page);
                self.apply(step, &found)
            }
        }?;
        Ok(true)
    }

    fn entry(&self, (id, at): (u64, i64)) -> entry::Entry<'static> {
        let seen = match self.known.get(&id) {
            None => Seen::Unknown,
            Some((sweep, _)) if *sweep <= self.stored.sweeps => Seen::Settled(*sweep),
            Some(_) => Seen::Unsettled,
        };
        let mut entry = entry::Entry::new(EventId(id), Some(time(at)));
        entry.seen = seen;
        entry
    }

    fn failed(&mut self, request: &Request, cause: Cause) -> Result<(), Crash> {
        let step = self.walks.failed(request, cause, self.at);
        self.apply(step, &[])
    }

    fn apply(&mut self, step: Step, found: &[(u64, i64)]) -> Result<(), Crash> {
        assert!(step.problem != Some(Problem::Empty) || step.take.is_empty());
        if step.must_save || self.rng.bool() {
            self.chaos()?;
            self.commit(step, found);
            self.chaos()?;
        }
        Ok(())
    }

    fn commit(&mut self, step: Step, found: &[(u64, i64)]) {
        let seed = self.seed;
        let sweep = self.walks.state.sweeps + u32::from(!step.settles);
        for (index, taken) in step.take {
            let (id, at) = found[index];
            self.known.insert(id, (sweep, at));
            let was_delivered = self.counted.contains(&id) || self.backdated.contains(&id);
            self.again += u32::from(was_delivered);
            match taken {
                Disposition::Ignored => {}
                // What may have been known once is delivered again, and not counted.
                Disposition::Backdated => drop(self.backdated.insert(id)),
                _ => assert!(
                    self.counted.insert(id),
                    "seed {seed}: {id} is counted twice"
                ),
            }
        }
        if let Some(prune) = step.prune {
            let mut newest: Vec<i64> = self.known.values().map(|(_, at)| *at).collect();
            newest.sort_unstable_by(|one, other| other.cmp(one));
            let kept = newest.get(prune.newest as usize).copied();
            self.known.retain(|id, (sweep, at)| {
                let is_old = *sweep <= prune.sweep && time(*at) <= prune.at && Some(*at) <= kept;
                let goes = is_old && !prune.listed.contains(&EventId(*id));
                if goes {
                    self.pruned = self.pruned.max(Some(*at));
                }
                !goes
            });
            let mark = self.walks.state.mark.map(|mark| mark.at);
            assert!(
                self.pruned.map(time) <= mark,
                "seed {seed}: pruned beyond the mark"
            );
            self.walks.pruned(self.pruned.map(time));
        }
        self.gaps += u32::from(step.gap.is_some());
        self.cuts += u32::from(step.is_cut);
        assert!(self.walks.needs_pass() || !step.is_cut, "seed {seed}");
        self.check_held(step.is_cut);
        if !self.stored.is_synced {
            self.synced = self.api.last;
        }
        let before = self.stored.complete_through;
        self.stored = self.walks.state.clone();
        assert!(self.stored.complete_through >= before, "seed {seed}");
        if self.stored.complete_through > before {
            self.check_complete();
        }
    }

    /// What was listed at the time that the tail claims to be complete through is taken, unless it came late or before the first sync. Settled
    /// entries dated ahead may hide others until the next pass, and an empty answer by accident looks like an empty listing.
    fn check_complete(&self) {
        if self.api.ahead > 0 || self.empties || self.may_begin_with_import() {
            return;
        }
        let through = self.stored.complete_through;
        let watermark = self.watermark();
        let is_missing = |entry: &&Entry| {
            entry.id > self.synced
                && Some(time(entry.added)) < through
                && Some(time(entry.at)) <= through
                && Some(time(entry.at)) > watermark
                && !self.known.contains_key(&entry.id)
                && !self.api.below.contains(&entry.id)
        };
        let missing = self.api.visible().filter(is_missing);
        let missing: Vec<u64> = missing.map(|entry| entry.id).collect();
        assert!(
            missing.is_empty(),
            "seed {}: complete through {through:?} without {missing:?}",
            self.seed
        );
    }

    /// Records wait while older ones may come: since a time that has been, and not when everything is read.
    fn check_held(&self, must_wait: bool) {
        let (since, seed) = (self.walks.state.held_since, self.seed);
        assert!(since.is_some() || !must_wait, "seed {seed}");
        let has_been = |since| (time(0)..=self.at).contains(&since);
        assert!(since.is_none_or(has_been), "seed {seed}: since {since:?}");
    }

    /// If the first page with other filters is an import of old entries, a pass takes what is below it.
    fn may_begin_with_import(&self) -> bool {
        self.api.by_arrival && self.changes.is_some()
    }

    fn watermark(&self) -> Option<Timestamp> {
        self.stored.watermark.max(self.pruned.map(time))
    }

    fn drain(&mut self, task: Task, is_done: fn(&Walks) -> bool) {
        if task != Task::Sweep && self.api.entries.is_empty() {
            // An empty listing ends no pass and no history.
            return;
        }
        for _ in 0..MAX_ROUNDS {
            match self.round(task) {
                Ok(true) if !is_done(&self.walks) => {}
                _ => return,
            }
        }
        panic!("seed {}: {task:?} does not end", self.seed);
    }

    fn sweep(&mut self) {
        self.drain(Task::Sweep, |walks| !walks.is_sweeping());
    }

    fn pass(&mut self) {
        self.drain(Task::Pass, |walks| walks.state.pass.is_none());
    }

    /// Returns what came after the start, should have been counted, and was not. What the first page with other filters has is not counted, and what
    /// appears below what was read, and is older than the window, need not be.
    fn missing(&self, base: u64) -> BTreeSet<u64> {
        let is_in_window =
            |entry: &Entry| self.api.by_arrival || entry.added - entry.at < WINDOW as i64;
        let is_wanted = |entry: &&Entry| {
            entry.id > base && Some(time(entry.at)) > self.watermark() && is_in_window(entry)
        };
        let wanted = self.api.visible().filter(is_wanted);
        let ids = wanted.map(|entry| entry.id);
        let is_there = |id: &u64| self.changes.is_some() && self.backdated.contains(id);
        ids.filter(|id| !self.counted.contains(id) && !is_there(id))
            .collect()
    }

    /// Returns what was deleted with age, and should have been counted before. What came late may disappear unseen.
    fn lost(&self, base: u64) -> Vec<u64> {
        let is_lost = |entry: &&Entry| {
            entry.id > base
                && Some(time(entry.at)) > self.watermark()
                && !self.counted.contains(&entry.id)
                && !self.api.below.contains(&entry.id)
        };
        let lost = self.api.gone.iter().filter(is_lost);
        lost.map(|entry| entry.id).collect()
    }

    fn play(mut self) {
        let seed = self.seed;
        // In rough ones, what comes during the first sync may count or not.
        self.calm = !chance(&mut self.rng, 0.5);
        let there: Vec<Entry> = self.api.visible().cloned().collect();
        self.api.was_empty = there.is_empty();
        for _ in 0..MAX_ROUNDS {
            if self.walks.state.is_synced {
                break;
            }
            if self.round(Task::Sweep).is_err() {
                self.restart();
            }
        }
        assert!(self.walks.state.is_synced, "seed {seed}: no first sync");
        self.calm = false;
        let (base, floor) = (self.api.last, self.walks.state.watermark);
        for _ in 0..self.rng.u32(3..90) {
            let task = match self.rng.f64() {
                r if r < 0.6 || self.walks.is_sweeping() => Task::Sweep,
                _ => Task::Pass,
            };
            if self.round(task).is_err() {
                self.restart();
            }
        }
        self.calm = true;
        (self.api.broken, self.api.glitch, self.api.empty_top) = (0, 0, 0);
        self.sweep();
        self.sweep();
        let is_whole = !self.lossy && !self.erasing;
        let is_plain = !self.api.sparse && self.api.ahead == 0 && self.changes.is_none();
        if is_whole && is_plain && self.cuts == 0 {
            let missing = self.missing(base);
            let missing: Vec<_> = missing.difference(&self.api.below).collect();
            assert!(missing.is_empty(), "seed {seed}: sweeps missed {missing:?}");
        }
        for _ in 0..3 {
            self.sweep();
            self.pass();
        }
        let missing = self.missing(base);
        assert!(missing.is_empty(), "seed {seed}: missed {missing:?}");
        if !self.api.entries.is_empty() {
            let is_done = !self.walks.needs_pass() && self.walks.state.held_since.is_none();
            assert!(is_done, "seed {seed}: behind");
        }
        let is_delivered = |id: &u64| self.counted.contains(id) || self.backdated.contains(id);
        for entry in &there {
            let is_old = Some(time(entry.at)) <= floor;
            let is_counted = self.counted.contains(&entry.id);
            assert!(
                !(is_counted && is_old),
                "seed {seed}: {} was there before, and is counted",
                entry.id
            );
            let is_wanted = self.from.is_some_and(|from| entry.at >= from);
            if is_wanted && !self.api.by_arrival && self.api.entries.contains(entry) {
                let id = &entry.id;
                assert!(is_delivered(id), "seed {seed}: history missed {id}");
            }
        }
        // With other filters, what came before is delivered.
        let came_since = |entry: &&Entry| entry.id > base && Some(time(entry.at)) > floor;
        let mut since = self.api.visible().filter(came_since).map(|entry| entry.id);
        let is_plain = !self.api.by_arrival && !self.api.sparse && self.api.ahead == 0;
        if self.changes.is_some() && is_plain {
            let is_silent = |id: &u64| !self.api.below.contains(id) && !is_delivered(id);
            let silent = since.find(is_silent);
            assert_eq!(silent, None, "seed {seed}: not delivered");
        }
        let lost = self.lost(base);
        // Of a first page that shows nothing, and of entries that are dated ahead, nothing can be missed.
        let is_plain = !self.api.sparse && self.api.ahead == 0 && self.changes.is_none();
        if !self.empties && !self.api.was_empty && is_plain {
            assert!(
                lost.is_empty() || self.gaps > 0,
                "seed {seed}: no gap without {lost:?}"
            );
        }
        if is_whole {
            assert_eq!(self.gaps, 0, "seed {seed}: a gap, and nothing was lost");
        }
    }
}

/// `SEEDS` sets how many are played, from `FIRST_SEED` on, for at most `MINUTES`.
#[test]
fn every_entry_is_taken_once_in_any_history() {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect(name));
    let first = number("FIRST_SEED").unwrap_or(0);
    let last = first + number("SEEDS").unwrap_or(2000);
    let limit = number("MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let begun = std::time::Instant::now();
    let (mut played, mut failures) = (0, 0);
    for seed in first..last {
        if limit.is_some_and(|limit| begun.elapsed() > limit) {
            break;
        }
        let result = std::panic::catch_unwind(|| World::new(seed).play());
        failures += u32::from(result.is_err());
        played += 1;
        if failures == ENOUGH_FAILURES {
            break;
        }
    }
    println!("{played} histories");
    assert_eq!(failures, 0);
}

// === Histories that were wrong once ===

/// Returns a world in which nothing happens by itself, with so many entries, one a second, and a tail that has done its first sync.
fn calm(by_arrival: bool, entries: u64, page_size: u32, start: Start) -> World {
    let mut world = World::new(0);
    let api = Api {
        by_arrival,
        inclusive: false,
        pointers: false,
        sparse: false,
        cap: usize::MAX,
        ahead: 0,
        ..Api::new(&mut world.rng)
    };
    world.limits = WalkSettings {
        page_size,
        max_pages: 10,
        max_older: 600,
        start,
        created_at: time(entries.cast_signed()),
        ..world.limits
    };
    (world.api, world.changes) = (api, None);
    // What is complete is checked where nothing is late or dated ahead.
    world.empties = true;
    for _ in 0..entries {
        world.add(0);
    }
    world.restart();
    let Ok(true) = world.round(Task::Sweep) else {
        panic!("no first sync")
    };
    world
}

impl World {
    /// A second passes, and an entry comes that is dated so many seconds ahead, or in the past.
    fn add(&mut self, ahead: i64) -> u64 {
        self.api.clock += 1;
        self.insert(self.api.arrivals.len() as i64 * 2, self.api.clock + ahead)
    }

    /// Adds an entry at this place in the order of arrival.
    fn insert(&mut self, place: i64, at: i64) -> u64 {
        let api = &mut self.api;
        api.last += 1;
        api.arrivals.push(api.clock);
        let key = if api.by_arrival {
            (place, 0)
        } else {
            (at, api.last)
        };
        let entry = Entry {
            key,
            at,
            id: api.last,
            is_visible: true,
            added: api.clock,
        };
        let place = api.entries.partition_point(|entry| entry.key > key);
        api.entries.insert(place, entry);
        api.last
    }

    /// So many old entries are imported.
    fn import(&mut self, count: u64) {
        for _ in 0..count {
            let (place, at) = (
                self.api.arrivals.len() as i64 * 2,
                self.api.clock - 1_000_000,
            );
            self.insert(place, at);
        }
    }

    /// So many seconds pass with a poll each, and a pass every ten.
    fn live(&mut self, seconds: u64) {
        for second in 1..=seconds {
            self.api.clock += 1;
            self.sweep();
            if second % 10 == 0 {
                self.pass();
            }
        }
    }

    /// Asserts that all entries since number `base` are delivered, so many of them uncounted, and that there was no gap and no entry twice.
    fn delivered(&self, base: u64, uncounted: usize) {
        let all = self.counted.union(&self.backdated).copied();
        let all: BTreeSet<u64> = all.filter(|id| *id > base).collect();
        assert_eq!(all.len() as u64, self.api.last - base, "delivered");
        assert_eq!((self.backdated.len(), self.gaps), (uncounted, 0));
        assert_eq!(self.again, 0, "delivered twice");
    }
}

/// It got its place in the order before others.
#[test]
fn a_transaction_that_commits_late_is_found_below_an_import() {
    let mut world = calm(true, 100, 1000, Start::Now);
    world.live(100);
    let place = world.api.arrivals.len() as i64 * 2 - 1;
    world.import(3000);
    world.live(5);
    let late = world.insert(place, world.api.clock);
    world.live(20);
    assert!(world.counted.contains(&late));
    world.delivered(100, 3000);
}

#[test]
fn an_import_that_is_longer_than_a_poll_is_no_gap() {
    for by_arrival in [true, false] {
        let mut world = calm(by_arrival, 100, 1000, Start::Now);
        world.live(100);
        // At once, or in parts that polls read.
        world.import(if by_arrival { 50_000 } else { 0 });
        for _ in 0..5 {
            world.add(0);
        }
        world.live(30);
        for _ in 0..10 {
            world.import(if by_arrival { 3000 } else { 0 });
            world.live(1);
        }
        world.api.broken = 1;
        world.live(100);
        world.delivered(100, if by_arrival { 80_000 } else { 0 });
    }
}

#[test]
fn the_newest_entries_are_deleted_while_the_exporter_is_off() {
    let mut world = calm(false, 15_000, 1000, Start::Oldest);
    world.live(100);
    world.api.entries.drain(..10);
    for _ in 0..10_000 {
        world.add(0);
    }
    world.restart();
    world.live(100);
    world.delivered(0, 15_000);
}

/// The number of a sweep alone would lose what is created just before the dates of one writer have passed.
#[test]
fn one_of_two_writers_is_two_windows_ahead() {
    let mut world = calm(false, 100, 1000, Start::Now);
    for _ in 0..400 {
        world.add(0);
        world.add(2 * WINDOW as i64);
        world.live(1);
        if world.api.clock % 10 < 2 {
            world.pass();
        }
    }
    world.live(10);
    assert_eq!(world.counted.len(), 800);
    world.delivered(100, 0);
}

#[test]
fn an_entry_dated_for_ever_ahead_is_deleted() {
    let mut world = calm(false, 100, 1000, Start::Now);
    world.add(1_000_000);
    for second in 0..300 {
        world.add(0);
        if second == 100 {
            world.api.entries.remove(0);
        }
        world.live(1);
        if second % 10 == 0 {
            world.pass();
        }
    }
    assert_eq!(world.counted.len(), 301);
    world.delivered(100, 0);
}

/// Nothing that a pass does not need is in the way.
#[test]
fn an_old_page_that_always_fails_is_never_requested_by_a_quiet_organization() {
    let mut world = calm(false, 5000, 100, Start::Now);
    world.live(200);
    world.api.broken = 1_000_000;
    for _ in 0..50 {
        world.add(0);
        world.live(100);
    }
    world.delivered(5000, 0);
}

/// Returns the pages of ten passes, between which ten seconds pass. The sixth one fails for ten windows while polls go on.
fn pages_of_passes(world: &mut World) -> Vec<u32> {
    let live = |world: &mut World, seconds| {
        for _ in 0..seconds {
            world.add(0);
            world.sweep();
        }
    };
    let pass = |number| {
        let mut pages = 0;
        loop {
            pages += 1;
            assert!(world.round(Task::Pass).is_ok());
            live(world, 1);
            if (number, pages) == (5, 3) {
                live(world, 10 * WINDOW);
            }
            if world.walks.state.pass.is_none() {
                break;
            }
        }
        live(world, 10);
        pages
    };
    (0..10).map(pass).collect()
}

/// Not by all that is known.
#[test]
fn a_pass_is_as_long_as_what_was_read_within_a_window() {
    for start in [Start::Oldest, Start::Now] {
        let mut world = calm(false, 3000, 7, start);
        let pages = pages_of_passes(&mut world);
        println!("{start}: pages of passes {pages:?}");
        // The one after the outage reads what came meanwhile, and the next ones do not.
        assert!(pages[4] < 30 && pages[7..].iter().all(|pages| *pages < 30));
        assert!(pages[5] < 150 && pages[6] < 150, "{pages:?}");
        let (base, uncounted) = match start {
            Start::Oldest => (0, 3000),
            _ => (3000, 0),
        };
        world.delivered(base, uncounted);
    }
}

/// Nothing was listed before that could be the reference.
#[test]
fn an_import_into_an_empty_listing_is_delivered() {
    for (by_arrival, entries) in [(true, 0), (false, 0), (true, 100)] {
        for count in [500, 20_000] {
            let mut world = calm(by_arrival, entries, 100, Start::Now);
            world.live(100);
            // Or it looks empty, by accident.
            world.api.empty_top = if entries > 0 { 2 } else { 0 };
            world.sweep();
            world.sweep();
            world.import(count);
            world.live(100);
            world.delivered(entries, count as usize);
        }
    }
}

/// Otherwise there would be no mark until then, and each pass would be longer than the one before.
#[test]
fn a_clock_that_is_ahead_once_changes_nothing() {
    let mut world = calm(false, 100, 7, Start::Now);
    world.live(100);
    world.api.clock += 1_000_000;
    world.sweep();
    world.api.clock -= 1_000_000;
    let pages = pages_of_passes(&mut world);
    assert!(pages[7..].iter().all(|pages| *pages < 30), "{pages:?}");
    world.delivered(100, 0);
}

/// No more than a pass reads below what it needs.
#[test]
fn a_clock_that_is_behind_at_the_first_sync_delivers_little() {
    let mut world = calm(false, 50_000, 100, Start::Now);
    (world.stored, world.api.clock) = (TailState::default(), world.api.clock - 49_000);
    world.known.clear();
    world.restart();
    world.sweep();
    world.api.clock += 49_000;
    world.live(100);
    assert!(world.backdated.len() <= 700, "{}", world.backdated.len());
}
