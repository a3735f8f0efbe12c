//! What `check` prints: aligned lines for people, or one JSON document for programs.

use std::io::{self, Write};

use clap::builder::styling::AnsiColor;
use serde::Serialize;

use super::given::Setting;
use super::{Finding, Level};
use crate::util::one_line;

/// All findings, with the settings that they are about.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    version: &'static str,
    /// The worst level of the findings.
    level: Level,
    settings: Vec<Setting>,
    findings: Vec<Finding>,
}

// === impl Report ===

impl Report {
    pub(super) fn new(settings: Vec<Setting>, findings: Vec<Finding>) -> Self {
        let level = findings.iter().map(|finding| finding.level).max();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            level: level.unwrap_or_default(),
            settings,
            findings,
        }
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let longest =
            |texts: &mut dyn Iterator<Item = &str>| texts.map(str::len).max().unwrap_or(0);
        let names = longest(&mut self.settings.iter().map(|setting| setting.name.as_str()));
        let values = longest(&mut self.settings.iter().map(|setting| setting.value.as_str()));
        let checks = longest(&mut self.findings.iter().map(|finding| finding.check));
        for setting in &self.settings {
            let (name, value, from) = (&setting.name, &setting.value, setting.from);
            let variable = setting.variable.as_deref().unwrap_or_default();
            let line = format!("{name:names$}  {value:values$}  {from} {variable}");
            writeln!(out, "{}", one_line(&line, usize::MAX))?;
        }
        writeln!(out)?;
        for finding in &self.findings {
            let (word, colour) = match finding.level {
                Level::Good => ("good", AnsiColor::Green),
                Level::Warning => ("warning", AnsiColor::Yellow),
                Level::Bad => ("bad", AnsiColor::Red),
            };
            let (check, colour) = (finding.check, colour.on_default());
            let text = match &finding.advice {
                Some(advice) => format!("{}; {advice}", finding.said),
                None => finding.said.clone(),
            };
            let text = one_line(&text, usize::MAX);
            writeln!(out, "{colour}{word:7}{colour:#}  {check:checks$}  {text}")?;
        }
        writeln!(out, "\n{}", self.summary())
    }

    fn summary(&self) -> String {
        let levels = || self.findings.iter().map(|finding| finding.level);
        let count = |level| levels().filter(|other| *other == level).count();
        match (count(Level::Bad), count(Level::Warning)) {
            (0, 0) => "All is well.".to_owned(),
            (0, 1) => "The exporter would work; 1 warning.".to_owned(),
            (0, warnings) => format!("The exporter would work; {warnings} warnings."),
            (1, _) => "The exporter would not work: 1 thing is wrong.".to_owned(),
            (bad, _) => format!("The exporter would not work: {bad} things are wrong."),
        }
    }
}
