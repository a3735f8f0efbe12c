//! Timestamps as the service writes them. The specification shows ISO 8601 in UTC for tickets and says nothing of the rest.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Reads a timestamp: RFC 3339 with any offset; without a zone it is UTC; a date alone is its midnight. `None` when it is no time.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp);
    }
    let civil = match text.parse::<DateTime>() {
        Ok(civil) => civil,
        Err(_) => text.parse::<Date>().ok()?.to_datetime(jiff::civil::Time::midnight()),
    };
    civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// Writes a timestamp as the service does: UTC, with as many decimals as it has.
pub fn format_time(timestamp: Timestamp) -> String {
    timestamp.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_instant_in_several_spellings() {
        let expected = parse_time("2026-03-01T10:00:00Z").expect("a time");
        for spelling in [
            "2026-03-01T10:00:00.000Z",
            "2026-03-01T12:00:00+02:00",
            "2026-03-01T10:00:00",
            "2026-03-01 10:00:00",
            " 2026-03-01T10:00:00Z\n",
        ] {
            assert_eq!(parse_time(spelling), Some(expected), "{spelling}");
        }
    }

    #[test]
    fn a_date_alone_is_its_midnight() {
        assert_eq!(parse_time("2026-03-01"), parse_time("2026-03-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["", "yesterday", "2026-13-01T00:00:00Z", "1700000000"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
