//! Timestamps. The specification shows ISO 8601 in UTC for tickets and does not specify the others.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::rfc2822;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// Epoch numbers below it are not timestamps: it is the year 1973 in seconds.
const MIN_EPOCH: f64 = 1e8;

/// Epoch numbers from here on are milliseconds: it is the year 5138 in seconds.
const MIN_EPOCH_MILLIS: f64 = 1e11;

/// Parses a timestamp: RFC 3339 with any offset or none (UTC), also with a space for the `T` and with the zone `UTC` or
/// `GMT`, a date alone (its midnight), RFC 2822, and seconds or milliseconds since the epoch.
///
/// A timestamp beyond the ends of the calendar becomes the last or first one. jiff's timestamps end at
/// 9999-12-30T22:00:00Z, and many systems write the end of the year 9999 for "never".
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    epoch(text).or_else(|| iso(text)).or_else(|| rfc2822(text))
}

/// Parses seconds or milliseconds since the epoch. Eight digits are a date.
fn epoch(text: &str) -> Option<Timestamp> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b".+eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| is_number)?;
    let seconds = match number {
        ..MIN_EPOCH => return None,
        ..MIN_EPOCH_MILLIS => number,
        _ => number / 1000.0,
    };
    // A float holds microseconds until the year 2255. The cast saturates.
    let micros = (seconds * 1e6).round() as i64;
    Some(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX))
}

fn iso(text: &str) -> Option<Timestamp> {
    let text = text
        .strip_suffix("UTC")
        .or_else(|| text.strip_suffix("GMT"))
        .map_or(text, str::trim_end);
    let text = &*with_nanoseconds(text);
    if let Ok(timestamp) = text.parse() {
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

fn rfc2822(text: &str) -> Option<Timestamp> {
    let parser = rfc2822::DateTimeParser::new().relaxed_weekday(true);
    parser.parse_timestamp(text).ok()
}

/// Cuts a fraction of a second to nine digits.
fn with_nanoseconds(text: &str) -> Cow<'_, str> {
    let Some((whole, rest)) = text.split_once('.') else {
        return text.into();
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 9 {
        return text.into();
    }
    format!("{whole}.{}{}", &rest[..9], &rest[digits..]).into()
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
            "2026-03-01 10:00:00 UTC",
            "2026-03-01T10:00:00.0000000000Z",
            "2026-03-01 12:00:00.0000000000+02:00",
            "Sun, 01 Mar 2026 10:00:00 GMT",
            "Sun, 1 Mar 2026 12:00:00 +0200",
            "Mon, 01 Mar 2026 10:00:00 -0000",
            "1772359200",
            "1772359200000",
            "1772359200.0",
            "1.7723592E9",
        ] {
            assert_eq!(parse_time(spelling), Some(expected), "{spelling}");
        }
    }

    #[test]
    fn a_fraction_is_kept() {
        let expected = "2026-03-01T10:00:00.123456789Z".parse().ok();
        assert_eq!(parse_time("2026-03-01T10:00:00.12345678987Z"), expected);
        let expected = "2026-03-01T10:00:00.123Z".parse().ok();
        assert_eq!(parse_time("1772359200123"), expected);
        assert_eq!(parse_time("1772359200.123"), expected);
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
        assert_eq!(parse_time("1e300"), Some(Timestamp::MAX));
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
            "-1772359200",
            "inf",
            "+010000-01-01T00:00:00Z",
            "9999-12-32",
            "9999-12-31T24:00:00Z",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
