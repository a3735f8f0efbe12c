//! Why a round of the tail failed.

use std::time::Duration;

use orgdata_api::{ApiError, FailureReason};

use super::sweep::Problem;
use crate::ledger::{LedgerError, OtherOrganization};

/// Why a round failed; a later one continues from what the ledger holds.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The API or the network.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A page that cannot be used.
    #[error(transparent)]
    Page(#[from] Problem),
    /// The state file.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The key.
    #[error(transparent)]
    OtherOrganization(#[from] OtherOrganization),
}

// === impl TailError ===

impl TailError {
    /// Returns the reason as a label value.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason().into(),
            Self::Page(_) => "page",
            Self::Ledger(_) => "state_file",
            Self::OtherOrganization(_) => OtherOrganization::REASON,
        }
    }

    /// Reports whether the API allows no request for now.
    pub(super) fn is_rate_limit(&self) -> bool {
        matches!(self, Self::Api(error) if error.reason() == FailureReason::RateLimited)
    }

    /// Returns how long the API asked to wait.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Api(error) => error.retry_after(),
            _ => None,
        }
    }
}
