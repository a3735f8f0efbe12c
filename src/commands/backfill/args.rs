//! The flags of `backfill`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::{Flags, values};
use crate::tail::Start;

/// `backfill`.
#[derive(Clone, Debug, Args)]
pub struct BackfillArgs {
    /// Where history goes
    #[arg(long, value_name = "TARGET", value_enum)]
    pub to: Target,
    /// The file to write, with --to openmetrics
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The beginning: oldest, a duration ago like 30d, or a time like 2026-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN", default_value = "oldest", value_parser = values::start)]
    pub from: Start,
    /// The end, excluded: now, a duration ago, a time, or live: the time at which the counters of the exporter of --state.path start, or with
    /// --to otlp its log records
    /// [default: live; now with --to otlp if there is no such state file]. With --to openmetrics, the default has to be three hours ago by now
    #[arg(long, value_name = "WHEN", value_parser = until)]
    pub until: Option<String>,
    /// Only count the entries; needs neither FILE nor a collector, but checks --from and --until
    #[arg(long)]
    pub dry_run: bool,
    /// With --to otlp: the file for the progress and the records that wait. A later run with the same file continues
    #[arg(long, value_name = "FILE", default_value = "orgdata-backfill.db")]
    pub progress: PathBuf,
    /// With --to openmetrics: a label that Prometheus adds to what it scrapes; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// With --to openmetrics: the time between two samples, like a scrape interval; whole seconds below Prometheus' look-back of 5m
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = step)]
    pub step: Duration,
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

/// Hides the exporter's flags that have no effect here; they are accepted, because an exporter's variables may be set.
/// Lowers the default rate of requests, because a running exporter uses the same API.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    const NO_EFFECT: &str = "audit.enabled audit.poll-interval audit.start audit.reread-interval audit.reread-window \
                             metrics.zero-hold metrics.actor-idle state.max-size kubernetes.pod-index";
    let id = argument.get_id().as_str();
    if id == "api.max-requests-per-second" {
        return argument.default_value("2");
    }
    let is_hidden = id.starts_with("tickets.")
        || id.starts_with("web.")
        || NO_EFFECT.split(' ').any(|name| name == id);
    argument.hide(is_hidden)
}

// === impl BackfillArgs ===

impl BackfillArgs {
    /// Checks what the parser cannot.
    pub(super) fn check(&self, has_collector: bool) -> Result<(), String> {
        let mut names = BTreeSet::from(["activity_type", "actor"]);
        if let Some((name, _)) = self.label.iter().find(|(name, _)| !names.insert(name)) {
            return Err(format!(
                "--label {name} is given twice, or is a label of the metric itself; give each label once"
            ));
        }
        let problem = match (self.to, &self.file) {
            (Target::Otlp, Some(_)) => {
                "--to otlp writes no file; leave FILE out, or use --to openmetrics FILE"
            }
            _ if self.dry_run => return Ok(()),
            (Target::Otlp, None) if !has_collector => {
                "--to otlp needs a collector; set --otlp.endpoint"
            }
            (Target::Openmetrics, None) => {
                "--to openmetrics needs a file to write: --to openmetrics FILE"
            }
            _ => return Ok(()),
        };
        Err(problem.to_owned())
    }
}

fn until(text: &str) -> Result<String, String> {
    if text != "live" {
        values::start(text)?;
    }
    Ok(text.to_owned())
}

fn step(text: &str) -> Result<Duration, String> {
    let step = values::duration(text)?;
    if step.subsec_nanos() != 0 || step >= Duration::from_secs(300) {
        return Err("must be whole seconds below 5m, like 15s or 1m: Prometheus shows nothing between samples that are further apart".to_owned());
    }
    Ok(step)
}

fn label(text: &str) -> Result<(String, String), String> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_name = |name: &str| {
        name.chars().all(is_letter) && name.starts_with(|first: char| !first.is_ascii_digit())
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write a name and a value, like job=orgdata-exporter".to_owned()),
    }
}
