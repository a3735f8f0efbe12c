//! The API: one page of each listing that is on, which shows whether it can be reached, accepts the key, and what its clock
//! says.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{ApiError, Client, Endpoint, KEY_VARIABLE, KeySource, Page};

use super::{Finding, Outcome, bad, good, warning};
use crate::cli::Settings;
use crate::metrics::Metrics;
use crate::tail::Event;
use crate::util::shown_duration;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// Requests a page of each listing that is on. Returns also the organizations of the entries.
pub(super) async fn check(settings: &Settings, limit: Duration) -> (Vec<Finding>, Vec<String>) {
    let mut api = settings.api.clone();
    api.timeout = limit;
    // The observer is not read.
    let client = match Client::new(api, Metrics::new(Duration::ZERO).api.clone()) {
        Ok(client) => client,
        Err(error) => return (vec![("api", bad(error))], Vec::new()),
    };
    let asked = Timestamp::now();
    let mut organizations = Vec::new();
    let (audit, tickets) = tokio::join!(
        async {
            let page = client.probe_audit(settings.audit.as_ref()?.page_size).await;
            Some(page.map(|page| {
                let read = |item| Event::read(item, &settings.api.filters).organization;
                organizations = page.items().filter_map(read).collect();
                (page.len(), ahead(&page, asked))
            }))
        },
        async {
            let limit = settings.tickets.as_ref()?.page_size;
            let page = client.probe_tickets(limit).await;
            Some(page.map(|page| (page.len(), ahead(&page, asked))))
        },
    );
    let listings = [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)];
    let scopes = listings.iter().filter_map(|(endpoint, answer)| {
        let is_readable = matches!(answer, Some(Ok(_)));
        is_readable.then_some(endpoint.scope())
    });
    let scopes: Vec<&str> = scopes.collect();
    let (mut findings, mut clock) = (Vec::new(), None);
    for (endpoint, answer) in listings {
        let outcome = match answer {
            None => good("off"),
            Some(Err(error)) if scopes.is_empty() => {
                let check = match error.reason() {
                    R::Key | R::Unauthorized | R::Forbidden => "key",
                    _ => "api",
                };
                // If nothing can be read, the first error is enough.
                let finding = (check, advise(endpoint, &error, settings, true));
                return (vec![finding], Vec::new());
            }
            Some(Err(error)) => advise(endpoint, &error, settings, false),
            Some(Ok((items, ahead))) => {
                clock = clock.or(ahead);
                match endpoint {
                    Endpoint::AuditLogs if items == 0 => warning(
                        "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
                    ),
                    _ => good(format!("can be read; {items} on the first page")),
                }
            }
        };
        findings.push((endpoint.as_str(), outcome));
    }
    let (place, scopes) = (place_of_key(settings), scopes.join(" and "));
    let key = good(format!("from {place}, accepted for {scopes}"));
    findings.insert(0, ("key", key));
    let api = good(format!("{} answers", settings.api.base_url));
    findings.insert(0, ("api", api));
    findings.extend(clock.map(|ahead| ("clock", of_clock(ahead))));
    let organizations = organizations.iter().map(i64::to_string);
    (findings, organizations.collect())
}

/// Returns how far this machine's clock is ahead of the API's, which was read at some time since `asked`.
fn ahead<F>(page: &Page<F>, asked: Timestamp) -> Option<SignedDuration> {
    let at = page.server_time.max(asked).min(Timestamp::now());
    page.has_date.then(|| at.duration_since(page.server_time))
}

/// Returns what to do about a request that failed. The exporter can do without a listing if another one can be read.
fn advise(endpoint: Endpoint, error: &ApiError, settings: &Settings, is_needed: bool) -> Outcome {
    let said = error.to_string();
    let advice = match error.reason() {
        R::Key => "put the key into it, on one line, readable for this user",
        R::Unauthorized | R::Forbidden => {
            let or = match endpoint {
                _ if is_needed => "",
                Endpoint::AuditLogs => ", or do without: --audit.enabled=false",
                Endpoint::Tickets => ", or do without: --tickets.enabled=false",
            };
            let (scope, place) = (endpoint.scope(), place_of_key(settings));
            &format!(
                "create a key with the scope {scope} in the API's settings, under API keys, and put it into {place}{or}"
            )
        }
        R::Refused if matches!(error.status(), Some(400 | 422)) => {
            "correct what it names, most likely one of the --audit filters"
        }
        // The message itself says what to do.
        R::Refused | R::Connect if said.contains("; ") => return bad(said),
        R::RateLimited | R::TooLarge => {
            return warning(format!(
                "{said}; the exporter waits, or requests smaller pages, and continues: lower --api.max-requests-per-second or --api.page-size if it lasts"
            ));
        }
        R::ServerError => {
            "the API itself fails: ask its operators; the exporter continues once it works"
        }
        _ => {
            "check --api.base-url (the URL up to /v1, without it), --api.ca-file, and any proxy, firewall or login page in between"
        }
    };
    bad(format!("{said}; {advice}"))
}

/// Returns where the key comes from.
fn place_of_key(settings: &Settings) -> String {
    match &settings.api.key {
        KeySource::File(path) => path.display().to_string(),
        KeySource::Value(_) => KEY_VARIABLE.to_owned(),
    }
}

fn of_clock(ahead: SignedDuration) -> Outcome {
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        return good("agrees with the API's within a few seconds");
    }
    let difference = shown_duration(Duration::from_secs(ahead.as_secs().unsigned_abs()));
    warning(format!(
        "this machine's clock differs from the API's by {difference}; synchronize it: delays and ages are computed with it"
    ))
}
