//! The command `check`: looks at everything that the exporter needs and prints, one line each, what is good, what is
//! wrong, and what to do.
//!
//! It changes nothing: it creates no file, moves no cursor and sends no record. No probe takes longer than ten seconds,
//! and independent probes run at the same time.

mod advice;
mod collector;
mod given;
mod listen;
mod report;
mod service;
mod state;

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Failure, printed};
use crate::cli::{self, Flags, Given, Settings};
use report::Report;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
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
#[derive(Clone, Debug, serde::Serialize)]
struct Finding {
    /// What was checked; the names are part of the interface.
    check: &'static str,
    level: Level,
    said: String,
    /// What to do.
    advice: Option<String>,
}

// === impl Finding ===

impl Finding {
    fn good(check: &'static str, said: impl Into<String>) -> Self {
        Self::new(Level::Good, check, said.into(), None)
    }

    fn warning(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Warning, check, said.into(), Some(advice.into()))
    }

    fn bad(check: &'static str, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Level::Bad, check, said.into(), Some(advice.into()))
    }

    /// A finding for an error of the exporter, whose message has its advice after a semicolon.
    fn error(check: &'static str, error: impl ToString) -> Self {
        let message = error.to_string();
        match message.split_once("; ") {
            Some((said, advice)) => Self::bad(check, said, advice),
            None => Self::new(Level::Bad, check, message, None),
        }
    }

    fn is_good(&self) -> bool {
        self.level == Level::Good
    }

    fn new(level: Level, check: &'static str, said: String, advice: Option<String>) -> Self {
        Self {
            check,
            level,
            said,
            advice,
        }
    }
}

/// Checks everything and prints the report.
///
/// # Errors
/// If something is not good, with the exit status and without a message.
pub async fn run(args: &CheckArgs, given: &Given) -> Result<(), Failure> {
    let report = Report::new(given::settings(given), findings(&args.flags).await);
    // Removes the colours unless this is a terminal that wants them.
    let mut out = anstream::stdout().lock();
    let result = match args.format {
        Format::Text => report.write_text(&mut out),
        Format::Json => report.write_json(&mut out),
    };
    match result {
        Ok(()) if report.level() != Level::Good => Err(Failure::reported(report.level() as u8)),
        result => printed(result),
    }
}

async fn findings(flags: &Flags) -> Vec<Finding> {
    let mut findings = Vec::new();
    let settings = Settings::resolve(flags, &cli::variable);
    findings.push(match &settings {
        Ok(_) => Finding::good("settings", "valid"),
        Err(error) => {
            let error = error.to_string();
            Finding::error("settings", cli::with_origin(&error, &error))
        }
    });
    findings.extend(super::unknown_variables().into_iter().map(|name| {
        let advice = "correct its name (--help lists them all) or unset it";
        Finding::warning(
            "variables",
            format!("{name} is unknown and has no effect"),
            advice,
        )
    }));
    let Ok(settings) = settings else {
        return findings;
    };
    let limit = settings.api.timeout.min(MAX_TIME);
    let (service, state, collector) = tokio::join!(
        service::check(&settings, limit),
        state::check(&settings.ledger, limit),
        collector::check(settings.otlp.as_ref(), limit),
    );
    let listen = listen::check(&settings.web, state.held, limit).await;
    findings.extend(service.findings);
    findings.extend(state.organization(service.organization.as_deref()));
    findings.push(collector);
    findings.extend(state.findings);
    findings.extend(listen);
    findings
}
