//! The command line: which commands exist, the exporter's flags, and the settings that follow from them.
//!
//! Arguments come in two stages: [`Flags`] as they were given, and [`Settings`] as the parts of the program take them.
//! Each command defines its own arguments. Help, completions and manual pages are generated from [`Cli`].

mod flags;
mod resolve;
pub(crate) mod values;

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, Parser, Subcommand};

use crate::commands::backfill::{self, BackfillArgs};
use crate::commands::check::CheckArgs;
use crate::commands::completions::{CompletionsArgs, ManArgs};
use crate::commands::dead_letters::DeadLettersArgs;
use crate::commands::healthcheck::HealthcheckArgs;

pub(crate) use flags::{DEFAULT_STATE_PATH, with_variable};
pub use flags::{Flags, LogFlags, LogFormat};
pub(crate) use resolve::without_secrets;
pub use resolve::{Settings, SettingsError};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "orgdata-exporter",
    version,
    about = "Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization",
    after_help = "Every flag also reads the variable ORGDATA_ + its name in capitals with . and - as _: --audit.poll-interval is \
                  ORGDATA_AUDIT_POLL_INTERVAL. A flag wins over its variable. The API key is read from --api.key-file or from the variable \
                  ORGDATA_API_KEY. Collector settings other than --otlp.* are the standard OTEL_EXPORTER_OTLP_* variables.",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 140
)]
pub struct Cli {
    /// The command to run; without one, the exporter.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The exporter's flags.
    #[command(flatten)]
    pub flags: Flags,
}

/// A command other than the exporter itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deliver a range of history once: to the collector, or as a file for promtool
    #[command(
        mut_args = backfill::shown,
        after_help = "The default of --api.max-requests-per-second is 2 here: a running exporter uses the same API."
    )]
    Backfill(Box<BackfillArgs>),
    /// Check settings, API, key, collector, state file and ports: what is wrong and what to do. Changes nothing
    #[command(
        after_help = "Exit status: 0 all is well, 1 warnings: the exporter would work, but not as it should; 2 something is wrong."
    )]
    Check(Box<CheckArgs>),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Run the exporter with a simulator inside, on loopback, without configuration
    #[command(
        after_help = "Unless given: listens on 127.0.0.1:10917, polls every 1s from 10m ago on, scans tickets every 5s."
    )]
    Demo(Box<Flags>),
    /// List, deliver again or delete log records that the collector rejected and audit entries that could not be read
    DeadLetters(DeadLettersArgs),
    /// Ask a running exporter whether it is healthy: exit status 0 if so, 1 if not, 2 for wrong settings
    Healthcheck(HealthcheckArgs),
    /// Print the manual page, as roff: `orgdata-exporter man | man -l -`
    Man(ManArgs),
    /// Run the simulator of the Organization Data API alone, with control endpoints for events and faults
    Simulate(Box<crate::simulator::Args>),
}

/// The arguments with their origin: the command line, a variable or a default.
#[derive(Clone, Debug, Default)]
pub struct Given(ArgMatches);

// === impl Given ===

impl From<&ArgMatches> for Given {
    fn from(matches: &ArgMatches) -> Self {
        Self(matches.clone())
    }
}

impl Given {
    /// Returns whether a flag was given on the command line or as a variable; `name` has no dashes in front.
    pub fn contains(&self, name: &str) -> bool {
        self.origin(name) != ValueSource::DefaultValue
    }

    pub(crate) fn origin(&self, name: &str) -> ValueSource {
        let known = self.0.ids().any(|id| id == name);
        let source = known.then(|| self.0.value_source(name)).flatten();
        source.unwrap_or(ValueSource::DefaultValue)
    }

    /// Returns the values of a flag as they were written, defaults included.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let values = self.0.try_get_raw(name).ok().flatten();
        let values = values.into_iter().flatten();
        values
            .map(|value| value.to_string_lossy().into_owned())
            .collect()
    }
}

/// Returns a usage error as one line. If the value came from a variable the line names it.
pub fn usage_error(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more").next().unwrap_or_default();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => with_origin(line, flag),
        _ => line.to_owned(),
    }
}

/// Adds the variable to a message if `flag` begins with a flag that was set by its variable.
pub fn with_origin(message: &str, flag: &str) -> String {
    let Some(flag) = flag_of(flag) else {
        return message.to_owned();
    };
    let on_command_line = |argument: OsString| {
        let argument = argument.to_string_lossy().into_owned();
        let rest = argument
            .strip_prefix("--")
            .and_then(|argument| argument.strip_prefix(flag));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let name = variable_of(flag);
    if variable(&name).is_none() || std::env::args_os().skip(1).any(on_command_line) {
        return message.to_owned();
    }
    format!("{message} (the value is from the variable {name})")
}

/// Reads a variable; an empty one is unset. Bytes that are not UTF-8 are replaced, so that a malformed value is not
/// taken for a missing one.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?;
    Some(value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Returns the variables that look like the exporter's and are not. A typing error would leave a default in force unseen.
pub fn unknown_variables() -> Vec<String> {
    let commands = Cli::command();
    let all = std::iter::once(&commands).chain(commands.get_subcommands());
    let known: Vec<String> = all
        .flat_map(clap::Command::get_arguments)
        .filter_map(|argument| argument.get_long().map(variable_of))
        .chain([orgdata_api::KEY_VARIABLE.to_owned()])
        .collect();
    // Kubernetes sets variables for each Service, by its name.
    let from_kubernetes = |name: &str| {
        name.starts_with("ORGDATA_EXPORTER_")
            || name.contains("_SERVICE_")
            || name.contains("_PORT")
    };
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut unknown: Vec<String> = names
        .filter(|name| name.starts_with("ORGDATA_") && !known.contains(name))
        .filter(|name| !from_kubernetes(name))
        .collect();
    unknown.sort();
    unknown
}

/// Returns the name of the flag that a text begins with.
fn flag_of(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("--")?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || ".-".contains(letter);
    let end = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches('.')).filter(|flag| !flag.is_empty())
}

fn variable_of(flag: &str) -> String {
    format!("ORGDATA_{}", flag.to_uppercase().replace(['.', '-'], "_"))
}
