//! Why a request failed, for people as a message and for metrics as a bounded reason.

use std::time::Duration;

use serde_json::Value;

use super::key::KeyError;
use super::page::PageError;
use super::sanitize::{MAX_EXAMINED, sanitize};

/// The maximum pause that the service can ask for. A typing error there must not stop the exporter for a year.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Why a request brought no usable response. Texts of the service in it are sanitized.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no connection: name, network or TLS.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// There was no response in time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// A response began and did not end in time.
    #[error("the answer stopped: only {bytes} bytes came within {}", humantime::format_duration(*.limit))]
    Stalled {
        /// The time limit.
        limit: Duration,
        /// The number of bytes that arrived.
        bytes: usize,
    },
    /// HTTP 401.
    #[error("HTTP 401: the service does not accept the API key{}", detail(.0))]
    Unauthorized(String),
    /// HTTP 403.
    #[error("HTTP 403: the API key lacks the scope {scope}{}", detail(.message))]
    Forbidden {
        /// The scope that the endpoint needs.
        scope: &'static str,
        /// The message of the service.
        message: String,
    },
    /// HTTP 404.
    #[error("HTTP 404: nothing is at this address; check --api.base-url{}", detail(.0))]
    NotFound(String),
    /// A validation error (specification, section 7.2) with any status.
    #[error("HTTP {status}: {message}")]
    Validation {
        /// The HTTP status.
        status: u16,
        /// The error and its issues.
        message: String,
    },
    /// HTTP 429.
    #[error("HTTP 429: too many requests{}{}", wait(.retry_after), detail(.message))]
    RateLimited {
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// The message of the service.
        message: String,
    },
    /// No request was sent, because the service asked for a pause that lasts this much longer.
    #[error("the service asked for a pause; the next request is in {}", seconds(*.0))]
    Paused(Duration),
    /// HTTP 5xx (specification, section 7.1).
    #[error("HTTP {status}{}{}", wait(.retry_after), detail(.message))]
    Server {
        /// The HTTP status.
        status: u16,
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// The message of the service.
        message: String,
    },
    /// Any other status.
    #[error("HTTP {status}{}", detail(.message))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The message of the service.
        message: String,
    },
    /// A redirect to another host. The key is not sent there.
    #[error(
        "HTTP {status}: redirected to {location}; the key is not sent there. If that is the right address, set --api.base-url to it"
    )]
    Redirect {
        /// The HTTP status.
        status: u16,
        /// Scheme, host and path of the target.
        location: String,
    },
    /// HTML or other text instead of JSON, usually from a proxy or a login page.
    #[error("HTTP {status}{}: the answer is {content_type} and not JSON, probably from a proxy or a login page{}", wait(.retry_after), detail(.start))]
    NotJson {
        /// The HTTP status.
        status: u16,
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// The content type of the response.
        content_type: String,
        /// The beginning of the body.
        start: String,
    },
    /// The response ended early.
    #[error("the answer was cut off after {bytes} bytes")]
    Truncated {
        /// The number of bytes that arrived.
        bytes: usize,
    },
    /// A success without a body.
    #[error("HTTP {status}: the answer is empty")]
    Empty {
        /// The HTTP status.
        status: u16,
    },
    /// The response is larger than a page may be.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A success whose body is not a page. Names the field and the type found, not the data.
    #[error("the answer is not a page of this listing: {0}")]
    Malformed(String),
}

/// The reason of a failure as a label value: a bounded set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    missing_docs,
    reason = "each is the kind of `ApiError` with the same name; a stalled response is a time-out, and a 5xx is one whatever its body"
)]
pub enum FailureReason {
    Key,
    Connect,
    Timeout,
    Unauthorized,
    Forbidden,
    NotFound,
    Validation,
    RateLimited,
    ServerError,
    UnexpectedStatus,
    Redirect,
    NotJson,
    Truncated,
    Empty,
    TooLarge,
    Malformed,
}

/// A response that is an error.
pub(super) struct Failed<'a> {
    pub(super) status: u16,
    pub(super) content_type: &'a str,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: &'a str,
    /// The key, which some services repeat when they refuse it.
    pub(super) secrets: &'a [&'a str],
}

// === impl ApiError ===

impl ApiError {
    /// Returns the label value.
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Key(_) => FailureReason::Key,
            Self::Connect(_) => FailureReason::Connect,
            Self::Timeout(_) | Self::Stalled { .. } => FailureReason::Timeout,
            Self::Unauthorized(_) => FailureReason::Unauthorized,
            Self::Forbidden { .. } => FailureReason::Forbidden,
            Self::NotFound(_) => FailureReason::NotFound,
            Self::Validation { .. } => FailureReason::Validation,
            Self::RateLimited { .. } | Self::Paused(_) => FailureReason::RateLimited,
            Self::Server { .. }
            | Self::NotJson {
                status: 500..=599, ..
            } => FailureReason::ServerError,
            Self::Status { .. } => FailureReason::UnexpectedStatus,
            Self::Redirect { .. } => FailureReason::Redirect,
            Self::NotJson { .. } => FailureReason::NotJson,
            Self::Truncated { .. } => FailureReason::Truncated,
            Self::Empty { .. } => FailureReason::Empty,
            Self::TooLarge { .. } => FailureReason::TooLarge,
            Self::Malformed(_) => FailureReason::Malformed,
        }
    }

    /// Returns the reason and the status, and nothing that the service said.
    pub fn summary(&self) -> String {
        let status = match self {
            Self::Unauthorized(_) => 401,
            Self::Forbidden { .. } => 403,
            Self::NotFound(_) => 404,
            Self::RateLimited { .. } => 429,
            Self::Validation { status, .. }
            | Self::Server { status, .. }
            | Self::Status { status, .. }
            | Self::Redirect { status, .. }
            | Self::NotJson { status, .. }
            | Self::Empty { status } => *status,
            _ => return self.reason().as_str().to_owned(),
        };
        format!("{}, HTTP {status}", self.reason().as_str())
    }

    /// Returns whether the same request may succeed soon.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::Timeout(_)
                | Self::Stalled { .. }
                | Self::RateLimited { .. }
                | Self::Paused(_)
                | Self::Server { .. }
                | Self::Truncated { .. }
                | Self::Empty { .. }
                | Self::NotJson { .. }
        )
    }

    /// Returns whether the cause is the key or its scopes, so that it cannot be a cursor or the size of a page.
    pub fn is_about_the_key(&self) -> bool {
        matches!(
            self,
            Self::Key(_) | Self::Unauthorized(_) | Self::Forbidden { .. }
        )
    }

    /// Returns whether the cause may be the cursor or the size of the page that was requested.
    pub fn may_be_the_request(&self) -> bool {
        !self.is_about_the_key()
            && !matches!(
                self,
                Self::Connect(_)
                    | Self::RateLimited { .. }
                    | Self::Paused(_)
                    | Self::Redirect { .. }
            )
    }

    /// Returns how long the service asked to wait, at most an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::Server { retry_after, .. }
            | Self::NotJson { retry_after, .. } => *retry_after,
            Self::Paused(left) => Some(*left),
            _ => None,
        }
    }

    /// Returns the error for a status other than success. `scope` is the one that the endpoint needs.
    pub(super) fn from_status(failed: &Failed<'_>, scope: &'static str) -> Self {
        let (status, retry_after) = (failed.status, failed.retry_after);
        let is_html = failed.is_html();
        let (message, issues) = failed.message();
        let is_validation = match (status, issues) {
            // About the key or the rate, whatever the form of the body.
            (401 | 403 | 429, _) | (_, None) => false,
            (404 | 500..=599, Some(0)) => false,
            _ => true,
        };
        match status {
            _ if is_validation => Self::Validation { status, message },
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden { scope, message },
            404 => Self::NotFound(message),
            429 => Self::RateLimited {
                retry_after,
                message,
            },
            500..=599 if is_html => failed.not_json(),
            500..=599 => Self::Server {
                status,
                retry_after,
                message,
            },
            _ => Self::Status { status, message },
        }
    }

    /// Returns the error for a success whose body, of `bytes` bytes, could not be parsed.
    pub(super) fn from_body(failed: &Failed<'_>, bytes: usize, error: &PageError) -> Self {
        let start = failed.body.trim_start();
        if start.is_empty() {
            Self::Empty {
                status: failed.status,
            }
        } else if failed.is_html()
            || !failed.content_type.contains("json") && !start.starts_with(['{', '['])
        {
            failed.not_json()
        } else if error.is_truncated() {
            Self::Truncated { bytes }
        } else {
            // Some services send an error with the status of a success.
            let body = failed.json().unwrap_or_default();
            let message = detail(words(&body).unwrap_or_default());
            Self::Malformed(sanitize(&format!("{error}{message}"), failed.secrets))
        }
    }
}

// === impl Failed ===

impl Failed<'_> {
    fn is_html(&self) -> bool {
        self.content_type.contains("html") || self.body.trim_start().starts_with('<')
    }

    /// Returns the body if it is small enough to be examined, and JSON.
    fn json(&self) -> Option<Value> {
        let body = Some(self.body).filter(|body| body.len() <= MAX_EXAMINED)?;
        serde_json::from_str(body).ok()
    }

    /// Returns what the body says, and the number of issues if it is a validation error (specification, section 7.2).
    fn message(&self) -> (String, Option<usize>) {
        if self.is_html() {
            let message = format!("perhaps from a proxy: {}", self.body);
            return (sanitize(&message, self.secrets), None);
        }
        let Some(body) = self.json() else {
            // Too large to be parsed, or not JSON.
            let issues = self.body.contains("\"issues\"").then_some(1);
            return (sanitize(self.body, self.secrets), issues);
        };
        let mut message = words(&body).unwrap_or(self.body).to_owned();
        let issues = body["issues"].as_array();
        for issue in issues.into_iter().flatten() {
            describe(issue, &mut message);
        }
        (sanitize(&message, self.secrets), issues.map(Vec::len))
    }

    fn not_json(&self) -> ApiError {
        ApiError::NotJson {
            status: self.status,
            retry_after: self.retry_after,
            content_type: sanitize(self.content_type, self.secrets),
            start: sanitize(self.body, self.secrets),
        }
    }
}

// === impl FailureReason ===

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 16] = [
        Self::Key,
        Self::Connect,
        Self::Timeout,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Validation,
        Self::RateLimited,
        Self::ServerError,
        Self::UnexpectedStatus,
        Self::Redirect,
        Self::NotJson,
        Self::Truncated,
        Self::Empty,
        Self::TooLarge,
        Self::Malformed,
    ];

    /// Returns the label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Validation => "validation",
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::UnexpectedStatus => "unexpected_status",
            Self::Redirect => "redirect",
            Self::NotJson => "not_json",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
        }
    }
}

/// Returns the service's own message: `message` (specification, section 7.1) or `error` (section 7.2).
fn words(body: &Value) -> Option<&str> {
    ["message", "error"]
        .iter()
        .find_map(|name| body[*name].as_str())
}

/// Appends an issue of a validation error to a message.
fn describe(issue: &Value, message: &mut String) {
    let mut path = String::new();
    for step in issue["path"].as_array().into_iter().flatten() {
        match step.as_str() {
            Some(name) if path.is_empty() => path.push_str(name),
            Some(name) => path.extend([".", name]),
            None => path.push_str(&format!("[{step}]")),
        }
    }
    if path.is_empty() {
        path.push_str("(request)");
    }
    let text = |name: &str| issue[name].as_str().unwrap_or_default();
    message.push_str(&format!("; {path}: {} ({})", text("message"), text("code")));
    if let Some(received) = issue.get("received") {
        message.push_str(&format!(", received {received}"));
    }
    if let Some(options) = issue["options"].as_array() {
        let options: Vec<String> = options.iter().map(Value::to_string).collect();
        message.push_str(&format!(", allowed {}", options.join(", ")));
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

fn wait(retry_after: &Option<Duration>) -> String {
    match retry_after {
        None => String::new(),
        Some(wait) if *wait < LONGEST_PAUSE => format!(", asked to wait {}", seconds(*wait)),
        Some(wait) => format!(
            ", asked to wait {wait} or longer; the next request is in {wait}",
            wait = seconds(*wait)
        ),
    }
}

/// Formats whole seconds, rounded up.
fn seconds(wait: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(
        wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk_live/abc";

    fn failed<'a>(status: u16, content_type: &'a str, body: &'a str) -> Failed<'a> {
        Failed {
            status,
            content_type,
            retry_after: None,
            body,
            secrets: &[KEY],
        }
    }

    fn from(status: u16, content_type: &str, body: &str) -> ApiError {
        ApiError::from_status(&failed(status, content_type, body), "tickets:read")
    }

    #[test]
    fn the_labels_of_failures_do_not_change() {
        let labels = FailureReason::ALL.map(FailureReason::as_str).join(" ");
        assert_eq!(
            labels,
            "key connect timeout unauthorized forbidden not_found validation rate_limited \
             server_error unexpected_status redirect not_json truncated empty too_large malformed"
        );
    }

    #[test]
    fn a_validation_error_shows_error_path_code_received_and_options() {
        let body = r#"{"error":"Bad request","issues":[{"path":["activityTypes",0],"code":"invalid_enum_value","message":"Invalid","received":"X","options":["A","B"]},
            {"path":[],"code":"custom","message":"second"}]}"#;
        for status in [400, 422] {
            let error = from(status, "application/json", body);
            assert_eq!(
                error.to_string(),
                format!(
                    "HTTP {status}: Bad request; activityTypes[0]: Invalid (invalid_enum_value), received \"X\", allowed \"A\", \"B\"; (request): second (custom)"
                )
            );
            assert!(!error.is_transient());
        }
    }

    #[test]
    fn a_response_maps_to_one_reason_and_message() {
        const JSON: &str = "application/json";
        for (status, content_type, body, reason, text) in [
            (
                401,
                JSON,
                r#"{"message":"m"}"#,
                "unauthorized",
                "API key: m",
            ),
            (
                401,
                JSON,
                r#"{"error":"e","issues":[{}]}"#,
                "unauthorized",
                "API key: e",
            ),
            (403, "", "", "forbidden", "lacks the scope tickets:read"),
            (
                404,
                JSON,
                r#"{"error":"e","issues":[]}"#,
                "not_found",
                "at this address",
            ),
            (
                404,
                JSON,
                r#"{"error":"e","issues":[{}]}"#,
                "validation",
                "HTTP 404: e; (request)",
            ),
            (
                429,
                "text/html",
                "<p>slow",
                "rate_limited",
                "too many requests",
            ),
            (
                400,
                JSON,
                r#"{"message":"m"}"#,
                "unexpected_status",
                "HTTP 400: m",
            ),
            (
                500,
                JSON,
                r#"{"message":"a\nb"}"#,
                "server_error",
                "HTTP 500: a b",
            ),
            (
                503,
                "text/html",
                "<p>gone",
                "server_error",
                "text/html and not JSON",
            ),
            (
                503,
                JSON,
                r#"{"a":1e400}"#,
                "server_error",
                r#"HTTP 503: {"a":1e400}"#,
            ),
        ] {
            let error = from(status, content_type, body);
            assert_eq!(error.reason().as_str(), reason, "{status} {body}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn bodies_that_are_not_a_page_are_distinguished() {
        let of = |content_type: &str, body: &str| {
            let time = jiff::Timestamp::UNIX_EPOCH;
            let error = crate::TicketPage::parse(body.to_owned(), time).expect_err("not a page");
            ApiError::from_body(&failed(200, content_type, body), body.len(), &error)
        };
        for (content_type, body, reason) in [
            ("text/html", "<html>login</html>", FailureReason::NotJson),
            ("application/json", "<html>", FailureReason::NotJson),
            ("text/plain", "upstream gone", FailureReason::NotJson),
            ("application/json", "", FailureReason::Empty),
            (
                "application/json",
                r#"{"items":[1, 2"#,
                FailureReason::Truncated,
            ),
            (
                "application/json",
                r#"{"items":1}"#,
                FailureReason::Malformed,
            ),
        ] {
            assert_eq!(of(content_type, body).reason(), reason, "{body}");
        }
        let body = format!(r#"{{"items":"{}"}}"#, "secret ".repeat(300_000));
        assert_eq!(
            of("application/json", &body).to_string(),
            "the answer is not a page of this listing: items is a string instead of an array"
        );
    }

    #[test]
    fn the_key_and_addresses_that_the_service_repeats_are_not_shown() {
        for body in [
            r#"{"message":"Unknown key sk_live\/abc of ada@example.com"}"#,
            r#"{"error":"Unknown","issues":[{"path":["key"],"received":["sk_live\u002fabc","ada\u0040example.com"]}]}"#,
            "<p>Unknown key sk_live&#x2F;abc of ada&#64;example.com",
            "Unknown key sk_live%2Fabc of ada%40example.com",
        ] {
            for status in [200, 400, 401, 502] {
                let error = if status == 200 {
                    let time = jiff::Timestamp::UNIX_EPOCH;
                    let error = crate::AuditPage::parse(body.to_owned(), time).expect_err(body);
                    ApiError::from_body(&failed(200, "text/plain", body), body.len(), &error)
                } else {
                    from(status, "", body)
                };
                let text = error.to_string();
                assert!(text.contains("Unknown"), "{text}");
                for secret in ["abc", "ada", "example"] {
                    assert!(!text.contains(secret), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_body_of_any_size_takes_linear_time_and_is_one_bounded_line() {
        let started = std::time::Instant::now();
        let issues = r#"{"path":["a\nb",{"c":1}],"code":"x\u0007","message":"\u001b[31mred"},"#;
        for (body, reason) in [
            ("!%40".repeat(1_000_000), FailureReason::UnexpectedStatus),
            (
                format!(r#"{{"message":"{}"}}"#, "x".repeat(5_000_000)),
                FailureReason::UnexpectedStatus,
            ),
            (
                format!(r#"{{"error":"e","issues":[{}"#, issues.repeat(10_000)),
                FailureReason::Validation,
            ),
            (
                format!(r#"{{"error":"e","issues":[{}{{}}]}}"#, issues.repeat(20)),
                FailureReason::Validation,
            ),
        ] {
            let error = from(400, "application/json", &body);
            let text = error.to_string();
            assert_eq!(error.reason(), reason);
            assert!(
                text.len() < 300 && !text.contains(char::is_control),
                "{text}"
            );
        }
        assert!(started.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_delay_is_shown_as_it_is_applied() {
        let error = ApiError::from_status(
            &Failed {
                retry_after: Some(LONGEST_PAUSE),
                ..failed(429, "", "")
            },
            "tickets:read",
        );
        assert_eq!(
            error.to_string(),
            "HTTP 429: too many requests, asked to wait 1h or longer; the next request is in 1h"
        );
        let paused = ApiError::Paused(Duration::from_millis(59_001));
        assert_eq!(
            paused.to_string(),
            "the service asked for a pause; the next request is in 1m"
        );
    }
}
