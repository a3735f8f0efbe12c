//! Values of flags: each error says what would be right.

use std::time::Duration;

use bytesize::ByteSize;

/// The smallest state file that leaves room to work, in bytes.
pub(super) const MIN_STATE_SIZE: u64 = 8 * 1024 * 1024;

/// The longest duration, a hundred years: far beyond any use, and short enough to be added to any time.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A duration above zero.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match duration_or_zero(text)? {
        Duration::ZERO => {
            Err("it must be longer than 0; write a duration like 15s, 1m 30s or 24h".to_owned())
        }
        duration => Ok(duration),
    }
}

/// A duration, perhaps zero.
pub(crate) fn duration_or_zero(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let duration = humantime::parse_duration(text.trim())
        .map_err(|error| format!("{error}; write a duration like 15s, 1m 30s or 24h"))?;
    if duration > LONGEST {
        return Err(
            "it is longer than a hundred years; write a duration like 15s, 1m 30s or 24h"
                .to_owned(),
        );
    }
    Ok(duration)
}

/// Requests per second: above zero.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.001 => Ok(rate),
        _ => Err("write a number from 0.001 up, like 5 or 0.5".to_owned()),
    }
}

/// A size of the state file, in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let size = text
        .trim()
        .parse::<ByteSize>()
        .map_err(|_| "write a size like 256MiB or 1GiB".to_owned())?
        .as_u64();
    if size < MIN_STATE_SIZE {
        return Err("it is too small to work with; write at least 8MiB, like 256MiB".to_owned());
    }
    Ok(size)
}

/// A log level.
pub(super) fn level(text: &str) -> Result<tracing::Level, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "error" => Ok(tracing::Level::ERROR),
        "warn" => Ok(tracing::Level::WARN),
        "info" => Ok(tracing::Level::INFO),
        "debug" => Ok(tracing::Level::DEBUG),
        "trace" => Ok(tracing::Level::TRACE),
        _ => Err("write error, warn, info, debug or trace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_humantime_and_not_zero() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for wrong in [
            "",
            "15",
            "fast",
            "-1s",
            "0s",
            "0",
            "580000000000years",
            "101years",
        ] {
            assert!(duration(wrong).expect_err(wrong).contains("15s"), "{wrong}");
        }
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn sizes_have_units_and_a_least_value() {
        assert_eq!(size("256MiB"), Ok(256 * 1024 * 1024));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        for wrong in ["1MiB", "0", "big", "-1MiB"] {
            assert!(size(wrong).expect_err(wrong).contains("256MiB"), "{wrong}");
        }
    }

    #[test]
    fn rates_are_positive_numbers() {
        assert_eq!(rate("0.5"), Ok(0.5));
        for wrong in ["0", "-1", "nan", "inf", "x"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
