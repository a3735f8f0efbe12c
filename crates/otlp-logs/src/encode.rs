//! Writes JSON as the bytes of an OTLP `AnyValue`, in one pass.
//!
//! A serde visitor appends each value to the buffer while serde_json parses. A container's length is written when it
//! ends. The same pass collects the scalars at the caller's [places](Place), applies [`Redaction`], bounds depth and size, and
//! keeps the first of equal keys in an object that is not a place.
//!
//! serde_json rejects half of a surrogate pair and rounds numbers beyond 64 bits. Both are rare: then [`repair`] rewrites
//! the JSON, and the pass is repeated.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use prost::encoding::{bool, double, encode_varint, encoded_len_varint, int64};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::place::{Found, Place, Scalar};

/// The maximum nesting. Deeper containers become strings with their JSON: a map costs three protobuf messages, and
/// decoders commonly stop at a hundred.
const MAX_DEPTH: usize = 30;

/// The size to which a value is cut, in bytes: with attributes and resource it fits a request of 3 MiB.
const MAX_BYTES: usize = 2_750_000;

/// The room that a member or element needs beside its text.
const OVERHEAD: usize = 64;

/// From here on, neighbouring integers are the same double.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// Marks a place where something was cut.
const CUT: &str = "[cut: ";

/// Replaces a redacted value.
const REDACTED: &str = "[REDACTED]";

/// What is not written.
#[derive(Clone, Debug, Default)]
pub struct Redaction {
    /// What may be written.
    pub allowed: Allowed,
    /// Paths whose values become `[REDACTED]`, wherever in a value they begin. A path is the keys of members joined with dots; every
    /// element of an array is searched. A key that continues a path after a dot is on it too. A string in place of an object on
    /// such a path becomes `[REDACTED]`, because it may contain the value.
    pub replaced: Vec<String>,
}

/// What may be written of a value.
#[derive(Clone, Copy, Debug, Default)]
pub enum Allowed {
    /// Everything.
    #[default]
    All,
    /// A scalar. An array or object becomes null.
    Scalar,
    /// Nothing: it becomes null.
    Null,
    /// These members of an object. Others are left out, and anything but an object becomes null.
    Members(&'static [(&'static str, Self)]),
}

/// No member has this name. With this path, a string in place of the whole value is replaced.
const WHOLE: &[&str] = &["\0"];

/// The state of one pass.
struct Pass<'a, 'r> {
    out: &'r mut Vec<u8>,
    /// The length of `out` at which cutting begins.
    end: usize,
    redaction: &'r Redaction,
    found: Found<'a>,
    inexact: bool,
}

/// The next value.
struct Value<'p, 'a, 'r, P> {
    pass: &'p mut Pass<'a, 'r>,
    depth: usize,
    place: P,
    allowed: Allowed,
    /// The rest of the paths that lead here.
    paths: &'p [&'r str],
}

/// A member's name, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

/// Field numbers of `AnyValue`, `ArrayValue`, `KeyValueList` and `KeyValue`.
mod field {
    pub(super) const STRING: u8 = 1;
    pub(super) const BOOL: u32 = 2;
    pub(super) const INT: u32 = 3;
    pub(super) const DOUBLE: u32 = 4;
    pub(super) const ARRAY: u8 = 5;
    pub(super) const MAP: u8 = 6;
    pub(super) const VALUES: u8 = 1;
    pub(super) const KEY: u8 = 1;
    pub(super) const VALUE: u8 = 2;
}

/// Appends JSON as an `AnyValue` and returns the scalars at the places. Text that is not JSON becomes a string, or only its
/// length if something has to be redacted. `repaired` holds the JSON if it has to be rewritten, which is rare.
pub fn any_value<'a, P: Place>(
    json: &'a str,
    redaction: &Redaction,
    repaired: &'a mut String,
    out: &mut Vec<u8>,
) -> Found<'a> {
    if let Some(found) = pass::<P>(json, false, redaction, out) {
        return found;
    }
    *repaired = repair(json);
    if let Some(found) = pass::<P>(repaired, true, redaction, out) {
        return found;
    }
    let mut found = Found::none(P::COUNT);
    found.is_cut = json.len() > MAX_BYTES;
    if redaction.is_empty() {
        bytes(field::STRING, shortened(json, MAX_BYTES).as_bytes(), out);
    } else {
        let text = format!("{REDACTED} {} bytes that are not JSON", json.len());
        bytes(field::STRING, text.as_bytes(), out);
    }
    found
}

/// Returns `None`, with `out` unchanged, if `json` is not JSON or, unless it was repaired, contains a number that a double
/// changes.
fn pass<'a, P: Place>(
    json: &'a str,
    is_repaired: bool,
    redaction: &Redaction,
    out: &mut Vec<u8>,
) -> Option<Found<'a>> {
    let start = out.len();
    let mut pass = Pass {
        end: start + MAX_BYTES,
        out,
        redaction,
        found: Found::none(P::COUNT),
        inexact: false,
    };
    let value = Value {
        pass: &mut pass,
        depth: 0,
        place: P::ROOT,
        allowed: redaction.allowed,
        paths: match redaction.replaced.is_empty() {
            true => &[],
            false => WHOLE,
        },
    };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let written = value
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    if written.is_ok() && (is_repaired || !pass.inexact) {
        return Some(pass.found);
    }
    out.truncate(start);
    None
}

/// Replaces halves of surrogate pairs by U+FFFD, and numbers that neither an `i64` nor a double holds by strings.
fn repair(json: &str) -> String {
    let mut repaired = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        repaired.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(text) = rest.strip_prefix('"') {
            repaired.push('"');
            rest = repair_string(text, &mut repaired);
            continue;
        }
        let is_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let number = &rest[..end];
        let fits = if number.contains(['.', 'e', 'E']) {
            number.parse().is_ok_and(f64::is_finite)
        } else {
            number.parse::<i64>().is_ok()
        };
        let quote = if fits { "" } else { "\"" };
        repaired.extend([quote, number, quote]);
        rest = &rest[end..];
    }
    repaired + rest
}

/// Repairs a string without its first quote, and returns what follows it.
fn repair_string<'t>(text: &'t str, repaired: &mut String) -> &'t str {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\\']) {
        repaired.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix('"') {
            repaired.push('"');
            return after;
        }
        let length = match unit(rest) {
            Some(0xd800..=0xdbff) => match rest.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => 12,
                _ => 0,
            },
            Some(0xdc00..=0xdfff) => 0,
            // The escaped character may be a quote.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        if length == 0 {
            repaired.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[6..];
        } else {
            repaired.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    repaired.push_str(rest);
    ""
}

/// Returns a text of at most `max` bytes and a mark that says how much is missing.
pub(crate) fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let missing = text.len() - end;
    Cow::Owned(format!("{}{CUT}{missing} more bytes]", &text[..end]))
}

/// Begins a length-delimited field. [`close`] writes its length.
#[inline]
pub(crate) fn open(field: u8, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[field << 3 | 2, 0]);
    out.len()
}

/// Ends the field whose content begins at `start`.
#[inline]
pub(crate) fn close(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return;
    }
    // A length of more than one byte needs room.
    let more = encoded_len_varint(length as u64) - 1;
    out.resize(out.len() + more, 0);
    out.copy_within(start..start + length, start + more);
    encode_varint(length as u64, &mut &mut out[start - 1..start + more]);
}

/// Writes tag and length of a length-delimited field.
#[inline]
pub(crate) fn header(field: u8, length: usize, out: &mut Vec<u8>) {
    let tag = field << 3 | 2;
    if length < 0x80 {
        out.extend_from_slice(&[tag, length as u8]);
    } else {
        out.push(tag);
        encode_varint(length as u64, out);
    }
}

/// Writes a string or bytes field.
#[inline]
pub(crate) fn bytes(field: u8, bytes: &[u8], out: &mut Vec<u8>) {
    header(field, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Writes an `AnyValue` with a scalar.
pub(crate) fn scalar(value: &Scalar<'_>, out: &mut Vec<u8>) {
    match value {
        Scalar::Absent => {}
        Scalar::Text(text) => bytes(field::STRING, text.as_bytes(), out),
        Scalar::Bool(value) => bool::encode(field::BOOL, value, out),
        Scalar::Int(value) => int64::encode(field::INT, value, out),
        Scalar::Double(value) => double::encode(field::DOUBLE, value, out),
    }
}

/// Writes a `KeyValue` with a scalar.
pub(crate) fn key_value(field: u8, key: &str, value: &Scalar<'_>, out: &mut Vec<u8>) {
    let start = open(field, out);
    bytes(field::KEY, key.as_bytes(), out);
    let inner = open(field::VALUE, out);
    scalar(value, out);
    close(inner, out);
    close(start, out);
}

// === impl Redaction ===

impl Redaction {
    /// Returns whether everything is written.
    pub fn is_empty(&self) -> bool {
        matches!(self.allowed, Allowed::All) && self.replaced.is_empty()
    }

    /// Returns what is left of the paths below a member, or `None` if its value is replaced.
    #[inline]
    fn below<'r>(&'r self, paths: &[&'r str], key: &str) -> Option<Vec<&'r str>> {
        let mut below = Vec::new();
        let begin = self.replaced.iter().map(String::as_str);
        for path in begin.chain(paths.iter().copied()) {
            if let Some(rest) = path.strip_prefix(key) {
                if rest.is_empty() {
                    return None;
                }
                below.extend(rest.strip_prefix('.'));
            } else if key
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('.'))
            {
                return None;
            }
        }
        Some(below)
    }
}

// === impl Allowed ===

impl Allowed {
    /// Returns what may be written of a member of an object, or `None` if it is left out.
    #[inline]
    fn member(self, key: &str) -> Option<Self> {
        match self {
            Self::Members(members) => {
                let mut members = members.iter();
                members
                    .find(|(name, _)| *name == key)
                    .map(|(_, allowed)| *allowed)
            }
            allowed => Some(allowed),
        }
    }
}

// === impl Pass ===

impl Pass<'_, '_> {
    fn has_room(&self, bytes: usize) -> bool {
        self.out.len() + bytes + OVERHEAD <= self.end
    }

    fn text(&mut self, text: &str) {
        let room = self.end.saturating_sub(self.out.len() + OVERHEAD);
        self.found.is_cut |= text.len() > room;
        bytes(field::STRING, shortened(text, room).as_bytes(), self.out);
    }
}

// === impl Value ===

impl<'a, P: Place> Value<'_, 'a, '_, P> {
    fn scalar<E>(self, value: Scalar<'a>) -> Result<(), E> {
        match &value {
            _ if matches!(self.allowed, Allowed::Members(_)) => return Ok(()),
            Scalar::Text(_) if !self.paths.is_empty() => {
                self.pass.text(REDACTED);
                return Ok(());
            }
            Scalar::Text(text) => self.pass.text(text),
            value => scalar(value, self.pass.out),
        }
        self.pass.found.set(self.place, value);
        Ok(())
    }

    /// Writes a value that must not be nested further.
    fn deepest<E: Error>(self, json: &'a str) -> Result<(), E> {
        if !json.starts_with(['{', '[']) {
            let mut deserializer = serde_json::Deserializer::from_str(json);
            return deserializer.deserialize_any(self).map_err(E::custom);
        }
        self.pass.found.is_cut = true;
        if self.pass.redaction.is_empty() {
            let mark = format!("{CUT}nested deeper than {MAX_DEPTH} levels] {json}");
            self.pass.text(&mark);
        } else {
            self.pass.text(REDACTED);
        }
        Ok(())
    }
}

impl<'a, P: Place> DeserializeSeed<'a> for Value<'_, 'a, '_, P> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.depth < MAX_DEPTH {
            return deserializer.deserialize_any(self);
        }
        let json = <&RawValue>::deserialize(deserializer)?;
        self.deepest(json.get())
    }
}

impl<'a, P: Place> Visitor<'a> for Value<'_, 'a, '_, P> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Scalar::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.scalar(Scalar::Text(value.to_string().into())),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.pass.inexact |= value.abs() >= INEXACT;
        self.scalar(Scalar::Double(value))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<(), E> {
        self.scalar(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { pass, paths, .. } = self;
        if !matches!(self.allowed, Allowed::All) {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        let start = open(field::ARRAY, pass.out);
        while pass.has_room(0) {
            let element = open(field::VALUES, pass.out);
            let seed = Value {
                pass: &mut *pass,
                depth: self.depth + 1,
                place: P::OTHER,
                allowed: self.allowed,
                paths,
            };
            if elements.next_element_seed(seed)?.is_none() {
                pass.out.truncate(element - 2);
                close(start, pass.out);
                return Ok(());
            }
            close(element, pass.out);
        }
        while elements.next_element::<IgnoredAny>()?.is_some() {
            pass.found.is_cut = true;
        }
        close(start, pass.out);
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { pass, .. } = self;
        if matches!(self.allowed, Allowed::Scalar) {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        let is_place = self.place.index() != P::OTHER.index();
        let mut keys = BTreeSet::new();
        let start = open(field::MAP, pass.out);
        while let Some(Key(key)) = members.next_key()? {
            let allowed = self.allowed.member(&key);
            let Some(allowed) = allowed.filter(|_| is_place || keys.insert(key.clone())) else {
                members.next_value::<IgnoredAny>()?;
                continue;
            };
            if !pass.has_room(key.len()) {
                members.next_value::<IgnoredAny>()?;
                pass.found.is_cut = true;
                continue;
            }
            let member = open(field::VALUES, pass.out);
            if !key.is_empty() {
                bytes(field::KEY, key.as_bytes(), pass.out);
            }
            let value = open(field::VALUE, pass.out);
            match (allowed, pass.redaction.below(self.paths, &key)) {
                (Allowed::Null, _) => drop(members.next_value::<IgnoredAny>()?),
                (_, None) => {
                    members.next_value::<IgnoredAny>()?;
                    pass.text(REDACTED);
                }
                (allowed, Some(paths)) => members.next_value_seed(Value {
                    pass: &mut *pass,
                    depth: self.depth + 1,
                    place: self.place.below(&key),
                    allowed,
                    paths: &paths,
                })?,
            }
            close(value, pass.out);
            close(member, pass.out);
        }
        close(start, pass.out);
        Ok(())
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
