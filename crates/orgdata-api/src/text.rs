//! JSON strings, borrowed from a page if they have no escapes.

use std::borrow::Cow;
use std::ops::Deref;

use serde::{Deserialize, Deserializer};

/// A JSON string. Lone surrogates, which JSON allows and UTF-8 does not, become U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub Cow<'a, str>);

/// The bytes of a JSON string: as text, a lone surrogate is an error.
#[derive(Deserialize)]
#[serde(transparent)]
struct Bytes<'a>(#[serde(borrow)] Cow<'a, [u8]>);

// === impl Text ===

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Bytes::deserialize(deserializer)?.0 {
            Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
            Cow::Owned(bytes) => {
                // The three bytes of a lone surrogate are replaced one by one.
                let text = String::from_utf8_lossy(&bytes);
                Cow::Owned(text.replace("\u{fffd}\u{fffd}\u{fffd}", "\u{fffd}"))
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_surrogate_becomes_one_replacement_character() {
        for (json, expected) in [
            (r#""plain caf\u00e9 \ud83d\ude00""#, "plain café \u{1f600}"),
            (r#""Launch \ud83d""#, "Launch \u{fffd}"),
            (
                r#""\ud83d\ud83d x \udc00y""#,
                "\u{fffd}\u{fffd} x \u{fffd}y",
            ),
        ] {
            let text: Text<'_> = serde_json::from_str(json).expect("a string");
            assert_eq!(&*text, expected, "{json}");
        }
        assert!(matches!(
            serde_json::from_str(r#""plain""#),
            Ok(Text(Cow::Borrowed("plain")))
        ));
        assert!(matches!(
            serde_json::from_str(r#""\\""#),
            Ok(Text(Cow::Owned(_)))
        ));
    }

    #[test]
    fn other_types_are_not_text() {
        for json in ["7", "null", "[1,2]", "{}", "true"] {
            let error = serde_json::from_str::<Text<'_>>(json).expect_err(json);
            assert!(
                error.to_string().contains("expected a byte array"),
                "{error}"
            );
        }
    }
}
