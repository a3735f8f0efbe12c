//! The API: one page of each listing that is on, which shows whether it can be reached, accepts the key, and what its clock
//! says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, KEY_VARIABLE, KeySource, Page, Ticket, TicketPage,
};

use super::{Finding, bad, failed, good, warning};
use crate::cli::ExporterSettings;
use crate::metrics::Metrics;
use crate::tail::Event;
use crate::util::shown_duration;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// What the newest page of a listing says: a finding, the organizations of its items, and how far this machine's clock is ahead of the API's.
type Answer = Result<(Finding, Vec<String>, Option<SignedDuration>), ApiError>;

/// Requests a page of each listing that is on. Returns also the organizations of their items.
pub(super) async fn check(
    settings: &ExporterSettings,
    limit: Duration,
) -> (Vec<Finding>, Vec<String>) {
    let mut api = settings.api.clone();
    api.timeout = limit;
    // The observer is not read.
    let client = match Client::new(api, Metrics::new(Duration::ZERO).api.clone()) {
        Ok(client) => client,
        Err(error) => {
            let advice = "give a file with certificates (PEM)";
            return (vec![bad("api", error, advice)], Vec::new());
        }
    };
    let asked = Timestamp::now();
    let (audit, tickets) = tokio::join!(
        async {
            let page = client.probe_audit(settings.audit.as_ref()?.page_size).await;
            Some(answer(page, asked, |page| audit_logs(page, settings)))
        },
        async {
            let page = client
                .probe_tickets(settings.tickets.as_ref()?.page_size)
                .await;
            Some(answer(page, asked, self::tickets))
        },
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
            Some(Ok((finding, of_page, page_ahead))) => {
                organizations.extend_from_slice(of_page);
                ahead = ahead.or(*page_ahead);
                finding.clone()
            }
            Some(Err(error)) => advise(endpoint.as_str(), error, settings, !scopes.is_empty()),
            None => good(endpoint.as_str(), "off"),
        });
    }
    findings.extend(ahead.map(clock));
    (findings, organizations)
}

fn answer<F>(
    page: Result<Page<F>, ApiError>,
    asked: Timestamp,
    read: impl FnOnce(&Page<F>) -> (Finding, Vec<String>),
) -> Answer {
    page.map(|page| {
        // The service's clock was read at some time between the two.
        let at = page.server_time.max(asked).min(Timestamp::now());
        let ahead = page.has_date.then(|| at.duration_since(page.server_time));
        let (finding, organizations) = read(&page);
        (finding, organizations, ahead)
    })
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
    settings: &ExporterSettings,
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
        R::Refused if matches!(error.status(), Some(400 | 422)) && !settings.api.filters.is_empty() => {
            "correct the filter that it names, one of --audit.*".to_owned()
        }
        // The message itself says what to do.
        R::Refused | R::Connect if said.contains("; ") => return failed(check, said),
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
        _ => "check --api.base-url (the URL up to /v1, without it), --api.ca-file, and any proxy, firewall or login page in between".to_owned(),
    };
    bad(check, said, advice)
}

/// Returns where the key comes from.
fn place_of_key(settings: &ExporterSettings) -> String {
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

/// Returns a finding for a page, and the organizations of its entries.
fn audit_logs(page: &AuditPage, settings: &ExporterSettings) -> (Finding, Vec<String>) {
    let read = |item| Event::read(item, &settings.api.filters);
    let events: Vec<Event> = page.items().map(read).collect();
    let good_ones = events.iter().filter(|event| event.event.is_ok()).count();
    let organizations = events.iter().filter_map(|event| event.organization);
    let organizations = organizations.map(|id| id.to_string()).collect();
    let check = Endpoint::AuditLogs.as_str();
    let finding = undocumented(check, good_ones, page.len()).unwrap_or_else(|| match page.is_empty() {
        true => warning(
            check,
            "there are no entries",
            "check that the key is one of the right organization, and that the --audit filters match anything",
        ),
        false => good(check, format!("can be read; {} on the first page", page.len())),
    });
    (finding, organizations)
}

/// Returns a finding for a page, and the organizations of its tickets.
fn tickets(page: &TicketPage) -> (Finding, Vec<String>) {
    let (check, items) = (Endpoint::Tickets.as_str(), page.len());
    let tickets = page.items().filter_map(|item| Ticket::parse(item).ok());
    let tickets: Vec<Ticket<'_>> = tickets.collect();
    let ids = tickets
        .iter()
        .filter_map(|ticket| ticket.organization_id.as_ref()?.as_count());
    let organizations = ids.map(|id| id.to_string()).collect();
    let is_wrong = |total: u64| items as u64 > total || items == 0 && total > 0;
    let finding =
        undocumented(check, tickets.len(), items).unwrap_or_else(|| match page.total_count {
            Some(total) if !is_wrong(total) => {
                good(check, format!("can be read; {items} on the first page"))
            }
            total => warning(
                check,
                format!(
                    "a page has {items} tickets, and totalCount is {}",
                    total.map_or("missing".to_owned(), |total| total.to_string())
                ),
                "tell the API's operators; the exporter reports such a snapshot as inconsistent",
            ),
        });
    (finding, organizations)
}

fn undocumented(check: &'static str, good_ones: usize, items: usize) -> Option<Finding> {
    let malformed = items.saturating_sub(good_ones);
    (malformed > 0).then(|| {
        warning(
            check,
            format!("{malformed} of {items} items are not as documented"),
            "tell the API's operators; the exporter counts what it can read of them",
        )
    })
}
