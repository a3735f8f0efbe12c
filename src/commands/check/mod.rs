//! The command `check`: looks at everything that the exporter needs and prints, one line each, what is good, what is
//! wrong, and what to do.
//!
//! It changes nothing: it creates no file, moves no cursor and sends no record. No request takes longer than ten seconds,
//! and independent ones run at the same time.

mod api;
mod collector;
mod given;
mod state;

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use clap::{ArgMatches, Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::{Failure, printed};
use crate::cli::{self, ExporterSettings, Flags};
use crate::util::{counted, one_line};

/// The maximum time for one request, whatever the flags allow the exporter.
const MAX_TIME: Duration = Duration::from_secs(10);

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Lines for people, or one JSON document
    #[arg(long, default_value = "text")]
    format: ReportFormat,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReportFormat {
    Text,
    Json,
}

/// How good a finding is; also the exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    #[default]
    Good,
    /// The exporter would work, but not as it should.
    Warning,
    /// The exporter would not start, or a part of it would not work.
    Bad,
}

/// What a check finds; if it is not good, with what to do after a semicolon.
type Outcome = (Level, String);

/// A line of the report: what was checked, which is part of the interface, and what was found.
type Finding = (&'static str, Outcome);

fn good(said: impl ToString) -> Outcome {
    (Level::Good, said.to_string())
}

fn warning(said: impl ToString) -> Outcome {
    (Level::Warning, said.to_string())
}

fn bad(said: impl ToString) -> Outcome {
    (Level::Bad, said.to_string())
}

/// Checks everything and prints the report.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, given: &ArgMatches) -> Result<(), Failure> {
    let (settings, findings) = (given::settings(given), findings(&args.flags).await);
    let level = findings.iter().map(|(_, (level, _))| *level).max();
    let level = level.unwrap_or_default();
    // Removes the colours unless this is a terminal that wants them.
    let mut out = anstream::stdout().lock();
    let result = match args.format {
        ReportFormat::Text => write_text(&settings, &findings, &mut out),
        ReportFormat::Json => {
            let findings = findings.iter().map(
                |(check, (level, said))| json!({ "check": check, "level": level, "said": said }),
            );
            let report = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "level": level,
                "settings": settings,
                "findings": findings.collect::<Vec<_>>(),
            });
            writeln!(out, "{report:#}")
        }
    };
    printed(result)?;
    match level {
        Level::Good => Ok(()),
        // The report says why.
        level => Err(Failure::new(level as u8, "")),
    }
}

async fn findings(flags: &Flags) -> Vec<Finding> {
    let settings = ExporterSettings::resolve(flags, &cli::variable);
    let outcome = match &settings {
        Ok(_) => good("valid"),
        Err(error) => bad(cli::with_origin(error, error)),
    };
    let mut findings = vec![("settings", outcome)];
    findings.extend(super::unknown_variables().into_iter().map(|name| {
        let said = format!("{name} is unknown and has no effect; correct its name (--help lists them all) or unset it");
        ("variables", warning(said))
    }));
    let Ok(settings) = settings else {
        return findings;
    };
    let limit = settings.api.timeout.min(MAX_TIME);
    let ((api, organizations), (state, look), collector) = tokio::join!(
        api::check(&settings, limit),
        state::check(&settings.ledger, limit),
        collector::check(settings.otlp.as_ref(), limit),
    );
    let organization = state::organization(&organizations, look);
    findings.extend(api);
    findings.extend(organization.map(|outcome| ("organization", outcome)));
    findings.extend([("collector", collector), ("state", state)]);
    findings
}

fn write_text(settings: &[String], findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for setting in settings {
        writeln!(out, "{}", one_line(setting, usize::MAX))?;
    }
    writeln!(out)?;
    for (check, (level, said)) in findings {
        let (word, colour) = match level {
            Level::Good => ("good", AnsiColor::Green),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::Bad => ("bad", AnsiColor::Red),
        };
        let (colour, said) = (colour.on_default(), one_line(said, usize::MAX));
        writeln!(out, "{colour}{word:7}{colour:#}  {check:12}  {said}")?;
    }
    let count = |level| {
        findings
            .iter()
            .filter(|(_, found)| found.0 == level)
            .count() as u64
    };
    let summary = match (count(Level::Bad), count(Level::Warning)) {
        (0, 0) => "All is well.".to_owned(),
        (0, count) => {
            let warnings = counted(count, "warning", "warnings");
            format!("The exporter would work; {warnings}.")
        }
        (count, _) => {
            let things = counted(count, "thing is wrong", "things are wrong");
            format!("The exporter would not work: {things}.")
        }
    };
    writeln!(out, "\n{summary}")
}
