//! What can be done to a simulator's data while it runs: events, tickets, faults.

use std::time::Duration;

use jiff::Timestamp;

use super::clock;
use super::desk::{NoSuchTicket, TicketError};
use super::fault::Fault;
use super::patch::{FieldError, Fields};
use super::sim::{Simulator, lock};
use super::world::World;

// === impl Simulator ===

impl Simulator {
    /// Changes how many events come per second; 0 stops them.
    pub fn set_rate(&self, per_second: f64) {
        let now = self.millis();
        self.change_world(|world| world.timeline.set_rate(now, per_second));
    }

    /// Adds events now, a millisecond apart where there is room since the last one. They cost no memory.
    pub fn add_events(&self, count: u64) {
        let now = self.millis();
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
        let given = fields
            .values
            .get("createdAt")
            .and_then(|value| value.as_str()?.parse::<Timestamp>().ok());
        let created = given.map_or_else(|| self.millis(), clock::millis);
        Ok(self.change_world(|world| {
            let row = world.insert(created, fields);
            world.id(&row)
        }))
    }

    /// Adds entries that arrive now but were created that long before the newest entry, or longer.
    pub fn add_late(&self, count: u64, behind: Duration) {
        let now = self.millis();
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
        let edge = self.millis().saturating_sub(clock::duration_millis(age));
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
        let now = self.millis();
        self.desk().create(now, fields)
    }

    /// Changes fields of a ticket.
    ///
    /// # Errors
    ///
    /// As [`Simulator::add_ticket`], and when there is no such ticket.
    pub fn change_ticket(&self, id: u64, fields: Fields) -> Result<(), TicketError> {
        let now = self.millis();
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
        let now = self.millis();
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
}
