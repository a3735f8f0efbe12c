//! One round: all pages, again if something moved underneath, and the snapshot of what they held.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::fold::Fold;
use super::labels::OTHER;
use super::pages::{PageSource, Pages};
use super::snapshot::Snapshot;
use super::walk::{Doubt, Next, Walk};
use super::{MAX_SCAN, Settings};
use crate::api::ApiError;

/// How often one round reads the listing, the first time included. Then an organization that never stands still gets what there is.
pub const MAX_ATTEMPTS: u32 = 3;

/// The most tickets of one organization: a service that makes up new ones for ever must not fill the memory.
pub const MAX_TICKETS: u64 = 2_000_000;

/// The most deals that its open tickets are linked to, for the same reason.
pub const MAX_DEALS: u64 = 2_000_000;

/// The states that are remembered as announced; an organization that makes up more of them is told so by the value `other`.
const MAX_ANNOUNCED: usize = 1000;

/// Why a round brought no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A page could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The pages do not advance.
    #[error(
        "the service ignores the parameter offset: at offset {offset} it sent the {rows} tickets of the first page again, so the rest cannot be read"
    )]
    OffsetIgnored {
        /// What was asked for.
        offset: u64,
        /// How many tickets came.
        rows: u64,
    },
    /// More than [`MAX_TICKETS`].
    #[error("there are more than {MAX_TICKETS} tickets, which is more than this exporter counts")]
    TooMany,
    /// More than [`MAX_DEALS`].
    #[error(
        "the open tickets are linked to more than {MAX_DEALS} deals, which is more than this exporter counts"
    )]
    TooManyDeals,
    /// Longer than six hours.
    #[error("reading the listing once took longer than {}", humantime::format_duration(*.0))]
    TooSlow(Duration),
}

/// Scans the tickets, round after round.
///
/// A snapshot without a doubt promises this: a ticket that existed all through the scan is in it exactly once, and none is in it that did not
/// exist at some time during the scan; the number of tickets never changed. For the pages overlap by one row: where the last row of one page
/// is still the first of the next, what stood above it still does, and what stood below still does, so nothing slipped through between them.
/// (A service that also reorders its listing could exchange three tickets during one attempt so that neither the row nor any count shows it:
/// one moves up unread, one that was read is deleted, and one is created. And one that keeps a page back while its `totalCount` is wrong by as
/// many is believed.)
#[derive(Debug)]
pub struct Scanner {
    settings: Settings,
    /// Repeated attempts.
    retries: Counter,
    /// Tickets asked for in one request; halved when a page was too large to be read, until the process ends.
    limit: u32,
    /// The last snapshot: its label values go first in the next.
    last: Option<Arc<Snapshot>>,
    /// What the last round ended with, where that was a doubt: which tickets, and why. The same again is the service's habit, and not movement.
    habit: Option<(u64, Doubt)>,
    /// States told of in the log.
    announced: HashSet<String>,
    /// The most unreadable tickets told of in the log since there were none.
    malformed_told: u64,
    folding_told: bool,
    /// When the round began.
    began: Instant,
    /// The log was told that the round takes long.
    slow_told: bool,
}

/// What became of reading the listing once.
enum Attempt {
    /// Read to the end.
    Complete(Box<Fold>, Option<Doubt>),
    /// Something moved, and it will be read again.
    Abandoned(Doubt),
}

// === impl Scanner ===

impl Scanner {
    /// A scanner that counts repeated attempts in `retries`.
    pub fn new(settings: Settings, retries: Counter) -> Self {
        // One row is the overlap, the other is progress.
        let limit = settings.page_size.max(2);
        Self {
            settings,
            retries,
            limit,
            last: None,
            habit: None,
            announced: HashSet::new(),
            malformed_told: 0,
            folding_told: false,
            began: Instant::now(),
            slow_told: false,
        }
    }

    /// One round: reads the listing, again while something disturbs it, at most [`MAX_ATTEMPTS`] times.
    ///
    /// # Errors
    /// Where a page cannot be read, or the listing cannot be walked; there is no partial snapshot.
    pub async fn round<S: PageSource>(&mut self, source: &S) -> Result<Arc<Snapshot>, ScanError> {
        (self.began, self.slow_told) = (Instant::now(), false);
        let mut earlier = self.habit;
        for attempt in 1.. {
            let last = attempt == MAX_ATTEMPTS;
            let habit = earlier
                .map(|(_, doubt)| doubt)
                .filter(|doubt| matches!(doubt, Doubt::TotalMoved { .. }));
            let (fold, doubt) = match self.attempt(source, last, habit).await? {
                Attempt::Complete(fold, doubt) => (fold, doubt),
                Attempt::Abandoned(doubt) => {
                    tracing::debug!(%doubt, attempt, "the tickets moved during the scan, reading them again");
                    self.retries.inc();
                    continue;
                }
            };
            // The same tickets and the same contradiction twice: the count is wrong, nothing moves, and a third time would show the same.
            let now = doubt.map(|doubt| (fold.fingerprint(), doubt));
            let settled = doubt.is_none_or(|doubt| !doubt.may_pass()) || now == earlier;
            earlier = now;
            if last || settled {
                self.habit = now;
                return Ok(self.finish(source, *fold, self.began.elapsed(), doubt));
            }
            self.retries.inc();
        }
        unreachable!("the last attempt returns")
    }

    /// Reads the listing once; where something moved to the end only if it is the `last` attempt, or if it moves so each time.
    async fn attempt<S: PageSource>(
        &mut self,
        source: &S,
        last: bool,
        habit: Option<Doubt>,
    ) -> Result<Attempt, ScanError> {
        let began = Instant::now();
        let mut pages = Pages::new(source, self.limit);
        let mut walk = Walk::default();
        let mut fold: Option<Box<Fold>> = None;
        let mut offset = 0;
        loop {
            let page = pages.get(offset).await;
            // Also where it failed: the next scan begins with the size that this one came down to.
            self.limit = pages.limit;
            let page = page?;
            // The service's clock at the first page decides what is overdue.
            let fold = fold.get_or_insert_with(|| {
                Box::new(Fold::new(
                    &self.settings,
                    self.last.as_deref(),
                    page.server_time,
                ))
            });
            let next = walk.take(&page, pages.limit, offset, fold)?;
            if !last
                && let Some(doubt) = walk
                    .doubted()
                    .filter(|doubt| doubt.is_movement() && Some(*doubt) != habit)
            {
                return Ok(Attempt::Abandoned(doubt));
            }
            if fold.tickets() > MAX_TICKETS {
                return Err(ScanError::TooMany);
            }
            if fold.deals() > MAX_DEALS {
                return Err(ScanError::TooManyDeals);
            }
            self.tell_slow(fold.tickets(), walk.total());
            if began.elapsed() > MAX_SCAN {
                return Err(ScanError::TooSlow(MAX_SCAN));
            }
            match next {
                Next::At(next) if offset == 0 => {
                    pages.plan(next, walk.total());
                    offset = next;
                }
                Next::At(next) => offset = next,
                Next::End => break,
            }
        }
        let fold = fold.expect("a walk ends after a page, and the first page makes the fold");
        let doubt = walk.verdict(&fold);
        Ok(Attempt::Complete(fold, doubt))
    }

    fn finish<S: PageSource>(
        &mut self,
        source: &S,
        fold: Fold,
        duration: Duration,
        doubt: Option<Doubt>,
    ) -> Arc<Snapshot> {
        source.unknown_fields(fold.unknown_fields());
        let example = fold.example().map(str::to_owned);
        let snapshot = Arc::new(fold.finish(duration, doubt));
        self.tell_malformed(&snapshot, example.as_deref());
        self.announce(&snapshot);
        self.last = Some(snapshot.clone());
        snapshot
    }

    /// Says once of every state what it counts as.
    fn announce(&mut self, snapshot: &Snapshot) {
        for ((state, _), group) in snapshot.by_state() {
            let known = group.tickets == 0
                || self
                    .settings
                    .open_states
                    .iter()
                    .any(|open| open.trim() == state)
                || self.announced.contains(state);
            if !known
                && (state != OTHER || !snapshot.folded)
                && self.announced.len() < MAX_ANNOUNCED
            {
                self.announced.insert(state.to_owned());
                tracing::info!(
                    state,
                    "tickets in a state not seen before; they do not count as open, unless --tickets.open-states names it"
                );
            }
        }
        if snapshot.folded && !self.folding_told {
            tracing::warn!(
                limit = super::MAX_VALUES,
                "more ticket states, types or priorities than are shown; the rest is counted as other"
            );
        }
        self.folding_told |= snapshot.folded;
    }

    /// Says once a round that it takes longer than a snapshot is shown, and how far it has come.
    fn tell_slow(&mut self, tickets: u64, total: Option<u64>) {
        if self.slow_told || self.began.elapsed() <= self.settings.max_age {
            return;
        }
        self.slow_told = true;
        tracing::warn!(
            tickets,
            total,
            "the scan of the tickets takes longer than --tickets.max-age, so that their series are absent; it goes on"
        );
    }

    /// Says that tickets could not be read when they begin to be there, and when they become more.
    fn tell_malformed(&mut self, snapshot: &Snapshot, example: Option<&str>) {
        if snapshot.malformed > self.malformed_told {
            let example = example.unwrap_or_default();
            tracing::warn!(
                tickets = snapshot.malformed,
                example,
                "tickets with something unreadable; they are counted by what could be read"
            );
        }
        self.malformed_told = if snapshot.malformed == 0 {
            0
        } else {
            self.malformed_told.max(snapshot.malformed)
        };
    }
}
