//! The tickets of the organization, how they change, and their listing (sections 2.3 and 4.2).
//!
//! Ambiguous places of the specification, as read here: `id`, `type`, `state`, `createdAt`, `updatedAt`, `organizationId`,
//! `createdByUserId` and `title` are always present, every other field may be missing or null; an offset behind the
//! last ticket gives an empty page; a capped page repeats the smaller limit.

use serde_json::{Value, json};

use crate::clock;
use crate::config::Config;
use crate::data;
use crate::dice::{Dice, Purpose};
use crate::fields::{Fields, NotFound, TICKET};
use crate::query::Query;
use crate::readings::{Readings, TotalCount};

/// Milliseconds of a day.
const DAY: u64 = 86_400_000;
/// The time before the start over which the first tickets were created.
const SPAN: u64 = 120 * DAY;
/// The specification only names `BUG`. Frequent types come more than once.
const TYPES: &[&str] = &["BUG", "BUG", "FEATURE_REQUEST", "QUESTION"];
/// The specification only names `OPEN`. Frequent states come more than once.
const STATES: &[&str] = &["OPEN", "OPEN", "IN_PROGRESS", "CLOSED", "REJECTED"];
/// Highest first. The specification only names `BLOCKER`.
const PRIORITIES: &[&str] = &["BLOCKER", "HIGH", "MEDIUM", "LOW"];

/// All tickets.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    seed: u64,
    organization: i64,
    /// In order of creation, unless shuffled.
    pub(crate) all: Vec<Value>,
    next_id: u64,
    /// Changes per second by the clock.
    pub(crate) rate: f64,
    /// The time of the last change by the clock, in milliseconds since 1970.
    pub(crate) changed_at: f64,
    /// The number of changes by the clock.
    changes: u64,
}

// === impl Tickets ===

impl Tickets {
    pub(crate) fn new(config: &Config, now: i64) -> Self {
        let mut tickets = Self {
            seed: config.seed,
            organization: config.organization_id,
            all: Vec::new(),
            next_id: 1,
            rate: config.ticket_change_rate,
            changed_at: now as f64,
            changes: 0,
        };
        for left in (1..=config.tickets).rev() {
            tickets.draw(now.saturating_sub_unsigned(SPAN / (config.tickets + 1) * left));
        }
        tickets
    }

    /// Makes the changes that are due.
    pub(crate) fn sync(&mut self, now: i64) {
        let period = 1000.0 / self.rate;
        while self.changed_at + period <= now as f64 {
            self.changed_at += period;
            self.changes += 1;
            self.change_by_clock(self.changed_at as i64);
        }
    }

    /// Creates a ticket and returns its id.
    pub(crate) fn create(&mut self, now: i64, fields: Fields) -> Result<u64, NotFound> {
        fields.check(TICKET)?;
        if let Some(id) = fields.get("id").and_then(Value::as_u64) {
            self.next_id = id;
        }
        let (id, ticket) = (self.next_id, self.draw(now));
        (ticket["state"], ticket["closedAt"]) = ("OPEN".into(), Value::Null);
        fields.apply(ticket);
        Ok(id)
    }

    /// Changes fields of a ticket.
    pub(crate) fn change(&mut self, now: i64, id: u64, fields: Fields) -> Result<(), NotFound> {
        fields.check(TICKET)?;
        let place = self.place(id)?;
        self.all[place]["updatedAt"] = clock::text(now).into();
        fields.apply(&mut self.all[place]);
        Ok(())
    }

    /// Removes a ticket.
    pub(crate) fn remove(&mut self, id: u64) -> Result<(), NotFound> {
        let place = self.place(id)?;
        self.all.remove(place);
        Ok(())
    }

    /// Puts the tickets into another order.
    pub(crate) fn shuffle(&mut self, seed: u64) {
        let mut dice = Dice::new(self.seed, Purpose::Shuffle, seed, 0);
        for i in (1..self.all.len()).rev() {
            self.all.swap(i, dice.below(i as u64 + 1) as usize);
        }
    }

    /// Returns the tickets in the order of the listing.
    pub(crate) fn listed(&self, readings: &Readings) -> impl Iterator<Item = &Value> {
        let count = self.all.len();
        let oldest_first = readings.tickets_oldest_first;
        (0..count).map(move |i| &self.all[if oldest_first { i } else { count - 1 - i }])
    }

    /// Returns the page for a request, or the body of a validation error.
    pub(crate) fn page(&self, readings: &Readings, query: &Query) -> Result<Value, Value> {
        query.check("limit offset", "")?;
        let limit = query.limit()?.min(readings.page_cap.unwrap_or(u64::MAX));
        let offset = query.offset()?;
        let skip = if readings.ignore_offset { 0 } else { offset };
        let tickets = self.listed(readings).skip(skip as usize);
        let items: Vec<Value> = tickets.take(limit as usize).cloned().collect();
        let count = items.len();
        let mut page = json!({ "items": null, "limit": limit, "offset": offset });
        page["items"] = items.into();
        page["totalCount"] = match readings.total_count {
            TotalCount::Missing => return Ok(page),
            TotalCount::Right => self.all.len().into(),
            TotalCount::Off(by) => (self.all.len() as i64 + by).into(),
            TotalCount::PageLength => count.into(),
        };
        Ok(page)
    }

    fn place(&self, id: u64) -> Result<usize, NotFound> {
        let place = self.all.iter().position(|ticket| ticket["id"] == id);
        place.ok_or_else(|| NotFound(format!("ticket {id}")))
    }

    fn change_by_clock(&mut self, now: i64) {
        let mut dice = Dice::new(self.seed, Purpose::TicketChange, self.changes, 0);
        let (what, count) = (dice.below(100), self.all.len() as u64);
        let place = dice.below(count) as usize;
        if what < 18 || count == 0 {
            let ticket = self.draw(now);
            (ticket["state"], ticket["closedAt"]) = ("OPEN".into(), Value::Null);
        } else if what < 32 {
            self.all.remove(place);
        } else {
            let ticket = &mut self.all[place];
            let now = clock::text(now);
            if what < 75 {
                let state = dice.pick(STATES);
                let closed_at = is_closed(state).then(|| now.clone());
                (ticket["state"], ticket["closedAt"]) = (state.into(), closed_at.into());
            } else {
                ticket["dealAmountSum"] = money(dice.below(50_000_000));
            }
            ticket["updatedAt"] = now.into();
        }
    }

    /// Generates the ticket with the next id.
    fn draw(&mut self, created: i64) -> &mut Value {
        let id = self.next_id;
        self.next_id += 1;
        let mut dice = Dice::new(self.seed, Purpose::Ticket, id, 0);
        let state = dice.pick(STATES);
        let updated = created + dice.below(DAY) as i64;
        let due = created + dice.below(150 * DAY) as i64;
        let by = data::draw_user(&mut dice);
        let title = format!("{} #{id}", data::title(by + id as i64));
        let mut amount = 0;
        let mut deals = Vec::new();
        for _ in 0..dice.pick(&[0, 1, 1, 1, 2, 3]) {
            let deal = data::draw_deal(&mut dice);
            amount += Dice::new(0, Purpose::Ticket, deal as u64, 2).below(25_000_000);
            deals.push(json!({
                "id": deal,
                "evaluationId": data::draw_evaluation(&mut dice, Some(deal)),
                "name": data::deal_name(deal),
                "priority": dice.pick(PRIORITIES),
                "sharedWithBuyer": dice.one_in(3),
            }));
        }
        let key = format!("EXT-{id}");
        let mut ticket = json!({
            "id": id,
            "type": dice.pick(TYPES),
            "state": state,
            "createdAt": clock::text(created),
            "updatedAt": clock::text(updated),
            "organizationId": self.organization,
            "createdByUserId": by,
            "title": title,
        });
        let optional = json!({
            "closedAt": is_closed(state).then(|| clock::text(updated)),
            "description": format!("Reported on {title}.\nSteps: 1 → 2 → 3"),
            "vendorEntityId": (10_000 + id).to_string(),
            "vendorEntityKey": key,
            "vendorEntityUrl": format!("https://tracker.example.com/{key}"),
            "integrationInstallationId": 12,
            "targetDueDate": clock::text(due),
            "linkedDeals": deals,
            "dealAmountSum": money(amount),
        });
        for (field, value) in optional.as_object().into_iter().flatten() {
            match dice.below(10) {
                0 => {}
                1 => ticket[field] = Value::Null,
                _ => ticket[field] = value.clone(),
            }
        }
        self.all.push(ticket);
        let last = self.all.len() - 1;
        &mut self.all[last]
    }
}

fn is_closed(state: &str) -> bool {
    matches!(state, "CLOSED" | "REJECTED")
}

/// Returns an amount of cents as a JSON number, which is whole if possible.
fn money(cents: u64) -> Value {
    match cents % 100 {
        0 => Value::from(cents / 100),
        _ => Value::from(cents as f64 / 100.0),
    }
}
