//! A JSON array of which a bounded number of items is kept: the shortest items take many times their text in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// The first `MAX` items of an array.
#[derive(Clone, Debug)]
pub struct Bounded<T, const MAX: usize> {
    /// The items.
    pub items: Vec<T>,
    /// Whether the array has more items.
    pub more: bool,
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_past_the_bound_are_left_out_and_noticed() {
        for (text, items, more) in [
            ("[]", vec![], false),
            ("[1,2,3]", vec![1, 2, 3], false),
            ("[1,2,3,\"x\",{}]", vec![1, 2, 3], true),
        ] {
            let bounded: Bounded<u32, 3> = serde_json::from_str(text).expect("valid");
            assert_eq!((bounded.items, bounded.more), (items, more), "{text}");
        }
        assert!(serde_json::from_str::<Bounded<u32, 3>>("[1,2,3,4").is_err());
        assert!(serde_json::from_str::<Bounded<u32, 3>>("null").is_err());
        let error = serde_json::from_str::<Bounded<u32, 3>>("\"data\"").expect_err("a string");
        assert!(!error.to_string().contains("data"), "{error}");
    }
}
