//! The loop that tails the audit logs: requests what [`Walks`] asks for, and commits what it takes.

use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::{ApiError, Backoff, Client, FailureReason};
use strum::VariantArray as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::TailSettings;
use super::error::TailError;
use super::fetched::Fetched;
use super::state::TailState;
use super::sweep::{Cause, Problem, Request, Step, Task, WalkSettings, Walks};
use crate::health::{Health, Loop};
use crate::ledger::{Commit, Disposition, LedgerError, LedgerHandle, LedgerState};
use crate::metrics::{Metrics, Violation};
use crate::util::{Repeated, advice, shown_wait};

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The maximum wait after a failure.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often a full state file is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// After this time, patterns that have excluded nothing are named.
const PATTERNS_AFTER: Duration = Duration::from_secs(3600);

/// How often the state is stored if only the time through which all is complete has changed, and if a pass has read a page of known entries.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
const SAVE_PROGRESS: Duration = Duration::from_secs(1);

/// What is wrong with an entry that was sent in spite of the filters.
const OUTSIDE: &str = "it does not match --audit.activity-types or --audit.deal-ids";

/// Tails the audit logs of one organization into a ledger.
#[derive(Debug)]
pub struct Tail {
    client: Client,
    ledger: LedgerHandle,
    metrics: Metrics,
    settings: TailSettings,
    health: Health,
    walks: Walks,
    /// A commit failed: nothing is requested or stored until the state has been read again.
    is_stale: bool,
    started: Instant,
    saved: Instant,
    /// When each task is due, and how long it waits after its next failure.
    due: [Instant; Task::VARIANTS.len()],
    backoff: [Backoff; Task::VARIANTS.len()],
    /// The pass had a request since the last sweep, and not only a refusal because of a rate limit.
    had_turn: bool,
    /// The task of the last request.
    last: Task,
    failures: [Repeated<&'static str>; Task::VARIANTS.len()],
    /// What the API sends although the specification says otherwise.
    violations: Repeated<&'static str>,
    has_named_patterns: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    /// A page.
    Page,
    /// The page is too large to be stored; the next request asks for fewer entries.
    TooLarge,
    /// The listing is empty, which says nothing.
    Nothing,
}

// === impl Tail ===

impl Tail {
    /// Returns a tail that continues where the ledger ends, and publishes what the ledger holds.
    ///
    /// # Errors
    /// If this version cannot read the stored state.
    pub fn new(
        client: Client,
        ledger: LedgerHandle,
        state: LedgerState,
        metrics: Metrics,
        settings: TailSettings,
    ) -> Result<Self, LedgerError> {
        let now = Instant::now();
        let walks = walks(&client, &settings, &state)?;
        metrics.audit.complete_through(walks.state.complete_through);
        metrics.audit.restore(state.counted, state.events);
        let tail = Self {
            client,
            ledger,
            metrics,
            settings,
            health: Health::default(),
            walks,
            is_stale: false,
            started: now,
            saved: now,
            due: [now; _],
            backoff: std::array::from_fn(|_| Backoff::new(FIRST_WAIT, MAX_WAIT)),
            had_turn: true,
            last: Task::Sweep,
            failures: Default::default(),
            violations: Repeated::default(),
            has_named_patterns: false,
        };
        tail.show();
        Ok(tail)
    }

    /// Returns the tail's durable state.
    pub fn state(&self) -> &TailState {
        &self.walks.state
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

    /// Makes the next sweep due now.
    pub fn hurry_sweep(&mut self) {
        self.due[Task::Sweep as usize] = Instant::now();
    }

    /// Makes one round: at most one request and one commit. Returns how long to wait before the next.
    pub async fn round(&mut self) -> Duration {
        let full = self.ledger.is_full().await;
        self.show_full(full);
        if full {
            return PAUSE;
        }
        if let Err(error) = self.prepare().await {
            let wait = self.next_wait(self.last, None);
            self.report(&error.into(), wait);
            return wait;
        }
        let request = match self.next() {
            Ok(request) => request,
            Err(wait) => return wait,
        };
        let task = request.task;
        self.last = task;
        let span = tracing::info_span!("poll", orgdata.poll = task.as_ref());
        let outcome = self.exchange(&request).instrument(span).await;
        let wait = match &outcome {
            Ok(outcome) => {
                self.backoff[task as usize].reset();
                self.pause(task, *outcome)
            }
            Err(error) => self.next_wait(task, error.retry_after()),
        };
        let due = Instant::now() + wait;
        self.due[task as usize] = due;
        match &outcome {
            // The other task waits as long, or it would take the next request that the API allows.
            Err(error) if error.is_rate_limit() => self.due = self.due.map(|at| at.max(due)),
            _ => self.had_turn |= task == Task::Pass,
        }
        self.show();
        match outcome {
            Ok(_) => self.note_success(task),
            Err(error) => self.report(&error, wait),
        }
        Duration::ZERO
    }

    /// Returns how long a task waits after a failure: no less than the API asked for.
    fn next_wait(&mut self, task: Task, asked: Option<Duration>) -> Duration {
        let longest = self.settings.poll_interval.clamp(FIRST_WAIT, MAX_WAIT);
        let own = self.backoff[task as usize].next(None).min(longest);
        asked.map_or(own, |asked| asked.max(own))
    }

    /// Returns the next request, or how long to wait for it. A sweep is finished before anything else; between two sweeps a pass that is due
    /// has at least one page.
    fn next(&self) -> Result<Request, Duration> {
        let now = Instant::now();
        let mut order = [Task::Sweep, Task::Pass];
        if !self.had_turn && !self.walks.is_sweeping() {
            order.reverse();
        }
        let due = |task: &Task| self.due[*task as usize];
        let mut requests = order.iter().filter(|task| due(task) <= now);
        match requests.find_map(|task| self.walks.request(*task)) {
            Some(request) => Ok(request),
            None => {
                let is_sweep = |task: &&Task| **task == Task::Sweep;
                let order = order.iter();
                let next = order.filter(|task| !self.walks.is_sweeping() || is_sweep(task));
                let next = next.map(due).min().unwrap_or(now);
                Err(next.saturating_duration_since(now))
            }
        }
    }

    /// Returns how long a task waits after a request.
    fn pause(&mut self, task: Task, outcome: Received) -> Duration {
        match task {
            _ if outcome == Received::TooLarge => Duration::ZERO,
            Task::Sweep if self.walks.is_sweeping() => Duration::ZERO,
            Task::Sweep => {
                self.had_turn = false;
                if self.walks.state.behind.is_some() {
                    self.due[Task::Pass as usize] = Instant::now();
                }
                self.settings.poll_interval
            }
            Task::Pass if !self.walks.needs_pass() => self.settings.reread_interval,
            Task::Pass if outcome == Received::Nothing => self.settings.poll_interval,
            Task::Pass => Duration::ZERO,
        }
    }

    /// Requests a page and commits what it means.
    async fn exchange(&mut self, request: &Request) -> Result<Received, TailError> {
        let requested = Instant::now();
        let answer = self
            .client
            .audit_page(request.limit, request.before.as_deref());
        let limit = self.client.longest_page();
        let answer = match self.health.within(Loop::Audit, limit, answer).await {
            Ok(answer) => answer,
            Err(error) => {
                use FailureReason as R;
                match error.reason() {
                    // The request itself may be fine.
                    R::RateLimited => {}
                    R::TooLarge if self.walks.too_large(request) => return Ok(Received::TooLarge),
                    R::Rejected => self.failed(request, Cause::Rejected).await?,
                    R::Key | R::Connect | R::Unauthorized | R::Forbidden | R::Blocked => {
                        self.failed(request, Cause::Unreachable).await?;
                    }
                    _ => self.failed(request, Cause::Page).await?,
                }
                return Err(error.into());
            }
        };
        // Fewer entries are of no use if the API sends more than it is asked for.
        let is_limited = answer.len() <= request.limit as usize;
        if !is_limited {
            self.metrics.api.violated(Violation::LimitExceeded);
            let (limit, entries) = (request.limit, answer.len());
            if let Some(pages) = self.violations.should_log("a page is too long") {
                tracing::warn!(loop = "audit", limit, entries, pages, "a page has more entries than were requested");
            }
        }
        let is_large = answer.body().len() > self.ledger.max_page_bytes() && is_limited;
        if is_large && self.walks.too_large(request) {
            return Ok(Received::TooLarge);
        }
        let mut fetched = Fetched::read(&answer, &self.ledger, requested);
        fetched.check(self.ledger.status().organization.as_ref())?;
        let state = &self.walks.state;
        let (was_synced, is_new) = (state.is_synced, state.watermark.is_none());
        let was_behind = state.behind_since().is_some();
        let mut step = self.walks.page(request, &mut fetched.page);
        let (task, entries, new) = (request.task, fetched.page.entries.len(), step.take.len());
        tracing::debug!(loop = "audit", task = task.as_ref(), entries, new, "audit page");
        let problem = step.problem;
        self.apply(&fetched, &mut step, task).await?;
        if !was_synced && self.walks.state.is_synced {
            self.log_first_sync(is_new);
            // Nothing is late yet.
            self.due[Task::Pass as usize] = Instant::now() + self.settings.reread_interval;
        }
        if step.is_cut {
            tracing::info!(loop = "audit", "there are more new entries than a poll reads; catching up");
        } else if was_behind && self.walks.state.behind_since().is_none() {
            tracing::info!(loop = "audit", "catch-up finished");
        }
        match problem {
            None => Ok(Received::Page),
            Some(Problem::Empty) => Ok(Received::Nothing),
            Some(problem) => Err(problem.into()),
        }
    }

    /// Notes a failed request.
    async fn failed(&mut self, request: &Request, cause: Cause) -> Result<(), LedgerError> {
        let mut step = self.walks.failed(request, cause, self.ledger.now());
        match step.must_save {
            true => self.save(Commit::new(self.ledger.now()), &mut step).await,
            false => Ok(()),
        }
    }

    /// Commits what a step takes.
    async fn apply(
        &mut self,
        fetched: &Fetched<'_>,
        step: &mut Step,
        task: Task,
    ) -> Result<(), TailError> {
        let interval = match task {
            Task::Sweep => SAVE_INTERVAL,
            _ => SAVE_PROGRESS,
        };
        if !step.must_save && self.saved.elapsed() < interval {
            return Ok(());
        }
        let filters = &self.client.settings().filters;
        let stored = self.ledger.status().organization;
        let (excluded, privacy) = (&mut self.settings.excluded, &self.settings.privacy);
        let mut commit = fetched.commit(step, stored.as_ref(), filters, excluded, privacy);
        commit.is_sweep = task == Task::Sweep;
        let taken = commit.entries.iter().zip(step.take.iter().rev());
        let odd = taken.filter_map(|(entry, (index, _))| match entry.disposition {
            Disposition::Ignored => None,
            Disposition::Filtered => Some((*index, OUTSIDE)),
            _ => Some((*index, entry.problem?)),
        });
        let odd: Vec<_> = odd.collect();
        self.save(commit, step).await?;
        for (index, problem) in &odd {
            if let Some(entries) = self.violations.should_log(problem) {
                let id = fetched.page.entries[*index].shown_id();
                tracing::warn!(loop = "audit", id, entries, error = problem, "an audit log entry violates the API specification");
            }
        }
        if odd.iter().any(|(_, problem)| *problem == OUTSIDE) {
            self.metrics.api.violated(Violation::OutsideFilters);
        }
        Ok(())
    }

    /// Commits together with the tail's state, and publishes.
    async fn save(&mut self, mut commit: Commit, step: &mut Step) -> Result<(), LedgerError> {
        let state = &self.walks.state;
        commit.tail = Some(state.to_json());
        (commit.complete_through, commit.held_since) = (state.complete_through, state.held_since);
        // The sweep that ends here settles what it takes, and otherwise the next one that ends.
        (commit.settled, commit.sweep) = (state.sweeps, state.sweeps + u32::from(!step.settles));
        (commit.is_cut, commit.prune) = (step.is_cut, step.prune.take());
        commit.gaps.extend(step.gap.take());
        let gaps = commit.gaps.clone();
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
        self.walks.pruned(changes.pruned);
        self.saved = Instant::now();
        for gap in &gaps {
            tracing::error!(
                loop = "audit", reason = gap.reason.as_ref(),
                "gap in the audit logs: {}", gap.message
            );
        }
        self.metrics
            .audit
            .complete_through(self.walks.state.complete_through);
        self.metrics.audit.publish(changes);
        Ok(())
    }

    /// Continues from what is stored, after a commit that failed, and makes the checkpoint that is due.
    async fn prepare(&mut self) -> Result<(), LedgerError> {
        if self.is_stale {
            let state = self.ledger.reload().await?;
            self.walks = walks(&self.client, &self.settings, &state)?;
            self.is_stale = false;
        }
        let through = self.walks.state.complete_through;
        self.ledger.checkpoint(through).await
    }

    fn log_first_sync(&self, is_new: bool) {
        let state = &self.walks.state;
        let since = state.since.filter(|_| state.behind.is_some());
        let since = since.map(|since| match since == Timestamp::MIN {
            true => "oldest".to_owned(),
            false => since.to_string(),
        });
        let message = match is_new {
            true => "first sync is done; counting begins",
            false => {
                "the filters changed; older entries are delivered as log records, but not counted"
            }
        };
        tracing::info!(loop = "audit", catching_up_from = since, "{message}");
    }

    fn note_success(&mut self, task: Task) {
        let failures = self.failures[task as usize].clear();
        if failures > 0 {
            tracing::info!(loop = "audit", task = task.as_ref(), failures, "audit requests work again");
        }
        if task != Task::Sweep || !self.walks.state.is_synced {
            return;
        }
        self.metrics.loops.success(Loop::Audit);
        if !self.has_named_patterns && self.started.elapsed() >= PATTERNS_AFTER {
            self.has_named_patterns = true;
            for pattern in self.settings.excluded.unmatched() {
                tracing::info!(
                    pattern,
                    "a pattern in --*.exclude-activity-types has matched no activity type so far"
                );
            }
        }
    }

    /// A pass that fails does not make the loop fail, because sweeps still read new entries.
    fn report(&mut self, error: &TailError, wait: Duration) {
        let (task, reason, loops) = (self.last, error.reason(), &self.metrics.loops);
        let is_disk = matches!(error, TailError::Ledger(_));
        if task == Task::Sweep || is_disk {
            loops.failure(Loop::Audit, reason, error.to_string());
        }
        let Some(failures) = self.failures[task as usize].should_log(reason) else {
            return;
        };
        let retry_in = shown_wait(wait);
        if is_disk {
            tracing::warn!(loop = "audit", task = task.as_ref(), failures, %retry_in, "{error}");
            return;
        }
        let is_new = loops.state(Loop::Audit).last_success.is_none();
        let api = match error {
            TailError::Api(error) => Some(error),
            _ => None,
        };
        let must_act = is_new || api.is_some_and(|error| !error.is_transient());
        tracing::warn!(
            loop = "audit", task = task.as_ref(), failures, %error,
            status = api.and_then(ApiError::status), %retry_in,
            "audit request failed{}", advice(must_act)
        );
    }

    fn show_full(&self, full: bool) {
        if full == self.metrics.audit.is_paused() {
            return;
        }
        if full {
            tracing::warn!(
                loop = "audit",
                "the state file is full and reading audit logs pauses; check that the collector accepts log records and that no other program has the file open"
            );
        } else {
            // While a full file drains, it is full again after a few pages.
            tracing::debug!(loop = "audit", "the state file has room again; reading audit logs continues");
        }
        self.metrics.audit.paused(full);
    }

    fn show(&self) {
        let state = &self.walks.state;
        self.metrics.audit.behind(state.behind_since());
    }
}

/// Returns the state machine that continues from what the ledger holds.
fn walks(
    client: &Client,
    settings: &TailSettings,
    state: &LedgerState,
) -> Result<Walks, LedgerError> {
    let limits = WalkSettings::new(settings, state.created_at);
    let filters = client.settings().filters.fingerprint();
    let tail = TailState::from_json(&state.tail).map_err(|error| state.unreadable(error))?;
    Ok(Walks::new(tail, limits, state.pruned, &filters))
}
