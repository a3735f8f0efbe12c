//! The commands of the binary. Each one defines its arguments, and [`Cli`] lists them: help, completions and manual pages
//! are generated from it.

pub mod check;
pub mod completions;
pub mod dead_letters;
pub mod demo;
pub mod healthcheck;
pub mod simulate;
pub mod verify;

use std::ffi::OsString;
use std::io::{self, Write as _};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{
    Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};

pub use crate::app::Failure;
use crate::cli::{self, Flags};
use check::CheckArgs;
use completions::{CompletionsArgs, ManArgs};
use dead_letters::DeadLettersArgs;
use healthcheck::HealthcheckArgs;
use verify::VerifyArgs;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "orgdata-exporter",
    version,
    about = "Prometheus exporter and OTLP sidecar for the audit logs and tickets of one organization",
    after_help = "-h shows the flags that most users need, --help all of them.",
    after_long_help = "Every flag can also be set by an environment variable, ORGDATA_ and its name in capitals with _ for . and -: --audit.poll-interval is \
                  ORGDATA_AUDIT_POLL_INTERVAL. A flag takes precedence over its variable. The API key is read from --api.key-file or from the variable \
                  ORGDATA_API_KEY. Collector settings other than --otlp.* are the standard OTEL_EXPORTER_OTLP_* variables.",
    args_conflicts_with_subcommands = true,
    max_term_width = 140,
    mut_args = brief
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
    /// Try settings, port, API, key, collector and state file, and print what is wrong and how to fix it. Changes nothing
    #[command(
        mut_args = brief,
        after_help = "Requests three pages of audit logs and two of tickets, and compares them with what the exporter assumes of the API. Exit status: \
                      0 all is well; 1 warnings (the exporter would work, but not as it should); 2 something is wrong or could not be tested."
    )]
    Check(Box<CheckArgs>),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Run the exporter with a built-in simulator, on loopback, without configuration
    #[command(
        mut_args = |flag| brief(demo::adapted(flag)),
        after_help = "Unless given: listens on 127.0.0.1:10917, polls every 1s, prints the log records of the last 10m first, scans tickets \
                      every 5s. Reads no variable."
    )]
    Demo(Box<Flags>),
    /// List, replay or delete log records that the collector rejected and audit entries that could not be read
    DeadLetters(DeadLettersArgs),
    /// Check the health of a running exporter: exit status 0 healthy, 1 not healthy, 2 wrong settings
    Healthcheck(HealthcheckArgs),
    /// Print the manual page, as roff: `orgdata-exporter man | man -l -`
    Man(ManArgs),
    /// Run the simulator of the Organization Data API alone, with control endpoints for events and faults
    Simulate(Box<crate::simulator::Args>),
    /// Compare a log store's export with the API
    #[command(
        mut_args = |flag| brief(verify::adapted(flag)),
        after_help = "Exit status: 0 nothing is missing, or all missing entries were sent; 1 something is missing; 2 cannot compare."
    )]
    Verify(Box<VerifyArgs>),
    /// Print the version
    Version,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
}

/// The flags that `-h` shows, so that it fits on a screen.
const BRIEF: [&str; 7] = [
    "api.base-url",
    "api.key-file",
    "state.path",
    "audit.start",
    "otlp.endpoint",
    "otlp.protocol",
    "web.listen-address",
];

/// Hides the other flags of the exporter from `-h`.
fn brief(argument: Arg) -> Arg {
    let id = argument.get_id().as_str();
    let is_hidden = id.contains('.') && !BRIEF.contains(&id);
    argument.hide_short_help(is_hidden)
}

/// Parses the command line. `check` reports everything that is wrong with it and its variables: a flag that is wrong is left out, and
/// the rest is parsed again.
///
/// # Errors
/// If it is wrong, for any other command.
pub fn parse() -> Result<(Cli, ArgMatches, Vec<String>), Failure> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    // clap takes `-h` after `help` for the name of a command.
    if words.get(1).is_some_and(|word| word == "help") {
        words.retain(|word| word != "-h" && word != "--help");
    }
    let is_check = words.get(1).is_some_and(|word| word == "check");
    let mut wrong = cli::quoted_variables();
    let mut left_out: Vec<String> = Vec::new();
    loop {
        let unread = |flag: Arg| match flag.get_long() {
            Some(name) if left_out.iter().any(|out| out == name) => flag.env(Resettable::Reset),
            _ => flag,
        };
        let command = Cli::command().mut_args(unread);
        let command = command.mut_subcommand("check", |check| check.mut_args(unread));
        let parsed = command.try_get_matches_from(&words);
        let error = match parsed.and_then(|it| Ok((Cli::from_arg_matches(&it)?, it))) {
            Ok(_) if !is_check && !wrong.is_empty() => {
                return Err(Failure::of_settings(wrong));
            }
            Ok((cli, matches)) => return Ok((cli, matches, wrong)),
            // Help and version. It is no error if nothing reads them.
            Err(help) if !help.use_stderr() => help.exit(),
            Err(error) => error,
        };
        wrong.push(cli::usage_error(&error));
        let flag = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(flag)) if is_check => flag.split([' ', '=', '[']).next(),
            _ => None,
        };
        let flag = flag.and_then(|flag| flag.strip_prefix("--"));
        let Some(flag) = flag.filter(|flag| !left_out.iter().any(|out| out == flag)) else {
            return Err(Failure::of_settings(wrong));
        };
        words = without(flag, words);
        left_out.push(flag.to_owned());
    }
}

/// Removes a flag and its value.
fn without(flag: &str, words: Vec<OsString>) -> Vec<OsString> {
    let mut has_value = false;
    let is_kept = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_value = std::mem::take(&mut has_value) && !word.starts_with("--");
        let rest = word
            .strip_prefix("--")
            .and_then(|name| name.strip_prefix(flag));
        let is_it = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        has_value = rest == Some("");
        !is_it && !is_value
    };
    words.into_iter().filter(is_kept).collect()
}

/// Turns the result of printing into that of the command. A reader that has gone, as in `| head`, is not an error.
pub(crate) fn printed(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::at_run_time(
            format!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// Prints to standard output.
///
/// # Errors
/// If it cannot be written.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    printed(io::stdout().write_all(text.as_ref()))
}

/// Returns what is wrong with variables that have no effect. The exporter runs without them.
pub fn variables_without_effect() -> Vec<String> {
    let unknown = unknown_variables().into_iter().map(|name| {
        format!("{name} is unknown; correct its name (--help lists all of them) or unset it")
    });
    unknown
        .chain(otlp_logs::wrong_attributes(&cli::variable))
        .collect()
}

/// Returns the variables that look like the exporter's and are not. A typing error would leave a default in force unseen.
fn unknown_variables() -> Vec<String> {
    let commands = Cli::command();
    let all = std::iter::once(&commands).chain(commands.get_subcommands());
    let known: Vec<String> = all
        .flat_map(clap::Command::get_arguments)
        .filter_map(Arg::get_env)
        .map(|name| name.to_string_lossy().into_owned())
        .chain([orgdata_api::KEY_VARIABLE.to_owned()])
        .collect();
    // Kubernetes sets variables for each Service, by its name, and always its host.
    let from_kubernetes = |name: &str| {
        let mut services = name.match_indices('_').map(|(at, _)| name.split_at(at));
        services.any(|(service, rest)| {
            let is_of_service = rest.starts_with("_PORT") || rest.starts_with("_SERVICE_");
            is_of_service && std::env::var_os(format!("{service}_SERVICE_HOST")).is_some()
        })
    };
    let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let mut unknown: Vec<String> = variables
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with("ORGDATA_") && !known.contains(name))
        .filter(|name| !from_kubernetes(name))
        .collect();
    unknown.sort();
    unknown
}
