//! Delivery of log records: entry to record, sender, verdicts, relay.

mod attributes;
mod endpoint;
mod envelope;
mod fields;
mod grpc;
mod http;
mod mended;
mod node;
mod outbox;
mod pairs;
mod record;
mod relay;
mod scrub;
mod sender;
mod settings;
mod stdout;
mod value;
mod verdict;
mod wire;

pub use envelope::{Envelope, SCOPE};
pub use grpc::GrpcSender;
pub use http::HttpSender;
pub use outbox::Outbox;
pub use record::{GAP_EVENT, Mapper};
pub use relay::{MAX_REQUEST_BYTES, Next, Relay};
pub use scrub::{REDACTED, Scrubber};
pub use sender::{Export, Sender};
pub use settings::{
    Connection, DEFAULT_TIMEOUT, Flags, PemFile, Protocol, Settings, SettingsError, Target,
};
pub use stdout::StdoutSender;
pub use value::{CUT_MARK, MAX_DEPTH, MAX_VALUE_BYTES};
pub use verdict::{Refusal, Verdict};

/// How the exporter names itself to collectors.
const USER_AGENT: &str = concat!("orgdata-exporter/", env!("CARGO_PKG_VERSION"));

/// Why an export request was not acknowledged: a bounded set, the value of the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    missing_docs,
    reason = "the names say it; the table of verdicts has the details"
)]
pub enum FailureReason {
    Connect,
    Timeout,
    Unauthorized,
    NotFound,
    RateLimited,
    TooLarge,
    BadRecord,
    ServerError,
    PartlyRejected,
    Unavailable,
    NotOtlp,
    Other,
}

// === impl FailureReason ===

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::Connect,
        Self::Timeout,
        Self::Unauthorized,
        Self::NotFound,
        Self::RateLimited,
        Self::TooLarge,
        Self::BadRecord,
        Self::ServerError,
        Self::PartlyRejected,
        Self::Unavailable,
        Self::NotOtlp,
        Self::Other,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::RateLimited => "rate_limited",
            Self::TooLarge => "too_large",
            Self::BadRecord => "bad_record",
            Self::ServerError => "server_error",
            Self::PartlyRejected => "partly_rejected",
            Self::Unavailable => "unavailable",
            Self::NotOtlp => "not_otlp",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_label_are_part_of_the_interface() {
        let strings: Vec<&str> = FailureReason::ALL
            .iter()
            .map(|reason| reason.as_str())
            .collect();
        assert_eq!(
            strings,
            [
                "connect",
                "timeout",
                "unauthorized",
                "not_found",
                "rate_limited",
                "too_large",
                "bad_record",
                "server_error",
                "partly_rejected",
                "unavailable",
                "not_otlp",
                "other"
            ]
        );
    }
}
