//! The API: whether it can be reached, accepts the key, and lists audit logs and tickets; and what its clock says.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use orgdata_api::{ApiError, AuditQuery, Client, Cursor, Endpoint, FailureReason, Observer};
use serde_json::Value;

use super::{Finding, MAX_TIME, advice};
use crate::cli::Settings;

/// The largest difference between two clocks that needs no warning.
const MAX_CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_secs(5);

/// A request that fails sooner than this is tried again.
const QUICK: Duration = Duration::from_secs(1);

/// What is known of the API.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) findings: Vec<Finding>,
    /// The organization that the key belongs to.
    pub(super) organization: Option<String>,
}

/// One of the two listings.
#[derive(Debug)]
struct Listing {
    endpoint: Endpoint,
    page_size: u32,
    /// A page of one item.
    small: Result<Page, ApiError>,
    /// Why the first attempt failed, if the second one did not.
    first_error: Option<ApiError>,
    /// A page of the size that the exporter requests.
    large: Option<Result<Page, ApiError>>,
}

/// What a page says.
#[derive(Debug, Default)]
struct Page {
    items: u64,
    total: Option<u64>,
    malformed: u64,
    organization: Option<String>,
    newest: Option<Timestamp>,
    older: Option<Cursor>,
    /// How far this machine's clock is ahead of the API's.
    ahead: Option<SignedDuration>,
}

struct NoMetrics;

/// Requests a small and a large page of each listing.
pub(super) async fn check(settings: &Settings, limit: Duration) -> Service {
    let api = orgdata_api::Settings {
        timeout: limit,
        ..settings.api.clone()
    };
    let client = match Client::new(api, NoMetrics) {
        Ok(client) => client,
        Err(error) => {
            let advice = "give it a file with certificates in PEM form";
            let finding = Finding::bad("service", format!("--api.ca-file: {error}"), advice);
            return Service {
                findings: vec![finding],
                organization: None,
            };
        }
    };
    let audit = settings
        .audit
        .as_ref()
        .map(|audit| (Endpoint::AuditLogs, audit.page_size));
    let tickets = settings
        .tickets
        .as_ref()
        .map(|tickets| (Endpoint::Tickets, tickets.page_size));
    let listings = audit.into_iter().chain(tickets);
    let listings = listings.map(|(endpoint, size)| Listing::request(&client, endpoint, size));
    let listings = futures_util::future::join_all(listings).await;
    let mut pages = listings
        .iter()
        .filter_map(|listing| listing.small.as_ref().ok());
    Service {
        findings: findings(&listings, settings),
        organization: pages.find_map(|page| page.organization.clone()),
    }
}

fn findings(listings: &[Listing], settings: &Settings) -> Vec<Finding> {
    let errors: Vec<&ApiError> = listings
        .iter()
        .filter_map(|listing| listing.small.as_ref().err())
        .collect();
    let alike = errors.len() == listings.len()
        && errors
            .iter()
            .all(|error| error.reason() == errors[0].reason());
    let base_url = &settings.api.base_url;
    let mut findings = vec![if base_url.is_plain_remote() {
        let said = format!("{base_url} answers, but the API key crosses the network unencrypted");
        Finding::warning("service", said, "use https://")
    } else {
        Finding::good("service", format!("{base_url} answers"))
    }];
    match errors.first() {
        Some(error) if error.reason() == FailureReason::Key => {
            return vec![advice::for_api("key", error, settings)];
        }
        Some(error) if alike && error.reason() == FailureReason::Unauthorized => {
            findings.push(advice::for_api("key", error, settings));
            return findings;
        }
        Some(error) if alike && error.reason() != FailureReason::Forbidden => {
            return vec![advice::for_api("service", error, settings)];
        }
        _ => {}
    }
    let scopes: Vec<&str> = listings
        .iter()
        .filter(|listing| listing.small.is_ok())
        .map(|listing| listing.endpoint.scope())
        .collect();
    if !scopes.is_empty() {
        let place = advice::place_of_key(settings);
        let said = format!("accepted, from {place}, with {}", scopes.join(" and "));
        findings.push(Finding::good("key", said));
    }
    for endpoint in Endpoint::ALL {
        match listings.iter().find(|listing| listing.endpoint == endpoint) {
            Some(listing) => findings.extend(listing.findings(settings)),
            None => findings.push(Finding::good(name(endpoint), "off")),
        }
    }
    findings.extend(clock(listings));
    findings
}

fn clock(listings: &[Listing]) -> Option<Finding> {
    let pages = listings
        .iter()
        .filter_map(|listing| listing.small.as_ref().ok());
    let ahead = pages
        .filter_map(|page| page.ahead)
        .min_by_key(|ahead| ahead.abs())?;
    if ahead.abs() <= MAX_CLOCK_DIFFERENCE {
        return Some(Finding::good(
            "clock",
            "agrees with the API's within a few seconds",
        ));
    }
    let difference = Duration::from_secs(ahead.abs().as_secs().unsigned_abs());
    let said = format!(
        "this machine's clock is {} {} the API's",
        humantime::format_duration(difference),
        if ahead.is_negative() {
            "behind"
        } else {
            "ahead of"
        }
    );
    Some(Finding::warning(
        "clock",
        said,
        "set it by NTP; delays and ages are computed with it",
    ))
}

fn name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::AuditLogs => "audit-logs",
        Endpoint::Tickets => "tickets",
    }
}

// === impl Listing ===

impl Listing {
    async fn request(client: &Client, endpoint: Endpoint, page_size: u32) -> Self {
        let started = Instant::now();
        let (mut small, mut first_error) = (Page::request(client, endpoint, 1, None).await, None);
        // The client's own retries take longer than somebody who waits for a report likes.
        if let Err(error) = &small
            && error.is_transient()
            && error.retry_after().is_none()
            && started.elapsed() < QUICK
        {
            let again = Page::request(client, endpoint, 1, None).await;
            first_error = std::mem::replace(&mut small, again)
                .err()
                .filter(|_| small.is_ok());
        }
        let large = match &small {
            Ok(page) if page.items > 0 => {
                Some(Page::request(client, endpoint, page_size, page.older.clone()).await)
            }
            _ => None,
        };
        Self {
            endpoint,
            page_size,
            small,
            first_error,
            large,
        }
    }

    fn findings(&self, settings: &Settings) -> Vec<Finding> {
        let name = name(self.endpoint);
        let small = match &self.small {
            Ok(small) => small,
            Err(error) => return vec![advice::for_api(name, error, settings)],
        };
        let large = match &self.large {
            Some(Ok(large)) => large,
            _ => small,
        };
        let mut findings = Vec::new();
        let mut warn =
            |said: String, advice: &str| findings.push(Finding::warning(name, said, advice));
        if let Some(error) = &self.first_error {
            warn(
                format!("only the second attempt succeeded: {error}"),
                "the exporter retries too; if that happens often, look at the API and the network",
            );
        }
        if large.malformed > 0 {
            warn(
                format!("{} items are not as documented", large.malformed),
                "tell the operators of the API; the exporter counts what it can read of them",
            );
        }
        match (self.endpoint, small.total.zip(large.total)) {
            (Endpoint::AuditLogs, _) if small.items == 0 => warn(
                "there are no entries".to_owned(),
                "check that the key belongs to the right organization, and that the --audit filters match something",
            ),
            (Endpoint::Tickets, None) => warn(
                "the API does not send the number of tickets".to_owned(),
                "tell its operators; the exporter reports such a snapshot as inconsistent",
            ),
            (Endpoint::Tickets, Some((first, total)))
                if first != total || large.items > total || (total > 0 && large.items == 0) =>
            {
                warn(
                    format!(
                        "the API counts {first} tickets on a page of 1, and {total} on one of {}",
                        large.items
                    ),
                    "tell its operators; the exporter reports such a snapshot as inconsistent",
                );
            }
            _ => {}
        }
        findings.extend(self.large_page(settings));
        if findings.is_empty() {
            findings.push(Finding::good(name, self.summary(small)));
        }
        findings
    }

    /// What is wrong with the large page, if the small one was good.
    fn large_page(&self, settings: &Settings) -> Option<Finding> {
        let error = self.large.as_ref()?.as_ref().err()?;
        let name = name(self.endpoint);
        if !error.may_be_the_request() {
            return Some(advice::for_api(name, error, settings));
        }
        let said = format!(
            "a page of 1 can be read, and the next page of {} cannot: {error}",
            self.page_size
        );
        let advice = "lower --api.page-size, or ask the API's operators about such a page";
        // The tail requests smaller pages by itself, and the exporter may have more time.
        let waits = error.reason() == FailureReason::Timeout && settings.api.timeout > MAX_TIME;
        Some(if waits || self.endpoint == Endpoint::AuditLogs {
            Finding::warning(name, said, advice)
        } else {
            Finding::bad(name, said, advice)
        })
    }

    fn summary(&self, small: &Page) -> String {
        let pages = format!("pages of 1 and of {} can be read", self.page_size);
        match (self.endpoint, small.total, small.newest) {
            (Endpoint::Tickets, Some(0), _) => "there are none".to_owned(),
            (Endpoint::Tickets, Some(total), _) => format!("{pages}; there are {total}"),
            (Endpoint::AuditLogs, _, Some(newest)) => {
                format!(
                    "{pages}; the newest entry is of {}",
                    newest.strftime("%Y-%m-%dT%H:%M:%SZ")
                )
            }
            _ => pages,
        }
    }
}

// === impl Page ===

impl Page {
    async fn request(
        client: &Client,
        endpoint: Endpoint,
        limit: u32,
        before: Option<Cursor>,
    ) -> Result<Self, ApiError> {
        let started = Instant::now();
        let (mut page, date) = match endpoint {
            Endpoint::AuditLogs => {
                let query = AuditQuery {
                    limit,
                    before,
                    after: None,
                };
                let probe = client.probe_audit(&query).await?;
                let mut page = Self::default();
                probe.page.items().for_each(|item| page.add(item));
                page.older = probe.page.end_cursor.clone();
                (page, probe.date)
            }
            Endpoint::Tickets => {
                let probe = client.probe_tickets(limit, 0).await?;
                let mut page = Self {
                    total: probe.page.total_count,
                    ..Self::default()
                };
                probe.page.items().for_each(|item| page.add(item));
                (page, probe.date)
            }
        };
        // The date has whole seconds, and is of the middle of the exchange at best.
        let error = SignedDuration::try_from(started.elapsed() / 2).unwrap_or_default()
            + SignedDuration::from_millis(500);
        page.ahead = date.map(|date| Timestamp::now().duration_since(date) - error);
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
        if text("id").is_none() || text("type").is_none() || created.is_none() {
            self.malformed += 1;
        }
        self.organization = self.organization.take().or_else(|| text("organizationId"));
        self.newest = self.newest.max(created);
    }
}

// === impl NoMetrics ===

impl Observer for NoMetrics {
    fn response(&self, _: Endpoint, _: Duration, _: u64) {}
    fn failure(&self, _: Endpoint, _: FailureReason) {}
    fn throttled(&self, _: Duration) {}
    fn unknown_fields(&self, _: u64) {}
}
