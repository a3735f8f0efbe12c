//! What is the case with the tickets: aggregates over all of them, sums in exact cents.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::desk::Desk;
use super::sim::Simulator;
use super::ticket::{PRIORITIES, Ticket};

/// Numbers about the tickets at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TicketTruth {
    /// Tickets there are.
    pub total: u64,
    /// Tickets by state, type and highest priority.
    pub groups: BTreeMap<TicketGroup, TicketSums>,
    /// Distinct deals linked to open tickets, each under its highest priority there.
    pub open_deals: BTreeMap<String, u64>,
    /// Distinct deals linked to open tickets, under every priority they have there.
    pub open_deals_by_link: BTreeMap<String, u64>,
    /// Tickets whose `dealAmountSum` is no number, or one too large to be counted in cents.
    pub without_amount: u64,
}

/// Tickets that belong together. A missing field, null, or a value of another type is `none`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketGroup {
    /// `state`.
    pub state: String,
    /// `type`.
    pub ticket_type: String,
    /// The highest priority among its linked deals; unknown ones rank below `LOW`, by name; `none` without a link.
    pub priority: String,
}

/// Sums over a group of tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TicketSums {
    /// How many.
    pub tickets: u64,
    /// The sum of `dealAmountSum` in cents; each amount is first rounded to whole cents, halves away from zero.
    pub cents: i128,
    /// How many have a `targetDueDate` before now.
    pub overdue: u64,
    /// `createdAt` of the oldest one, in milliseconds since 1970; `None` when none has a time.
    pub oldest_created_ms: Option<i64>,
}

/// What counts in one ticket.
#[derive(Debug, Default)]
struct Look {
    state: Option<String>,
    kind: Option<String>,
    cents: Option<i128>,
    due: Option<i64>,
    created: Option<i64>,
    /// Deal and priority of each link.
    links: Vec<(Option<i64>, String)>,
}

// === impl Simulator ===

impl Simulator {
    /// Numbers about all tickets; `open` are the states that count as open.
    pub fn ticket_truth(&self, open: &[&str]) -> TicketTruth {
        let now = self.millis();
        let desk = self.desk().clone();
        let mut truth = TicketTruth {
            total: desk.len() as u64,
            ..TicketTruth::default()
        };
        let mut links = BTreeSet::new();
        for at in 0..desk.len() {
            let look = Look::at(&desk, at);
            let highest = look.links.iter().map(|(_, priority)| rank(priority)).min();
            let none = || "none".to_owned();
            let group = TicketGroup {
                state: look.state.clone().unwrap_or_else(none),
                ticket_type: look.kind.clone().unwrap_or_else(none),
                priority: highest.map_or_else(none, |(_, name)| name),
            };
            if open.contains(&group.state.as_str()) {
                links.extend(
                    look.links
                        .iter()
                        .filter_map(|(deal, priority)| Some(((*deal)?, rank(priority)))),
                );
            }
            let sums = truth.groups.entry(group).or_default();
            sums.tickets += 1;
            sums.cents += look.cents.unwrap_or(0);
            sums.overdue += u64::from(look.due.is_some_and(|due| due < now));
            sums.oldest_created_ms = sums.oldest_created_ms.into_iter().chain(look.created).min();
            truth.without_amount += u64::from(look.cents.is_none());
        }
        let mut last = None;
        // Sorted by deal and then by rank, so the first link of a deal has its highest priority.
        for (deal, (_, priority)) in links {
            *truth
                .open_deals_by_link
                .entry(priority.clone())
                .or_default() += 1;
            if last.replace(deal) != Some(deal) {
                *truth.open_deals.entry(priority).or_default() += 1;
            }
        }
        truth
    }

    /// Every ticket as it is served, in the order of the listing.
    pub fn tickets(&self) -> Vec<String> {
        let order = self.readings().ticket_order;
        let desk = self.desk();
        desk.listed(order, 0, desk.len())
            .into_iter()
            .map(|(_, json)| json)
            .collect()
    }
}

// === impl Look ===

impl Look {
    fn at(desk: &Desk, at: usize) -> Self {
        match desk.ticket(at) {
            (_, Some(map)) => Self::of_map(&map),
            (ticket, None) => Self::of_ticket(&ticket),
        }
    }

    fn of_ticket(ticket: &Ticket) -> Self {
        Self {
            state: Some(ticket.state.to_owned()),
            kind: Some(ticket.r#type.to_owned()),
            cents: ticket.cents.map(i128::from),
            due: ticket.due,
            created: Some(ticket.created),
            links: ticket
                .links()
                .iter()
                .map(|link| (Some(link.id), link.priority.to_owned()))
                .collect(),
        }
    }

    fn of_map(map: &Map<String, Value>) -> Self {
        let text = |field: &str| map.get(field).and_then(Value::as_str).map(str::to_owned);
        let time = |field: &str| {
            map.get(field)?
                .as_str()?
                .parse::<Timestamp>()
                .ok()
                .map(|time| time.as_millisecond())
        };
        let links = map
            .get("linkedDeals")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Self {
            state: text("state"),
            kind: text("type"),
            cents: map.get("dealAmountSum").and_then(cents),
            due: time("targetDueDate"),
            created: time("createdAt"),
            links: links
                .map(|link| {
                    let priority = link
                        .get("priority")
                        .and_then(Value::as_str)
                        .unwrap_or("none");
                    (link.get("id").and_then(Value::as_i64), priority.to_owned())
                })
                .collect(),
        }
    }
}

/// Highest first; priorities that are not known come last, by name.
fn rank(priority: &str) -> (usize, String) {
    let known = PRIORITIES.iter().position(|known| *known == priority);
    (known.unwrap_or(PRIORITIES.len()), priority.to_owned())
}

/// A JSON number in cents, from its decimal digits.
fn cents(value: &Value) -> Option<i128> {
    let text = match (value.as_i64(), value.as_f64()?) {
        (Some(whole), _) => return Some(i128::from(whole) * 100),
        // `Display` of a float writes all digits and no exponent.
        (None, float) => float.to_string(),
    };
    let (sign, digits) = text
        .strip_prefix('-')
        .map_or((1, text.as_str()), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut places = fraction
        .bytes()
        .map(|digit| i128::from(digit - b'0'))
        .chain(std::iter::repeat(0));
    let mut place = || places.next().unwrap_or(0);
    let cents = whole.parse::<i128>().ok()?.checked_mul(100)? + place() * 10 + place();
    Some(sign * (cents + i128::from(place() >= 5)))
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
