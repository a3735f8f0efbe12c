//! Delivery of log records: entry to record, sender, verdicts, relay.

/// Why an export request was not acknowledged: a bounded set, the value of the label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it; the table of verdicts has the details")]
pub enum FailureReason {
    Connect,
    Timeout,
    Unauthorized,
    NotFound,
    RateLimited,
    TooLarge,
    BadRecord,
    PartlyRejected,
    Unavailable,
    NotOtlp,
    Other,
}

// === impl FailureReason ===

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::Connect,
        Self::Timeout,
        Self::Unauthorized,
        Self::NotFound,
        Self::RateLimited,
        Self::TooLarge,
        Self::BadRecord,
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
            Self::PartlyRejected => "partly_rejected",
            Self::Unavailable => "unavailable",
            Self::NotOtlp => "not_otlp",
            Self::Other => "other",
        }
    }
}
