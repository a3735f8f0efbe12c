//! The loop that tails the audit logs: requests what [`Ranges`] asks for, and commits what it decides.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use opentelemetry::trace::TraceContextExt as _;
use orgdata_api::{ApiError, AuditPage, Backoff, Client, FailureReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::Settings;
use super::event::{Event, entry_id, organization_name};
use super::ranges::{Cause, Page, Ranges, Request, Row, Step, Task};
use crate::health::Health;
use crate::ledger::{
    Commit, Disposition, EventIds, Gap, LedgerError, LedgerHandle, LedgerState, NewEntry,
    OtherOrganization, Range, RangeKind, SharedText, TailState, label_value,
};
use crate::metrics::{Loop, Metrics};
use crate::util::changes::TraceContext;
use crate::util::{self, shown_duration};

/// The first wait after a failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The maximum wait after a failure.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often a full state file is looked at.
const PAUSE: Duration = Duration::from_secs(1);

/// The name of the organization is looked for in so many entries of a page.
const NAMED: usize = 10;

/// Records wait this long for an open range.
const MAX_HOLD: SignedDuration = SignedDuration::from_mins(10);

/// A backfill gives up only after so many failures of one range.
const FAILURES: u32 = 5;

/// Tails the audit logs of one organization into a ledger.
#[derive(Debug)]
pub struct Tail {
    client: Client,
    ledger: LedgerHandle,
    metrics: Metrics,
    ranges: Ranges,
    organization: Option<String>,
    /// When this file took the place of a damaged one; the first sync records that as a gap.
    recreated_at: Option<Timestamp>,
    next_poll: Instant,
    next_reread: Instant,
    /// A range and a re-read take turns.
    reread_turn: bool,
    failures: u32,
    /// The kind of the failure that was logged last.
    logged: String,
    backoff: Backoff,
}

/// Why a round failed; the next one continues from what the ledger holds.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The service or the network.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The state file.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The key.
    #[error(transparent)]
    OtherOrganization(#[from] OtherOrganization),
}

impl TailError {
    fn summary(&self) -> String {
        match self {
            Self::Api(error) => error.summary(),
            Self::Ledger(_) => "state file".to_owned(),
            Self::OtherOrganization(_) => OtherOrganization::SUMMARY.to_owned(),
        }
    }
}

/// A page with what it is made of.
struct Fetched {
    page: AuditPage,
    /// The entries without repetitions, with their indices in the page.
    events: Vec<(usize, Event)>,
    view: Page,
    duplicates: u64,
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
        let has_known = state.counted.newest.is_some();
        let now = Instant::now();
        let is_new = state.tail.first_sync.is_none();
        metrics.audit.restore(state.counted, state.events);
        let mut tail = Self {
            client,
            ledger,
            metrics,
            ranges: Ranges::new(state.tail, settings, state.prune_floor, has_known),
            organization: state.organization,
            recreated_at: state.recreated_at,
            next_poll: now,
            next_reread: now,
            reread_turn: false,
            failures: 0,
            logged: String::new(),
            backoff: Backoff::new(FIRST_WAIT, MAX_WAIT),
        };
        let filters = tail.client.settings().filters.fingerprint();
        if !is_new && tail.ranges.state.filters != filters {
            tail.ranges.change_filters();
            tracing::info!(
                "the filters changed; entries that only the new ones match are exported from now on"
            );
        }
        tail.ranges.state.filters = filters;
        tail.show_ranges();
        tail
    }

    /// Makes this a backfill of the history before `until`: records wait until the history is complete, nothing is
    /// polled or read again, and the caller decides when to give up.
    pub fn for_backfill(mut self, until: Option<Timestamp>) -> Self {
        self.ranges.is_backfill = true;
        self.ranges.until = until;
        // What a damaged file held is read again.
        self.recreated_at = None;
        // Each run has its own patience.
        for range in &mut self.ranges.state.ranges {
            range.failing_since = None;
        }
        self
    }

    /// Reports whether the history has been read to its end.
    pub fn is_complete(&self) -> bool {
        let state = self.state();
        state.first_sync.is_some() && state.ranges.is_empty() && state.first_page.is_none()
    }

    /// Returns the tail's durable state.
    pub fn state(&self) -> &TailState {
        &self.ranges.state
    }

    /// Tails until `shutdown`.
    pub async fn run(mut self, health: Health, shutdown: CancellationToken) {
        let _watched = health.watched(Loop::Audit);
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

    /// Makes the next poll and the next re-read due now.
    pub fn hurry(&mut self) {
        self.hurry_poll();
        self.next_reread = Instant::now();
    }

    /// Reports whether a range could not be read for so long, whatever was read meanwhile.
    pub fn has_failed_for(&self, longest: SignedDuration) -> bool {
        self.ranges.has_failed_for(longest, FAILURES, util::now())
    }

    /// Makes the next poll due now.
    pub fn hurry_poll(&mut self) {
        self.next_poll = Instant::now();
    }

    /// Makes one round: at most one request and one commit. Returns how long to wait before the next.
    pub async fn round(&mut self) -> Duration {
        match self.try_round().await {
            Ok(wait) => wait,
            Err(error) => {
                self.failures += 1;
                let longest = self.ranges.settings.poll_interval.max(FIRST_WAIT);
                let wait = self.backoff.next(None).min(longest);
                let (summary, loops) = (error.summary(), &self.metrics.loops);
                loops.failure(Loop::Audit, summary.clone(), error.to_string());
                if self.failures.is_power_of_two() || self.logged != summary {
                    self.logged = summary;
                    tracing::warn!(%error, failures = self.failures, retry_in = %shown_duration(wait), "audit poll failed");
                }
                wait
            }
        }
    }

    /// Makes one round, and leaves its failure to the caller.
    ///
    /// # Errors
    /// If the request or the commit fails; the next round repeats it.
    pub async fn try_round(&mut self) -> Result<Duration, TailError> {
        let full = self.ledger.is_full().await;
        self.release(full).await?;
        if full != self.metrics.audit.is_paused() {
            if full {
                tracing::warn!(
                    "the state file is full: the collector has not accepted the log records in it, or a reader prevents WAL truncation; the audit loop pauses"
                );
            } else {
                // While a full file drains, it is full again after a few pages.
                tracing::debug!("the state file has room again; the audit loop continues");
            }
            self.metrics.audit.paused(full);
        }
        if full {
            return Ok(PAUSE);
        }
        if self.ranges.state.first_page.is_some() {
            self.finish_first_page().await?;
        }
        let (now, is_tail) = (Instant::now(), !self.ranges.is_backfill);
        let poll_due = now >= self.next_poll && is_tail;
        let has_range = !self.ranges.state.ranges.is_empty();
        let is_turn = !has_range || self.reread_turn;
        let reread_due =
            (now >= self.next_reread || self.ranges.is_rereading()) && is_turn && is_tail;
        let Some(request) = self.ranges.request(poll_due, reread_due) else {
            let next = match self.state().filters_changed {
                true => self.next_poll,
                false => self.next_poll.min(self.next_reread),
            };
            return Ok(next.saturating_duration_since(now));
        };
        self.reread_turn = has_range && !matches!(request.task, Task::Reread);
        let span = tracing::info_span!("poll", orgdata.poll = ?request.task);
        let wait = self.exchange(&request).instrument(span).await;
        // A failing page must not delay the polls, nor a failing poll the ranges.
        if request.task == Task::Poll && (wait.is_ok() || has_range) {
            self.next_poll = Instant::now() + self.ranges.settings.poll_interval;
        }
        if request.task == Task::Reread && !self.ranges.is_rereading() {
            self.next_reread = Instant::now() + self.ranges.settings.reread_interval;
        }
        self.show_ranges();
        let wait = wait?;
        // An empty first page is confirmed before anything counts as new.
        if self.ranges.state.first_sync.is_some() {
            self.metrics.loops.success(Loop::Audit);
            let ranges = &self.ranges.state.ranges;
            if self.failures > 0 && ranges.iter().all(|range| range.failing_since.is_none()) {
                tracing::info!(failures = self.failures, "the audit logs can be read again");
                self.failures = 0;
                self.backoff.reset();
            }
        }
        Ok(wait)
    }

    /// Requests a page and commits what it means.
    async fn exchange(&mut self, request: &Request) -> Result<Duration, TailError> {
        let requested = self
            .client
            .audit_page(request.limit, request.before.as_deref());
        let page = match requested.await {
            Ok(page) => page,
            Err(error) => {
                // A pause that the service asks for says nothing about what was requested.
                if error.reason() != FailureReason::RateLimited {
                    self.failed(request, &error).await?;
                }
                return Err(error.into());
            }
        };
        // Fewer entries are of no use if the service sends more than it is asked for.
        let is_limited = page.len() <= request.limit as usize;
        let is_large = page.body().len() > self.ledger.max_page_bytes() && page.len() > 1;
        if is_large && is_limited && self.ranges.lower_limit(request, page.len()) {
            return Ok(Duration::ZERO);
        }
        let fetched = self.read(page, self.ranges.above(request.task));
        // Nothing is taken from a poll, and one row says little.
        if request.task != Task::Poll
            && let Err(error) = self.check_organization(&fetched)
        {
            // A larger page may have others.
            if self.ranges.widen(request.task) {
                return Ok(Duration::ZERO);
            }
            return Err(error.into());
        }
        let step = self.ranges.page(request, &fetched.view);
        let wait = step.wait;
        self.apply(fetched, step).await?;
        Ok(wait)
    }

    /// Notes a failed request, and commits the gap that a range may become.
    async fn failed(&mut self, request: &Request, error: &ApiError) -> Result<(), LedgerError> {
        let mut next = self.ranges.clone();
        if let Some(gap) = next.failed(request, cause(error), util::now()) {
            let mut commit = Commit::new(util::now());
            commit.gaps.push(gap);
            return self.save(next, commit).await;
        }
        self.ranges = next;
        Ok(())
    }

    /// Reads the entries of a page. One without a readable time is as old as the one above it, which is `above` for the first.
    fn read(&self, page: AuditPage, above: Option<Timestamp>) -> Fetched {
        let mut above = above.unwrap_or(page.server_time);
        let filters = &self.client.settings().filters;
        let mut ids = EventIds::default();
        let events: Vec<(usize, Event)> = page
            .items()
            .map(|raw| {
                let event = Event::read(raw, above, filters);
                above = event.created_at;
                event
            })
            .enumerate()
            .filter(|(_, event)| ids.insert(event.id))
            .collect();
        let known = self.ledger.holds(events.iter().map(|(_, event)| event.id));
        let rows = events.iter().zip(known).map(|((_, event), known)| Row {
            id: event.id,
            created_at: event.created_at,
            known,
        });
        Fetched {
            view: Page {
                rows: rows.collect(),
                end_cursor: page.end_cursor.clone(),
                server_time: page.server_time,
            },
            duplicates: (page.len() - events.len()) as u64,
            events,
            page,
        }
    }

    /// Commits what a step takes.
    async fn apply(&mut self, mut fetched: Fetched, step: Step) -> Result<(), TailError> {
        let mut commit = step.commit;
        commit.trace = current_trace();
        let known = self.organization.as_ref().and_then(|id| id.parse().ok());
        let organization = known.or_else(|| fetched.organization());
        let mut odd = Vec::new();
        // Oldest first: that is the order of delivery.
        for (index, disposition) in step.take.iter().rev() {
            let (item, event) = &mut fetched.events[*index];
            let raw = fetched.page.item(*item);
            if event.organization.is_some() && event.organization != organization {
                event.mark("the entry belongs to another organization");
            }
            let disposition = match event.filtered {
                true => Disposition::Ignored,
                false => *disposition,
            };
            commit.filtered += u64::from(event.filtered);
            if let Some(problem) = event.problem
                && disposition != Disposition::Ignored
            {
                odd.push((entry_id(raw), problem));
            }
            commit.entries.push(NewEntry {
                id: event.id,
                created_at: event.created_at,
                disposition,
                event: std::mem::replace(&mut event.event, Err("")).map_err(str::to_owned),
                raw: SharedText::new(fetched.page.body().clone(), fetched.page.position(*item)),
            });
        }
        if commit.filtered > 0 {
            tracing::warn!(
                entries = commit.filtered,
                "the API ignores --audit.activity-types or --audit.deal-ids; dropped entries outside of them"
            );
        }
        if !commit.entries.is_empty() {
            commit.duplicates = fetched.duplicates;
        }
        let stored = self.ledger.status().organization;
        if stored.is_none_or(|(_, name)| name.is_none())
            && let Some(id) = organization
        {
            let name = fetched.organization_name(id);
            commit.organization = Some((id.to_string(), name.as_deref().map(label_value)))
                .filter(|_| self.organization.is_none() || name.is_some());
        }
        let (old, new) = (&self.ranges.state, &step.next.state);
        let is_first_sync = old.first_sync != new.first_sync;
        if is_first_sync && let Some(at) = self.recreated_at {
            commit.gaps.push(Gap::recreated(at));
        }
        let has_changes = is_first_sync
            || !commit.entries.is_empty()
            || !commit.gaps.is_empty()
            || commit.recovered
            || commit.organization.is_some()
            || old.ranges != new.ranges
            || old.reread_at != new.reread_at
            || old.filters_changed != new.filters_changed;
        if !has_changes && !step.next.is_poll_unsaved() {
            self.ranges = step.next;
            return Ok(());
        }
        if is_first_sync && !self.ranges.is_backfill {
            tracing::info!(start = %self.ranges.settings.start, entries = commit.entries.len(), "first sync; counters begin at 0");
        }
        self.save(step.next, commit).await?;
        for (id, problem) in odd {
            tracing::warn!(id, problem, "an audit log entry is not as documented");
        }
        Ok(())
    }

    /// Commits together with the tail's next state, and publishes.
    async fn save(&mut self, next: Ranges, mut commit: Commit) -> Result<(), LedgerError> {
        commit.tail = Some(next.state.clone());
        let (gaps, organization) = (commit.gaps.clone(), commit.organization.clone());
        let changes = self.ledger.commit(commit).await?;
        self.ranges = next;
        self.ranges.saved(changes.prune_floor);
        for gap in &gaps {
            tracing::error!(
                reason = gap.reason.as_str(),
                "gap in the audit logs: {}",
                gap.message
            );
        }
        self.organization = organization.map(|(id, _)| id).or(self.organization.take());
        self.metrics.audit.publish(changes);
        Ok(())
    }

    /// Releases records that have waited for too long for a range to be closed.
    async fn release(&mut self, full: bool) -> Result<(), LedgerError> {
        if self.ranges.is_backfill {
            return Ok(());
        }
        let before = if full {
            Timestamp::MAX
        } else {
            util::now().checked_sub(MAX_HOLD).unwrap_or(Timestamp::MIN)
        };
        let is_due = |range: &Range| !range.released && range.opened_at <= before;
        if self.state().ranges.iter().any(is_due) {
            let mut next = self.ranges.clone();
            next.release(before);
            self.save(next, Commit::new(util::now())).await?;
            tracing::warn!(
                "a range of the audit logs is still open; its records are sent out of order"
            );
        }
        Ok(())
    }

    /// Takes the stored first page of a history that an older version did not finish.
    async fn finish_first_page(&mut self) -> Result<(), TailError> {
        let body = self.state().first_page.clone().unwrap_or_default();
        let Ok(page) = AuditPage::parse(body, None) else {
            tracing::warn!(
                "the history that an earlier version has not finished cannot be read on; a backfill can read it"
            );
            self.ranges.state.first_page = None;
            return Ok(());
        };
        let fetched = self.read(page, None);
        let step = self.ranges.first_page(&fetched.view);
        self.apply(fetched, step).await
    }

    /// Refuses the pages of another organization. A few odd entries do not make it another organization's.
    fn check_organization(&self, fetched: &Fetched) -> Result<(), OtherOrganization> {
        let Some(expected) = &self.organization else {
            return Ok(());
        };
        let id = expected.parse().ok();
        let is_ours = |(_, event): &(usize, Event)| event.organization == id;
        if fetched.events.iter().any(is_ours) {
            return Ok(());
        }
        match fetched.organization() {
            Some(found) => Err(OtherOrganization {
                found: found.to_string(),
                expected: expected.clone(),
            }),
            None => Ok(()),
        }
    }

    fn show_ranges(&self) {
        for kind in RangeKind::ALL {
            let ranges = self.ranges.state.ranges.iter();
            let opened = ranges
                .filter(|range| range.kind == kind)
                .map(|range| range.opened_at);
            let (count, oldest) = (opened.clone().count() as u64, opened.min());
            self.metrics.audit.open_ranges(kind, count, oldest);
        }
    }
}

// === impl Fetched ===

impl Fetched {
    /// Returns the id of the organization of most entries.
    fn organization(&self) -> Option<i64> {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for id in self
            .events
            .iter()
            .filter_map(|(_, event)| event.organization)
        {
            *counts.entry(id).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map(|(id, _)| id)
    }

    /// Returns the name that one of the first entries gives the organization.
    fn organization_name(&self, id: i64) -> Option<String> {
        let mut events = self.events.iter().take(NAMED);
        events.find_map(|(item, event)| {
            let name = organization_name(self.page.item(*item))?;
            (event.organization == Some(id) && !name.trim().is_empty()).then_some(name)
        })
    }
}

/// Returns what an error says about the request.
fn cause(error: &ApiError) -> Cause {
    use FailureReason as R;
    match error.reason() {
        R::Key | R::Connect | R::Unauthorized | R::Forbidden => Cause::Away,
        R::Refused => Cause::Refused,
        _ => Cause::Page,
    }
}

/// Returns the trace and span of the current work, if it is sampled.
fn current_trace() -> Option<TraceContext> {
    let context = tracing::Span::current().context();
    let span = context.span();
    let span = span.span_context();
    (span.is_valid() && span.is_sampled()).then(|| TraceContext {
        trace_id: span.trace_id().to_bytes(),
        span_id: span.span_id().to_bytes(),
    })
}
