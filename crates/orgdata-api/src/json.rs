//! JSON values as the pages need them: texts and numbers as they are written, and arrays of a bounded length.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON string, borrowed from the page if it has no escapes. Lone surrogates, which JSON allows and UTF-8 does not, become
/// U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub Cow<'a, str>);

/// The bytes of a JSON string: as text, a lone surrogate is an error.
#[derive(serde::Deserialize)]
#[serde(transparent)]
pub struct TextBytes<'a>(#[serde(borrow)] pub Cow<'a, [u8]>);

/// A JSON number as it is written: a double holds neither every id nor every amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NumberText<'a>(&'a str);

/// The first `MAX` items of an array: the shortest items take many times their text in memory.
#[derive(Clone, Debug)]
pub struct Bounded<T, const MAX: usize> {
    /// The items.
    pub items: Vec<T>,
    /// Whether the array has more items.
    pub more: bool,
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match TextBytes::deserialize(deserializer)?.0 {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => {
                // The three bytes of a lone surrogate are replaced one by one.
                let text = String::from_utf8_lossy(&bytes);
                Cow::Owned(text.replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}"))
            }
        }))
    }
}

// === impl NumberText ===

impl<'a> NumberText<'a> {
    /// Returns the text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }

    /// Returns the value if it is a count. A negative, fractional or huge number is none.
    pub fn as_count(&self) -> Option<u64> {
        let text = self.0.strip_suffix(".0").unwrap_or(self.0);
        text.parse().ok()
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

// === impl Bounded ===

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BoundedVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    /// serde's own error would repeat the text, many times as long where it has to be escaped.
    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::custom("a string instead of an array"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            match array.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(Bounded { items, more: false }),
            }
        }
        let mut more = false;
        while array.next_element::<IgnoredAny>()?.is_some() {
            more = true;
        }
        Ok(Bounded { items, more })
    }
}
