//! The simulator as a value: what the control endpoint can do, a test in the same process can do too.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::clock::{self, Clock};
use super::config::Config;
use super::cursor::Cursors;
use super::desk::Desk;
use super::fault::{Endpoint, Fault};
use super::log::{RequestInfo, RequestLog, Requests};
use super::readings::Readings;
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
    pub(super) faults: Mutex<Faults>,
    log: Mutex<RequestLog>,
    hook: Mutex<Option<Hook>>,
}

/// The lock, also after a panic elsewhere: the data is changed in single steps and never half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator")
            .field("config", &self.config)
            .finish_non_exhaustive()
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
    pub(super) fn request_came(
        &self,
        endpoint: Endpoint,
        raw: &str,
        query: &[(String, String)],
    ) -> (RequestInfo, Option<Fault>) {
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
        Cursors {
            seed: self.config.seed,
            key: self.config.readings.key,
            reading: self.readings().cursor,
        }
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

    /// Changes the audit log as it is at this moment.
    pub(super) fn change_world<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let now = self.clock.now();
        let mut world = lock(&self.world);
        let world = Arc::make_mut(&mut world);
        world.timeline.sync(now);
        change(world)
    }
}
