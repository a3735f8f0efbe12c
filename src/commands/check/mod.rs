//! The command `check`: tries everything that the exporter needs and prints, one line each, what is good, what is wrong, and what to do.
//!
//! It calls the constructors and validations of the exporter, and reports only what it has tried. It changes nothing: it moves no cursor
//! and sends no record, and it deletes at once what it creates beside the state file. No request takes longer than ten seconds. Everything
//! is tried at the same time, and each line is printed once it and those before it are known.

mod api;
mod collector;
mod report;
mod state;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use clap::Args;
use jiff::Timestamp;
use orgdata_api::{Client, Endpoint};
use tokio::task::JoinHandle;

use super::{Failure, ReportFormat};
use crate::cli::{self, ExporterSettings, Flags};
use report::Level::{Bad, Good, Warning};
use report::{Line, Report};
use state::State;

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
    let resolved = ExporterSettings::resolve(&args.flags, &cli::variable);
    match resolved.and_then(api::with_client) {
        Ok((settings, client)) if wrong.is_empty() => {
            try_all(Arc::new(settings), client, &mut report).await?;
        }
        resolved => {
            let errors = resolved.err().unwrap_or_default();
            let errors = errors.iter().map(|error| cli::with_origin(error, error));
            for problem in wrong.into_iter().chain(errors) {
                report.add(Line::new(Bad, "settings", problem))?;
            }
        }
    }
    report.end()
}

async fn try_all(
    settings: Arc<ExporterSettings>,
    client: Client,
    report: &mut Report,
) -> Result<(), Failure> {
    for problem in super::variables_without_effect() {
        report.add(Line::new(Warning, "variables", problem))?;
    }
    report.add(Line::new(Good, "settings", "valid"))?;
    let listing = |endpoint| {
        let listing = api::listing(endpoint, client.clone(), settings.clone());
        tokio::spawn(listing)
    };
    let listings = [Endpoint::AuditLogs, Endpoint::Tickets].map(listing);
    let logs = tokio::spawn(collector::logs(settings.clone()));
    let traces = tokio::spawn(collector::traces());
    let bound = exporter_web::bind(&settings.web, settings.web_config.clone());
    let (bound, state) = tokio::join!(bound, state::look(&settings.ledger));
    let taken = bound.err();
    report.add(port(&settings, taken.as_ref(), &state))?;
    report.add(expired(&settings))?;
    report.add(state::line(&state, &settings.ledger, taken.is_none()))?;
    report.add(ended(logs).await?)?;
    report.add(ended(traces).await?)?;
    let mut organizations = Vec::new();
    for listing in listings {
        let (line, named) = ended(listing).await?;
        report.add(line)?;
        organizations.extend(named);
    }
    report.add(state::organization(&state, &organizations))
}

/// Waits for what was started.
async fn ended<T>(task: JoinHandle<T>) -> Result<T, Failure> {
    let ended = task.await;
    ended
        .map_err(|error| Failure::at_run_time(format!("internal error: {error}; please report it")))
}

/// Returns whether the addresses of the web server can be used. The exporter that has the state file may have them.
fn port(settings: &ExporterSettings, problem: Option<&io::Error>, state: &State) -> Line {
    let addresses = settings.web.listen_addresses.join(", ");
    let is_locked = state.as_ref().is_ok_and(|look| look.is_locked);
    match problem {
        None => Line::new(Good, "port", format!("{addresses}: free")),
        Some(error) if error.kind() == ErrorKind::AddrInUse && is_locked => {
            let text = format!("{addresses}: in use, as the state file is, by a running exporter");
            Line::new(Good, "port", text)
        }
        Some(error) => Line::new(Bad, "port", error),
    }
}

/// Returns a line if the web server's certificate has expired.
fn expired(settings: &ExporterSettings) -> Option<Line> {
    let end = Timestamp::try_from(settings.web_config.certificate_validity()?.end).ok()?;
    let text = format!(
        "that of --web.config.file expired at {end:.0}, and scrapers refuse it; replace it, no restart is needed"
    );
    (end < Timestamp::now()).then(|| Line::new(Bad, "certificate", text))
}
