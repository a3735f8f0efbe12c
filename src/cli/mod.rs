//! Flags, environment and defaults; turned into checked settings once.
//!
//! Arguments come in two stages: raw ones as they were given ([`Flags`]), and the settings that the parts of the program take ([`Settings`]).

mod flags;
mod origin;
mod resolve;
mod shell;
pub(crate) mod values;

use clap::{Parser, Subcommand};

pub use flags::Flags;
pub use origin::{Given, from_variable, variable};
pub(crate) use resolve::without_secrets;
pub use resolve::{DEFAULT_STATE_PATH, LogFormat, LogSettings, Settings, SettingsError};
pub use shell::{completions, man};

use crate::{backfill, check, dead_letters, healthcheck, simulator};

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
    /// What to run; without one, the exporter.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The exporter's flags.
    #[command(flatten)]
    pub flags: Flags,
}

/// A command other than the exporter itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Deliver a range of history once: to the collector, or as a file that promtool makes blocks of
    #[command(
        max_term_width = 140,
        mut_args = backfill::shown,
        after_help = "Unless given, --api.max-requests-per-second is 2 here: a running exporter asks the same service."
    )]
    Backfill(Box<backfill::BackfillArgs>),
    /// Look at settings, service, key, collector, state file and ports, and say what is wrong and what to do; nothing is changed
    #[command(
        max_term_width = 140,
        after_help = "Exit status: 0 all is well, 1 warnings: the exporter would work, but not as it should; 2 something is wrong."
    )]
    Check(Box<check::CheckArgs>),
    /// Print the completions of a shell, to be put where it looks for them
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Run the exporter against a simulator inside, on loopback, with no configuration: see everything work in two seconds
    #[command(
        max_term_width = 140,
        after_help = "Unless given: listens on 127.0.0.1:10917, polls every 1s from 10m ago on, scans tickets every 5s."
    )]
    Demo {
        /// The exporter's flags; those that name the API are set by the demo.
        #[command(flatten)]
        flags: Box<Flags>,
    },
    /// See, send again or delete the log records that the collector refused for good, and the audit entries that could not be read
    #[command(max_term_width = 140)]
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Ask a running exporter whether it is healthy: exit status 0 if so, 1 if not, 2 for wrong settings. For container engines, where there is no shell
    #[command(max_term_width = 140)]
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Print the manual page, as roff: `orgdata-exporter man | man -l -`
    Man {
        /// Of which command, as in `man dead-letters list`; without one, of the program
        #[arg(value_name = "COMMAND")]
        path: Vec<String>,
    },
    /// Run the simulator of the Organization Data API alone, with a control endpoint for events and faults
    #[command(max_term_width = 140)]
    Simulate {
        /// What to simulate.
        #[command(flatten)]
        args: Box<simulator::Args>,
    },
}

/// A usage error as one line: what clap says over several, without its decoration.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told = text
        .split("\n\nUsage:")
        .next()
        .unwrap_or(&text)
        .split("\n\nFor more information")
        .next()
        .unwrap_or(&text);
    let line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
