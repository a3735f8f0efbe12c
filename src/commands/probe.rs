//! The command `probe`: asks the API how it behaves where its contract is silent, and prints what the exporter does about it.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use clap::builder::styling::{AnsiColor, Style};
use orgdata_api::Client;
use orgdata_probe::{MAX_REQUESTS, Options, Report};
use serde_json::json;

use super::{Failure, ReportFormat, printed};
use crate::cli::{self, ExporterSettings, Flags};
use crate::metrics::Metrics;
use crate::util::one_line;

/// The time between two looks of `--watch`, which takes four.
const WATCH: Duration = Duration::from_secs(30);

/// `probe`.
#[derive(Clone, Debug, Args)]
pub struct ProbeArgs {
    /// A table for people, or one JSON document, without data of the organization, for a bug report
    #[arg(long, default_value = "text")]
    format: ReportFormat,
    /// Also look for late entries and expired cursors, for two minutes
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Asks everything and prints the answers.
///
/// # Errors
/// If the settings are wrong or a listing cannot be read (status 2), or the exporter would work badly (status 1).
pub async fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let settings = ExporterSettings::resolve(&args.flags, &cli::variable);
    let settings = settings.map_err(Failure::in_settings)?;
    let options = Options {
        audit: settings.audit.is_some(),
        tickets: settings.tickets.is_some(),
        watch: args.watch.then_some(WATCH),
    };
    // The observer is not read.
    let observer = Metrics::new(Duration::ZERO).api.clone();
    let client = Client::for_probe(settings.api, observer).map_err(Failure::in_settings)?;
    let report = orgdata_probe::probe(client, options).await;
    let is_bad = report.answers.iter().any(|answer| answer.advice.is_some());
    // Removes the colours unless this is a terminal that wants them.
    let mut out = anstream::stdout().lock();
    printed(match args.format {
        ReportFormat::Text => write_text(&report, is_bad, &mut out),
        ReportFormat::Json => {
            let version = env!("CARGO_PKG_VERSION");
            let report = json!({ "version": version, "requests": report.requests, "answers": report.answers });
            writeln!(out, "{report:#}")
        }
    })?;
    match is_bad {
        _ if report.is_unreadable => Err(Failure::new(
            2,
            "a listing cannot be read; run \"orgdata-exporter check\" with the same flags, which says why",
        )),
        true => Err(Failure::new(1, "")),
        false => Ok(()),
    }
}

/// Writes a paragraph for each question: answer and evidence, then what the exporter does about it, then what to do.
fn write_text(report: &Report, is_bad: bool, out: &mut dyn Write) -> io::Result<()> {
    let names = report.answers.iter().map(|answer| answer.question.len());
    let width = names.max().unwrap_or(0);
    let (yellow, dimmed) = (AnsiColor::Yellow.on_default(), Style::new().dimmed());
    for answer in &report.answers {
        let evidence = one_line(&answer.evidence, usize::MAX);
        let text = match &answer.answer {
            Some(text) => format!("{} ({evidence})", one_line(text, usize::MAX)),
            None => format!("{dimmed}cannot tell: {evidence}{dimmed:#}"),
        };
        writeln!(out, "{:width$}  {text}", answer.question)?;
        writeln!(
            out,
            "{:width$}  {dimmed}the exporter {}{dimmed:#}",
            "", answer.exporter
        )?;
        if let Some(advice) = answer.advice {
            writeln!(out, "{:width$}  {yellow}{advice}{yellow:#}", "")?;
        }
    }
    let verdict = match is_bad {
        _ if report.is_unreadable => "",
        true => "The exporter would work badly: the lines above say what to do. ",
        false => "The exporter copes with everything that was found. ",
    };
    let requests = report.requests;
    writeln!(
        out,
        "\n{verdict}{requests} of at most {MAX_REQUESTS} requests were sent."
    )
}
