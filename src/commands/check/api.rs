//! The API: three pages of audit logs and two of tickets, which also show whether it is as the exporter assumes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, KEY_VARIABLE, KeySource, Observer, TicketPage,
};

use super::report::{Level, Outcome, good, warning};
use crate::audit::Entry;
use crate::cli::ExporterSettings;
use crate::ledger::EventId;
use crate::tickets::{Aggregate, organization};
use crate::util::{counted, shown_duration};

/// The maximum time for one request, whatever the flags allow the exporter.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);

/// The number of items on a small page.
const FEW: u32 = 10;

/// The number of times that pages of tickets are compared: if tickets come and go meanwhile, their offsets change.
const TRIES: u32 = 2;

/// How far this machine's clock may be off.
const MAX_CLOCK: SignedDuration = SignedDuration::from_mins(2);

/// The number of entries that show an order, or that some are missing: a few may appear late.
const ENOUGH: usize = 5;

/// What contradicts an assumption about the audit logs, and what follows.
const LEADS_NOWHERE: &str =
    "hasMore is true, and endCursor leads to no further entry; ask the API's operators";
const LEADS_PAST: &str = "endCursor leads past entries, which are missing; ask the API's operators";
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
        let top = client.audit_page(FEW, None).await?;
        listing.clock = clock(top.server_time);
        let named = top.items().map(|raw| Entry::read(raw).organization_id());
        listing.organizations = named.flatten().collect();
        let first = rows(&top, &settings);
        if first.is_empty() {
            return Ok(warning(
                "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
            ));
        }
        let mut next = Vec::new();
        if let Some(cursor) = &top.end_cursor {
            next = rows(&client.audit_page(FEW, Some(cursor)).await?, &settings);
            // The cursor's own entry may be among them.
            next.retain(|row| !first.contains(row));
        }
        let large = rows(&client.audit_page(2 * FEW, None).await?, &settings);
        let mut wrong = contradictions(&first, &next, &large);
        if top.has_more && next.is_empty() {
            wrong.push(LEADS_NOWHERE);
        }
        if !wrong.is_empty() {
            return Ok(warning(wrong.join("; ")).in_json(wrong.join("; ")));
        }
        let entries = counted((first.len() + next.len()) as u64, "entry", "entries");
        let inside = match settings.api.filters.is_empty() {
            true => "",
            false => ", inside the filters",
        };
        Ok(good(format!(
            "{entries} on three pages: the same ids in the same order, readable times, newest first{inside}"
        )))
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

/// Returns what contradicts the exporter's assumptions, in the entries of two small pages and those of a large one. Some may have come
/// meanwhile, also below others.
fn contradictions(first: &[Row], next: &[Row], large: &[Row]) -> Vec<&'static str> {
    let has = |rows: &[Row], id| rows.iter().any(|row| row.id == id);
    let common = |of: &[Row], with: &[Row]| -> Vec<EventId> {
        let ids = of.iter().map(|row| row.id);
        ids.filter(|id| has(with, *id)).collect()
    };
    let small = [first, next].concat();
    let is_moved = common(&small, large) != common(large, &small);
    // After very many new entries, nothing is in both.
    let is_renamed =
        common(&small, large).is_empty() && large.iter().any(|row| row.at == first[0].at);
    // A page may be capped.
    let end = first.last().map(|row| row.id);
    let below = large.iter().skip_while(|row| Some(row.id) != end).skip(1);
    let unknown = below.filter(|row| !has(next, row.id)).count();
    let leads_past = unknown >= ENOUGH && common(next, large).is_empty();
    let ids: BTreeSet<EventId> = large.iter().map(|row| row.id).collect();
    let times: Vec<Timestamp> = large.iter().filter_map(|row| row.at).collect();
    let rises = times.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let falls = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let any = |is_so: fn(&Row) -> bool| large.iter().any(is_so);
    let all = [
        (leads_past, LEADS_PAST),
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
