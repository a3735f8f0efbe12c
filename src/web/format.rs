//! Numbers, sizes and ages as a person reads them.

use std::time::Duration;

use jiff::Timestamp;

/// `1234567` as `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// An amount of money, whose currency the service does not tell: two decimals if it has any, none if it has not.
pub(super) fn amount(amount: f64) -> String {
    if !amount.is_finite() || amount.abs() >= 1e15 {
        return format!("{amount:e}");
    }
    let text = format!("{:.2}", amount.abs());
    let (whole, cents) = text.split_once('.').unwrap_or((&text, "00"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let sign = if amount < 0.0 && text != "0.00" {
        "\u{2212}"
    } else {
        ""
    };
    if cents == "00" {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{cents}")
    }
}

/// A size in binary units, with at most one decimal.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = "B";
    for next in UNITS {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if tenths >= 1000 || tenths.is_multiple_of(10) {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// A duration in its two largest units.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(
            seconds / 60,
            "min",
            if seconds < 600 { seconds % 60 } else { 0 },
            "s",
        ),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(
            seconds / 86_400,
            "d",
            if seconds < 864_000 {
                seconds % 86_400 / 3600
            } else {
                0
            },
            "h",
        ),
    }
}

/// How long ago `then` was. A clock of the service that is ahead of ours is no negative age.
pub(super) fn age(now: Timestamp, then: Timestamp) -> String {
    let age = Duration::try_from(now.duration_since(then)).unwrap_or_default();
    if age < Duration::from_secs(1) {
        "just now".to_owned()
    } else {
        format!("{} ago", duration(age))
    }
}

/// A name as a label has it, cut to what a page can hold.
pub(super) fn name(name: &str) -> String {
    const LENGTH: usize = 200;
    match name.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}\u{2026}", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_groups_of_three() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn amounts_have_cents_only_when_there_are_any() {
        for (number, text) in [
            (0.0, "0"),
            (12_500_000.0, "12,500,000"),
            (1234.5, "1,234.50"),
            (-0.001, "0"),
            (-42.25, "\u{2212}42.25"),
            (1e30, "1e30"),
        ] {
            assert_eq!(amount(number), text);
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (256 << 20, "256 MiB"),
            (5 << 50, "5120 TiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn durations_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1 min 1 s"),
            (660, "11 min"),
            (3660, "1 h 1 min"),
            (90_000, "1 d 1 h"),
            (8_640_000, "100 d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_time_ahead_of_ours_is_now() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(age(now, now + Duration::from_secs(90)), "just now");
        assert_eq!(age(now + Duration::from_secs(90), now), "1 min 30 s ago");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(name(&"\u{e9}".repeat(1000)).chars().count(), 201);
        assert_eq!(name("short"), "short");
    }
}
