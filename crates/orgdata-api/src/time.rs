//! Timestamps. The specification shows ISO 8601 in UTC for tickets and does not specify the others.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

use super::json::Text;

/// Parses a timestamp: ISO 8601 with any offset, or without one, which is in UTC; a date alone, which is its midnight; seconds or milliseconds
/// since the epoch.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    epoch(text).or_else(|| iso(text))
}

/// Parses a timestamp that is a JSON string or number.
pub fn parse_json_time(json: &str) -> Option<Timestamp> {
    match serde_json::from_str::<Text<'_>>(json) {
        Ok(text) => parse_time(&text),
        Err(_) => parse_time(json),
    }
}

/// Reports whether a text is a date without a time.
pub fn is_date(text: &str) -> bool {
    Pieces::parse(text.trim()).is_ok_and(|pieces| pieces.time().is_none())
}

/// Parses a number since the epoch, whose size says the unit, to the microsecond. Eight digits are a date.
fn epoch(text: &str) -> Option<Timestamp> {
    let number: f64 = text.parse().ok()?;
    let microseconds = match number {
        // From 1973 to 5138.
        1e8..1e11 => number * 1e6,
        1e11..1e14 => number * 1e3,
        _ => return None,
    };
    Timestamp::from_microsecond(microseconds.round() as i64).ok()
}

fn iso(text: &str) -> Option<Timestamp> {
    let pieces = Pieces::parse(text).ok()?;
    let time = pieces.time().unwrap_or(Time::midnight());
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    offset.to_timestamp(pieces.date().to_datetime(time)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_has_many_forms() {
        for (form, expected) in [
            ("2026-11-24T21:03:26Z", "2026-11-24T21:03:26Z"),
            (
                "2026-11-24T23:03:26.123456789+02:00",
                "2026-11-24T21:03:26.123456789Z",
            ),
            // Without a zone it is UTC.
            (" 2026-11-24T21:03:26\n", "2026-11-24T21:03:26Z"),
            ("2026-11-24 21:03:26", "2026-11-24T21:03:26Z"),
            ("20261124T210326Z", "2026-11-24T21:03:26Z"),
            ("2026-03-01", "2026-03-01T00:00:00Z"),
            ("20260301", "2026-03-01T00:00:00Z"),
            // Seconds, and milliseconds.
            ("1795554206", "2026-11-24T21:03:26Z"),
            ("1.795554206E9", "2026-11-24T21:03:26Z"),
            ("1772359200.123", "2026-03-01T10:00:00.123Z"),
            ("1772359200123", "2026-03-01T10:00:00.123Z"),
        ] {
            let expected = expected.parse().ok();
            assert_eq!(parse_time(form), expected, "{form}");
            let json = serde_json::to_string(form).expect("a string");
            assert_eq!(parse_json_time(&json), expected, "{json}");
        }
        let escaped = r#""2026-11-24T21:03:26\u002B00:00""#;
        for json in ["1795554206", escaped] {
            let expected = "2026-11-24T21:03:26Z".parse().ok();
            assert_eq!(parse_json_time(json), expected, "{json}");
        }
    }

    #[test]
    fn other_texts_are_not_times() {
        for text in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "12345",
            "1795554206000000",
            "9999-12-31T23:59:59Z",
            "2026-11-24 21:03:26 +0000 UTC",
            "Tue, 24 Nov 2026 21:03:26 GMT",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
