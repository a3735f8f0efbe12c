//! The API: one page of each listing that is on, which shows whether it can be reached and accepts the key.

use std::time::Duration;

use orgdata_api::FailureReason as R;
use orgdata_api::{ApiError, Client, Endpoint, KEY_VARIABLE, KeySource};

use super::{Finding, Outcome, bad, good, warning};
use crate::audit::Entry;
use crate::cli::ExporterSettings;
use crate::metrics::Metrics;
use crate::tickets;
use crate::util::shown_wait;

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
        Err(error) => return (vec![("api", bad(error))], Vec::new()),
    };
    let (mut organizations, mut of_tickets) = (Vec::new(), Vec::new());
    let (audit, tickets) = tokio::join!(
        async {
            let page = client
                .audit_page(settings.audit.as_ref()?.page_size, None)
                .await;
            Some(page.map(|page| {
                let entries = page.items().map(Entry::read);
                organizations = entries
                    .filter_map(|entry| entry.organization_id())
                    .collect();
                page.len()
            }))
        },
        async {
            let limit = settings.tickets.as_ref()?.page_size;
            let page = client.ticket_page(limit, 0).await;
            Some(page.map(|page| {
                of_tickets = page.items().filter_map(tickets::organization).collect();
                page.len()
            }))
        },
    );
    organizations.append(&mut of_tickets);
    let listings = [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)];
    let scopes = listings.iter().filter_map(|(endpoint, answer)| {
        let is_readable = matches!(answer, Some(Ok(_)));
        is_readable.then_some(endpoint.scope())
    });
    let scopes: Vec<&str> = scopes.collect();
    let (place, accepted) = (place_of_key(settings), scopes.join(" and "));
    let mut findings = vec![
        ("api", good(format!("{} answers", settings.api.base_url))),
        (
            "key",
            good(format!("from {place}, accepted for {accepted}")),
        ),
    ];
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
            Some(Ok(0)) if endpoint == Endpoint::AuditLogs => warning(
                "there are no entries; check that the key is one of the right organization, and that the --audit filters match anything",
            ),
            Some(Ok(items)) => good(format!("can be read; {items} on the first page")),
        };
        findings.push((endpoint.as_str(), outcome));
    }
    let organizations = organizations.iter().map(i64::to_string);
    (findings, organizations.collect())
}

/// Returns what to do about a request that failed. The exporter can do without a listing if another one can be read.
fn advise(
    endpoint: Endpoint,
    error: &ApiError,
    settings: &ExporterSettings,
    is_needed: bool,
) -> Outcome {
    let said = error.to_string();
    let advice = match error.reason() {
        R::Key => "put the key into it, on one line, readable for this user",
        R::Unauthorized | R::Forbidden => {
            let place = place_of_key(settings);
            let correct = match error.reason() {
                R::Unauthorized => "correct the key, or ",
                _ => "",
            };
            let scopes = match is_needed && settings.audit.is_some() && settings.tickets.is_some() {
                true => format!(
                    "scopes {}",
                    Endpoint::ALL.map(Endpoint::scope).join(" and ")
                ),
                false => format!("scope {}", endpoint.scope()),
            };
            let or = match endpoint {
                _ if is_needed => "",
                Endpoint::AuditLogs => ", or do without: --audit.enabled=false",
                Endpoint::Tickets => ", or do without: --tickets.enabled=false",
            };
            &format!(
                "{correct}create a key with the {scopes} in the API's settings, under API keys, and put it into {place}{or}"
            )
        }
        R::Rejected if matches!(error.status(), Some(400 | 422)) => {
            "correct what it names, most likely one of the --audit filters"
        }
        // The message itself says what to do.
        R::Blocked => return bad(said),
        R::Rejected | R::Connect if said.contains("; ") => return bad(said),
        R::RateLimited | R::TooLarge => {
            let asked = error.retry_after().map(shown_wait);
            let asked = asked.map_or(String::new(), |wait| format!(", asked to wait {wait}"));
            return warning(format!(
                "{said}{asked}; the exporter waits, or requests smaller pages, and continues: lower --api.max-requests-per-second or --api.page-size if it lasts"
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
fn place_of_key(settings: &ExporterSettings) -> String {
    match &settings.api.key {
        KeySource::File(path) => format!("the file {}", path.display()),
        KeySource::Value(_) => format!("the variable {KEY_VARIABLE}"),
    }
}
