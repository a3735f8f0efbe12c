//! Connects the parts, starts the loops, and stops them in order: readers first, then the relay, then the web surface.

mod failure;
mod report;
mod status;

use std::time::Duration;

use exporter_web::Bound;
use orgdata_api::Client;
use otlp_logs::{Export, Sender};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::Tail;
use crate::cli::ExporterSettings;
use crate::endpoints;
use crate::health::{Health, Loop};
use crate::ledger::{LedgerError, LedgerHandle, LedgerOptions, LedgerState, OpenError};
use crate::machine::blocking;
use crate::metrics::Metrics;
use crate::metrics::certificates::{Certificate, timestamps, validity_pem};
use crate::records::Relay;
use crate::tickets::scan_tickets;
use crate::util::lock;
pub use failure::Failure;

/// How long, and at which interval, opening the state file is retried.
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
const OPEN_INTERVAL: Duration = Duration::from_secs(1);

/// An exporter that has its ports, and is not running yet.
#[derive(Debug)]
pub struct App {
    settings: ExporterSettings,
    bound: Bound,
    parts: Parts,
}

/// What the loops work with; a simulation has its own [client and sender](crate::machine).
#[derive(Debug)]
pub struct Parts<S = Sender> {
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// The API client.
    pub client: Client,
    /// The way to the collector; `None` without one.
    pub sender: Option<S>,
}

// === impl App ===

impl App {
    /// Reads the certificates and binds the ports.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub async fn bind(settings: ExporterSettings) -> Result<Self, Failure> {
        let parts = Parts::new(&settings)?;
        let bound = exporter_web::bind(&settings.web, settings.web_config.clone()).await;
        Ok(Self {
            parts,
            bound: bound.map_err(|error| Failure::at_run_time(error.to_string()))?,
            settings,
        })
    }

    /// Returns the addresses that it listens on.
    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Opens the state file and runs until `shutdown`; then stops reading and sends what is left within the grace period.
    ///
    /// # Errors
    /// If the state file cannot be used, turns out to be damaged, is deleted, replaced or taken over by another process, or if a loop
    /// ends by itself.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Failure> {
        let (settings, parts) = (self.settings, self.parts);
        let health = Health::default();
        let path = &settings.web.telemetry_path;
        let router = endpoints::router(parts.metrics.clone(), health.clone(), path);
        let bound: Vec<_> = self
            .bound
            .addresses()
            .iter()
            .map(ToString::to_string)
            .collect();
        let addresses = bound.join(",");
        let stop_web = CancellationToken::new();
        let stop = stop_web.clone().cancelled_owned();
        let web = tokio::spawn(exporter_web::serve(self.bound, router, stop));
        let outcome = parts.work(&settings, &addresses, &health, &shutdown).await;
        stop_web.cancel();
        let _ = web.await;
        outcome
    }
}

// === impl Parts ===

impl Parts {
    fn new(settings: &ExporterSettings) -> Result<Self, Failure> {
        let metrics = Metrics::new(settings.zero_hold);
        let client =
            Client::new(settings.api.clone(), metrics.api.clone()).map_err(Failure::in_settings)?;
        let sender = match &settings.otlp {
            Some(otlp) => Some(Sender::new(&otlp.target).map_err(Failure::in_settings)?),
            None => None,
        };
        metrics
            .certificates
            .set(certificates(settings, sender.as_ref()));
        Ok(Self {
            metrics,
            client,
            sender,
        })
    }
}

impl<S: Export + 'static> Parts<S> {
    /// Opens the state file, and reads and sends until `shutdown`.
    async fn work(
        self,
        settings: &ExporterSettings,
        addresses: &str,
        health: &Health,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        tracing::debug!(state = %settings.ledger.shown_path().display(), "opening the state file");
        let (ledger, state) = tokio::select! {
            biased;
            opened = open(&settings.ledger) => opened?,
            () = shutdown.cancelled() => {
                tracing::info!("stopped");
                return Ok(());
            }
        };
        self.run(ledger, state, settings, addresses, health, shutdown)
            .await
    }

    /// Reads and sends with an open state file until `shutdown`, without a web server. `addresses` are those that the log names.
    ///
    /// # Errors
    /// As [`App::run`].
    pub async fn run(
        self,
        ledger: LedgerHandle,
        mut state: LedgerState,
        settings: &ExporterSettings,
        addresses: &str,
        health: &Health,
        shutdown: &CancellationToken,
    ) -> Result<(), Failure> {
        let Self {
            metrics,
            client,
            sender,
        } = self;
        let api = settings
            .audit
            .is_some()
            .then(|| settings.api.base_url.host().to_owned());
        status::show(&metrics, api.as_deref(), &ledger.status());
        metrics.state.max_size_bytes.set(settings.ledger.max_size);
        metrics.state.created(state.created_at);

        // They go on while the relay sends its last records.
        let mut followers = JoinSet::new();
        followers.spawn(status::follow(metrics.clone(), api, ledger.watch()));

        // A loop is enabled before it runs, so that the first scrape shows what belongs to it.
        // Readers stop first, so that the relay's last records are the last there are.
        let reading = CancellationToken::new();
        let mut readers = JoinSet::new();
        let opening = std::mem::take(&mut state.opening);
        if let Some(audit) = settings.audit.clone() {
            metrics.loops.enable(Loop::Audit);
            let (client, ledger) = (client.clone(), ledger.clone());
            let tail = Tail::new(client, ledger, state, metrics.clone(), audit)
                .map_err(|error| Failure::in_settings(error.to_string()))?;
            let (health, token) = (health.clone(), reading.clone());
            readers.spawn(tail.run(health, token));
        } else {
            metrics.audit.restore(state.counted, state.events);
        }
        metrics.audit.publish(opening);
        if let Some(tickets) = settings.tickets.clone() {
            metrics.loops.enable(Loop::Tickets);
            metrics.tickets.start();
            let (health, token) = (health.clone(), reading.clone());
            let (ledger, shown) = (ledger.clone(), metrics.clone());
            let run = scan_tickets(client, tickets, ledger, shown, health, token);
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
        followers.spawn(report::log_when_working(metrics));

        let mut outcome = Ok(());
        tokio::select! {
            biased;
            () = shutdown.cancelled() => tracing::info!("stopping"),
            never = ledger.replay_dead_letters() => match never {},
            error = ledger.fatal_error() => {
                let status = if matches!(error, LedgerError::Fenced) { 3 } else { 1 };
                outcome = Err(Failure::new(status, error.to_string()));
            }
            _ = readers.join_next(), if !readers.is_empty() => {
                outcome = Err(Failure::internal("a loop that reads"));
            }
            _ = &mut relay => outcome = Err(Failure::internal("the relay")),
        }
        reading.cancel();
        while readers.join_next().await.is_some() {}
        ledger.end_reading();
        sending.cancel();
        if !relay.is_finished() {
            // Delivery has its own time limit; a bug in it must not keep the process alive.
            let _ = tokio::time::timeout(settings.shutdown_grace * 2, relay).await;
        }
        if outcome.is_ok() {
            tracing::info!(unsent = ledger.backlog(), "stopped");
        }
        outcome
    }
}

/// Opens the state file. Retries for a while if its disk fails or it is damaged, because there may be no supervisor that restarts the process.
async fn open(options: &LedgerOptions) -> Result<(LedgerHandle, LedgerState), Failure> {
    let begun = Instant::now();
    let mut is_logged = false;
    loop {
        let options = options.clone();
        // Checking a large file takes a while, in which probes are answered.
        let opened = blocking(options.machine.clone(), || LedgerHandle::open(options)).await;
        match opened.map_err(|_| Failure::internal("opening the state file"))? {
            // A disk that fails now and then can look like damage.
            Err(error @ (OpenError::Sqlite { .. } | OpenError::Damaged { .. }))
                if begun.elapsed() < OPEN_PATIENCE =>
            {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::warn!(%error, "cannot open the state file; trying again");
                }
                tokio::time::sleep(OPEN_INTERVAL).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Returns the certificates whose end is shown.
fn certificates(settings: &ExporterSettings, sender: Option<&Sender>) -> Vec<Certificate> {
    let config = settings.web_config.clone();
    let web = Box::new(move || timestamps(config.certificate_validity()?));
    let mut certificates: Vec<Certificate> = vec![("web", web)];
    if let Some(client) = sender.map(Sender::certificate) {
        let validity = move || validity_pem(lock(&client).as_deref()?);
        certificates.push(("otlp", Box::new(validity)));
    }
    certificates
}
