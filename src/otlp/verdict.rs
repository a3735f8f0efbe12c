//! What a collector's answer means for the records of a request: one verdict for every status.

use std::error::Error;
use std::time::Duration;

use tonic::Code;

pub use crate::metrics::otlp::FailureReason;
use crate::util::{error_chain, sanitize};

/// The longest delay that a collector may ask for.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The collector has the records.
    Acknowledged {
        /// The protocol calls a message without rejected records a warning.
        warning: Option<String>,
    },
    /// The collector rejected some of the records without saying which. They must not be sent again.
    PartlyRejected {
        /// The number of rejected records.
        rejected: u64,
        /// What the collector said.
        message: String,
    },
    /// The request was not accepted.
    Refused(Refusal),
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The value of the label `reason`.
    pub reason: FailureReason,
    /// The status and what the collector said, on one line.
    pub message: String,
    /// The delay that the collector asks for.
    pub retry_after: Option<Duration>,
}

/// Returns the verdict for an HTTP status other than 2xx.
pub(super) fn of_http(status: u16, words: &str, retry_after: Option<Duration>) -> Verdict {
    use FailureReason as R;
    let reason = match status {
        413 => R::TooLarge,
        // The OpenTelemetry Collector answers 400 to a request above its limit.
        400 | 422 if names_size(words) => R::TooLarge,
        400 | 422 => R::BadRecord,
        500 => R::ServerError,
        401 | 403 | 407 => R::Unauthorized,
        300..400 | 404 | 405 | 410 => R::NotFound,
        408 => R::Timeout,
        429 => R::RateLimited,
        200..300 | 415 | 421 | 426 | 501 | 505 => R::NotOtlp,
        502..600 => R::Unavailable,
        _ => R::Other,
    };
    refused(reason, format!("HTTP {status}"), words, retry_after)
}

/// Returns the verdict for a gRPC status other than OK.
pub(super) fn of_grpc(code: Code, words: &str, retry_after: Option<Duration>) -> Verdict {
    use FailureReason as R;
    // A proxy in front of the collector answered without a gRPC status.
    if let Some(status) = proxy_status(words) {
        return of_http(status, words, retry_after);
    }
    let reason = match code {
        // Envoy turns 413 into `Unknown`.
        Code::ResourceExhausted | Code::Unknown | Code::OutOfRange
            if names_size(words) && !names_rate(words) && retry_after.is_none() =>
        {
            R::TooLarge
        }
        Code::ResourceExhausted => R::RateLimited,
        Code::InvalidArgument => R::BadRecord,
        Code::Internal if words.contains("h2 protocol error") => R::Connect,
        Code::Unknown if words.contains("grpc-status") => R::NotOtlp,
        // What a server makes of an exception, as of 500 over HTTP.
        Code::Internal | Code::Unknown => R::ServerError,
        Code::Cancelled | Code::DeadlineExceeded => R::Timeout,
        Code::Unauthenticated | Code::PermissionDenied => R::Unauthorized,
        Code::Unimplemented | Code::NotFound => R::NotFound,
        Code::Unavailable | Code::Aborted | Code::DataLoss => R::Unavailable,
        _ => R::Other,
    };
    let status = match reason {
        R::Timeout => format!("no answer in time: {code:?}"),
        _ => format!("{code:?}"),
    };
    refused(reason, status, words, retry_after)
}

/// Returns the verdict for a reason; the message is the status and what the collector said.
fn refused(
    reason: FailureReason,
    status: String,
    words: &str,
    retry_after: Option<Duration>,
) -> Verdict {
    Verdict::Refused(Refusal {
        reason,
        message: match words {
            "" => status,
            words => format!("{status}: {words}"),
        },
        retry_after: retry_after.map(|delay| delay.min(MAX_DELAY)),
    })
}

/// Returns the verdict for a connection that failed, before or after it was made.
pub(super) fn disconnected(
    error: &dyn Error,
    is_connected: bool,
    protocol: &str,
    secrets: &[&str],
) -> Verdict {
    // The last words of the peer are part of it.
    let error = sanitize(&error_chain(error), secrets);
    let mut message = format!("connection failed: {error}");
    // A server of another protocol, or one that wants a certificate, closes the connection.
    if is_connected {
        message +=
            &format!("; does this port speak {protocol}, and does it want a client certificate?");
    }
    Verdict::Refused(Refusal::new(FailureReason::Connect, message))
}

/// Returns the HTTP status that tonic names if an answer has no gRPC status.
fn proxy_status(words: &str) -> Option<u16> {
    let (_, rest) = words
        .split_once("mapped from HTTP status code ")
        .or_else(|| words.split_once("while receiving response with status: "))?;
    rest.get(..3)?.parse().ok()
}

/// Returns whether the words speak of a rate, as in Tempo's "ingestion rate limit (local: 15000000 bytes, global: 0 bytes) exceeded while
/// adding 137994 bytes".
fn names_rate(words: &str) -> bool {
    let phrases = [
        "rate limit",
        "quota exceeded",
        "per second",
        "throttl",
        "too many requests",
    ];
    has_any(words, &phrases)
}

/// Returns whether the words speak of a size limit: "received message larger than max", "decoded message length too
/// large", "request body too large", "message exceeds maximum size".
fn names_size(words: &str) -> bool {
    has_any(words, &["larger than", "too large", "too big"])
        || (has_any(words, &["exceed"]) && has_any(words, &["size", "length", "bytes", "body"]))
}

/// Returns whether the words contain one of the phrases, in upper or lower case.
fn has_any(words: &str, phrases: &[&str]) -> bool {
    let words = words.to_ascii_lowercase();
    phrases.iter().any(|phrase| words.contains(phrase))
}

// === impl Verdict ===

impl Verdict {
    /// Returns the verdict for a success with this number of rejected records and this message.
    pub(super) fn of_success(rejected: i64, message: String) -> Self {
        match u64::try_from(rejected) {
            Ok(rejected @ 1..) => Self::PartlyRejected { rejected, message },
            _ => Self::Acknowledged {
                warning: (!message.is_empty()).then_some(message),
            },
        }
    }

    /// Returns why the request failed; `None` if it was accepted.
    pub fn reason(&self) -> Option<FailureReason> {
        match self {
            Self::Acknowledged { .. } => None,
            Self::PartlyRejected { .. } => Some(FailureReason::PartlyRejected),
            Self::Refused(refusal) => Some(refusal.reason),
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// Returns a refusal without a delay.
    pub fn new(reason: FailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    /// Returns the message without what the collector said.
    pub(super) fn summary(&self) -> &str {
        self.message.split([':', ';']).next().unwrap_or_default()
    }
}

// === impl FailureReason ===

impl FailureReason {
    /// Returns whether a setting here or at the collector has to change.
    pub(super) fn is_configuration(self) -> bool {
        matches!(self, Self::Unauthorized | Self::NotFound | Self::NotOtlp)
    }

    /// Returns whether the records of the request may be the cause.
    pub(crate) fn is_about_records(self) -> bool {
        use FailureReason as R;
        matches!(
            self,
            R::TooLarge | R::BadRecord | R::ServerError | R::PartlyRejected
        )
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(super) mod tests;
