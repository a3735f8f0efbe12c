//! The flag `--audit.start`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How far back log records begin on a new ledger (`--audit.start`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// None.
    Now,
    /// All that the API has.
    Oldest,
    /// This long before the first start.
    Ago(Duration),
    /// From this instant on.
    At(Timestamp),
}

// === impl Start ===

impl Start {
    /// Returns the oldest time of history that is wanted by an exporter that started at `now`; `None` if none is.
    pub(crate) fn from(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Now => None,
            Self::Oldest => Some(Timestamp::MIN),
            Self::Ago(ago) => {
                let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
                Some(now.checked_sub(ago).unwrap_or(Timestamp::MIN))
            }
            Self::At(instant) => Some(instant),
        }
    }
}

impl std::fmt::Display for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::Oldest => f.write_str("oldest"),
            Self::Ago(ago) => humantime::format_duration(*ago).fmt(f),
            Self::At(instant) => instant.fmt(f),
        }
    }
}
