//! The flag `--audit.start`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// How far back log records begin on a new ledger (`--audit.start`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the start of the process.
    Now,
    /// At the oldest entry that the service has.
    Oldest,
    /// This long ago.
    Ago(Duration),
    /// At this instant.
    At(Timestamp),
}

// === impl Start ===

impl Start {
    /// Returns the time before which nothing is taken, for a process that started at `now`.
    pub fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::Oldest => Timestamp::MIN,
            Self::Ago(ago) => {
                let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
                now.checked_sub(ago).unwrap_or(Timestamp::MIN)
            }
            Self::At(instant) => instant,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_longer_than_time_reaches_its_beginning() {
        assert_eq!(
            Start::Ago(Duration::MAX).from(Timestamp::now()),
            Timestamp::MIN
        );
    }
}
