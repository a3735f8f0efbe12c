//! The client of both listings: request budget, time limit, retries, and one place where a response becomes a page. The
//! key goes to one host only, and time and body are bounded.

use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use connections::{Outcome, Renewed, authorities, check_proxy};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use jiff::Timestamp;
use reqwest::{Certificate, Request, redirect};
use serde::de::IgnoredAny;
use tokio::time::Instant;
use tracing::Instrument;
use url::Url;

use super::Endpoint;
use super::backoff::Backoff;
use super::budget::{Budget, LONGEST_WAIT};
use super::error::{
    ApiError, Failed, FailureReason, FailureReason as R, LONGEST_PAUSE, MAX_ERROR_BODY,
};
use super::key::KeySource;
use super::page::{AuditPage, TicketPage};
use super::query::{BaseUrl, Filters};
use super::sanitize::{MAX_EXAMINED, MAX_SHOWN, error_chain, location, one_line, prefix};

/// The number of requests that one call sends for a transient error. One that took the time limit is not sent again: the
/// caller asks for a smaller page.
const ATTEMPTS: u32 = 4;

/// The first delay between two attempts, and how much longer it is if the API limits the rate.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const TIMES_IF_LIMITED: u32 = 4;

/// Headers that say with a 0 that a quota is used up.
const QUOTA: [&str; 2] = ["ratelimit-remaining", "x-ratelimit-remaining"];

/// The header of the key (specification, section 5).
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The maximum size of a page in bytes, after decompression. A larger page is requested again in halves.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// The maximum number of header fields of a response: some proxies add one for each of their rules.
const MAX_HEADERS: usize = 512;

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
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
    /// Reads `ca_file` and the key file.
    pub read_file: connections::ReadFile,
    /// `--audit.*`: the API's own filters.
    pub filters: Filters,
}

/// Receives a report of each request; the exporter implements it with its metrics.
pub trait Observer: fmt::Debug + Send + Sync {
    /// A request was sent; its response took this long and had this many bytes after decompression.
    fn response(&self, _endpoint: Endpoint, _duration: Duration, _bytes: u64) {}

    /// A request brought no usable response.
    fn failure(&self, _endpoint: Endpoint, _reason: FailureReason) {}

    /// A request waited for the rate limit, the API's or ours.
    fn throttled(&self, _waited: Duration) {}

    /// A response had this head, of any status; `date` is the API's clock.
    fn head(&self, _headers: &HeaderMap, _date: Option<Timestamp>) {}
}

/// Observes nothing.
impl Observer for () {}

/// A client of one organization's data. Clones share one budget and the connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Renewed<Transport>,
    settings: ClientSettings,
    budget: Budget,
    observer: Box<dyn Observer>,
}

/// Sends requests.
#[derive(Clone)]
enum Transport {
    Http(reqwest::Client),
    Simulated(Simulated),
}

/// Answers requests in this process, for a simulation; `None` stands for a connection that is reset.
pub type Simulated = Arc<dyn Fn(Request) -> SimulatedAnswer + Send + Sync>;

type SimulatedAnswer = Pin<Box<dyn Future<Output = Option<reqwest::Response>> + Send>>;

/// Parses the body of a response with the API's clock.
type Parse<P> = fn(String, Option<Timestamp>) -> Result<P, String>;

// === impl Client ===

impl Client {
    /// Returns a client with these settings that reports its requests to an observer.
    ///
    /// # Errors
    /// Returns an error if the certificates of `ca_file` cannot be read or TLS cannot be set up.
    pub fn new(
        settings: ClientSettings,
        observer: impl Observer + 'static,
    ) -> Result<Self, String> {
        let of = settings.clone();
        let warned = Mutex::new(Vec::new());
        let transport = Renewed::new(move || {
            let (client, warnings) = http_client(&of)?;
            let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
            for warning in warnings.iter().filter(|it| !warned.contains(*it)) {
                tracing::warn!("{warning}");
            }
            *warned = warnings;
            Ok(Transport::Http(client))
        })?;
        Ok(Self::with(transport, settings, observer))
    }

    /// Returns a client whose requests are answered in this process: the entrance for simulations.
    pub fn simulated(
        answers: Simulated,
        settings: ClientSettings,
        observer: impl Observer + 'static,
    ) -> Self {
        let transport = Renewed::never(Transport::Simulated(answers));
        Self::with(transport, settings, observer)
    }

    fn with(
        transport: Renewed<Transport>,
        settings: ClientSettings,
        observer: impl Observer + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            transport,
            budget: Budget::new(settings.max_requests_per_second),
            observer: Box::new(observer),
            settings,
        }))
    }

    /// Returns the settings of the client.
    pub fn settings(&self) -> &ClientSettings {
        &self.0.settings
    }

    /// Returns the longest time that a request for a page takes, with all its attempts and pauses.
    pub fn longest_page(&self) -> Duration {
        let attempt = self.0.settings.timeout + self.0.budget.longest_turn() + LONGEST_WAIT;
        ATTEMPTS * attempt
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
        let mut query = vec![("limit", limit.to_string())];
        query.extend(before.map(|cursor| ("before", cursor.to_owned())));
        query.extend(self.0.settings.filters.query());
        self.page(Endpoint::AuditLogs, query, AuditPage::parse)
            .await
    }

    /// Requests a page of the ticket listing (specification, section 4.2).
    ///
    /// # Errors
    /// Returns the last error if no attempt succeeds.
    pub async fn ticket_page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        let query = vec![("limit", limit.to_string()), ("offset", offset.to_string())];
        self.page(Endpoint::Tickets, query, TicketPage::parse).await
    }

    fn url(&self, endpoint: Endpoint) -> Url {
        self.0.settings.base_url.join(endpoint.path())
    }

    /// Requests a page when it is its turn, and again if the error is transient.
    async fn page<P>(
        &self,
        endpoint: Endpoint,
        query: Vec<(&'static str, String)>,
        parse: Parse<P>,
    ) -> Result<P, ApiError> {
        let (budget, observer) = (&self.0.budget, &self.0.observer);
        let mut delays = Backoff::new(FIRST_DELAY, LONGEST_WAIT);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let turn = budget.acquire(endpoint).await;
            observer.throttled(budget.take_waited());
            turn.map_err(ApiError::paused)?;
            let error = match self.request(endpoint, &query, parse).await {
                Err(error) => error,
                page => return page,
            };
            observer.failure(endpoint, error.reason());
            let is_late = error.reason() == R::Timeout;
            let is_long = error.retry_after() > Some(LONGEST_WAIT);
            if !error.is_transient() || attempt >= ATTEMPTS || is_late || is_long {
                return Err(error);
            }
            tracing::debug!(path = endpoint.path(), attempt, %error, "request failed; trying again");
            // A pause that the API asked for applies in addition, and the longer one counts.
            let delay = delays.next(None);
            match error.reason() {
                R::RateLimited => budget.pause(endpoint, delay * TIMES_IF_LIMITED),
                _ => tokio::time::sleep(delay).await,
            }
        }
    }

    /// Sends one request within the time limit and parses the response.
    async fn request<P>(
        &self,
        endpoint: Endpoint,
        query: &[(&str, String)],
        parse: Parse<P>,
    ) -> Result<P, ApiError> {
        let settings = &self.0.settings;
        // Making a new one takes no time from the request.
        let transport = self.0.transport.client().await;
        let deadline = Instant::now() + settings.timeout;
        let key = settings
            .key
            .header(settings.read_file, deadline)
            .await
            .map_err(|message| ApiError::new(R::Key, message))?;
        let mut url = self.url(endpoint);
        let span = tracing::info_span!(
            "GET",
            otel.name = format!("GET {}", endpoint.path()),
            otel.kind = "client",
            http.request.method = "GET",
            url.full = %url,
            http.response.status_code = tracing::field::Empty,
            error.r#type = tracing::field::Empty,
        );
        url.query_pairs_mut().extend_pairs(query);
        let mut request = Request::new(Method::GET, url);
        request.headers_mut().insert(KEY_HEADER, key.clone());
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(ACCEPT, json);
        let sent = Instant::now();
        let exchange = self.exchange(transport, request, deadline);
        let received = exchange.instrument(span.clone()).await;
        let duration = sent.elapsed();
        let bytes = received.as_ref().map_or(0, |it| it.body().len() as u64);
        let status = received.as_ref().ok().map(|it| it.status().as_u16());
        self.0.observer.response(endpoint, duration, bytes);
        let result = received.and_then(|received| {
            span.record("http.response.status_code", received.status().as_u16());
            let date = date(received.headers());
            self.0.observer.head(received.headers(), date);
            self.read_response(endpoint, received, date, &key, parse)
        });
        self.0.transport.report(outcome(status, &result)).await;
        if let Err(error) = &result {
            span.record("error.type", error.reason().as_ref());
        }
        tracing::debug!(
            method = "GET",
            path = endpoint.path(),
            limit = query[0].1,
            status,
            bytes,
            duration = %humantime::format_duration(Duration::from_millis(duration.as_millis() as u64)),
            error = result.as_ref().err().map(|error| <&str>::from(error.reason())),
            "request"
        );
        result
    }

    /// Sends a request and reads the response until a deadline. The body of an error is empty if it did not arrive.
    async fn exchange(
        &self,
        transport: Transport,
        request: Request,
        deadline: Instant,
    ) -> Result<Response<Vec<u8>>, ApiError> {
        let sent = transport.send(request);
        let limit = humantime::format_duration(self.0.settings.timeout);
        let timed_out = ApiError::new(R::Timeout, format!("no answer within {limit}"));
        let Ok(response) = tokio::time::timeout_at(deadline, sent).await else {
            return Err(timed_out);
        };
        let response = response?;
        let mut received = Response::new(Vec::new());
        *received.status_mut() = response.status();
        *received.headers_mut() = response.headers().clone();
        let body = tokio::time::timeout_at(deadline, read_body(response)).await;
        match body.unwrap_or(Err(timed_out)) {
            Ok(body) => *received.body_mut() = body,
            Err(error) if received.status().is_success() => return Err(error),
            // The status says enough, and an incomplete body could end within a secret.
            Err(_) => {}
        }
        Ok(received)
    }

    /// Makes a page of a response. It is public as the entrance for fuzzing.
    #[doc(hidden)]
    pub fn read_response<P>(
        &self,
        endpoint: Endpoint,
        response: Response<Vec<u8>>,
        date: Option<Timestamp>,
        key: &HeaderValue,
        parse: Parse<P>,
    ) -> Result<P, ApiError> {
        let (parts, body) = response.into_parts();
        let (status, headers) = (parts.status, &parts.headers);
        let secrets = [key.to_str().unwrap_or_default()];
        let retry_after = retry_after(headers, date).filter(|_| !status.is_success());
        if let Some(wait) = retry_after {
            self.0.budget.pause(endpoint, wait);
        }
        // Invalid UTF-8 is replaced: one odd name must not hide a page.
        let body = String::from_utf8(body)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        // The client asks for gzip, and removes the field of what it has decoded.
        let encoding = header(headers, CONTENT_ENCODING).filter(|it| *it != "identity");
        let encoded = encoding.map(|it| {
            format!(
                "the answer has the encoding {it}, which was not requested; check any proxy in between"
            )
        });
        let failed = |body| Failed {
            status: status.as_u16(),
            content_type: header(headers, CONTENT_TYPE).unwrap_or("without a content type"),
            retry_after,
            is_quota: QUOTA
                .iter()
                .any(|name| headers.get(*name).is_some_and(|it| it == "0")),
            encoded: encoded.as_deref(),
            body,
            secrets: &secrets,
        };
        if status.is_redirection() {
            let base = self.url(endpoint);
            let target = header(headers, LOCATION).and_then(|target| base.join(target).ok());
            let location = location(target.as_ref().map_or("", Url::as_str), &secrets);
            let message = format!(
                ": redirected to {location}; the key is not sent there. If that is the right address, set --api.base-url to it"
            );
            return Err(failed("").error(R::Rejected, &message));
        }
        if !status.is_success() {
            return Err(ApiError::from_status(&failed(&body), endpoint.scope()));
        }
        // Parsing consumes the body, and an error needs only its beginning.
        let start = prefix(&body, MAX_EXAMINED + 4).to_owned();
        parse(body, date).map_err(|error| ApiError::from_body(&failed(&start), &error))
    }
}

// === impl Transport ===

impl Transport {
    async fn send(self, request: Request) -> Result<reqwest::Response, ApiError> {
        match self {
            Self::Http(client) => client.execute(request).await.map_err(not_connected),
            Self::Simulated(answer) => {
                let answer = answer(request).await;
                answer.ok_or_else(|| ApiError::new(R::Connect, "connection reset"))
            }
        }
    }
}

/// Returns how a request ended. Without a status there was no whole response.
fn outcome<P>(status: Option<u16>, result: &Result<P, ApiError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(error) if status.is_none() && error.reason() != R::TooLarge => Outcome::Broken,
        Err(_) => Outcome::Error,
    }
}

/// Returns an HTTP client that follows no redirects, and what is wrong with its settings without preventing it.
fn http_client(settings: &ClientSettings) -> Result<(reqwest::Client, Vec<String>), String> {
    let mut warnings = Vec::new();
    let mut builder = reqwest::Client::builder();
    if settings.base_url.is_loopback() {
        // The key may go to this machine in plain text, but not through a proxy.
        builder = builder.no_proxy();
    } else {
        check_proxy(&settings.base_url.to_string())?;
    }
    builder = match &settings.ca_file {
        // No certificate is checked, so the system needs no roots.
        _ if settings.base_url.scheme() != "https" => builder.tls_certs_only([]),
        Some(path) => {
            let wrong = |problem: String| format!("--api.ca-file: {}: {problem}", path.display());
            let pem = (settings.read_file)(path)
                .map_err(|error| wrong(format!("cannot read it: {error}")))?;
            let (certificates, skipped) = authorities(&pem).map_err(wrong)?;
            warnings.extend(skipped.into_iter().map(wrong));
            let certificates = certificates.iter().map(|it| Certificate::from_der(it));
            let certificates: Result<Vec<_>, _> = certificates.collect();
            builder.tls_certs_merge(certificates.map_err(|error| wrong(error_chain(&error)))?)
        }
        None => builder,
    };
    builder
        .user_agent(concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(settings.timeout.min(Duration::from_secs(10)))
        // A connection that goes silent concerns one request.
        .http1_only()
        .http1_max_headers(MAX_HEADERS)
        // The key goes to one host only. A redirect is an error that names its target.
        .redirect(redirect::Policy::none())
        .build()
        .map(|client| (client, warnings))
        .map_err(|error| {
            let error = error_chain(&error);
            format!("cannot set up TLS: {error}; install the system's root certificates (ca-certificates), or set --api.ca-file")
        })
}

/// Reads a body; that of an error only as far as it is read as JSON.
async fn read_body(mut response: reqwest::Response) -> Result<Vec<u8>, ApiError> {
    let is_success = response.status().is_success();
    let max = match is_success {
        true => MAX_BODY_BYTES,
        // A little more, so that one that is cut can be recognized.
        false => MAX_ERROR_BODY + 1,
    };
    // A body that grows by doubling takes up to twice its size.
    let announced = response.content_length().unwrap_or(0);
    let mut body = Vec::with_capacity(announced.min(max as u64) as usize);
    while body.len() <= max {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            // Some servers end TLS, or the connection, without saying so.
            Err(_) if serde_json::from_slice::<IgnoredAny>(&body).is_ok() => return Ok(body),
            Err(_) => {
                let message = format!("the answer was cut off after {} bytes", body.len());
                return Err(ApiError::new(R::Malformed, message));
            }
        }
    }
    let message = format!("the answer is larger than {max} bytes");
    let too_large = ApiError::new(R::TooLarge, message);
    if is_success { Err(too_large) } else { Ok(body) }
}

/// The beginning of an error of the HTTP client about a proxy.
const TUNNEL: &str = "tunnel error: ";

/// Returns why there is no connection, and what to do if that is known.
fn not_connected(error: reqwest::Error) -> ApiError {
    let url = error.url();
    let host = url.and_then(Url::host_str).unwrap_or_default();
    let port = url.and_then(Url::port_or_known_default).unwrap_or_default();
    let problem = match error.is_connect() {
        true => format!("cannot connect to {host}, port {port}"),
        false => "the connection was closed before an answer".to_owned(),
    };
    // The libraries in between only say that there was an error.
    let mut causes = std::iter::successors(error.source(), |&error| error.source());
    let tunnel = causes.find(|cause| cause.to_string().starts_with(TUNNEL));
    if let Some(error) = tunnel {
        let cause = error_chain(error);
        let text = format!(
            "the proxy did not open a tunnel to {host}, port {port}: {}; check HTTPS_PROXY, and that the proxy answers CONNECT with status 200",
            cause.trim_start_matches(TUNNEL)
        );
        return ApiError::new(R::Connect, text);
    }
    let causes = std::iter::successors(error.source(), |&error| error.source());
    let cause = causes
        .last()
        .map(|cause| one_line(&cause.to_string(), MAX_SHOWN));
    let cause = cause.unwrap_or_default();
    let text = if cause.contains("failed to lookup address information") {
        format!("cannot resolve {host}; check --api.base-url and any proxy")
    } else if cause.contains("Connection refused") {
        format!("nothing listens at {host}, port {port}; check --api.base-url and any proxy")
    } else if cause.contains("UnknownIssuer") {
        format!(
            "{problem}: {cause}; the API's certificate is from an authority that this machine does not trust: if it is a private one, set --api.ca-file to its root certificate"
        )
    } else if let Some(advice) = connections::advice(&cause) {
        format!("{problem}: {cause}; {advice}")
    } else {
        format!("{problem}: {cause}")
    };
    ApiError::new(R::Connect, text)
}

/// Returns the delay that a server asks for in `Retry-After`, at most an hour. A date there is one of the server's clock.
fn retry_after(headers: &HeaderMap, date: Option<Timestamp>) -> Option<Duration> {
    let text = header(headers, RETRY_AFTER)?.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => http_date(text)?
            .duration_since(date.unwrap_or_else(Timestamp::now))
            .try_into()
            // A date in the past is no delay.
            .unwrap_or_default(),
    };
    Some(wait.min(LONGEST_PAUSE))
}

/// Returns a server's clock.
fn date(headers: &HeaderMap) -> Option<Timestamp> {
    http_date(header(headers, DATE)?)
}

fn http_date(text: &str) -> Option<Timestamp> {
    Timestamp::try_from(httpdate::parse_http_date(text).ok()?).ok()
}

fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}
