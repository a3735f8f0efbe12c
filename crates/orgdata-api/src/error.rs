//! Why a request failed, for people as a message and for metrics as a bounded reason.

use std::time::Duration;

use serde_json::Value;
use strum::{AsRefStr, IntoStaticStr, VariantArray};

use super::sanitize::{one_line, sanitize};

use FailureReason as R;

/// The maximum pause that the API can ask for. A typing error there must not stop the exporter for a year.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The maximum size of the body of an error that is read as JSON, in bytes.
pub(super) const MAX_ERROR_BODY: usize = 64 * 1024;

/// The maximum length of a media type in a message, in characters. What the body says has to have room beside it.
const MAX_MEDIA_TYPE: usize = 100;

/// Why a request brought no usable response. Texts of the API in its message are sanitized.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    reason: FailureReason,
    message: String,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

/// The reason of a failure as a label value: what to do about it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, AsRefStr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FailureReason {
    /// The key cannot be read.
    Key,
    /// There is no connection: name, network or TLS.
    Connect,
    /// There was no response in time, or it did not end in time.
    Timeout,
    /// HTTP 401 with the API's own JSON.
    Unauthorized,
    /// HTTP 403 with the API's own JSON.
    Forbidden,
    /// HTTP 401 or 403 with another body: a proxy, a firewall or an allow list in front of the API refuses.
    Blocked,
    /// HTTP 429, or 403 for a quota, or the API asked for a pause that has not ended.
    RateLimited,
    /// HTTP 5xx (specification, section 7.1), whatever its body.
    ServerError,
    /// Any other status: a validation error (specification, section 7.2), a wrong address, or a redirect to another
    /// host, where the key is not sent.
    Rejected,
    /// A success whose body is not a whole page: cut off, empty, HTML of a proxy, or JSON of another form.
    Malformed,
    /// The response is larger than a page may be.
    TooLarge,
}

/// A response that is an error.
pub(super) struct Failed<'a> {
    pub(super) status: u16,
    pub(super) content_type: &'a str,
    pub(super) retry_after: Option<Duration>,
    /// Whether a header says that a quota is used up.
    pub(super) is_quota: bool,
    /// That the body is in an encoding that nobody asked for.
    pub(super) encoded: Option<&'a str>,
    pub(super) body: &'a str,
    /// The key, which some APIs repeat when they reject it.
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

    /// Returns the error of a request that is not sent, because the API asked for a pause that lasts this much longer.
    #[doc(hidden)]
    pub fn paused(left: Duration) -> Self {
        Self {
            retry_after: Some(left),
            ..Self::new(R::RateLimited, "the API asked for a pause")
        }
    }

    /// Returns the label value.
    pub fn reason(&self) -> FailureReason {
        self.reason
    }

    /// Returns the status of the response, if there was one.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns how long the API asked to wait, at most an hour.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether the same request may succeed soon. A key file may be empty while it is written.
    pub fn is_transient(&self) -> bool {
        let is_final = [
            R::Unauthorized,
            R::Forbidden,
            R::Blocked,
            R::Rejected,
            R::TooLarge,
        ];
        !is_final.contains(&self.reason)
    }

    /// Returns the error for a status other than success. `scope` is the one that the endpoint needs.
    pub(super) fn from_status(failed: &Failed<'_>, scope: &'static str) -> Self {
        let own = failed.own_words();
        let lacks = format!(": the key may lack the scope {scope}");
        let blocked = format!(
            ": something in front of the API refuses ({}, {}): check proxy, allow list",
            failed.status,
            failed.media_type()
        );
        let (reason, problem) = match failed.status {
            429 => (R::RateLimited, ": too many requests"),
            403 if failed.is_limit() => (R::RateLimited, ": too many requests"),
            401 | 403 if own.is_none() => (R::Blocked, &*blocked),
            401 => (R::Unauthorized, ": the API rejects the API key"),
            403 => (R::Forbidden, &*lacks),
            404 => (
                R::Rejected,
                ": nothing is at this address; check --api.base-url",
            ),
            408 | 425 => (R::Timeout, ": the request was not answered in time"),
            500..=599 => (R::ServerError, ""),
            _ => (R::Rejected, ""),
        };
        let body = failed.encoded.unwrap_or(failed.body);
        let words = sanitize(own.as_deref().unwrap_or(body), failed.secrets);
        let words = Some(words).filter(|words| !words.is_empty());
        let words = words.map(|words| format!(": {words}"));
        failed.error(reason, &format!("{problem}{}", words.unwrap_or_default()))
    }

    /// Returns the error for a success whose body is not a page.
    pub(super) fn from_body(failed: &Failed<'_>, why: &str) -> Self {
        let (content_type, start) = (failed.content_type, failed.body.trim_start());
        let is_json = content_type.contains("json") || start.starts_with(['{', '[']);
        let problem = match (failed.encoded, is_json && !start.starts_with('<')) {
            (Some(encoded), _) => format!(": {encoded}"),
            _ if start.is_empty() => ": the answer is empty".to_owned(),
            (None, true) => format!(": the answer is not a page of this listing: {why}"),
            (None, false) => format!(
                ": the answer is {content_type} and not JSON, probably from a proxy or a login page: {start}"
            ),
        };
        failed.error(R::Malformed, &sanitize(&problem, failed.secrets))
    }
}

// === impl Failed ===

impl Failed<'_> {
    pub(super) fn error(&self, reason: FailureReason, message: &str) -> ApiError {
        ApiError {
            status: Some(self.status),
            retry_after: self.retry_after,
            ..ApiError::new(reason, format!("HTTP {}{message}", self.status))
        }
    }

    /// Returns whether a refusal is for a while only, because of too many requests.
    fn is_limit(&self) -> bool {
        let says_so = || self.body.to_ascii_lowercase().contains("rate limit");
        self.retry_after.is_some() || self.is_quota || says_so()
    }

    /// Returns what the API's own JSON says: `message` (specification, section 7.1), or `error` and the issues as they are
    /// (section 7.2). `None` for any other body.
    fn own_words(&self) -> Option<String> {
        let body = Some(self.body).filter(|body| body.len() <= MAX_ERROR_BODY)?;
        let json: Value = serde_json::from_str(body).ok()?;
        let said = json["message"]
            .as_str()
            .or_else(|| json["error"].as_str())?;
        Some(match json.get("issues") {
            Some(issues) => format!("{said}; {issues}"),
            None => said.to_owned(),
        })
    }

    /// Returns the content type without its parameters, of at most [`MAX_MEDIA_TYPE`] characters.
    fn media_type(&self) -> String {
        let (media_type, _) = self
            .content_type
            .split_once(';')
            .unwrap_or((self.content_type, ""));
        one_line(&sanitize(media_type, self.secrets), MAX_MEDIA_TYPE)
    }
}
