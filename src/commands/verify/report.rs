//! What `verify` prints: a line for each entry that is not as it should be, and a summary.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::ValueEnum;
use indicatif::ProgressBar;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::export::Export;
use super::{Failure, Window};
use crate::audit::Entry;
use crate::commands::printed;
use crate::util::one_line;

/// The maximum number of entries with one result in the text.
const MAX_SHOWN: u64 = 20;

/// The maximum length of an id or a type in the text, in characters.
const MAX_WORD: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    Text,
    Json,
}

/// The result; each number is one of entries.
#[derive(Debug)]
pub(super) struct Summary {
    pub(super) window: Window,
    pub(super) listed: u64,
    pub(super) missing: u64,
    /// Missing ones that the API did not list the second time.
    pub(super) gone: u64,
    /// They are in the export more than once.
    pub(super) repeated: u64,
    /// They have no id, and cannot be compared.
    pub(super) without_id: u64,
}

/// Prints to standard output, or to standard error if that has log records.
pub(super) struct Report {
    format: ReportFormat,
    out: Box<dyn Write + Send>,
    bar: ProgressBar,
    /// The number of lines for entries with each result.
    shown: BTreeMap<String, u64>,
    /// Nothing is printed after an error.
    result: io::Result<()>,
}

// === impl Summary ===

impl Summary {
    pub(super) fn new(window: Window, without_id: u64) -> Self {
        Self {
            window,
            listed: 0,
            missing: 0,
            gone: 0,
            repeated: 0,
            without_id,
        }
    }
}

// === impl Report ===

impl Report {
    pub(super) fn new(format: ReportFormat, to_stderr: bool, bar: ProgressBar) -> Self {
        Self {
            format,
            out: match to_stderr {
                true => Box::new(io::stderr()),
                false => Box::new(io::stdout()),
            },
            bar,
            shown: BTreeMap::new(),
            result: Ok(()),
        }
    }

    pub(super) fn missing(
        &mut self,
        entry: &Entry<'_>,
        at: Timestamp,
        dead_letter: Option<&String>,
    ) {
        let (kind, id) = (entry.activity_type(), entry.id_text().unwrap_or_default());
        let mut text = format!(
            "{at:.3}  {}  {}",
            word(kind.as_deref().unwrap_or("none")),
            word(&id)
        );
        if let Some(letter) = dead_letter {
            text += &format!("  dead letter {letter}");
        }
        let json = json!({ "result": "missing", "id": id, "type": kind, "created_at": at, "dead_letter": dead_letter });
        self.line(&text, &json);
    }

    pub(super) fn repeated(&mut self, id: &str, times: u32) {
        let json = json!({ "result": "repeated", "id": id, "times": times });
        self.line(&format!("{}  {times} times", word(id)), &json);
    }

    pub(super) fn unknown(&mut self, id: &str) {
        self.line(&word(id), &json!({ "result": "unknown", "id": id }));
    }

    pub(super) fn rejected(&mut self, id: Option<&str>, said: &str) {
        let json = json!({ "result": "rejected", "id": id, "message": said });
        let id = id.map_or(String::new(), |id| word(id) + "  ");
        self.line(&(id + said), &json);
    }

    /// Prints the summary. `sent` is the number of records that the collector accepted and rejected.
    ///
    /// # Errors
    /// If anything could not be printed.
    pub(super) fn summary(
        &mut self,
        summary: &Summary,
        export: &Export,
        sent: Option<(u64, u64)>,
    ) -> Result<(), Failure> {
        let Summary {
            window,
            listed,
            missing,
            gone,
            repeated,
            without_id,
        } = summary;
        let Window { from, until } = window;
        let always = [
            ("listed by the API", *listed),
            ("found in the export", listed - missing),
            ("missing", *missing),
            ("in the export more than once", *repeated),
            ("unknown to the API", export.unknown),
        ];
        let (accepted, rejected) = sent.unwrap_or_default();
        let others = [
            ("missing, and no longer listed by the API", *gone),
            ("listed without an id, and not compared", *without_id),
            ("records outside of the window", export.outside),
            ("lines without an id", export.lines_without_id),
            ("lines that are not JSON", export.broken_lines),
            ("lines longer than 16 MiB", export.long_lines),
            ("sent and accepted", accepted),
            ("sent and rejected", rejected),
        ];
        let others = others.into_iter().filter(|(_, count)| *count > 0);
        let lines = always.into_iter().chain(others);
        let lines = lines.map(|(what, count)| format!("{count:>10}  {what}"));
        let lines: Vec<String> = lines.collect();
        let more = match self.shown.values().any(|shown| *shown > MAX_SHOWN) {
            true => {
                format!("… only {MAX_SHOWN} of each are shown here; --format json prints them\n\n")
            }
            false => String::new(),
        };
        let text = format!(
            "{more}created from {from:.3} until {until:.3}:\n{}",
            lines.join("\n")
        );
        let json = json!({
            "result": "summary",
            "from": from,
            "until": until,
            "listed": listed,
            "missing": missing,
            "gone": gone,
            "repeated": repeated,
            "unknown": export.unknown,
            "outside": export.outside,
            "entries_without_id": without_id,
            "lines": export.lines,
            "lines_without_id": export.lines_without_id,
            "broken_lines": export.broken_lines,
            "long_lines": export.long_lines,
            "accepted": accepted,
            "rejected": rejected,
        });
        self.print(&text, &json);
        printed(std::mem::replace(&mut self.result, Ok(())))
    }

    /// Prints a line for an entry, unless the text has enough of its kind.
    fn line(&mut self, text: &str, json: &Value) {
        let result = json["result"].as_str().unwrap_or_default();
        let shown = self.shown.entry(result.to_owned()).or_default();
        *shown += 1;
        if *shown <= MAX_SHOWN || self.format == ReportFormat::Json {
            self.print(&format!("{result:<8}  {text}"), json);
        }
    }

    fn print(&mut self, text: &str, json: &Value) {
        if self.result.is_ok() {
            let out = &mut self.out;
            self.result = self.bar.suspend(|| match self.format {
                ReportFormat::Text => writeln!(out, "{text}"),
                ReportFormat::Json => writeln!(out, "{json}"),
            });
        }
    }
}

fn word(text: &str) -> String {
    one_line(text, MAX_WORD)
}
