//! What the exporter assumes of the audit log listing. Of each response only hashes and times are kept.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};

use jiff::Timestamp;
use orgdata_api::{AuditPage, Endpoint, Filters};

use super::api::{Asked, Asker, Listing, MAX_CLOCK};
use super::{Finding, Level, Outcome, cannot_tell, fails, good, holds, warning};
use crate::audit::{Entry, Settings};
use crate::ledger::EventId;
use crate::util::{counted, shown_duration};

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
    at: Option<Timestamp>,
    /// It is inside the filters.
    matches: bool,
}

/// The newest entries, a page of the exporter's size, and what the cursors of both lead to.
#[derive(Debug)]
struct Looks {
    top: Look,
    page: Look,
    next: Option<Look>,
    after: Option<Look>,
}

/// Asks about the listing.
pub(super) async fn ask(asker: &Asker<'_>, settings: &Settings) -> Asked<Listing> {
    let name = Endpoint::AuditLogs.as_str();
    let filters = &asker.settings.api.filters;
    let few = (settings.page_size / 2).clamp(1, 10);
    let first = asker.audit(few, None).await?;
    let named = first.items().map(|raw| Entry::read(raw).organization_id());
    let organizations = named.flatten().collect();
    let top = Look::new(&first, filters);
    if top.rows.is_empty() {
        let none = warning(
            "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
        );
        let findings = vec![(name, none)];
        return Ok(Listing {
            findings,
            organizations,
        });
    }
    let mut findings = vec![(name, good("can be read"))];
    match questions(asker, top, few, settings.page_size).await {
        Ok(found) => findings.extend(found),
        Err(problem) => findings.push(problem.interrupted(Endpoint::AuditLogs)),
    }
    Ok(Listing {
        findings,
        organizations,
    })
}

async fn questions(asker: &Asker<'_>, top: Look, few: u32, wanted: u32) -> Asked<Vec<Finding>> {
    let (mut size, mut failed) = (wanted, None);
    let page = match look(asker, size, None).await {
        Err(problem) if problem.may_be_size && size > few => {
            failed = Some(problem);
            size = (size / 8).max(few);
            look(asker, size, None).await?
        }
        page => page?,
    };
    let looks = Looks::new(asker, top, page, few, size).await?;
    let mut findings = looks.judge(asker);
    if findings
        .iter()
        .any(|(_, found)| found.level == Level::Warning)
    {
        // Entries come and go, so a violation must be seen twice.
        let (top, page) = (
            look(asker, few, None).await?,
            look(asker, size, None).await?,
        );
        let again = Looks::new(asker, top, page, few, size).await?;
        for (finding, again) in findings.iter_mut().zip(again.judge(asker)) {
            if finding.1.level == Level::Warning {
                *finding = again;
            }
        }
    }
    let page_size = match failed {
        Some(problem) if problem.is_own => {
            warning(format!("a page of {wanted} has {}", problem.class))
        }
        Some(problem) => fails(format!(
            "a page of {wanted} entries fails ({}); the exporter requests smaller ones: set --api.page-size={size}",
            problem.class
        )),
        None => looks.page_size(asker, few, size).await?,
    };
    findings.push(("page-size", page_size));
    Ok(findings)
}

async fn look(asker: &Asker<'_>, limit: u32, cursor: Option<&str>) -> Asked<Look> {
    let page = asker.audit(limit, cursor).await?;
    Ok(Look::new(&page, &asker.settings.api.filters))
}

/// Requests what the cursor of a page leads to.
async fn look_below(asker: &Asker<'_>, limit: u32, above: &Look) -> Asked<Option<Look>> {
    match &above.cursor {
        None => Ok(None),
        cursor => look(asker, limit, cursor.as_deref()).await.map(Some),
    }
}

// === impl Looks ===

impl Looks {
    async fn new(asker: &Asker<'_>, top: Look, page: Look, few: u32, size: u32) -> Asked<Self> {
        let next = look_below(asker, size, &top).await?;
        let after = look_below(asker, few, &page).await?;
        Ok(Self {
            top,
            page,
            next,
            after,
        })
    }

    fn judge(&self, asker: &Asker<'_>) -> Vec<Finding> {
        // The line `clock` reports a wrong clock.
        let is_right = asker
            .clock_ahead()
            .is_some_and(|ahead| ahead.abs() <= MAX_CLOCK);
        let mut findings = vec![("times", self.times(is_right)), ("order", self.order())];
        let filters = &asker.settings.api.filters;
        if !filters.is_empty() {
            findings.push(("filters", self.filters(filters)));
        }
        let ids = self.ids();
        let cursors = self.cursors(ids.level == Level::Good);
        let has_more = self.has_more(cursors.level == Level::Good);
        findings.extend([("ids", ids), ("cursors", cursors), ("has-more", has_more)]);
        findings
    }

    fn times(&self, is_clock_right: bool) -> Outcome {
        let page = &self.page;
        let unreadable = page.rows.iter().filter(|row| row.at.is_none()).count();
        if unreadable > 0 {
            return fails(format!(
                "{unreadable} of {page} have none that can be read; each counts as created with the entry before it, and its record has the time of arrival"
            ));
        }
        let newest = page.rows.iter().filter_map(|row| row.at).max();
        let ahead = newest.map(|newest| newest.duration_since(page.at));
        match ahead.filter(|ahead| is_clock_right && *ahead > MAX_CLOCK) {
            None => holds(format!("those of {page} can be read")),
            Some(ahead) => fails(format!(
                "the newest entry is dated {} ahead of the API's own clock, so new ones below it may wait for the next pass; ask the API's operators, for example whether a time zone is missing",
                shown_duration(ahead.unsigned_abs())
            )),
        }
    }

    /// Compares the order of the page with the times. Where they rise, entries have appeared late.
    fn order(&self) -> Outcome {
        let times: Vec<Timestamp> = self.page.rows.iter().filter_map(|row| row.at).collect();
        let rises = times.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let falls = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
        let found = format!(
            "createdAt rises {rises} times and falls {falls} times in {}",
            self.page
        );
        match (rises, falls) {
            (ENOUGH.., 0) => fails(
                "the oldest entry of a page comes first, which is not supported; the exporter counts each entry once, but needs many more requests, and finds new ones late",
            ),
            (_, 1..) if rises * 10 <= falls => holds(found),
            _ => cannot_tell(found),
        }
    }

    fn filters(&self, filters: &Filters) -> Outcome {
        let page = &self.page;
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

    fn ids(&self) -> Outcome {
        let Self {
            top, page, next, ..
        } = self;
        let missing = page.rows.iter().filter(|row| !row.has_id).count();
        let mut times = HashMap::new();
        let is_other = |row: &Row| *times.entry(row.id).or_insert(row.at) != row.at;
        let is_shared = page.rows.iter().any(is_other);
        let others = top
            .rows
            .iter()
            .chain(next.iter().flat_map(|next| &next.rows));
        let kept = others.filter(|row| page.has(row.id)).count() as u64;
        if missing > 0 {
            fails(format!(
                "{missing} of {page} have none; a hash of the entry takes its place, so one that changes is counted again"
            ))
        } else if is_shared {
            fails(
                "two entries have one id; the second one is neither counted nor delivered: ask the API's operators",
            )
        } else if kept == 0 && page.rows.len() > ENOUGH {
            fails(
                "entries have other ids in the next response, and are counted and delivered again with each: ask the API's operators",
            )
        } else if kept == 0 {
            cannot_tell("no entry was in two responses")
        } else {
            let kept = counted(kept, "entry has", "entries have");
            holds(format!("{kept} the same in two responses"))
        }
    }

    fn cursors(&self, are_ids_kept: bool) -> Outcome {
        let so = "the exporter reads no more than the newest page; ask the API's operators";
        let Self {
            top, page, next, ..
        } = self;
        // The entry of the page that stands below those on top.
        let last = top.rows.last().map(|row| row.id);
        let last_at = page.rows.iter().rposition(|row| Some(row.id) == last);
        let below = last_at.and_then(|at| page.rows[at..].iter().find(|row| !top.has(row.id)));
        match (below, next) {
            _ if !are_ids_kept => cannot_tell("entries are not the same in two responses"),
            (None, None) => cannot_tell("there are too few entries"),
            (Some(_), None) => fails(format!(
                "a page with entries below it has no endCursor: {so}"
            )),
            (Some(_), Some(next)) if !next.follows(top) => {
                fails(format!("endCursor leads to no further entry: {so}"))
            }
            (None, Some(next)) if !next.follows(top) => cannot_tell("there are too few entries"),
            (Some(below), Some(next)) if !next.has(below.id) => fails(
                "endCursor leads past some entries, which are missing; ask the API's operators",
            ),
            (_, Some(next)) if last.is_some_and(|id| next.has(id)) => {
                holds("endCursor leads on, with the entry before it (inclusive)")
            }
            _ => holds("endCursor leads on, to the next entry (exclusive)"),
        }
    }

    fn has_more(&self, do_cursors_lead_on: bool) -> Outcome {
        let pairs = [(&self.top, &self.next), (&self.page, &self.after)].into_iter();
        let mut pairs = pairs.filter(|(page, _)| page.has_more && do_cursors_lead_on);
        let follows =
            |next: &Option<Look>, page| next.as_ref().is_some_and(|next| next.follows(page));
        let kept = pairs
            .clone()
            .filter(|(page, next)| follows(next, page))
            .count();
        match kept {
            _ if pairs.any(|(page, next)| page.is_end(next.as_ref())) => fails(
                "it is true on the last page; the exporter treats the next page as failed, and accepts the end of the listing after a minute",
            ),
            0 => cannot_tell("no page with entries below it has it"),
            kept => holds(format!(
                "entries follow {} with it",
                counted(kept as u64, "page", "pages")
            )),
        }
    }

    /// Judges the number of entries of the page, which was requested with a limit of `size`.
    async fn page_size(&self, asker: &Asker<'_>, few: u32, size: u32) -> Asked<Outcome> {
        let count = self.page.rows.len() as u32;
        let is_end = self.page.is_end(self.after.as_ref());
        let limit = format!("a limit of {size} brings");
        if count > size || self.top.rows.len() as u32 > few {
            return Ok(fails(
                "a page has more entries than its limit; they are read, and counted in orgdata_api_contract_violations_total",
            ));
        }
        if count == size || is_end {
            return Ok(holds(match count == size {
                true => format!("{limit} as many entries"),
                false => format!("{limit} all {count} entries that there are"),
            }));
        }
        // A maximum brings no more with a limit just above, and a smaller one is honoured.
        let above = look(asker, count + 1, None).await?.rows.len() as u32;
        let below = look(asker, count.max(2) - 1, None).await?.rows.len() as u32;
        Ok(match (above, below + 1) == (count, count) {
            true => holds(format!(
                "pages have at most {count} entries, which is supported"
            )),
            false => cannot_tell(format!(
                "{limit} {count} entries although more follow, and a cap does not explain it"
            )),
        })
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

    /// Reports whether the listing ends here: `next` brings nothing more, and leads on to no other page, as one might that is filtered.
    fn is_end(&self, next: Option<&Self>) -> bool {
        let leads_on =
            |next: &Self| next.has_more && next.cursor.is_some() && next.cursor != self.cursor;
        next.is_none_or(|next| !next.follows(self) && !leads_on(next))
    }

    /// Reports whether it goes on below another page: it has other entries, and does not repeat all of that page.
    fn follows(&self, above: &Self) -> bool {
        let is_repeated = above.rows.len() > 1 && above.rows.iter().all(|row| self.has(row.id));
        !is_repeated && self.rows.iter().any(|row| !above.has(row.id))
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
        Self {
            id: entry.id,
            has_id: entry.id_text().is_some(),
            at: entry.created_at,
            matches: entry.matches(filters),
        }
    }
}
