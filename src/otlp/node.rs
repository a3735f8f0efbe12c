//! An OTLP `AnyValue` as a flat list of nodes that borrow from the JSON they were read from.
//!
//! The protocol's own types cost a string for every key and every value, and work out the size of what lies deep inside again at every
//! level. Here a container knows the size of what it holds when it is closed, and writing is one pass over the list.

use std::borrow::Cow;

use super::wire::{begin, fixed64, part, part_len, varint, varint_len};

/// Field numbers of the protocol's messages, under the names they have there.
mod field {
    pub(super) const ANY_VALUE_STRING: u8 = 1;
    pub(super) const ANY_VALUE_BOOL: u8 = 2;
    pub(super) const ANY_VALUE_INT: u8 = 3;
    pub(super) const ANY_VALUE_DOUBLE: u8 = 4;
    pub(super) const ANY_VALUE_ARRAY: u8 = 5;
    pub(super) const ANY_VALUE_KVLIST: u8 = 6;
    /// Of `ArrayValue` and of `KeyValueList`.
    pub(super) const VALUES: u8 = 1;
    pub(super) const KEY_VALUE_KEY: u8 = 1;
    pub(super) const KEY_VALUE_VALUE: u8 = 2;
}

/// A value and where it stands. What a container holds follows it in the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node<'a> {
    /// Its name in a map or among attributes: it is a `KeyValue` there. `None` elsewhere.
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) content: Content<'a>,
    /// How many nodes it holds, over all levels.
    pub(super) inside: usize,
}

/// What an `AnyValue` can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Cow<'a, str>),
    /// Encoded elements of so many bytes.
    Array(usize),
    /// Encoded members of so many bytes.
    Map(usize),
}

// === impl Node ===

impl<'a> Node<'a> {
    /// A value that holds no others, or none yet.
    pub(super) fn new(key: Option<Cow<'a, str>>, content: Content<'a>) -> Self {
        Self {
            key,
            content,
            inside: 0,
        }
    }

    /// What it adds to the message it is a field of, with all it holds.
    pub(super) fn encoded_len(&self) -> usize {
        part_len(self.message_len())
    }

    /// Writes it as this field; what it holds is not written.
    pub(super) fn encode(&self, field: u8, buffer: &mut Vec<u8>) {
        begin(field, self.message_len(), buffer);
        if let Some(key) = &self.key {
            if !key.is_empty() {
                part(field::KEY_VALUE_KEY, key.as_bytes(), buffer);
            }
            begin(field::KEY_VALUE_VALUE, self.content.encoded_len(), buffer);
        }
        self.content.encode(buffer);
    }

    fn message_len(&self) -> usize {
        let value = self.content.encoded_len();
        match &self.key {
            None => value,
            Some(key) if key.is_empty() => part_len(value),
            Some(key) => part_len(key.len()) + part_len(value),
        }
    }
}

/// Writes a list of nodes, the first as this field.
pub(super) fn encode(nodes: &[Node<'_>], field: u8, buffer: &mut Vec<u8>) {
    let mut field = field;
    for node in nodes {
        node.encode(field, buffer);
        field = field::VALUES;
    }
}

/// The nodes that stand side by side in a list, without those inside them.
pub(super) fn siblings<'t, 'a>(
    nodes: &'t [Node<'a>],
) -> impl Iterator<Item = (usize, &'t Node<'a>)> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let index = next;
        let node = nodes.get(index)?;
        next += 1 + node.inside;
        Some((index, node))
    })
}

// === impl Content ===

impl Content<'_> {
    /// The size of the `AnyValue`.
    fn encoded_len(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 2,
            Self::Int(number) => 1 + varint_len(number.cast_unsigned()),
            Self::Double(_) => 9,
            Self::Text(text) => part_len(text.len()),
            Self::Array(len) | Self::Map(len) => part_len(*len),
        }
    }

    fn encode(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Null => {}
            Self::Bool(value) => varint(field::ANY_VALUE_BOOL, u64::from(*value), buffer),
            Self::Int(number) => varint(field::ANY_VALUE_INT, number.cast_unsigned(), buffer),
            Self::Double(number) => fixed64(field::ANY_VALUE_DOUBLE, number.to_bits(), buffer),
            Self::Text(text) => part(field::ANY_VALUE_STRING, text.as_bytes(), buffer),
            Self::Array(len) => begin(field::ANY_VALUE_ARRAY, *len, buffer),
            Self::Map(len) => begin(field::ANY_VALUE_KVLIST, *len, buffer),
        }
    }
}
