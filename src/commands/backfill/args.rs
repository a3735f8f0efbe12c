//! The flags of `backfill`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::audit::Start;
use crate::cli::{Flags, values};
use crate::commands::Failure;

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
    #[arg(long, value_name = "WHEN", default_value = "oldest", value_parser = values::start)]
    pub from: Start,
    /// The end, excluded: now, a duration ago, an instant, or live: where the counters of the exporter of --state.path begin
    /// [default: live; now with --to otlp if there is no such state file]
    #[arg(long, value_name = "WHEN", value_parser = until)]
    pub until: Option<Until>,
    /// Only count the entries
    #[arg(long)]
    pub dry_run: bool,
    /// Give up after the service or the collector has failed for this long
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = values::duration)]
    pub patience: Duration,
    /// With --to otlp: the file for the progress and the records that wait. A later run with the same file continues
    #[arg(long, value_name = "FILE", default_value = "orgdata-backfill.db")]
    pub progress: PathBuf,
    /// With --to otlp: the maximum number of log records per second [default: unlimited]
    #[arg(long, value_name = "RECORDS", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// With --to openmetrics: a label that Prometheus adds to what it scrapes; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// With --to openmetrics: the time between two samples, like a scrape interval; whole seconds below Prometheus' look-back of 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = step)]
    pub step: Duration,
    /// With --to openmetrics: how long to write samples before and after each increase, so that increase() is right
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = values::duration_or_zero)]
    pub fill: Duration,
    /// With --to openmetrics: also write samples of the last three hours, for a database that holds nothing of that time
    #[arg(long)]
    pub allow_recent: bool,
    /// The exporter's flags.
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

/// The end of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Where the exporter's own counters begin.
    Live,
    /// An instant.
    At(Start),
}

/// Flags of the exporter that have no effect here. They are accepted, because an exporter's variables may be set.
const NO_EFFECT: [&str; 15] = [
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

/// Hides flags without effect from the help.
pub(crate) fn shown(argument: clap::Arg) -> clap::Arg {
    let has_no_effect = NO_EFFECT.contains(&argument.get_id().as_str());
    argument.hide(has_no_effect)
}

// === impl BackfillArgs ===

impl BackfillArgs {
    /// Checks what the parser cannot.
    pub(super) fn check(&self, has_collector: bool) -> Result<(), Failure> {
        let problem = match (self.to, self.dry_run, &self.file) {
            (Target::Otlp, _, Some(_)) => {
                "--to otlp writes no file; leave FILE out, or use --to openmetrics FILE"
            }
            (Target::Openmetrics, false, None) => {
                "--to openmetrics needs a file to write: --to openmetrics FILE"
            }
            (Target::Otlp, false, None) if !has_collector => {
                "--to otlp needs a collector; set --otlp.endpoint"
            }
            (Target::Otlp, ..) if self.progress.as_os_str() == ":memory:" => {
                "--progress :memory: would be lost with the process; name a file"
            }
            _ => {
                let names: Vec<_> = self.label.iter().map(|(name, _)| name).collect();
                let repeated = names
                    .iter()
                    .enumerate()
                    .find(|(i, name)| names[..*i].contains(name));
                let Some((_, name)) = repeated else {
                    return Ok(());
                };
                return Err(Failure::in_settings(format!(
                    "--label {name} is given twice; give each label once"
                )));
            }
        };
        Err(Failure::in_settings(problem))
    }
}

// === impl Until ===

impl std::fmt::Display for Until {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::At(start) => start.fmt(f),
        }
    }
}

fn until(text: &str) -> Result<Until, String> {
    match text.trim() {
        "live" => Ok(Until::Live),
        text => values::start(text).map(Until::At),
    }
}

fn step(text: &str) -> Result<Duration, String> {
    let step = values::duration(text)?;
    if step.subsec_nanos() != 0 || step >= Duration::from_secs(300) {
        return Err("must be whole seconds below 5m, like 15s or 1m: Prometheus shows nothing between samples that are further apart".to_owned());
    }
    Ok(step)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("must be a name and a value, like job=orgdata-exporter")?;
    let mut letters = name.chars();
    let first = letters
        .next()
        .is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    if !first
        || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        || name.starts_with("__")
    {
        return Err(format!(
            "{name:?} is not a valid label name; use letters, digits and _, like job=orgdata-exporter"
        ));
    }
    if ["activity_type", "actor"].contains(&name) {
        return Err(format!(
            "{name} is a label of the metric itself; give labels that Prometheus adds, like job=orgdata-exporter"
        ));
    }
    if value.is_empty() {
        return Err("a label needs a value, like job=orgdata-exporter".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}
