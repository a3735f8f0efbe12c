//! Timestamps. The specification shows ISO 8601 in UTC for tickets and does not specify the others, so every common form
//! is read.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

use super::text::Text;

/// Epoch numbers below it are not timestamps: it is the year 1973 in seconds.
const MIN_EPOCH: f64 = 1e8;

const MONTHS: &str = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
const WEEKDAYS: &str = "Mon Tue Wed Thu Fri Sat Sun";

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
pub fn parse_json_time(json: &str) -> Option<Timestamp> {
    match serde_json::from_str::<Text<'_>>(json) {
        Ok(text) => parse_time(&text),
        Err(_) => parse_time(json),
    }
}

/// Parses a number since the epoch, whose size says the unit. Eight digits are a date.
fn epoch(text: &str) -> Option<Timestamp> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b".+eE".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| is_number)?;
    // Each unit takes over in its year 5138.
    let nanoseconds: i128 = match number {
        ..MIN_EPOCH => return None,
        ..1e11 => 1_000_000_000,
        ..1e14 => 1_000_000,
        ..1e17 => 1_000,
        _ => 1,
    };
    let exact = text
        .parse()
        .map(|whole: i128| whole.saturating_mul(nanoseconds));
    // A float holds microseconds until the year 2255. The cast saturates.
    let rounded = || ((number * nanoseconds as f64 / 1e3).round() as i128).saturating_mul(1_000);
    Some(Timestamp::from_nanosecond(exact.unwrap_or_else(|_| rounded())).unwrap_or(Timestamp::MAX))
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

/// Parses date, time and offset as words in any order, like `Tue Nov 24 2026 21:03:26 GMT+0000 (Coordinated Universal
/// Time)`, by writing them as ISO 8601. The name of a zone is only accepted beside its offset.
fn words(text: &str) -> Option<Timestamp> {
    // Go appends the reading of a monotonic clock, and others a comment.
    let text = text.split(" m=").next()?.split('(').next()?;
    let (mut date, mut year, mut month, mut day) = (None, None, None, None);
    let (mut time, mut offset, mut has_name) = (None, "", false);
    for word in text.split([' ', ',']).filter(|word| !word.is_empty()) {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let in_list = |list: &str| {
            list.split(' ')
                .position(|known| word.get(..3) == Some(known))
        };
        let zone = ["GMT", "UTC", "Z"]
            .iter()
            .find_map(|zone| word.strip_prefix(zone));
        if word.contains(':') && !word.starts_with(['+', '-']) && zone.is_none() {
            time = Some(word);
        } else if is_number && word.len() == 4 {
            year = Some(word);
        } else if is_number {
            day = word.parse::<u8>().ok();
        } else if let Some(place) = in_list(MONTHS) {
            month = Some(place + 1);
        } else if let Some(rest) = zone.or(word.starts_with(['+', '-']).then_some(word)) {
            offset = if rest.is_empty() { offset } else { rest };
        } else if word.starts_with(|first: char| first.is_ascii_digit()) {
            date = Some(word.to_owned());
        } else if in_list(WEEKDAYS).is_none() {
            has_name = true;
        }
    }
    if has_name && offset.is_empty() {
        return None;
    }
    let written = || Some(format!("{}-{:02}-{:02}", year?, month?, day?));
    match date.or_else(written) {
        Some(date) => iso(&format!("{date}T{}{offset}", time?)),
        // It may have a date of its own.
        None => iso(&format!("{}{offset}", time?)),
    }
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
            "1772359200123456789",
        ] {
            assert_eq!(parse_time(form), expected, "{form}");
        }
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
