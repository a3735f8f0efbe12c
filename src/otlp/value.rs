//! JSON text straight to the nodes of an OTLP `AnyValue`: order, nulls and exact integers kept, depth and size bounded.

use std::borrow::Cow;
use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::node::{Content, Node, siblings};
use crate::api::Text;

/// How deep maps and arrays may nest; what lies deeper becomes a string that holds its JSON. A map costs three messages of
/// nesting, and protobuf decoders commonly stop at a hundred.
pub const MAX_DEPTH: usize = 30;

/// The encoded size to which a value is cut. With attributes and envelope it stays below the 3 MiB of a request, and that below the
/// 4 MiB which a gRPC server takes by default.
pub const MAX_VALUE_BYTES: usize = 2_750_000;

/// Stands where something was cut; what was cut follows.
pub const CUT_MARK: &str = "[cut: ";

/// An upper bound of what one value costs beside its text: tags and lengths of four nested messages.
const OVERHEAD: usize = 24;

/// The smallest double beyond which neighbouring integers are the same double.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Nodes of an ordinary entry; more are found room for as they come.
const USUAL_NODES: usize = 96;

/// A JSON text as an OTLP value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mapped<'a> {
    /// The value, and after it what it holds.
    pub(super) nodes: Vec<Node<'a>>,
    /// Whether something was cut from it.
    pub(super) cut: bool,
}

/// One conversion: what it has found, and what it has left.
struct Reader<'a> {
    nodes: Vec<Node<'a>>,
    remaining: usize,
    cut: bool,
    /// A number was met that a double may have changed.
    inexact: bool,
    /// Numbers are read from their text.
    exact: bool,
}

/// The place of the next value.
struct Seed<'r, 'a> {
    reader: &'r mut Reader<'a>,
    key: Option<Cow<'a, str>>,
    depth: usize,
}

// === impl Mapped ===

impl<'a> Mapped<'a> {
    /// Reads a JSON text. `None` when it is no JSON.
    pub(super) fn from_json(json: &'a str) -> Option<Self> {
        let fast = Reader::new(false).read(json);
        if let Some(fast) = fast.ok().filter(|fast| !fast.inexact) {
            return Some(fast.into());
        }
        // A number that a double cannot hold, or text that is no Unicode: read again, slower, from the source's own digits.
        Some(Reader::new(true).read(json).ok()?.into())
    }

    /// A text that is no JSON, as a string.
    pub(super) fn from_text(text: &'a str) -> Self {
        let mut reader = Reader::new(false);
        let content = reader.text(Cow::Borrowed(text));
        reader.push(None, content);
        reader.into()
    }
}

impl<'a> From<Reader<'a>> for Mapped<'a> {
    fn from(reader: Reader<'a>) -> Self {
        Self {
            nodes: reader.nodes,
            cut: reader.cut,
        }
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    fn new(exact: bool) -> Self {
        Self {
            nodes: Vec::with_capacity(USUAL_NODES),
            remaining: MAX_VALUE_BYTES,
            cut: false,
            inexact: false,
            exact,
        }
    }

    fn read(mut self, json: &'a str) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        Seed {
            reader: &mut self,
            key: None,
            depth: 0,
        }
        .deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(self)
    }

    /// Takes what a value costs from what is left; `false` when there is not enough.
    fn take(&mut self, bytes: usize) -> bool {
        let cost = bytes.saturating_add(OVERHEAD);
        let enough = cost <= self.remaining;
        if enough {
            self.remaining -= cost;
        }
        enough
    }

    fn push(&mut self, key: Option<Cow<'a, str>>, content: Content<'a>) {
        self.nodes.push(Node::new(key, content));
    }

    /// A mark that stands for `gone` values.
    fn push_gone(&mut self, key: Option<&'static str>, gone: usize) {
        if gone > 0 {
            self.cut = true;
            self.push(
                key.map(Cow::Borrowed),
                Content::Text(Cow::Owned(format!("{CUT_MARK}{gone} more values]"))),
            );
        }
    }

    /// Everything after the container at `place` is inside it.
    fn close(&mut self, place: usize, content: fn(usize) -> Content<'a>) {
        let inside = &self.nodes[place + 1..];
        let (count, len) = (
            inside.len(),
            siblings(inside).map(|(_, node)| node.encoded_len()).sum(),
        );
        self.nodes[place].inside = count;
        self.nodes[place].content = content(len);
    }

    /// A string, cut to what is left.
    fn text(&mut self, text: Cow<'a, str>) -> Content<'a> {
        if self.take(text.len()) {
            return Content::Text(text);
        }
        self.cut = true;
        let left = std::mem::take(&mut self.remaining).saturating_sub(OVERHEAD);
        Content::Text(Cow::Owned(shortened(&text, left)))
    }

    /// A number from its own digits: an integer that does not fit 64 bits, and what no double can hold, stay text.
    fn number(&mut self, text: &'a str) -> Content<'a> {
        let integer = !text.contains(['.', 'e', 'E']);
        match (integer, text.parse::<i64>(), text.parse::<f64>()) {
            (true, Ok(number), _) => Content::Int(number),
            (false, _, Ok(number)) if number.is_finite() => Content::Double(number),
            _ => self.text(Cow::Borrowed(text)),
        }
    }
}

/// The beginning of a text, to a character's boundary, and a mark that says how much is gone.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT_MARK}{} more bytes]", &text[..end], text.len() - end)
}

// === impl Seed ===

impl<'a> Seed<'_, 'a> {
    fn push<E>(self, content: Content<'a>) -> Result<(), E> {
        self.reader.push(self.key, content);
        Ok(())
    }

    fn push_text<E>(self, text: Cow<'a, str>) -> Result<(), E> {
        let content = self.reader.text(text);
        self.push(content)
    }

    /// A value from its own text: where numbers must be exact, and where it may be too deep.
    fn raw<E: de::Error>(self, raw: &'a str) -> Result<(), E> {
        match raw.as_bytes().first() {
            Some(b'{' | b'[') if self.depth >= MAX_DEPTH => {
                self.reader.cut = true;
                self.push_text(Cow::Owned(format!(
                    "{CUT_MARK}nested deeper than {MAX_DEPTH} levels] {raw}"
                )))
            }
            Some(b'-' | b'0'..=b'9') => {
                let content = self.reader.number(raw);
                self.push(content)
            }
            Some(b'"') => {
                // An escape that is half a character is no text: then the escapes themselves are kept.
                let escaped = || Cow::Borrowed(&raw[1..raw.len() - 1]);
                self.push_text(
                    serde_json::from_str::<Text<'a>>(raw).map_or_else(|_| escaped(), |text| text.0),
                )
            }
            _ => serde_json::Deserializer::from_str(raw)
                .deserialize_any(self)
                .map_err(E::custom),
        }
    }
}

impl<'a> DeserializeSeed<'a> for Seed<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.reader.exact || self.depth >= MAX_DEPTH {
            let raw = <&RawValue>::deserialize(deserializer)?;
            return self.raw(raw.get());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Seed<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.push(Content::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.push(Content::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.push(Content::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.push(i64::try_from(value).map_or_else(
            |_| Content::Text(Cow::Owned(value.to_string())),
            Content::Int,
        ))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.reader.inexact |= value.abs() >= EXACT_INTEGERS;
        self.push(Content::Double(value))
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'a str) -> Result<(), E> {
        self.push_text(Cow::Borrowed(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.push_text(Cow::Owned(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { reader, key, depth } = self;
        let place = reader.nodes.len();
        reader.push(key, Content::Null);
        let mut gone = 0;
        while reader.take(0) {
            if items
                .next_element_seed(Seed {
                    reader: &mut *reader,
                    key: None,
                    depth: depth + 1,
                })?
                .is_none()
            {
                reader.close(place, Content::Array);
                return Ok(());
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            gone += 1;
        }
        reader.push_gone(None, gone);
        reader.close(place, Content::Array);
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { reader, key, depth } = self;
        let place = reader.nodes.len();
        reader.push(key, Content::Null);
        let mut gone = 0;
        while let Some(Text(key)) = members.next_key()? {
            if gone > 0 || !reader.take(key.len()) {
                members.next_value::<IgnoredAny>()?;
                gone += 1;
                continue;
            }
            members.next_value_seed(Seed {
                reader: &mut *reader,
                key: Some(key),
                depth: depth + 1,
            })?;
        }
        reader.push_gone(Some("…"), gone);
        reader.close(place, Content::Map);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
