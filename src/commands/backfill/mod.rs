//! The command `backfill`: exports a part of the history once, to a collector as log records or to a file of samples
//! for Prometheus.
//!
//! It is a process of its own with a file of its own. The history is read by the exporter's own tail, newest entry
//! first, into that file. When all of it is there, it is exported oldest first.

mod args;
mod deliver;
mod progress;
mod samples;
mod write;

use std::time::Duration;

use backon::BackoffBuilder as _;
use jiff::{SignedDuration, Timestamp};
use orgdata_api::{Client, FailureReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use args::BackfillArgs;
pub(crate) use args::shown;
use args::{Target, Until};
use progress::Progress;

use super::Failure;
use crate::audit::{self, Start, Tail, TailError};
use crate::cli::{Given, Settings};
use crate::ledger::{self, Beginning, LedgerError, LedgerHandle, OpenError, StatePath};
use crate::metrics::Metrics;

/// The default of `--api.max-requests-per-second` for this command: a running exporter uses the same API.
const REQUESTS_PER_SECOND: f64 = 2.0;

/// Prometheus keeps its last hours in memory: blocks must not have samples of that time.
const PROMETHEUS_HEAD: SignedDuration = SignedDuration::from_hours(3);

/// What to do, from the arguments.
struct Plan {
    args: BackfillArgs,
    settings: Settings,
    page_size: u32,
    /// The end; `None` if it is the newest entry.
    until: Option<Timestamp>,
    /// The arguments by which a progress file is recognized.
    name: String,
}

/// Reads the history and exports it.
///
/// # Errors
/// If a setting is wrong, something fails, or the command is stopped before the end.
pub async fn run(
    args: BackfillArgs,
    given: &Given,
    env: &dyn Fn(&str) -> Option<String>,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let plan = Plan::new(args, given, env)?;
    match plan.args.to {
        Target::Otlp if !plan.args.dry_run => deliver::run(&plan, &shutdown).await,
        _ => write::run(&plan, &shutdown).await,
    }
}

// === impl Plan ===

impl Plan {
    fn new(
        args: BackfillArgs,
        given: &Given,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut flags = (*args.flags).clone();
        if !given.contains("api.max-requests-per-second") {
            flags.api.max_requests_per_second = REQUESTS_PER_SECOND;
        }
        flags.audit.enabled = true;
        flags.tickets.enabled = false;
        flags.web.config_file = None;
        let settings = Settings::resolve(&flags, env)
            .map_err(|error| Failure::in_settings(error.to_string()))?;
        args.check(settings.otlp.is_some())?;
        let now = Timestamp::now();
        let live = live(&settings);
        let until = match (args.until, &live) {
            (Some(Until::Live), Err(error)) => {
                return Err(Failure::in_settings(format!("--until live: {error}")));
            }
            (Some(Until::Live) | None, Ok(live)) => Some(*live),
            (None, Err(error)) if args.to == Target::Openmetrics && !args.dry_run => {
                return Err(Failure::in_settings(format!(
                    "--until live: {error}; or set --until to an instant or a duration ago"
                )));
            }
            (None | Some(Until::At(Start::Now)), _) => None,
            (Some(Until::At(Start::Oldest)), _) => {
                return Err(Failure::in_settings(
                    "--until oldest leaves nothing; write now, live, a duration ago, or an instant",
                ));
            }
            (Some(Until::At(start)), _) => start.floor(now),
        };
        let end = until.unwrap_or(now);
        if args.from.floor(now).is_some_and(|from| from >= end) {
            return Err(Failure::in_settings(format!(
                "--from {} is not before --until; nothing lies between them",
                args.from
            )));
        }
        if let Ok(live) = live {
            warn_of_seam(end, live, args.to);
        }
        let is_recent = end > now.checked_sub(PROMETHEUS_HEAD).unwrap_or(Timestamp::MIN);
        if args.to == Target::Openmetrics && !args.dry_run && is_recent && !args.allow_recent {
            let from = end.checked_add(PROMETHEUS_HEAD).unwrap_or(Timestamp::MAX);
            return Err(Failure::at_run_time(format!(
                "cannot write samples until {end}: Prometheus keeps its last three hours in memory; run this again from {} on, set --until to 3h or earlier, or use --allow-recent for a database that holds nothing of that time",
                from.strftime("%Y-%m-%dT%H:%M:%SZ")
            )));
        }
        let until_text = args
            .until
            .map_or("live".to_owned(), |until| until.to_string());
        let mut name = format!("--from {} --until {until_text}", args.from);
        if !settings.api.filters.is_empty() {
            name.push_str(&format!(
                " and filters {}",
                settings.api.filters.fingerprint()
            ));
        }
        Ok(Self {
            page_size: flags.api.page_size,
            args,
            settings,
            until,
            name,
        })
    }

    /// Opens the file of this backfill and returns a tail that reads into it.
    fn open(
        &self,
        settings: ledger::Settings,
        metrics: &Metrics,
    ) -> Result<(Tail, LedgerHandle), Failure> {
        let client = Client::new(self.settings.api.clone(), metrics.api.clone())
            .map_err(|error| Failure::in_settings(format!("--api.ca-file: {error}")))?;
        let settings = ledger::Settings {
            base_url: format!("{} (a backfill)", self.settings.ledger.base_url),
            filters: self.name.clone(),
            // The file holds the whole history before the first record is sent.
            max_size: u64::MAX / 4,
            max_actors: 0,
            ..settings
        };
        let path = settings.path.to_string();
        if let StatePath::File(file) = &settings.path
            && let Ok(Some(other)) = Beginning::read(file)
            && (other.base_url != settings.base_url || other.filters != settings.filters)
        {
            return Err(Failure::in_settings(format!(
                "{path} belongs to another exporter or backfill ({} {}), not to this one ({}); set --progress to another file, or repeat the same arguments",
                other.base_url, other.filters, settings.filters
            )));
        }
        let (ledger, state) = LedgerHandle::open(settings).map_err(|error| {
            let text = error.to_string().replace("--state.path", "--progress");
            let text = text.replace("state file", "progress file");
            match error {
                OpenError::Locked(_) => Failure::locked(text),
                _ => Failure::in_settings(text),
            }
        })?;
        let tail_settings = audit::Settings {
            poll_interval: Duration::from_secs(1),
            start: self.args.from,
            reread_interval: Duration::MAX,
            reread_window: Duration::ZERO,
            page_size: self.page_size,
        };
        let tail = Tail::new(
            client,
            ledger.clone(),
            state,
            metrics.clone(),
            tail_settings,
        );
        Ok((tail.for_backfill(self.until), ledger))
    }

    /// Reads the history to its end.
    async fn read(
        &self,
        tail: &mut Tail,
        ledger: &LedgerHandle,
        progress: &mut Progress,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        let mut patience = Patience::new(self.args.patience);
        while !tail.is_complete() {
            progress.show("reading", "audit entries", ledger.status().backlog, None);
            let round = tokio::select! {
                biased;
                () = shutdown.cancelled() => return Err(Failure::at_run_time("stopped before the end")),
                round = tail.try_round() => round,
            };
            let wait = match round {
                Ok(wait) => patience.succeeded(wait),
                Err(error) => patience.failed(&error)?,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Err(Failure::at_run_time("stopped before the end")),
                () = tokio::time::sleep(wait) => {}
            }
        }
        Ok(())
    }
}

/// How long to retry when the service fails (`--patience`).
struct Patience {
    limit: Duration,
    failing_since: Option<Instant>,
    has_succeeded: bool,
    waits: backon::ExponentialBackoff,
}

// === impl Patience ===

impl Patience {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            failing_since: None,
            has_succeeded: false,
            waits: waits(),
        }
    }

    fn succeeded(&mut self, wait: Duration) -> Duration {
        if self.failing_since.take().is_some() {
            tracing::info!("history is read again");
            self.waits = waits();
        }
        self.has_succeeded = true;
        wait
    }

    /// Returns how long to wait; fails if waiting is of no use, or took too long.
    fn failed(&mut self, error: &TailError) -> Result<Duration, Failure> {
        let is_final = match error {
            TailError::Api(error) if error.is_about_the_key() => true,
            TailError::Api(error) => {
                use FailureReason as R;
                let is_final = matches!(error.reason(), R::NotFound | R::Redirect | R::Validation);
                is_final && !self.has_succeeded
            }
            TailError::Ledger(error) => !matches!(error, LedgerError::DiskFull),
            TailError::OtherOrganization { .. } => true,
        };
        if is_final {
            return Err(Failure::at_run_time(format!(
                "cannot read history: {error}"
            )));
        }
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.limit {
            return Err(Failure::at_run_time(format!(
                "cannot read history for {} (--patience): {error}; if a page is too much for the service, lower --api.page-size",
                humantime::format_duration(self.limit)
            )));
        }
        let wait = self.waits.next().unwrap_or(Duration::from_secs(60));
        tracing::warn!(%error, retry_in = %humantime::format_duration(wait), "cannot read history");
        Ok(wait.min(self.limit))
    }
}

fn waits() -> backon::ExponentialBackoff {
    backon::ExponentialBuilder::default()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(Duration::from_secs(60))
        .without_max_times()
        .build()
}

/// Returns where the counters of the exporter of `--state.path` begin.
fn live(settings: &Settings) -> Result<Timestamp, String> {
    let path = &settings.ledger.path;
    let StatePath::File(file) = path else {
        return Err("a state file in memory cannot be read".to_owned());
    };
    let beginning = Beginning::read(file)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| {
            format!("the exporter of {path} has had no response yet; run this again when it has")
        })?;
    if beginning.base_url != settings.ledger.base_url {
        return Err(format!(
            "state file {path} belongs to {}, not to {}",
            beginning.base_url, settings.ledger.base_url
        ));
    }
    if beginning.filters != settings.ledger.filters {
        return Err(format!(
            "the exporter of {path} has other filters; give the same --audit.* filters here"
        ));
    }
    if beginning.recreated {
        return Err(format!(
            "{path} took the place of a damaged file, which had counters of its own; set --until to the instant at which the first exporter started"
        ));
    }
    let tick = SignedDuration::from_micros(1);
    beginning
        .newest_uncounted
        .map(|newest| newest.checked_add(tick).unwrap_or(newest))
        .ok_or_else(|| {
            format!(
                "the organization had no entries when the exporter of {path} started, at {}: it has counted everything",
                beginning.first_sync_at
            )
        })
}

/// Warns if the end of the backfill is not where the exporter begins.
fn warn_of_seam(end: Timestamp, live: Timestamp, to: Target) {
    if end > live && to == Target::Otlp {
        tracing::warn!(until = %end, %live, "the exporter of this state file sends the records since it started; they are delivered again with the same log.record.uid; --until live avoids that");
    } else if end > live {
        tracing::warn!(until = %end, %live, "the exporter's counters begin before --until; events between the two are counted twice; --until live avoids that");
    } else if end < live && to == Target::Openmetrics {
        tracing::warn!(until = %end, %live, "the exporter's counters begin after --until; events between the two are in neither; --until live avoids that");
    }
}
