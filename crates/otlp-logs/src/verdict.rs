//! What a collector's answer means for the records of a request: one verdict for every status.
//!
//! A collector may repeat anything in its text, even the credentials of the request. So a message has the status and the
//! [known phrases](known_phrases) of the text, and never the text itself.

use std::error::Error;
use std::time::Duration;

use connections::error_chain;
use strum::{AsRefStr, IntoStaticStr, VariantArray};
use tonic::Code;

/// The longest delay that a collector may ask for.
const MAX_DELAY: Duration = Duration::from_secs(3600);

/// What may be shown of the text of a peer or of a failed connection.
const PHRASES: &str = "connection refused|connection reset|connection closed|broken pipe|unexpected eof|timed out|\
    failed to lookup address|no route to host|network is unreachable|too many open files|\
    invalid peer certificate|UnknownIssuer|CaUsedAsEndEntity|UnsupportedSignatureAlgorithm|NotValidForName|certificate expired|not valid for|\
    CertificateRequired|CertificateUnknown|BadCertificate|HandshakeFailure|UnknownCA|InvalidContentType|corrupt message|\
    invalid HTTP version|frame with invalid size|HTTP/2|proxy|\
    too large|larger than|too big|exceed|rate limit|quota|too many requests|\
    too old|too far behind|out of order|too far in the future|duplicate|invalid utf-8|mapping|\
    no org id|memory usage|tenant|token|permission|not found";

/// An answer has arrived, but is larger than a limit of HTTP/2 or HTTP/1.1. It may have a text for each record, so it is about the records.
const UNREADABLE: &str = "stream error detected|message head is too large";

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The collector has the records.
    Accepted,
    /// The collector has the records, and says something about them.
    Warned {
        /// The known phrases of it.
        message: String,
    },
    /// The collector rejected some of the records without saying which. They must not be sent again.
    PartlyRejected {
        /// The number of rejected records.
        rejected: u64,
        /// The known phrases of what the collector said.
        message: String,
    },
    /// The request was not accepted.
    Rejected(Rejection),
}

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its class.
    pub reason: Reason,
    /// The status, and the known phrases of what the collector said.
    pub message: String,
    /// The delay that the collector asks for.
    pub retry_after: Option<Duration>,
}

/// The classes of rejections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// There is no connection.
    Connect,
    /// There was no answer in time.
    Timeout,
    /// The collector or what is behind it is not available.
    Unavailable,
    /// A quota or rate limit.
    RateLimited,
    /// The credentials are missing or wrong.
    Unauthorized,
    /// There is no OTLP receiver for log records at this address.
    WrongEndpoint,
    /// The request is larger than the collector accepts.
    TooLarge,
    /// The request may contain a record that the collector cannot accept.
    BadRecord,
    /// An internal error of the collector, which a record may have caused.
    ServerError,
}

/// Returns the phrases of a fixed set that a text contains.
pub fn known_phrases(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let known = PHRASES.split('|');
    let known = known.filter(|phrase| text.contains(&phrase.to_ascii_lowercase()));
    known.collect::<Vec<_>>().join(", ")
}

/// Returns the verdict for an HTTP status other than 2xx, or for a 2xx that is not OTLP. A permanent status is about the records.
pub(crate) fn of_http(status: u16, said: &str, retry_after: Option<Duration>) -> Verdict {
    let reason = match status {
        413 => Reason::TooLarge,
        // The OpenTelemetry Collector answers 400 to a request above its limit.
        400 | 422 if names_size(said) => Reason::TooLarge,
        500 => Reason::ServerError,
        401 | 403 | 407 => Reason::Unauthorized,
        200..400 | 404 | 421 | 501 | 505 => Reason::WrongEndpoint,
        408 => Reason::Timeout,
        429 => Reason::RateLimited,
        425 => Reason::Unavailable,
        400..500 => Reason::BadRecord,
        _ => Reason::Unavailable,
    };
    rejected(reason, format!("HTTP {status}"), said, retry_after)
}

/// Returns the verdict for a gRPC status other than OK.
pub(crate) fn of_grpc(code: Code, said: &str, retry_after: Option<Duration>) -> Verdict {
    // A proxy in front of the collector answered without a gRPC status.
    if let Some(status) = proxy_status(said) {
        return of_http(status, said, retry_after);
    }
    let reason = match code {
        // Envoy turns 413 into `Unknown`.
        Code::ResourceExhausted | Code::Unknown | Code::OutOfRange
            if names_size(said) && !names_rate(said) && retry_after.is_none() =>
        {
            Reason::TooLarge
        }
        Code::ResourceExhausted => Reason::RateLimited,
        Code::InvalidArgument | Code::FailedPrecondition | Code::AlreadyExists => Reason::BadRecord,
        Code::Internal if said.contains("h2 protocol error") => Reason::Connect,
        Code::Unknown if said.contains("grpc-status") => Reason::WrongEndpoint,
        // Some servers answer so after an exception, as with 500 over HTTP.
        Code::Internal | Code::Unknown => Reason::ServerError,
        Code::Cancelled | Code::DeadlineExceeded => Reason::Timeout,
        Code::Unauthenticated | Code::PermissionDenied => Reason::Unauthorized,
        Code::Unimplemented | Code::NotFound => Reason::WrongEndpoint,
        _ => Reason::Unavailable,
    };
    let status = match reason {
        Reason::Timeout => format!("no answer in time: {code:?}"),
        _ => format!("{code:?}"),
    };
    rejected(reason, status, said, retry_after)
}

/// Returns the verdict for a connection that failed, before or after it was made.
pub(crate) fn disconnected(error: &dyn Error, is_connected: bool, protocol: &str) -> Verdict {
    let chain = error_chain(error);
    if has_any(&chain, UNREADABLE) {
        let message = "an answer arrived that cannot be read; its header may be too large";
        return Verdict::Rejected(Rejection::new(Reason::BadRecord, message));
    }
    let mut message = with_phrases("connection failed".to_owned(), &chain);
    if let Some(advice) = connections::advice(&chain) {
        message += &format!("; {advice}");
    } else if is_connected {
        // A server of another protocol, or one that wants a certificate, closes the connection.
        message += &format!(
            "; check that this port speaks {protocol}, and whether it wants a client certificate"
        );
    }
    Verdict::Rejected(Rejection::new(Reason::Connect, message))
}

fn rejected(reason: Reason, status: String, said: &str, retry_after: Option<Duration>) -> Verdict {
    Verdict::Rejected(Rejection {
        reason,
        message: with_phrases(status, said),
        retry_after: retry_after.map(|delay| delay.min(MAX_DELAY)),
    })
}

fn with_phrases(status: String, said: &str) -> String {
    match known_phrases(said) {
        phrases if phrases.is_empty() => status,
        phrases => format!("{status}: {phrases}"),
    }
}

/// Returns the HTTP status that tonic names if an answer has no gRPC status.
fn proxy_status(said: &str) -> Option<u16> {
    let (_, rest) = said
        .split_once("mapped from HTTP status code ")
        .or_else(|| said.split_once("while receiving response with status: "))?;
    rest.get(..3)?.parse().ok()
}

/// Returns whether a text speaks of a rate, as in Tempo's "ingestion rate limit (local: 15000000 bytes, global: 0 bytes)
/// exceeded while adding 137994 bytes".
fn names_rate(said: &str) -> bool {
    has_any(
        said,
        "rate limit|quota exceeded|per second|throttl|too many requests",
    )
}

/// Returns whether a text speaks of a size limit: "received message larger than max", "decoded message length too large",
/// "request body too large", "message exceeds maximum size".
fn names_size(said: &str) -> bool {
    has_any(said, "larger than|too large|too big")
        || (has_any(said, "exceed") && has_any(said, "size|length|bytes|body"))
}

fn has_any(said: &str, phrases: &str) -> bool {
    let said = said.to_ascii_lowercase();
    phrases.split('|').any(|phrase| said.contains(phrase))
}

// === impl Verdict ===

impl Verdict {
    /// Returns the verdict for a success with this number of rejected records and this message.
    pub(crate) fn of_success(rejected: i64, said: &str) -> Self {
        match u64::try_from(rejected) {
            Ok(rejected @ 1..) => Self::PartlyRejected {
                rejected,
                message: known_phrases(said),
            },
            _ if said.is_empty() => Self::Accepted,
            _ => Self::Warned {
                message: known_phrases(said),
            },
        }
    }

    /// Returns why the request failed; `None` if it was accepted. Rejected records are bad records.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Accepted | Self::Warned { .. } => None,
            Self::PartlyRejected { .. } => Some(Reason::BadRecord),
            Self::Rejected(rejection) => Some(rejection.reason),
        }
    }
}

// === impl Rejection ===

impl Rejection {
    /// Returns a rejection without a delay.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
        }
    }
}

// === impl Reason ===

impl Reason {
    /// Returns whether the records of the request may be the cause. Otherwise the same request may succeed later.
    pub fn is_about_records(self) -> bool {
        matches!(self, Self::TooLarge | Self::BadRecord | Self::ServerError)
    }

    /// Returns whether a setting here or at the collector has to change.
    pub fn is_about_settings(self) -> bool {
        matches!(self, Self::Unauthorized | Self::WrongEndpoint)
    }

    /// Returns whether the collector may not be there: nothing answered, or something that does not take these credentials
    /// or is not OTLP.
    pub fn is_about_connection(self) -> bool {
        matches!(self, Self::Connect | Self::Timeout) || self.is_about_settings()
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
pub(crate) mod tests;
