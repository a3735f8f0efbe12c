//! The command `check`: tries everything that the exporter needs and prints, one line each, what is good, what is wrong, and what to do.
//!
//! It calls the constructors and validations of the exporter, and says only what it has tried. It changes nothing: it moves no cursor and
//! sends no record, and what it creates beside the state file is gone at once. No request takes longer than ten seconds. Everything is tried
//! at the same time, and each line is printed once it and those before it are known.

mod api;
mod collector;
mod given;
mod port;
mod state;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use clap::{ArgMatches, Args};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

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
#[serde(rename_all = "snake_case")]
enum Level {
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
struct Outcome {
    level: Level,
    said: String,
    /// What JSON says: nothing of the organization, and no address.
    class: Option<String>,
}

/// The lines so far.
struct Report {
    format: ReportFormat,
    findings: Vec<(&'static str, Outcome)>,
}

fn good(said: impl ToString) -> Outcome {
    Outcome::new(Level::Good, said)
}

fn warning(said: impl ToString) -> Outcome {
    Outcome::new(Level::Warning, said)
}

fn not_tested(said: impl ToString) -> Outcome {
    Outcome::new(Level::NotTested, said)
}

fn bad(said: impl ToString) -> Outcome {
    Outcome::new(Level::Bad, said)
}

/// Checks everything and prints the report. `wrong` is what is wrong with the command line and its variables.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, given: &ArgMatches, wrong: Vec<String>) -> Result<(), Failure> {
    let mut report = Report {
        format: args.format,
        findings: Vec::new(),
    };
    if args.format == ReportFormat::Text {
        let lines = given::settings(given).into_iter();
        let lines: String = lines
            .map(|line| one_line(&line, usize::MAX) + "\n")
            .collect();
        super::print(format!("{lines}\n"))?;
    }
    try_all(&args.flags, wrong, &mut report).await?;
    report.end()
}

async fn try_all(flags: &Flags, wrong: Vec<String>, report: &mut Report) -> Result<(), Failure> {
    let resolved = ExporterSettings::resolve(flags, &cli::variable);
    let settings = match resolved {
        Ok(settings) if wrong.is_empty() => Arc::new(settings),
        resolved => {
            let others = resolved.err().unwrap_or_default().into_iter();
            let others = others.map(|error| cli::with_origin(&error, &error));
            for problem in wrong.into_iter().chain(others) {
                let class = name_in(&problem).to_owned();
                report.add("settings", bad(problem).in_json(class))?;
            }
            return Ok(());
        }
    };
    for name in super::unknown_variables() {
        let said =
            "is unknown and has no effect; correct its name (--help lists them all) or unset it";
        report.add("variables", warning(format!("{name} {said}")))?;
    }
    if let Some(problem) = otlp_logs::wrong_attributes(&cli::variable) {
        report.add("variables", warning(format!("{problem}; it has no effect")))?;
    }
    let client = match api::client(&settings) {
        Ok(client) => client,
        Err(error) => return report.add("settings", bad(error)),
    };
    report.add("settings", good("valid"))?;
    let audit = tokio::spawn(api::audit(client.clone(), settings.clone()));
    let tickets = tokio::spawn(api::tickets(client, settings.clone()));
    let logs = tokio::spawn(collector::logs(settings.clone()));
    let traces = tokio::spawn(collector::traces());
    let (port, state) = tokio::join!(port::problem(&settings), state::find(&settings.ledger));
    let judged = port::judge(&settings.web, port.as_ref(), state.is_locked());
    report.add("port", judged)?;
    if let Some(expired) = expired(&settings) {
        report.add("certificate", expired)?;
    }
    report.add("state", state.judge(&settings.ledger, port.is_none()))?;
    report.add("collector", ended(logs).await?)?;
    if let Some(outcome) = ended(traces).await? {
        report.add("traces", outcome)?;
    }
    let mut organizations = Vec::new();
    for (check, listing) in [("audit-logs", audit), ("tickets", tickets)] {
        let listing = ended(listing).await?;
        report.add(check, listing.outcome)?;
        if let Some(clock) = listing.clock {
            report.add("clock", clock)?;
        }
        organizations.push(listing.organizations);
    }
    match state.organization(&organizations) {
        Some(outcome) => report.add("organization", outcome),
        None => Ok(()),
    }
}

/// Returns the flag or variable that a message names.
fn name_in(message: &str) -> &str {
    let mut words = message.split([' ', '\'', ':', '=']);
    let is_name = |word: &&str| {
        ["--", "ORGDATA_", "OTEL_"]
            .iter()
            .any(|it| word.starts_with(it))
    };
    words.find(is_name).unwrap_or("a setting")
}

/// Waits for what was started.
async fn ended<T>(task: JoinHandle<T>) -> Result<T, Failure> {
    let ended = task.await;
    ended
        .map_err(|error| Failure::at_run_time(format!("internal error: {error}; please report it")))
}

/// Says that the web server's certificate has expired, if it has.
fn expired(settings: &ExporterSettings) -> Option<Outcome> {
    let end = Timestamp::try_from(settings.web_config.certificate_not_after()?).ok()?;
    let said = format!(
        "that of --web.config.file expired at {end:.0}, and scrapers refuse it; replace it, no restart is needed"
    );
    (end < Timestamp::now()).then(|| bad(said))
}

// === impl Outcome ===

impl Outcome {
    fn new(level: Level, said: impl ToString) -> Self {
        Self {
            level,
            said: said.to_string(),
            class: None,
        }
    }

    fn in_json(self, class: impl ToString) -> Self {
        Self {
            class: Some(class.to_string()),
            ..self
        }
    }
}

// === impl Report ===

impl Report {
    fn add(&mut self, check: &'static str, found: Outcome) -> Result<(), Failure> {
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
    fn end(self) -> Result<(), Failure> {
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
        super::print(match self.format {
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
