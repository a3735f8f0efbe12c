//! The command `check`: looks at everything that the exporter needs and says, a line each, what is well, what is not, and what to do.
//!
//! It changes nothing: it makes no file, moves no cursor and sends no record. No request takes longer than `--api.timeout` or ten seconds,
//! and what does not depend on each other is looked at side by side.

mod advice;
mod api;
mod asked;
mod collector;
mod listing;
mod report;
mod sample;
mod settings;
mod state;
mod web;

use std::time::Duration;

use clap::{ArgMatches, Args};

use crate::cli::{Flags, Given, Settings};

pub use report::{Format, Report};

/// The longest time for one request, whatever the flags allow the exporter.
const LONGEST: Duration = Duration::from_secs(10);

/// `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The exporter's flags.
    #[command(flatten)]
    pub flags: Flags,
    /// Lines for people, or one JSON document
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Output"
    )]
    pub format: Format,
}

/// The variables of a process.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "a function has none, and variables hold secrets"
)]
pub struct Environment<'a> {
    /// Reads one.
    pub read: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all.
    pub names: &'a [String],
}

/// How well a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(into = "&'static str")]
pub enum Level {
    /// As it should be.
    Good,
    /// The exporter works, but not as it should.
    Warning,
    /// The exporter does not start, or says an error all the time.
    Bad,
}

/// What a finding is about; the names are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(into = "&'static str")]
#[expect(missing_docs, reason = "the names say it")]
pub enum What {
    Settings,
    Variables,
    Service,
    Key,
    AuditLogs,
    Tickets,
    Organization,
    Clock,
    Collector,
    State,
    Disk,
    WebConfig,
    Listen,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What it is about.
    pub check: What,
    /// How well it is.
    pub level: Level,
    /// What was seen: one line.
    pub said: String,
    /// What to do about it, where something is to be done.
    pub advice: Option<String>,
}

// === impl Level ===

impl Level {
    /// The process's exit status.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Warning => 1,
            Self::Bad => 2,
        }
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

impl From<Level> for &'static str {
    fn from(level: Level) -> Self {
        level.as_str()
    }
}

// === impl What ===

impl What {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Variables => "variables",
            Self::Service => "service",
            Self::Key => "key",
            Self::AuditLogs => "audit-logs",
            Self::Tickets => "tickets",
            Self::Organization => "organization",
            Self::Clock => "clock",
            Self::Collector => "collector",
            Self::State => "state",
            Self::Disk => "disk",
            Self::WebConfig => "web-config",
            Self::Listen => "listen",
        }
    }
}

impl From<What> for &'static str {
    fn from(what: What) -> Self {
        what.as_str()
    }
}

// === impl Finding ===

impl Finding {
    fn good(check: What, said: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Good,
            said: said.into(),
            advice: None,
        }
    }

    fn warning(check: What, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Warning,
            said: said.into(),
            advice: Some(advice.into()),
        }
    }

    fn bad(check: What, said: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Bad,
            said: said.into(),
            advice: Some(advice.into()),
        }
    }

    /// A message that holds its own advice after the first semicolon, as most of the program's do.
    fn told(check: What, level: Level, message: &str) -> Self {
        let (said, advice) = match message.split_once("; ") {
            Some((said, advice)) => (said, Some(advice.to_owned())),
            None => (message, None),
        };
        Self {
            check,
            level,
            said: said.to_owned(),
            advice,
        }
    }
}

/// Looks at everything.
pub async fn run(args: &CheckArgs, matches: &ArgMatches, env: Environment<'_>) -> Report {
    let shown = settings::shown(matches, env);
    let mut findings = settings::unknown_variables(env);
    let settings = match Settings::resolve(&args.flags, env.read) {
        Ok(settings) => settings,
        Err(error) => {
            let message = Given::from(matches).with_origin(&error.to_string());
            findings.insert(
                0,
                Finding {
                    check: What::Settings,
                    level: Level::Bad,
                    said: message,
                    advice: None,
                },
            );
            return Report::new(shown, findings);
        }
    };
    findings.insert(0, Finding::good(What::Settings, "valid"));
    let limit = settings.api.timeout.min(LONGEST);
    let (state, api, collector) = tokio::join!(
        async {
            let state = state::look(&settings.ledger, limit).await;
            let web = web::look(&settings.web, state.held, limit).await;
            (state, web)
        },
        api::look(&settings, limit),
        collector::look(settings.otlp.as_ref(), limit),
    );
    let (state, web) = state;
    findings.extend(api.findings);
    findings.extend(state::organization(api.organization.as_deref(), &state));
    findings.extend(collector);
    findings.extend(state.findings);
    findings.extend(web);
    Report::new(shown, findings)
}
