//! Timestamps as the service writes them. The specification shows ISO 8601 in UTC for tickets and says nothing of the rest.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// Reads a timestamp: RFC 3339 with any offset; without a zone it is UTC; a date alone is its midnight. `None` when it is no time.
///
/// jiff's timestamps end a day before its calendar does, at 9999-12-30T22:00:00Z, and begin a day after it. The end of the year 9999 is many a
/// system's way to say "never": what lies in that day is the last timestamp there is.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp);
    }
    let pieces = Pieces::parse(text).ok()?;
    let civil = pieces
        .date()
        .to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    let end = if civil.year() > 0 {
        Timestamp::MAX
    } else {
        Timestamp::MIN
    };
    Some(offset.to_timestamp(civil).unwrap_or(end))
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
    fn the_last_day_of_the_calendar_is_the_last_timestamp_in_any_spelling() {
        for text in [
            "9999-12-31T23:59:59.999Z",
            "9999-12-31T23:59:59.999999999-23:00",
            "9999-12-30T22:00:00-12:00",
            "9999-12-31T23:59:59",
            "9999-12-31",
        ] {
            assert_eq!(parse_time(text), Some(Timestamp::MAX), "{text}");
        }
        assert_eq!(parse_time("-009999-01-01T00:00:00Z"), Some(Timestamp::MIN));
        assert_eq!(
            parse_time("9999-12-31T12:00:00+23:00"),
            "9999-12-30T13:00:00Z".parse().ok(),
            "this one is still in range"
        );
        assert_eq!(
            parse_time("0000-01-01T00:00:00Z")
                .map(format_time)
                .as_deref(),
            Some("0000-01-01T00:00:00Z")
        );
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "1700000000",
            "+010000-01-01T00:00:00Z",
            "9999-12-32",
            "9999-12-31T24:00:00Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
