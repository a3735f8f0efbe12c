//! The command `backfill`: exports a part of the history once, to a collector as log records or to a file of samples
//! for Prometheus.
//!
//! The history is read by the exporter's own tail, newest entry first. Log records are stored in a file of its own, and
//! sent oldest first when all of them are there. For samples, entries are only counted.

mod args;
mod count;
mod deliver;
mod file;
mod progress;
mod samples;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orgdata_api::{Client, FailureReason};
use tokio_util::sync::CancellationToken;

pub use args::BackfillArgs;
use args::Target;
pub(crate) use args::adapted;
use progress::Progress;

use super::Failure;
use crate::cli::{self, ExporterSettings, values};
use crate::ledger::{self, BACKFILL, Content, LedgerError, LedgerHandle, Look, OpenError};
use crate::metrics::Metrics;
use crate::tail::{self, Exclude, Start, Tail, TailError};

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
    let plan = Plan::new(args).map_err(Failure::in_settings)?;
    match (plan.args.to, &plan.settings.otlp) {
        (Target::Otlp, Some(otlp)) if !plan.args.dry_run => {
            deliver::run(&plan, otlp, &shutdown).await
        }
        _ => count::run(&plan, &shutdown).await,
    }
}

fn stopped() -> Failure {
    Failure::at_run_time("stopped before the end")
}

// === impl Plan ===

impl Plan {
    fn new(args: BackfillArgs) -> Result<Self, String> {
        let mut flags = (*args.flags).clone();
        flags.audit.enabled = true;
        flags.tickets.enabled = false;
        flags.web.config_file = None;
        let settings = ExporterSettings::resolve(&flags, &cli::variable)?;
        args.check(settings.otlp.is_some())?;
        let mut plan = Self {
            args,
            settings,
            until: None,
            organization: None,
        };
        // A progress file that was begun holds the times of its first run.
        let is_begun = plan.is_delivery()
            && Look::at(&plan.args.progress).is_ok_and(
                |look| matches!(look.content, Content::State(state) if state.tail.first.is_none()),
            );
        if !is_begun {
            plan.set_end(Timestamp::now())?;
        }
        Ok(plan)
    }

    fn is_delivery(&self) -> bool {
        self.args.to == Target::Otlp && !self.args.dry_run
    }

    /// Sets the end, and checks that the exporter's own counters or log records begin there.
    fn set_end(&mut self, now: Timestamp) -> Result<(), String> {
        let (from, to) = (self.args.from, self.args.to);
        let live = live(&self.settings.ledger, to);
        // One that this user cannot look at is there.
        let file = self.settings.ledger.path.as_ref();
        let has_state_file = file.is_some_and(|path| path.try_exists().unwrap_or(true));
        self.until = match self.args.until.as_deref() {
            None if to == Target::Otlp && !has_state_file => None,
            None | Some("live") => {
                let live = live.as_ref().map_err(|error| {
                    format!("--until live: {error}; or set --until to a time or a duration ago")
                })?;
                Some(live.0)
            }
            Some(text) => {
                let start = values::start(text)?;
                (start != Start::Now).then(|| start.from(now))
            }
        };
        let end = self.until.unwrap_or(now);
        if from.from(now) >= end {
            return Err(format!(
                "--from {from} is not before --until; nothing lies between them"
            ));
        }
        let free = end.checked_add(PROMETHEUS_HEAD).unwrap_or(Timestamp::MAX);
        if to == Target::Openmetrics && free > now {
            if self.args.until.is_none() {
                return Err(format!(
                    "it is too early: the exporter's counters begin at {end}, and Prometheus keeps its last three hours in memory; run this again from {free:.0} on, or set --until live for a database that holds nothing of that time"
                ));
            }
            tracing::warn!(
                end = format!("{end:.3}"),
                "Prometheus keeps its last three hours in memory: the blocks are only for a database that holds nothing of that time"
            );
        }
        if let Ok((live, organization)) = live {
            self.organization = organization.filter(|_| end == live);
            if end != live {
                tracing::warn!(
                    until = format!("{end:.3}"),
                    live = format!("{live:.3}"),
                    "the exporter itself begins at another time than --until: events between the two are counted twice if --until is later, and in neither if it is earlier; --until live avoids that"
                );
            }
        }
        Ok(())
    }

    /// Opens the file of this backfill, with a tail that reads into it.
    fn open(
        &self,
        settings: ledger::LedgerOptions,
    ) -> Result<(Tail, LedgerHandle, Metrics), Failure> {
        let metrics = Metrics::new(Duration::ZERO);
        let client = Client::new(self.settings.api.clone(), metrics.api.clone())
            .map_err(Failure::in_settings)?;
        let until = self.args.until.as_deref().unwrap_or("live");
        let settings = ledger::LedgerOptions {
            base_url: format!(
                "{BACKFILL}--from {} --until {until} with filters {} of {}",
                self.args.from, settings.filters, settings.base_url
            ),
            // The file holds the whole history before the first record is sent.
            max_size: u64::MAX / 4,
            max_dead_letters: u32::MAX,
            ..settings
        };
        let (ledger, mut state) = LedgerHandle::open(settings).map_err(|error| {
            let failure = Failure::from(error);
            Failure::new(failure.status, self.of_progress(&failure.message))
        })?;
        let organization = self.organization.clone().map(|id| (id, None));
        state.organization = state.organization.or(organization);
        let settings = tail::Settings {
            // The maximum wait after a failure.
            poll_interval: Duration::from_secs(60),
            start: self.args.from,
            reread_interval: Duration::MAX,
            reread_window: Duration::ZERO,
            page_size: self.args.flags.api.page_size,
            excluded: tail::Excluded {
                records: Exclude::new(self.args.flags.otlp.exclude_activity_types.clone()),
                ..tail::Excluded::default()
            },
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
                    Err(error) => {
                        let text = self.of_progress(&error);
                        if is_final(&error, is_top) {
                            let message = format!("cannot read history: {text}");
                            return Err(Failure::at_run_time(message));
                        }
                        tracing::warn!(error = text, "cannot read history; trying again");
                    }
                }
            }
            Ok(())
        };
        let done = shutdown.run_until_cancelled(work).await;
        done.unwrap_or_else(|| Err(stopped()))
    }

    /// Returns a message about the state file as one about the file of `--progress`.
    fn of_progress(&self, message: &dyn std::fmt::Display) -> String {
        let message = message.to_string();
        match self.is_delivery() {
            true => message
                .replace("--state.path", "--progress")
                .replace("state file", "progress file"),
            false => message,
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

/// Returns where the counters of the exporter of `--state.path` begin, or its log records, and its organization.
fn live(
    settings: &ledger::LedgerOptions,
    to: Target,
) -> Result<(Timestamp, Option<String>), String> {
    let path = settings.path.as_ref();
    let path = path.ok_or("a state file in memory cannot be read")?;
    let look = Look::at(path).map_err(|error| error.to_string())?;
    let state = match look.content {
        Content::State(state) => state,
        Content::Damaged(how) => return Err(format!("{} is damaged: {how}", path.display())),
        Content::Nothing => return Err(OpenError::missing(path).to_string()),
    };
    let why = match state.tail.counts_after {
        _ if state.tail.contact.is_none() => {
            "has not finished its first sync; run this again when it has"
        }
        _ if state.tail.filters != settings.filters => {
            "has other filters; give the same --audit.* filters here"
        }
        Some(newest) if !state.recreated => {
            let next = newest.checked_add(SignedDuration::from_micros(1));
            let next = next.unwrap_or(newest);
            // It delivers its own history too.
            let records = state.tail.records_from.filter(|_| to == Target::Otlp);
            return Ok((
                records.map_or(next, |from| next.min(from)),
                state.organization,
            ));
        }
        _ => "has counted everything, or its file took the place of a damaged one",
    };
    Err(format!("the exporter of {} {why}", path.display()))
}
