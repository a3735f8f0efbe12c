//! JSON numbers as they are written: a double holds neither every id nor every amount of money.

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

/// A JSON number as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NumberText<'a>(&'a str);

// === impl NumberText ===

impl<'a> NumberText<'a> {
    /// Returns the text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Returns the value if it is a count. A negative, fractional or huge number is none.
    pub fn as_count(&self) -> Option<u64> {
        let from_double = || {
            let double: f64 = self.0.parse().ok()?;
            let is_exact = double.fract() == 0.0 && (0.0..9e15).contains(&double);
            is_exact.then_some(double as u64)
        };
        self.0.parse().ok().or_else(from_double)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_every_digit_and_text_is_not_a_number() {
        for text in ["90000000000000.01", "-0.10", "1E+2", "1e400"] {
            let number: NumberText<'_> = serde_json::from_str(text).expect("a number");
            assert_eq!(number.as_str(), text);
        }
        for (text, count) in [("42", Some(42)), ("42.0", Some(42)), ("1e400", None)] {
            assert_eq!(NumberText(text).as_count(), count, "{text}");
        }
        for other in ["\"42\"", "true", "{}", "[1]", "null", "+1", "01", "-"] {
            let number = serde_json::from_str::<NumberText<'_>>(other);
            assert!(number.is_err(), "{other}");
        }
    }
}
