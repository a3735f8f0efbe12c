//! The true numbers, which tests compare with, and every audit log entry in order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use rust_decimal::prelude::{Decimal, RoundingStrategy, ToPrimitive as _};
use serde_json::Value;

use crate::clock;
use crate::sim::Simulator;
use crate::tickets::PRIORITIES;
use crate::world::{Row, World};

/// A moment in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Which entries to count or to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only entries that arrived since then, with late ones among them.
    pub since: Option<Mark>,
    /// Also entries that were removed.
    pub removed: bool,
}

/// Numbers about the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// The number of entries.
    pub total: u64,
    /// Entries by type and `actorUserId`. A malformed entry without a type counts under `""`.
    pub counts: BTreeMap<(String, Option<i64>), u64>,
}

/// An entry as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its id; empty if a malformed entry has none.
    pub id: String,
    /// Its type; empty if a malformed entry has none.
    pub activity_type: String,
    /// Its actor.
    pub actor: Option<i64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its JSON.
    pub json: String,
}

/// Numbers about the tickets at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketTruth {
    /// The number of tickets.
    pub total: u64,
    /// Tickets by state, type and highest priority.
    pub groups: BTreeMap<TicketGroup, TicketSums>,
    /// Distinct deals linked to open tickets by their highest priority there.
    pub open_deals: BTreeMap<String, u64>,
}

/// A group of tickets. A missing field, null, or a value of another type is `none`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketGroup {
    /// `state`.
    pub state: String,
    /// `type`.
    pub ticket_type: String,
    /// The highest priority among the linked deals. Unknown ones rank below `LOW`, by name.
    pub priority: String,
}

/// Sums over a group of tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketSums {
    /// The number of tickets.
    pub tickets: u64,
    /// The sum of `dealAmountSum` in cents. Each amount is rounded to whole cents, halves away from zero.
    pub cents: i128,
    /// The number of tickets with a `targetDueDate` before now.
    pub overdue: u64,
    /// `createdAt` of the oldest one, in milliseconds since 1970; `None` if no ticket has a time.
    pub oldest_created_ms: Option<i64>,
}

// === impl Scope ===

impl Scope {
    /// Returns the scope of everything that arrived since a mark, even if it was removed.
    pub fn arrived_since(mark: Mark) -> Self {
        Self {
            since: Some(mark),
            removed: true,
        }
    }

    fn rows(self, world: &World) -> Vec<Row> {
        let arrived = |row: &&Row| self.since.is_none_or(|mark| row.key.number >= mark.0);
        let removed = world.removed.iter().filter(|_| self.removed);
        let rows = world.rows.iter().chain(removed).filter(arrived);
        let mut rows: Vec<Row> = rows.cloned().collect();
        rows.sort_by_key(|row| world.rank(row.key));
        rows
    }
}

// === impl Simulator ===

impl Simulator {
    /// Returns this moment in the order of arrival.
    pub fn mark(&self) -> Mark {
        Mark(self.state().world.next_number)
    }

    /// Returns numbers about all entries.
    pub fn truth(&self) -> Truth {
        self.truth_of(Scope::default())
    }

    /// Returns numbers about the entries of a scope.
    pub fn truth_of(&self, scope: Scope) -> Truth {
        let world = &self.state().world;
        let mut truth = Truth::default();
        for row in scope.rows(world) {
            let entry = world.entry(&row);
            let kind = entry["type"].as_str().unwrap_or_default().to_owned();
            let series = (kind, entry["actorUserId"].as_i64());
            *truth.counts.entry(series).or_default() += 1;
            truth.total += 1;
        }
        truth
    }

    /// Returns all entries, oldest first in the order of the listing.
    pub fn entries(&self) -> impl Iterator<Item = Served> + use<> {
        self.entries_of(Scope::default())
    }

    /// Returns the entries of a scope, oldest first in the order of the listing.
    pub fn entries_of(&self, scope: Scope) -> impl Iterator<Item = Served> + use<> {
        let world = self.state().world.clone();
        let rows = scope.rows(&world);
        rows.into_iter().map(move |row| {
            let entry = world.entry(&row);
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            Served {
                id: text("id"),
                activity_type: text("type"),
                actor: entry["actorUserId"].as_i64(),
                created_at: clock::timestamp(row.key.created),
                json: entry.to_string(),
            }
        })
    }

    /// Returns numbers about all tickets. `open` are the states that count as open.
    pub fn ticket_truth(&self, open: &[&str]) -> TicketTruth {
        let (now, state) = (self.clock.now(), self.state());
        let mut truth = TicketTruth::default();
        let mut open_links = BTreeSet::new();
        for ticket in &state.tickets.all {
            truth.total += 1;
            let links = links(ticket);
            let highest = links.iter().map(|(_, priority)| rank(priority)).min();
            let group = TicketGroup {
                state: text(ticket, "state"),
                ticket_type: text(ticket, "type"),
                priority: highest.map_or("none".to_owned(), |(_, name)| name),
            };
            if open.contains(&group.state.as_str()) {
                for (deal, priority) in links {
                    open_links.extend(deal.map(|deal| (deal, rank(&priority))));
                }
            }
            let sums = truth.groups.entry(group).or_default();
            sums.tickets += 1;
            sums.cents += cents(&ticket["dealAmountSum"]).unwrap_or(0);
            let due = time(ticket, "targetDueDate");
            sums.overdue += u64::from(due.is_some_and(|due| due < now));
            let created = time(ticket, "createdAt");
            sums.oldest_created_ms = sums.oldest_created_ms.into_iter().chain(created).min();
        }
        let mut last = None;
        // Sorted by deal and then by rank, so the first link of a deal has its highest priority.
        for (deal, (_, priority)) in open_links {
            if last.replace(deal) != Some(deal) {
                *truth.open_deals.entry(priority).or_default() += 1;
            }
        }
        truth
    }
}

fn text(ticket: &Value, field: &str) -> String {
    ticket[field].as_str().unwrap_or("none").to_owned()
}

fn time(ticket: &Value, field: &str) -> Option<i64> {
    let time: Timestamp = ticket[field].as_str()?.parse().ok()?;
    Some(time.as_millisecond())
}

/// Returns deal and priority of each link.
fn links(ticket: &Value) -> Vec<(Option<i64>, String)> {
    let links = ticket["linkedDeals"].as_array().into_iter().flatten();
    let link = |link: &Value| (link["id"].as_i64(), text(link, "priority"));
    links.map(link).collect()
}

/// Returns a key that sorts the highest priority first and unknown ones last, by name.
fn rank(priority: &str) -> (usize, String) {
    let known = PRIORITIES.iter().position(|known| *known == priority);
    (known.unwrap_or(PRIORITIES.len()), priority.to_owned())
}

/// Returns a JSON number in cents.
fn cents(value: &Value) -> Option<i128> {
    let text = value.as_number()?.to_string();
    let exact = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text));
    let cents = exact.ok()?.checked_mul(Decimal::ONE_HUNDRED)?;
    let rounded = cents.round_dp_with_strategy(0, RoundingStrategy::MidpointAwayFromZero);
    rounded.to_i128()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_exact_cents() {
        for (value, expected) in [
            (json!(0.1), Some(10)),
            (json!(-12.345), Some(-1235)),
            (json!(1234567.89), Some(123_456_789)),
            (json!(7), Some(700)),
            (json!(-0.004), Some(0)),
            (json!(1e18), Some(100_000_000_000_000_000_000)),
            (json!(1e300), None),
            (json!("7"), None),
            (json!(null), None),
        ] {
            assert_eq!(cents(&value), expected, "{value}");
        }
    }
}
