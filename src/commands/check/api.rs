//! The API: whether it can be reached and accepts the key, its clock and its limits. Sends the requests about its listings.

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

use super::{Finding, MAX_TIME, Outcome, audit, bad, good, tickets, unknown, warning};
use crate::cli::ExporterSettings;
use crate::util::{counted, lock, shown_duration, shown_wait};

/// The maximum number of requests to each listing, 25 together.
const MAX_REQUESTS: [u32; Endpoint::ALL.len()] = [13, 12];

/// The maximum number of requests that the client sends for a page, if the first ones fail.
const ATTEMPTS: u32 = 4;

/// How far this machine's clock may be off, and the time of an entry ahead of the API's clock.
pub(super) const MAX_CLOCK: SignedDuration = SignedDuration::from_mins(2);

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) findings: Vec<Finding>,
    /// The organizations that the entries name, and those that the tickets name.
    pub(super) organizations: Vec<Vec<i64>>,
}

/// What was found of a listing that can be read.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) findings: Vec<Finding>,
    /// The organizations that its first page names.
    pub(super) organizations: Vec<i64>,
}

/// Asks the API.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    client: Client,
    pub(super) settings: &'a ExporterSettings,
    seen: Seen,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) struct Problem {
    /// The name of the finding if nothing can be read.
    check: &'static str,
    outcome: Outcome,
    /// Its kind, without data of the organization.
    pub(super) class: String,
    /// `check` did not wait any longer, or sends no more requests.
    pub(super) is_own: bool,
    /// A smaller page may come.
    pub(super) may_be_size: bool,
}

pub(super) type Asked<T> = Result<T, Problem>;

/// What the responses say beside pages.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Heads>>);

#[derive(Debug, Default)]
struct Heads {
    requests: [u32; Endpoint::ALL.len()],
    /// How far the API's clock is ahead of this machine's, in the response in which they differ least.
    clock: Option<SignedDuration>,
    /// Header fields about a rate limit.
    limits: BTreeMap<String, String>,
}

/// Asks about the listings that are on.
pub(super) async fn check(settings: &ExporterSettings) -> Api {
    let mut api = Api::default();
    let asker = match Asker::new(settings) {
        Ok(asker) => asker,
        Err(error) => {
            let outcome = bad(error).in_json("the client cannot be made");
            api.findings.push(("api", outcome));
            return api;
        }
    };
    let (audit, tickets) = tokio::join!(
        async { Some(audit::ask(&asker, settings.audit.as_ref()?).await) },
        async { Some(tickets::ask(&asker, settings.tickets.as_ref()?).await) },
    );
    let (mut scopes, mut problems) = (Vec::new(), Vec::new());
    for (endpoint, listing) in Endpoint::ALL.into_iter().zip([audit, tickets]) {
        match listing {
            None => api.findings.push((endpoint.as_str(), good("off"))),
            Some(Err(problem)) => problems.push((endpoint, problem)),
            Some(Ok(listing)) => {
                scopes.push(endpoint.scope());
                api.findings.extend(listing.findings);
                api.organizations.push(listing.organizations);
            }
        }
    }
    if scopes.is_empty() {
        // One that both listings have is named once.
        problems.dedup_by(|other, first| other.1.class == first.1.class);
        let findings = problems
            .into_iter()
            .enumerate()
            .map(|(index, (endpoint, problem))| {
                let is_first = index == 0;
                let check = if is_first {
                    problem.check
                } else {
                    endpoint.as_str()
                };
                (check, problem.outcome)
            });
        api.findings.extend(findings);
        return api;
    }
    for (endpoint, mut problem) in problems {
        if problem.check == "key" {
            let group = endpoint.as_str().trim_end_matches("-logs");
            let without = format!(", or do without: --{group}.enabled=false");
            problem.outcome.said += &without;
        }
        api.findings.push((endpoint.as_str(), problem.outcome));
    }
    let answers = good(format!("{} answers", settings.api.base_url)).in_json("answers");
    let accepted = format!("accepted for {}", scopes.join(" and "));
    let key = good(format!("from {}, {accepted}", asker.place_of_key())).in_json(accepted);
    api.findings.splice(0..0, [("api", answers), ("key", key)]);
    api.findings.push(("clock", asker.clock()));
    api.findings.push(("rate-limit", asker.limits()));
    api
}

// === impl Asker ===

impl<'a> Asker<'a> {
    /// Returns an asker with the exporter's client.
    fn new(settings: &'a ExporterSettings) -> Result<Self, String> {
        let mut api = settings.api.clone();
        api.timeout = api.timeout.min(MAX_TIME);
        let seen = Seen::default();
        Ok(Self {
            client: Client::new(api, seen.clone())?,
            settings,
            seen,
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
            return Err(Problem::own(format!(
                "check sends at most {most} requests to it"
            )));
        }
        page.await.map_err(|error| self.problem(&error))
    }

    /// Says what to do about a request that failed.
    fn problem(&self, error: &ApiError) -> Problem {
        let (said, reason, whole) = (error.to_string(), error.reason(), self.settings.api.timeout);
        if reason == R::Timeout && error.status().is_none() && whole > MAX_TIME {
            return Problem::own(format!(
                "no answer within {}, the longest that check waits; the exporter waits for --api.timeout ({})",
                shown_duration(MAX_TIME),
                shown_duration(whole)
            ));
        }
        let mut class = match error.status() {
            Some(status) => format!("HTTP {status}, {}", reason.as_str()),
            None => reason.as_str().to_owned(),
        };
        let asked = error.retry_after().map(shown_wait);
        let asked = asked.map_or(String::new(), |wait| format!(", asked to wait {wait}"));
        class += &asked;
        let advice = match reason {
            R::Key => "put the key into it, on one line, readable for this user",
            R::Unauthorized | R::Forbidden => &self.advice_about_key(),
            R::Rejected if matches!(error.status(), Some(400 | 422)) => {
                "correct what it names, most likely one of the --audit filters"
            }
            R::RateLimited | R::TooLarge => {
                "the exporter waits, or requests smaller pages, and continues: lower --api.max-requests-per-second or --api.page-size if it lasts"
            }
            R::ServerError => {
                "the API itself fails: ask its operators; the exporter continues once it works"
            }
            // The message itself says what to do.
            R::Blocked => "",
            R::Rejected | R::Connect if said.contains("; ") => "",
            _ => {
                "check --api.base-url (give the URL before /v1), --api.ca-file, and any proxy, firewall or login page in between"
            }
        };
        let separator = if advice.is_empty() { "" } else { "; " };
        let said = format!("{said}{asked}{separator}{advice}");
        let is_key = [R::Key, R::Unauthorized, R::Forbidden].contains(&reason);
        let is_limit = [R::RateLimited, R::TooLarge].contains(&reason);
        let sizes = [
            R::Timeout,
            R::ServerError,
            R::Rejected,
            R::Malformed,
            R::TooLarge,
        ];
        Problem {
            check: if is_key { "key" } else { "api" },
            outcome: if is_limit { warning(said) } else { bad(said) }.in_json(&class),
            class,
            is_own: false,
            may_be_size: sizes.contains(&reason),
        }
    }

    fn advice_about_key(&self) -> String {
        let settings = self.settings;
        let are_on = [settings.audit.is_some(), settings.tickets.is_some()];
        let scopes = Endpoint::ALL.into_iter().zip(are_on);
        let scopes = scopes.filter_map(|(endpoint, is_on)| is_on.then_some(endpoint.scope()));
        format!(
            "create a key that has {} in the API's settings, under API keys, and put it into {}",
            scopes.collect::<Vec<_>>().join(" and "),
            self.place_of_key()
        )
    }

    fn place_of_key(&self) -> String {
        match &self.settings.api.key {
            KeySource::File(path) => format!("the file {}", path.display()),
            KeySource::Value(_) => format!("the variable {KEY_VARIABLE}"),
        }
    }

    /// Returns how far the API's clock is ahead of this machine's, if the responses say so.
    pub(super) fn clock_ahead(&self) -> Option<SignedDuration> {
        lock(&self.seen.0).clock
    }

    /// Compares this machine's clock with the API's.
    fn clock(&self) -> Outcome {
        let Some(ahead) = self.clock_ahead() else {
            return unknown("cannot tell: no response has a Date");
        };
        let by = shown_duration(ahead.unsigned_abs());
        if ahead.abs() <= MAX_CLOCK {
            return good(format!(
                "holds: this machine's and the API's differ by {by}"
            ));
        }
        let way = if ahead.is_negative() {
            "ahead of"
        } else {
            "behind"
        };
        warning(format!(
            "does not hold: this machine's clock is {by} {way} the API's, and the exporter uses the earlier one; correct it, for example with NTP"
        ))
    }

    /// Names the header fields about a rate limit.
    fn limits(&self) -> Outcome {
        let heads = lock(&self.seen.0);
        let limits = heads.limits.iter();
        let limits: Vec<String> = limits
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let sent: u32 = heads.requests.iter().sum();
        let responses = counted(sent.into(), "response", "responses");
        good(match limits.is_empty() {
            true => format!("no header field names one in {responses}"),
            false => format!("named in {responses}: {}", limits.join(", ")),
        })
    }
}

// === impl Problem ===

impl Problem {
    fn own(said: String) -> Self {
        Self {
            check: "api",
            outcome: warning(&said),
            class: said,
            is_own: true,
            may_be_size: true,
        }
    }

    /// Returns the finding if it ended the questions about a listing.
    pub(super) fn interrupted(&self, endpoint: Endpoint) -> Finding {
        let said = format!("{}; the other questions to it were not asked", self.class);
        (endpoint.as_str(), warning(said))
    }
}

// === impl Seen ===

impl Observer for Seen {
    fn response(&self, endpoint: Endpoint, _: Duration, _: u64) {
        lock(&self.0).requests[endpoint as usize] += 1;
    }

    fn failure(&self, _: Endpoint, _: R) {}

    fn throttled(&self, _: Duration) {}

    fn head(&self, headers: &HeaderMap, date: Option<Timestamp>) {
        let mut heads = lock(&self.0);
        if let Some(date) = date {
            let ahead = date.duration_since(Timestamp::now());
            let least = heads.clock.filter(|least| least.abs() < ahead.abs());
            heads.clock = Some(least.unwrap_or(ahead));
        }
        for (name, value) in headers {
            let text = name.as_str().replace("rate-limit", "ratelimit");
            if text.contains("ratelimit") || *name == RETRY_AFTER {
                // Other values might contain data of the organization.
                let number = value
                    .to_str()
                    .ok()
                    .and_then(|value| value.parse::<u32>().ok());
                let value = number.map_or("(not a number)".to_owned(), |number| number.to_string());
                heads.limits.insert(name.to_string(), value);
            }
        }
    }
}
