//! Why a request failed, for people as a message and for metrics as a bounded reason.

use std::time::Duration;

use humantime::format_duration;
use serde_json::Value;

use super::page::PageError;
use super::sanitize::{MAX_EXAMINED, sanitize};

use FailureReason as R;

/// The maximum pause that the service can ask for. A typing error there must not stop the exporter for a year.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Why a request brought no usable response. Texts of the service in its message are sanitized.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    reason: FailureReason,
    message: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

crate::labels! {
    /// The reason of a failure as a label value: a bounded set.
    FailureReason {
        /// The key cannot be read.
        Key => "key",
        /// There is no connection: name, network or TLS.
        Connect => "connect",
        /// There was no response in time, or it did not end in time.
        Timeout => "timeout",
        /// HTTP 401.
        Unauthorized => "unauthorized",
        /// HTTP 403.
        Forbidden => "forbidden",
        /// HTTP 404.
        NotFound => "not_found",
        /// A validation error (specification, section 7.2) with any status.
        Validation => "validation",
        /// HTTP 429, or the service asked for a pause that has not ended.
        RateLimited => "rate_limited",
        /// HTTP 5xx (specification, section 7.1), whatever its body.
        ServerError => "server_error",
        /// Any other status.
        UnexpectedStatus => "unexpected_status",
        /// A redirect to another host. The key is not sent there.
        Redirect => "redirect",
        /// HTML or other text instead of JSON, usually from a proxy or a login page.
        NotJson => "not_json",
        /// The response ended early.
        Truncated => "truncated",
        /// A success without a body.
        Empty => "empty",
        /// The response is larger than a page may be.
        TooLarge => "too_large",
        /// A success whose body is not a page.
        Malformed => "malformed",
    }
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
    /// Returns an error with this message.
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            status: None,
            retry_after: None,
        }
    }

    /// Returns the error of a request that is not sent, because the service asked for a pause that lasts this much longer.
    #[doc(hidden)]
    pub fn paused(left: Duration) -> Self {
        let left_text = seconds(left);
        let message = format!("the API asked for a pause; the next request is in {left_text}");
        Self {
            retry_after: Some(left),
            ..Self::new(FailureReason::RateLimited, message)
        }
    }

    /// Returns the label value.
    pub fn reason(&self) -> FailureReason {
        self.reason
    }

    /// Returns how long the service asked to wait, at most an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns the reason and the status, and nothing that the service said.
    pub fn summary(&self) -> String {
        let reason = self.reason.as_str();
        match self.status {
            Some(status) => format!("{reason}, HTTP {status}"),
            None => reason.to_owned(),
        }
    }

    /// Returns whether the same request may succeed soon.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.reason,
            R::Connect
                | R::Timeout
                | R::RateLimited
                | R::ServerError
                | R::Truncated
                | R::Empty
                | R::NotJson
        )
    }

    /// Returns the error for a status other than success. `scope` is the one that the endpoint needs.
    pub(super) fn from_status(failed: &Failed<'_>, scope: &'static str) -> Self {
        let status = failed.status;
        let (words, has_issues) = failed.words();
        // 401, 403 and 429 are about the key or the rate, whatever the form of the body.
        let is_validation = has_issues && !matches!(status, 401 | 403 | 429);
        let lacks = format!(": the API key lacks the scope {scope}");
        let (reason, problem) = match status {
            _ if is_validation => (R::Validation, ""),
            401 => (R::Unauthorized, ": the API does not accept the API key"),
            403 => (R::Forbidden, &*lacks),
            404 => (
                R::NotFound,
                ": nothing is at this address; check --api.base-url",
            ),
            408 | 425 => (R::Timeout, ": the request was not answered in time"),
            429 => (R::RateLimited, ": too many requests"),
            500..=599 => (R::ServerError, ""),
            _ => (R::UnexpectedStatus, ""),
        };
        // The API may have sent the same words.
        let ours = problem.trim_start_matches(": ");
        let is_repeated = ours.eq_ignore_ascii_case(words.trim_end_matches('.'));
        let detail = detail(if is_repeated { "" } else { &words });
        let wait = wait(failed.retry_after);
        failed.error(reason, &format!("{problem}{wait}{detail}"))
    }

    /// Returns the error for a success whose body, of `bytes` bytes, could not be parsed.
    pub(super) fn from_body(failed: &Failed<'_>, bytes: usize, error: &PageError) -> Self {
        let start = failed.body.trim_start();
        let is_json = failed.content_type.contains("json") || start.starts_with(['{', '[']);
        if start.is_empty() {
            failed.error(R::Empty, ": the answer is empty")
        } else if failed.is_html() || !is_json {
            failed.error(R::NotJson, &format!(": {}", failed.not_json()))
        } else if error.is_truncated {
            Self::truncated(bytes)
        } else {
            // Some services send an error with the status of a success.
            let body = failed.json().unwrap_or_default();
            let said = detail(said(&body).unwrap_or_default());
            let said = sanitize(&format!("{}{said}", error.message), failed.secrets);
            let message = format!("the answer is not a page of this listing: {said}");
            Self::new(R::Malformed, message)
        }
    }

    /// Returns the error for a response that ended early.
    pub(super) fn truncated(bytes: usize) -> Self {
        let message = format!("the answer was cut off after {bytes} bytes");
        Self::new(FailureReason::Truncated, message)
    }
}

// === impl Failed ===

impl Failed<'_> {
    fn error(&self, reason: FailureReason, message: &str) -> ApiError {
        ApiError {
            status: Some(self.status),
            retry_after: self.retry_after,
            ..ApiError::new(reason, format!("HTTP {}{message}", self.status))
        }
    }

    fn not_json(&self) -> String {
        let (content_type, start) = (self.content_type, detail(self.body));
        let text = format!(
            "the answer is {content_type} and not JSON, probably from a proxy or a login page{start}"
        );
        sanitize(&text, self.secrets)
    }

    fn is_html(&self) -> bool {
        self.content_type.contains("html") || self.body.trim_start().starts_with('<')
    }

    /// Returns the body if it is small enough to be examined, and JSON.
    fn json(&self) -> Option<Value> {
        let body = Some(self.body).filter(|body| body.len() <= MAX_EXAMINED)?;
        serde_json::from_str(body).ok()
    }

    /// Returns what the body says, and whether it is a validation error with issues (specification, section 7.2).
    fn words(&self) -> (String, bool) {
        if self.is_html() {
            return (self.not_json(), false);
        }
        let Some(body) = self.json() else {
            // Too large to be parsed, or not JSON.
            let has_issues = self.body.contains("\"issues\"");
            return (sanitize(self.body, self.secrets), has_issues);
        };
        let issues = body["issues"].as_array().map_or(&[][..], Vec::as_slice);
        let described = issues.iter().map(describe).collect::<String>();
        let message = said(&body).unwrap_or(self.body).to_owned() + &described;
        (sanitize(&message, self.secrets), !issues.is_empty())
    }
}

/// Returns the service's own message: `message` (specification, section 7.1) or `error` (section 7.2).
fn said(body: &Value) -> Option<&str> {
    body["message"].as_str().or_else(|| body["error"].as_str())
}

/// Describes an issue of a validation error.
fn describe(issue: &Value) -> String {
    let list = |name: &str| issue[name].as_array().map_or(&[][..], Vec::as_slice);
    let steps = list("path").iter().map(|step| match step.as_str() {
        Some(name) => format!(".{name}"),
        None => format!("[{step}]"),
    });
    let path = match steps.collect::<String>() {
        path if path.is_empty() => "(request)".to_owned(),
        path => path.trim_start_matches('.').to_owned(),
    };
    let text = |name: &str| issue[name].as_str().unwrap_or_default();
    let received = issue.get("received");
    let received = received.map(|received| format!(", received {received}"));
    let options: Vec<String> = list("options").iter().map(Value::to_string).collect();
    let allowed = (!options.is_empty()).then(|| format!(", allowed {}", options.join(", ")));
    let (message, code) = (text("message"), text("code"));
    let (received, allowed) = (received.unwrap_or_default(), allowed.unwrap_or_default());
    format!("; {path}: {message} ({code}){received}{allowed}")
}

fn detail(text: &str) -> String {
    match text {
        "" => String::new(),
        _ => format!(": {text}"),
    }
}

fn wait(retry_after: Option<Duration>) -> String {
    match retry_after {
        None => String::new(),
        Some(wait) if wait < LONGEST_PAUSE => format!(", asked to wait {}", seconds(wait)),
        Some(wait) => {
            let wait = seconds(wait);
            format!(", asked to wait {wait} or longer; the next request is in {wait}")
        }
    }
}

/// Formats whole seconds, rounded up.
fn seconds(wait: Duration) -> humantime::FormattedDuration {
    format_duration(Duration::from_secs(wait.as_secs_f64().ceil() as u64))
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
        for status in [400, 404, 409, 422, 500] {
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
                408,
                "text/html",
                "<p>slow",
                "timeout",
                "not answered in time",
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
            let error = crate::TicketPage::parse(body.to_owned(), None).expect_err("not a page");
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
                    let error = crate::AuditPage::parse(body.to_owned(), None).expect_err(body);
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
        let paused = ApiError::paused(Duration::from_millis(59_001));
        assert_eq!(
            paused.to_string(),
            "the API asked for a pause; the next request is in 1m"
        );
    }
}
