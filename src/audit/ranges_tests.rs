//! [`Ranges`] against a model of the service, in random histories.
//!
//! Between any two requests and before or after any commit, events arrive, pages fail or are empty, cursors expire, rows
//! are deleted, the disk is full, or the process is killed. Every event is taken once in all of them. `RANGES_SEEDS`
//! says how many histories are tried, and `RANGES_SEED` runs a single one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::ranges::{Cause, Page, Ranges, Request, Row, Task};
use super::{Settings, Start};
use crate::ledger::{Disposition, EventId, GapReason, Range, RangeKind, STRIDE, TailState};

const SEEDS: u64 = 5_000;

/// Histories that failed once: expired cursors answered with the newest page, before and after a restart.
const FOUND: [u64; 3] = [233_482, 243_305, 248_051];

/// Seconds between the epoch and the start of each history.
const EPOCH: i64 = 1_800_000_000;

/// An expired cursor is only taken for a valid one in its first minute.
const MINUTE: i64 = 61;

/// The position of an entry in the listing.
type Key = (i64, u64);

/// The process was killed.
struct Killed;

/// How the service answers an expired cursor.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expired {
    Refused,
    /// As if the page could not be read.
    Fails,
    Ignored,
    Empty,
}

#[derive(Clone, Debug)]
struct Entry {
    key: Key,
    created: i64,
    id: u64,
    /// It was the newest of the listing when it arrived.
    on_top: bool,
}

/// Why a page is not served.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failure {
    Temporary,
    Refused,
}

/// An implementation of the listing, newest entry first.
#[derive(Debug)]
struct Service {
    entries: Vec<Entry>,
    clock: i64,
    arrivals: u64,
    /// The listing is in order of arrival, not of creation.
    by_arrival: bool,
    /// A cursor includes its entry.
    inclusive: bool,
    /// Entries of one second share a cursor.
    shared: bool,
    /// The last page has no cursor.
    ends: bool,
    /// The maximum number of entries in a page.
    cap: usize,
    expired: Expired,
    generation: u64,
    /// Pages below the newest that are still going to fail.
    failing: u32,
    empty_next: bool,
    /// Requests whose last answer was empty by accident.
    emptied: Vec<Task>,
    purged: HashSet<u64>,
    /// Entries that were the newest when they arrived.
    on_top: HashSet<u64>,
}

/// The exporter: what is on disk, and what is in memory.
struct Exporter {
    settings: Settings,
    state: TailState,
    known: HashSet<u64>,
    taken: HashMap<u64, Disposition>,
    gaps: u32,
    /// The highest place that may have been sent, and those that wait for a range.
    sent: i64,
    unsent: Vec<i64>,
    ranges: Ranges,
    /// Cursors of ranges that were used, while each page should be requested once.
    used: Option<HashSet<String>>,
}

/// What happens between two requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weather {
    /// Nothing.
    Still,
    /// Events arrive, some of them late.
    Calm,
    /// Everything may go wrong, but nothing is deleted.
    Rough,
    /// Rows are deleted too.
    Lossy,
}

struct World {
    rng: Rng,
    service: Service,
    exporter: Exporter,
    weather: Weather,
    /// How many entries there were at the first sync.
    there: u64,
    trace: bool,
}

// === impl Service ===

impl Service {
    fn random(rng: &mut Rng) -> Self {
        let by_arrival = rng.u8(..5) == 0;
        let inclusive = rng.u8(..10) < 3;
        let shared = inclusive && !by_arrival && rng.bool();
        let caps: &[usize] = match (inclusive, shared) {
            (_, true) => &[100],
            (true, _) => &[2, 3, 5, 100],
            _ => &[1, 2, 3, 5, 100],
        };
        // The newest page cannot be distinguished from an older one if times are in no order.
        let expired = [Expired::Refused, Expired::Empty, Expired::Ignored];
        let expired = expired[rng.usize(..if by_arrival { 2 } else { 3 })];
        // Drawn apart, so that kept seeds stay what they were.
        let expired = match rng.clone().u8(..8) {
            0 => Expired::Fails,
            _ => expired,
        };
        Self {
            entries: Vec::new(),
            clock: 1000,
            arrivals: 0,
            by_arrival,
            inclusive,
            shared,
            ends: rng.bool(),
            cap: caps[rng.usize(..caps.len())],
            expired,
            generation: 0,
            failing: 0,
            empty_next: false,
            emptied: Vec::new(),
            purged: HashSet::new(),
            on_top: HashSet::new(),
        }
    }

    fn time(&self) -> Timestamp {
        at(self.clock)
    }

    /// Adds an entry that was created `age` seconds ago.
    fn add(&mut self, age: i64) {
        self.arrivals += 1;
        let (id, created) = (self.arrivals, self.clock - age);
        let key = if self.by_arrival {
            (id.cast_signed(), 0)
        } else {
            (created, id)
        };
        let place = self.entries.partition_point(|entry| entry.key > key);
        let entry = Entry {
            key,
            created,
            id,
            on_top: place == 0,
        };
        if place == 0 {
            self.on_top.insert(id);
        }
        self.entries.insert(place, entry);
    }

    /// Adds an event, now.
    fn event(&mut self, rng: &mut Rng, group: usize) {
        self.clock += [0, 0, 1, 1, 2][rng.usize(..5)];
        let newest = self.entries.iter();
        if self.shared
            && newest
                .take_while(|entry| entry.created == self.clock)
                .count()
                >= group
        {
            self.clock += 1;
        }
        self.add(0);
    }

    /// Deletes the last entries of the listing: a loss is only noticed below something new.
    fn purge(&mut self, count: usize) {
        let keep = self.entries.len().saturating_sub(count).max(1);
        let gone = self.entries.drain(keep.min(self.entries.len())..);
        self.purged.extend(gone.map(|entry| entry.id));
    }

    fn cursor(&self, entry: &Entry) -> String {
        let (major, minor) = entry.key;
        let minor = if self.shared { 0 } else { minor };
        format!("{} {major} {minor}", self.generation)
    }

    fn answer(&mut self, request: &Request) -> Result<Page, Failure> {
        let mut from = 0;
        let mut is_empty = false;
        if let Some(before) = &request.before {
            if self.failing > 0 {
                self.failing -= 1;
                return Err(Failure::Temporary);
            }
            let parts: Vec<i64> = before
                .split(' ')
                .map(|part| part.parse().unwrap())
                .collect();
            let key = (parts[1], parts[2].cast_unsigned());
            match self.expired {
                _ if parts[0].cast_unsigned() == self.generation => {
                    from =
                        self.entries
                            .partition_point(|entry| match (self.inclusive, self.shared) {
                                (true, true) => entry.key.0 > key.0,
                                (true, false) => entry.key > key,
                                (false, _) => entry.key >= key,
                            });
                }
                Expired::Refused => return Err(Failure::Refused),
                Expired::Fails => return Err(Failure::Temporary),
                Expired::Ignored => {}
                Expired::Empty => is_empty = true,
            }
        }
        if self.empty_next && !self.emptied.contains(&request.task) {
            self.empty_next = false;
            is_empty = true;
        }
        let limit = self.cap.min(request.limit as usize);
        let below = &self.entries[from..];
        let shown = if is_empty {
            &[]
        } else {
            &below[..limit.min(below.len())]
        };
        if shown.is_empty() {
            self.emptied.push(request.task);
        }
        let is_last = self.ends && shown.len() == below.len();
        Ok(Page {
            rows: shown
                .iter()
                .map(|entry| Row {
                    id: EventId(entry.id),
                    created_at: at(entry.created),
                    known: false,
                })
                .collect(),
            end_cursor: shown
                .last()
                .filter(|_| !is_last)
                .map(|entry| self.cursor(entry)),
            server_time: self.time(),
        })
    }
}

// === impl Exporter ===

impl Exporter {
    fn new(page_size: u32, start: Start, window: u64) -> Self {
        let settings = settings(page_size, start, window);
        Self {
            settings,
            state: TailState::default(),
            known: HashSet::new(),
            taken: HashMap::new(),
            gaps: 0,
            sent: i64::MIN,
            unsent: Vec::new(),
            ranges: Ranges::new(TailState::default(), settings, None, false),
            used: None,
        }
    }

    /// Begins anew with what is on disk.
    fn restart(&mut self) {
        let has_known = !self.known.is_empty();
        self.ranges = Ranges::new(self.state.clone(), self.settings, None, has_known);
    }

    /// Writes what memory has to disk.
    fn save(&mut self) {
        let places = self
            .state
            .ranges
            .iter()
            .map(|range| (range.id, range.place));
        let places: Vec<(i64, i64)> = places.collect();
        self.state = self.ranges.state.clone();
        self.ranges.saved(None);
        for range in &self.state.ranges {
            assert!(range.place > range.id - STRIDE, "a range left its places");
            let before = places.iter().find(|(id, _)| *id == range.id);
            assert!(before.is_none_or(|(_, place)| *place >= range.place));
        }
    }

    /// Notes what may be sent after a commit.
    fn send(&mut self, place: i64) {
        self.unsent.push(place);
        let open = self.state.ranges.iter();
        let held = open.map(|range| range.id - STRIDE).min();
        let is_sendable = |place: &mut i64| held.is_none_or(|held| *place <= held);
        self.sent = self
            .unsent
            .extract_if(.., is_sendable)
            .fold(self.sent, i64::max);
    }
}

// === impl World ===

impl World {
    fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let service = Service::random(&mut rng);
        let page_size = if service.shared {
            [4, 7, 50][rng.usize(..3)]
        } else {
            [1, 2, 3, 7, 50][rng.usize(..5)]
        };
        let start = match rng.u8(..4) {
            0 | 1 => Start::Now,
            2 => Start::Ago(Duration::from_secs(5)),
            _ => Start::Oldest,
        };
        let weather = match rng.u8(..10) {
            0 | 1 => Weather::Lossy,
            2 | 3 => Weather::Calm,
            _ => Weather::Rough,
        };
        let mut world = Self {
            exporter: Exporter::new(page_size, start, 40),
            service,
            rng,
            weather: Weather::Still,
            there: 0,
            trace: std::env::var_os("RANGES_SEED").is_some(),
        };
        for _ in 0..world.rng.u8(..20) {
            world.event();
        }
        if weather == Weather::Calm && !world.service.inclusive {
            world.exporter.used = Some(HashSet::new());
        }
        world.weather = weather;
        world
    }

    /// A listing in order of arrival, without failures.
    fn by_arrival(page_size: u32, start: Start) -> Self {
        let mut rng = Rng::with_seed(1);
        let service = Service {
            by_arrival: true,
            inclusive: false,
            shared: false,
            cap: page_size as usize,
            expired: Expired::Refused,
            ..Service::random(&mut rng)
        };
        Self {
            exporter: Exporter::new(page_size, start, 40),
            service,
            rng,
            weather: Weather::Still,
            there: 0,
            trace: false,
        }
    }

    fn event(&mut self) {
        // A page of each limit must reach below the entries that share a cursor.
        let group = self.exporter.settings.page_size as usize / 2
            - usize::from(self.exporter.settings.page_size > 3);
        self.service.event(&mut self.rng, group.max(1));
    }

    /// Something happens, or not.
    fn chaos(&mut self) -> Result<(), Killed> {
        let dice = self.rng.u32(..1000);
        if self.weather == Weather::Still {
            return Ok(());
        }
        let rng = &mut self.rng;
        match dice {
            0..150 => {
                for _ in 0..[1, 1, 1, 2, 3, 12][rng.usize(..6)] {
                    self.event();
                }
            }
            150..190 if self.service.by_arrival => {
                if self.exporter.state.first_sync.is_none() {
                    return Ok(());
                }
                for _ in 0..rng.u8(1..8) {
                    self.service.add(1_000_000);
                }
            }
            // A late row below a loss hides that it is one.
            150..190 if self.weather == Weather::Lossy || self.service.shared => {}
            150..190 => self.service.add(rng.i64(1..30)),
            _ if self.weather == Weather::Calm => {}
            200..210 if self.weather == Weather::Lossy => {
                self.service.clock += rng.i64(MINUTE..200);
                self.service.purge(rng.usize(1..8));
            }
            210..216 => {
                self.service.clock += MINUTE;
                self.service.generation += 1;
                // The newest page is only recognized by newer entries.
                self.event();
            }
            216..226 if self.weather != Weather::Lossy => self.service.empty_next = true,
            226..236 => self.service.failing = rng.u32(1..12),
            236..240 => self.service.clock += rng.i64(1..100),
            240..270 => return Err(Killed),
            _ => {}
        }
        Ok(())
    }

    /// One request and one commit; returns whether anything was due.
    fn round(&mut self, poll: bool, reread: bool) -> Result<bool, Killed> {
        let Some(request) = self.exporter.ranges.request(poll, reread) else {
            return Ok(false);
        };
        assert!(request.limit >= 1 && request.limit <= self.exporter.settings.page_size.max(2));
        self.chaos()?;
        let answer = self.service.answer(&request);
        let there = self.service.arrivals;
        self.chaos()?;
        if self.trace {
            let ids = answer
                .as_ref()
                .map(|page| page.rows.iter().map(|row| row.id.0).collect::<Vec<_>>());
            eprintln!("{} {request:?}: {ids:?}", self.service.clock);
        }
        let exporter = &mut self.exporter;
        match answer {
            Err(failure) => {
                let cause = match failure {
                    Failure::Temporary => Cause::Page,
                    Failure::Refused => Cause::Refused,
                };
                let gap = exporter.ranges.failed(&request, cause, Timestamp::now());
                assert!(gap.is_none(), "an error became a gap");
            }
            Ok(mut page) => {
                for row in &mut page.rows {
                    row.known = exporter.known.contains(&row.id.0);
                }
                self.once(&request, &page);
                let step = self.exporter.ranges.page(&request, &page);
                self.chaos()?;
                let has_changes = !step.take.is_empty() || !step.commit.gaps.is_empty();
                let full = self.weather != Weather::Still && self.rng.u8(..40) == 0;
                let exporter = &mut self.exporter;
                let (old, mut new) = (&exporter.ranges.state, step.next);
                let has_changes = has_changes
                    || old.ranges != new.state.ranges
                    || old.first_sync != new.state.first_sync
                    || old.reread_at != new.state.reread_at
                    || new.is_poll_unsaved();
                if full && has_changes && self.weather != Weather::Calm {
                    // The commit fails: neither file nor memory changes.
                    return Ok(true);
                }
                if request.task == Task::FirstSync {
                    self.there = there;
                }
                std::mem::swap(&mut exporter.ranges, &mut new);
                if !page.rows.is_empty() {
                    self.service.emptied.retain(|task| *task != request.task);
                }
                if self.trace {
                    let open = exporter.ranges.state.ranges.iter();
                    let open: Vec<_> = open
                        .map(|range| (range.kind, range.cursor.as_deref(), range.end))
                        .collect();
                    eprintln!(
                        "    takes {:?}, gap {:?}, open {open:?}",
                        step.take, step.commit.gaps
                    );
                }
                for (row, disposition) in &step.take {
                    let id = page.rows[*row].id.0;
                    assert!(exporter.known.insert(id), "{id} was taken twice");
                    if *disposition != Disposition::Ignored {
                        exporter.taken.insert(id, *disposition);
                        assert!(
                            step.commit.place > exporter.sent,
                            "{id} is sent out of order"
                        );
                    }
                }
                exporter.gaps += u32::from(!step.commit.gaps.is_empty());
                if has_changes {
                    exporter.save();
                    exporter.send(if step.take.is_empty() {
                        i64::MIN
                    } else {
                        step.commit.place
                    });
                    self.chaos()?;
                }
            }
        }
        Ok(true)
    }

    /// Checks that no page of a range is requested twice while nothing fails and cursors are valid.
    fn once(&mut self, request: &Request, page: &Page) {
        let open = self.exporter.ranges.state.ranges.iter();
        let fresh = open
            .filter(|range| {
                page.server_time.duration_since(range.received_at).as_secs() < MINUTE - 1
            })
            .any(|range| request.task == Task::Range(range.id));
        if let (Some(used), true, Some(cursor)) = (&mut self.exporter.used, fresh, &request.before)
        {
            let is_end = page.rows.is_empty() || page.end_cursor.is_none();
            assert!(
                is_end || used.insert(cursor.clone()),
                "a page was requested twice"
            );
        }
    }

    /// Makes random rounds.
    fn rounds(&mut self, count: u32) {
        for _ in 0..count {
            let dice = self.rng.u8(..10);
            if self.round(dice < 4, dice > 7).is_err() {
                self.exporter.restart();
            }
        }
    }

    /// Polls and reads until nothing is missing but late rows.
    fn catch_up(&mut self) {
        self.weather = Weather::Still;
        (self.service.failing, self.service.empty_next) = (0, false);
        let most = 500 + 100 * self.service.entries.len();
        let mut rounds = 0;
        self.round(true, false).ok();
        while let Ok(true) = self.round(false, false) {
            rounds += 1;
            assert!(rounds < most, "it never ends: {:?}", self.exporter.ranges);
        }
        assert!(self.exporter.ranges.state.ranges.is_empty());
    }

    /// Re-reads everything.
    fn reread(&mut self) {
        self.exporter.settings.reread_window = Duration::from_secs(36_000_000);
        self.exporter.restart();
        self.service.clock += 1;
        let before = self.exporter.ranges.state.reread_at;
        let most = 500 + 10 * self.service.entries.len();
        let mut rounds = 0;
        while self.exporter.ranges.state.reread_at == before {
            self.round(false, true).ok();
            rounds += 1;
            assert!(rounds < most, "it never ends: {:?}", self.exporter.ranges);
        }
    }

    fn is_taken(&self, entry: &Entry) -> bool {
        self.exporter.taken.contains_key(&entry.id)
    }
}

/// Returns settings; the window of re-reads is in seconds.
pub(super) fn settings(page_size: u32, start: Start, window: u64) -> Settings {
    Settings {
        poll_interval: Duration::from_secs(15),
        start,
        reread_interval: Duration::from_secs(3600),
        reread_window: Duration::from_secs(window),
        page_size,
    }
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(EPOCH + second).unwrap()
}

/// Plays one history.
fn play(seed: u64) {
    let mut world = World::random(seed);
    while world.exporter.state.first_sync.is_none() {
        world.rounds(1);
    }
    let (first, there) = (
        world.exporter.state.first_sync.clone().unwrap(),
        world.there,
    );
    let has_known = !world.exporter.known.is_empty();
    let count = world.rng.u32(3..60);
    world.rounds(count);

    world.catch_up();
    let new = |entry: &&Entry| entry.id > there;
    let entries = |world: &World| world.service.entries.clone();
    for entry in entries(&world).iter().filter(new) {
        assert!(
            !entry.on_top || world.is_taken(entry),
            "{entry:?} was missed"
        );
    }

    world.reread();
    for entry in entries(&world) {
        let is_wanted = if entry.id > there {
            entry.on_top || Some(at(entry.created)) > first.count_floor
        } else {
            let floor = first.history_floor;
            let start = world.exporter.settings.start;
            start != Start::Now && floor.is_none_or(|floor| at(entry.created) >= floor)
        };
        assert!(!is_wanted || world.is_taken(&entry), "{entry:?} was missed");
    }
    for (id, disposition) in &world.exporter.taken {
        // A re-read also meets new entries that share its cursor.
        let is_counted = *disposition == Disposition::Live
            || (world.service.shared && *disposition == Disposition::Late);
        match (*id > there, world.service.on_top.contains(id)) {
            (true, true) => assert!(is_counted, "{id} is {disposition:?}"),
            (true, false) => {}
            (false, _) => assert_eq!(*disposition, Disposition::History, "{id}"),
        }
    }
    let purged = &world.service.purged;
    let is_lost = |id: &&u64| {
        **id > there && world.service.on_top.contains(id) && !world.exporter.taken.contains_key(id)
    };
    if has_known && !world.service.by_arrival && purged.iter().any(|id| is_lost(&id)) {
        assert!(world.exporter.gaps > 0, "a loss was not reported");
    }
    assert!(
        world.exporter.gaps == 0 || !purged.is_empty(),
        "a gap without a loss"
    );
}

#[test]
fn every_history_takes_every_event_once() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seeds: Vec<u64> = match number("RANGES_SEED") {
        Some(seed) => vec![seed],
        None => {
            let seeds = 0..number("RANGES_SEEDS").unwrap_or(SEEDS);
            FOUND.into_iter().chain(seeds).collect()
        }
    };
    let failed: Vec<u64> = seeds
        .into_iter()
        .filter(|seed| std::panic::catch_unwind(|| play(*seed)).is_err())
        .collect();
    assert!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
}

#[test]
fn what_came_since_the_start_is_live_if_the_first_response_was_late() {
    let second = |second: i64| Timestamp::from_second(EPOCH + second).expect("a time");
    for (waited, expected) in [(12, Disposition::Live), (0, Disposition::Ignored)] {
        let row = |id, at| Row {
            id: EventId(id),
            created_at: second(at),
            known: false,
        };
        let settings = settings(10, Start::Now, 60);
        let mut ranges = Ranges::new(TailState::default(), settings, None, false);
        ranges.started -= Duration::from_secs(waited);
        let request = ranges.request(true, false).expect("the first page");
        let page = Page {
            rows: vec![row(2, 95), row(1, 80)],
            end_cursor: None,
            server_time: second(100),
        };
        let step = ranges.page(&request, &page);
        let taken = [(0, expected), (1, Disposition::Ignored)];
        assert_eq!(step.take, taken, "waited {waited} s");
        // Below a page that has room for one entry, too, what was there before the start is not late.
        let page = Page {
            rows: vec![row(2, 95)],
            ..page
        };
        let state = ranges.page(&request, &page).next.state;
        let most = if waited > 0 { 88 } else { 95 };
        let floor = state.count_floor().expect("a floor");
        let is_right = floor <= second(most) && floor > second(most - 1);
        assert!(is_right, "waited {waited} s: {floor}");
    }
}

/// A range that was opened long ago is not one that cannot be read.
#[test]
fn a_range_is_a_gap_after_seven_days_of_failures() {
    let hour = |hour: i64| Timestamp::from_second(EPOCH + 3600 * hour).expect("a time");
    let range = Range {
        id: 1,
        kind: RangeKind::CatchUp,
        cursor: Some("c".to_owned()),
        received_at: hour(0),
        end: None,
        oldest: None,
        lowest: None,
        page: Vec::new(),
        opened_at: hour(-1000),
        failing_since: None,
        filters_changed: false,
        floor: None,
        last_contact: None,
        expected: true,
        older: 0,
        released: false,
        place: 1,
    };
    let state = TailState {
        ranges: vec![range],
        ..TailState::default()
    };
    let settings = settings(2, Start::Now, 40);
    let request = Request {
        task: Task::Range(1),
        before: Some("c".to_owned()),
        limit: 2,
    };
    let new = |state: TailState| Ranges::new(state, settings, None, true);
    let mut ranges = new(state);
    for at in [0, 1].into_iter().chain([167; 30]) {
        assert!(
            ranges.failed(&request, Cause::Page, hour(at)).is_none(),
            "{at}"
        );
    }
    // A process that was away for some of that time tries for a while before it gives up.
    let mut away = new(ranges.state.clone());
    let failures = (0..100).map_while(|_| match away.failed(&request, Cause::Page, hour(200)) {
        None => Some(()),
        Some(gap) => {
            assert_eq!(gap.reason, GapReason::Unreadable);
            None
        }
    });
    assert_eq!(failures.count(), 19);
    assert!(away.state.ranges.is_empty());
}

#[test]
fn what_is_deleted_below_a_range_is_a_gap() {
    for (what, there, ages, pause) in [
        ("the first entries of an organization", 0, [0; 6], MINUTE),
        ("a late entry was read", 1, [0, 0, 0, 1000, 0, 0], 0),
    ] {
        let mut world = World::by_arrival(2, Start::Now);
        for _ in 0..there {
            world.service.add(0);
        }
        while world.exporter.state.first_sync.is_none() {
            world.round(false, false).ok();
        }
        world.service.clock += MINUTE;
        for age in ages {
            world.service.add(age);
        }
        // A poll, the newest page, and the first one of the range.
        for poll in [true, false, false] {
            world.round(poll, false).ok();
        }
        assert_eq!(world.exporter.state.ranges.len(), 1, "{what}");
        world.service.clock += pause;
        world.service.purge(10);
        world.catch_up();
        assert_eq!(world.exporter.gaps, 1, "{what}");
    }
}

/// After failures, few entries fill two pages.
#[test]
fn a_few_old_entries_do_not_end_a_history() {
    let hour = Duration::from_secs(3600);
    for (failing, cap) in [(3, 100), (0, 2)] {
        let mut world = World::by_arrival(4, Start::Ago(hour));
        world.service.cap = cap;
        for (count, age) in [(20, 0), (4, 10_000), (12, 0)] {
            for _ in 0..count {
                world.service.add(age);
            }
        }
        world.round(false, false).ok();
        world.service.failing = failing;
        for _ in 0..failing {
            world.round(false, false).ok();
        }
        world.catch_up();
        let is_missing =
            |entry: &&Entry| !world.is_taken(entry) && world.service.clock == entry.created;
        let missing = world.service.entries.iter().filter(is_missing).count();
        assert_eq!(missing, 0, "{failing} failures, pages of {cap}");
    }
}

/// It began at the same time for ever, above an entry that fails.
#[test]
fn a_re_read_leaves_out_what_could_not_be_read_for_seven_days() {
    for fails in [true, false] {
        let mut world = World::by_arrival(4, Start::Now);
        (0..40).for_each(|_| world.service.add(0));
        world.round(false, false).ok();
        let started = world.exporter.ranges.state.reread_at;
        if fails {
            let ranges = &mut world.exporter.ranges;
            for _ in 0..100 {
                let request = ranges.request(false, true).expect("a request");
                ranges.failed(&request, Cause::Page, at(1000));
            }
        }
        world.service.clock += 8 * 24 * 3600;
        (0..12).for_each(|_| world.service.add(0));
        world.catch_up();
        for _ in 0..20 {
            // What is older than that fails.
            let before = world.exporter.ranges.request(false, true);
            let is_old = before.and_then(|request| request.before);
            let is_old = is_old.is_some_and(|cursor| cursor.split(' ').nth(1) < Some("30"));
            world.service.failing = u32::from(is_old);
            world.round(false, true).ok();
        }
        let is_complete = world.exporter.ranges.state.reread_at != started;
        assert_eq!(is_complete, fails, "nothing is left out without a reason");
    }
}

/// The first responses may all have been errors, and then a page is small.
#[test]
fn everything_since_the_start_is_live_however_small_the_first_page_is() {
    for start in [Start::Now, Start::Oldest] {
        let mut world = World::by_arrival(4, start);
        world.service.cap = 1;
        world.exporter.ranges.started -= Duration::from_secs(600);
        for age in [700, 500, 400, 300, 200, 100] {
            world.service.add(age);
        }
        world.round(false, false).ok();
        world.catch_up();
        world.reread();
        let history = (start == Start::Oldest).then_some(Disposition::History);
        let expected = [history].into_iter().chain([Some(Disposition::Live); 5]);
        let taken = (1..=6).map(|id| world.exporter.taken.get(&id).copied());
        assert!(taken.eq(expected), "{start}: {:?}", world.exporter.taken);
    }
}

/// An outage is not the fault of a cursor or of the size of a page.
#[test]
fn an_outage_of_the_whole_service_changes_no_request() {
    let mut world = World::by_arrival(4, Start::Oldest);
    (0..40).for_each(|_| world.service.add(0));
    for _ in 0..3 {
        world.round(false, false).ok();
    }
    let ranges = &mut world.exporter.ranges;
    let request = |ranges: &Ranges, poll| ranges.request(poll, false).expect("a request");
    let before = request(ranges, false);
    for _ in 0..30 {
        let away = request(ranges, false);
        assert_eq!(ranges.failed(&away, Cause::Away, Timestamp::now()), None);
    }
    let after = request(ranges, false);
    assert_eq!((after.task, &after.before), (before.task, &before.before));
    assert!(
        2 * after.limit >= before.limit,
        "one failure may be the page's"
    );
    for _ in 0..30 {
        for poll in [true, false] {
            let failed = request(ranges, poll);
            assert_eq!(ranges.failed(&failed, Cause::Page, Timestamp::now()), None);
        }
    }
    assert_eq!(request(ranges, false).task, before.task);
}

/// Failures make its pages small, and then all of the first one is new.
#[test]
fn a_re_read_of_a_busy_listing_goes_on_after_failures() {
    let mut world = World::by_arrival(50, Start::Now);
    (0..50).for_each(|_| world.service.add(0));
    world.round(false, false).ok();
    let started = world.exporter.ranges.state.reread_at;
    for _ in 0..16 {
        let request = world
            .exporter
            .ranges
            .request(false, true)
            .expect("a request");
        world
            .exporter
            .ranges
            .failed(&request, Cause::Page, Timestamp::now());
    }
    let mut attempts = 0;
    while world.exporter.ranges.state.reread_at == started {
        world.service.clock += 15;
        (0..30).for_each(|_| world.service.add(0));
        world.round(false, true).ok();
        while world.exporter.ranges.is_rereading() {
            world.round(false, true).ok();
        }
        world.catch_up();
        attempts += 1;
        assert!(attempts < 8, "{:?}", world.exporter.ranges);
    }
}
