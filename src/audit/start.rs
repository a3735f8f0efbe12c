//! The flag `--audit.start`.

use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use orgdata_api::parse_time;

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

/// Text that is not a valid start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("write now, oldest, a duration ago like 24h, or an instant like 2026-01-31T00:00:00Z")]
pub struct StartError;

// === impl Start ===

impl Start {
    /// Returns the time before which nothing is taken; `None` if there is no limit.
    pub fn floor(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Now => Some(now),
            Self::Oldest => None,
            Self::Ago(ago) => {
                let ago = SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX);
                Some(now.checked_sub(ago).unwrap_or(Timestamp::MIN))
            }
            Self::At(instant) => Some(instant),
        }
    }
}

impl FromStr for Start {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        match text.trim() {
            "now" => Ok(Self::Now),
            "oldest" => Ok(Self::Oldest),
            text => humantime::parse_duration(text)
                .map(Self::Ago)
                .ok()
                .or_else(|| parse_time(text).map(Self::At))
                .ok_or(StartError),
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
    fn the_four_forms_are_read() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
        for (text, floor) in [
            ("now", Some("2026-03-01T12:00:00Z")),
            ("oldest", None),
            ("1h 30m", Some("2026-03-01T10:30:00Z")),
            ("2026-01-31T00:00:00+01:00", Some("2026-01-30T23:00:00Z")),
        ] {
            let start: Start = text.parse().expect(text);
            assert_eq!(
                start.floor(now).map(|at| at.to_string()).as_deref(),
                floor,
                "{text}"
            );
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_four_forms() {
        for text in ["yesterday", "", "-1h", "2026-31-01"] {
            assert_eq!(text.parse::<Start>(), Err(StartError), "{text}");
        }
    }

    #[test]
    fn a_duration_longer_than_time_reaches_its_beginning() {
        assert_eq!(
            Start::Ago(Duration::MAX).floor(Timestamp::now()),
            Some(Timestamp::MIN)
        );
    }
}
