//! Why a round of the tail failed.

use orgdata_api::ApiError;

use crate::ledger::{LedgerError, OtherOrganization};

/// Why a round failed; the next one continues from what the ledger holds.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The service or the network.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A full page of entries leads to itself.
    #[error(
        "pagination loop: a page of {0} entries leads to itself; set --api.page-size to its maximum"
    )]
    Loop(usize),
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
            Self::Api(error) => error.reason().as_str(),
            Self::Loop(_) => "pagination_loop",
            Self::Ledger(_) => "state_file",
            Self::OtherOrganization(_) => OtherOrganization::REASON,
        }
    }
}
