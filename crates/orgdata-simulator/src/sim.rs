//! The simulator as a value, what a test or the control endpoint can do with it, and the log of its requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::clock::{self, Clock};
use crate::config::Config;
use crate::fault::{Endpoint, Fault};
use crate::fields::{ENTRY, Fields, NotFound};
use crate::query::Query;
use crate::readings::Readings;
use crate::tickets::Tickets;
use crate::world::World;

/// How many of the last requests are remembered.
const REQUEST_LOG: usize = 1_000;

/// Sees a request before it is answered. It may change the simulator, and the fault it returns strikes the request.
pub type Hook = Box<dyn FnMut(&RequestInfo, &Simulator) -> Option<Fault> + Send>;

/// The data, the clock and the faults of a simulated API. It is served with [`serve`](crate::serve) or
/// [`Simulator::spawn`].
pub struct Simulator {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

/// What changes while a simulator runs.
pub(crate) struct State {
    pub(crate) readings: Readings,
    pub(crate) world: World,
    pub(crate) tickets: Tickets,
    pub(crate) faults: Vec<Fault>,
    pub(crate) requests: Requests,
}

/// Locks even if another thread panicked: a test that failed must not fail others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Simulator").field(&self.config).finish()
    }
}

/// A request, as a hook and the log see it.
#[derive(Clone, Debug, Serialize)]
pub struct RequestInfo {
    /// The number of the request, from 1, since [`Simulator::clear_requests`].
    pub number: u64,
    /// The listing that was requested.
    pub endpoint: Endpoint,
    /// The decoded parameters, in order.
    query: Query,
}

/// The requests so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Requests {
    /// The number of requests to the audit log listing.
    pub audit: u64,
    /// The number of requests to the ticket listing.
    pub tickets: u64,
    /// The number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// The last requests, oldest first.
    pub last: Vec<RequestInfo>,
}

// === impl Simulator ===

impl Simulator {
    /// Creates a simulator whose history ends now.
    pub fn new(config: Config) -> Arc<Self> {
        let clock = Clock::new(config.clock);
        let state = State {
            readings: config.readings,
            world: World::new(&config, clock.now()),
            tickets: Tickets::new(&config, clock.now()),
            faults: config.faults.clone(),
            requests: Requests::default(),
        };
        Arc::new(Self {
            config,
            clock,
            state: Mutex::new(state),
            hook: Mutex::new(None),
        })
    }

    /// Returns the time of its clock.
    pub fn now(&self) -> Timestamp {
        clock::timestamp(self.clock.now())
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(clock::millis(by));
    }

    /// Sets the clock, forward or back. Live entries and ticket changes that were due stay, and none are due for the time between the two.
    pub fn set_clock(&self, at: Timestamp) {
        let mut state = self.state();
        self.clock.set(at.as_millisecond());
        let (now, rate) = (self.clock.now(), state.world.rate);
        state.world.set_rate(now, rate);
        state.tickets.changed_at = now as f64;
    }

    /// Returns how ambiguous places of the specification are read at present.
    pub fn readings(&self) -> Readings {
        lock(&self.state).readings
    }

    /// Changes how ambiguous places of the specification are read. The order of the audit log stays as it was at the start.
    pub fn change_readings(&self, change: impl FnOnce(&mut Readings)) {
        change(&mut self.state().readings);
    }

    /// Sets the number of live entries per second.
    pub fn set_rate(&self, per_second: f64) {
        let now = self.clock.now();
        self.state().world.set_rate(now, per_second);
    }

    /// Adds entries now, a millisecond apart if there is room since the newest one.
    pub fn add_events(&self, count: u64) {
        let (now, state) = (self.clock.now(), &mut *self.state());
        let newest = state.world.rows.last();
        let newest = newest.map_or(i64::MIN, |row| row.key.created);
        for i in (0..count).rev() {
            let at = now.saturating_sub_unsigned(i).max(newest).min(now);
            state.world.insert(at, None);
        }
    }

    /// Adds an entry, created now unless `createdAt` is given, and returns its id.
    ///
    /// # Errors
    ///
    /// A field that no entry has, unless the fields are unchecked.
    pub fn add_entry(&self, fields: &Fields) -> Result<String, NotFound> {
        fields.check(ENTRY)?;
        let given = fields.get("createdAt").and_then(Value::as_str);
        let given = given.and_then(|time| time.parse().ok());
        let created = given.map_or(self.clock.now(), Timestamp::as_millisecond);
        let world = &mut self.state().world;
        let fields = Some(Box::new(fields.clone()));
        let row = world.insert(created, fields).clone();
        let entry = world.entry(&row);
        Ok(entry["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Adds entries that arrive now but were created at least this long before the newest entry.
    pub fn add_late(&self, count: u64, behind: Duration) {
        let (now, world) = (self.clock.now(), &mut self.state().world);
        let newest = world.rows.last().map_or(now, |row| row.key.created);
        let created = newest.saturating_sub(clock::millis(behind));
        for i in 0..count {
            world.insert(created.saturating_sub_unsigned(i), None);
        }
    }

    /// Gives the organization another name, also in the entries that are there.
    pub fn rename(&self, name: &str) {
        name.clone_into(&mut self.state().world.organization_name);
    }

    /// Removes all but the newest `keep` entries.
    pub fn retain(&self, keep: u64) {
        self.state().world.retain(keep as usize);
    }

    /// Adds a ticket, created now unless given otherwise, and returns its id.
    ///
    /// # Errors
    ///
    /// A field that no ticket has, unless the fields are unchecked.
    pub fn add_ticket(&self, fields: Fields) -> Result<u64, NotFound> {
        let now = self.clock.now();
        self.state().tickets.create(now, fields)
    }

    /// Changes fields of a ticket.
    ///
    /// # Errors
    ///
    /// Like [`Simulator::add_ticket`], and if no ticket has the id.
    pub fn change_ticket(&self, id: u64, fields: Fields) -> Result<(), NotFound> {
        let now = self.clock.now();
        self.state().tickets.change(now, id, fields)
    }

    /// Removes a ticket.
    ///
    /// # Errors
    ///
    /// If no ticket has the id.
    pub fn remove_ticket(&self, id: u64) -> Result<(), NotFound> {
        self.state().tickets.remove(id)
    }

    /// Removes all tickets.
    pub fn clear_tickets(&self) {
        self.state().tickets.all.clear();
    }

    /// Puts the tickets into another order.
    pub fn shuffle_tickets(&self, seed: u64) {
        self.state().tickets.shuffle(seed);
    }

    /// Returns the ids of all tickets in the order of the listing.
    pub fn ticket_ids(&self) -> Vec<u64> {
        let state = self.state();
        let tickets = state.tickets.listed(&state.readings);
        tickets.filter_map(|ticket| ticket["id"].as_u64()).collect()
    }

    /// Returns all tickets as they are served, in order of creation.
    pub fn tickets(&self) -> Vec<Value> {
        self.state().tickets.all.clone()
    }

    /// Adds a fault.
    pub fn fault(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Requests {
        self.state().requests.clone()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.state().requests = Requests::default();
    }

    /// Calls the hook before each request of the two listings, one at a time. It replaces the last hook.
    pub fn on_request(&self, hook: Hook) {
        *lock(&self.hook) = Some(hook);
    }

    /// Logs a request and returns the fault that the hook returned.
    pub(crate) fn request_came(&self, endpoint: Endpoint, query: &Query) -> Option<Fault> {
        let info = self.state().requests.add(endpoint, query.clone());
        let mut hook = lock(&self.hook);
        hook.as_mut().and_then(|hook| hook(&info, self))
    }

    /// Returns the state at this moment. It must not be held while another method is called.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        let now = self.clock.now();
        state.world.sync(now);
        state.tickets.sync(now);
        state
    }
}

// === impl RequestInfo ===

impl RequestInfo {
    /// Returns the first value of a parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.query.get(name)
    }
}

// === impl Requests ===

impl Requests {
    /// Counts a request, and keeps it and the last ones before it.
    fn add(&mut self, endpoint: Endpoint, query: Query) -> RequestInfo {
        match endpoint {
            Endpoint::Audit => self.audit += 1,
            Endpoint::Tickets => self.tickets += 1,
        }
        let info = RequestInfo {
            number: self.audit + self.tickets,
            endpoint,
            query,
        };
        self.last.push(info.clone());
        let excess = self.last.len().saturating_sub(REQUEST_LOG);
        self.last.drain(..excess);
        info
    }
}
