//! The export of a log store: JSON lines. The ids of log records are looked up in the listing, so an export may have any size.
//!
//! An id is the string at `log.record.uid`, wherever it stands: in an attribute of OTLP JSON, or as a key, also with underscores. The body of
//! a record is skipped, because it is an entry as the API wrote it, and may contain anything.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, Read as _};

use indicatif::ProgressBar;
use jiff::Timestamp;
use orgdata_api::parse_time;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Listed, Window, position};
use crate::audit::Entry;
use crate::ledger::{EventId, GAP_ID};

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 16 << 20;

/// The maximum number of ids that are kept to be shown, of those that are there twice and of unknown ones.
const MAX_KEPT: usize = 1000;

/// The key of an id.
const UID: &str = "log.record.uid";

/// A request of OTLP that was appended to an incomplete line begins like this.
const REQUEST: &[u8] = b"{\"resourceLogs\"";

/// Numbers above this one are nanoseconds since the epoch.
const MIN_NANOSECONDS: i128 = 100_000_000_000_000;

/// What an export has.
#[derive(Debug, Default)]
pub(super) struct Export {
    /// Ids, also those of gaps.
    pub(super) ids: u64,
    /// Lines that are not empty.
    pub(super) lines: u64,
    pub(super) lines_without_id: u64,
    /// Lines that are not JSON in UTF-8.
    pub(super) broken_lines: u64,
    /// Lines that are longer than the maximum. They are not read.
    pub(super) long_lines: u64,
    /// Records that the API does not list, and that are not in the window or have no time.
    pub(super) outside: u64,
    /// Records that the API does not list although they are in the window, and the first of their ids.
    pub(super) unknown: u64,
    pub(super) unknown_ids: Vec<String>,
    /// The first ids that are there more than once.
    pub(super) repeated: BTreeMap<EventId, String>,
}

/// The ids of a line, each with the time of its record.
#[derive(Default)]
struct Line {
    ids: Vec<(String, Option<Timestamp>)>,
    /// The last string at a place for a time, and whether the last one at a place for a key is that of an id.
    time: Option<Timestamp>,
    is_uid: bool,
}

/// What a string is at a place of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Id,
    Time,
    Key,
    Other,
}

/// A value of a line.
struct Value<'l> {
    line: &'l mut Line,
    place: Place,
}

/// The keys that matter.
#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier)]
enum Member {
    #[serde(rename = "log.record.uid", alias = "log_record_uid")]
    Uid,
    #[serde(rename = "key")]
    Key,
    #[serde(rename = "value")]
    Value,
    #[serde(rename = "stringValue")]
    StringValue,
    #[serde(rename = "timeUnixNano", alias = "_time", alias = "timestamp")]
    Time,
    #[serde(rename = "body")]
    Body,
    #[serde(other)]
    Other,
}

/// Reads an export, and notes in the listing what it has. `listed` is sorted by id.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(
    mut reader: impl BufRead,
    listed: &mut [Listed],
    window: &Window,
    bar: &ProgressBar,
) -> io::Result<Export> {
    let (mut export, mut line, mut bytes) = (Export::default(), Line::default(), Vec::new());
    loop {
        bytes.clear();
        let limit = MAX_LINE as u64 + 1;
        let length = reader.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
        if length == 0 {
            return Ok(export);
        }
        bar.inc(length as u64);
        if length > MAX_LINE && !bytes.ends_with(b"\n") {
            bar.inc(reader.skip_until(b'\n')? as u64);
            (export.lines, export.long_lines) = (export.lines + 1, export.long_lines + 1);
        } else if !bytes.trim_ascii().is_empty() {
            export.lines += 1;
            export.read(&bytes, &mut line, listed, window);
        }
    }
}

// === impl Export ===

impl Export {
    fn read(&mut self, json: &[u8], line: &mut Line, listed: &mut [Listed], window: &Window) {
        if !line.parse(json) {
            self.broken_lines += 1;
            // A collector that was killed leaves an incomplete line, and the next one continues on it.
            let mut starts = json.windows(REQUEST.len());
            let start = starts.rposition(|text| text == REQUEST);
            let is_read = start.is_some_and(|start| start > 0 && line.parse(&json[start..]));
            if !is_read {
                return;
            }
        } else if line.ids.is_empty() {
            self.lines_without_id += 1;
        }
        for (id, at) in line.ids.drain(..) {
            self.ids += 1;
            let identity = Entry::identity_of(&id);
            match position(listed, identity) {
                Ok(index) => {
                    let entry = &mut listed[index];
                    entry.found = entry.found.saturating_add(1);
                    if entry.is_repeated() && self.repeated.len() < MAX_KEPT {
                        self.repeated.insert(identity, id);
                    }
                }
                Err(_) if id.starts_with(GAP_ID) => {}
                Err(_) if at.is_some_and(|at| window.contains(at)) => {
                    self.unknown += 1;
                    if self.unknown_ids.len() < MAX_KEPT {
                        self.unknown_ids.push(id);
                    }
                }
                Err(_) => self.outside += 1,
            }
        }
    }
}

// === impl Line ===

impl Line {
    /// Reads a line, and reports whether it is JSON. Otherwise it has no ids.
    fn parse(&mut self, json: &[u8]) -> bool {
        self.ids.clear();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let value = Value {
            line: self,
            place: Place::Other,
        };
        let parsed = value.deserialize(&mut deserializer);
        let is_json = parsed.and_then(|()| deserializer.end()).is_ok();
        if !is_json {
            self.ids.clear();
        }
        is_json
    }
}

// === impl Value ===

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.place {
            Place::Id if !text.is_empty() => self.line.ids.push((text.to_owned(), None)),
            Place::Time => self.line.time = time(text),
            Place::Key => self.line.is_uid = text == UID,
            _ => {}
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        if self.place == Place::Time {
            self.line.time = time(&number.to_string());
        }
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { line, place } = self;
        while array.next_element_seed(Value { line, place })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { line, place } = self;
        let (first, mut at, mut is_uid) = (line.ids.len(), None, false);
        while let Some(key) = object.next_key::<Member>()? {
            let place = match key {
                Member::Body => {
                    object.next_value::<IgnoredAny>()?;
                    continue;
                }
                Member::Uid => Place::Id,
                Member::Value if is_uid => Place::Id,
                Member::StringValue => place,
                Member::Time => Place::Time,
                Member::Key => Place::Key,
                Member::Value | Member::Other => Place::Other,
            };
            (line.time, line.is_uid) = (None, false);
            object.next_value_seed(Value { line, place })?;
            match key {
                Member::Time => at = line.time.or(at),
                Member::Key => is_uid = line.is_uid,
                _ => {}
            }
        }
        // The time of a record stands beside its attributes.
        for (_, time) in &mut line.ids[first..] {
            *time = time.or(at);
        }
        Ok(())
    }
}

/// Returns the time of a record: nanoseconds since the epoch, or what the API might write.
fn time(text: &str) -> Option<Timestamp> {
    match text.parse() {
        Ok(nanoseconds) if nanoseconds > MIN_NANOSECONDS => {
            Timestamp::from_nanosecond(nanoseconds).ok()
        }
        _ => parse_time(text),
    }
}
