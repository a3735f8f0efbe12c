//! The client of both listings: request budget, time limit, retries, and one place where a response becomes a page.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::Instrument;
use url::Url;

use super::Endpoint;
use super::backoff::Backoff;
use super::budget::{Budget, LONGEST_WAIT};
use super::error::{ApiError, Failed, FailureReason, LONGEST_PAUSE};
use super::exchange::{self, Transport};
use super::key::KeySource;
use super::observer::Observer;
use super::page::{AuditPage, Page, TicketPage};
use super::query::{BaseUrl, Filters};
use super::sanitize::{MAX_EXAMINED, location, prefix};

/// The number of requests that one call sends for a transient error.
const ATTEMPTS: u32 = 4;

/// The first delay between two attempts.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The number of requests that one call sends if the service limits the rate: for most of a minute, because a scan of
/// the tickets that gives up begins with the first page again.
const ATTEMPTS_WHEN_LIMITED: u32 = 8;

/// The first delay between two attempts if the service limits the rate.
const FIRST_DELAY_WHEN_LIMITED: Duration = Duration::from_secs(1);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--api.base-url`.
    pub base_url: BaseUrl,
    /// `--api.key-file` or `ORGDATA_API_KEY`.
    pub key: KeySource,
    /// `--api.timeout`, for a whole request.
    pub timeout: Duration,
    /// `--api.max-requests-per-second`.
    pub max_requests_per_second: f64,
    /// `--api.ca-file`: root certificates in PEM, in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// `--audit.*`: the service's own filters.
    pub filters: Filters,
}

/// A client of one organization's data. Clones share one budget and one connection pool.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    /// Answers in place of a server.
    transport: Option<Transport>,
    settings: Settings,
    /// Held while the key file is read.
    key_lock: Arc<Mutex<()>>,
    budget: Budget,
    observer: Box<dyn Observer>,
}

/// What to request: the endpoint and the query.
type Query = (Endpoint, Vec<(String, String)>);

// === impl Client ===

impl Client {
    /// Returns a client with these settings that reports its requests to an observer.
    ///
    /// # Errors
    /// Returns an error if the certificates of `ca_file` cannot be read or TLS cannot be set up.
    pub fn new(settings: Settings, observer: impl Observer + 'static) -> Result<Self, String> {
        let http = exchange::http_client(&settings)?;
        Ok(Self::with(http, None, settings, observer))
    }

    /// Returns a client whose requests are answered by `transport` instead of a server: the entrance for simulations.
    #[doc(hidden)]
    pub fn with(
        http: reqwest::Client,
        transport: Option<Transport>,
        settings: Settings,
        observer: impl Observer + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            http,
            transport,
            key_lock: Arc::default(),
            budget: Budget::new(settings.max_requests_per_second),
            observer: Box::new(observer),
            settings,
        }))
    }

    /// Returns the settings of the client.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Requests a page of the audit log listing (specification, section 4.1): at most `limit` entries (1 to 1000), only
    /// those older than the cursor `before`.
    ///
    /// # Errors
    /// Returns the last error if no attempt succeeds.
    pub async fn audit_page(
        &self,
        limit: u32,
        before: Option<&str>,
    ) -> Result<AuditPage, ApiError> {
        let place = before.map(|cursor| ("before", cursor.to_owned()));
        self.page(self.query(Endpoint::AuditLogs, limit, place))
            .await
    }

    /// Requests a page of the ticket listing (specification, section 4.2).
    ///
    /// # Errors
    /// Returns the last error if no attempt succeeds.
    pub async fn ticket_page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        let place = Some(("offset", offset.to_string()));
        self.page(self.query(Endpoint::Tickets, limit, place)).await
    }

    /// Sends one request for the first page of a listing, without waiting for a turn and without retries.
    ///
    /// # Errors
    /// Returns an error if the request fails.
    pub async fn probe(&self, endpoint: Endpoint, limit: u32) -> Result<Page, ApiError> {
        self.request(&self.query(endpoint, limit, None)).await
    }

    /// Reports fields that the specification does not document.
    pub fn unknown_fields(&self, count: u64) {
        self.0.observer.unknown_fields(count);
    }

    fn query(&self, endpoint: Endpoint, limit: u32, place: Option<(&str, String)>) -> Query {
        let mut pairs = vec![("limit".to_owned(), limit.to_string())];
        pairs.extend(place.map(|(name, value)| (name.to_owned(), value)));
        if endpoint == Endpoint::AuditLogs {
            self.0.settings.filters.append_to(&mut pairs);
        }
        (endpoint, pairs)
    }

    /// Requests a page when it is its turn, and again if the error is transient.
    async fn page(&self, query: Query) -> Result<Page, ApiError> {
        let (budget, observer) = (&self.0.budget, &self.0.observer);
        let mut delays = Backoff::new(FIRST_DELAY, LONGEST_WAIT);
        let mut delays_when_limited = Backoff::new(FIRST_DELAY_WHEN_LIMITED, LONGEST_WAIT);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let turn = budget.acquire().await;
            observer.throttled(budget.take_waited());
            turn.map_err(ApiError::paused)?;
            let error = match self.request(&query).await {
                Err(error) => error,
                page => return page,
            };
            observer.failure(query.0, error.reason());
            let is_limited = error.reason() == FailureReason::RateLimited;
            let (attempts, delays) = match error.reason() {
                FailureReason::RateLimited => (ATTEMPTS_WHEN_LIMITED, &mut delays_when_limited),
                // The audit loop requests a smaller page then, and polls in between.
                FailureReason::Timeout if query.0 == Endpoint::AuditLogs => (2, &mut delays),
                _ => (ATTEMPTS, &mut delays),
            };
            let is_long = error.retry_after() > Some(LONGEST_WAIT);
            if !error.is_transient() || attempt >= attempts || is_long {
                return Err(error);
            }
            tracing::debug!(endpoint = query.0.as_str(), attempt, %error, "request failed, trying again");
            // A pause that the service asked for applies in addition, and the longer one counts.
            let delay = delays.next(None);
            match is_limited {
                true => budget.pause(delay),
                false => tokio::time::sleep(delay).await,
            }
        }
    }

    /// Sends one request within the time limit and parses the response.
    async fn request(&self, query: &Query) -> Result<Page, ApiError> {
        let (endpoint, pairs) = query;
        let settings = &self.0.settings;
        let deadline = Instant::now() + settings.timeout;
        let key = settings.key.header(&self.0.key_lock, deadline);
        let key = key
            .await
            .map_err(|message| ApiError::new(FailureReason::Key, message))?;
        let url = settings.base_url.join(endpoint.path());
        let span = tracing::info_span!(
            "GET",
            otel.name = format!("GET {}", endpoint.path()),
            otel.kind = "client",
            http.request.method = "GET",
            url.full = %url,
            server.address = url.host_str().unwrap_or_default(),
            server.port = url.port_or_known_default().unwrap_or_default(),
            http.response.status_code = tracing::field::Empty,
            error.r#type = tracing::field::Empty,
        );
        let mut bytes = 0;
        let sent = Instant::now();
        let request = self.0.http.get(url).query(pairs);
        let transport = self.0.transport.as_ref();
        let limits = (settings.timeout, deadline);
        let response = exchange::send(request, transport, &key, limits, &mut bytes)
            .instrument(span.clone())
            .await;
        let observer = &self.0.observer;
        observer.response(*endpoint, sent.elapsed(), bytes as u64);
        let result = response.and_then(|response| {
            span.record("http.response.status_code", response.status().as_u16());
            self.read_response(*endpoint, response, &key)
        });
        match &result {
            Ok(page) => observer.unknown_fields(page.unknown_fields),
            Err(error) => drop(span.record("error.type", error.reason().as_str())),
        }
        result
    }

    /// Makes a page of a response. It is public as the entrance for fuzzing.
    #[doc(hidden)]
    pub fn read_response(
        &self,
        endpoint: Endpoint,
        response: Response<Vec<u8>>,
        key: &HeaderValue,
    ) -> Result<Page, ApiError> {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status, &parts.headers);
        let secrets = [key.to_str().unwrap_or_default()];
        let retry_after = retry_after(headers).filter(|_| !status.is_success());
        if let Some(wait) = retry_after {
            self.0.budget.pause(wait);
        }
        let date = date(headers).and_then(|date| Timestamp::try_from(date).ok());
        if status.is_redirection() {
            // A relative target is shown as if no redirect had been followed before it.
            let base = self.0.settings.base_url.join(endpoint.path());
            let target = header(headers, LOCATION).and_then(|target| base.join(target).ok());
            let location = location(target.as_ref().map_or("", Url::as_str), &secrets);
            let message = format!(
                "HTTP {}: redirected to {location}; the key is not sent there. If that is the right address, set --api.base-url to it",
                status.as_u16()
            );
            return Err(ApiError::new(FailureReason::Redirect, message));
        }
        // Invalid UTF-8 is replaced: one odd name must not hide a page.
        let body = String::from_utf8(body)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let failed = |body| Failed {
            status: status.as_u16(),
            content_type: header(headers, CONTENT_TYPE).unwrap_or("without a content type"),
            retry_after,
            body,
            secrets: &secrets,
        };
        if !status.is_success() {
            return Err(ApiError::from_status(&failed(&body), endpoint.scope()));
        }
        // Parsing consumes the body, and an error needs only its beginning, a little longer than what is examined, so that
        // one that is cut can be recognized.
        let (start, bytes) = (prefix(&body, MAX_EXAMINED + 4).to_owned(), body.len());
        Page::parse(body, date).map_err(|error| ApiError::from_body(&failed(&start), bytes, &error))
    }
}

/// Returns the delay that a server asks for in `Retry-After`, at most an hour. A date there is one of the server's clock.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = header(headers, RETRY_AFTER)?.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(date(headers).unwrap_or_else(SystemTime::now))
            // A date in the past is no delay.
            .unwrap_or_default(),
    };
    Some(wait.min(LONGEST_PAUSE))
}

/// Returns a server's clock.
fn date(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(header(headers, DATE)?).ok()
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_parsed_in_seconds_and_as_a_date() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, delay) in [
            ("120", seconds(120)),
            (" 0 ", seconds(0)),
            ("Wed, 21 Oct 2015 07:29:30 GMT", seconds(90)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", seconds(0)),
            ("86400000", Some(LONGEST_PAUSE)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(LONGEST_PAUSE)),
            ("soon", None),
            ("-5", None),
            ("nan", None),
            ("1e400", None),
        ] {
            let date = HeaderValue::from_static("Wed, 21 Oct 2015 07:28:00 GMT");
            let sent = [(DATE, date), (RETRY_AFTER, HeaderValue::from_static(text))];
            assert_eq!(retry_after(&HeaderMap::from_iter(sent)), delay, "{text}");
        }
    }
}
