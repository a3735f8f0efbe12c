//! The flags of `backfill`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use crate::cli::{ExporterSettings, Flags, values};
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
    /// [default: live; now with --to otlp if there is no such state file]. With --to openmetrics, the default must be three hours ago
    #[arg(long, value_name = "WHEN", value_parser = until)]
    pub until: Option<Until>,
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

/// The end of the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Where the exporter's own counters or log records begin.
    #[default]
    Live,
    /// An instant.
    At(Start),
}

/// Hides the exporter's flags that have no effect here; they are accepted, because an exporter's variables may be set.
/// Lowers the default rate of requests, because a running exporter uses the same API.
pub(crate) fn adapted(argument: clap::Arg) -> clap::Arg {
    const NO_EFFECT: &str = "audit.enabled audit.poll-interval audit.start audit.reread-interval audit.reread-window metrics.zero-hold";
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
        let is_otlp = self.to == Target::Otlp;
        let mut names = BTreeSet::new();
        let twice = self.label.iter().find(|(name, _)| !names.insert(name));
        let problem = if is_otlp && self.file.is_some() {
            "--to otlp writes no file; leave FILE out, or use --to openmetrics FILE"
        } else if !is_otlp && !self.dry_run && self.file.is_none() {
            "--to openmetrics needs a file to write: --to openmetrics FILE"
        } else if is_otlp && !self.dry_run && !has_collector {
            "--to otlp needs a collector; set --otlp.endpoint"
        } else if let Some((name, _)) = twice {
            &format!("--label {name} is given twice; give each label once")
        } else {
            return Ok(());
        };
        Err(problem.to_owned())
    }

    /// Returns the end of the history; `None` if it is the newest entry. `live` is where the exporter begins.
    /// Without a state file, log records end with the newest entry.
    pub(super) fn end(
        &self,
        live: &Result<(Timestamp, Option<String>), String>,
        settings: &ExporterSettings,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, String> {
        // One that this user cannot look at is there.
        let file = settings.ledger.path.as_ref();
        let has_state_file = file.is_some_and(|path| path.try_exists().unwrap_or(true));
        match (self.until, live) {
            (Some(Until::Live) | None, Ok((live, _))) => Ok(Some(*live)),
            (Some(Until::Live), Err(error)) => Err(format!("--until live: {error}")),
            (None, Err(error)) if self.to == Target::Openmetrics || has_state_file => Err(format!(
                "--until live: {error}; or set --until to a time or a duration ago"
            )),
            (Some(Until::At(Start::Oldest)), _) => Err(
                "--until oldest leaves nothing; write now, live, a duration ago, or a time"
                    .to_owned(),
            ),
            (None | Some(Until::At(Start::Now)), _) => Ok(None),
            (Some(Until::At(start)), _) => Ok(Some(start.from(now))),
        }
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
    const EXAMPLE: &str = "write a name and a value, like job=orgdata-exporter";
    let (name, value) = text.split_once('=').ok_or(EXAMPLE)?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_name = name.chars().all(is_letter)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("__");
    if name.is_empty() || !is_name || value.is_empty() {
        return Err(EXAMPLE.to_owned());
    }
    if ["activity_type", "actor"].contains(&name) {
        return Err(format!(
            "{name} is a label of the metric itself; give labels that Prometheus adds, like job=orgdata-exporter"
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}
