//! The API: whether it can be reached, accepts the key, and lists audit logs and tickets; and what its clock says.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use orgdata_api::{ApiError, Client, Endpoint, FailureReason, Observer};
use serde_json::Value;

use super::{Finding, advice};
use crate::cli::Settings;

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
#[derive(Debug, Default)]
struct Page {
    items: u64,
    total: Option<u64>,
    malformed: u64,
    organization: Option<String>,
    newest: Option<Timestamp>,
    /// How far this machine's clock is ahead of the API's.
    ahead: Option<SignedDuration>,
}

/// A listing and the page that the exporter would request, or why there is none.
type Listing = (Endpoint, Result<Page, ApiError>);

/// Requests a page of each listing that is on.
pub(super) async fn check(settings: &Settings, limit: Duration) -> Service {
    let mut api = settings.api.clone();
    api.timeout = limit;
    let client = match Client::new(api, NoMetrics) {
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
    let sizes = page_sizes(settings).into_iter();
    let requests = sizes.map(async |(endpoint, size)| {
        let page = Page::request(&client, endpoint, size?).await;
        Some((endpoint, page))
    });
    let listings: Vec<Listing> = join_all(requests).await.into_iter().flatten().collect();
    let mut findings = of_connection(&listings, settings);
    // Without a connection or a valid key there is no more to say.
    if findings.last().is_some_and(Finding::is_good) {
        for (endpoint, size) in page_sizes(settings) {
            let name = name(endpoint);
            match listings.iter().find(|(listed, _)| *listed == endpoint) {
                Some((_, Ok(page))) => findings.push(page.finding(endpoint, size)),
                Some((_, Err(error))) if error.may_be_the_request() => {
                    let smaller = Page::request(&client, endpoint, 1).await;
                    findings.push(unreadable(name, error, size, smaller.is_ok(), settings));
                }
                Some((_, Err(error))) => findings.push(advice::for_api(name, error, settings)),
                None => findings.push(Finding::good(name, "off")),
            }
        }
        findings.extend(clock(&listings));
    }
    let pages = listings.into_iter().filter_map(|(_, page)| page.ok());
    Service {
        findings,
        organization: pages.filter_map(|page| page.organization).next(),
    }
}

fn page_sizes(settings: &Settings) -> [(Endpoint, Option<u32>); 2] {
    let audit = settings.audit.as_ref().map(|audit| audit.page_size);
    let tickets = settings.tickets.as_ref().map(|tickets| tickets.page_size);
    [(Endpoint::AuditLogs, audit), (Endpoint::Tickets, tickets)]
}

fn name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::AuditLogs => "audit-logs",
        Endpoint::Tickets => "tickets",
    }
}

/// Returns what is true of both listings: an error that they share is reported once.
fn of_connection(listings: &[Listing], settings: &Settings) -> Vec<Finding> {
    let errors: Vec<&ApiError> = listings
        .iter()
        .filter_map(|(_, page)| page.as_ref().err())
        .collect();
    let shared = errors.first().map(|error| error.reason());
    let shared = shared.filter(|reason| {
        errors.len() == listings.len() && errors.iter().all(|error| error.reason() == *reason)
    });
    let base_url = &settings.api.base_url;
    let reached = if base_url.is_plain_remote() {
        let said = format!("{base_url} answers, but the API key crosses the network unencrypted");
        Finding::warning("service", said, "use https://")
    } else {
        Finding::good("service", format!("{base_url} answers"))
    };
    match shared {
        Some(FailureReason::Key) => vec![advice::for_api("key", errors[0], settings)],
        Some(FailureReason::Unauthorized) => {
            vec![reached, advice::for_api("key", errors[0], settings)]
        }
        Some(reason) if reason != FailureReason::Forbidden => {
            vec![advice::for_api("service", errors[0], settings)]
        }
        _ => {
            let accepted = listings.iter().filter(|(_, page)| page.is_ok());
            let scopes: Vec<&str> = accepted.map(|(endpoint, _)| endpoint.scope()).collect();
            let scopes = match scopes.join(" and ") {
                none if none.is_empty() => "neither scope".to_owned(),
                scopes => scopes,
            };
            let said = format!(
                "from {}, accepted for {scopes}",
                advice::place_of_key(settings)
            );
            vec![reached, Finding::good("key", said)]
        }
    }
}

fn unreadable(
    name: &'static str,
    error: &ApiError,
    size: Option<u32>,
    smaller_is_readable: bool,
    settings: &Settings,
) -> Finding {
    if !smaller_is_readable {
        return advice::for_api(name, error, settings);
    }
    let size = size.unwrap_or_default();
    let said = format!("cannot read a page of {size}, but one of 1: {error}");
    let advice = "lower --api.page-size, or ask the API's operators about such a page";
    // The audit tail requests smaller pages by itself.
    if name == "audit-logs" {
        Finding::warning(name, said, advice)
    } else {
        Finding::bad(name, said, advice)
    }
}

fn clock(listings: &[Listing]) -> Option<Finding> {
    let pages = listings.iter().filter_map(|(_, page)| page.as_ref().ok());
    let ahead = pages
        .filter_map(|page| page.ahead)
        .min_by_key(|ahead| ahead.abs())?;
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        let said = "agrees with the API's within a few seconds";
        return Some(Finding::good("clock", said));
    }
    let difference = Duration::from_secs(ahead.abs().as_secs().unsigned_abs());
    let difference = humantime::format_duration(difference);
    let side = if ahead.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    let said = format!("this machine's clock is {difference} {side} the API's");
    let advice = "synchronize it; delays and ages are computed with it";
    Some(Finding::warning("clock", said, advice))
}

// === impl Page ===

impl Page {
    async fn request(client: &Client, endpoint: Endpoint, limit: u32) -> Result<Self, ApiError> {
        let probe = client.probe(endpoint, limit).await?;
        let ahead = || Timestamp::now().duration_since(probe.server_time);
        let mut page = Self {
            total: probe.total_count,
            ahead: probe.has_date.then(ahead),
            ..Self::default()
        };
        probe.items().for_each(|item| page.add(item));
        Ok(page)
    }

    fn add(&mut self, item: &str) {
        let item: Value = serde_json::from_str(item).unwrap_or_default();
        let text = |field: &str| match &item[field] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let created = text("createdAt").and_then(|text| orgdata_api::parse_time(&text));
        self.items += 1;
        self.malformed += u64::from(text("id").and(text("type")).and(created).is_none());
        self.organization = self.organization.take().or_else(|| text("organizationId"));
        self.newest = self.newest.max(created);
    }

    fn finding(&self, endpoint: Endpoint, size: Option<u32>) -> Finding {
        const OPERATORS: &str =
            "tell the API's operators; the exporter reports such a snapshot as inconsistent";
        let name = name(endpoint);
        let items = self.items;
        if self.malformed > 0 {
            let said = format!("{} of {items} items are not as documented", self.malformed);
            let advice = "tell the API's operators; the exporter counts what it can read of them";
            return Finding::warning(name, said, advice);
        }
        let pages = format!("a page of {} can be read", size.unwrap_or_default());
        match (endpoint, self.total, self.newest) {
            (Endpoint::AuditLogs, _, Some(newest)) => {
                let newest = newest.strftime("%Y-%m-%dT%H:%M:%SZ");
                Finding::good(name, format!("{pages}; the newest entry is of {newest}"))
            }
            (Endpoint::AuditLogs, _, None) => Finding::warning(
                name,
                "there are no entries",
                "check that the key is one of the right organization, and that the --audit filters match anything",
            ),
            (Endpoint::Tickets, None, _) => Finding::warning(
                name,
                "the API does not send the number of tickets",
                OPERATORS,
            ),
            (Endpoint::Tickets, Some(total), _) if items > total || (items == 0 && total > 0) => {
                let said = format!("the API counts {total} tickets and sends {items}");
                Finding::warning(name, said, OPERATORS)
            }
            (Endpoint::Tickets, Some(total), _) => {
                Finding::good(name, format!("{pages}; there are {total}"))
            }
        }
    }
}

/// `check` has no metrics.
struct NoMetrics;

impl Observer for NoMetrics {
    fn response(&self, _: Endpoint, _: Duration, _: u64) {}
    fn failure(&self, _: Endpoint, _: FailureReason) {}
    fn throttled(&self, _: Duration) {}
    fn unknown_fields(&self, _: u64) {}
}
