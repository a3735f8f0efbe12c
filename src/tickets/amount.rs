//! Money as whole ten-thousandths, so that a sum over any number of tickets is exact.

use crate::api::NumberText;

/// Units in one.
const SCALE: i128 = 10_000;

/// Decimals of a unit: the zeros of [`SCALE`].
const DECIMALS: i64 = 4;

/// Amounts with more digits before the point are no money; a sum of 10^10 of them still fits.
const MAX_DIGITS: i64 = 24;

/// An amount or a sum of amounts, in ten-thousandths of whatever currency the organization uses.
///
/// A cent is 100 of them, so cents add up without any error. An amount is read from the digits that were written, and not by way of a double.
/// More than four decimals are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

// === impl Amount ===

impl Amount {
    /// The amount a number stands for; `None` where it is too large to be money.
    pub fn new(number: NumberText<'_>) -> Option<Self> {
        let text = number.as_str();
        let (sign, number) = text
            .strip_prefix('-')
            .map_or((1, text), |number| (-1, number));
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || {
            whole
                .bytes()
                .chain(fraction.bytes())
                .map(|digit| i128::from(digit - b'0'))
        };
        let Some(zeros) = digits().position(|digit| digit != 0) else {
            return Some(Self(0));
        };
        // One that does not fit is as good as the largest there is.
        let exponent: i64 = exponent.parse().unwrap_or(if exponent.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        });
        // Counted from the first digit that is not 0.
        let before_the_point = exponent.saturating_add(whole.len() as i64 - zeros as i64);
        if before_the_point > MAX_DIGITS {
            return None;
        }
        let Ok(kept) = usize::try_from(before_the_point + DECIMALS) else {
            return Some(Self(0));
        };
        let mut digits = digits().skip(zeros).chain(std::iter::repeat(0));
        let units = digits
            .by_ref()
            .take(kept)
            .fold(0, |units, digit| units * 10 + digit);
        let rounded = units + i128::from(digits.next() >= Some(5));
        Some(Self(sign * rounded))
    }

    /// Adds another amount.
    pub fn add(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// The double nearest to the exact sum. By way of its decimal text: dividing by 10^4 would round twice.
    pub fn as_f64(self) -> f64 {
        let sign = if self.0 < 0 { "-" } else { "" };
        let units = self.0.unsigned_abs();
        let scale = SCALE.unsigned_abs();
        format!("{sign}{}.{:04}", units / scale, units % scale)
            .parse()
            .expect("digits and a point are a number")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amount(text: &str) -> Option<Amount> {
        Amount::new(serde_json::from_str(text).expect("a number"))
    }

    #[test]
    fn ten_cents_a_million_times_is_a_hundred_thousand() {
        let mut sum = Amount::default();
        let mut naive = 0.0;
        for _ in 0..1_000_000 {
            sum.add(amount("0.1").expect("money"));
            naive += 0.1;
        }
        assert_eq!(sum.as_f64(), 100_000.0);
        assert_ne!(naive, 100_000.0, "which a sum of doubles is not");
    }

    #[test]
    fn a_cent_survives_beside_a_trillion() {
        let mut sum = amount("1234567890123.45").expect("money");
        for _ in 0..100 {
            sum.add(amount("0.01").expect("money"));
        }
        assert_eq!(sum.as_f64(), 1_234_567_890_124.45);
    }

    #[test]
    fn a_cent_survives_what_no_double_holds() {
        let mut sum = amount("90000000000000.01").expect("money");
        sum.add(amount("-90000000000000").expect("money"));
        assert_eq!(sum.as_f64(), 0.01);
    }

    #[test]
    fn negative_amounts_exponents_and_many_decimals_are_read() {
        for (text, expected) in [
            ("0", 0),
            ("-0.000", 0),
            ("0e9999999999999999999", 0),
            ("0.00005", 1),
            ("-0.00005", -1),
            ("0.000049999999999999999999999999", 0),
            ("12.5e-3", 125),
            ("0.0012345E+2", 1235),
            ("1e-5", 0),
            ("9e-5", 1),
            ("1e-9999999999999999999", 0),
            (
                "999999999999999999999999.9999",
                9_999_999_999_999_999_999_999_999_999,
            ),
            ("0.1e24", 1_000_000_000_000_000_000_000_000_000),
            ("-12.34", -123_400),
            ("0.00004", 0),
            ("0.00006", 1),
            ("-0.00006", -1),
            ("1e3", 10_000_000),
            ("99999999999.9999", 999_999_999_999_999),
            ("9999999999999.99", 99_999_999_999_999_900),
            ("-999999999999.99", -9_999_999_999_999_900),
            ("18446744073709551615", 184_467_440_737_095_516_150_000),
            ("1e20", 1_000_000_000_000_000_000_000_000),
        ] {
            assert_eq!(amount(text), Some(Amount(expected)), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_money_is_none() {
        for text in [
            "1e24",
            "-1e300",
            "1.7976931348623157e308",
            "1e400",
            "1e9999999999999999999",
            "1000000000000000000000000",
        ] {
            assert_eq!(amount(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_amount_of_fifteen_digits_is_exact(units in -999_999_999_999_999_i64..=999_999_999_999_999, decimals in 0_u32..=4) {
            let scale = 10_i64.pow(decimals);
            let sign = if units < 0 { "-" } else { "" };
            let (whole, fraction) = (units.abs() / scale, units.abs() % scale);
            let text = if decimals == 0 { format!("{units}") } else { format!("{sign}{whole}.{fraction:0width$}", width = decimals as usize) };
            let expected = i128::from(units) * i128::from(10_i64.pow(4 - decimals));
            prop_assert_eq!(amount(&text), Some(Amount(expected)));
            prop_assert_eq!(Amount(expected).as_f64(), text.parse::<f64>().expect("a number"));
        }

        #[test]
        fn no_number_is_a_panic_and_none_is_misread(text in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?") {
            let double: f64 = text.parse().expect("a number");
            match amount(&text) {
                Some(amount) => prop_assert!((amount.as_f64() - double).abs() <= 0.000_051 + double.abs() * 1e-15, "{amount:?}"),
                None => prop_assert!(double.abs() >= 1e24),
            }
        }
    }
}
