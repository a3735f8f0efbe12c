//! The command `check`: looks at everything that the exporter needs and prints, one line each, what is good, what is
//! wrong, and what to do.
//!
//! It changes nothing: it creates no file, moves no cursor and sends no record. No probe takes longer than ten seconds,
//! and independent probes run at the same time.

mod collector;
mod given;
mod local;
mod service;

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use clap::{ArgMatches, Args, ValueEnum};
use serde::Serialize;

use super::{Failure, printed};
use crate::cli::{self, ExporterSettings, Flags};
use crate::util::one_line;
use given::Setting;

/// The maximum time for one request, whatever the flags allow the exporter.
const MAX_TIME: Duration = Duration::from_secs(10);

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    flags: Flags,
    /// Lines for people, or one JSON document
    #[arg(long, default_value = "text", help_heading = "Output")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
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

/// A line of the report.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    /// What was checked; the names are part of the interface.
    check: &'static str,
    level: Level,
    said: String,
    /// What to do.
    advice: Option<String>,
}

fn good(check: &'static str, said: impl Into<String>) -> Finding {
    finding(Level::Good, check, said, None)
}

fn warning(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Finding {
    finding(Level::Warning, check, said, Some(advice.into()))
}

fn bad(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Finding {
    finding(Level::Bad, check, said, Some(advice.into()))
}

/// Returns the finding for an error of the exporter, whose message has its advice after a semicolon.
fn failed(check: &'static str, error: impl ToString) -> Finding {
    let message = error.to_string();
    match message.split_once("; ") {
        Some((said, advice)) => bad(check, said, advice),
        None => finding(Level::Bad, check, message, None),
    }
}

fn finding(
    level: Level,
    check: &'static str,
    said: impl Into<String>,
    advice: Option<String>,
) -> Finding {
    Finding {
        check,
        level,
        said: said.into(),
        advice,
    }
}

/// Checks everything and prints the report.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, given: &ArgMatches) -> Result<(), Failure> {
    let (settings, findings) = (given::settings(given), findings(&args.flags).await);
    let level = findings.iter().map(|finding| finding.level).max();
    let level = level.unwrap_or_default();
    // Removes the colours unless this is a terminal that wants them.
    let mut out = anstream::stdout().lock();
    let result = match args.format {
        Format::Text => write_text(&settings, &findings, &mut out),
        Format::Json => {
            let report = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "level": level,
                "settings": settings,
                "findings": findings,
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
    let mut findings = Vec::new();
    let settings = ExporterSettings::resolve(flags, &cli::variable);
    findings.push(match &settings {
        Ok(_) => good("settings", "valid"),
        Err(error) => failed("settings", cli::with_origin(error, error)),
    });
    findings.extend(super::unknown_variables().into_iter().map(|name| {
        let said = format!("{name} is unknown and has no effect");
        let advice = "correct its name (--help lists them all) or unset it";
        warning("variables", said, advice)
    }));
    let Ok(settings) = settings else {
        return findings;
    };
    let limit = settings.api.timeout.min(MAX_TIME);
    let (service, state, collector) = tokio::join!(
        service::check(&settings, limit),
        local::state(&settings.ledger, limit),
        collector::check(settings.otlp.as_ref(), limit),
    );
    let ((service, organizations), (state, look)) = (service, state);
    let held = look.as_ref().is_some_and(|look| look.held);
    let listen = local::listen(&settings, held, limit).await;
    findings.extend(service);
    findings.extend(local::organization(&organizations, look));
    findings.push(collector);
    findings.push(state);
    findings.extend(listen);
    findings
}

fn write_text(settings: &[Setting], findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(str::len).max().unwrap_or(0);
    let names = longest(&mut settings.iter().map(|setting| setting.name.as_str()));
    let values = longest(&mut settings.iter().map(|setting| setting.value.as_str()));
    let checks = longest(&mut findings.iter().map(|finding| finding.check));
    for setting in settings {
        let (name, value, from) = (&setting.name, &setting.value, setting.from);
        let variable = setting.variable.as_deref().unwrap_or_default();
        let line = format!("{name:names$}  {value:values$}  {from} {variable}");
        writeln!(out, "{}", one_line(&line, usize::MAX))?;
    }
    writeln!(out)?;
    for finding in findings {
        let (word, colour) = match finding.level {
            Level::Good => ("good", AnsiColor::Green),
            Level::Warning => ("warning", AnsiColor::Yellow),
            Level::Bad => ("bad", AnsiColor::Red),
        };
        let (check, colour) = (finding.check, colour.on_default());
        let advice = finding.advice.iter().map(String::as_str);
        let text: Vec<&str> = std::iter::once(&*finding.said).chain(advice).collect();
        let text = one_line(&text.join("; "), usize::MAX);
        writeln!(out, "{colour}{word:7}{colour:#}  {check:checks$}  {text}")?;
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let summary = match (count(Level::Bad), count(Level::Warning)) {
        (0, 0) => "All is well.".to_owned(),
        (0, 1) => "The exporter would work; 1 warning.".to_owned(),
        (0, warnings) => format!("The exporter would work; {warnings} warnings."),
        (1, _) => "The exporter would not work: 1 thing is wrong.".to_owned(),
        (bad, _) => format!("The exporter would not work: {bad} things are wrong."),
    };
    writeln!(out, "\n{summary}")
}
