//! Wires the parts, starts the loops, and stops them in order: readers first, then the relay, the web surface last.

mod overview;
mod report;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Client;
use crate::audit::Tail;
use crate::cli::Settings;
use crate::ledger::next::Encoded;
use crate::ledger::{LedgerHandle, OpenError};
use crate::metrics::certificates::Certificate;
use crate::metrics::{Loop, Metrics};
use crate::otlp::{self, RecordEncoder, Relay, Sender};
use crate::tickets;
use crate::web::{self, BindError, Bound, Health, WebState};

/// How often queued dead letters are looked for: whoever queues them waits for it.
const REPLAY_INTERVAL: Duration = Duration::from_secs(2);

/// Why the exporter did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state file cannot be opened.
    #[error(transparent)]
    State(#[from] OpenError),
    /// A listen address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A certificate or another file cannot be used.
    #[error("{0}")]
    Setting(String),
    /// A loop ended by a defect of the program.
    #[error(
        "the {0} loop ended by a defect of this program; please report it. Nothing is lost: a restart goes on from the state file"
    )]
    Defect(&'static str),
}

/// An exporter that has its files and its ports, and has not begun.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    metrics: Metrics,
    client: Client,
    ledger: LedgerHandle,
    tail: Option<Tail>,
    sender: Option<Sender>,
    bound: Bound,
    /// Damaged state files that this process has set aside.
    damages: u32,
}

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It was told to.
    Stopped,
    /// The state file is damaged.
    Damaged,
}

// === impl RunError ===

impl RunError {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::State(OpenError::Locked(_)) => 3,
            Self::State(_) | Self::Bind(_) | Self::Setting(_) => 2,
            Self::Defect(_) => 1,
        }
    }
}

// === impl App ===

impl App {
    /// Opens the state file and binds the ports.
    ///
    /// # Errors
    /// Where one of them, or a certificate, cannot be had.
    pub async fn open(settings: Settings) -> Result<Self, RunError> {
        Self::open_with(settings, None).await
    }

    async fn open_with(settings: Settings, bound: Option<Bound>) -> Result<Self, RunError> {
        let (metrics, began) = (Metrics::new(settings.zero_hold), Timestamp::now());
        let client = Client::new(settings.api.clone(), metrics.api.clone())
            .map_err(|error| RunError::Setting(format!("--api.ca-file: {error}")))?;
        let sender = match &settings.otlp {
            Some(otlp) => {
                Some(Sender::new(otlp).map_err(|error| RunError::Setting(error.to_string()))?)
            }
            None => None,
        };
        metrics.certificates.set(certificates(&settings));
        let (ledger, state) = LedgerHandle::open(settings.ledger.clone(), metrics.clone())?;
        let bound = match bound {
            Some(bound) => bound,
            None => web::bind(&settings.web).await?,
        };
        let damages = u32::from(
            state
                .recreated_at
                .is_some_and(|at| at.as_microsecond() >= began.as_microsecond()),
        );
        let tail = settings.audit.clone().map(|audit| {
            Tail::new(
                client.clone(),
                ledger.clone(),
                state,
                metrics.clone(),
                audit,
            )
        });
        Ok(Self {
            settings,
            metrics,
            client,
            ledger,
            tail,
            sender,
            bound,
            damages,
        })
    }

    /// What it listens on.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Runs until `shutdown`; then stops reading, sends what is left within the grace, and goes. Where the state file turns out to be
    /// damaged it is set aside, and everything begins anew with a fresh one, as after a restart.
    ///
    /// # Errors
    /// Where a loop ends by itself, or it cannot begin anew.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), RunError> {
        let settings = self.settings.clone();
        // What begins anew keeps the sockets: a free port stays the same, and what systemd handed over comes only once.
        let bound = self.bound.clone();
        loop {
            let (ledger, damages) = (self.ledger.clone(), self.damages + 1);
            if self.run_once(shutdown.clone()).await? == Ended::Stopped {
                return Ok(());
            }
            ledger.set_aside().await?;
            drop(ledger);
            self = Self::open_with(settings.clone(), Some(bound.clone())).await?;
            // Its metrics begin at 0, where a second damage would look like the first.
            for _ in 0..damages {
                self.metrics.state.recreated(Timestamp::now(), true);
            }
            self.damages += damages;
        }
    }

    async fn run_once(self, shutdown: CancellationToken) -> Result<Ended, RunError> {
        let Self {
            settings,
            metrics,
            client,
            ledger,
            tail,
            sender,
            bound,
            damages: _,
        } = self;
        let health = Health::default();
        let state = WebState {
            metrics: metrics.clone(),
            health: health.clone(),
            overview: overview::gather(&settings, &metrics, &ledger),
        };
        let listening = bound.names().join(",");
        let stop_web = CancellationToken::new();
        let web = tokio::spawn(web::serve(bound, state, stop_web.clone()));

        // Readers stop first, so that the relay's last records are the last there are.
        let reading = shutdown.child_token();
        let mut readers = JoinSet::new();
        if let Some(tail) = tail {
            let (health, token) = (health.clone(), reading.clone());
            readers.spawn(async move {
                tail.run(health, token).await;
                Loop::Audit
            });
        }
        if let Some(tickets) = settings.tickets.clone() {
            let (health, token) = (health.clone(), reading.clone());
            let (published, loops) = (metrics.tickets.clone(), metrics.loops.clone());
            readers.spawn(async move {
                tickets::run(client, tickets, published, loops, health, token).await;
                Loop::Tickets
            });
        }
        let sending = CancellationToken::new();
        let relay = match (sender, &settings.otlp) {
            (Some(sender), Some(otlp)) => {
                metrics.loops.enable(Loop::Otlp);
                let relay = relay(&ledger, sender, otlp, &metrics).run(
                    health.clone(),
                    sending.clone(),
                    settings.shutdown_grace,
                );
                tokio::spawn(beside_dead_letters(relay, ledger.clone(), true))
            }
            _ => tokio::spawn(beside_dead_letters(
                sending.clone().cancelled_owned(),
                ledger.clone(),
                false,
            )),
        };
        health.set_ready(true);
        report::begin(&settings, &listening);

        let mut relay = relay;
        let mut outcome = Ok(Ended::Stopped);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => tracing::info!("stopping"),
            never = report::each_hour(&metrics, &ledger) => match never {},
            () = ledger.damaged() => {
                tracing::error!("the state file is damaged: everything stops, and begins anew with a fresh file");
                outcome = Ok(Ended::Damaged);
            }
            ended = readers.join_next(), if !readers.is_empty() => {
                outcome = Err(RunError::Defect(ended.and_then(Result::ok).map_or("reading", Loop::as_str)));
            }
            _ = &mut relay => outcome = Err(RunError::Defect(Loop::Otlp.as_str())),
        }
        reading.cancel();
        while readers.join_next().await.is_some() {}
        sending.cancel();
        if !relay.is_finished() {
            // The relay keeps its own time; a defect in it must not keep the process.
            let _ = tokio::time::timeout(settings.shutdown_grace * 2, relay).await;
        }
        health.set_ready(false);
        stop_web.cancel();
        let _ = web.await;
        if let Ok(Ended::Stopped) = outcome {
            if let Err(error) = ledger.remember_shown().await {
                tracing::warn!(%error, "what was counted and not scraped yet is shown at once by the next process");
            }
            tracing::info!(unsent = ledger.backlog().records, "stopped");
        }
        outcome
    }
}

/// The certificates whose end is shown.
fn certificates(settings: &Settings) -> Vec<Certificate> {
    let mut certificates: Vec<Certificate> = Vec::new();
    if let Some(config) = settings.web.config.clone() {
        certificates.push(("web", Box::new(move || config.certificate_not_after())));
    }
    let client = settings.otlp.as_ref().and_then(|otlp| match &otlp.target {
        otlp::Target::Collector(connection) => connection.client_certificate_not_after(),
        otlp::Target::Stdout => None,
    });
    if let Some(client) = client {
        certificates.push(("otlp", Box::new(client)));
    }
    certificates
}

fn relay(
    ledger: &LedgerHandle,
    sender: Sender,
    settings: &otlp::Settings,
    metrics: &Metrics,
) -> Relay<Encoded, Sender> {
    let encoder = RecordEncoder::new(settings.redaction.clone());
    Relay::new(
        Encoded::new(ledger.clone(), Arc::new(encoder)),
        &ledger.instance_id(),
        sender,
        settings,
        metrics.otlp.clone(),
        Arc::clone(&metrics.loops),
    )
}

/// Does `work` and meanwhile follows what an operator does to the dead letters: those that are queued go back into the outbox where there
/// is a collector, and wait for one where there is none; those that are deleted are no longer counted.
async fn beside_dead_letters(
    work: impl Future<Output = ()>,
    ledger: LedgerHandle,
    collector: bool,
) {
    let following = async {
        loop {
            let followed = if collector {
                ledger.replay_dead_letters().await.map(drop)
            } else {
                ledger.recount_dead_letters().await
            };
            if let Err(error) = followed {
                tracing::debug!(%error, "cannot look for what was done to the dead letters");
            }
            tokio::time::sleep(REPLAY_INTERVAL).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = following => {}
    }
}
