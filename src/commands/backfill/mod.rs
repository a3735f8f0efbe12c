//! The command `backfill`: exports a part of the history once, to a collector as log records or to a file of samples
//! for Prometheus.
//!
//! The history is read by the exporter's own tail, newest entry first. Log records are stored in a file of its own, and
//! sent oldest first when all of them are there. For samples, entries are only counted.

mod args;
mod deliver;
mod progress;
mod samples;
mod write;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::{Client, FailureReason};
use tokio_util::sync::CancellationToken;

pub use args::BackfillArgs;
use args::Target;
pub(crate) use args::adapted;
use progress::Progress;

use super::Failure;
use crate::cli::{self, ExporterSettings};
use crate::ledger::{self, BACKFILL, Content, LedgerError, LedgerHandle, Look, OpenError};
use crate::metrics::Metrics;
use crate::metrics::audit::Total;
use crate::tail::{self, Tail, TailError};

/// Prometheus keeps its last hours in memory: blocks must not have samples of that time.
const PROMETHEUS_HEAD: SignedDuration = SignedDuration::from_hours(3);

/// What to do, from the arguments.
struct Plan {
    args: BackfillArgs,
    settings: ExporterSettings,
    /// The end; `None` if it is the newest entry.
    until: Option<Timestamp>,
    /// The organization of the exporter whose beginning is the end.
    organization: Option<String>,
}

/// Reads the history and exports it.
///
/// # Errors
/// If a setting is wrong, something fails, or the command is stopped before the end.
pub async fn run(args: BackfillArgs, shutdown: CancellationToken) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    match (plan.args.to, &plan.settings.otlp) {
        (Target::Otlp, Some(otlp)) if !plan.args.dry_run => {
            deliver::run(&plan, otlp, &shutdown).await
        }
        _ => write::run(&plan, &shutdown).await,
    }
}

fn stopped() -> Failure {
    Failure::at_run_time("stopped before the end")
}

// === impl Plan ===

impl Plan {
    fn new(args: BackfillArgs) -> Result<Self, Failure> {
        let mut flags = (*args.flags).clone();
        flags.audit.enabled = true;
        flags.tickets.enabled = false;
        flags.web.config_file = None;
        let settings =
            ExporterSettings::resolve(&flags, &cli::variable).map_err(Failure::in_settings)?;
        args.check(settings.otlp.is_some())
            .map_err(Failure::in_settings)?;
        let (mut until, mut organization) = (None, None);
        // A file that was begun holds the times of its first run.
        let is_begun = args.to == Target::Otlp
            && !args.dry_run
            && Look::at(&args.progress).is_ok_and(
                |look| matches!(look.content, Content::State(state) if state.tail.first.is_none()),
            );
        if !is_begun {
            let now = Timestamp::now();
            let live = live(&settings, args.to);
            until = args
                .end(&live, &settings, now)
                .map_err(Failure::in_settings)?;
            let end = until.unwrap_or(now);
            if args.from.from(now) >= end {
                return Err(Failure::in_settings(format!(
                    "--from {} is not before --until; nothing lies between them",
                    args.from
                )));
            }
            if args.to == Target::Openmetrics {
                check_head(args.until.is_some(), end, now)?;
            }
            if let Ok((live, of_exporter)) = live {
                warn_of_seam(end, live, args.to);
                organization = of_exporter.filter(|_| end == live);
            }
        }
        Ok(Self {
            args,
            settings,
            until,
            organization,
        })
    }

    /// Opens the file of this backfill, with a tail that reads into it.
    fn open(&self, settings: ledger::Settings) -> Result<(Tail, LedgerHandle, Metrics), Failure> {
        let metrics = Metrics::new(Duration::ZERO);
        let client = Client::new(self.settings.api.clone(), metrics.api.clone())
            .map_err(Failure::in_settings)?;
        let until = self.args.until.unwrap_or_default();
        let settings = ledger::Settings {
            base_url: format!(
                "{BACKFILL}--from {} --until {until} with filters {} of {}",
                self.args.from, settings.filters, settings.base_url
            ),
            // The file holds the whole history before the first record is sent.
            max_size: u64::MAX / 4,
            max_dead_letters: u32::MAX,
            max_actors: 0,
            ..settings
        };
        let (ledger, mut state) = LedgerHandle::open(settings).map_err(|error| {
            let mut failure = Failure::from(error);
            failure.message = of_progress(&failure.message);
            failure
        })?;
        state.organization = state.organization.or_else(|| self.organization.clone());
        let settings = tail::Settings {
            // The maximum wait after a failure.
            poll_interval: Duration::from_secs(60),
            start: self.args.from,
            reread_interval: Duration::MAX,
            reread_window: Duration::ZERO,
            page_size: self.args.flags.api.page_size,
        };
        let tail = Tail::new(client, ledger.clone(), state, metrics.clone(), settings);
        Ok((tail.for_backfill(self.until), ledger, metrics))
    }

    /// Reads the history to its end. What fails is tried again, unless that is of no use.
    async fn read(
        &self,
        tail: &mut Tail,
        ledger: &LedgerHandle,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        let mut progress = Progress::new("reading audit entries", None);
        let work = async {
            while !tail.is_complete() {
                progress.show(ledger.backlog());
                let history = tail.state().history.as_ref();
                let is_top = history.is_some_and(|history| history.cursors.is_empty());
                match tail.try_round().await {
                    Ok(wait) => tokio::time::sleep(wait).await,
                    Err(error) if is_final(&error, is_top) => {
                        return Err(Failure::at_run_time(self.message(&error)));
                    }
                    Err(error) => {
                        let error = of_progress(&error.to_string());
                        tracing::warn!(error, "cannot read history; trying again");
                    }
                }
            }
            Ok(())
        };
        let done = shutdown.run_until_cancelled(work).await;
        done.unwrap_or_else(|| Err(stopped()))
    }

    /// Returns the message of an error. Only the organization may be that of the exporter's state file.
    fn message(&self, error: &TailError) -> String {
        let message = format!("cannot read history: {error}");
        match error {
            TailError::OtherOrganization(_) if self.organization.is_some() => message,
            _ => of_progress(&message),
        }
    }
}

/// Reports whether it is of no use to try again.
fn is_final(error: &TailError, is_top: bool) -> bool {
    use FailureReason as R;
    match error {
        TailError::Api(error) => match error.reason() {
            R::Key | R::Unauthorized | R::Forbidden => true,
            R::Refused => is_top,
            _ => false,
        },
        // `deliver::run` ends the command for the latter.
        TailError::Ledger(error) => !matches!(error, LedgerError::DiskFull | LedgerError::Fenced),
        TailError::OtherOrganization(_) => true,
        TailError::Loop(_) => false,
    }
}

/// Returns a message about a state file as one about the file of `--progress`.
fn of_progress(message: &str) -> String {
    let message = message.replace("--state.path", "--progress");
    message.replace("state file", "progress file")
}

/// Returns where the counters of the exporter of `--state.path` begin, or its log records, and its organization.
fn live(settings: &ExporterSettings, to: Target) -> Result<(Timestamp, Option<String>), String> {
    let Some(file) = &settings.ledger.path else {
        return Err("a state file in memory cannot be read".to_owned());
    };
    let path = file.display();
    let look = Look::at(file).map_err(|error| error.to_string())?;
    let state = match look.content {
        Content::State(state) => state,
        Content::Damaged(how) => return Err(format!("state file {path} is damaged: {how}")),
        Content::Nothing => return Err(OpenError::missing(file).to_string()),
    };
    if state.tail.contact.is_none() {
        return Err(format!(
            "the exporter of {path} has not finished its first sync; run this again when it has"
        ));
    }
    let (found, ours) = (&state.base_url, &settings.ledger.base_url);
    match state.tail.counts_after {
        _ if found != ours => Err(format!(
            "state file {path} belongs to {found}, not to {ours}"
        )),
        _ if state.tail.filters != settings.ledger.filters => Err(format!(
            "the exporter of {path} has other filters; give the same --audit.* filters here"
        )),
        _ if state.recreated => Err(format!(
            "{path} took the place of a damaged file, which had counters of its own; set --until to the instant at which the first exporter started"
        )),
        None => Err(format!(
            "the organization had no entries when the exporter of {path} started: it has counted everything"
        )),
        Some(newest) => {
            let next = newest.checked_add(SignedDuration::from_micros(1));
            let next = next.unwrap_or(newest);
            // It delivers its own history too.
            let live = match state.tail.records_from {
                Some(from) if to == Target::Otlp => next.min(from),
                _ => next,
            };
            Ok((live, state.organization))
        }
    }
}

/// Refuses an end within the time that Prometheus keeps in memory, unless the user has named it.
fn check_head(is_named: bool, end: Timestamp, now: Timestamp) -> Result<(), Failure> {
    const HEAD: &str = "Prometheus keeps its last three hours in memory";
    let from = end.checked_add(PROMETHEUS_HEAD).unwrap_or(Timestamp::MAX);
    if from > now && !is_named {
        return Err(Failure::at_run_time(format!(
            "it is too early: the exporter's counters begin at {end}, and {HEAD}; run this again from {from:.0} on, or set --until live for a database that holds nothing of that time"
        )));
    }
    if from > now {
        tracing::warn!(%end, "{HEAD}: the blocks are only for a database that holds nothing of that time");
    }
    Ok(())
}

/// Refuses to call a history complete that has a hole.
fn check_gaps(metrics: &Metrics) -> Result<(), Failure> {
    match metrics.audit.total(Total::Gaps) {
        0 => Ok(()),
        _ => Err(Failure::at_run_time(
            "the history has a gap: entries or log records of it are lost",
        )),
    }
}

/// Warns if the end of the backfill is not where the exporter begins.
fn warn_of_seam(end: Timestamp, live: Timestamp, to: Target) {
    let what = match to {
        Target::Otlp if end > live => {
            "the exporter's log records begin before --until; those between the two are delivered again with the same log.record.uid"
        }
        Target::Openmetrics if end > live => {
            "the exporter's counters begin before --until; events between the two are counted twice"
        }
        Target::Openmetrics if end < live => {
            "the exporter's counters begin after --until; events between the two are in neither"
        }
        _ => return,
    };
    tracing::warn!(until = %end, %live, "{what}; --until live avoids that");
}
