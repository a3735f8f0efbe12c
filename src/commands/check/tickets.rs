//! What the exporter assumes of the ticket listing.

use std::collections::BTreeSet;
use std::time::Duration;

use orgdata_api::{Endpoint, FailureReason, TicketPage};

use super::ask::{Asked, Asker, Problem, interrupted};
use super::{Finding, Level, Outcome, cannot_tell, fails, good, holds, unknown, warning};
use crate::tickets::{Aggregate, Settings, Snapshot};
use crate::util::counted;

const LISTING: Endpoint = Endpoint::Tickets;

/// What the exporter does if pages cannot overlap, or `totalCount` is wrong.
const DOUBT: &str =
    "the snapshot of the tickets is published as not consistent: ask the API's operators";

/// What is kept of a page: the identities of its tickets.
#[derive(Debug)]
struct Look {
    keys: Vec<u64>,
    total: Option<u64>,
}

/// Returns the number of tickets of a page of the exporter.
pub(super) fn limit(settings: &Settings) -> u32 {
    settings.page_size.max(2)
}

/// Asks about the listing, if its first page has come.
pub(super) async fn ask(asker: &Asker<'_>, first: Asked<TicketPage>) -> Vec<Finding> {
    let (page, settings) = match (first, &asker.settings.tickets) {
        (Ok(page), Some(settings)) => (page, settings),
        (Err(problem), _) => {
            return vec![(LISTING.as_str(), asker.advise(LISTING, &problem, false))];
        }
        (_, None) => return Vec::new(),
    };
    if page.is_empty() {
        let none = unknown("can be read; none found in 1 response, so nothing more can be checked");
        return vec![(LISTING.as_str(), none)];
    }
    let mut findings = vec![(LISTING.as_str(), good("can be read"))];
    let mut aggregate = Aggregate::new(settings, page.server_time, 0);
    let first = Look::new(&mut aggregate, &page);
    drop(page);
    let unreadable = aggregate.example.take();
    let snapshot = aggregate.finish(Duration::ZERO, true);
    findings.push(("fields", fields(&snapshot, unreadable)));
    findings.push(("open-states", open_states(settings, &snapshot, &first)));
    if let Err(problem) = questions(asker, settings, &first, &mut findings).await {
        findings.push(interrupted(LISTING, &problem));
    }
    findings
}

async fn questions(
    asker: &Asker<'_>,
    settings: &Settings,
    first: &Look,
    findings: &mut Vec<Finding>,
) -> Asked<()> {
    let look = async |limit, offset| {
        let page = asker.tickets(limit, offset).await?;
        let mut keys = Aggregate::new(settings, page.server_time, 0);
        Asked::Ok(Look::new(&mut keys, &page))
    };
    let (mut top, mut two, mut again) = (look(5, 0).await?, look(2, 1).await?, look(5, 0).await?);
    if again.keys != top.keys {
        // Tickets come and go.
        (top, two, again) = (again, look(2, 1).await?, look(5, 0).await?);
    }
    let is_length =
        |look: &Look, limit| look.total == Some(limit) && look.keys.len() as u64 == limit;
    let are_lengths = is_length(&top, 5) && is_length(&two, 2) && is_length(&again, 5);
    let stay = [&two, &again]
        .into_iter()
        .all(|look| look.total == top.total);
    let is_same = again.keys == top.keys && (stay || are_lengths);
    let fifth = match is_same && top.keys.len() == 5 && two.keys.first() == top.keys.first() {
        true => look(2, 4).await?.keys.first().copied(),
        false => None,
    };
    let offset = match is_same {
        true => offset(&top.keys, two.keys.first(), fifth),
        false => cannot_tell("tickets come and go"),
    };
    let is_honoured = offset.level == Level::Good;
    findings.push(("offset", offset));

    let totals = [first, &top, &two].map(|look| look.total);
    let wrong = |how| (None, Some(fails(format!("{how}; {DOUBT}"))));
    let (last_page, total_count) = match totals[0] {
        None => wrong("it is missing"),
        _ if are_lengths => wrong("it is the number of tickets on the page"),
        Some(total) if total < first.keys.len() as u64 => wrong("a page has more tickets"),
        Some(total) if is_honoured && totals == [Some(total); 3] => {
            let last = look(3, total - 1).await?;
            let beyond = match look(3, total).await {
                // The exporter does not read beyond the end.
                Err(Problem::Api(error)) if error.reason() == FailureReason::Rejected => None,
                beyond => Some(beyond?),
            };
            let stays = |look: &Look| look.total == Some(total);
            match stays(&last) && beyond.as_ref().is_none_or(stays) {
                true => end(&last.keys, beyond.map_or(Vec::new(), |look| look.keys)),
                false => (None, None),
            }
        }
        _ => (None, None),
    };
    let open = || cannot_tell("offset and totalCount are not conclusive");
    findings.push(("last-page", last_page.unwrap_or_else(open)));
    findings.push(("total-count", total_count.unwrap_or_else(open)));
    Ok(())
}

/// Judges an offset of 1, which leads to `found` with a limit of 2. `fifth` is where one of 4 leads, if there are five tickets.
fn offset(top: &[u64], found: Option<&u64>, fifth: Option<u64>) -> Outcome {
    match top.iter().position(|key| Some(key) == found) {
        Some(1) => holds("an offset that is not a multiple of the limit is honoured"),
        Some(0) if fifth == top.first().copied() => fails(
            "it is ignored; with more tickets than fit on a page, the scan fails and there are no ticket series: ask the API's operators",
        ),
        Some(0 | 2) if top.len() > 1 => fails(format!(
            "it is rounded to a multiple of the limit, so pages do not overlap; {DOUBT}"
        )),
        _ => cannot_tell("there are too few tickets on a page"),
    }
}

/// Judges the last page, and `totalCount`, by what is at the offset of the last ticket and at the one after it.
fn end(last: &[u64], beyond: Vec<u64>) -> (Option<Outcome>, Option<Outcome>) {
    let wrong = |how| Some(fails(format!("{how}; {DOUBT}")));
    match (last, &*beyond) {
        ([_], []) => {
            let last_page = holds("an offset leads to the last ticket, and to nothing beyond it");
            (
                Some(last_page),
                Some(holds("as many tickets are listed as it says")),
            )
        }
        ([], _) => (None, wrong("fewer tickets are listed than it says")),
        ([first, ..], beyond) if beyond.contains(first) => (
            wrong("an offset near the end leads to the last full page"),
            None,
        ),
        _ => (None, wrong("more tickets are listed than it says")),
    }
}

fn fields(snapshot: &Snapshot, unreadable: Option<String>) -> Outcome {
    let of = counted(snapshot.tickets, "ticket", "tickets");
    match unreadable
        .as_deref()
        .and_then(|example| example.split_once(": "))
    {
        None => holds(format!("those of {of} can be read")),
        // Without the id of the example.
        Some((_, why)) => fails(format!(
            "{} of {of} have some that cannot be read ({why}); they are counted without these",
            snapshot.malformed
        )),
    }
}

/// Names what is seen, and the states in the settings that no ticket has.
fn open_states(settings: &Settings, snapshot: &Snapshot, first: &Look) -> Outcome {
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
    let is_all = first.total.is_none_or(|total| total <= snapshot.tickets)
        && first.keys.len() < limit(settings) as usize;
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
    fn new(aggregate: &mut Aggregate, page: &TicketPage) -> Self {
        Self {
            keys: page.items().map(|raw| aggregate.add(raw)).collect(),
            total: page.total_count,
        }
    }
}
