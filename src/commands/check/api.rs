//! The API: three pages of audit logs and two of tickets, which also show whether it is as the exporter assumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, KEY_VARIABLE, KeySource, Observer, TicketPage,
};

use super::{Level, MAX_TIME, Outcome, good, warning};
use crate::audit::Entry;
use crate::cli::ExporterSettings;
use crate::ledger::EventId;
use crate::tickets::{Aggregate, organization};
use crate::util::{counted, shown_duration};

/// The number of items on a small page.
const FEW: u32 = 10;

/// The number of times that the pages are compared. What comes and goes meanwhile is no contradiction.
const TRIES: u32 = 2;

/// How far this machine's clock may be off.
const MAX_CLOCK: SignedDuration = SignedDuration::from_mins(2);

/// How often times have to rise to show that the oldest entry comes first: some appear late.
const ENOUGH: usize = 5;

/// What contradicts an assumption about the audit logs, and what follows.
const LEADS_NOWHERE: &str =
    "hasMore is true, and endCursor leads to no further entry; ask the API's operators";
const IDS_DIFFER: &str = "entries have other ids, or another order, in the next response, and may be counted again; ask the API's operators";
const IDS_REPEAT: &str =
    "two entries have one id, and the second one is not counted; ask the API's operators";
const IDS_MISSING: &str = "entries have no id; one that changes is counted again";
const TIMES_UNREADABLE: &str =
    "times of entries cannot be read; their records have the time of arrival";
const OLDEST_FIRST: &str = "the oldest entry comes first, which is not supported";
const OUTSIDE: &str = "entries are outside --audit.activity-types or --audit.deal-ids, and are dropped; correct these values";

/// What the pages of a listing show.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) outcome: Outcome,
    /// Something is wrong with this machine's clock.
    pub(super) clock: Option<Outcome>,
    /// The organizations that the items name.
    pub(super) organizations: Vec<i64>,
}

/// Nobody reads what a client reports.
#[derive(Debug)]
struct Unobserved;

/// What is kept of an entry.
#[derive(Clone, PartialEq)]
struct Row {
    id: EventId,
    has_id: bool,
    at: Option<Timestamp>,
    /// It is inside the filters.
    matches: bool,
}

/// Returns the exporter's client, which waits no longer than `check`.
pub(super) fn client(settings: &ExporterSettings) -> Result<Client, String> {
    let mut api = settings.api.clone();
    api.timeout = api.timeout.min(MAX_TIME);
    Client::new(api, Unobserved)
}

/// Reads the newest entries, the next ones by the cursor, and all of these from the top.
pub(super) async fn audit(client: Client, settings: Arc<ExporterSettings>) -> Listing {
    let mut listing = Listing::new();
    if settings.audit.is_none() {
        return listing;
    }
    let pages = async {
        let mut wrong = Vec::new();
        for _ in 0..TRIES {
            let top = client.audit_page(FEW, None).await?;
            listing.clock = clock(top.server_time);
            let named = top.items().map(|raw| Entry::read(raw).organization_id());
            listing.organizations = named.flatten().collect();
            let mut rows = rows(&top, &settings);
            if rows.is_empty() {
                return Ok(warning(
                    "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
                ));
            }
            let mut next = Vec::new();
            if let Some(cursor) = &top.end_cursor {
                let page = client.audit_page(FEW, Some(cursor)).await?;
                next = self::rows(&page, &settings);
                // The cursor's own entry may be among them.
                next.retain(|row| !rows.contains(row));
            }
            let leads_on = !top.has_more || !next.is_empty();
            rows.extend(next);
            let both = client.audit_page(2 * FEW, None).await?;
            wrong = contradictions(&rows, &self::rows(&both, &settings), leads_on);
            if wrong.is_empty() {
                let entries = counted(rows.len() as u64, "entry", "entries");
                let inside = match settings.api.filters.is_empty() {
                    true => "",
                    false => ", inside the filters",
                };
                return Ok(good(format!(
                    "{entries} on three pages: the same ids in the same order, readable times, newest first{inside}"
                )));
            }
        }
        Ok(warning(wrong.join("; ")).in_json(wrong.join("; ")))
    };
    let outcome = pages.await;
    listing.outcome =
        outcome.unwrap_or_else(|error| problem(&error, Endpoint::AuditLogs, &settings));
    listing
}

/// Reads the first tickets and the next ones, which begin with the last of these.
pub(super) async fn tickets(client: Client, settings: Arc<ExporterSettings>) -> Listing {
    let mut listing = Listing::new();
    let Some(of_tickets) = &settings.tickets else {
        return listing;
    };
    let keys = |page: &TicketPage| -> Vec<u64> {
        let mut aggregate = Aggregate::new(of_tickets, page.server_time, 0);
        page.items().map(|raw| aggregate.add(raw)).collect()
    };
    let pages = async {
        let mut wrong = "";
        for _ in 0..TRIES {
            let top = client.ticket_page(FEW, 0).await?;
            listing.clock = clock(top.server_time).filter(|_| settings.audit.is_none());
            listing.organizations = top.items().filter_map(organization).collect();
            let first = keys(&top);
            let Some(last) = first.last() else {
                return Ok(good("can be read; there are none"));
            };
            let offset = first.len() as u64 - 1;
            let next = client.ticket_page(FEW, offset).await?;
            let second = keys(&next);
            let seen = offset + second.len() as u64;
            let is_end = second.len() < first.len();
            wrong = match top.total_count {
                total if total != next.total_count => "tickets come and go",
                _ if second.first() != Some(last) => {
                    "the second page does not begin with the ticket at its offset"
                }
                None => "totalCount is missing",
                Some(total) if total < seen || is_end && total > seen => {
                    "totalCount is not the number of tickets"
                }
                Some(_) => {
                    let tickets = counted(seen, "ticket", "tickets");
                    return Ok(good(format!(
                        "{tickets} on two pages: offset and totalCount are honoured"
                    )));
                }
            };
        }
        let so = "the snapshot is published as not consistent: ask the API's operators";
        Ok(warning(format!("{wrong}; {so}")).in_json(wrong))
    };
    let outcome = pages.await;
    listing.outcome = outcome.unwrap_or_else(|error| problem(&error, Endpoint::Tickets, &settings));
    listing
}

fn rows(page: &AuditPage, settings: &ExporterSettings) -> Vec<Row> {
    let rows = page.items().map(|raw| {
        let entry = Entry::read(raw);
        Row {
            id: entry.id,
            has_id: entry.id_text().is_some(),
            at: entry.created_at,
            matches: entry.matches(&settings.api.filters),
        }
    });
    rows.collect()
}

/// Returns what contradicts the exporter's assumptions, in the entries of two small pages and those of one large page.
fn contradictions(small: &[Row], large: &[Row], leads_on: bool) -> Vec<&'static str> {
    // New entries may have come on top, and the large page may be capped.
    let is_old = |row: &&Row| row.id != small[0].id;
    let common = large.iter().skip_while(is_old).zip(small);
    let is_moved = common.clone().any(|(a, b)| a.id != b.id);
    // After very many new entries, nothing is in both.
    let is_renamed = common.count() == 0 && large.iter().any(|row| row.at == small[0].at);
    let ids: BTreeSet<EventId> = large.iter().map(|row| row.id).collect();
    let times: Vec<Timestamp> = large.iter().filter_map(|row| row.at).collect();
    let rises = times.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let falls = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let any = |is_so: fn(&Row) -> bool| large.iter().any(is_so);
    let all = [
        (!leads_on, LEADS_NOWHERE),
        (is_moved || is_renamed, IDS_DIFFER),
        (ids.len() < large.len(), IDS_REPEAT),
        (any(|row| !row.has_id), IDS_MISSING),
        (any(|row| row.at.is_none()), TIMES_UNREADABLE),
        (rises > falls && rises >= ENOUGH, OLDEST_FIRST),
        (any(|row| !row.matches), OUTSIDE),
    ];
    let wrong = all.into_iter().filter(|(is_so, _)| *is_so);
    wrong.map(|(_, text)| text).collect()
}

/// Compares this machine's clock with the API's.
fn clock(api: Timestamp) -> Option<Outcome> {
    let ahead = api.duration_since(Timestamp::now());
    let by = shown_duration(ahead.unsigned_abs());
    let way = if ahead.is_negative() {
        "ahead of"
    } else {
        "behind"
    };
    let said = format!(
        "this machine's is {by} {way} the API's, and the exporter uses the earlier one; correct it, for example with NTP"
    );
    (ahead.abs() > MAX_CLOCK).then(|| warning(said))
}

/// Says what to do about a request that failed.
fn problem(error: &ApiError, endpoint: Endpoint, settings: &ExporterSettings) -> Outcome {
    let (said, reason) = (error.to_string(), error.reason());
    let place = match &settings.api.key {
        KeySource::File(path) => format!("the file {}", path.display()),
        KeySource::Value(_) => format!("the variable {KEY_VARIABLE}"),
    };
    let new_key = format!(
        "; create a key that has {} in the API's settings, under API keys, and put it into {place}, or do without: --{}.enabled=false",
        endpoint.scope(),
        endpoint.as_str().trim_end_matches("-logs")
    );
    let advice = match reason {
        R::Timeout | R::RateLimited => "; the exporter would try again, for as long as it takes",
        R::Unauthorized | R::Forbidden => &new_key,
        R::Rejected if matches!(error.status(), Some(400 | 422)) => {
            "; correct what it names, most likely one of the --audit filters"
        }
        R::ServerError => "; the API itself fails: ask its operators",
        R::Key => "; put the key into it, on one line, readable for this user",
        // The message itself says what to do.
        R::Blocked => "",
        R::Rejected | R::Connect if said.contains("; ") => "",
        _ => {
            "; check --api.base-url (give the URL before /v1), --api.ca-file, and any proxy, firewall or login page in between"
        }
    };
    let level = match reason {
        R::Timeout | R::RateLimited => Level::NotTested,
        _ => Level::Bad,
    };
    let class = match error.status() {
        Some(status) => format!("HTTP {status}, {}", reason.as_str()),
        None => reason.as_str().to_owned(),
    };
    Outcome::new(level, said + advice).in_json(class)
}

// === impl Listing ===

impl Listing {
    fn new() -> Self {
        Self {
            outcome: good("off"),
            clock: None,
            organizations: Vec::new(),
        }
    }
}

// === impl Unobserved ===

impl Observer for Unobserved {}
