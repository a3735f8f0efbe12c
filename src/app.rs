//! Connects the parts, starts the loops, and stops them in order: readers first, then the relay, then the web surface.

mod failure;
mod report;

use std::time::Duration;

use orgdata_api::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit::Tail;
use crate::cli::Settings;
use crate::ledger::{LedgerError, LedgerHandle, LedgerState, Status};
use crate::metrics::certificates::Certificate;
use crate::metrics::{Loop, Metrics};
use crate::otlp::{self, Export, Relay, Sender};
use crate::tickets;
use crate::util;
use crate::util::changes::{Changes, Total};
use crate::web::{self, Bound, Health, WebState};
pub use failure::Failure;

/// How often queued dead letters are looked for.
const REPLAY_INTERVAL: Duration = Duration::from_secs(2);

/// An exporter that has its ports, and is not running yet.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    bound: Bound,
    parts: Parts,
}

/// What is made again after the state file was found damaged: counters start at 0 with the new file.
#[derive(Debug)]
pub(crate) struct Parts<S = Sender> {
    pub(crate) metrics: Metrics,
    pub(crate) client: Client,
    pub(crate) sender: Option<S>,
}

// === impl App ===

impl App {
    /// Reads the certificates and binds the ports.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub async fn bind(settings: Settings) -> Result<Self, Failure> {
        let parts = Parts::new(&settings)?;
        let bound = web::bind(&settings.web).await;
        Ok(Self {
            parts,
            bound: bound.map_err(|error| Failure::in_settings(error.to_string()))?,
            settings,
        })
    }

    /// Returns what it listens on.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Opens the state file and runs until `shutdown`; then stops reading and sends what is left within the grace period. If
    /// the state file turns out to be damaged, it is set aside and everything starts again with a new one.
    ///
    /// # Errors
    /// If the state file cannot be used, a loop ends by itself, or another process takes over the state file.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Failure> {
        let Self {
            settings,
            bound,
            mut parts,
        } = self;
        loop {
            let (metrics, health) = (parts.metrics.clone(), Health::default());
            let state = WebState {
                metrics: metrics.clone(),
                health: health.clone(),
            };
            // The sockets are kept: a free port stays the same, and systemd hands its sockets over only once.
            let stop_web = CancellationToken::new();
            let web = tokio::spawn(web::serve(bound.clone(), state, stop_web.clone()));
            let addresses = bound.names().join(",");
            let outcome = if settings.is_active {
                parts.work(&settings, &addresses, &health, &shutdown).await
            } else {
                metrics.exporter.idle();
                health.set_ready();
                report::idle(&addresses);
                shutdown.cancelled().await;
                Ok(false)
            };
            stop_web.cancel();
            let _ = web.await;
            if !outcome? {
                return Ok(());
            }
            parts = Parts::new(&settings)?;
            // The new metrics start at 0, and would make a second recreation look like the first.
            let recreated = metrics.state.recreated.get();
            parts.metrics.state.recreated.inc_by(recreated);
        }
    }
}

// === impl Parts ===

impl Parts {
    fn new(settings: &Settings) -> Result<Self, Failure> {
        let metrics = Metrics::new(settings.zero_hold);
        let client =
            Client::new(settings.api.clone(), metrics.api.clone()).map_err(Failure::in_settings)?;
        let sender = settings.otlp.as_ref().map(Sender::new).transpose();
        let sender = sender.map_err(Failure::in_settings)?;
        metrics.certificates.set(certificates(settings));
        Ok(Self {
            metrics,
            client,
            sender,
        })
    }
}

impl<S: Export + 'static> Parts<S> {
    /// Reads and sends until `shutdown`, or until the state file is damaged and was set aside; returns whether it was.
    async fn work(
        self,
        settings: &Settings,
        addresses: &str,
        health: &Health,
        shutdown: &CancellationToken,
    ) -> Result<bool, Failure> {
        let started = util::now();
        tracing::debug!(state = %settings.ledger.shown_path().display(), "opening the state file");
        // Checking a large file takes a while, in which probes are answered.
        let open = settings.ledger.clone();
        let open = util::blocking(|| LedgerHandle::open(open));
        let (ledger, state) = tokio::select! {
            biased;
            opened = open => opened.map_err(|_| Failure::internal("opening the state file"))??,
            () = shutdown.cancelled() => {
                tracing::info!("stopped");
                return Ok(false);
            }
        };
        if let Some(at) = state.recreated_at {
            let by_us = at.as_microsecond() >= started.as_microsecond();
            self.metrics.state.recreated(at, by_us);
        }
        self.run(ledger, state, settings, addresses, health, shutdown)
            .await
    }

    /// Reads and sends with an open state file; see [`work`](Self::work).
    pub(crate) async fn run(
        self,
        ledger: LedgerHandle,
        state: LedgerState,
        settings: &Settings,
        addresses: &str,
        health: &Health,
        shutdown: &CancellationToken,
    ) -> Result<bool, Failure> {
        let Self {
            metrics,
            client,
            sender,
        } = self;
        let shown = ledger.status();
        show_status(&metrics, 0, &shown);
        metrics.state.max_size_bytes.set(settings.ledger.max_size);
        metrics.state.created(state.created_at);

        // It goes on while the relay sends its last records.
        let mut follower = JoinSet::new();
        follower.spawn(follow_status(metrics.clone(), ledger.watch(), shown.gaps));

        // A loop is enabled before it runs, so that the first scrape shows what belongs to it.
        // Readers stop first, so that the relay's last records are the last there are.
        let reading = CancellationToken::new();
        let mut readers = JoinSet::new();
        if let Some(audit) = settings.audit {
            metrics.loops.enable(Loop::Audit);
            let (client, ledger) = (client.clone(), ledger.clone());
            let tail = Tail::new(client, ledger, state, metrics.clone(), audit);
            let (health, token) = (health.clone(), reading.clone());
            readers.spawn(tail.run(health, token));
        } else {
            metrics.audit.restore(state.counted, state.events);
        }
        if let Some(tickets) = settings.tickets.clone() {
            metrics.loops.enable(Loop::Tickets);
            metrics.tickets.start();
            let (health, token) = (health.clone(), reading.clone());
            let (known, shown) = (ledger.clone(), metrics.clone());
            let organization = move || known.status().organization.map(|(id, _)| id);
            let run = tickets::run(client, tickets, organization, shown, health, token);
            readers.spawn(run);
        }
        let sending = CancellationToken::new();
        let mut relay = match (sender, &settings.otlp) {
            (Some(sender), Some(otlp)) => {
                metrics.loops.enable(Loop::Otlp);
                let (shown, loops) = (metrics.otlp.clone(), metrics.loops.clone());
                let relay = Relay::new(ledger.clone(), sender, otlp, shown, loops);
                let grace = settings.shutdown_grace;
                tokio::spawn(relay.run(health.clone(), sending.clone(), grace))
            }
            _ => tokio::spawn(sending.clone().cancelled_owned()),
        };
        health.set_ready();
        report::begin(settings, addresses, ledger.backlog());

        let mut outcome = Ok(false);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => tracing::info!("stopping"),
            never = report::follow(&metrics, || ledger.backlog()) => match never {},
            never = replay_dead_letters(&ledger) => match never {},
            () = ledger.fenced() => {
                outcome = Err(Failure::new(3, LedgerError::Fenced.to_string()));
            }
            () = ledger.damaged() => {
                tracing::error!("the state file is damaged; the exporter starts again with a new one");
                outcome = Ok(true);
            }
            _ = readers.join_next(), if !readers.is_empty() => {
                outcome = Err(Failure::internal("a loop that reads"));
            }
            _ = &mut relay => outcome = Err(Failure::internal("the relay")),
        }
        reading.cancel();
        while readers.join_next().await.is_some() {}
        sending.cancel();
        if !relay.is_finished() {
            // The relay keeps to its own time limit; a bug in it must not keep the process.
            let _ = tokio::time::timeout(settings.shutdown_grace * 2, relay).await;
        }
        match outcome {
            Ok(true) => ledger.set_aside().await?,
            Ok(false) => tracing::info!(unsent = ledger.backlog(), "stopped"),
            Err(_) => {}
        }
        outcome
    }
}

/// Returns the certificates whose end is shown.
fn certificates(settings: &Settings) -> Vec<Certificate> {
    let config = settings.web.config.clone();
    let web = Box::new(move || config.certificate_not_after());
    let mut certificates: Vec<Certificate> = vec![("web", web)];
    let client = settings.otlp.as_ref().and_then(|otlp| match &otlp.target {
        otlp::Target::Collector(connection) => connection.client_certificate_not_after(),
        otlp::Target::Stdout => None,
    });
    if let Some(client) = client {
        certificates.push(("otlp", Box::new(client)));
    }
    certificates
}

/// Moves queued dead letters to the outbox. Never returns.
async fn replay_dead_letters(ledger: &LedgerHandle) -> std::convert::Infallible {
    loop {
        if let Err(error) = ledger.replay_dead_letters().await {
            tracing::debug!(%error, "cannot look for queued dead letters");
        }
        tokio::time::sleep(REPLAY_INTERVAL).await;
    }
}

/// Shows each change of the state file in the metrics, until the file is closed.
async fn follow_status(metrics: Metrics, mut status: watch::Receiver<Status>, mut gaps: u64) {
    while status.changed().await.is_ok() {
        let now = status.borrow_and_update().clone();
        show_status(&metrics, gaps, &now);
        gaps = now.gaps;
    }
}

/// Shows the state of the file in the metrics. `gaps` is the number of its gaps that are shown already.
fn show_status(metrics: &Metrics, gaps: u64, now: &Status) {
    let (state, otlp) = (&metrics.state, &metrics.otlp);
    for (counter, count) in [
        (&state.commits, now.commits),
        (&state.commit_failures, now.commit_failures),
        (&otlp.records_dead_lettered, now.dead_lettered),
        (&otlp.dead_letters_evicted, now.evicted),
        (&otlp.records_replayed, now.replayed),
    ] {
        counter.inc_by(count - counter.get());
    }
    state.size_bytes.set(now.size_bytes);
    otlp.dead_letters.set(now.dead_letters);
    otlp.backlog(now.backlog, now.oldest);
    // The audit loop counts other gaps.
    if now.gaps > gaps {
        metrics.audit.publish(Changes {
            totals: vec![(Total::Gaps, now.gaps - gaps)],
            ..Changes::default()
        });
    }
    if let Some((id, name)) = &now.organization {
        let name = name.as_deref().unwrap_or_default();
        metrics.audit.organization(id.as_str(), name);
    }
}
