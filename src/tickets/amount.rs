//! Money as whole ten-thousandths, so that a sum over any number of tickets is exact.

use crate::api::Number;

/// Units in one.
const SCALE: i128 = 10_000;

/// Amounts at or beyond this are no money; a sum of 10^10 of them still fits.
const LIMIT: f64 = 1e24;

/// Below this a double times 10^4 errs by less than half a unit, so rounding finds the decimal number that was written.
const EXACT_PRODUCT: f64 = 1e11;

/// An amount or a sum of amounts, in ten-thousandths of whatever currency the organization uses.
///
/// A cent is 100 of them, so cents add up without any error. A JSON number reaches us as the double nearest to what was written, and the
/// shortest decimal number that stands for that double is what was written, up to 15 significant digits; that number is what is added.
/// More than four decimals are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

// === impl Amount ===

impl Amount {
    /// The amount a number stands for; `None` where it is too large to be money.
    pub fn new(number: Number) -> Option<Self> {
        match number {
            Number::Whole(n) if n.unsigned_abs() < LIMIT as u128 => Some(Self(n * SCALE)),
            Number::Fraction(x) if x.abs() < EXACT_PRODUCT => Some(Self((x * SCALE as f64).round() as i128)),
            Number::Fraction(x) if x.abs() < LIMIT => from_decimal(&x.to_string()),
            _ => None,
        }
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
        format!("{sign}{}.{:04}", units / scale, units % scale).parse().expect("digits and a point are a number")
    }
}

/// Reads a decimal number without an exponent, which is how Rust writes a double.
fn from_decimal(text: &str) -> Option<Amount> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut units: i128 = whole.parse().ok()?;
    for position in 0..4 {
        let digit = fraction.as_bytes().get(position).map_or(0, |digit| digit - b'0');
        units = units.checked_mul(10)?.checked_add(digit.into())?;
    }
    if fraction.as_bytes().get(4).is_some_and(|digit| *digit >= b'5') {
        units += 1;
    }
    Some(Amount(sign * units))
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
    fn negative_amounts_and_many_decimals_are_read() {
        for (text, expected) in [
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
        for text in ["1e24", "-1e300", "1.7976931348623157e308"] {
            assert_eq!(amount(text), None, "{text}");
        }
        assert_eq!(Amount::new(Number::Fraction(f64::NAN)), None);
        assert_eq!(Amount::new(Number::Fraction(f64::NEG_INFINITY)), None);
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
        fn no_number_is_a_panic(bits in any::<u64>()) {
            let _ = Amount::new(Number::from(f64::from_bits(bits)));
        }
    }
}
