//! Three readings of the contract.

use std::cmp::Reverse;
use std::collections::{BTreeMap, hash_map::DefaultHasher};
use std::hash::{Hash as _, Hasher as _};

use jiff::tz::{TimeZone, offset};
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::{Value, json};

use super::world::{Page, Reading, Row, Ticket, World};

/// Entries are listed as they were written, whatever their times say, and appear in their places when they are committed. A cursor is the
/// number of a row.
pub(super) struct Arrival {
    pub(super) most: usize,
}

/// Cursors are tokens, other ones with each answer, also at the end. Pages are short. Times have the forms of ISO 8601 and of epochs, `Date`
/// the obsolete ones. Numbers have a fraction. Entries change after they were written. Half of the tickets lack what they may.
pub(super) struct Tokens {
    most: usize,
    tokens: BTreeMap<String, u64>,
    rng: fastrand::Rng,
}

/// Entries are listed by their time, of which only seconds are known, and then in an order that says nothing. A cursor is an id; the end has
/// none. There is no `Date`.
pub(super) struct Seconds {
    /// A cursor of a deleted entry is refused.
    pub(super) refuses: bool,
    /// A full page is said to be followed by another one, also if that is empty.
    pub(super) guesses: bool,
}

// === impl Arrival ===

impl Reading for Arrival {
    fn page<'a>(
        &mut self,
        world: &'a World,
        before: Option<&str>,
        limit: usize,
    ) -> Option<Page<'a>> {
        let below = before.map_or(Some(u64::MAX), |cursor| cursor.parse().ok())?;
        let older = world.committed().rev().filter(|row| row.number < below);
        let items: Vec<&Row> = older.take(limit).collect();
        let ends = [items.first(), items.last()];
        let [first, last] = ends.map(|row| row.map(|row| row.number));
        let has_newer = |first| world.committed().any(|row| row.number > first);
        let has_older = |last| world.committed().any(|row| row.number < last);
        Some(Page {
            items,
            start: first.map(|number| number.to_string()),
            end: last.map(|number| number.to_string()),
            has_previous: first.is_some_and(has_newer),
            has_more: last.is_some_and(has_older),
        })
    }

    fn tell(&self, _: &World, row: &Row, entry: &mut Value) {
        entry["metadata"] =
            json!({"": [1.5, null, {"deep": "\u{0}"}], "type": "another", "id": "1"});
        let occurred = row.created - SignedDuration::from_hours(900);
        entry["occurredAt"] = json!(occurred.to_string());
    }

    fn tickets(&self, world: &World) -> Vec<Value> {
        let whole = |ticket: &Ticket| {
            let deal = json!({"id": ticket.id % 3, "evaluationId": 1, "name": "A deal", "priority": "BLOCKER", "sharedWithBuyer": false});
            let closed = (ticket.state == "CLOSED").then(|| ticket.updated.to_string());
            json!({
                "id": ticket.id, "type": ticket.kind, "state": ticket.state, "createdAt": ticket.created.to_string(),
                "updatedAt": ticket.updated.to_string(), "closedAt": closed, "organizationId": 7, "createdByUserId": 1, "title": "",
                "description": "<p>", "vendorEntityId": "1", "vendorEntityKey": "K-1", "integrationInstallationId": 1,
                "targetDueDate": null, "linkedDeals": [deal], "dealAmountSum": 10.25, "vendorEntityUrl": "not a URL",
            })
        };
        world.tickets.iter().map(whole).collect()
    }

    fn most(&self) -> usize {
        self.most
    }

    fn date(&mut self, now: Timestamp) -> Option<String> {
        Some(now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
    }
}

// === impl Tokens ===

impl Tokens {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            tokens: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(1),
        }
    }

    fn token(&mut self, number: u64) -> String {
        let base64: Vec<char> = ('A'..='Z').chain("abc0123+/+/".chars()).collect();
        let token: String = (0..22).map(|_| self.rng.choice(&base64).unwrap()).collect();
        let token = format!("{token}==");
        self.tokens.insert(token.clone(), number);
        token
    }

    /// Writes a time in one of the possible ways.
    fn write(at: Timestamp, way: u64) -> String {
        let east = at.to_zoned(TimeZone::fixed(offset(5)));
        let text = match way % 7 {
            0 => at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ"),
            1 => at.strftime("%Y-%m-%dT%H:%M:%S.%3f+00:00"),
            2 => east.strftime("%Y-%m-%dT%H:%M:%S.%6f%:z"),
            3 => at.strftime("%Y%m%dT%H%M%S.%3fZ"),
            4 => at.strftime("%Y-%m-%dt%H:%M:%Sz"),
            5 => at.strftime("%Y-%m-%d %H:%M:%S.%fZ"),
            _ => return at.as_millisecond().to_string(),
        };
        text.to_string()
    }
}

impl Reading for Tokens {
    fn page<'a>(
        &mut self,
        world: &'a World,
        before: Option<&str>,
        limit: usize,
    ) -> Option<Page<'a>> {
        let below = before.map_or(Some(&u64::MAX), |cursor| self.tokens.get(cursor))?;
        let older = world.committed().rev().filter(|row| row.number < *below);
        let mut items: Vec<&Row> = older.take(limit + 1).collect();
        let has_more = items.len() > limit;
        items.truncate(limit);
        let ends = [items.first(), items.last()];
        let [start, end] = ends.map(|row| row.map(|row| self.token(row.number)));
        Some(Page {
            items,
            start,
            end,
            has_previous: false,
            has_more,
        })
    }

    fn tell(&self, world: &World, row: &Row, entry: &mut Value) {
        for (name, way) in [("occurredAt", 1), ("createdAt", 0), ("updatedAt", 2)] {
            entry[name] = json!(Self::write(row.created, row.number + way));
        }
        entry["organizationId"] = json!(7.0);
        // What is joined has changed.
        entry["organization"] =
            json!({"name": format!("Renamed {} times", world.step / 8), "id": 7});
        if let Some(id) = row.actor {
            let name = world.step.is_multiple_of(2).then_some("Zoë");
            entry["actorUserId"] = json!(id as f64);
            entry["actorUser"] =
                json!({"id": id, "firstName": name, "lastName": null, "profileImageUrl": null});
        }
    }

    fn tickets(&self, world: &World) -> Vec<Value> {
        let mut tickets: Vec<&Ticket> = world.tickets.iter().collect();
        tickets.sort_by_key(|ticket| Reverse(ticket.updated));
        let sparse = |ticket: &Ticket| {
            let mut sparse = json!({"id": ticket.id, "type": ticket.kind, "state": ticket.state, "colour": {"r": 1}});
            if ticket.id.is_multiple_of(2) {
                sparse["createdAt"] = json!(Self::write(ticket.created, ticket.id / 2));
                sparse["linkedDeals"] = json!([{"id": 5, "more": []}]);
            }
            sparse
        };
        tickets.into_iter().map(sparse).collect()
    }

    fn most(&self) -> usize {
        self.most
    }

    fn date(&mut self, now: Timestamp) -> Option<String> {
        let obsolete = ["%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
        let format = self.rng.choice(obsolete).unwrap();
        Some(now.strftime(format).to_string())
    }
}

// === impl Seconds ===

impl Seconds {
    fn second(row: &Row) -> Timestamp {
        row.created.round(Unit::Second).unwrap()
    }

    fn place(row: &Row) -> (Timestamp, u64) {
        let mut hasher = DefaultHasher::new();
        row.id.hash(&mut hasher);
        (Self::second(row), hasher.finish())
    }
}

impl Reading for Seconds {
    fn page<'a>(
        &mut self,
        world: &'a World,
        before: Option<&str>,
        limit: usize,
    ) -> Option<Page<'a>> {
        let mut rows: Vec<&Row> = world.committed().collect();
        rows.sort_by_key(|row| Reverse(Self::place(row)));
        if let Some(cursor) = before {
            match rows.iter().find(|row| row.id == cursor) {
                Some(row) => {
                    let place = Self::place(row);
                    rows.retain(|row| Self::place(row) < place);
                }
                None if self.refuses => return None,
                // Only the oldest one is older.
                None => drop(rows.drain(..rows.len() - 1)),
            }
        }
        let has_more = rows.len() > limit || (self.guesses && rows.len() == limit);
        rows.truncate(limit);
        let id = |row: &&Row| row.id.clone();
        Some(Page {
            start: rows.first().map(id),
            end: rows.last().filter(|_| has_more).map(id),
            has_previous: before.is_some(),
            has_more,
            items: rows,
        })
    }

    fn tell(&self, _: &World, row: &Row, entry: &mut Value) {
        for name in ["occurredAt", "createdAt", "updatedAt"] {
            entry[name] = json!(Self::second(row).to_string());
        }
        let kind = json!({"id": 2, "name": "x"});
        entry["teamRequest"] = json!({"id": 1, "status": "", "teamRequestType": kind});
    }

    fn tickets(&self, world: &World) -> Vec<Value> {
        let nulls = |ticket: &Ticket| {
            json!({
                "id": ticket.id, "type": ticket.kind, "state": ticket.state, "createdAt": ticket.created.to_string(), "closedAt": null,
                "updatedAt": null, "title": null, "linkedDeals": null, "dealAmountSum": null, "targetDueDate": null,
            })
        };
        world.tickets.iter().rev().map(nulls).collect()
    }

    fn most(&self) -> usize {
        10
    }

    fn date(&mut self, _: Timestamp) -> Option<String> {
        None
    }
}
