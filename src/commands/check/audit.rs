//! What the exporter assumes of the audit log listing. Of each response only hashes and times are kept.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use orgdata_api::{AuditPage, Endpoint, Filters};
use serde_json::Value;

use super::ask::{Asked, Asker, MAX_CLOCK, Problem, interrupted};
use super::{Finding, Outcome, cannot_tell, fails, good, holds, warning};
use crate::audit::Entry;
use crate::ledger::EventId;
use crate::util::{counted, shown_duration};

const LISTING: Endpoint = Endpoint::AuditLogs;

/// The number of entries in a row that are enough to show an order.
const ENOUGH: usize = 9;

/// What is kept of a page.
#[derive(Debug)]
struct Look {
    rows: Vec<Row>,
    cursor: Option<String>,
    has_more: bool,
    /// The API's clock.
    at: Timestamp,
}

/// What is kept of an entry.
#[derive(Debug)]
struct Row {
    id: EventId,
    has_id: bool,
    /// A hash of everything but the id.
    rest: u64,
    at: Option<Timestamp>,
    /// It is inside the filters.
    matches: bool,
}

/// Returns the number of entries of the first page, at most half of the largest one.
pub(super) fn top(page_size: u32) -> u32 {
    (page_size / 2).clamp(1, 10)
}

/// Asks about the listing, if its first page has come.
pub(super) async fn ask(asker: &Asker<'_>, first: Asked<AuditPage>) -> Vec<Finding> {
    let top = match first {
        Ok(page) => Look::new(&page, &asker.settings.api.filters),
        Err(problem) => return vec![(LISTING.as_str(), asker.advise(LISTING, &problem, false))],
    };
    if top.rows.is_empty() {
        let none = warning(
            "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
        );
        return vec![(LISTING.as_str(), none)];
    }
    let mut findings = vec![(LISTING.as_str(), good("can be read"))];
    if let Err(problem) = questions(asker, &top, &mut findings).await {
        findings.push(interrupted(LISTING, &problem));
    }
    findings
}

async fn questions(asker: &Asker<'_>, top: &Look, findings: &mut Vec<Finding>) -> Asked<()> {
    let filters = &asker.settings.api.filters;
    let settings = asker.settings.audit.as_ref();
    let wanted = settings.map_or(1, |audit| audit.page_size);
    let (few, mut size) = (self::top(wanted), wanted);
    let look = async |limit, cursor: Option<&String>| {
        let page = asker.audit(limit, cursor.map(String::as_str)).await?;
        Asked::Ok(Look::new(&page, filters))
    };
    let below = async |limit, above: &Look| match &above.cursor {
        None => Ok(None),
        cursor => look(limit, cursor.as_ref()).await.map(Some),
    };
    let mut failed = None;
    let page = match look(size, None).await {
        Err(problem) if problem.may_be_size() && size > few => {
            failed = Some(problem);
            size = (size / 8).max(few);
            look(size, None).await?
        }
        page => page?,
    };
    // The line `clock` reports a wrong clock.
    let date = asker.seen.clock().filter(|ahead| ahead.abs() <= MAX_CLOCK);
    let date = date.map(|_| page.at);
    findings.push(("times", times(&page, date)));
    findings.push(("order", order(&page)));
    if !filters.is_empty() {
        findings.push(("filters", inside(filters, &page)));
    }

    let next = below(few, top).await?;
    let after = below(size, &page).await?;
    let again = look(size, None).await?;
    findings.push(("ids", ids([top, &page, &again])));
    findings.push(("late", late(&page, &again)));

    // Entries come and go, so a violation must be seen twice.
    let expected = top.expected(&page);
    let is_there = |look: &Option<Look>| {
        expected.is_some_and(|id| look.as_ref().is_some_and(|look| look.has(id)))
    };
    let second = match expected.is_some() && !is_there(&next) {
        true => below(few, top).await?,
        false => None,
    };
    let is_gone = is_there(&second) || expected.is_some_and(|id| !again.has(id));
    findings.push(("cursors", cursors(top, expected, next.as_ref(), is_gone)));

    let ends =
        |page: &Look, next: &Option<Look>| next.as_ref().is_none_or(|next| next.beyond(page) == 0);
    let is_end = ends(&page, &after);
    let is_contradicted = page.has_more && is_end && again.has_more && {
        let last = below(size, &again).await?;
        ends(&again, &last)
    };
    let kept = [(top, &next), (&page, &after)].into_iter();
    let kept = kept.filter(|(page, next)| page.has_more && !ends(page, next));
    findings.push(("has-more", has_more(kept.count() as u64, is_contradicted)));

    let count = page.rows.len() as u32;
    let mut is_maximum = false;
    if (2..size).contains(&count) && !is_end {
        let (one_less, one_more) = (look(count - 1, None).await?, look(count + 1, None).await?);
        let counts = [one_less, one_more].map(|page| page.rows.len() as u32);
        is_maximum = counts == [count - 1, count];
    }
    let limit = format!("a limit of {size} brings");
    let outcome = match failed {
        Some(Problem::Own(why)) => warning(format!("a page of {wanted} has {why}")),
        Some(problem) => fails(format!(
            "a page of {wanted} entries fails ({}); the exporter requests smaller ones: set --api.page-size={size}",
            problem.class()
        )),
        None if count > size || top.rows.len() as u32 > few => fails(
            "a page has more entries than its limit; they are read, and counted in orgdata_api_contract_violations_total",
        ),
        None if count == size => holds(format!("{limit} as many entries")),
        None if is_end => holds(format!("{limit} all {count} entries that there are")),
        None if is_maximum => holds(format!(
            "pages have at most {count} entries, which is supported"
        )),
        None => cannot_tell(format!(
            "{limit} {count} entries although more follow, and a cap does not explain it"
        )),
    };
    findings.push(("page-size", outcome));
    Ok(())
}

fn times(page: &Look, date: Option<Timestamp>) -> Outcome {
    let unreadable = page.rows.iter().filter(|row| row.at.is_none()).count();
    if unreadable > 0 {
        return fails(format!(
            "{unreadable} of {page} have none that can be read; each counts as created with the entry before it, and its record has the time of arrival"
        ));
    }
    let newest = page.rows.iter().filter_map(|row| row.at).max();
    let ahead = newest
        .zip(date)
        .map(|(newest, date)| newest.duration_since(date));
    match ahead.filter(|ahead| *ahead > MAX_CLOCK) {
        None => holds(format!("those of {page} can be read")),
        Some(ahead) => fails(format!(
            "the newest entry is dated {} ahead of the API's own clock, so new ones below it may wait for the next pass; ask the API's operators, for example whether a time zone is missing",
            shown_duration(ahead.unsigned_abs())
        )),
    }
}

fn order(page: &Look) -> Outcome {
    let (rises, falls) = page.steps();
    match (rises, falls) {
        (0, 0) => cannot_tell(format!("the times of {page} do not differ")),
        (ENOUGH.., 0) => fails(
            "the oldest entry of a page comes first, which is not supported; the exporter counts each entry once, but needs many more requests, and finds new ones late",
        ),
        _ if rises * 10 <= falls => holds(format!(
            "createdAt rises {rises} times and falls {falls} times in {page}"
        )),
        _ => cannot_tell(format!(
            "createdAt rises {rises} times and falls {falls} times in {page}"
        )),
    }
}

fn inside(filters: &Filters, page: &Look) -> Outcome {
    let outside = page.rows.iter().filter(|row| !row.matches).count();
    match outside {
        _ if filters.activity_types.is_empty() && filters.deal_ids.is_empty() => {
            cannot_tell("entries have no e-mail addresses to compare with")
        }
        0 => holds(format!("{page} are inside those for types and deals")),
        _ => fails(format!(
            "{outside} of {page} are outside --audit.activity-types or --audit.deal-ids; the exporter drops and counts them: correct these values, or ask the API's operators"
        )),
    }
}

fn ids([top, page, again]: [&Look; 3]) -> Outcome {
    let missing = page.rows.iter().filter(|row| !row.has_id).count();
    let mut times = HashMap::new();
    let is_other = |row: &Row| *times.entry(row.id).or_insert(row.at) != row.at;
    let is_shared = page.rows.iter().any(is_other);
    let is_changed = |one: &Look, other: &Look| {
        let new: Vec<&Row> = other.rows.iter().filter(|row| !one.has(row.id)).collect();
        let mut gone = one.rows.iter().filter(|row| !other.has(row.id));
        gone.any(|gone| new.iter().any(|new| new.rest == gone.rest))
    };
    let kept = page.rows.iter().filter(|row| again.has(row.id)).count() as u64;
    if missing > 0 {
        fails(format!(
            "{missing} of {page} have none; a hash of the entry takes its place, so one that changes is counted again"
        ))
    } else if is_shared {
        fails(
            "two entries have one id; the second one is neither counted nor delivered: ask the API's operators",
        )
    } else if is_changed(top, page) || is_changed(page, again) {
        fails(
            "an entry has another id in the next response, and is counted and delivered again with each: ask the API's operators",
        )
    } else if kept == 0 {
        cannot_tell("no entry was in two responses")
    } else {
        let kept = counted(kept, "entry has", "entries have");
        holds(format!("{kept} the same in two responses"))
    }
}

fn late(page: &Look, again: &Look) -> Outcome {
    let is_known = |row: &Row| page.has(row.id);
    let first = again.rows.iter().position(is_known).unwrap_or(0);
    let last = again.rows.iter().rposition(is_known).unwrap_or(0);
    let found = match again.rows[first..last]
        .iter()
        .filter(|row| !is_known(row))
        .count()
    {
        0 => "none found below newer ones in 2 responses".to_owned(),
        late => format!("{late} appeared below newer ones between 2 responses"),
    };
    holds(format!("{found}; passes find entries that appear late"))
}

/// `next` is the page below those on top, in which `expected` has to be unless it is gone.
fn cursors(top: &Look, expected: Option<EventId>, next: Option<&Look>, is_gone: bool) -> Outcome {
    let so = "the exporter reads no more than the newest page; ask the API's operators";
    let last = top.rows.last().map(|row| row.id);
    match (expected, next) {
        (None, Some(next)) if next.beyond(top) > 0 => holds("endCursor leads to other entries"),
        (None, _) => cannot_tell("there are too few entries"),
        (Some(id), Some(next)) if next.has(id) => {
            holds(match last.is_some_and(|id| next.has(id)) {
                true => "endCursor leads on, with the entry before it (inclusive)",
                false => "endCursor leads on, to the next entry (exclusive)",
            })
        }
        _ if is_gone => cannot_tell("the entries changed meanwhile"),
        (_, None) => fails(format!(
            "a page with entries below it has no endCursor: {so}"
        )),
        (_, Some(next)) if next.beyond(top) == 0 => {
            fails(format!("endCursor leads to no further entry: {so}"))
        }
        _ => fails("endCursor leads past some entries, which are missing; ask the API's operators"),
    }
}

/// `kept` is the number of pages with it that are followed by entries.
fn has_more(kept: u64, is_contradicted: bool) -> Outcome {
    match kept {
        _ if is_contradicted => fails(
            "it is true on the last page; the exporter treats the next page as failed, and accepts the end of the listing after a minute",
        ),
        0 => cannot_tell("no page with entries below it has it"),
        _ => holds(format!(
            "entries follow {} with it",
            counted(kept, "page", "pages")
        )),
    }
}

// === impl Look ===

impl Look {
    fn new(page: &AuditPage, filters: &Filters) -> Self {
        Self {
            rows: page.items().map(|raw| Row::new(raw, filters)).collect(),
            cursor: page.end_cursor.clone(),
            has_more: page.has_more,
            at: page.server_time,
        }
    }

    fn has(&self, id: EventId) -> bool {
        self.rows.iter().any(|row| row.id == id)
    }

    /// Returns the number of entries that are not in another page.
    fn beyond(&self, other: &Self) -> usize {
        self.rows.iter().filter(|row| !other.has(row.id)).count()
    }

    /// Returns the entry that stands below these in a longer page.
    fn expected(&self, longer: &Self) -> Option<EventId> {
        let last = self.rows.last()?.id;
        let at = longer.rows.iter().rposition(|row| row.id == last)?;
        let below = longer.rows[at..].iter().find(|row| !self.has(row.id));
        below.map(|row| row.id)
    }

    /// Returns how often the time of an entry is earlier, and later, than that of the one below it.
    fn steps(&self) -> (usize, usize) {
        let times: Vec<Timestamp> = self.rows.iter().filter_map(|row| row.at).collect();
        let rises = times.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let falls = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
        (rises, falls)
    }
}

impl Display for Look {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.rows.len() as u64, "entry", "entries"))
    }
}

// === impl Row ===

impl Row {
    fn new(raw: &str, filters: &Filters) -> Self {
        let entry = Entry::read(raw);
        let mut value: Value = serde_json::from_str(raw).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("id");
        }
        let mut rest = DefaultHasher::new();
        value.to_string().hash(&mut rest);
        Self {
            id: entry.id,
            has_id: entry.id_text().is_some(),
            rest: rest.finish(),
            at: entry.created_at,
            matches: entry.matches(filters),
        }
    }
}
