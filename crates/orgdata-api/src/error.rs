//! What can go wrong with a request, each thing told apart; and the bounded word for it that becomes a label.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::key::KeyError;

/// The longest silence that the service may ask for: a typing error there must not stop the exporter for a year.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The longest text of the service that is repeated in a message, in characters.
const MAX_QUOTE: usize = 300;

/// Stands for an e-mail address in the service's words: it repeats what it was asked for, and filters are asked for by address.
const ADDRESS: &str = "[e-mail address]";

/// How many issues of a validation error are shown.
const MAX_ISSUES: usize = 10;

/// Why a request brought no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No connection: name, network, TLS.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// No complete answer in time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// An answer that began and did not end in time.
    #[error("the answer stopped: {bytes} bytes came within {}, and not its end", humantime::format_duration(*.limit))]
    Stalled {
        /// The time it had.
        limit: Duration,
        /// Bytes that arrived.
        bytes: usize,
    },
    /// HTTP 401.
    #[error("HTTP 401: the service does not accept the API key{}", detail(.0))]
    Unauthorized(String),
    /// HTTP 403.
    #[error("HTTP 403: the API key lacks the scope {scope}{}", detail(.message))]
    Forbidden {
        /// The scope the endpoint needs.
        scope: &'static str,
        /// The service's own words.
        message: String,
    },
    /// HTTP 404.
    #[error("HTTP 404: nothing is at this address; check --api.base-url{}", detail(.0))]
    NotFound(String),
    /// A validation error (specification, section 7.2), whatever its status.
    #[error("HTTP {status}: {body}")]
    Validation {
        /// The HTTP status.
        status: u16,
        /// The error body.
        body: ValidationBody,
    },
    /// HTTP 429.
    #[error("HTTP 429: too many requests{}{}", wait(.retry_after), detail(.message))]
    RateLimited {
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// The service's own words.
        message: String,
    },
    /// No request was sent: the service has asked for a pause that still lasts so long.
    #[error("the service asked to be left alone; the next request is in {}", seconds(*.0))]
    LeftAlone(Duration),
    /// HTTP 5xx (specification, section 7.1).
    #[error("HTTP {status}{}{}", wait(.retry_after), detail(.message))]
    Server {
        /// The HTTP status.
        status: u16,
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// The service's own words.
        message: String,
    },
    /// Any other status.
    #[error("HTTP {status}{}", detail(.message))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The service's own words.
        message: String,
    },
    /// A redirect to another place; the key is not sent there.
    #[error(
        "HTTP {status}: redirected to {location}; the key is not sent there. If that is the right address, set --api.base-url to it"
    )]
    Redirect {
        /// The HTTP status.
        status: u16,
        /// Where to.
        location: String,
    },
    /// HTML or other text where JSON should be: usually a proxy or a login page.
    #[error("HTTP {status}{}: the answer is {content_type} and not JSON, probably from a proxy or a login page{}", wait(.retry_after), detail(.start))]
    NotJson {
        /// The HTTP status.
        status: u16,
        /// How long the service asked to wait.
        retry_after: Option<Duration>,
        /// What the answer says it is.
        content_type: String,
        /// How it begins.
        start: String,
    },
    /// The answer ended early.
    #[error("the answer was cut off after {bytes} bytes")]
    Truncated {
        /// Bytes that arrived.
        bytes: usize,
    },
    /// A success without a body.
    #[error("HTTP {status}: the answer is empty")]
    Empty {
        /// The HTTP status.
        status: u16,
    },
    /// The answer is larger than a page may be.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// JSON, but not such a page.
    #[error("the answer is JSON but not a page of this listing: {0}")]
    Malformed(String),
}

/// The reason of a failure as a label value: a bounded set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    missing_docs,
    reason = "each is the kind of `ApiError` with the same name; a stalled answer is a time-out, and a 5xx is one whatever its body"
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

/// The body of a validation error (specification, section 7.2).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ValidationBody {
    /// A short summary.
    pub error: String,
    /// One per failure.
    pub issues: Vec<ValidationIssue>,
}

/// One failure of a validation error.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ValidationIssue {
    /// Where, as property names.
    #[serde(default)]
    pub path: Vec<Value>,
    /// The kind of failure, for example `invalid_enum_value`.
    #[serde(default)]
    pub code: String,
    /// Text for a person.
    #[serde(default)]
    pub message: String,
    /// The value received, depending on the kind.
    pub received: Option<Value>,
    /// The values allowed, for enumerations.
    pub options: Option<Vec<Value>>,
}

// === impl ApiError ===

impl ApiError {
    /// The label value.
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Key(_) => FailureReason::Key,
            Self::Connect(_) => FailureReason::Connect,
            Self::Timeout(_) | Self::Stalled { .. } => FailureReason::Timeout,
            Self::Unauthorized(_) => FailureReason::Unauthorized,
            Self::Forbidden { .. } => FailureReason::Forbidden,
            Self::NotFound(_) => FailureReason::NotFound,
            Self::Validation { .. } => FailureReason::Validation,
            Self::RateLimited { .. } | Self::LeftAlone(_) => FailureReason::RateLimited,
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

    /// Whether asking again at once may help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::Timeout(_)
                | Self::Stalled { .. }
                | Self::RateLimited { .. }
                | Self::LeftAlone(_)
                | Self::Server { .. }
                | Self::Truncated { .. }
                | Self::Empty { .. }
                | Self::NotJson { .. }
        )
    }

    /// Whether the key or its rights are at fault, so that no cursor and no page size can be.
    pub fn is_about_the_key(&self) -> bool {
        matches!(
            self,
            Self::Key(_) | Self::Unauthorized(_) | Self::Forbidden { .. }
        )
    }

    /// Whether the service, rather than the way to it, refused this very request: then its cursor or its size may be at fault.
    pub fn may_be_the_request(&self) -> bool {
        !self.is_about_the_key()
            && !matches!(
                self,
                Self::Connect(_)
                    | Self::RateLimited { .. }
                    | Self::LeftAlone(_)
                    | Self::Redirect { .. }
            )
    }

    /// How long the service asked to wait, and is left alone: an hour at most.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::Server { retry_after, .. }
            | Self::NotJson { retry_after, .. } => *retry_after,
            Self::LeftAlone(left) => Some(*left),
            _ => None,
        }
    }

    /// A redirect that was not followed.
    pub fn redirect(status: u16, location: &str) -> Self {
        // Without the query: it repeats the one that was sent, in whatever encoding.
        let place = location.split(['?', '#']).next().unwrap_or_default();
        Self::Redirect {
            status,
            location: quote(place),
        }
    }

    /// The error that a status other than success and its body stand for.
    pub fn from_status(
        status: u16,
        scope: &'static str,
        content_type: &str,
        retry_after: Option<Duration>,
        body: &str,
    ) -> Self {
        let html = is_html(content_type, body);
        let message = match serde_json::from_str::<ValidationBody>(body) {
            Ok(body) if is_validation(status, &body) => return Self::Validation { status, body },
            Ok(body) => body.to_string(),
            Err(_) if html => format!("perhaps from a proxy: {}", quote(body)),
            Err(_) => message_of(body),
        };
        match status {
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden { scope, message },
            404 => Self::NotFound(message),
            429 => Self::RateLimited {
                retry_after,
                message,
            },
            500..=599 if !html => Self::Server {
                status,
                retry_after,
                message,
            },
            500..=599 => Self::NotJson {
                status,
                retry_after,
                content_type: quote(content_type),
                start: quote(body),
            },
            _ => Self::Status { status, message },
        }
    }

    /// The error that a success with an unreadable body of `bytes` bytes stands for; `body` is how it begins.
    pub fn from_body(
        status: u16,
        content_type: &str,
        body: &str,
        bytes: usize,
        error: &serde_json::Error,
    ) -> Self {
        if body.trim().is_empty() {
            Self::Empty { status }
        } else if is_html(content_type, body)
            || !content_type_is_json(content_type)
                && !matches!(body.trim_start().as_bytes().first(), Some(b'{' | b'['))
        {
            Self::NotJson {
                status,
                retry_after: None,
                content_type: quote(content_type),
                start: quote(body),
            }
        } else if error.is_eof() {
            Self::Truncated { bytes }
        } else {
            // An error body under a success: its words, and never a page's data.
            Self::Malformed(format!(
                "{}{}",
                without_addresses(&error.to_string()),
                detail(&said(body).unwrap_or_default())
            ))
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

    /// The label value.
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

// === impl ValidationBody ===

impl fmt::Display for ValidationBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(&self.error))?;
        for issue in self.issues.iter().take(MAX_ISSUES) {
            write!(f, "; {issue}")?;
        }
        match self.issues.len().saturating_sub(MAX_ISSUES) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl fmt::Display for ValidationIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Value::String(name) if path.is_empty() => path.push_str(name),
                Value::String(name) => write!(path, ".{name}")?,
                other => write!(path, "[{other}]")?,
            }
        }
        write!(
            f,
            "{}: {} ({})",
            if path.is_empty() {
                "(request)".to_owned()
            } else {
                quote(&path)
            },
            quote(&self.message),
            quote(&self.code)
        )?;
        if let Some(received) = &self.received {
            write!(f, ", received {}", quote(&received.to_string()))?;
        }
        if let Some(options) = &self.options {
            let options: Vec<String> = options.iter().map(ToString::to_string).collect();
            write!(f, ", allowed {}", quote(&options.join(", ")))?;
        }
        Ok(())
    }
}

/// Whether such a body is about the request. Under a status that is about the key or the rate, it is only another way to say that.
fn is_validation(status: u16, body: &ValidationBody) -> bool {
    match status {
        401 | 403 | 429 => false,
        404 | 500..=599 => !body.issues.is_empty(),
        _ => true,
    }
}

/// The service's own words, else how the body begins.
fn message_of(body: &str) -> String {
    said(body).unwrap_or_else(|| quote(body))
}

/// The service's own words: `message` (section 7.1) or `error`.
fn said(body: &str) -> Option<String> {
    let value: Value = serde_json::from_str(body).ok()?;
    ["message", "error"]
        .iter()
        .filter_map(|name| value.get(name))
        .find_map(Value::as_str)
        .map(quote)
}

/// One line, without control characters and e-mail addresses, of bounded length.
fn quote(text: &str) -> String {
    let text = without_addresses(text.trim());
    let mut line: String = text
        .chars()
        .take(MAX_QUOTE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if text.chars().count() > MAX_QUOTE {
        line.push('…');
    }
    line
}

/// The text with a mark in the place of each e-mail address, also of one that is percent-encoded in an address of the web.
fn without_addresses(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut rest = text;
    // What was looked at and holds no address's end.
    let mut from = 0;
    while let Some((at, sign)) = ["@", "%40", "%2540"]
        .iter()
        .filter_map(|sign| Some((from + rest[from..].find(sign)?, sign)))
        .min()
    {
        let begins = |letter: char| letter.is_alphanumeric() || "._%+-!#$'*^`{|}~".contains(letter);
        let start = rest[..at].trim_end_matches(begins).len();
        let after = at + sign.len();
        let domain = rest[after..]
            .trim_start_matches(|letter: char| letter.is_alphanumeric() || ".-_".contains(letter));
        let end = rest.len() - domain.len();
        if start == at || end == after {
            from = after;
            continue;
        }
        shown.push_str(&rest[..start]);
        shown.push_str(ADDRESS);
        (rest, from) = (&rest[end..], 0);
    }
    if rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
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

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(
        wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
    ))
}

fn content_type_is_json(content_type: &str) -> bool {
    content_type.contains("json")
}

fn is_html(content_type: &str, body: &str) -> bool {
    content_type.contains("html") || body.trim_start().starts_with('<')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(status: u16, content_type: &str, body: &str) -> ApiError {
        ApiError::from_status(status, "tickets:read", content_type, None, body)
    }

    #[test]
    fn the_labels_of_failures_do_not_change() {
        let labels: Vec<&str> = FailureReason::ALL
            .iter()
            .map(|reason| reason.as_str())
            .collect();
        assert_eq!(
            labels,
            [
                "key",
                "connect",
                "timeout",
                "unauthorized",
                "forbidden",
                "not_found",
                "validation",
                "rate_limited",
                "server_error",
                "unexpected_status",
                "redirect",
                "not_json",
                "truncated",
                "empty",
                "too_large",
                "malformed"
            ]
        );
    }

    #[test]
    fn an_unknown_error_shows_its_message() {
        let error = from(
            500,
            "application/json",
            r#"{"message":"database\nis away"}"#,
        );
        assert_eq!(error.to_string(), "HTTP 500: database is away");
        assert!(error.is_transient());
    }

    #[test]
    fn a_validation_error_shows_error_path_code_received_and_options_under_any_4xx() {
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
    fn each_status_is_told_apart() {
        for (status, reason) in [
            (401, FailureReason::Unauthorized),
            (403, FailureReason::Forbidden),
            (404, FailureReason::NotFound),
            (429, FailureReason::RateLimited),
            (400, FailureReason::UnexpectedStatus),
            (503, FailureReason::ServerError),
        ] {
            assert_eq!(
                from(status, "application/json", r#"{"message":"m"}"#).reason(),
                reason,
                "{status}"
            );
        }
        assert!(from(403, "", "").to_string().contains("tickets:read"));
    }

    #[test]
    fn bodies_that_are_no_page_are_told_apart() {
        let of = |content_type: &str, body: &str| {
            let error = serde_json::from_str::<Vec<u8>>(body).expect_err("no page");
            ApiError::from_body(200, content_type, body, body.len(), &error).reason()
        };
        assert_eq!(
            of("text/html", "<html>login</html>"),
            FailureReason::NotJson
        );
        assert_eq!(of("application/json", "<html>"), FailureReason::NotJson);
        assert_eq!(of("text/plain", "upstream gone"), FailureReason::NotJson);
        assert_eq!(of("application/json", ""), FailureReason::Empty);
        assert_eq!(of("application/json", "[1, 2"), FailureReason::Truncated);
        assert_eq!(
            of("application/json", "{\"items\":1}"),
            FailureReason::Malformed
        );
    }

    #[test]
    fn an_error_status_counts_whatever_its_body() {
        let wait = Some(Duration::from_secs(5));
        for (status, reason) in [
            (503, FailureReason::ServerError),
            (502, FailureReason::ServerError),
            (429, FailureReason::RateLimited),
        ] {
            let error = ApiError::from_status(
                status,
                "tickets:read",
                "text/html",
                wait,
                "<html>maintenance</html>",
            );
            assert_eq!(
                (error.reason(), error.retry_after()),
                (reason, wait),
                "{error}"
            );
            assert!(
                error.is_transient() && error.to_string().contains("asked to wait 5s"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_pause_that_is_cut_short_is_told_as_it_will_be() {
        let error = ApiError::from_status(429, "tickets:read", "", Some(LONGEST_PAUSE), "");
        assert_eq!(
            error.to_string(),
            "HTTP 429: too many requests, asked to wait 1h or longer; the next request is in 1h"
        );
        let left = ApiError::LeftAlone(Duration::from_millis(59_001));
        assert_eq!(
            left.to_string(),
            "the service asked to be left alone; the next request is in 1m"
        );
    }

    #[test]
    fn an_address_that_the_service_repeats_is_not_shown() {
        let body = r#"{"error":"Bad request from ada.l@example.com","issues":[{"path":["actorUserEmails"],"code":"invalid_string",
            "message":"'o'brien+x@mail.example.com' is no e-mail","received":["ada.l@example.com","b@c.example"]}]}"#;
        assert_eq!(
            from(400, "application/json", body).to_string(),
            "HTTP 400: Bad request from [e-mail address]; actorUserEmails: [e-mail address]' is no e-mail (invalid_string), received \
             [\"[e-mail address]\",\"[e-mail address]\"]"
        );
        for words in [
            "/v1/audit-logs?actorUserEmails=ada%40example.com&limit=1",
            "?next=%3FactorUserEmails%3Dada%2540example.com",
        ] {
            let shown = from(502, "text/html", &format!("<p>{words}</p>")).to_string();
            assert!(!shown.contains("ada") && shown.contains(ADDRESS), "{shown}");
        }
        let shown = ApiError::redirect(302, "https://login.example/a?next=ada%252540example.com#x")
            .to_string();
        assert!(
            !shown.contains("ada") && shown.contains("https://login.example/a;"),
            "{shown}"
        );
        let long = format!("{}ada@example.com", "x ".repeat(MAX_QUOTE / 2 - 2));
        assert!(!from(500, "", &long).to_string().contains("ada"));
        for words in ["5 @ 6", "@here", "a@", "100%40", "é@"] {
            assert_eq!(quote(words), words);
        }
    }

    #[test]
    fn what_the_service_says_is_one_bounded_line() {
        let error = from(
            500,
            "application/json",
            &format!(r#"{{"message":"{}"}}"#, "x".repeat(10_000)),
        );
        assert!(error.to_string().len() < 400);
    }
}
