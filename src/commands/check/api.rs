//! The API: three pages of audit logs and two of tickets, which also show whether it is as the exporter assumes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, Filters, KEY_VARIABLE, KeySource, TicketPage,
};

use super::report::Level::{self, Bad, Good, NotTested, Warning};
use super::report::Line;
use crate::audit::Entry;
use crate::cli::ExporterSettings;
use crate::ledger::EventId;
use crate::tickets::{Aggregate, organization};
use crate::util::counted;

/// The maximum time for one request, whatever the flags allow the exporter.
pub(super) const MAX_TIME: Duration = Duration::from_secs(10);

/// The number of items on a small page.
const FEW: u32 = 10;

/// How far this machine's clock may be off.
const MAX_CLOCK: SignedDuration = SignedDuration::from_mins(2);

/// The number of entries that show an order, or that some are missing: a few may appear late.
const ENOUGH: usize = 5;

/// What contradicts an assumption about the audit logs, and what follows.
const SKIPS: &str = "endCursor skips entries, or their ids change: ask the API's operators";
const MOVES: &str = "entries change their order: ask the API's operators";
const REPEATS: &str = "two entries have one id, and only the first one is counted";
const NO_ID: &str = "entries have no id, and are counted again if they change";
const NO_TIME: &str = "times cannot be read, so records have the time of arrival";
const OLDEST_FIRST: &str = "the oldest entry comes first, which is not supported";
const OUTSIDE: &str = "entries are outside --audit.activity-types or --audit.deal-ids, and are dropped: correct these values";
const CLOCK: &str = "this machine's clock and the API's differ by more than two minutes, and the exporter uses the earlier time: correct this clock, for example with NTP";

/// What pages show, with its level.
type Found = Result<(Level, String), ApiError>;

/// Adds the exporter's client, which waits no longer than `check`.
pub(super) fn with_client(
    settings: ExporterSettings,
) -> Result<(ExporterSettings, Client), Vec<String>> {
    let mut api = settings.api.clone();
    api.timeout = api.timeout.min(MAX_TIME);
    let client = Client::new(api, ()).map_err(|error| vec![error])?;
    Ok((settings, client))
}

/// Returns the line of a listing, and the organizations that its items name.
pub(super) async fn listing(
    endpoint: Endpoint,
    client: Client,
    settings: Arc<ExporterSettings>,
) -> (Line, Vec<i64>) {
    let mut organizations = Vec::new();
    let found = match endpoint {
        Endpoint::AuditLogs => audit(&client, &settings, &mut organizations).await,
        Endpoint::Tickets => tickets(&client, &settings, &mut organizations).await,
    };
    let line = match found {
        Ok((level, text)) => Line::new(level, endpoint.into(), text),
        Err(error) => problem(&error, endpoint, &settings),
    };
    (line, organizations)
}

/// Reads the newest entries, the next ones by the cursor, and all of these from the top.
async fn audit(client: &Client, settings: &ExporterSettings, named: &mut Vec<i64>) -> Found {
    if settings.audit.is_none() {
        return Ok((Good, "off".to_owned()));
    }
    let top = client.audit_page(FEW, None).await?;
    let mut small = entries(&top);
    named.extend(small.iter().filter_map(Entry::organization_id));
    if small.is_empty() {
        let text = "there are no entries; check that the key belongs to the right organization, and that the --audit filters match anything";
        return Ok((Warning, text.to_owned()));
    }
    let next = match &top.end_cursor {
        Some(cursor) => Some(client.audit_page(FEW, Some(cursor)).await?),
        None => None,
    };
    let first = ids(&small);
    let mut second = next.as_ref().map(entries).unwrap_or_default();
    // The cursor's own entry may be among them.
    second.retain(|entry| !first.contains(&entry.id));
    small.append(&mut second);
    let large = client.audit_page(2 * FEW, None).await?;
    let filters = &settings.api.filters;
    let mut wrong = contradictions(&small, &entries(&large), filters);
    if top.server_time.duration_since(Timestamp::now()).abs() > MAX_CLOCK {
        wrong.push(CLOCK);
    }
    if !wrong.is_empty() {
        return Ok((Warning, wrong.join("; ")));
    }
    let mut text = counted(small.len() as u64, "entry", "entries");
    text += " on three pages: the same ids in the same order, readable times, newest first";
    if !filters.is_empty() {
        text += ", inside the filters";
    }
    Ok((Good, text))
}

/// Reads the first tickets and the next ones, which begin with the last of these.
async fn tickets(client: &Client, settings: &ExporterSettings, named: &mut Vec<i64>) -> Found {
    let Some(of_tickets) = &settings.tickets else {
        return Ok((Good, "off".to_owned()));
    };
    let top = client.ticket_page(FEW, 0).await?;
    named.extend(top.items().filter_map(organization));
    let mut aggregate = Aggregate::new(of_tickets, top.server_time, 0);
    let mut keys =
        |page: &TicketPage| -> Vec<u64> { page.items().map(|raw| aggregate.add(raw)).collect() };
    let first = keys(&top);
    let Some(offset) = first.len().checked_sub(1) else {
        return Ok((Good, "can be read; there are none".to_owned()));
    };
    let next = client.ticket_page(FEW, offset as u64).await?;
    let second = keys(&next);
    let seen = (offset + second.len()) as u64;
    let is_end = second.len() < first.len();
    let wrong = match next.total_count {
        _ if second.first() != first.last() => {
            "the second page does not begin with the ticket at its offset"
        }
        Some(total) if total == seen || total > seen && !is_end => {
            let tickets = counted(seen, "ticket", "tickets");
            let text = "on two pages: offset and totalCount are right";
            return Ok((Good, format!("{tickets} {text}")));
        }
        _ => "totalCount is not the number of tickets",
    };
    let advice = "run this again: if nothing changes, ticket snapshots are not consistent; ask the API's operators";
    Ok((Warning, format!("{wrong}; {advice}")))
}

fn entries(page: &AuditPage) -> Vec<Entry<'_>> {
    page.items().map(Entry::read).collect()
}

fn ids(entries: &[Entry]) -> Vec<EventId> {
    entries.iter().map(|entry| entry.id).collect()
}

/// Returns what contradicts the exporter's assumptions, in the entries of two small pages and those of a large one. Meanwhile
/// new entries may appear on top, and a few late ones below others.
fn contradictions(small: &[Entry], large: &[Entry], filters: &Filters) -> Vec<&'static str> {
    let [before, after] = [small, large].map(ids);
    let common = |of: &[EventId], with: &[EventId]| -> Vec<EventId> {
        let ids = of.iter().filter(|id| with.contains(id));
        ids.copied().collect()
    };
    let is_older = |entry: &&Entry| entry.created_at < small[0].created_at;
    let older = large.iter().filter(is_older);
    let missing = older.filter(|entry| !before.contains(&entry.id)).count();
    let distinct: BTreeSet<&EventId> = after.iter().collect();
    let times: Vec<Timestamp> = large.iter().filter_map(|entry| entry.created_at).collect();
    let rises = times.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let falls = times.windows(2).filter(|pair| pair[0] > pair[1]).count();
    let any = |is_so: &dyn Fn(&Entry) -> bool| large.iter().any(is_so);
    let all = [
        (missing >= ENOUGH, SKIPS),
        (common(&before, &after) != common(&after, &before), MOVES),
        (distinct.len() < after.len(), REPEATS),
        (any(&|entry| entry.id_text().is_none()), NO_ID),
        (any(&|entry| entry.created_at.is_none()), NO_TIME),
        (rises > falls && rises >= ENOUGH, OLDEST_FIRST),
        (any(&|entry| !entry.matches(filters)), OUTSIDE),
    ];
    let wrong = all.into_iter().filter(|(is_so, _)| *is_so);
    wrong.map(|(_, text)| text).collect()
}

/// Returns the line of a request that failed, with what to do unless its error says that.
fn problem(error: &ApiError, endpoint: Endpoint, settings: &ExporterSettings) -> Line {
    let reason = error.reason();
    let place = match &settings.api.key {
        KeySource::File(path) => format!("the file {}", path.display()),
        KeySource::Value(_) => format!("the variable {KEY_VARIABLE}"),
    };
    let new_key = format!(
        "; create a key that has {} in the API's settings, under API keys, and put it into {place}, or do without: --{}.enabled=false",
        endpoint.scope(),
        endpoint.as_ref().trim_end_matches("-logs")
    );
    let (level, advice) = match reason {
        R::Timeout | R::RateLimited => (NotTested, "; the exporter would try again"),
        R::Unauthorized | R::Forbidden => (Bad, &*new_key),
        R::ServerError => (Bad, "; the API itself fails: ask its operators"),
        R::Malformed | R::TooLarge => (Bad, "; check --api.base-url (give the URL before /v1)"),
        _ => (Bad, ""),
    };
    Line::new(level, endpoint.into(), format!("{error}{advice}")).because(reason.into())
}
