//! Timestamps: ISO 8601 (specification, section 2.3).

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// Parses a timestamp: RFC 3339 with any offset or none (UTC), also with a space for the `T`, or a date alone (its
/// midnight).
///
/// A timestamp beyond the ends of the calendar becomes the last or first one. jiff's timestamps end at
/// 9999-12-30T22:00:00Z, and many systems write the end of the year 9999 for "never".
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse() {
        return Some(timestamp);
    }
    let pieces = Pieces::parse(text).ok()?;
    let time = pieces.time().unwrap_or(Time::midnight());
    let civil = pieces.date().to_datetime(time);
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    let end = match civil.year() > 0 {
        true => Timestamp::MAX,
        false => Timestamp::MIN,
    };
    Some(offset.to_timestamp(civil).unwrap_or(end))
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
    fn a_fraction_is_kept() {
        let expected = "2026-03-01T10:00:00.123456789Z".parse().ok();
        assert_eq!(parse_time("2026-03-01T12:00:00.123456789+02:00"), expected);
    }

    #[test]
    fn a_date_alone_is_its_midnight() {
        for date in ["2026-03-01", "20260301"] {
            assert_eq!(parse_time(date), parse_time("2026-03-01T00:00:00Z"));
        }
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
                .map(|time| time.to_string())
                .as_deref(),
            Some("0000-01-01T00:00:00Z")
        );
    }

    #[test]
    fn other_texts_are_not_times() {
        for text in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "0",
            "12345",
            "1772359200",
            "Sun, 01 Mar 2026 10:00:00 GMT",
            "inf",
            "+010000-01-01T00:00:00Z",
            "9999-12-32",
            "9999-12-31T24:00:00Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
