//! Timestamps. The specification shows ISO 8601 in UTC for tickets and does not specify the others, so every common form
//! is read.

use std::ops::Add as _;

use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

use super::json::Text;

/// Epoch numbers below it are not timestamps: it is the year 1973 in seconds.
const MIN_EPOCH: f64 = 1e8;

const WEEKDAYS: &str = "Mon Tue Wed Thu Fri Sat Sun";

/// Forms other than ISO 8601, without weekday and zone: of `ctime`, JavaScript and RFC 2822.
const FORMS: [&str; 3] = [
    "%b %d %H:%M:%S %Y",
    "%b %d %Y %H:%M:%S",
    "%d %b %Y %H:%M:%S",
];

/// Parses a timestamp: ISO 8601 with any offset, RFC 2822, `ctime`, the default forms of Ruby, Go and JavaScript, a date
/// alone (its midnight), and seconds, milliseconds, microseconds or nanoseconds since the epoch. A time without a zone is
/// in UTC.
///
/// A timestamp beyond the ends of the calendar becomes the last one. jiff's timestamps end at
/// 9999-12-30T22:00:00Z, and many systems write the end of the year 9999 for "never".
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    epoch(text).or_else(|| iso(text)).or_else(|| words(text))
}

/// Parses a timestamp that is a JSON string or number.
pub(super) fn parse_json_time(json: &str) -> Option<Timestamp> {
    match serde_json::from_str::<Text<'_>>(json) {
        Ok(text) => parse_time(&text),
        Err(_) => parse_time(json),
    }
}

/// Parses a number since the epoch, whose size says the unit, to the microsecond. Eight digits are a date.
fn epoch(text: &str) -> Option<Timestamp> {
    let number: f64 = text
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())?;
    // Each unit takes over in its year 5138.
    let microseconds = match number {
        ..MIN_EPOCH => return None,
        ..1e11 => number * 1e6,
        ..1e14 => number * 1e3,
        ..1e17 => number,
        _ => number / 1e3,
    };
    // The cast saturates.
    let timestamp = Timestamp::from_microsecond(microseconds.round() as i64);
    Some(timestamp.unwrap_or(Timestamp::MAX))
}

fn iso(text: &str) -> Option<Timestamp> {
    // jiff reads nine digits of a fraction.
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let cut = (digits > 9).then(|| format!("{whole}.{}{}", &rest[..9], &rest[digits..]));
    let text = cut.as_deref().unwrap_or(text);
    if let Ok(timestamp) = text.parse() {
        return Some(timestamp);
    }
    let pieces = Pieces::parse(text).ok()?;
    let civil = pieces
        .date()
        .to_datetime(pieces.time().unwrap_or(Time::midnight()));
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    Some(offset.to_timestamp(civil).unwrap_or(Timestamp::MAX))
}

/// Parses date, time and offset as words, like `Tue Nov 24 2026 21:03:26 GMT+0000 (Coordinated Universal Time)`, by writing
/// them as ISO 8601.
fn words(text: &str) -> Option<Timestamp> {
    // Go appends the reading of a monotonic clock, and others a comment.
    let text = text.split(" m=").next()?.split('(').next()?;
    let (mut words, mut offset) = (Vec::new(), "");
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        let zone = ["GMT", "UTC", "Z"]
            .iter()
            .find_map(|zone| word.strip_prefix(zone))
            .or(word.starts_with(['+', '-']).then_some(word));
        let is_name = !offset.is_empty() && word.chars().all(char::is_alphabetic);
        match zone {
            Some("") => {}
            Some(zone) => offset = zone,
            // The name of a zone beside its offset says nothing.
            None if is_name || word.get(..3).is_some_and(|day| WEEKDAYS.contains(day)) => {}
            None => words.push(word),
        }
    }
    let words = words.join(" ");
    let mut forms = FORMS.iter();
    let civil = forms.find_map(|form| DateTime::strptime(form, &words).ok());
    iso(&civil.map_or(words, |civil| civil.to_string()).add(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_instant_in_several_forms() {
        let expected = parse_time("2026-11-24T21:03:26Z").expect("a time");
        for form in [
            "2026-11-24T21:03:26.000Z",
            "2026-11-24T23:03:26+02:00",
            "2026-11-24T21:03:26",
            "2026-11-24T21:03:26.0000000000Z",
            "2026-11-24 21:03:26",
            "20261124T210326Z",
            " 2026-11-24T21:03:26Z\n",
            "2026-11-24 21:03:26 UTC",
            "2026-11-24T21:03:26 GMT",
            "2026-11-24 21:03:26 Z",
            "2026-11-24 23:03:26.000000000+02:00",
            "Tue, 24 Nov 2026 21:03:26 GMT",
            "24 Nov 2026 23:03:26 +0200",
            "Mon, 24 Nov 2026 21:03:26 -0000",
            "Tue Nov 24 21:03:26 2026",
            "Tue Nov 24 21:03:26 UTC 2026",
            "Tue Nov 24 2026 21:03:26 GMT+0000 (Coordinated Universal Time)",
            "Tue Nov 24 2026 16:03:26 GMT-0500 (Eastern Standard Time)",
            "2026-11-24 21:03:26 +0000",
            "2026-11-24 21:03:26 +0000 UTC",
            "2026-11-24 22:03:26 +0100 CET",
            "2026-11-24 21:03:26 +0000 UTC m=+0.01",
            "1795554206",
            "1795554206000",
            "1795554206000000",
            "1795554206000000000",
            "1795554206.0",
            "1.795554206E9",
        ] {
            assert_eq!(parse_time(form), Some(expected), "{form}");
        }
        assert_eq!(
            parse_time("Wed Nov  4 01:02:03 2026"),
            parse_time("2026-11-04T01:02:03Z")
        );
        for json in ["1795554206", r#""2026-11-24T21:03:26\u002B00:00""#] {
            assert_eq!(parse_json_time(json), Some(expected), "{json}");
        }
    }

    #[test]
    fn a_fraction_is_kept() {
        let expected = "2026-03-01T10:00:00.123456789Z".parse().ok();
        for form in [
            "2026-03-01T10:00:00.123456789Z",
            "2026-03-01 10:00:00.123456789 +0000 UTC m=+0.01",
        ] {
            assert_eq!(parse_time(form), expected, "{form}");
        }
        let microseconds = parse_time("2026-03-01T10:00:00.123457Z");
        assert_eq!(parse_time("1772359200123456789"), microseconds);
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
    fn the_last_day_of_the_calendar_is_the_last_timestamp_in_any_form() {
        for text in [
            "9999-12-31T23:59:59.999Z",
            "9999-12-31T23:59:59.999999999-23:00",
            "9999-12-30T22:00:00-12:00",
            "9999-12-31T23:59:59",
            "9999-12-31",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "1e300",
        ] {
            assert_eq!(parse_time(text), Some(Timestamp::MAX), "{text}");
        }
        assert_eq!(
            parse_time("9999-12-31T12:00:00+23:00"),
            "9999-12-30T13:00:00Z".parse().ok(),
            "this one is still in range"
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
            "Nov 24 2026",
            "Tue Nov 24 22:03:26 CET 2026",
            "Tue Nov 31 21:03:26 2026",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
