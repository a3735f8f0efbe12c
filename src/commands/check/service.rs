//! The API: whether it can be reached, accepts the key, and lists audit logs and tickets; and what its clock says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::{ApiError, Client, Endpoint, FailureReason, Ticket};

use super::{Finding, advice};
use crate::audit::Event;
use crate::cli::Settings;
use crate::metrics::Metrics;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// What is known of the API.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) findings: Vec<Finding>,
    /// The organization that the key belongs to.
    pub(super) organization: Option<String>,
}

/// What the newest page of a listing says.
struct Page {
    finding: Finding,
    organization: Option<String>,
    /// How far this machine's clock is ahead of the API's.
    ahead: Option<SignedDuration>,
}

/// Requests a page of each listing that is on.
pub(super) async fn check(settings: &Settings, limit: Duration) -> Service {
    let mut api = settings.api.clone();
    api.timeout = limit;
    // The observer is not read.
    let client = match Client::new(api, Metrics::new(Duration::ZERO).api.clone()) {
        Ok(client) => client,
        Err(error) => {
            let said = format!("--api.ca-file: {error}");
            let finding = Finding::bad("service", said, "give a file with certificates (PEM)");
            return Service {
                findings: vec![finding],
                organization: None,
            };
        }
    };
    let audit = settings.audit.as_ref().map(|audit| audit.page_size);
    let tickets = settings.tickets.as_ref().map(|tickets| tickets.page_size);
    let (audit, tickets) = tokio::join!(async { Some(audit_logs(&client, audit?).await) }, async {
        Some(self::tickets(&client, tickets?).await)
    },);
    let listings = [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)];
    let mut findings = of_connection(&listings, settings);
    let (mut organization, mut ahead) = (None, None);
    // Without a connection or a valid key there is no more to say.
    let is_connected = findings.last().is_some_and(Finding::is_good);
    for (endpoint, page) in listings.into_iter().filter(|_| is_connected) {
        findings.push(match page {
            Some(Ok(page)) => {
                organization = organization.or(page.organization);
                ahead = ahead.or(page.ahead);
                page.finding
            }
            Some(Err(error)) => advice::for_api(endpoint.as_str(), &error, settings),
            None => Finding::good(endpoint.as_str(), "off"),
        });
    }
    findings.extend(ahead.map(clock));
    Service {
        findings,
        organization,
    }
}

/// Returns what is true of both listings: an error that they share is reported once.
fn of_connection(
    listings: &[(Endpoint, Option<Result<Page, ApiError>>)],
    settings: &Settings,
) -> Vec<Finding> {
    let base_url = &settings.api.base_url;
    let reached = if base_url.is_plain_remote() {
        let said = format!("{base_url} answers, but the API key crosses the network unencrypted");
        Finding::warning("service", said, "use https://")
    } else {
        Finding::good("service", format!("{base_url} answers"))
    };
    let pages = || listings.iter().filter_map(|(_, page)| page.as_ref());
    let first = pages().find_map(|page| page.as_ref().err());
    let is_of_all = |error: &ApiError| {
        pages().all(|page| {
            page.as_ref()
                .is_err_and(|other| other.reason() == error.reason())
        })
    };
    let shared = first.filter(|error| is_of_all(error));
    match shared.map(|error| (error, error.reason())) {
        None | Some((_, FailureReason::Forbidden)) => {}
        Some((error, FailureReason::Key)) => return vec![advice::for_api("key", error, settings)],
        Some((error, FailureReason::Unauthorized)) => {
            return vec![reached, advice::for_api("key", error, settings)];
        }
        Some((error, _)) => return vec![advice::for_api("service", error, settings)],
    }
    let accepted = listings
        .iter()
        .filter(|(_, page)| matches!(page, Some(Ok(_))));
    let scopes: Vec<&str> = accepted.map(|(endpoint, _)| endpoint.scope()).collect();
    let scopes = match scopes.is_empty() {
        true => "neither scope".to_owned(),
        false => scopes.join(" and "),
    };
    let place = advice::place_of_key(settings);
    let key = Finding::good("key", format!("from {place}, accepted for {scopes}"));
    vec![reached, key]
}

fn clock(ahead: SignedDuration) -> Finding {
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        return Finding::good("clock", "agrees with the API's within a few seconds");
    }
    let difference = Duration::from_secs(ahead.as_secs().unsigned_abs());
    let side = match ahead.is_negative() {
        true => "behind",
        false => "ahead of",
    };
    let said = format!(
        "this machine's clock is {} {side} the API's",
        humantime::format_duration(difference)
    );
    let advice = "synchronize it; delays and ages are computed with it";
    Finding::warning("clock", said, advice)
}

async fn audit_logs(client: &Client, size: u32) -> Result<Page, ApiError> {
    const CHECK: &str = "audit-logs";
    let page = client.probe(Endpoint::AuditLogs, size).await?;
    let filters = &client.settings().filters;
    let events: Vec<Event> = page
        .items()
        .map(|item| Event::read(item, page.server_time, filters))
        .collect();
    let malformed = events.iter().filter(|event| event.event.is_err()).count();
    let newest = events.iter().map(|event| event.created_at).max();
    let finding = match newest.map(|newest| newest.strftime("%Y-%m-%dT%H:%M:%SZ")) {
        _ if malformed > 0 => as_undocumented(CHECK, malformed, events.len()),
        Some(newest) => Finding::good(
            CHECK,
            format!("a page of {size} can be read; the newest entry is of {newest}"),
        ),
        None => Finding::warning(
            CHECK,
            "there are no entries",
            "check that the key is one of the right organization, and that the --audit filters match anything",
        ),
    };
    let organization = events
        .into_iter()
        .find_map(|event| Some(event.organization?.to_string()));
    Ok(Page::new(finding, organization, &page))
}

async fn tickets(client: &Client, size: u32) -> Result<Page, ApiError> {
    const CHECK: &str = "tickets";
    const ADVICE: &str =
        "tell the API's operators; the exporter reports such a snapshot as inconsistent";
    let page = client.probe(Endpoint::Tickets, size).await?;
    let items = page.len();
    let tickets: Vec<Ticket<'_>> = page
        .items()
        .filter_map(|item| Some(Ticket::parse(item).ok()?.0))
        .collect();
    let finding = match page.total_count {
        _ if tickets.len() < items => as_undocumented(CHECK, items - tickets.len(), items),
        None => Finding::warning(CHECK, "the API does not send the number of tickets", ADVICE),
        Some(total) if items as u64 > total || (items == 0 && total > 0) => {
            let said = format!("the API counts {total} tickets and sends {items}");
            Finding::warning(CHECK, said, ADVICE)
        }
        Some(total) => {
            let said = format!("a page of {size} can be read; there are {total}");
            Finding::good(CHECK, said)
        }
    };
    let organization = tickets
        .iter()
        .find_map(|ticket| ticket.organization_id.as_ref());
    Ok(Page::new(
        finding,
        organization.map(|id| id.as_str().to_owned()),
        &page,
    ))
}

fn as_undocumented(check: &'static str, malformed: usize, items: usize) -> Finding {
    Finding::warning(
        check,
        format!("{malformed} of {items} items are not as documented"),
        "tell the API's operators; the exporter counts what it can read of them",
    )
}

// === impl Page ===

impl Page {
    fn new(finding: Finding, organization: Option<String>, page: &orgdata_api::Page) -> Self {
        Self {
            finding,
            organization,
            ahead: page
                .has_date
                .then(|| Timestamp::now().duration_since(page.server_time)),
        }
    }
}
