//! What the exporter assumes of the ticket listing.

use std::collections::BTreeSet;
use std::time::Duration;

use orgdata_api::Endpoint;

use super::api::{Asked, Asker, Listing};
use super::{Finding, Level, Outcome, cannot_tell, fails, good, holds, unknown, warning};
use crate::tickets::{Aggregate, Settings, Snapshot, organization};
use crate::util::counted;

/// What the exporter does if pages cannot overlap, or `totalCount` is wrong.
const DOUBT: &str =
    "the snapshot of the tickets is published as not consistent: ask the API's operators";

/// What is kept of a page: the identities of its tickets, its offset, and the number of tickets that it says.
#[derive(Debug)]
struct Look {
    keys: Vec<u64>,
    offset: u64,
    total: Option<u64>,
}

/// Asks about the listing.
pub(super) async fn ask(asker: &Asker<'_>, settings: &Settings) -> Asked<Listing> {
    let name = Endpoint::Tickets.as_str();
    let size = settings.page_size.max(2);
    let page = asker.tickets(size, 0).await?;
    let organizations = page.items().filter_map(organization).collect();
    if page.is_empty() {
        let none = "can be read; none found in 1 response, so nothing more can be checked";
        let findings = vec![(name, unknown(none))];
        return Ok(Listing {
            findings,
            organizations,
        });
    }
    let mut findings = vec![(name, good("can be read"))];
    let mut aggregate = Aggregate::new(settings, page.server_time, 0);
    for raw in page.items() {
        aggregate.add(raw);
    }
    let snapshot = aggregate.finish(Duration::ZERO, true);
    let is_all = page.len() < size as usize;
    let is_all = is_all
        && page
            .total_count
            .is_none_or(|total| total <= snapshot.tickets);
    findings.push(("open-states", open_states(settings, &snapshot, is_all)));
    match numbers(asker, settings).await {
        Ok(found) => findings.extend(found),
        Err(problem) => findings.push(problem.interrupted(Endpoint::Tickets)),
    }
    Ok(Listing {
        findings,
        organizations,
    })
}

/// Asks about offsets and `totalCount`.
async fn numbers(asker: &Asker<'_>, settings: &Settings) -> Asked<[Finding; 3]> {
    let look = async |limit, offset| {
        let page = asker.tickets(limit, offset).await?;
        let mut aggregate = Aggregate::new(settings, page.server_time, 0);
        Asked::Ok(Look {
            keys: page.items().map(|raw| aggregate.add(raw)).collect(),
            offset,
            total: page.total_count,
        })
    };
    let (mut top, mut two, mut again) = (look(5, 0).await?, look(2, 1).await?, look(5, 0).await?);
    if again.keys != top.keys {
        // Tickets come and go.
        (top, two, again) = (again, look(2, 1).await?, look(5, 0).await?);
    }
    let at = top
        .keys
        .iter()
        .position(|key| Some(key) == two.keys.first());
    let offset = match at {
        _ if again.keys != top.keys => cannot_tell("tickets come and go"),
        Some(1) => holds("an offset that is not a multiple of the limit is honoured"),
        Some(0 | 2) if top.keys.len() > 1 && two.total == top.total => fails(format!(
            "it is ignored or rounded to a multiple of the limit, so pages do not overlap, and a scan of several pages may fail; {DOUBT}"
        )),
        _ => cannot_tell("there are too few tickets on a page"),
    };
    let open = || cannot_tell("offset and totalCount are not conclusive");
    let (mut last_page, mut total_count) = (open(), open());
    match again.total {
        None => total_count = fails(format!("it is missing; {DOUBT}")),
        Some(total @ 1..) if offset.level == Level::Good => {
            let last = look(3, total - 1).await?;
            let beyond = match look(3, total).await {
                // The API may reject an offset beyond the end.
                Err(problem) if !problem.is_own => None,
                beyond => Some(beyond?),
            };
            let wrong = |how| fails(format!("{how}; {DOUBT}"));
            let looks = [&top, &two, &last].into_iter().chain(&beyond);
            let stays = looks.clone().all(|look| look.total == Some(total));
            let is_empty = beyond.as_ref().is_none_or(|look| look.keys.is_empty());
            let repeated = beyond.as_ref().and_then(|look| look.keys.first());
            if stays && repeated.is_some() && repeated == last.keys.first() {
                last_page = wrong("an offset near the end leads to the last full page");
            } else if looks.clone().any(Look::is_too_long) {
                total_count = wrong("more tickets are listed than it says");
            } else if last.keys.is_empty() && last.total > Some(last.offset) {
                total_count = wrong("fewer tickets are listed than it says");
            } else if stays && is_empty {
                last_page = holds("an offset leads to the last ticket, and to nothing beyond it");
                total_count = holds("as many tickets are listed as it says");
            }
        }
        Some(_) => {}
    }
    Ok([
        ("offset", offset),
        ("last-page", last_page),
        ("total-count", total_count),
    ])
}

/// Names what is seen, and the states in the settings that no ticket has.
fn open_states(settings: &Settings, snapshot: &Snapshot, is_all: bool) -> Outcome {
    let list = |names: BTreeSet<&str>| Vec::from_iter(names).join(", ");
    let types = snapshot.by_state.keys().map(|[_, kind]| &**kind);
    let deals = snapshot.deals.iter().filter(|(_, deals)| **deals > 0);
    let states = snapshot.states();
    let priorities = list(deals.map(|(priority, _)| &**priority).collect());
    let mut seen = format!(
        "states {}; types {}",
        list(states.iter().map(|state| &**state).collect()),
        list(types.collect()),
    );
    if !priorities.is_empty() {
        seen += &format!("; priorities of open tickets {priorities}");
    }
    let of = counted(snapshot.tickets, "ticket", "tickets");
    let wanted = settings.open_states.iter().map(|state| state.trim());
    let missing: Vec<&str> = wanted.filter(|state| !states.contains(*state)).collect();
    if missing.is_empty() {
        let all = format!("those in the settings are found in {of}");
        return holds(format!("{all}; {seen}")).in_json(format!("holds: {all}"));
    }
    let is_case = |wanted: &&str| {
        states
            .iter()
            .any(|state| state.eq_ignore_ascii_case(wanted))
    };
    let none = format!("none of {of} is {}", missing.join(" or "));
    let said = format!("{none}; {seen}");
    match is_all || missing.iter().any(is_case) {
        true => warning(format!(
            "{said}; set --tickets.open-states to those that are open"
        )),
        false => cannot_tell(said),
    }
    .in_json(format!(
        "{} of those in the settings are not found in {of}",
        missing.len()
    ))
}

// === impl Look ===

impl Look {
    /// Reports whether the page has more tickets than can be at its offset.
    fn is_too_long(&self) -> bool {
        let end = self.offset + self.keys.len() as u64;
        !self.keys.is_empty() && self.total.is_some_and(|total| end > total)
    }
}
