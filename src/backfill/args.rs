//! The flags of `backfill`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::audit::{Start, StartError};
use crate::cli::{Flags, values};

/// `backfill`.
#[derive(Clone, Debug, Args)]
pub struct BackfillArgs {
    /// Where history goes
    #[arg(long, value_name = "TARGET", value_enum)]
    pub to: Target,
    /// The file to write, with --to openmetrics
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The beginning: oldest, a duration ago like 30d, or an instant like 2026-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN", default_value = "oldest")]
    pub from: Start,
    /// The end, itself excluded: now, a duration ago, an instant, or live: where the counters of the exporter whose state file
    /// --state.path names begin [default: now with --to otlp, live with --to openmetrics]
    #[arg(long, value_name = "WHEN")]
    pub until: Option<Until>,
    /// Only count what is there
    #[arg(long)]
    pub dry_run: bool,
    /// Give up when the service, or the collector, has failed for this long
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = values::duration)]
    pub patience: Duration,
    /// With --to otlp: how far it is, and the records that wait. Run again with the same file, it goes on where it was
    #[arg(long, value_name = "FILE", default_value = "orgdata-backfill.db")]
    pub progress: PathBuf,
    /// With --to otlp: most log records per second [default: as fast as the service and the collector are]
    #[arg(long, value_name = "RECORDS", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// With --to openmetrics: a label of every series, as Prometheus gives it to what it scrapes; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// With --to openmetrics: time between two samples, as a scrape interval; whole seconds, below Prometheus' look-back of 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = step)]
    pub step: Duration,
    /// With --to openmetrics: how long before and after each rise there are samples, so that increase() is right
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = values::duration_or_zero)]
    pub fill: Duration,
    /// With --to openmetrics: also write samples of the last three hours, for a database that holds nothing of them
    #[arg(long)]
    pub allow_recent: bool,
    /// The exporter's flags, as far as they matter here.
    #[command(flatten)]
    pub flags: Box<Flags>,
}

/// Where history goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// To the collector, as log records
    Otlp,
    /// Into a file, for promtool tsdb create-blocks-from openmetrics
    Openmetrics,
}

/// The end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Where the exporter's own counters begin.
    Live,
    /// A moment.
    At(Start),
}

/// Flags of the exporter that a backfill has no use for: in an exporter's environment their variables are set all the same.
const USELESS: [&str; 15] = [
    "audit.enabled",
    "audit.poll-interval",
    "audit.start",
    "audit.reread-interval",
    "audit.reread-window",
    "tickets.enabled",
    "tickets.scan-interval",
    "tickets.max-age",
    "tickets.open-states",
    "tickets.priorities",
    "metrics.zero-hold",
    "web.listen-address",
    "web.systemd-socket",
    "web.config.file",
    "web.telemetry-path",
];

/// An argument as the help of `backfill` shows it, or does not.
pub(crate) fn shown(argument: clap::Arg) -> clap::Arg {
    let useless = USELESS.contains(&argument.get_id().as_str());
    argument.hide(useless)
}

// === impl Until ===

impl FromStr for Until {
    type Err = StartError;

    fn from_str(text: &str) -> Result<Self, StartError> {
        if text.trim() == "live" {
            Ok(Self::Live)
        } else {
            text.parse().map(Self::At)
        }
    }
}

impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::At(start) => start.fmt(f),
        }
    }
}

fn step(text: &str) -> Result<Duration, String> {
    let step = values::duration(text)?;
    if step.subsec_nanos() != 0 || step >= Duration::from_secs(300) {
        return Err("write whole seconds below 5m, like 15s or 1m: Prometheus shows nothing between two samples further apart".to_owned());
    }
    Ok(step)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("write a name and a value, like job=orgdata-exporter")?;
    let mut letters = name.chars();
    let first = letters
        .next()
        .is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    if !first
        || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        || name.starts_with("__")
    {
        return Err(format!(
            "{name:?} is no name of a label; write one of letters, digits and _, like job=orgdata-exporter"
        ));
    }
    if ["activity_type", "actor"].contains(&name) {
        return Err(format!(
            "{name} is a label of the metric itself; write those that Prometheus adds, like job=orgdata-exporter"
        ));
    }
    if value.is_empty() {
        return Err(
            "a label without a value is none; write one, like job=orgdata-exporter".to_owned(),
        );
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_that_prometheus_takes() {
        assert_eq!(label("job=a=b"), Ok(("job".to_owned(), "a=b".to_owned())));
        for wrong in [
            "job",
            "=x",
            "1a=x",
            "a-b=x",
            "__name__=x",
            "actor=7",
            "activity_type=A",
            "job=",
        ] {
            assert!(label(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_step_is_of_whole_seconds_and_shorter_than_the_look_back() {
        assert_eq!(step("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0", "0s", "1500ms", "5m", "1h", "fast"] {
            assert!(step(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_useless_here_is_a_flag_of_the_exporter() {
        use clap::CommandFactory as _;
        let command = crate::cli::Cli::command();
        for id in USELESS {
            assert!(
                command
                    .get_arguments()
                    .any(|argument| argument.get_id() == id),
                "{id}"
            );
        }
        let backfill = command.find_subcommand("backfill").expect("a command");
        let hidden = backfill
            .get_arguments()
            .filter(|argument| argument.is_hide_set())
            .count();
        assert_eq!(hidden, USELESS.len());
    }
}
