//! From flags to what is to be done, checked before anything is asked or written.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use super::args::{BackfillArgs, Target, Until};
use super::seam::Seam;
use super::{BackfillError, seam};
use crate::audit::Start;
use crate::cli::{Given, Settings};
use crate::ledger::StatePath;
use crate::otlp;

/// Requests per second unless given: a running exporter has a limit of its own, and the service sees both.
const REQUESTS_PER_SECOND: f64 = 2.0;

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) goal: Goal,
    pub(super) from: Start,
    /// The end as it was given or is by default.
    pub(super) until: Until,
    /// Both as moments, by this machine's clock: for those who do not ask the service's.
    pub(super) range: Range,
    pub(super) patience: Duration,
    pub(super) progress: PathBuf,
    pub(super) rate: Option<f64>,
    pub(super) labels: Vec<(String, String)>,
    pub(super) step: Duration,
    pub(super) fill: Duration,
    /// The exporter's settings: for its ledger, its collector, and the service.
    pub(super) settings: Settings,
    /// `--api.page-size`.
    pub(super) page_size: u32,
}

/// What is made of the range.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// Log records for a collector.
    Deliver(otlp::Settings),
    /// A file of samples.
    Write(PathBuf),
    /// A count.
    Count,
}

/// A range of time by creation, its end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: Option<Timestamp>,
    pub(super) until: Timestamp,
}

// === impl Plan ===

impl Plan {
    pub(super) fn new(
        args: BackfillArgs,
        given: &Given,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, BackfillError> {
        let mut flags = *args.flags;
        if !given.contains("api.max-requests-per-second") {
            flags.api.max_requests_per_second = REQUESTS_PER_SECOND;
        }
        // What belongs to the exporter's own work.
        (
            flags.audit.enabled,
            flags.tickets.enabled,
            flags.web.config_file,
        ) = (true, false, None);
        let setting = |text: &str| Err(BackfillError::Setting(text.to_owned()));
        if args.to == Target::Otlp && args.progress.as_os_str() == ":memory:" {
            return setting(
                "--progress :memory: would be gone with the process; give the name of a file",
            );
        }
        let mut labels = args.label;
        labels.sort();
        if let Some(pair) = labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return setting(&format!(
                "--label {} is given twice; give each label once",
                pair[0].0
            ));
        }
        let settings = Settings::resolve(&flags, env)
            .map_err(|error| BackfillError::Setting(error.to_string()))?;
        let goal = match (args.to, args.dry_run, args.file) {
            (Target::Otlp, _, Some(_)) => {
                return setting(
                    "--to otlp writes no file; leave FILE out, or use --to openmetrics FILE",
                );
            }
            (_, true, _) => Goal::Count,
            (Target::Openmetrics, false, None) => {
                return setting("--to openmetrics needs a file to write: --to openmetrics FILE");
            }
            (Target::Openmetrics, false, Some(file)) => Goal::Write(file),
            (Target::Otlp, false, None) => match settings.otlp.clone() {
                Some(otlp) => Goal::Deliver(otlp),
                None => return setting("--to otlp needs a collector; give --otlp.endpoint URL"),
            },
        };
        let until = args.until.unwrap_or(match args.to {
            Target::Otlp => Until::At(Start::Now),
            Target::Openmetrics => Until::Live,
        });
        let now = Timestamp::now();
        let seam = |path: &StatePath| Seam::read(path, &settings);
        let end = match until {
            Until::Live => seam(&settings.ledger.path)?.end,
            Until::At(Start::Oldest) => {
                return setting(
                    "--until oldest leaves nothing; write now, live, a duration ago, or an instant",
                );
            }
            Until::At(at) => at.floor(now).unwrap_or(Timestamp::MIN),
        };
        if args.to == Target::Otlp && until != Until::Live {
            seam(&settings.ledger.path)
                .ok()
                .iter()
                .for_each(|seam| seam.warn_of_repeats(end));
        }
        if matches!(goal, Goal::Write(_)) {
            if until != Until::Live {
                // Only where there is such a file; it need not be on this machine.
                seam(&settings.ledger.path)
                    .ok()
                    .iter()
                    .for_each(|seam| seam.compare(end));
            }
            if !args.allow_recent {
                seam::check_old_enough(end, until, now)?;
            }
        }
        let range = Range {
            from: args.from.floor(now),
            until: end,
        };
        if range.from.is_some_and(|from| from >= end) {
            return setting(&format!(
                "--from {} is not before --until {until}; nothing lies between them",
                args.from
            ));
        }
        Ok(Self {
            goal,
            from: args.from,
            until,
            range,
            patience: args.patience,
            progress: args.progress,
            rate: args.rate,
            labels,
            step: args.step,
            fill: args.fill,
            page_size: flags.api.page_size,
            settings,
        })
    }
}

// === impl Range ===

impl Range {
    /// Whether an entry created then is in it.
    pub(super) fn holds(&self, at: Timestamp) -> bool {
        at < self.until && self.from.is_none_or(|from| at >= from)
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.from {
            Some(from) => write!(f, "from {from} until {}", self.until),
            None => write!(f, "from the oldest until {}", self.until),
        }
    }
}
