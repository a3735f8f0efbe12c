//! What `check` prints: aligned lines for people, one JSON document for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};

use super::settings::Setting;
use super::{Finding, Level};

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Everything that was looked at.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    version: &'static str,
    /// The worst of the findings.
    level: Level,
    settings: Vec<Setting>,
    findings: Vec<Finding>,
}

// === impl Report ===

impl Report {
    pub(super) fn new(settings: Vec<Setting>, findings: Vec<Finding>) -> Self {
        let level = findings
            .iter()
            .map(|finding| finding.level)
            .max()
            .unwrap_or(Level::Good);
        Self {
            version: crate::metrics::build::VERSION,
            level,
            settings,
            findings,
        }
    }

    /// The worst of it.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Writes it; colours are for a terminal, and `out` has to take them away elsewhere.
    ///
    /// # Errors
    /// Where nobody reads, or the disk is full.
    pub fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, self)?;
                writeln!(out)
            }
            Format::Text => self.write_text(out),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |of: fn(&Setting) -> &str| {
            self.settings
                .iter()
                .map(|setting| of(setting).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (names, values) = (
            width(|setting| &setting.name),
            width(|setting| &setting.value),
        );
        for Setting {
            name,
            value,
            from,
            variable,
        } in &self.settings
        {
            let variable = variable
                .as_ref()
                .map_or_else(String::new, |variable| format!(" {variable}"));
            writeln!(out, "{name:names$}  {value:values$}  {from}{variable}")?;
        }
        if !self.settings.is_empty() {
            writeln!(out)?;
        }
        let checks = self
            .findings
            .iter()
            .map(|finding| finding.check.as_str().len())
            .max()
            .unwrap_or(0);
        for Finding {
            check,
            level,
            said,
            advice,
        } in &self.findings
        {
            let (check, style, word) = (check.as_str(), style(*level), level.as_str());
            write!(
                out,
                "{style}{word:7}{style:#}  {check:checks$}  {}",
                tame(said)
            )?;
            match advice {
                Some(advice) => writeln!(out, "; {}", tame(advice))?,
                None => writeln!(out)?,
            }
        }
        writeln!(out, "\n{}", self.verdict())
    }

    fn verdict(&self) -> String {
        let count = |level| {
            self.findings
                .iter()
                .filter(|finding| finding.level == level)
                .count()
        };
        match (count(Level::Bad), count(Level::Warning)) {
            (0, 0) => "All is well.".to_owned(),
            (0, 1) => "The exporter would work; 1 warning.".to_owned(),
            (0, warnings) => format!("The exporter would work; {warnings} warnings."),
            (1, _) => "The exporter would not work: 1 thing is wrong.".to_owned(),
            (bad, _) => format!("The exporter would not work: {bad} things are wrong."),
        }
    }
}

fn style(level: Level) -> Style {
    let colour = match level {
        Level::Good => AnsiColor::Green,
        Level::Warning => AnsiColor::Yellow,
        Level::Bad => AnsiColor::Red,
    };
    colour.on_default()
}

/// On one line of a terminal, whoever's words are in it.
fn tame(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}
