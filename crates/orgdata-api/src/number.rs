//! JSON numbers. The specification says `number`, so any of them may be fractional.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{self, Deserialize, Deserializer, Error, Visitor};
use serde_json::value::RawValue;

/// A JSON number: exact if it is whole and fits into 64 bits, otherwise a double.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A whole number, also one written as `42.0`.
    Whole(i128),
    /// A fractional or very large one.
    Fraction(f64),
}

struct NumberVisitor;

/// A JSON number as it is written, because a double cannot represent every amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberText<'a>(&'a str);

// === impl Number ===

impl Number {
    /// Returns the value as a double. Whole numbers above 2^53 lose their last digits.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Fraction(x) => x,
        }
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        // 2^53: above it a double does not identify a whole number.
        if x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0 {
            Self::Whole(x as i128)
        } else {
            Self::Fraction(x)
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(n) => n.fmt(f),
            Self::Fraction(x) => x.fmt(f),
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a == b,
            (Self::Fraction(a), Self::Fraction(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Whole(n) => n.hash(state),
            Self::Fraction(x) => x.to_bits().hash(state),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

// === impl NumberText ===

impl<'a> NumberText<'a> {
    /// Returns the text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Returns the nearest double.
    pub fn as_f64(&self) -> f64 {
        self.0.parse().expect("a JSON number is a Rust number")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for NumberText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        // No other JSON value begins like this.
        if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return Err(D::Error::custom("expected a number"));
        }
        Ok(Self(text))
    }
}

// === impl NumberVisitor ===

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Number, E> {
        Ok(Number::Whole(n.into()))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Number, E> {
        Ok(Number::Whole(n.into()))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Number, E> {
        Ok(Number::from(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_written_with_a_fraction_is_the_same_number() {
        let numbers: Vec<Number> =
            serde_json::from_str("[42, 42.0, 42.5, -1, 18446744073709551615]").expect("valid");
        assert_eq!(numbers[0], numbers[1]);
        let text: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["42", "42", "42.5", "-1", "18446744073709551615"]);
    }

    #[test]
    fn text_is_not_a_number() {
        assert!(serde_json::from_str::<Number>("\"42\"").is_err());
        for other in ["\"42\"", "true", "{}", "[1]", "null", "+1", "01", "-"] {
            assert!(
                serde_json::from_str::<NumberText<'_>>(other).is_err(),
                "{other}"
            );
        }
    }

    #[test]
    fn the_text_of_a_number_keeps_every_digit() {
        for text in ["90000000000000.01", "-0.10", "1E+2", "1e400"] {
            assert_eq!(
                serde_json::from_str::<NumberText<'_>>(text)
                    .expect("a number")
                    .as_str(),
                text
            );
        }
        assert_eq!(NumberText("1e400").as_f64(), f64::INFINITY);
    }
}
