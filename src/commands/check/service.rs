//! The API: one page of each listing that is on, which shows whether it can be reached, accepts the key, and what its clock
//! says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{ApiError, Client, Endpoint, KEY_VARIABLE, KeySource, Page, Ticket};

use super::{Finding, bad, failed, good, warning};
use crate::cli::Settings;
use crate::metrics::Metrics;
use crate::tail::Event;
use crate::util::shown_duration;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// The newest page of a listing, and how far this machine's clock is ahead of the API's.
type Answer = Result<(Page, Option<SignedDuration>), ApiError>;

/// Requests a page of each listing that is on. Returns also the organizations of their items.
pub(super) async fn check(settings: &Settings, limit: Duration) -> (Vec<Finding>, Vec<String>) {
    let mut api = settings.api.clone();
    api.timeout = limit;
    // The observer is not read.
    let client = match Client::new(api, Metrics::new(Duration::ZERO).api.clone()) {
        Ok(client) => client,
        Err(error) => {
            let said = format!("--api.ca-file: {error}");
            let advice = "give a file with certificates (PEM)";
            return (vec![bad("api", said, advice)], Vec::new());
        }
    };
    let audit = settings.audit.as_ref().map(|audit| audit.page_size);
    let tickets = settings.tickets.as_ref().map(|tickets| tickets.page_size);
    let (audit, tickets) = tokio::join!(
        request(&client, Endpoint::AuditLogs, audit),
        request(&client, Endpoint::Tickets, tickets),
    );
    let answers = [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)];
    if let Some(error) = shared_error(&answers) {
        let check = match error.reason() {
            R::Key | R::Unauthorized => "key",
            _ => "api",
        };
        return (vec![advise(check, error, settings, false)], Vec::new());
    }
    let base_url = &settings.api.base_url;
    let mut findings = vec![match base_url.is_plain_remote() {
        true => warning(
            "api",
            format!("{base_url} answers, but the API key crosses the network unencrypted"),
            "use https://",
        ),
        false => good("api", format!("{base_url} answers")),
    }];
    let accepted = answers
        .iter()
        .filter(|(_, answer)| matches!(answer, Some(Ok(_))));
    let scopes: Vec<&str> = accepted.map(|(endpoint, _)| endpoint.scope()).collect();
    if !scopes.is_empty() {
        let (place, scopes) = (place_of_key(settings), scopes.join(" and "));
        findings.push(good("key", format!("from {place}, accepted for {scopes}")));
    }
    let (mut organizations, mut ahead) = (Vec::new(), None);
    for (endpoint, answer) in &answers {
        findings.push(match answer {
            Some(Ok((page, page_ahead))) => {
                ahead = ahead.or(*page_ahead);
                listing(*endpoint, page, settings, &mut organizations)
            }
            Some(Err(error)) => advise(endpoint.as_str(), error, settings, !scopes.is_empty()),
            None => good(endpoint.as_str(), "off"),
        });
    }
    findings.extend(ahead.map(clock));
    (findings, organizations)
}

/// Returns `None` if the listing is off.
async fn request(client: &Client, endpoint: Endpoint, size: Option<u32>) -> Option<Answer> {
    let asked = Timestamp::now();
    let page = client.probe(endpoint, size?).await;
    Some(page.map(|page| {
        // The service's clock was read at some time between the two.
        let read = page.server_time.max(asked).min(Timestamp::now());
        let ahead = page.has_date.then(|| read.duration_since(page.server_time));
        (page, ahead)
    }))
}

/// Returns an error that the listings share, which is reported once. A missing scope is that of one listing.
fn shared_error(answers: &[(Endpoint, Option<Answer>)]) -> Option<&ApiError> {
    let mut answers = answers.iter().filter_map(|(_, answer)| answer.as_ref());
    let first = answers.next()?.as_ref().err()?;
    let is_same = |error: &ApiError| error.reason() == first.reason();
    let is_shared = answers.all(|answer| answer.as_ref().is_err_and(is_same));
    (is_shared && first.reason() != R::Forbidden).then_some(first)
}

/// Returns the finding for a request that failed. The exporter can do without a listing if another one can be read.
fn advise(
    check: &'static str,
    error: &ApiError,
    settings: &Settings,
    is_dispensable: bool,
) -> Finding {
    let (loop_name, scope) = match check == Endpoint::Tickets.as_str() {
        true => ("tickets", Endpoint::Tickets.scope()),
        false => ("audit", Endpoint::AuditLogs.scope()),
    };
    let said = error.to_string();
    let advice = match error.reason() {
        R::Key => "put the key into it, on one line, readable for this user".to_owned(),
        R::Unauthorized | R::Forbidden if is_dispensable => format!(
            "give the key the scope {scope} in the API's settings, or do without: --{loop_name}.enabled=false"
        ),
        R::Unauthorized | R::Forbidden => format!(
            "create a key in the API's settings, under API keys, and put it into {}",
            place_of_key(settings)
        ),
        R::Validation => "correct the filter that it names, one of --audit.*".to_owned(),
        R::RateLimited => {
            let advice = "the exporter waits and continues; lower --api.max-requests-per-second if it lasts, or see what else uses the key";
            return warning(check, said, advice);
        }
        R::TooLarge => {
            let advice = "the exporter requests smaller pages; lower --api.page-size";
            return warning(check, said, advice);
        }
        R::ServerError => {
            "the API itself fails: ask its operators; the exporter continues once it works".to_owned()
        }
        // The message itself says what to do.
        R::Redirect | R::Connect | R::NotFound if said.contains("; ") => return failed(check, said),
        _ => "check --api.base-url (the URL up to /v1, without it), --api.ca-file, and any proxy, firewall or login page in between".to_owned(),
    };
    bad(check, said, advice)
}

/// Returns where the key comes from.
fn place_of_key(settings: &Settings) -> String {
    match &settings.api.key {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Value(_) => KEY_VARIABLE.to_owned(),
    }
}

fn clock(ahead: SignedDuration) -> Finding {
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        return good("clock", "agrees with the API's within a few seconds");
    }
    let difference = shown_duration(Duration::from_secs(ahead.as_secs().unsigned_abs()));
    let side = match ahead.is_negative() {
        true => "behind",
        false => "ahead of",
    };
    let said = format!("this machine's clock is {difference} {side} the API's");
    let advice = "synchronize it; delays and ages are computed with it";
    warning("clock", said, advice)
}

/// Returns a finding for a page, and adds the organizations of its items.
fn listing(
    endpoint: Endpoint,
    page: &Page,
    settings: &Settings,
    organizations: &mut Vec<String>,
) -> Finding {
    let (check, items) = (endpoint.as_str(), page.len());
    let mut malformed = 0;
    for item in page.items() {
        let (is_good, organization) = match endpoint {
            Endpoint::AuditLogs => {
                let event = Event::read(item, &settings.api.filters);
                (
                    event.event.is_ok(),
                    event.organization.map(|id| id.to_string()),
                )
            }
            Endpoint::Tickets => match Ticket::parse(item) {
                Ok((ticket, _)) => {
                    let id = ticket.organization_id.and_then(|id| id.as_count());
                    (true, id.map(|id| id.to_string()))
                }
                Err(_) => (false, None),
            },
        };
        malformed += usize::from(!is_good);
        organizations.extend(organization);
    }
    let (said, advice) = match (endpoint, page.total_count) {
        _ if malformed > 0 => (
            format!("{malformed} of {items} items are not as documented"),
            "tell the API's operators; the exporter counts what it can read of them",
        ),
        (Endpoint::AuditLogs, _) if items == 0 => (
            "there are no entries".to_owned(),
            "check that the key is one of the right organization, and that the --audit filters match anything",
        ),
        (Endpoint::Tickets, total)
            if total.is_none_or(|total| items as u64 > total || items == 0 && total > 0) =>
        {
            (
                format!(
                    "a page has {items} tickets, and totalCount is {}",
                    total.map_or("missing".to_owned(), |total| total.to_string())
                ),
                "tell the API's operators; the exporter reports such a snapshot as inconsistent",
            )
        }
        _ => return good(check, format!("can be read; {items} on the first page")),
    };
    warning(check, said, advice)
}
