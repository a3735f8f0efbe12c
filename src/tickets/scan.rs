//! One round: reads all pages, again if something moved meanwhile, and returns a snapshot.
//!
//! Pages overlap by one row. If the last row of a page is the first row of the next one, no row moved across the boundary
//! between the two requests: the rows above are still above, the rows below still below.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orgdata_api::{ApiError, Client, FailureReason, LONGEST_WAIT, Ticket, TicketPage};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::Settings;
use super::aggregate::Aggregate;
use crate::ledger::OtherOrganization;
use crate::metrics::snapshot::{Label, Snapshot};
use crate::util::shown_wait;

/// The maximum number of times that a round reads the listing.
pub const MAX_ATTEMPTS: u32 = 3;

/// The maximum number of tickets, which bounds the memory of a scan.
pub const MAX_TICKETS: u64 = 2_000_000;

/// The maximum number of deals that open tickets are linked to.
pub const MAX_DEALS: u64 = 1_000_000;

/// The maximum duration of reading the listing once.
pub const MAX_SCAN: Duration = Duration::from_secs(6 * 60 * 60);

/// How long to wait before a page if the service limits the rate and does not say for how long. A longer wait is logged.
const PAUSE: Duration = Duration::from_secs(60);

/// The maximum number of pauses before a page.
const MAX_PAUSES: u32 = 3;

/// Pages are requested larger again this long after one did not come, scan by scan.
const RAISE_AFTER: Duration = Duration::from_secs(10 * 60);

/// Failures make pages smaller down to this part of `--api.page-size`.
const SMALLEST_PART: u32 = 8;

/// The maximum number of states that are announced in the log.
const MAX_ANNOUNCED: usize = 100;

/// The maximum number of pages of repeated rows: an API that ignores `offset` would be read for ever.
const MAX_REPEATED_PAGES: u64 = 10;

/// Why a scan may have missed a ticket or counted one that was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// `totalCount` changed between two pages.
    #[error("totalCount changed between two pages")]
    TotalMoved {
        /// On the first page.
        from: Option<u64>,
        /// On a later one.
        to: Option<u64>,
    },
    /// The last row of a page was not the first of the next one.
    #[error("the rows moved before the page at offset {offset} was read")]
    RowsMoved {
        /// The offset of the page.
        offset: u64,
    },
    /// The number of tickets is not `totalCount`.
    #[error("{seen} different tickets were read, but totalCount is {total}")]
    CountDiffers {
        /// Distinct tickets.
        seen: u64,
        /// `totalCount`.
        total: u64,
    },
    /// There is no `totalCount` to compare with.
    #[error("the API returns no totalCount to compare with")]
    TotalMissing,
    /// The API returns one ticket per page, so pages cannot overlap.
    #[error("the API returns one ticket per page, so pages cannot overlap")]
    NoOverlap,
}

/// One reading of the listing: where the next page starts, when the listing ends, and what looked wrong.
#[derive(Debug, Default)]
struct Attempt {
    /// The `totalCount` of the first page.
    total: Option<u64>,
    /// What looked wrong first; later doubts follow from it.
    doubt: Option<Doubt>,
    /// The row that the next page should start with.
    overlap: Option<u64>,
    /// All rows, including repeated ones.
    rows: u64,
    /// The most rows on a page.
    widest: u64,
}

/// Why a round has no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A page could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The listing cannot be counted.
    #[error("{0}")]
    Listing(&'static str),
    /// The key.
    #[error(transparent)]
    OtherOrganization(#[from] OtherOrganization),
}

impl ScanError {
    /// Returns the kind of failure, and nothing that the service said.
    pub fn summary(&self) -> String {
        match self {
            Self::Api(error) => error.summary(),
            Self::Listing(text) => (*text).to_owned(),
            Self::OtherOrganization(_) => OtherOrganization::SUMMARY.to_owned(),
        }
    }
}

/// Scans the tickets, round after round.
///
/// A snapshot without a doubt contains each ticket that existed during the whole scan exactly once, and no ticket that did
/// not exist at some time during the scan.
#[derive(Debug)]
pub struct Scanner {
    settings: Settings,
    /// The organization of the state file, once known.
    pub(super) organization: Option<String>,
    /// Counts repeated attempts.
    retries: Counter,
    /// The number of tickets requested at once; halved when a page is too large or does not come.
    limit: u32,
    /// When a page did not come.
    lowered_at: Option<Instant>,
    last: Option<Arc<Snapshot>>,
    /// The doubt of the last attempt in which no rows moved.
    doubt: Option<Doubt>,
    /// States that were announced in the log.
    announced: BTreeSet<Label>,
    /// Reset by each round.
    slow_logged: bool,
}

// === impl Scanner ===

impl Scanner {
    /// Returns a scanner that counts repeated attempts in `retries`.
    pub fn new(mut settings: Settings, retries: Counter) -> Self {
        // One row is the overlap, the other is progress.
        settings.page_size = settings.page_size.max(2);
        Self {
            limit: settings.page_size,
            lowered_at: None,
            settings,
            organization: None,
            retries,
            last: None,
            doubt: None,
            announced: BTreeSet::new(),
            slow_logged: false,
        }
    }

    /// Reads the listing, at most [`MAX_ATTEMPTS`] times if something moves meanwhile. Returns the snapshot, and why it may not
    /// be consistent.
    ///
    /// # Errors
    ///
    /// Returns an error if a page cannot be read or the listing has no end; there is no partial snapshot.
    pub async fn round(
        &mut self,
        client: &Client,
    ) -> Result<(Arc<Snapshot>, Option<Doubt>), ScanError> {
        let began = Instant::now();
        if self
            .lowered_at
            .is_some_and(|at| at.elapsed() >= RAISE_AFTER)
        {
            self.limit = (self.limit * 2).min(self.settings.page_size);
        }
        self.slow_logged = false;
        let mut attempt = 1;
        loop {
            let last = attempt == MAX_ATTEMPTS;
            let (aggregate, doubt) = self.attempt(client, last, began).await?;
            // The doubt of the attempt before is a habit of the API: another attempt would not remove it.
            let settled = matches!(doubt, None | Some(Doubt::NoOverlap)) || doubt == self.doubt;
            // Rows that moved are no habit.
            if !matches!(doubt, Some(Doubt::RowsMoved { .. })) {
                self.doubt = doubt;
            }
            if last || settled {
                let snapshot = self.finish(aggregate, began.elapsed(), doubt.is_none());
                return Ok((snapshot, doubt));
            }
            self.retries.inc();
            attempt += 1;
        }
    }

    /// Reads the listing once, to its end unless something moved and this is not the `last` attempt.
    async fn attempt(
        &mut self,
        client: &Client,
        last: bool,
        began: Instant,
    ) -> Result<(Aggregate, Option<Doubt>), ScanError> {
        let attempt_began = Instant::now();
        let (mut page, mut limit) = self.page(client, 0).await?;
        self.check_organization(&page)?;
        let (now, expected) = (page.server_time, page.total_count.unwrap_or(0));
        let mut aggregate = Aggregate::new(&self.settings, self.last.as_deref(), now, expected);
        let mut attempt = Attempt::new(page.total_count);
        let mut offset = 0;
        loop {
            let next = attempt.take(&page, limit, offset, &mut aggregate)?;
            let moved = attempt.doubt.filter(|doubt| doubt.is_movement());
            if moved.is_some() && !last && moved != self.doubt {
                return Ok((aggregate, moved));
            }
            if aggregate.tickets() > MAX_TICKETS || aggregate.deals() > MAX_DEALS {
                return Err(ScanError::Listing(
                    "there are more than 2 million tickets or 1 million deals, the maximum that can be counted",
                ));
            }
            if attempt_began.elapsed() > MAX_SCAN {
                self.limit = self.settings.page_size;
                return Err(ScanError::Listing(
                    "reading all tickets once took longer than 6 hours",
                ));
            }
            if !self.slow_logged && began.elapsed() > self.settings.max_age {
                self.slow_logged = true;
                tracing::warn!(
                    loop = "tickets",
                    tickets = aggregate.tickets(),
                    total = page.total_count,
                    "the ticket scan takes longer than --tickets.max-age; ticket series are absent until it ends"
                );
            }
            let Some(next) = next else {
                let doubt = attempt.verdict(aggregate.tickets());
                return Ok((aggregate, doubt));
            };
            offset = next;
            (page, limit) = self.page(client, offset).await?;
        }
    }

    /// Refuses the tickets of another organization.
    fn check_organization(&self, page: &TicketPage) -> Result<(), OtherOrganization> {
        let expected = self.organization.as_ref();
        let Some(expected) = expected.and_then(|id| id.parse::<u64>().ok()) else {
            return Ok(());
        };
        let tickets = page.items().filter_map(|raw| Ticket::parse(raw).ok());
        let mut organizations = tickets.filter_map(|ticket| ticket.organization_id?.as_count());
        match organizations.next() {
            Some(found) if found != expected && organizations.all(|other| other != expected) => {
                Err(OtherOrganization {
                    found: found.to_string(),
                    expected: expected.to_string(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Requests a page, smaller ones if it is too much for the service, and returns it with its limit. The scan goes on after
    /// a pause that the service asks for: another one would begin with the first page.
    async fn page(&mut self, client: &Client, offset: u64) -> Result<(TicketPage, u32), ApiError> {
        use FailureReason as R;
        let least = (self.settings.page_size / SMALLEST_PART).max(2);
        let (mut limit, mut pauses) = (self.limit, 0);
        loop {
            let error = match client.ticket_page(limit, offset).await {
                Ok(page) => {
                    if limit < self.limit {
                        self.limit = (self.limit / 2).max(limit);
                        self.lowered_at = Some(Instant::now());
                        tracing::debug!(loop = "tickets", limit = self.limit, "a page of tickets did not come");
                    }
                    return Ok((page, limit));
                }
                Err(error) => error,
            };
            // The client would not send another request now, so the error would be that of the pause.
            let is_paused = error.retry_after() > Some(LONGEST_WAIT);
            match error.reason() {
                // If a small page comes, the size may be the cause.
                R::Timeout | R::ServerError | R::Malformed | R::Connect
                    if limit > least && !is_paused =>
                {
                    limit = least;
                }
                reason
                    if (reason == R::RateLimited || is_paused)
                        && offset > 0
                        && pauses < MAX_PAUSES =>
                {
                    let wait = error.retry_after().unwrap_or(PAUSE);
                    if wait > self.settings.max_age {
                        return Err(error);
                    }
                    if wait > PAUSE {
                        tracing::warn!(loop = "tickets", retry_in = %shown_wait(wait), "the API asks for a pause; the ticket scan waits");
                    }
                    pauses += 1;
                    tokio::time::sleep(wait).await;
                }
                R::TooLarge if limit > 2 => limit = (limit / 2).max(2),
                _ => return Err(error),
            }
        }
    }

    fn finish(
        &mut self,
        aggregate: Aggregate,
        duration: Duration,
        consistent: bool,
    ) -> Arc<Snapshot> {
        let example = aggregate.example.clone().unwrap_or_default();
        let snapshot = Arc::new(aggregate.finish(duration, consistent));
        let last = self.last.as_ref().map_or(0, |last| last.malformed);
        if snapshot.malformed > last {
            tracing::warn!(
                loop = "tickets",
                tickets = snapshot.malformed,
                example,
                "some tickets have a field that cannot be read; they are counted without it"
            );
        }
        self.announce(&snapshot);
        self.last = Some(snapshot.clone());
        snapshot
    }

    /// Logs new states that do not count as open.
    fn announce(&mut self, snapshot: &Snapshot) {
        let [states, ..] = snapshot.labels();
        let open = &self.settings.open_states;
        let mut new = Vec::new();
        for state in states.into_iter().filter(|_| snapshot.tickets > 0) {
            let is_open = open.iter().any(|open| open.trim() == &**state);
            if !is_open
                && self.announced.len() < MAX_ANNOUNCED
                && self.announced.insert(state.clone())
            {
                new.push(&**state);
            }
        }
        if !new.is_empty() {
            new.sort_unstable();
            let states = new.join(",");
            tracing::info!(
                loop = "tickets",
                states,
                "tickets in these states do not count as open; --tickets.open-states sets which do"
            );
        }
    }
}

// === impl Attempt ===

impl Attempt {
    fn new(total: Option<u64>) -> Self {
        Self {
            total,
            ..Self::default()
        }
    }

    /// Takes a page that was requested with `limit` at `offset`. Returns the offset of the next one; `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the pages repeat.
    fn take(
        &mut self,
        page: &TicketPage,
        limit: u32,
        offset: u64,
        aggregate: &mut Aggregate,
    ) -> Result<Option<u64>, ScanError> {
        if page.total_count != self.total {
            self.doubt.get_or_insert(Doubt::TotalMoved {
                from: self.total,
                to: page.total_count,
            });
        }
        let keys: Vec<u64> = page.items().map(|raw| aggregate.add(raw)).collect();
        let rows = keys.len() as u64;
        let overlap = self.overlap.take();
        match overlap {
            Some(_) if keys.first() != overlap.as_ref() => {
                self.doubt.get_or_insert(Doubt::RowsMoved { offset });
            }
            None if offset > 0 && rows > 0 => {
                self.doubt.get_or_insert(Doubt::NoOverlap);
            }
            _ => {}
        }
        self.rows += rows;
        self.widest = self.widest.max(rows);
        // With the overlap, each ticket is read at most twice.
        if self.rows > 3 * aggregate.tickets() + MAX_REPEATED_PAGES * self.widest {
            return Err(ScanError::Listing(
                "the pages repeat the same tickets; the API may ignore the parameter offset",
            ));
        }
        let end = offset.saturating_add(rows);
        // A full page at the end is followed by one more request, because totalCount may be too low.
        let full = rows == u64::from(limit) || Some(rows) == page.limit;
        if rows <= u64::from(overlap.is_some())
            || self.total.is_some_and(|total| end >= total) && !full
        {
            return Ok(None);
        }
        if rows == 1 {
            // An overlap would request the same page again.
            return Ok(Some(end));
        }
        self.overlap = keys.last().copied();
        Ok(Some(end - 1))
    }

    /// Returns what looks wrong at the end, with this number of distinct tickets.
    fn verdict(&self, seen: u64) -> Option<Doubt> {
        self.doubt.or(match self.total {
            None => Some(Doubt::TotalMissing),
            Some(total) if total != seen => Some(Doubt::CountDiffers { seen, total }),
            Some(_) => None,
        })
    }
}

// === impl Doubt ===

impl Doubt {
    /// Returns whether the listing moved, so that the rest of it need not be read before the next attempt.
    fn is_movement(self) -> bool {
        matches!(self, Self::TotalMoved { .. } | Self::RowsMoved { .. })
    }
}
