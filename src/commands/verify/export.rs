//! The export of a log store: JSON lines. The ids of log records are looked up in the listing, so an export may have any size.
//!
//! An id is the string at `log.record.uid`, wherever it stands: in an attribute of OTLP JSON, or as a key, also with underscores. The body of
//! a record is skipped, because it is an entry as the API wrote it, and may contain anything.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _};

use jiff::Timestamp;
use orgdata_api::parse_time;
use serde_json::from_str;
use serde_json::value::RawValue;

use super::{Listed, Window, position};
use crate::audit::Entry;
use crate::ledger::{EventId, OWN_ID};

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 16 << 20;

/// The maximum number of ids that are kept to be shown, of those that are there twice and of unknown ones.
const MAX_KEPT: usize = 1000;

/// The key of an id, and its form in Loki.
const UID: &str = "log.record.uid";
const LOKI_UID: &str = "log_record_uid";

/// The keys of a time: in OTLP JSON, VictoriaLogs and Loki.
const TIMES: [&str; 3] = ["timeUnixNano", "_time", "timestamp"];

/// Ids are not searched below this depth. In OTLP JSON, that of an attribute is 9.
const MAX_DEPTH: u32 = 16;

/// A request of OTLP that was appended to an incomplete line begins like this.
const REQUEST: &str = "{\"resourceLogs\"";

/// Numbers above this one are nanoseconds since the epoch.
const MIN_NANOSECONDS: i128 = 100_000_000_000_000;

/// What an export has.
#[derive(Debug, Default)]
pub(super) struct Export {
    /// Ids, also those of gaps.
    pub(super) ids: u64,
    /// Lines that are not empty.
    pub(super) lines: u64,
    pub(super) without_id: u64,
    /// Lines that are not JSON in UTF-8.
    pub(super) broken: u64,
    /// Lines that are longer than the maximum. They are not read.
    pub(super) long: u64,
    /// Records that the API does not list, and that are not in the window or have no time.
    pub(super) outside: u64,
    /// Records that the API does not list although they are in the window, and the first of their ids.
    pub(super) unknown: u64,
    pub(super) unknown_ids: Vec<String>,
    /// The first ids that are there more than once.
    pub(super) repeated: BTreeMap<EventId, String>,
}

/// An id, and the time of its record.
type Found = (String, Option<Timestamp>);

/// Reads an export, and notes in the listing what it has. `listed` is sorted by id.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(
    mut reader: impl BufRead,
    listed: &mut [Listed],
    window: &Window,
) -> io::Result<Export> {
    let (mut export, mut line) = (Export::default(), Vec::new());
    loop {
        line.clear();
        let limit = MAX_LINE as u64 + 1;
        let length = reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(export);
        }
        export.lines += u64::from(!line.trim_ascii().is_empty());
        if length > MAX_LINE && !line.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
            export.long += 1;
        } else if !line.trim_ascii().is_empty() {
            export.read(&line, listed, window);
        }
    }
}

// === impl Export ===

impl Export {
    fn read(&mut self, line: &[u8], listed: &mut [Listed], window: &Window) {
        let mut ids = Vec::new();
        if let Some(json) = parse(line) {
            find(json, None, MAX_DEPTH, &mut ids);
            self.without_id += u64::from(ids.is_empty());
        } else {
            self.broken += 1;
            // A collector that was killed leaves an incomplete line, and the next one continues on it.
            let whole = str::from_utf8(line).ok();
            let whole = whole.and_then(|line| parse(&line.as_bytes()[line.rfind(REQUEST)?..]));
            if let Some(json) = whole {
                find(json, None, MAX_DEPTH, &mut ids);
            }
        }
        self.ids += ids.len() as u64;
        for (id, at) in ids {
            let identity = Entry::identity_of(&id);
            match position(listed, identity) {
                Ok(index) => {
                    let entry = &mut listed[index];
                    entry.found = entry.found.saturating_add(1);
                    if entry.is_repeated() && self.repeated.len() < MAX_KEPT {
                        self.repeated.insert(identity, id);
                    }
                }
                Err(_) if id.starts_with(OWN_ID) => {}
                Err(_) if at.is_some_and(|at| window.contains(&at)) => {
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

fn parse(line: &[u8]) -> Option<&RawValue> {
    from_str(str::from_utf8(line).ok()?).ok()
}

/// Finds the ids in a value of a record with this time, and in what is below it.
fn find(json: &RawValue, time: Option<Timestamp>, depth: u32, ids: &mut Vec<Found>) {
    if depth == 0 {
        return;
    }
    let items = from_str::<Vec<&RawValue>>(json.get()).unwrap_or_default();
    for item in items {
        find(item, time, depth - 1, ids);
    }
    let fields = from_str::<BTreeMap<String, &RawValue>>(json.get()).unwrap_or_default();
    let own_time = TIMES.iter().find_map(|key| time_of(fields.get(*key)?));
    let time = own_time.or(time);
    let text = |key: &str| from_str::<String>(fields.get(key)?.get()).ok();
    let attribute = || {
        let value = fields
            .get("value")
            .filter(|_| text("key").as_deref() == Some(UID))?;
        let mut value: BTreeMap<String, String> = from_str(value.get()).ok()?;
        value.remove("stringValue")
    };
    let id = text(UID).or_else(|| text(LOKI_UID)).or_else(attribute);
    ids.extend(id.filter(|id| !id.is_empty()).map(|id| (id, time)));
    for (_, field) in fields.into_iter().filter(|(key, _)| key != "body") {
        find(field, time, depth - 1, ids);
    }
}

/// Returns the time of a record: nanoseconds since the epoch, or what the API might write.
fn time_of(json: &RawValue) -> Option<Timestamp> {
    let text = json.get().trim_matches('"');
    match text.parse() {
        Ok(nanoseconds) if nanoseconds > MIN_NANOSECONDS => {
            Timestamp::from_nanosecond(nanoseconds).ok()
        }
        _ => parse_time(text),
    }
}
