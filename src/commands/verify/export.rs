//! The export of a log store: JSON lines, of any size, each with records.
//!
//! A record is where its id or its number stands: among attributes of OTLP JSON, or as a key, also with underscores. The body of a record is
//! skipped, because it is an entry as the API wrote it, and may contain anything.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};

use jiff::Timestamp;
use orgdata_api::parse_time;
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::from_str;
use serde_json::value::RawValue;

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 16 << 20;

/// The size of a read.
const BUFFER: usize = 256 << 10;

/// The keys of an id, of a record's number, and of the stream that it is in.
const UID: &str = "log.record.uid";
const SEQUENCE: &str = "orgdata.record.sequence";
const STREAM: &str = "service.instance.id";

/// What has the attributes of a resource: in OTLP JSON and Elasticsearch, and in ClickHouse.
const RESOURCES: [&str; 2] = ["resource", "ResourceAttributes"];

/// The keys of a time: in OTLP JSON, VictoriaLogs and Splunk, Loki, Elasticsearch, and ClickHouse.
const TIMES: [&str; 6] = [
    "timeUnixNano",
    "_time",
    "timestamp",
    "@timestamp",
    "Timestamp",
    "TimeUnix",
];

/// Records are not searched below this depth. In OTLP JSON, that of the attributes is 7.
const MAX_DEPTH: u32 = 16;

/// A request of OTLP that was appended to an incomplete line begins like this.
const REQUEST: &str = "{\"resourceLogs\"";

/// Numbers above this one are nanoseconds since the epoch.
const MIN_NANOSECONDS: i128 = 100_000_000_000_000;

/// What was read of an export.
#[derive(Debug, Default)]
pub(super) struct ExportSummary {
    /// Records with an id or a number.
    pub(super) records: u64,
    /// Lines that are not empty.
    pub(super) lines: u64,
    /// Lines without a record.
    pub(super) without_id: u64,
    /// Lines that are not JSON in UTF-8.
    pub(super) broken: u64,
    /// Lines that are longer than the maximum. They are not read.
    pub(super) long: u64,
    /// The SHA-256 of all bytes, in hexadecimal.
    pub(super) sha256: String,
}

/// A record of an export.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Its id; empty if it has none.
    pub(super) id: String,
    pub(super) at: Option<Timestamp>,
    /// Its number, and the stream that it is in; empty if the export does not say.
    pub(super) sequence: Option<i64>,
    pub(super) stream: String,
    /// What a checkpoint says.
    pub(super) complete_through: Option<Timestamp>,
    pub(super) dead_letters: Option<String>,
}

/// What is known from around a part of a line.
#[derive(Clone, Debug, Default)]
struct Around {
    at: Option<Timestamp>,
    stream: Option<String>,
}

/// The members of an object, or the attributes of OTLP, which are a list of keys and values.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

/// An attribute of OTLP.
#[derive(Deserialize)]
struct Attribute<'a> {
    key: String,
    #[serde(borrow)]
    value: BTreeMap<String, &'a RawValue>,
}

/// Computes the digest of what is read.
struct Digested<R>(R, Context);

/// Reads an export, and takes each record.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read(file: impl Read, mut take: impl FnMut(Record)) -> io::Result<ExportSummary> {
    let mut reader = BufReader::with_capacity(BUFFER, Digested(file, Context::new(&SHA256)));
    let (mut export, mut line) = (ExportSummary::default(), Vec::new());
    loop {
        line.clear();
        let limit = MAX_LINE as u64 + 1;
        let length = reader.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if length == 0 {
            let digest = reader.into_inner().1.finish();
            let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
            export.sha256 = digits.collect();
            return Ok(export);
        }
        export.lines += u64::from(!line.trim_ascii().is_empty());
        if length > MAX_LINE && !line.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
            export.long += 1;
        } else if !line.trim_ascii().is_empty() {
            export.read(&line, &mut take);
        }
    }
}

// === impl ExportSummary ===

impl ExportSummary {
    fn read(&mut self, line: &[u8], take: &mut impl FnMut(Record)) {
        let mut records = Vec::new();
        let around = Around::default();
        if let Some(json) = parse(line) {
            find(json, &around, MAX_DEPTH, &mut records);
            self.without_id += u64::from(records.is_empty());
        } else {
            self.broken += 1;
            // A collector that was killed leaves an incomplete line, and the next one continues on it.
            let whole = str::from_utf8(line).ok();
            let whole = whole.and_then(|line| parse(&line.as_bytes()[line.rfind(REQUEST)?..]));
            if let Some(json) = whole {
                find(json, &around, MAX_DEPTH, &mut records);
            }
        }
        self.records += records.len() as u64;
        records.into_iter().for_each(take);
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Reads them, and what else is in a list.
    fn read(json: &'a RawValue) -> (Self, Vec<&'a RawValue>) {
        if !json.get().starts_with('[') {
            return (Self(from_str(json.get()).unwrap_or_default()), Vec::new());
        }
        let mut members = BTreeMap::new();
        let mut others: Vec<&RawValue> = from_str(json.get()).unwrap_or_default();
        others.retain(|item| {
            let attribute = from_str::<Attribute<'_>>(item.get()).ok();
            let member = attribute.and_then(|it| Some((it.key, it.value.into_values().next()?)));
            let is_other = member.is_none();
            members.extend(member);
            is_other
        });
        (Self(members), others)
    }

    /// Returns a member, also if its key has underscores, as in Loki.
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        let found = self.0.get(key);
        found
            .or_else(|| self.0.get(&key.replace('.', "_")))
            .copied()
    }

    fn text(&self, key: &str) -> Option<String> {
        let text: String = from_str(self.get(key)?.get()).ok()?;
        (!text.is_empty()).then_some(text)
    }

    /// Returns a number, which most stores write as text.
    fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.get().trim_matches('"').parse().ok()
    }

    /// Returns the stream of the records in it.
    fn stream(&self) -> Option<String> {
        let resource = || {
            let resource = RESOURCES.iter().find_map(|key| self.0.get(*key))?;
            let resource = Fields::read(resource).0;
            let attributes = resource.0.get("attributes").map(|it| Fields::read(it).0);
            attributes.unwrap_or(resource).text(STREAM)
        };
        self.text(STREAM).or_else(resource)
    }
}

// === impl Digested ===

impl<R: Read> Read for Digested<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        self.1.update(&buffer[..length]);
        Ok(length)
    }
}

fn parse(line: &[u8]) -> Option<&RawValue> {
    from_str(str::from_utf8(line).ok()?).ok()
}

/// Finds the records in a value, and in what is below it.
fn find(json: &RawValue, around: &Around, depth: u32, records: &mut Vec<Record>) {
    if depth == 0 || !json.get().starts_with(['{', '[']) {
        return;
    }
    let (members, others) = Fields::read(json);
    let own_time = TIMES.iter().find_map(|key| time_of(members.0.get(*key)?));
    let around = Around {
        at: own_time.or(around.at),
        stream: members.stream().or_else(|| around.stream.clone()),
    };
    let (id, sequence) = (members.text(UID), members.number(SEQUENCE));
    if id.is_some() || sequence.is_some() {
        let through = members.text("orgdata.checkpoint.complete_through");
        records.push(Record {
            id: id.unwrap_or_default(),
            at: around.at,
            sequence: sequence.filter(|number| *number > 0),
            stream: around.stream.clone().unwrap_or_default(),
            complete_through: through.and_then(|at| at.parse().ok()),
            dead_letters: members.text("orgdata.checkpoint.dead_letter_sequences"),
        });
    }
    let below = members.0.iter().filter(|(key, _)| *key != "body");
    for value in others.into_iter().chain(below.map(|(_, value)| *value)) {
        find(value, &around, depth - 1, records);
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
