//! The report: a line for each finding, printed at once or as one JSON document at the end, and the exit status that follows.

use std::io::Write as _;

use clap::builder::styling::AnsiColor;
use serde::Serialize;
use serde_json::json;

use crate::commands::{Failure, ReportFormat, print, printed};
use crate::util::{counted, one_line};

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Good,
    /// The exporter would work, but not as it should.
    Warning,
    /// A request was not answered, so nothing is known.
    NotTested,
    /// The exporter would not start, or a part of it would not work.
    Bad,
}

/// A finding. In JSON it has nothing of the organization and no address.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    check: &'static str,
    level: Level,
    /// The same reason as in the metrics, if a request failed.
    reason: Option<&'static str>,
    /// What was found; if it is not good, with what to do after a semicolon.
    #[serde(skip)]
    text: String,
}

/// The lines so far.
pub(super) struct Report {
    format: ReportFormat,
    lines: Vec<Line>,
}

// === impl Line ===

impl Line {
    pub(super) fn new(level: Level, check: &'static str, text: impl ToString) -> Self {
        Self {
            check,
            level,
            reason: None,
            text: text.to_string(),
        }
    }

    pub(super) fn because(self, reason: &'static str) -> Self {
        let reason = Some(reason);
        Self { reason, ..self }
    }
}

// === impl Report ===

impl Report {
    pub(super) fn new(format: ReportFormat) -> Self {
        let lines = Vec::new();
        Self { format, lines }
    }

    /// Adds a line, if there is one, and prints it unless the format is JSON.
    pub(super) fn add(&mut self, line: impl Into<Option<Line>>) -> Result<(), Failure> {
        let Some(line) = line.into() else {
            return Ok(());
        };
        let (word, colour) = match line.level {
            Level::Good => ("good", AnsiColor::Green),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::NotTested => ("not tested", AnsiColor::Cyan),
            Level::Bad => ("bad", AnsiColor::Red),
        };
        let (colour, check) = (colour.on_default(), line.check);
        let text = one_line(&line.text, usize::MAX);
        self.lines.push(line);
        if self.format == ReportFormat::Json {
            return Ok(());
        }
        // Removes the colours unless this is a terminal that wants them.
        let mut out = anstream::stdout().lock();
        let text = format!("{colour}{word:10}{colour:#}  {check:12}  {text}");
        printed(writeln!(out, "{text}"))
    }

    /// Prints the end, and returns the exit status.
    pub(super) fn end(self) -> Result<(), Failure> {
        let levels = self.lines.iter().map(|line| line.level);
        let level = levels.clone().max().unwrap_or(Level::Good);
        let count = levels.filter(|one| *one == level).count() as u64;
        let (status, summary) = match level {
            Level::Good => (0, "All is well.".to_owned()),
            Level::Warning => {
                let warnings = counted(count, "warning", "warnings");
                (1, format!("The exporter would work; {warnings}."))
            }
            Level::NotTested => (2, "Some things could not be tested.".to_owned()),
            Level::Bad => {
                let things = counted(count, "thing is wrong", "things are wrong");
                (2, format!("The exporter would not work: {things}."))
            }
        };
        let version = env!("CARGO_PKG_VERSION");
        let document = json!({ "version": version, "level": level, "findings": self.lines });
        print(match self.format {
            ReportFormat::Text => format!("\n{summary}\n"),
            ReportFormat::Json => format!("{document:#}\n"),
        })?;
        // The report says why.
        match status {
            0 => Ok(()),
            _ => Err(Failure::new(status, "")),
        }
    }
}
