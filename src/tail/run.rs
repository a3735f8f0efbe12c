//! The loop that tails the audit logs: requests what [`Sweep`] asks for, and commits what it takes.

use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::{ApiError, Backoff, Client, FailureReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Settings;
use super::error::TailError;
use super::fetched::{Fetched, Organization};
use super::step::{Limits, Request, Step, Task};
use super::sweep::Sweep;
use super::walk::Cause;
use crate::health::{Health, Loop};
use crate::ledger::{Commit, Gap, LedgerError, LedgerHandle, LedgerState, TailState};
use crate::metrics::{Metrics, Violation};
use crate::util::{self, advice, shown_wait};

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The maximum wait after a failure.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often a full state file is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// After this time, patterns that have excluded nothing are named.
const PATTERNS_AFTER: Duration = Duration::from_secs(3600);

/// How often the time of the last contact is stored if nothing else changes.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Tails the audit logs of one organization into a ledger.
#[derive(Debug)]
pub struct Tail {
    client: Client,
    ledger: LedgerHandle,
    metrics: Metrics,
    settings: Settings,
    health: Health,
    sweep: Sweep,
    /// A commit failed: the machine is to be made again from what is stored.
    is_stale: bool,
    organization: Option<Organization>,
    /// When this file took the place of a damaged one; the end of the first pass records that as a gap.
    recreated_at: Option<Timestamp>,
    started: Instant,
    saved: Instant,
    /// When each task is due, and how long it waits after its next failure.
    due: [Instant; Task::ALL.len()],
    backoff: [Backoff; Task::ALL.len()],
    /// The task of the last request: the next one is another's turn.
    last: Task,
    failures: u32,
    /// The kind of the failure that was logged last.
    logged: &'static str,
    has_named_patterns: bool,
}

// === impl Tail ===

impl Tail {
    /// Returns a tail that continues where the ledger ends, and publishes what the ledger holds.
    pub fn new(
        client: Client,
        ledger: LedgerHandle,
        state: LedgerState,
        metrics: Metrics,
        settings: Settings,
    ) -> Self {
        let filters = client.settings().filters.fingerprint();
        let now = Instant::now();
        let newest = state.counted.newest;
        metrics.audit.complete_through(state.tail.complete_through);
        let sweep = Sweep::new(state.tail, Limits::new(&settings), newest, state.pruned);
        metrics.audit.restore(state.counted, state.events);
        let mut tail = Self {
            client,
            ledger,
            metrics,
            settings,
            health: Health::default(),
            sweep,
            is_stale: false,
            organization: state.organization,
            recreated_at: state.recreated_at,
            started: now,
            saved: now,
            due: [now; _],
            backoff: std::array::from_fn(|_| Backoff::new(FIRST_WAIT, MAX_WAIT)),
            last: Task::Poll,
            failures: 0,
            logged: "",
            has_named_patterns: false,
        };
        tail.apply_filters(filters);
        tail.show();
        tail
    }

    /// Returns the tail's durable state.
    pub fn state(&self) -> &TailState {
        &self.sweep.state
    }

    /// Tails until `shutdown`.
    pub async fn run(mut self, health: Health, shutdown: CancellationToken) {
        let _watched = health.watched(Loop::Audit);
        self.health = health.clone();
        loop {
            let wait = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                wait = self.round() => wait,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = health.waiting(Loop::Audit, tokio::time::sleep(wait)) => {}
            }
        }
    }

    /// Makes all tasks due now.
    pub fn hurry(&mut self) {
        self.due = [Instant::now(); _];
    }

    /// Makes the next poll due now.
    pub fn hurry_poll(&mut self) {
        self.due[Task::Poll as usize] = Instant::now();
    }

    /// Makes one round: at most one request and one commit. Returns how long to wait before the next.
    pub async fn round(&mut self) -> Duration {
        match self.try_round().await {
            Ok(wait) => wait,
            Err(error) => {
                self.report(&error);
                Duration::ZERO
            }
        }
    }

    /// Makes one round. A later one repeats what failed.
    async fn try_round(&mut self) -> Result<Duration, TailError> {
        let full = self.ledger.is_full().await;
        self.show_full(full);
        if full {
            return Ok(PAUSE);
        }
        let now = Instant::now();
        if self.due[Task::Reread as usize] <= now && self.sweep.is_begun() {
            self.sweep.begin_reread(self.started.elapsed());
        }
        let turns = Task::ALL.into_iter().cycle().skip(self.last as usize + 1);
        let requests = turns
            .take(Task::ALL.len())
            .filter_map(|task| self.sweep.request(task));
        let requests: Vec<Request> = requests.collect();
        let is_due = |request: &&Request| self.due[request.task as usize] <= now;
        let Some(request) = requests.iter().find(is_due) else {
            let next = requests
                .iter()
                .map(|request| self.due[request.task as usize]);
            // A re-read that does not know where to begin waits for the next poll.
            let reread = self.sweep.can_reread();
            let next = next.chain(reread.then_some(self.due[Task::Reread as usize]));
            let wait = next.min().unwrap_or(now + MAX_WAIT);
            return Ok(wait.saturating_duration_since(now));
        };
        self.last = request.task;
        let span = tracing::info_span!("poll", orgdata.poll = request.task.as_str());
        let result = self.exchange(request).instrument(span).await;
        if self.is_stale {
            self.reload().await;
        }
        let wait = match &result {
            Ok(wait) => *wait,
            Err(_) => {
                let longest = self.settings.poll_interval.clamp(FIRST_WAIT, MAX_WAIT);
                self.backoff[request.task as usize].next(None).min(longest)
            }
        };
        self.due[request.task as usize] = Instant::now() + wait;
        if request.task == Task::Reread && !self.sweep.is_rereading() {
            self.due[Task::Reread as usize] = Instant::now() + self.settings.reread_interval;
        }
        self.show();
        result?;
        self.backoff[request.task as usize].reset();
        self.note_success(request.task);
        Ok(Duration::ZERO)
    }

    /// Requests a page and commits what it means. Returns how long to wait before the next page of the same task.
    async fn exchange(&mut self, request: &Request) -> Result<Duration, TailError> {
        let requested = self.started.elapsed();
        let page = self
            .client
            .audit_page(request.limit, request.before.as_deref());
        let page = match self.health.request(Loop::Audit, page).await {
            Ok(page) => page,
            Err(error) => {
                // A pause that the service asks for says nothing about what was requested.
                if error.reason() != FailureReason::RateLimited {
                    self.failed(request, Cause::of(&error)).await?;
                }
                return Err(error.into());
            }
        };
        // Fewer entries are of no use if the service sends more than it is asked for.
        let is_limited = page.len() <= request.limit as usize;
        if !is_limited {
            self.metrics.api.violated(Violation::LimitExceeded);
            let (limit, entries) = (request.limit, page.len());
            tracing::warn!(loop = "audit", limit, entries, "a page has more entries than were requested");
        }
        let is_large = page.body().len() > self.ledger.max_page_bytes() && page.len() > 1;
        if is_large && is_limited && self.sweep.shrink(request, page.len()) {
            return Ok(Duration::ZERO);
        }
        let times = [requested, self.started.elapsed()];
        let fetched = Fetched::new(page, &self.ledger, self.state().number, times);
        fetched.check(self.organization.as_ref())?;
        let was_begun = self.sweep.is_begun();
        let is_new = self.state().contact.is_none();
        let step = self.sweep.page(request, &fetched.view, util::now());
        let (wait, is_stuck, rows) = (step.wait, step.is_stuck, fetched.view.rows.len());
        let (task, new) = (request.task.as_str(), step.take.len());
        tracing::debug!(loop = "audit", task, entries = rows, new, "audit page");
        let mut gaps: Vec<Gap> = step.gap.iter().cloned().collect();
        if !was_begun && self.sweep.is_begun() {
            gaps.extend(self.recreated_at.filter(|_| is_new).map(Gap::recreated));
            tracing::info!(loop = "audit", start = %self.settings.start, "first sync is done; counting begins");
        }
        self.apply(fetched, step, gaps).await?;
        match request.task {
            _ if is_stuck => {
                self.metrics.api.violated(Violation::RepeatedPage);
                self.sweep.failed(request, Cause::Page);
                Err(TailError::Loop(rows))
            }
            Task::Poll => Ok(self.settings.poll_interval),
            _ => Ok(wait),
        }
    }

    /// Notes a failed request.
    async fn failed(&mut self, request: &Request, cause: Cause) -> Result<(), LedgerError> {
        let is_lost = self.sweep.failed(request, cause);
        if !is_lost || cause != Cause::Refused {
            return Ok(());
        }
        let commit = Commit {
            recovered: true,
            ..Commit::new(util::now())
        };
        self.save(commit).await
    }

    /// Commits what a step takes.
    async fn apply(
        &mut self,
        fetched: Fetched,
        step: Step,
        gaps: Vec<Gap>,
    ) -> Result<(), TailError> {
        let filters = &self.client.settings().filters;
        let (organization, excluded) = (self.organization.as_ref(), &mut self.settings.excluded);
        let (commit, odd) = fetched.commit(&step, gaps, organization, filters, excluded);
        let is_due = self.saved.elapsed() >= SAVE_INTERVAL;
        if !step.must_save && !is_due && commit.gaps.is_empty() {
            return Ok(());
        }
        let filtered = commit.filtered;
        self.save(commit).await?;
        if filtered > 0 {
            self.metrics.api.violated(Violation::OutsideFilters);
            tracing::warn!(
                loop = "audit",
                entries = filtered,
                "the API ignores --audit.activity-types or --audit.deal-ids; dropped entries outside of them"
            );
        }
        for (id, problem) in odd {
            tracing::warn!(loop = "audit", id, error = problem, "an audit log entry violates the API specification");
        }
        Ok(())
    }

    /// Commits together with the tail's state, and publishes.
    async fn save(&mut self, mut commit: Commit) -> Result<(), LedgerError> {
        commit.tail = Some(self.state().clone());
        let (gaps, organization) = (commit.gaps.clone(), commit.organization.clone());
        let entries = commit.entries.len();
        let changes = match self.ledger.commit(commit).await {
            Ok(changes) => changes,
            Err(error) => {
                self.is_stale = true;
                return Err(error);
            }
        };
        let counted: u64 = changes.events.iter().map(|(_, rise)| rise).sum();
        tracing::debug!(loop = "audit", entries, counted, "commit");
        self.sweep.pruned(changes.pruned);
        self.saved = Instant::now();
        for gap in &gaps {
            tracing::error!(
                loop = "audit", reason = gap.reason.as_str(),
                "gap in the audit logs: {}", gap.message
            );
        }
        self.organization = organization.or(self.organization.take());
        self.metrics
            .audit
            .complete_through(self.state().complete_through);
        self.metrics.audit.publish(changes);
        Ok(())
    }

    /// Continues from what is stored, after a commit that failed.
    async fn reload(&mut self) {
        let Ok(state) = self.ledger.state().await else {
            return;
        };
        let newest = self.metrics.audit.newest();
        let limits = Limits::new(&self.settings);
        self.sweep = Sweep::new(state.tail, limits, newest, state.pruned);
        self.is_stale = false;
        self.apply_filters(self.client.settings().filters.fingerprint());
    }

    fn apply_filters(&mut self, filters: String) {
        if self.state().filters != filters {
            tracing::info!(loop = "audit", "the filters changed; the newest entries are read again");
            self.sweep.change_filters(filters);
        }
    }

    /// A re-read that fails does not make the loop fail: nothing new is missing.
    fn note_success(&mut self, task: Task) {
        if !self.sweep.is_begun() || task == Task::Reread || self.sweep.is_failing() {
            return;
        }
        self.metrics.loops.success(Loop::Audit);
        if !self.has_named_patterns && self.started.elapsed() >= PATTERNS_AFTER {
            self.has_named_patterns = true;
            for pattern in self.settings.excluded.unmatched() {
                tracing::info!(
                    pattern,
                    "a pattern of --*.exclude-activity-types has excluded nothing so far"
                );
            }
        }
        if self.failures > 0 {
            tracing::info!(loop = "audit", failures = self.failures, "audit requests work again");
            self.failures = 0;
        }
    }

    fn report(&mut self, error: &TailError) {
        let (reason, loops) = (error.reason(), &self.metrics.loops);
        if self.last != Task::Reread {
            loops.failure(Loop::Audit, reason, error.to_string());
        }
        self.failures += 1;
        if self.failures.is_power_of_two() || self.logged != reason {
            self.logged = reason;
            let due = self.due[self.last as usize];
            let wait = due.saturating_duration_since(Instant::now());
            let is_new = loops.state(Loop::Audit).last_success.is_none();
            let api = match error {
                TailError::Api(error) => Some(error),
                _ => None,
            };
            let must_act = is_new || api.is_some_and(|error| !error.is_transient());
            tracing::warn!(
                loop = "audit", task = self.last.as_str(), failures = self.failures, %error,
                status = api.and_then(ApiError::status), retry_in = %shown_wait(wait),
                "audit request failed{}", advice(must_act)
            );
        }
    }

    fn show_full(&self, full: bool) {
        if full == self.metrics.audit.is_paused() {
            return;
        }
        if full {
            tracing::warn!(
                loop = "audit",
                "the state file is full: the collector has not accepted the log records in it, or a reader prevents WAL truncation; the audit loop pauses"
            );
        } else {
            // While a full file drains, it is full again after a few pages.
            tracing::debug!(loop = "audit", "the state file has room again; the audit loop continues");
        }
        self.metrics.audit.paused(full);
    }

    fn show(&self) {
        let state = self.state();
        let since = state.sweep.as_ref().map(|open| open.opened_at);
        let is_complete = state.first.is_none() && state.history.is_none();
        self.metrics.audit.sweep(since, is_complete);
    }
}
