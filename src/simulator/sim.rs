//! The simulator as a value: what the control endpoint can do, a test in the same process can do too.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::clock::{self, Clock};
use super::config::{Config, Readings};
use super::cursor::Cursors;
use super::desk::{Desk, NoSuchTicket, TicketError};
use super::fault::{Endpoint, Fault};
use super::log::{RequestInfo, RequestLog, Requests};
use super::patch::{FieldError, Fields};
use super::strike::{Faults, Strike, Target};
use super::world::World;

/// Looks at a request before it is answered; it may change the simulator, and what it returns strikes that request.
pub type Hook = Box<dyn FnMut(&RequestInfo, &Simulator) -> Option<Fault> + Send>;

/// The API's server side: its data, its clock and its faults. It serves nothing by itself, see
/// [`serve`](super::serve) and [`Simulator::spawn`].
pub struct Simulator {
    config: Config,
    readings: Mutex<Readings>,
    clock: Clock,
    /// Shared with requests that are reading it, so that a long answer holds nobody up.
    world: Mutex<Arc<World>>,
    desk: Mutex<Desk>,
    faults: Mutex<Faults>,
    log: Mutex<RequestLog>,
    hook: Mutex<Option<Hook>>,
}

/// The lock, also after a panic elsewhere: the data is changed in single steps and never half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator").field("config", &self.config).finish_non_exhaustive()
    }
}

// === impl Simulator ===

impl Simulator {
    /// A simulator whose history ends now.
    pub fn new(config: Config) -> Arc<Self> {
        let clock = Clock::new(config.clock);
        let start = clock.now();
        Arc::new(Self {
            readings: Mutex::new(config.readings),
            clock,
            world: Mutex::new(Arc::new(World::new(&config, start))),
            desk: Mutex::new(Desk::new(&config, start)),
            faults: Mutex::new(Faults::new(config.seed, &config.faults)),
            log: Mutex::new(RequestLog::new(config.request_log)),
            hook: Mutex::new(None),
            config,
        })
    }

    /// What it was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The time by its clock.
    pub fn now(&self) -> Timestamp {
        clock::timestamp(self.clock.now())
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.clock.shift(clock::duration_millis(by));
    }

    /// Sets the clock, forward or back. Events that came into being stay.
    pub fn set_clock(&self, at: Timestamp) {
        // What came into being before the clock went back must not depend on when somebody looked.
        self.world();
        self.clock.set(clock::millis(at));
    }

    /// How silent spots are read at present.
    pub fn readings(&self) -> Readings {
        *lock(&self.readings)
    }

    /// Changes how silent spots are read. What the order of the listing goes by stays as it was at the start.
    pub fn change_readings(&self, change: impl FnOnce(&mut Readings)) {
        change(&mut lock(&self.readings));
    }

    /// Changes how many events come per second; 0 stops them.
    pub fn set_rate(&self, per_second: f64) {
        let now = self.clock.now();
        self.change_world(|world| world.timeline.set_rate(now, per_second));
    }

    /// Adds events now, a millisecond apart where there is room since the last one. They cost no memory.
    pub fn add_events(&self, count: u64) {
        let now = self.clock.now();
        self.change_world(|world| {
            if !world.timeline.add(now, count) {
                // The clock stands before the newest event, so these are rows out of order.
                for _ in 0..count {
                    world.insert(now, &Fields::new());
                }
            }
        });
    }

    /// Adds an entry with some fields given, created now unless `createdAt` is given; its id is returned.
    ///
    /// # Errors
    ///
    /// A field that no entry has, or a value of the wrong type, unless the fields are unchecked.
    pub fn add_entry(&self, fields: &Fields) -> Result<String, FieldError> {
        fields.check_entry()?;
        let given = fields.values.get("createdAt").and_then(|value| value.as_str()?.parse::<Timestamp>().ok());
        let created = given.map_or_else(|| self.clock.now(), clock::millis);
        Ok(self.change_world(|world| {
            let row = world.insert(created, fields);
            world.id(&row)
        }))
    }

    /// Adds entries that arrive now but were created that long before the newest entry, or longer.
    pub fn add_late(&self, count: u64, behind: Duration) {
        let now = self.clock.now();
        self.change_world(|world| {
            let newest = world.newest(0).map_or(now, |row| row.created);
            let edge = newest.saturating_sub(clock::duration_millis(behind));
            for i in 0..count {
                world.insert(edge.saturating_sub_unsigned(i), &Fields::new());
            }
        });
    }

    /// Retention: only the newest `keep` entries stay. Returns how many went.
    pub fn retain(&self, keep: u64) -> u64 {
        self.change_world(|world| {
            let before = world.len();
            if keep == 0 {
                world.drop_all();
            } else if let Some(oldest) = world.newest(keep - 1) {
                world.drop_below(oldest.key);
            }
            before - world.len()
        })
    }

    /// Retention: only entries created within this time stay. Returns how many went.
    pub fn retain_within(&self, age: Duration) -> u64 {
        let edge = self.clock.now().saturating_sub(clock::duration_millis(age));
        self.change_world(|world| {
            let before = world.len();
            world.drop_older(edge);
            before - world.len()
        })
    }

    /// Restored from a backup: the newest `drop` entries never happened. Returns how many went.
    pub fn restore(&self, drop: u64) -> u64 {
        self.change_world(|world| {
            let before = world.len();
            if drop >= before {
                world.drop_all();
            } else if let Some(row) = drop.checked_sub(1).and_then(|last| world.newest(last)) {
                world.drop_from(row.key);
            }
            before - world.len()
        })
    }

    /// Takes all entries away.
    pub fn clear_events(&self) {
        self.change_world(World::drop_all);
    }

    /// How many entries there are.
    pub fn event_count(&self) -> u64 {
        self.world().len()
    }

    /// Adds a ticket, created now unless given otherwise; its id is returned.
    ///
    /// # Errors
    ///
    /// A field that no ticket has, or a value of the wrong type, unless the fields are unchecked.
    pub fn add_ticket(&self, fields: Fields) -> Result<u64, FieldError> {
        let now = self.clock.now();
        self.desk().create(now, fields)
    }

    /// Changes fields of a ticket.
    ///
    /// # Errors
    ///
    /// As [`Simulator::add_ticket`], and when there is no such ticket.
    pub fn change_ticket(&self, id: u64, fields: Fields) -> Result<(), TicketError> {
        let now = self.clock.now();
        self.desk().change(now, id, fields)
    }

    /// Removes a ticket.
    ///
    /// # Errors
    ///
    /// When there is no such ticket.
    pub fn remove_ticket(&self, id: u64) -> Result<(), NoSuchTicket> {
        self.desk().remove(id)
    }

    /// Removes all tickets.
    pub fn clear_tickets(&self) {
        self.desk().clear();
    }

    /// Puts the tickets into another order.
    pub fn shuffle_tickets(&self, seed: u64) {
        self.desk().shuffle(seed);
    }

    /// The ids of all tickets, in the order of the listing.
    pub fn ticket_ids(&self) -> Vec<u64> {
        let order = self.readings().ticket_order;
        self.desk().ids(order)
    }

    /// Changes how often a ticket changes by itself, per second; 0 stops it.
    pub fn set_ticket_change_rate(&self, per_second: f64) {
        let now = self.clock.now();
        self.desk().set_rate(now, per_second);
    }

    /// Puts a fault in force; the number to remove it by is returned.
    pub fn fault(&self, fault: Fault) -> u64 {
        lock(&self.faults).add(fault)
    }

    /// Faults in force with their numbers, each with the `times` that are left.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        lock(&self.faults).list()
    }

    /// Removes a fault; false when it is not there (any more).
    pub fn remove_fault(&self, id: u64) -> bool {
        lock(&self.faults).remove(id)
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        lock(&self.faults).clear();
    }

    /// What was asked so far.
    pub fn requests(&self) -> Requests {
        lock(&self.log).requests()
    }

    /// Forgets what was asked.
    pub fn clear_requests(&self) {
        lock(&self.log).clear();
    }

    /// Calls this before each request of the two listings is answered, one request at a time; it replaces the last
    /// hook. The hook must not call this method itself.
    pub fn on_request(&self, hook: Hook) {
        *lock(&self.hook) = Some(hook);
    }

    /// Takes note of a request and asks the hook.
    pub(super) fn request_came(&self, endpoint: Endpoint, raw: &str, query: &[(String, String)]) -> (RequestInfo, Option<Fault>) {
        let info = lock(&self.log).came(endpoint, raw, query, self.now());
        let mut hook = lock(&self.hook);
        let fault = hook.as_mut().and_then(|hook| hook(&info, self));
        (info, fault)
    }

    /// The faults that hit a request.
    pub(super) fn strike(&self, target: Target<'_>, from_hook: Option<Fault>) -> Strike {
        lock(&self.faults).strike(target, from_hook)
    }

    pub(super) fn request_answered(&self, number: u64, status: u16) {
        lock(&self.log).answered(number, status);
    }

    pub(super) fn cursors(&self) -> Cursors {
        Cursors { seed: self.config.seed, key: self.config.readings.key, reading: self.readings().cursor }
    }

    /// The audit log at this moment.
    pub(super) fn world(&self) -> Arc<World> {
        let now = self.clock.now();
        let mut world = lock(&self.world);
        Arc::make_mut(&mut world).timeline.sync(now);
        Arc::clone(&world)
    }

    /// The tickets at this moment.
    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        let now = self.clock.now();
        let mut desk = lock(&self.desk);
        desk.sync(now);
        desk
    }

    /// The time by its clock, in milliseconds since 1970.
    pub(super) fn millis(&self) -> i64 {
        self.clock.now()
    }

    fn change_world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let now = self.clock.now();
        let mut world = lock(&self.world);
        let world = Arc::make_mut(&mut world);
        world.timeline.sync(now);
        change(world)
    }
}
