//! The requests of `check`: their number and time, what their responses say beside pages, and what to do if one fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::{SignedDuration, Timestamp};
use orgdata_api::FailureReason as R;
use orgdata_api::{
    ApiError, AuditPage, Client, Endpoint, KEY_VARIABLE, KeySource, Observer, TicketPage,
};
use tokio::time::{Instant, timeout_at};

use super::{Finding, MAX_TIME, Outcome, bad, warning};
use crate::cli::ExporterSettings;
use crate::util::{self, lock, shown_duration, shown_wait};

/// The maximum number of requests to each listing, 25 together.
const MAX_REQUESTS: [u32; Endpoint::ALL.len()] = [13, 12];

/// The maximum number of requests that the client sends for a page, if the first ones fail.
const ATTEMPTS: u32 = 4;

/// The maximum time for all questions.
const MAX_TOTAL: Duration = Duration::from_secs(60);

/// How far this machine's clock may be off, and the time of an entry ahead of the API's clock.
pub(super) const MAX_CLOCK: SignedDuration = SignedDuration::from_mins(2);

/// Asks the API.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    client: Client,
    pub(super) settings: &'a ExporterSettings,
    pub(super) seen: Seen,
    until: Instant,
}

/// What the responses say beside pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<Heads>>);

#[derive(Debug, Default)]
struct Heads {
    requests: [u32; Endpoint::ALL.len()],
    responses: u32,
    /// How far the API's clock is ahead of this machine's, in the response in which they differ least.
    clock: Option<SignedDuration>,
    /// Header fields about a rate limit.
    limits: BTreeMap<String, String>,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Problem {
    /// The request failed.
    Api(Box<ApiError>),
    /// `check` did not wait any longer, or sends no more requests.
    Own(String),
}

pub(super) type Asked<T> = Result<T, Problem>;

// === impl Asker ===

impl<'a> Asker<'a> {
    /// Returns an asker with the exporter's client.
    pub(super) fn new(settings: &'a ExporterSettings) -> Result<Self, String> {
        let mut api = settings.api.clone();
        api.timeout = api.timeout.min(MAX_TIME);
        let seen = Seen::default();
        Ok(Self {
            client: Client::new(api, seen.clone())?,
            settings,
            seen,
            until: Instant::now() + MAX_TOTAL,
        })
    }

    /// Requests a page of audit logs.
    pub(super) async fn audit(&self, limit: u32, before: Option<&str>) -> Asked<AuditPage> {
        let page = self.client.audit_page(limit, before);
        self.ask(Endpoint::AuditLogs, page).await
    }

    /// Requests a page of tickets.
    pub(super) async fn tickets(&self, limit: u32, offset: u64) -> Asked<TicketPage> {
        let page = self.client.ticket_page(limit, offset);
        self.ask(Endpoint::Tickets, page).await
    }

    async fn ask<T>(
        &self,
        endpoint: Endpoint,
        page: impl Future<Output = Result<T, ApiError>>,
    ) -> Asked<T> {
        let most = MAX_REQUESTS[endpoint as usize];
        if lock(&self.seen.0).requests[endpoint as usize] + ATTEMPTS > most {
            let said = format!("check sends at most {most} requests to it");
            return Err(Problem::Own(said));
        }
        let Ok(page) = timeout_at(self.until, page).await else {
            let said = format!(
                "check ends its questions after {}",
                shown_duration(MAX_TOTAL)
            );
            return Err(Problem::Own(said));
        };
        let whole = self.settings.api.timeout;
        page.map_err(|error| match (error.reason(), error.status()) {
            (R::Timeout, None) if whole > MAX_TIME => Problem::Own(format!(
                "no answer within {}, the longest that check waits; the exporter waits for --api.timeout ({})",
                shown_duration(MAX_TIME),
                shown_duration(whole)
            )),
            _ => Problem::Api(Box::new(error)),
        })
    }

    /// Returns what to do about a request that failed. The exporter can do without a listing if another one can be read.
    pub(super) fn advise(&self, endpoint: Endpoint, problem: &Problem, is_needed: bool) -> Outcome {
        let error = match problem {
            Problem::Own(said) => return warning(said),
            Problem::Api(error) => error,
        };
        let (said, class) = (error.to_string(), problem.class());
        let advice = match error.reason() {
            R::Key => "put the key into it, on one line, readable for this user",
            R::Unauthorized | R::Forbidden => {
                let said = format!("{said}; {}", self.advise_key(endpoint, is_needed));
                return bad(said).in_json(class);
            }
            R::Rejected if matches!(error.status(), Some(400 | 422)) => {
                "correct what it names, most likely one of the --audit filters"
            }
            R::RateLimited | R::TooLarge => {
                let asked = error.retry_after().map(shown_wait);
                let asked = asked.map_or(String::new(), |wait| format!(", asked to wait {wait}"));
                let said = format!(
                    "{said}{asked}; the exporter waits, or requests smaller pages, and continues: lower --api.max-requests-per-second or --api.page-size if it lasts"
                );
                return warning(said).in_json(format!("{class}{asked}"));
            }
            R::ServerError => {
                "the API itself fails: ask its operators; the exporter continues once it works"
            }
            // The message itself says what to do.
            R::Blocked => return bad(said).in_json(class),
            R::Rejected | R::Connect if said.contains("; ") => return bad(said).in_json(class),
            _ => {
                "check --api.base-url (give the URL before /v1), --api.ca-file, and any proxy, firewall or login page in between"
            }
        };
        bad(format!("{said}; {advice}")).in_json(class)
    }

    fn advise_key(&self, endpoint: Endpoint, is_needed: bool) -> String {
        let are_both = self.settings.audit.is_some() && self.settings.tickets.is_some();
        let (scopes, or) = match endpoint {
            _ if is_needed && are_both => (Endpoint::ALL.map(Endpoint::scope).join(" and "), ""),
            _ if is_needed => (endpoint.scope().to_owned(), ""),
            Endpoint::AuditLogs => (
                endpoint.scope().to_owned(),
                ", or do without: --audit.enabled=false",
            ),
            Endpoint::Tickets => (
                endpoint.scope().to_owned(),
                ", or do without: --tickets.enabled=false",
            ),
        };
        let place = self.place_of_key();
        format!(
            "create a key that has {scopes} in the API's settings, under API keys, and put it into {place}{or}"
        )
    }

    /// Returns where the key comes from.
    pub(super) fn place_of_key(&self) -> String {
        match &self.settings.api.key {
            KeySource::File(path) => format!("the file {}", path.display()),
            KeySource::Value(_) => format!("the variable {KEY_VARIABLE}"),
        }
    }
}

/// Returns the finding of a question that failed.
pub(super) fn interrupted(endpoint: Endpoint, problem: &Problem) -> Finding {
    let said = format!(
        "{}; the other questions to it were not asked",
        problem.class()
    );
    (endpoint.as_str(), warning(said))
}

// === impl Problem ===

impl Problem {
    /// Returns its kind, which is the same for both listings if it need not be said twice.
    pub(super) fn kind(&self) -> &str {
        match self {
            Self::Own(said) => said,
            Self::Api(error) => error.reason().as_str(),
        }
    }

    /// Returns its kind with the status, without data of the organization.
    pub(super) fn class(&self) -> String {
        match self {
            Self::Own(said) => said.clone(),
            Self::Api(error) => match error.status() {
                Some(status) => format!("HTTP {status}, {}", self.kind()),
                None => self.kind().to_owned(),
            },
        }
    }

    /// Reports whether a smaller page may come.
    pub(super) fn may_be_size(&self) -> bool {
        let reasons = [
            R::Timeout,
            R::ServerError,
            R::Rejected,
            R::Malformed,
            R::TooLarge,
        ];
        match self {
            Self::Api(error) => reasons.contains(&error.reason()),
            Self::Own(_) => true,
        }
    }
}

// === impl Seen ===

impl Seen {
    /// Returns the number of responses.
    pub(super) fn responses(&self) -> u32 {
        lock(&self.0).responses
    }

    /// Returns how far the API's clock is ahead of this machine's.
    pub(super) fn clock(&self) -> Option<SignedDuration> {
        lock(&self.0).clock
    }

    /// Returns the header fields about a rate limit.
    pub(super) fn limits(&self) -> BTreeMap<String, String> {
        lock(&self.0).limits.clone()
    }
}

impl Observer for Seen {
    fn response(&self, endpoint: Endpoint, _: Duration, _: u64) {
        lock(&self.0).requests[endpoint as usize] += 1;
    }

    fn failure(&self, _: Endpoint, _: R) {}

    fn throttled(&self, _: Duration) {}

    fn head(&self, headers: &HeaderMap, date: Option<Timestamp>) {
        let mut heads = lock(&self.0);
        heads.responses += 1;
        if let Some(date) = date {
            let ahead = date.duration_since(util::now());
            let least = heads.clock.filter(|least| least.abs() < ahead.abs());
            heads.clock = Some(least.unwrap_or(ahead));
        }
        for (name, value) in headers {
            let is_about_limit = name.as_str().contains("ratelimit") || *name == RETRY_AFTER;
            if is_about_limit || name.as_str().contains("rate-limit") {
                let value = value.to_str().unwrap_or_default();
                // Other values might contain data of the organization.
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                let value = if is_number && value.len() < 12 {
                    value
                } else {
                    "(not a number)"
                };
                heads.limits.insert(name.to_string(), value.to_owned());
            }
        }
    }
}
