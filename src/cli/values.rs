//! Parsers for the values of flags. Each error says what would be right.

use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use orgdata_api::parse_time;

use crate::audit::Start;

/// The smallest limit of the state file, in bytes.
const MIN_STATE_SIZE: u64 = 8 * 1024 * 1024;

/// The longest duration: a hundred years, which can be added to any time.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const DURATION_EXAMPLES: &str = "write a duration like 15s, 1m 30s or 24h";

const START_EXAMPLES: &str =
    "write now, oldest, a duration ago like 24h, or a time like 2026-01-31T00:00:00Z";

/// Parses a duration longer than zero.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match duration_or_zero(text)? {
        Duration::ZERO => Err(format!("must be longer than 0; {DURATION_EXAMPLES}")),
        duration => Ok(duration),
    }
}

/// Parses a duration of zero or more.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    refuse_months(text)?;
    let duration =
        humantime::parse_duration(text).map_err(|error| format!("{error}; {DURATION_EXAMPLES}"))?;
    if duration > MAX_DURATION {
        return Err(format!(
            "is longer than a hundred years; {DURATION_EXAMPLES}"
        ));
    }
    Ok(duration)
}

/// humantime reads `M` as months, which is hardly ever meant.
fn refuse_months(text: &str) -> Result<(), String> {
    let mut units = text.split(|letter: char| !letter.is_alphabetic());
    match units.any(|unit| unit == "M") {
        true => Err("M would be months; write 1m for a minute, and 30d instead of a month".into()),
        false => Ok(()),
    }
}

/// Parses the beginning of a range of time.
pub(crate) fn start(text: &str) -> Result<Start, String> {
    refuse_months(text)?;
    match text.trim() {
        text if text.eq_ignore_ascii_case("now") => Ok(Start::Now),
        text if text.eq_ignore_ascii_case("oldest") => Ok(Start::Oldest),
        text => humantime::parse_duration(text)
            .map(Start::Ago)
            .ok()
            .or_else(|| parse_time(text).map(Start::At))
            .ok_or_else(|| START_EXAMPLES.to_owned()),
    }
}

/// Parses one value of a list.
pub(super) fn word(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("a value is empty; give one, like OPEN, or leave out the flag"),
        word => Ok(word.to_owned()),
    }
}

/// Parses the id of a deal, and returns it as the API writes it.
pub(super) fn deal_id(text: &str) -> Result<String, &'static str> {
    let number = text.trim().parse::<i64>();
    let number = number.map_err(|_| "it is not a whole number; give deal ids like 42")?;
    Ok(number.to_string())
}

/// Parses a rate per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.001 => Ok(rate),
        _ => Err("must be a number of at least 0.001, like 5 or 0.5".to_owned()),
    }
}

/// Parses `--state.path`; `None` is in memory.
pub(crate) fn state_path(text: &str) -> Option<PathBuf> {
    (text != ":memory:").then(|| PathBuf::from(text))
}

/// Parses the limit of the state file, in bytes.
pub(super) fn state_size(text: &str) -> Result<u64, String> {
    match text.trim().parse::<ByteSize>() {
        Ok(size) if size.as_u64() >= MIN_STATE_SIZE => Ok(size.as_u64()),
        Ok(_) => Err("must be at least 8MiB; write a size like 256MiB".to_owned()),
        Err(_) => Err("is not a size; write one like 256MiB or 1GiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What is refused, and how, is in the table of wrong command lines in `tests/it/cli/usage.rs`.
    #[test]
    fn ids_and_words_have_one_spelling() {
        let read = (deal_id(" 042"), word(" A "));
        assert_eq!(read, (Ok("42".into()), Ok("A".into())));
    }

    #[test]
    fn the_four_forms_of_a_start_are_read() {
        let time = |text: &str| text.parse::<jiff::Timestamp>().expect("a time");
        let now = time("2026-03-01T12:00:00Z");
        for (text, floor) in [
            ("now", None),
            ("NOW", None),
            ("oldest", Some(jiff::Timestamp::MIN)),
            // Longer than time.
            ("10000000000years", Some(jiff::Timestamp::MIN)),
            ("1h 30m", Some(time("2026-03-01T10:30:00Z"))),
            (
                "2026-01-31T00:00:00+01:00",
                Some(time("2026-01-30T23:00:00Z")),
            ),
        ] {
            let found = start(text).map(|start| start.from(now));
            assert_eq!(found, Ok(floor), "{text}");
        }
    }
}
