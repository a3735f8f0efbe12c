//! The loop that tails the audit logs: poll, join, and where there is a hole, walk.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::fetch::Fetcher;
use super::view::{Order, View};
use super::{Settings, Start};
use crate::api::{ApiError, Client};
use crate::health::Health;
use crate::ledger::{EventId, LedgerError, LedgerHandle, LedgerState};
use crate::metrics::{Loop, Metrics};

/// The first wait after a failure; it doubles.
pub(crate) const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often a full ledger is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// Tails the audit logs of one organization into a ledger.
#[derive(Debug)]
pub struct Tail {
    pub(super) fetcher: Fetcher,
    pub(super) ledger: LedgerHandle,
    pub(super) state: LedgerState,
    pub(super) metrics: Metrics,
    pub(super) settings: Settings,
    /// The order of items in a page, once a page showed it.
    pub(super) order: Option<Order>,
    /// The last pages of the way down by their depth: a short walk fetches nothing twice.
    pub(super) passed: VecDeque<(usize, View)>,
    /// The newest mark of a re-read leads to nothing late: the next one replaces it.
    pub(super) idle_mark: bool,
    /// The newest entry when the ledger began, while a first start needs it.
    pub(super) newest_at_birth: Option<EventId>,
    /// All of the page that it stands in.
    pub(super) there_at_birth: HashSet<EventId>,
    /// The walk was begun again because its cursors were refused.
    pub(super) rewalked: bool,
    /// An entry that was there on the way down and not on the way up, while the walk begun again looks for it.
    pub(super) vanished: Option<EventId>,
    /// The most items a page ever had: a service may cap pages below the limit asked for.
    pub(super) largest_page: usize,
    /// A page after a cursor begins with the entry of the cursor.
    pub(super) inclusive: bool,
    pub(super) next_poll: Instant,
    pub(super) next_reread: Instant,
    failures: u32,
    pub(super) filters: String,
    /// Only what was created before it is read ([`Tail::history`]).
    pub(super) until: Option<Start>,
}

/// Why a round failed; the next one starts from what the ledger holds.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The service, or the way to it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The state file.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The key belongs to another organization than the state file.
    #[error(
        "the API key belongs to organization {found}, but the state file to {wanted}; use a key of organization {wanted}, or give --state.path another file"
    )]
    OtherOrganization {
        /// Whose key it is.
        found: String,
        /// Whose file it is.
        wanted: String,
    },
}

// === impl Tail ===

impl Tail {
    /// A tail that goes on where the ledger ends.
    pub fn new(
        client: Client,
        ledger: LedgerHandle,
        state: LedgerState,
        metrics: Metrics,
        settings: Settings,
    ) -> Self {
        let filters = client.settings().filters.fingerprint();
        let now = Instant::now();
        Self {
            fetcher: Fetcher::new(client, settings.page_size).within(ledger.max_page_bytes()),
            ledger,
            state,
            metrics,
            order: None,
            passed: VecDeque::new(),
            idle_mark: false,
            newest_at_birth: None,
            there_at_birth: HashSet::new(),
            rewalked: false,
            vanished: None,
            largest_page: 0,
            inclusive: false,
            next_poll: now,
            next_reread: now,
            failures: 0,
            filters,
            until: None,
            settings,
        }
    }

    /// Tails until `shutdown`.
    pub async fn run(mut self, health: Health, shutdown: CancellationToken) {
        let _watched = health.watched(Loop::Audit);
        self.metrics.loops.enable(Loop::Audit);
        loop {
            let wait = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                wait = health.round(Loop::Audit, self.round()) => wait,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = health.waiting(Loop::Audit, tokio::time::sleep(wait)) => {}
            }
        }
    }

    /// Makes the next poll and the next re-read due now, as if their intervals had passed.
    pub fn hurry(&mut self) {
        let now = Instant::now();
        self.next_poll = now;
        self.next_reread = now;
    }

    /// Makes the next poll due now.
    pub fn hurry_poll(&mut self) {
        self.next_poll = Instant::now();
    }

    /// One round: one page at most. Returns how long to wait before the next.
    pub async fn round(&mut self) -> Duration {
        match self.step().await {
            Ok(wait) => {
                if self.failures > 0 {
                    tracing::info!(failures = self.failures, "audit logs are read again");
                    self.failures = 0;
                }
                wait
            }
            Err(error) => {
                self.failures += 1;
                let wait =
                    wait_after(self.failures).min(self.settings.poll_interval.max(FIRST_WAIT));
                self.metrics.loops.failure(Loop::Audit, error.to_string());
                // The first failure, and then ever more rarely: one line an event, not one a retry.
                if self.failures.is_power_of_two() {
                    tracing::warn!(%error, failures = self.failures, retry_in = %humantime::format_duration(wait), "cannot read audit logs; nothing is lost, the tail goes on from where it was");
                }
                wait
            }
        }
    }

    async fn step(&mut self) -> Result<Duration, TailError> {
        if self.ledger.is_full() {
            if !self.metrics.audit.is_paused() {
                tracing::warn!(
                    "the state file is full of log records that the collector has not taken: the tail pauses, the service keeps the events meanwhile"
                );
                self.metrics.audit.paused(true);
            }
            return Ok(PAUSE);
        }
        if self.metrics.audit.is_paused() {
            tracing::info!("there is room in the state file again: the tail goes on");
            self.metrics.audit.paused(false);
        }
        self.show_walk();
        if self.state.birth.is_none() {
            self.first_start()
                .instrument(tracing::info_span!("poll", orgdata.poll = "first start"))
                .await?;
            return self.succeeded(Duration::ZERO);
        }
        if self.state.filters != self.filters {
            self.change_filters().await?;
        }
        let catching_up = self
            .state
            .walk
            .as_ref()
            .is_some_and(|walk| walk.kind.moves_frontier());
        if !catching_up && Instant::now() >= self.next_poll {
            let more = self.poll().instrument(tracing::info_span!("poll")).await?;
            self.next_poll = if more {
                Instant::now()
            } else {
                Instant::now() + self.settings.poll_interval
            };
            return self.succeeded(Duration::ZERO);
        }
        if self.state.walk.is_some() {
            self.walk_step()
                .instrument(tracing::info_span!("walk"))
                .await?;
            return self.succeeded(Duration::ZERO);
        }
        if Instant::now() >= self.next_reread {
            self.begin_reread()
                .instrument(tracing::info_span!("reread"))
                .await?;
            return self.succeeded(Duration::ZERO);
        }
        Ok(self
            .next_poll
            .min(self.next_reread)
            .saturating_duration_since(Instant::now()))
    }

    fn succeeded(&self, wait: Duration) -> Result<Duration, TailError> {
        self.metrics.loops.success(Loop::Audit);
        self.show_walk();
        Ok(wait)
    }

    fn show_walk(&self) {
        use crate::metrics::audit::RangeKind;
        // Until the ranges replace the walks, the moment at which one was opened is not known.
        let audit = &self.metrics.audit;
        let open = u64::from(self.state.walk.is_some());
        let (_, opened_at) = audit.current_ranges(RangeKind::CatchUp);
        let opened_at = opened_at.unwrap_or_else(jiff::Timestamp::now);
        audit.open_ranges(RangeKind::CatchUp, open, (open > 0).then_some(opened_at));
    }
}

/// How long to wait after so many failures in a row, the last one included.
pub(crate) fn wait_after(failures: u32) -> Duration {
    FIRST_WAIT
        .saturating_mul(1 << failures.min(10).saturating_sub(1))
        .min(LONGEST_WAIT)
}
