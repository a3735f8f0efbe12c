//! The report: what is found, line by line or as one JSON document, and the exit status that follows.

use std::io::Write as _;

use clap::builder::styling::AnsiColor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::{Failure, ReportFormat, print, printed};
use crate::util::{counted, one_line};

/// How good a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    #[default]
    Good,
    /// The exporter would work, but not as it should.
    Warning,
    /// A request was not answered, so nothing is known.
    NotTested,
    /// The exporter would not start, or a part of it would not work.
    Bad,
}

/// What a check finds; if it is not good, with what to do after a semicolon.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    level: Level,
    said: String,
    /// What JSON says: nothing of the organization, and no address.
    class: Option<String>,
}

/// The lines so far.
pub(super) struct Report {
    format: ReportFormat,
    findings: Vec<(&'static str, Outcome)>,
}

pub(super) fn good(said: impl ToString) -> Outcome {
    Outcome::new(Level::Good, said)
}

pub(super) fn warning(said: impl ToString) -> Outcome {
    Outcome::new(Level::Warning, said)
}

pub(super) fn not_tested(said: impl ToString) -> Outcome {
    Outcome::new(Level::NotTested, said)
}

pub(super) fn bad(said: impl ToString) -> Outcome {
    Outcome::new(Level::Bad, said)
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn new(level: Level, said: impl ToString) -> Self {
        Self {
            level,
            said: said.to_string(),
            class: None,
        }
    }

    pub(super) fn in_json(self, class: impl ToString) -> Self {
        Self {
            class: Some(class.to_string()),
            ..self
        }
    }
}

// === impl Report ===

impl Report {
    pub(super) fn new(format: ReportFormat) -> Self {
        Self {
            format,
            findings: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, check: &'static str, found: Outcome) -> Result<(), Failure> {
        let (word, colour) = match found.level {
            Level::Good => ("good", AnsiColor::Green),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::NotTested => ("not tested", AnsiColor::Cyan),
            Level::Bad => ("bad", AnsiColor::Red),
        };
        let (colour, said) = (colour.on_default(), one_line(&found.said, usize::MAX));
        self.findings.push((check, found));
        if self.format == ReportFormat::Json {
            return Ok(());
        }
        // Removes the colours unless this is a terminal that wants them.
        let mut out = anstream::stdout().lock();
        printed(writeln!(
            out,
            "{colour}{word:10}{colour:#}  {check:12}  {said}"
        ))
    }

    /// Prints the end, and returns the exit status.
    pub(super) fn end(self) -> Result<(), Failure> {
        let levels = self.findings.iter().map(|(_, found)| found.level);
        let level = levels.clone().max().unwrap_or_default();
        let count = |wanted| levels.clone().filter(|level| *level == wanted).count() as u64;
        let summary = match level {
            Level::Good => "All is well.".to_owned(),
            Level::Warning => {
                let warnings = counted(count(level), "warning", "warnings");
                format!("The exporter would work; {warnings}.")
            }
            Level::NotTested => "Some things could not be tested.".to_owned(),
            Level::Bad => {
                let things = counted(count(level), "thing is wrong", "things are wrong");
                format!("The exporter would not work: {things}.")
            }
        };
        print(match self.format {
            ReportFormat::Text => format!("\n{summary}\n"),
            ReportFormat::Json => format!("{:#}\n", self.json(level)),
        })?;
        match level {
            Level::Good => Ok(()),
            // The report says why.
            Level::Warning => Err(Failure::new(1, "")),
            Level::NotTested | Level::Bad => Err(Failure::new(2, "")),
        }
    }

    fn json(&self, level: Level) -> Value {
        let findings = self.findings.iter().map(
            |(check, found)| json!({ "check": check, "level": found.level, "class": found.class }),
        );
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "level": level,
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}
