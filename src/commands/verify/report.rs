//! What `verify` prints: a line for each entry that is not as it should be, and a summary.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::export::ExportSummary;
use crate::commands::{Failure, ReportFormat, printed};
use crate::metrics::build::VERSION;
use crate::util::one_line;

/// The maximum number of entries with one result in the text.
const MAX_SHOWN: u64 = 20;

/// The maximum length of an id or a type in the text, in characters.
const MAX_WORD: usize = 200;

/// The first numbers of the summary, which the text shows even if they are 0.
const ALWAYS_SHOWN: usize = 5;

/// Prints to standard output, or to standard error if that has log records.
pub(super) struct Output {
    format: ReportFormat,
    out: Box<dyn Write + Send>,
    /// What is going on, on a terminal.
    pub(super) bar: ProgressBar,
    /// The number of lines for entries with each result.
    shown: BTreeMap<&'static str, u64>,
    /// Nothing is printed after an error.
    result: io::Result<()>,
}

/// Exit status 2.
pub(super) fn not_compared(message: impl Into<String>) -> Failure {
    Failure::new(2, message)
}

// === impl Output ===

impl Output {
    pub(super) fn new(format: ReportFormat, to_stderr: bool) -> Self {
        Self {
            format,
            out: match to_stderr {
                true => Box::new(io::stderr()),
                false => Box::new(io::stdout()),
            },
            bar: ProgressBar::no_length(),
            shown: BTreeMap::new(),
            result: Ok(()),
        }
    }

    /// Begins to show another activity.
    pub(super) fn show(&self, template: &str) -> &ProgressBar {
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        self.bar.set_style(style);
        self.bar.reset();
        self.bar.unset_length();
        &self.bar
    }

    /// Prints a line about an entry, unless the text has enough of its kind: the values of the fields that have one.
    pub(super) fn line(&mut self, result: &'static str, fields: &[(&str, Value)]) {
        let shown = self.shown.entry(result).or_default();
        *shown += 1;
        if *shown > MAX_SHOWN && self.format == ReportFormat::Text {
            return;
        }
        let mut text = format!("{result:<8}");
        for (name, value) in fields {
            match value {
                Value::Null => {}
                Value::String(word) => text += &format!("  {}", one_line(word, MAX_WORD)),
                value => text += &format!("  {name}: {value}"),
            }
        }
        let fields = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        self.print(&text, result, fields.collect());
    }

    /// Prints the summary. Each number has its name in JSON and in the text. The JSON also has fields, and what identifies run and export.
    ///
    /// # Errors
    /// If anything could not be printed.
    pub(super) fn summary(
        &mut self,
        title: &str,
        export: &ExportSummary,
        fields: &[(&str, Value)],
        numbers: &[(&str, &str, u64)],
    ) -> Result<(), Failure> {
        let mut text = String::new();
        if self.shown.values().any(|shown| *shown > MAX_SHOWN) {
            text += &format!(
                "… only {MAX_SHOWN} of each are shown here; --format json prints them\n\n"
            );
        }
        text += title;
        let run = [
            ("version", json!(VERSION)),
            ("time", json!(Timestamp::now())),
            (
                "export",
                json!({ "sha256": export.sha256, "lines": export.lines }),
            ),
        ];
        let fields = run.iter().chain(fields);
        let fields = fields.map(|(name, value)| ((*name).to_owned(), value.clone()));
        let mut json: Map<String, Value> = fields.collect();
        for (index, (name, said, number)) in numbers.iter().enumerate() {
            if index < ALWAYS_SHOWN || *number > 0 {
                text += &format!("\n{number:>10}  {said}");
            }
            json.insert((*name).to_owned(), (*number).into());
        }
        self.print(&text, "summary", json);
        printed(mem::replace(&mut self.result, Ok(())))
    }

    fn print(&mut self, text: &str, result: &str, mut json: Map<String, Value>) {
        json.insert("result".to_owned(), result.into());
        if self.result.is_ok() {
            let out = &mut self.out;
            self.result = self.bar.suspend(|| match self.format {
                ReportFormat::Text => writeln!(out, "{text}"),
                ReportFormat::Json => writeln!(out, "{}", Value::Object(json)),
            });
        }
    }
}
