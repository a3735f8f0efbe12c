//! The command `check`: tries everything that the exporter needs and prints, one line each, what is good, what is wrong, and what to do.
//!
//! It calls the constructors and validations of the exporter, and says only what it has tried. It changes nothing: it moves no cursor and
//! sends no record, and what it creates beside the state file is gone at once. No request takes longer than ten seconds. Everything is tried
//! at the same time, and each line is printed once it and those before it are known.

mod api;
mod collector;
mod port;
mod report;
mod state;

use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::{Failure, ReportFormat};
use crate::cli::{self, ExporterSettings, Flags};
use report::{Outcome, Report, bad, good, warning};

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Lines for people, or one JSON document
    #[arg(long, default_value = "text", ignore_case = true)]
    format: ReportFormat,
    #[command(flatten)]
    flags: Flags,
}

/// Checks everything and prints the report. `wrong` is what is wrong with the command line and its variables.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, wrong: Vec<String>) -> Result<(), Failure> {
    let mut report = Report::new(args.format);
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
    let end = Timestamp::try_from(settings.web_config.certificate_validity()?.end).ok()?;
    let said = format!(
        "that of --web.config.file expired at {end:.0}, and scrapers refuse it; replace it, no restart is needed"
    );
    (end < Timestamp::now()).then(|| bad(said))
}
