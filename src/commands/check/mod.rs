//! The command `check`: tries everything that the exporter needs and prints, one line each, what is good, what is wrong, and what to do.
//!
//! It calls the constructors and validations of the exporter, and says only what it has tried. It changes nothing: it moves no cursor and
//! sends no record, and what it creates beside the state file is gone at once. No request takes longer than ten seconds, and independent ones
//! run at the same time.

mod api;
mod audit;
mod collector;
mod given;
mod port;
mod state;
mod tickets;

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use clap::{ArgMatches, Args};
use serde::Serialize;
use serde_json::json;

use super::{Failure, ReportFormat, printed};
use crate::cli::{self, ExporterSettings, Flags};
use crate::util::{counted, one_line};

/// The maximum time for one request, whatever the flags allow the exporter.
const MAX_TIME: Duration = Duration::from_secs(10);

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Lines for people, or one JSON document
    #[arg(long, default_value = "text", ignore_case = true)]
    format: ReportFormat,
    #[command(flatten)]
    flags: Flags,
}

/// How good a finding is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    #[default]
    Good,
    /// Unknown.
    Unknown,
    /// The exporter would work, but not as it should.
    Warning,
    /// The exporter would not start, or a part of it would not work.
    Bad,
}

/// What a check finds; if it is not good, with what to do after a semicolon.
#[derive(Clone, Debug)]
struct Outcome {
    level: Level,
    said: String,
    /// The same without data of the organization and addresses, if there are any.
    anonymous: Option<String>,
}

/// A line of the report: what was checked, which is part of the interface, and what was found.
type Finding = (&'static str, Outcome);

fn good(said: impl ToString) -> Outcome {
    Outcome::new(Level::Good, said)
}

fn unknown(said: impl ToString) -> Outcome {
    Outcome::new(Level::Unknown, said)
}

fn warning(said: impl ToString) -> Outcome {
    Outcome::new(Level::Warning, said)
}

fn bad(said: impl ToString) -> Outcome {
    Outcome::new(Level::Bad, said)
}

/// An assumption about the API holds.
fn holds(said: impl Display) -> Outcome {
    good(format!("holds: {said}"))
}

/// An assumption does not hold; what the exporter does, and what to do.
fn fails(said: impl Display) -> Outcome {
    warning(format!("does not hold: {said}"))
}

/// It is unknown whether an assumption holds; the text says why.
fn cannot_tell(why: impl Display) -> Outcome {
    unknown(format!("cannot tell: {why}"))
}

/// Returns the flag or variable that a message begins with.
fn name_in(message: &str) -> &str {
    let name = message.split([' ', ':', '=']).next().unwrap_or_default();
    match name.starts_with("--") || name.starts_with("OTEL_") {
        true => name,
        false => "a setting",
    }
}

// === impl Outcome ===

impl Outcome {
    fn new(level: Level, said: impl ToString) -> Self {
        Self {
            level,
            said: said.to_string(),
            anonymous: None,
        }
    }

    /// Sets what JSON says in its place.
    fn in_json(self, anonymous: impl ToString) -> Self {
        Self {
            anonymous: Some(anonymous.to_string()),
            ..self
        }
    }
}

/// Checks everything and prints the report.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, given: &ArgMatches) -> Result<(), Failure> {
    let findings = findings(&args.flags).await;
    let level = findings.iter().map(|(_, found)| found.level).max();
    let level = level.unwrap_or_default();
    // Removes the colours unless this is a terminal that wants them.
    let mut out = anstream::stdout().lock();
    let result = match args.format {
        ReportFormat::Text => write_text(&given::settings(given), &findings, &mut out),
        ReportFormat::Json => {
            let findings = findings.iter().map(|(check, found)| {
                let said = found.anonymous.as_ref().unwrap_or(&found.said);
                json!({ "check": check, "level": found.level, "said": said })
            });
            let report = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "level": level,
                "settings": given::anonymous(given),
                "findings": findings.collect::<Vec<_>>(),
            });
            writeln!(out, "{report:#}")
        }
    };
    printed(result)?;
    match level {
        Level::Good | Level::Unknown => Ok(()),
        // The report says why.
        Level::Warning => Err(Failure::new(1, "")),
        Level::Bad => Err(Failure::new(2, "")),
    }
}

async fn findings(flags: &Flags) -> Vec<Finding> {
    let settings = ExporterSettings::resolve(flags, &cli::variable);
    let outcome = match &settings {
        Ok(_) => good("valid"),
        Err(error) => {
            let anonymous = format!("{} is wrong or missing", name_in(error));
            bad(cli::with_origin(error, error)).in_json(anonymous)
        }
    };
    let mut findings = vec![("settings", outcome)];
    findings.extend(super::unknown_variables().into_iter().map(|name| {
        let said = format!("{name} is unknown and has no effect; correct its name (--help lists them all) or unset it");
        ("variables", warning(said))
    }));
    let Ok(settings) = settings else {
        return findings;
    };
    let (holder, state, api, collector, traces) = tokio::join!(
        port::find(&settings),
        state::find(&settings.ledger),
        api::check(&settings),
        collector::logs(settings.otlp.as_ref()),
        collector::traces(),
    );
    let port = port::judge(&settings.web, &holder, state.is_locked());
    findings.push(("port", port));
    let organization = state.organization(&api);
    findings.extend(api.findings);
    findings.extend(organization.map(|outcome| ("organization", outcome)));
    findings.push(("collector", collector));
    let wrong = otlp_logs::wrong_attributes(&cli::variable);
    findings.extend(wrong.map(|problem| {
        let anonymous = format!("{} is wrong and has no effect", name_in(&problem));
        let outcome = warning(format!("{problem}; it has no effect"));
        ("variables", outcome.in_json(anonymous))
    }));
    findings.extend(traces.map(|outcome| ("traces", outcome)));
    findings.push(("state", state.judge(&settings.ledger, &holder)));
    findings
}

fn write_text(settings: &[String], findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for setting in settings {
        writeln!(out, "{}", one_line(setting, usize::MAX))?;
    }
    writeln!(out)?;
    for (check, found) in findings {
        let (word, colour) = match found.level {
            Level::Good => ("good", AnsiColor::Green),
            Level::Unknown => ("unknown", AnsiColor::Cyan),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::Bad => ("bad", AnsiColor::Red),
        };
        let (colour, said) = (colour.on_default(), one_line(&found.said, usize::MAX));
        writeln!(out, "{colour}{word:7}{colour:#}  {check:12}  {said}")?;
    }
    let count = |level| {
        let findings = findings.iter();
        findings.filter(|(_, found)| found.level == level).count() as u64
    };
    let summary = match (count(Level::Bad), count(Level::Warning)) {
        (0, 0) if count(Level::Unknown) == 0 => "All is well.".to_owned(),
        (0, 0) => "No problem found, but some checks gave no answer.".to_owned(),
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
