//! `--to otlp`: a range of history through a ledger of its own to the collector, by the exporter's own tail and relay.
//!
//! The ledger is the progress: what was read of the range, the records that wait, the dead letters and the `service.instance.id` are in it,
//! and change together or not at all. It is told apart from an exporter's by the service that it names.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::BackfillError;
use super::args::Until;
use super::openmetrics::say;
use super::patience::Patience;
use super::plan::Plan;
use super::progress::{Position, Progress};
use crate::api::Client;
use crate::audit::{self, HistoryStep, Start, Tail};
use crate::health::Health;
use crate::ledger::{self, LedgerHandle, OpenError, StatePath};
use crate::metrics::audit::Total;
use crate::metrics::{Loop, Metrics};
use crate::otlp::{self, RecordEncoder, Relay, Sender};

/// Between two looks at how far it is, and at a full ledger.
const PAUSE: Duration = Duration::from_millis(100);

/// What runs.
struct Run {
    plan: Plan,
    ledger: LedgerHandle,
    metrics: Metrics,
    /// How far the reading is.
    step: watch::Receiver<HistoryStep>,
    progress: Progress,
    /// The most pages that were ever left on the way back.
    pages: usize,
    /// When a record last left, and how many had.
    moved: (Instant, u64),
}

/// Delivers the range.
pub(super) async fn run(
    plan: Plan,
    to: &otlp::Settings,
    shutdown: CancellationToken,
) -> Result<(), BackfillError> {
    let metrics = Metrics::new(Duration::ZERO);
    let setting = |text: String| BackfillError::Setting(text);
    let client = Client::new(plan.settings.api.clone(), metrics.api.clone())
        .map_err(|error| setting(format!("--api.ca-file: {error}")))?;
    let sender = Sender::new(to).map_err(|error| setting(error.to_string()))?;
    let arguments = arguments(&plan);
    let (ledger, state) = LedgerHandle::open(ledger_settings(&plan, &arguments), metrics.clone())
        .map_err(|error| foreign(error, &plan))?;
    if state.filters != arguments {
        return Err(setting(format!(
            "{} belongs to another backfill ({}), not to this one ({arguments}); give --progress another file, or the same arguments",
            plan.progress.display(),
            state.filters
        )));
    }
    replay(&ledger).await?;
    let tail = Tail::new(
        client,
        ledger.clone(),
        state,
        metrics.clone(),
        tail_settings(&plan),
    )
    .history(end(&plan), arguments);
    if tail.history_state() == HistoryStep::Done && ledger.backlog().records == 0 {
        let (file, letters) = (plan.progress.display(), dead_letters(&ledger, &plan));
        say(&format!(
            "This backfill is complete, as {file} says: nothing is left to do. For another one give --progress another file.\n{letters}"
        ));
        return Ok(());
    }
    tracing::info!(
        range = %plan.range,
        progress = %plan.progress.display(),
        instance = ledger.instance_id(),
        "delivering history with at most {} requests per second to the service, besides those of a running exporter; --api.max-requests-per-second changes that",
        plan.settings.api.max_requests_per_second
    );
    metrics.loops.enable(Loop::Otlp);
    let sending = CancellationToken::new();
    let encoder = RecordEncoder::new(to.redaction.clone());
    let relay = Relay::new(
        ledger::next::Encoded::new(ledger.clone(), Arc::new(encoder)),
        &ledger.instance_id(),
        sender,
        to,
        metrics.otlp.clone(),
        Arc::clone(&metrics.loops),
    );
    let relay = tokio::spawn(relay.run(
        Health::default(),
        sending.clone(),
        plan.settings.shutdown_grace,
    ));
    let (told, step) = watch::channel(tail.history_state());
    let mut run = Run {
        plan,
        ledger,
        metrics,
        step,
        progress: Progress::new(),
        pages: 0,
        moved: (Instant::now(), 0),
    };
    let reading = read(
        tail,
        run.plan.patience,
        Pace::new(run.plan.rate, &run.metrics, &run.ledger),
        told,
    );
    let outcome = tokio::select! {
        biased;
        () = shutdown.cancelled() => Err(BackfillError::Failed("stopped before the end".to_owned())),
        outcome = run.follow(reading) => outcome,
    };
    run.progress.end();
    sending.cancel();
    // The relay keeps its own time.
    let _ = relay.await;
    run.tell(outcome)
}

// === impl Run ===

impl Run {
    /// Follows reading and delivery until both are done, or one of them fails.
    async fn follow(
        &mut self,
        reading: impl Future<Output = Result<(), BackfillError>>,
    ) -> Result<(), BackfillError> {
        let ledger = self.ledger.clone();
        let mut reading = std::pin::pin!(reading);
        let mut read = false;
        let mut look = tokio::time::interval(PAUSE);
        loop {
            tokio::select! {
                biased;
                () = ledger.damaged() => return Err(BackfillError::Failed("the progress file is damaged; it is set aside by the next run, which begins anew".to_owned())),
                outcome = &mut reading, if !read => {
                    outcome?;
                    read = true;
                }
                _ = look.tick() => {
                    self.show();
                    self.watch_collector()?;
                    if read && self.ledger.backlog().records == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn show(&mut self) {
        let step = *self.step.borrow();
        let (doing, part) = match step {
            HistoryStep::Down(_) => ("looking for the beginning", None),
            HistoryStep::Up(left) => {
                self.pages = self.pages.max(left + 1);
                (
                    "delivering",
                    Some((self.pages - left) as f64 / (self.pages + 1) as f64),
                )
            }
            HistoryStep::Full => ("waiting for the collector", None),
            HistoryStep::Done => ("delivering the last records", None),
        };
        let (count, unit) = match step {
            HistoryStep::Down(pages) => (pages as u64, "pages"),
            _ => (self.delivered(), "log records"),
        };
        self.progress.show(Position {
            doing,
            count,
            unit,
            part,
        });
    }

    /// A collector that takes nothing is waited for, but not for ever.
    fn watch_collector(&mut self) -> Result<(), BackfillError> {
        let (gone, waiting) = (
            self.delivered() + self.metrics.otlp.records_dead_lettered.get(),
            self.ledger.backlog().records,
        );
        if waiting == 0 || gone != self.moved.1 {
            self.moved = (Instant::now(), gone);
        }
        if self.moved.0.elapsed() < self.plan.patience {
            return Ok(());
        }
        let patience = humantime::format_duration(self.plan.patience);
        Err(BackfillError::Failed(format!(
            "the collector has taken nothing for {patience} (--patience)"
        )))
    }

    fn delivered(&self) -> u64 {
        self.metrics.otlp.records_sent.get()
    }

    /// The last words: what came of it, and how to go on.
    fn tell(self, outcome: Result<(), BackfillError>) -> Result<(), BackfillError> {
        let letters = dead_letters(&self.ledger, &self.plan);
        let (delivered, waiting, file) = (
            self.delivered(),
            self.ledger.backlog().records,
            self.plan.progress.display(),
        );
        match outcome {
            Ok(()) => {
                let gaps = match self.metrics.audit.total(Total::Gaps) {
                    0 => String::new(),
                    gaps => format!(
                        "{gaps} holes that the service could not fill were delivered as records orgdata.exporter.gap\n"
                    ),
                };
                let instance = self.ledger.instance_id();
                say(&format!(
                    "Delivered {delivered} log records, service.instance.id {instance}; the range is complete\n{gaps}{letters}"
                ));
                Ok(())
            }
            Err(BackfillError::Failed(why)) => Err(BackfillError::Failed(format!(
                "{why}; {delivered} log records were delivered by this run, {waiting} wait in {file}: run the same command again, and it goes on there"
            ))),
            Err(error) => Err(error),
        }
    }
}

/// Reads the range to its end.
async fn read(
    mut tail: Tail,
    patience: Duration,
    mut pace: Pace,
    told: watch::Sender<HistoryStep>,
) -> Result<(), BackfillError> {
    let mut patience = Patience::new(patience);
    while tail.history_state() != HistoryStep::Done {
        match tail.history_step().await {
            Ok(step) => {
                told.send_replace(step);
                patience.worked();
                if step == HistoryStep::Full {
                    tokio::time::sleep(PAUSE).await;
                }
                pace.keep().await;
            }
            Err(error) => tokio::time::sleep(patience.failed(&error)?).await,
        }
    }
    told.send_replace(HistoryStep::Done);
    Ok(())
}

/// Keeps the reading to a rate, and with it the delivery.
struct Pace {
    rate: Option<f64>,
    began: Instant,
    metrics: Metrics,
    ledger: LedgerHandle,
    /// What waited at the beginning.
    left: u64,
}

// === impl Pace ===

impl Pace {
    fn new(rate: Option<f64>, metrics: &Metrics, ledger: &LedgerHandle) -> Self {
        Self {
            rate,
            began: Instant::now(),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            left: ledger.backlog().records,
        }
    }

    /// Waits until what was read so far has had its time.
    async fn keep(&mut self) {
        let Some(rate) = self.rate else { return };
        let read = (self.metrics.otlp.records_sent.get() + self.ledger.backlog().records)
            .saturating_sub(self.left);
        let due = Duration::try_from_secs_f64(read as f64 / rate).unwrap_or(Duration::MAX);
        tokio::time::sleep(due.saturating_sub(self.began.elapsed())).await;
    }
}

/// What a backfill is known by: as it was given, since a duration ago is another moment each time.
fn arguments(plan: &Plan) -> String {
    let mut text = format!("--from {} --until {}", plan.from, plan.until);
    if !plan.settings.api.filters.is_empty() {
        text.push_str(&format!(
            " and filters {}",
            plan.settings.api.filters.fingerprint()
        ));
    }
    text
}

/// The ledger's settings: none of the exporter's file, and nothing is counted by actor.
fn ledger_settings(plan: &Plan, arguments: &str) -> ledger::Settings {
    ledger::Settings {
        path: StatePath::File(plan.progress.clone()),
        base_url: owner(plan),
        filters: arguments.to_owned(),
        max_actors: 0,
        ..plan.settings.ledger.clone()
    }
}

/// Whose file it is: no exporter takes it for its own, and no exporter's file is taken for one of a backfill.
fn owner(plan: &Plan) -> String {
    format!("{} (a backfill)", plan.settings.ledger.base_url)
}

fn tail_settings(plan: &Plan) -> audit::Settings {
    audit::Settings {
        poll_interval: Duration::from_secs(1),
        start: plan.from,
        reread_interval: Duration::from_secs(24 * 3600),
        reread_window: plan.settings.ledger.reread_window,
        page_size: plan.page_size,
    }
}

fn end(plan: &Plan) -> Start {
    match plan.until {
        Until::At(start) => start,
        Until::Live => Start::At(plan.range.until),
    }
}

/// Dead letters that an operator has queued are part of what is left to do.
async fn replay(ledger: &LedgerHandle) -> Result<(), BackfillError> {
    loop {
        match ledger.replay_dead_letters().await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(BackfillError::Failed(error.to_string())),
        }
    }
}

fn dead_letters(ledger: &LedgerHandle, plan: &Plan) -> String {
    match ledger.dead_letters() {
        Ok(0) | Err(_) => String::new(),
        Ok(letters) => {
            let path = plan.progress.display();
            format!(
                "{letters} could not be delivered or read: orgdata-exporter dead-letters list --state.path {path}\n"
            )
        }
    }
}

/// The file of an exporter, or of a backfill from another service.
fn foreign(error: OpenError, plan: &Plan) -> BackfillError {
    match error {
        OpenError::OtherService { path, found, .. } if found == plan.settings.ledger.base_url => {
            BackfillError::Setting(format!(
                "--progress {} is the state file of an exporter; give a file of the backfill's own",
                path.display()
            ))
        }
        error => error.into(),
    }
}
