//! The organization's tickets: generated, changed by the clock and by hand.

use serde_json::{Map, Value};

use super::config::Config;
use super::dice::{Dice, Purpose};
use super::patch::{FieldError, Fields, check_ticket};
use super::readings::TicketOrder;
use super::ticket::{Facts, STATES, Ticket, is_closed};

/// Time before the start over which the first tickets were created, in milliseconds: 120 days.
const SPAN: u64 = 120 * 86_400_000;

/// A ticket in its place; most are only a number.
#[derive(Clone, Debug)]
struct Slot {
    id: u64,
    edit: Option<Box<Edit>>,
}

/// What changed in a ticket since it was drawn.
#[derive(Clone, Debug)]
struct Edit {
    facts: Facts,
    fields: Fields,
}

/// All tickets.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    seed: u64,
    organization: i64,
    /// In the order of creation, unless shuffled.
    slots: Vec<Slot>,
    start: i64,
    /// Tickets that existed at the start.
    first: u64,
    next_id: u64,
    /// Nanoseconds between two changes by the clock; `None`: no changes.
    period: Option<u64>,
    /// When the changes of this period began, in milliseconds since 1970, and how many were made.
    origin: i64,
    changes: u64,
    /// Changes made in all; the next one's number.
    change: u64,
}

/// What the clock or a hand did to tickets: nothing there with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no ticket has the id {0}")]
pub struct NoSuchTicket(pub u64);

/// Why a ticket was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// There is none with this id.
    #[error(transparent)]
    Missing(#[from] NoSuchTicket),
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
}

// === impl Desk ===

impl Desk {
    pub(super) fn new(config: &Config, start: i64) -> Self {
        let mut desk = Self {
            seed: config.seed,
            organization: config.organization_id,
            slots: (1..=config.tickets)
                .map(|id| Slot { id, edit: None })
                .collect(),
            start,
            first: config.tickets,
            next_id: config.tickets + 1,
            period: None,
            origin: start,
            changes: 0,
            change: 0,
        };
        desk.set_rate(start, config.ticket_change_rate);
        desk
    }

    /// How many tickets there are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Changes per second from now on; 0 stops them.
    pub(super) fn set_rate(&mut self, now: i64, rate: f64) {
        self.sync(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast saturates, as is wanted"
        )]
        let period = (rate > 0.0).then(|| ((1e9 / rate) as u64).max(1));
        (self.period, self.origin, self.changes) = (period, now, 0);
    }

    /// Makes the changes whose time has come.
    pub(super) fn sync(&mut self, now: i64) {
        let Some(period) = self.period else { return };
        let elapsed = u128::try_from(now.saturating_sub(self.origin)).unwrap_or(0) * 1_000_000;
        let due = u64::try_from(elapsed / u128::from(period)).unwrap_or(u64::MAX);
        while self.changes < due {
            self.changes += 1;
            let offset = u128::from(self.changes) * u128::from(period) / 1_000_000;
            self.change_one(
                self.origin
                    .saturating_add(i64::try_from(offset).unwrap_or(i64::MAX)),
            );
        }
    }

    /// Creates a ticket; its id is returned.
    pub(super) fn create(&mut self, now: i64, fields: Fields) -> Result<u64, FieldError> {
        check_ticket(&fields)?;
        let given = fields.values.get("id").and_then(Value::as_u64);
        let id = given.unwrap_or(self.next_id);
        self.next_id = self.next_id.max(id.saturating_add(1));
        let facts = Facts {
            state: "OPEN",
            created: now,
            updated: now,
            closed: None,
            cents: None,
        };
        self.slots.push(Slot {
            id,
            edit: Some(Box::new(Edit { facts, fields })),
        });
        Ok(id)
    }

    /// Changes fields of a ticket.
    pub(super) fn change(&mut self, now: i64, id: u64, fields: Fields) -> Result<(), TicketError> {
        check_ticket(&fields)?;
        let at = self.place(id)?;
        let edit = self.edit(at);
        edit.facts.updated = now;
        let Fields {
            values,
            omitted,
            unchecked,
        } = fields;
        edit.fields
            .omitted
            .retain(|field| !values.contains_key(field));
        for field in &omitted {
            edit.fields.values.shift_remove(field);
        }
        edit.fields.values.extend(values);
        edit.fields.omitted.extend(omitted);
        edit.fields.unchecked |= unchecked;
        Ok(())
    }

    /// Removes a ticket.
    pub(super) fn remove(&mut self, id: u64) -> Result<(), NoSuchTicket> {
        let at = self.place(id)?;
        self.slots.remove(at);
        Ok(())
    }

    /// Removes all tickets.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Puts the tickets into another order.
    pub(super) fn shuffle(&mut self, seed: u64) {
        let mut dice = Dice::new(self.seed, Purpose::Shuffle, seed, 0);
        for i in (1..self.slots.len()).rev() {
            let other = usize::try_from(dice.below(i as u64 + 1)).unwrap_or(0);
            self.slots.swap(i, other);
        }
    }

    /// The tickets in the order of the listing, each with its id and as JSON, from this place on.
    pub(super) fn listed(
        &self,
        order: TicketOrder,
        offset: usize,
        count: usize,
    ) -> Vec<(u64, String)> {
        let place = |i: usize| match order {
            TicketOrder::OldestFirst => i,
            TicketOrder::NewestFirst => self.slots.len() - 1 - i,
        };
        let end = offset.saturating_add(count).min(self.slots.len());
        (offset.min(end)..end)
            .map(|i| (self.slots[place(i)].id, self.json(place(i))))
            .collect()
    }

    /// The ids of all tickets, in the order of the listing.
    pub(super) fn ids(&self, order: TicketOrder) -> Vec<u64> {
        let mut ids: Vec<u64> = self.slots.iter().map(|slot| slot.id).collect();
        if order == TicketOrder::NewestFirst {
            ids.reverse();
        }
        ids
    }

    /// The ticket at a place, and its JSON object when fields of it were given by hand.
    pub(super) fn ticket(&self, at: usize) -> (Ticket, Option<Map<String, Value>>) {
        let slot = &self.slots[at];
        let ticket = Ticket::draw(self.seed, slot.id, &self.facts(slot), self.organization);
        let fields = slot
            .edit
            .as_ref()
            .map(|edit| &edit.fields)
            .filter(|fields| !fields.is_empty());
        let map = fields.and_then(|fields| {
            let Ok(Value::Object(mut map)) = serde_json::to_value(&ticket) else {
                return None;
            };
            fields.apply(&mut map);
            Some(map)
        });
        (ticket, map)
    }

    fn json(&self, at: usize) -> String {
        match self.ticket(at) {
            (_, Some(map)) => serde_json::to_string(&map),
            (ticket, None) => serde_json::to_string(&ticket),
        }
        .unwrap_or_default()
    }

    fn facts(&self, slot: &Slot) -> Facts {
        match &slot.edit {
            Some(edit) => edit.facts.clone(),
            None => {
                let share = u128::from(SPAN) * u128::from(self.first + 1 - slot.id.min(self.first))
                    / u128::from(self.first + 1);
                let created = self
                    .start
                    .saturating_sub_unsigned(u64::try_from(share).unwrap_or(0));
                Facts::draw(self.seed, slot.id, created, self.start)
            }
        }
    }

    fn place(&self, id: u64) -> Result<usize, NoSuchTicket> {
        self.slots
            .iter()
            .position(|slot| slot.id == id)
            .ok_or(NoSuchTicket(id))
    }

    fn edit(&mut self, at: usize) -> &mut Edit {
        let facts = self.facts(&self.slots[at]);
        self.slots[at].edit.get_or_insert_with(|| {
            Box::new(Edit {
                facts,
                fields: Fields::new(),
            })
        })
    }

    fn change_one(&mut self, at: i64) {
        self.change += 1;
        let mut dice = Dice::new(self.seed, Purpose::TicketChange, self.change, 0);
        let what = dice.below(100);
        let count = self.slots.len() as u64;
        if what < 18 || count == 0 {
            let facts = Facts {
                state: "OPEN",
                created: at,
                updated: at,
                closed: None,
                cents: None,
            };
            self.slots.push(Slot {
                id: self.next_id,
                edit: Some(Box::new(Edit {
                    facts,
                    fields: Fields::new(),
                })),
            });
            self.next_id += 1;
            return;
        }
        let place = usize::try_from(dice.below(count)).unwrap_or(0);
        if what < 32 {
            self.slots.remove(place);
            return;
        }
        let edit = self.edit(place);
        edit.facts.updated = at;
        if what < 75 {
            edit.facts.state = dice.pick(STATES);
            edit.facts.closed = is_closed(edit.facts.state).then_some(at);
            edit.fields
                .values
                .retain(|field, _| field != "state" && field != "closedAt");
        } else {
            edit.facts.cents = Some(i64::try_from(dice.below(50_000_000)).unwrap_or(0));
            edit.fields.values.shift_remove("dealAmountSum");
        }
    }
}
