//! The one client for both loops: rate limit, timeouts, a cap on the body, retries for what can heal, and the key's safety.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use http::header::{CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use reqwest::redirect;
use tracing::Instrument;

use super::Endpoint;
use super::error::{ApiError, LONGEST_PAUSE};
use super::key::KeySource;
use super::limit::{LONGEST_WAIT, Limiter, Priority};
use super::observer::Observer;
use super::page::{AuditPage, TicketPage};
use super::query::{AuditQuery, BaseUrl, Filters};

/// The header that carries the key (specification, section 5).
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The largest answer that is read, in bytes after decompression. A larger page is asked for again in halves.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// How often one call asks, the first time included; what lasts longer is the loops' business.
const ATTEMPTS: u32 = 4;

/// How often it asks where each answer is that there were too many requests: most of a minute. Whoever gave up sooner would read the tickets
/// from the first page again, and never come to the last one where a quota lets fewer pages through.
const ATTEMPTS_WHEN_LIMITED: u32 = 8;

/// The first wait between two attempts; it doubles, with jitter, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The same where there were too many requests.
const FIRST_WAIT_WHEN_LIMITED: Duration = Duration::from_secs(1);

/// How much of a refusal's body is read, in bytes: its status says most of it.
const MAX_REFUSAL_BYTES: usize = 256 * 1024;

/// A key at least so long is taken out of what the service says, in bytes; a shorter one is no secret, and would be found everywhere.
const SECRET_BYTES: usize = 6;

/// How much of an unreadable answer is kept to tell what it is, in characters.
const MAX_START: usize = 500;

/// How often a redirect on the same host is followed.
const MAX_REDIRECTS: usize = 3;

/// What a client needs to know.
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
    /// `--api.ca-file`: root certificates in PEM, besides the system's.
    pub ca_file: Option<PathBuf>,
    /// `--audit.*`: the service's own filters.
    pub filters: Filters,
}

/// A client of one organization's data; cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    settings: Arc<Settings>,
    limiter: Arc<Limiter>,
    observer: Arc<dyn Observer>,
}

/// What of an answer has arrived so far.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    /// Status and headers, where the status is not a success.
    refusal: Option<(u16, HeaderMap)>,
}

/// What one request brought.
#[derive(Clone, Debug)]
pub struct Probe<T> {
    /// The page.
    pub page: T,
    /// Fields of it that the specification does not name; those of its items are not among them.
    pub unknown_fields: u64,
    /// The service's clock, where it sent a `Date`.
    pub date: Option<Timestamp>,
}

/// An answer with a successful status.
struct Answer {
    status: u16,
    content_type: String,
    date: Option<Timestamp>,
    body: String,
}

// === impl Client ===

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client with these settings.
    ///
    /// # Errors
    /// Where the certificates of `ca_file` cannot be read, or TLS cannot be set up.
    pub fn new(settings: Settings, observer: impl Observer + 'static) -> Result<Self, String> {
        let mut builder = reqwest::Client::builder();
        // The key may go to this machine in plain text because nobody else sees it; through a proxy somebody would.
        if settings.base_url.is_loopback() {
            builder = builder.no_proxy();
        }
        builder = builder
            .user_agent(concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.timeout.min(Duration::from_secs(10)))
            .redirect(redirect::Policy::custom(|attempt| {
                let same = attempt
                    .previous()
                    .last()
                    .is_some_and(|last| last.origin() == attempt.url().origin());
                if same && attempt.previous().len() <= MAX_REDIRECTS {
                    attempt.follow()
                } else {
                    attempt.stop()
                }
            }));
        if let Some(path) = &settings.ca_file {
            let pem = std::fs::read(path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
            if certificates.is_empty() {
                return Err(format!(
                    "{} holds no certificate in PEM form",
                    path.display()
                ));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let http = builder.build().map_err(|error| chain(&error))?;
        let limiter = Arc::new(Limiter::new(settings.max_requests_per_second));
        Ok(Self {
            http,
            settings: Arc::new(settings),
            limiter,
            observer: Arc::new(observer),
        })
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A page of the audit log listing (specification, section 4.1).
    ///
    /// # Errors
    /// After the attempts of one call; see [`ApiError`].
    pub async fn audit_page(
        &self,
        query: &AuditQuery,
        priority: Priority,
    ) -> Result<AuditPage, ApiError> {
        self.page(
            Endpoint::AuditLogs,
            &self.audit_pairs(query),
            priority,
            AuditPage::parse,
        )
        .await
    }

    /// One request to the audit log listing, at once and without another attempt.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn probe_audit(&self, query: &AuditQuery) -> Result<Probe<AuditPage>, ApiError> {
        self.ask(
            Endpoint::AuditLogs,
            &self.audit_pairs(query),
            AuditPage::parse,
        )
        .await
    }

    /// A page of the ticket listing (specification, section 4.2).
    ///
    /// # Errors
    /// After the attempts of one call; see [`ApiError`].
    pub async fn ticket_page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        self.page(
            Endpoint::Tickets,
            &ticket_pairs(limit, offset),
            Priority::Tickets,
            TicketPage::parse,
        )
        .await
    }

    /// One request to the ticket listing, at once and without another attempt.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn probe_tickets(
        &self,
        limit: u32,
        offset: u64,
    ) -> Result<Probe<TicketPage>, ApiError> {
        self.ask(
            Endpoint::Tickets,
            &ticket_pairs(limit, offset),
            TicketPage::parse,
        )
        .await
    }

    /// Counts fields that the specification does not name.
    pub fn unknown_fields(&self, count: u64) {
        self.observer.unknown_fields(count);
    }

    fn audit_pairs(&self, query: &AuditQuery) -> Vec<(String, String)> {
        let mut pairs = vec![("limit".to_owned(), query.limit.to_string())];
        pairs.extend(
            query
                .before
                .iter()
                .map(|cursor| ("before".to_owned(), cursor.as_str().to_owned())),
        );
        pairs.extend(
            query
                .after
                .iter()
                .map(|cursor| ("after".to_owned(), cursor.as_str().to_owned())),
        );
        self.settings.filters.append_to(&mut pairs);
        pairs
    }

    async fn page<T>(
        &self,
        endpoint: Endpoint,
        pairs: &[(String, String)],
        priority: Priority,
        parse: fn(String, Timestamp) -> Result<(T, u64), serde_json::Error>,
    ) -> Result<T, ApiError> {
        for attempt in 1.. {
            let error = match self.attempt(endpoint, pairs, priority, parse).await {
                Ok(Probe {
                    page,
                    unknown_fields,
                    ..
                }) => {
                    self.observer.unknown_fields(unknown_fields);
                    return Ok(page);
                }
                // No request was sent, and so none failed.
                Err(error @ ApiError::LeftAlone(_)) => return Err(error),
                Err(error) => error,
            };
            self.observer.failure(endpoint, error.reason());
            let limited = matches!(error, ApiError::RateLimited { .. });
            let (attempts, first) = if limited {
                (ATTEMPTS_WHEN_LIMITED, FIRST_WAIT_WHEN_LIMITED)
            } else {
                (ATTEMPTS, FIRST_WAIT)
            };
            if !error.is_transient()
                || attempt >= attempts
                || error.retry_after() > Some(LONGEST_WAIT)
            {
                return Err(error);
            }
            tracing::debug!(endpoint = endpoint.as_str(), attempt, %error, "request failed, trying again");
            let wait = (first * 2_u32.pow(attempt - 1))
                .mul_f64(0.5 + fastrand::f64())
                .min(LONGEST_WAIT);
            // What the service itself asked for holds besides, and the longer of the two counts.
            if limited {
                self.limiter.pause(wait);
            } else {
                tokio::time::sleep(wait).await;
            }
        }
        unreachable!("the loop ends by returning")
    }

    async fn attempt<T>(
        &self,
        endpoint: Endpoint,
        pairs: &[(String, String)],
        priority: Priority,
        parse: fn(String, Timestamp) -> Result<(T, u64), serde_json::Error>,
    ) -> Result<Probe<T>, ApiError> {
        let turn = self.limiter.acquire(priority).await;
        let waited = turn.unwrap_or_else(|turned_away| turned_away.waited);
        // A turn that came at once was not throttled; the clock's own resolution is no waiting.
        if waited > Duration::from_millis(1) {
            self.observer.throttled(waited);
        }
        turn.map_err(|turned_away| ApiError::LeftAlone(turned_away.left))?;
        self.ask(endpoint, pairs, parse).await
    }

    async fn ask<T>(
        &self,
        endpoint: Endpoint,
        pairs: &[(String, String)],
        parse: fn(String, Timestamp) -> Result<(T, u64), serde_json::Error>,
    ) -> Result<Probe<T>, ApiError> {
        let key = self.settings.key.header().await?;
        let url = self.settings.base_url.join(endpoint.path());
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
        let answer = self
            .send(endpoint, url, pairs, &key)
            .instrument(span.clone())
            .await;
        let result = answer.and_then(|answer| {
            span.record("http.response.status_code", answer.status);
            let Answer {
                status,
                content_type,
                date,
                body,
            } = answer;
            // Parsing takes the body; a failure needs only its beginning and its length to be told apart.
            let (start, bytes) = (
                without(body.chars().take(MAX_START).collect(), &key),
                body.len(),
            );
            let (page, unknown_fields) =
                parse(body, date.unwrap_or_else(Timestamp::now)).map_err(|error| {
                    ApiError::from_body(status, &content_type, &start, bytes, &error)
                })?;
            Ok(Probe {
                page,
                unknown_fields,
                date,
            })
        });
        if let Err(error) = &result {
            span.record("error.type", error.reason().as_str());
        }
        result
    }

    /// Sends one request and reads the whole answer within the timeout.
    async fn send(
        &self,
        endpoint: Endpoint,
        url: url::Url,
        pairs: &[(String, String)],
        key: &HeaderValue,
    ) -> Result<Answer, ApiError> {
        let started = tokio::time::Instant::now();
        let mut received = Received::default();
        let exchange = self.exchange(url, pairs, key, &mut received);
        let result = match tokio::time::timeout(self.settings.timeout, exchange).await {
            Ok(result) => result,
            Err(_) if received.bytes.is_empty() => Err(ApiError::Timeout(self.settings.timeout)),
            Err(_) => Err(ApiError::Stalled {
                limit: self.settings.timeout,
                bytes: received.bytes.len(),
            }),
        };
        let Received { bytes, refusal } = received;
        self.observer
            .response(endpoint, started.elapsed(), bytes.len() as u64);
        let (status, headers) = match (result, refusal) {
            (Ok(head), _) => head,
            // A refusal says what is wrong, also when its body does not end.
            (Err(_), Some(head)) => head,
            (Err(error), None) => return Err(error),
        };
        let content_type = header(&headers, CONTENT_TYPE)
            .unwrap_or("without a content type")
            .to_owned();
        let date = header(&headers, DATE).and_then(|date| httpdate::parse_http_date(date).ok());
        // A date is one of the service's clock.
        let retry_after = header(&headers, RETRY_AFTER)
            .and_then(|text| parse_retry_after(text, date.unwrap_or_else(SystemTime::now)));
        if let Some(wait) = retry_after.filter(|_| !(200..300).contains(&status)) {
            self.limiter.pause(wait);
        }
        if (300..400).contains(&status) {
            let location = without(
                header(&headers, LOCATION)
                    .unwrap_or("an unnamed place")
                    .to_owned(),
                key,
            );
            return Err(ApiError::redirect(status, &location));
        }
        // Invalid UTF-8 inside a string is replaced, not fatal: one odd name must not hide a page.
        let body = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        if !(200..300).contains(&status) {
            return Err(ApiError::from_status(
                status,
                endpoint.scope(),
                &content_type,
                retry_after,
                &without(body, key),
            ));
        }
        let date = date.and_then(|time| Timestamp::try_from(time).ok());
        Ok(Answer {
            status,
            content_type,
            date,
            body,
        })
    }

    async fn exchange(
        &self,
        url: url::Url,
        pairs: &[(String, String)],
        key: &HeaderValue,
        received: &mut Received,
    ) -> Result<(u16, HeaderMap), ApiError> {
        let response = self
            .http
            .get(url)
            .query(pairs)
            .header(KEY_HEADER, key)
            .header("accept", "application/json")
            .send()
            .await;
        let response = response.map_err(|error| ApiError::Connect(reason(error)))?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let refused = !response.status().is_success();
        if refused {
            received.refusal = Some((status, headers.clone()));
        }
        let bytes = &mut received.bytes;
        // What grows by doubling takes up to twice the page, for each of several that are on their way.
        let announced = response
            .content_length()
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0);
        bytes.reserve_exact(announced.min(if refused {
            MAX_REFUSAL_BYTES
        } else {
            MAX_BODY_BYTES
        }));
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|_| ApiError::Truncated { bytes: bytes.len() })?;
            if refused && bytes.len() + chunk.len() > MAX_REFUSAL_BYTES {
                break;
            }
            if bytes.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(ApiError::TooLarge {
                    limit: MAX_BODY_BYTES,
                });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((status, headers))
    }
}

fn ticket_pairs(limit: u32, offset: u64) -> [(String, String); 2] {
    [
        ("limit".to_owned(), limit.to_string()),
        ("offset".to_owned(), offset.to_string()),
    ]
}

/// Returns the wait that `Retry-After` asks for, in either form and at most an hour; `now` is by the service's clock, and a date in the
/// past is no wait.
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .unwrap_or_default(),
    };
    Some(wait.min(LONGEST_PAUSE))
}

/// A text of the service without the key: some services repeat a key that they refuse.
fn without(text: String, key: &HeaderValue) -> String {
    match key.to_str() {
        Ok(key) if key.len() >= SECRET_BYTES && text.contains(key) => {
            text.replace(key, "[the key]")
        }
        _ => text,
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Why there is no connection, and what to do where that is known.
fn reason(error: reqwest::Error) -> String {
    let mut text = chain(&error.without_url());
    if text.contains("UnknownIssuer") {
        text.push_str("; nothing on this machine vouches for the service's certificate: if its authority is a private one, give its root with --api.ca-file");
    }
    text
}

/// An error and its causes on one line; the outermost of reqwest's says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").expect("a date");
        assert_eq!(
            parse_retry_after("120", now),
            Some(Duration::from_secs(120))
        );
        assert_eq!(parse_retry_after(" 0 ", now), Some(Duration::ZERO));
        assert_eq!(
            parse_retry_after("Wed, 21 Oct 2015 07:29:30 GMT", now),
            Some(Duration::from_secs(90))
        );
        assert_eq!(
            parse_retry_after("Wed, 21 Oct 2015 07:27:00 GMT", now),
            Some(Duration::ZERO)
        );
        for long in ["86400000", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(parse_retry_after(long, now), Some(LONGEST_PAUSE), "{long}");
        }
        for nonsense in ["soon", "-5", "nan", "1e400"] {
            assert_eq!(parse_retry_after(nonsense, now), None, "{nonsense}");
        }
    }
}
