//! One round: reads all pages, again if something moved meanwhile, and returns a snapshot.
//!
//! Pages overlap by one row. If the last row of a page is the first row of the next one, no row moved across the boundary
//! between the two requests: the rows above are still above, the rows below still below.
//!
//! An API that computes pages rounds the offset to a multiple of the limit, so its pages cannot overlap. If the second page
//! fails to do so again and again, the last attempt reads pages side by side.

use std::sync::Arc;
use std::time::Duration;

use orgdata_api::{ApiError, Client, FailureReason, LONGEST_WAIT, TicketPage};
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::ScanSettings;
use super::aggregate::{Aggregate, MAX_SCAN, MAX_TICKETS};
use super::ticket::Ticket;
use crate::ledger::{LedgerError, OtherOrganization};
use crate::machine::{Machine, ThisMachine};
use crate::metrics::tickets::Snapshot;
use crate::util::shown_duration;

/// The maximum number of times that a round reads the listing.
pub const MAX_ATTEMPTS: u32 = 3;

/// The maximum number of deals that open tickets are linked to.
pub const MAX_DEALS: u64 = 1_000_000;

/// The maximum number of times that a page is requested, besides the client's own attempts.
const PAGE_TRIES: u32 = 3;

/// Why a scan may have missed a ticket or counted one that was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// `totalCount` changed, or the last row of a page was not the first of the next one.
    #[error("tickets moved between two pages, or the API clamps `offset` near the end")]
    Moved,
    /// The second page did not begin with the last row of the first one, in all attempts.
    #[error(
        "the second page does not begin with the ticket at its offset, so pages were read without overlap; the API may round `offset`"
    )]
    OffsetIgnored,
    /// The number of tickets is not `totalCount`.
    #[error("{seen} different tickets were read, but totalCount is {total}")]
    CountDiffers {
        /// Distinct tickets.
        seen: u64,
        /// `totalCount`.
        total: u64,
    },
    /// There is no `totalCount` to compare with.
    #[error("the API returns no totalCount, so the number of tickets cannot be checked")]
    TotalMissing,
    /// The API returns one ticket per page, so pages cannot overlap.
    #[error("the API returns one ticket per page, so pages cannot overlap")]
    NoOverlap,
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
    /// The state file cannot remember the organization.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ScanError {
    /// Returns the reason as a label value.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason().into(),
            Self::Listing(_) => "listing",
            Self::OtherOrganization(_) => OtherOrganization::REASON,
            Self::Ledger(_) => "state_file",
        }
    }
}

/// Scans the tickets, round after round.
///
/// A snapshot without a doubt contains each ticket that existed during the whole scan exactly once, and no ticket that did
/// not exist at some time during the scan.
#[derive(Debug)]
pub struct Scanner {
    settings: ScanSettings,
    /// The organization of the state file, or that of the first tickets.
    pub(crate) organization: Option<String>,
    /// Counts repeated attempts.
    retries: Counter,
    /// The number of tickets requested at once.
    limit: u32,
    last: Option<Arc<Snapshot>>,
    /// Whether the last round found no tickets, although there were some.
    is_empty: bool,
    /// The clock for the time of a snapshot.
    pub(crate) machine: Arc<dyn Machine>,
}

// === impl Scanner ===

impl Scanner {
    /// Returns a scanner that counts repeated attempts in `retries`.
    pub fn new(mut settings: ScanSettings, retries: Counter) -> Self {
        // One row is the overlap, the other is progress.
        settings.page_size = settings.page_size.max(2);
        Self {
            limit: settings.page_size,
            settings,
            organization: None,
            retries,
            last: None,
            is_empty: false,
            machine: Arc::new(ThisMachine),
        }
    }

    /// Reads the listing, at most [`MAX_ATTEMPTS`] times if something moves meanwhile. Returns the snapshot, and why it may not
    /// be consistent.
    ///
    /// # Errors
    ///
    /// Returns an error if a page cannot be read, is one of another organization, or the listing has no end; there is no partial
    /// snapshot.
    pub async fn round(
        &mut self,
        client: &Client,
    ) -> Result<(Arc<Snapshot>, Option<Doubt>), ScanError> {
        let began = Instant::now();
        // Pages that failures made smaller grow again.
        self.limit = (self.limit * 2).min(self.settings.page_size);
        let (mut attempt, mut is_ignored) = (1, false);
        loop {
            let is_last = attempt == MAX_ATTEMPTS;
            let overlaps = !(is_last && is_ignored);
            let (aggregate, doubt) = self.read(client, is_last, overlaps).await?;
            if is_last || doubt.is_none() {
                self.check_empty(&aggregate)?;
                let snapshot = self.finish(aggregate, began.elapsed(), doubt.is_none());
                return Ok((snapshot, doubt));
            }
            self.retries.inc();
            attempt += 1;
            is_ignored |= doubt == Some(Doubt::OffsetIgnored);
        }
    }

    /// Reads the listing once, to its end unless something moved and this is not the last attempt.
    async fn read(
        &mut self,
        client: &Client,
        is_last: bool,
        overlaps: bool,
    ) -> Result<(Aggregate, Option<Doubt>), ScanError> {
        let began = Instant::now();
        let (mut page, mut limit) = self.page(client, 0).await?;
        let (now, total) = (page.server_time, page.total_count);
        let mut aggregate = Aggregate::new(&self.settings, now, total.unwrap_or(0));
        if let Some(last) = &self.last {
            aggregate.keep_labels(last);
        }
        // The first sign that a ticket moved.
        let mut doubt = (!overlaps).then_some(Doubt::OffsetIgnored);
        // The row that the next page should start with.
        let (mut pages, mut offset, mut overlap) = (0, 0_u64, None);
        loop {
            pages += 1;
            let known = aggregate.tickets();
            let mut organizations = Vec::new();
            let keys = page.items().map(|raw| {
                let ticket = Ticket::read(raw);
                organizations.extend(ticket.organization());
                aggregate.add_ticket(ticket)
            });
            let keys: Vec<u64> = keys.collect();
            self.check_organization(&organizations)?;
            let rows = keys.len() as u64;
            let is_missed = overlap.is_some() && overlap.as_ref() != keys.first();
            if page.total_count == total && is_missed && pages == 2 {
                doubt.get_or_insert(Doubt::OffsetIgnored);
            } else if page.total_count != total || is_missed {
                doubt.get_or_insert(Doubt::Moved);
            } else if overlap.is_none() && offset > 0 && rows > 0 {
                doubt.get_or_insert(Doubt::NoOverlap);
            }
            if doubt.is_some() && !is_last {
                return Ok((aggregate, doubt));
            }
            check_limits(&aggregate, began.elapsed())?;
            let end = offset.saturating_add(rows);
            // A full page at the end is followed by one more request, because totalCount may be too low. An API that computes pages
            // may know none behind the last.
            let is_full = rows == u64::from(limit) || Some(rows) == page.limit;
            let is_end = rows <= u64::from(overlap.is_some())
                || total.is_some_and(|total| end >= total) && !(is_full && overlaps);
            let is_repeated = !is_end && aggregate.tickets() == known;
            if is_repeated && total.is_none_or(|total| known < total) {
                return Err(ScanError::Listing(
                    "the pages repeat the same tickets; the API may ignore `offset`",
                ));
            }
            if is_end || is_repeated {
                let seen = aggregate.tickets();
                let doubt = doubt.or(match total {
                    None => Some(Doubt::TotalMissing),
                    Some(total) if total != seen => Some(Doubt::CountDiffers { seen, total }),
                    Some(_) => is_repeated.then_some(Doubt::Moved),
                });
                return Ok((aggregate, doubt));
            }
            // With an overlap, a page of one row would be requested again.
            overlap = keys.last().copied().filter(|_| overlaps && rows > 1);
            offset = end - u64::from(overlap.is_some());
            (page, limit) = self.page(client, offset).await?;
        }
    }

    /// Rejects the first empty listing after one that was not.
    fn check_empty(&mut self, aggregate: &Aggregate) -> Result<(), ScanError> {
        let had_tickets = self.last.as_ref().is_some_and(|last| last.tickets > 0);
        let is_emptied = aggregate.tickets() == 0 && had_tickets;
        let was_empty = std::mem::replace(&mut self.is_empty, is_emptied);
        match is_emptied && !was_empty {
            true => Err(ScanError::Listing(
                "the API suddenly lists no tickets; the exporter accepts this if the next scan finds none either",
            )),
            false => Ok(()),
        }
    }

    /// Rejects tickets of another organization, and remembers the organization of the first ones.
    fn check_organization(&mut self, named: &[i64]) -> Result<(), OtherOrganization> {
        let found = OtherOrganization::check(named, self.organization.as_deref())?;
        self.organization = self.organization.take().or(found.map(|id| id.to_string()));
        Ok(())
    }

    /// Requests a page and returns it with its limit. Requests a smaller page if the size may be the cause of a failure.
    async fn page(&mut self, client: &Client, offset: u64) -> Result<(TicketPage, u32), ApiError> {
        use FailureReason as R;
        let (mut limit, mut tries) = (self.limit, 1);
        loop {
            let error = match client.ticket_page(limit, offset).await {
                Ok(page) => {
                    self.limit = (self.limit / 2).max(limit);
                    return Ok((page, limit));
                }
                Err(error) => error,
            };
            let is_paused = error.retry_after() > Some(LONGEST_WAIT);
            match error.reason() {
                _ if tries == PAGE_TRIES || is_paused => return Err(error),
                R::Timeout | R::ServerError | R::Malformed | R::Connect | R::TooLarge
                    if limit > 2 =>
                {
                    limit = (limit / 8).max(2);
                }
                _ => return Err(error),
            }
            tries += 1;
        }
    }

    /// Returns the snapshot; logs what is new in it.
    fn finish(
        &mut self,
        aggregate: Aggregate,
        duration: Duration,
        consistent: bool,
    ) -> Arc<Snapshot> {
        let example = aggregate.example.clone().unwrap_or_default();
        let mut snapshot = aggregate.finish(duration, consistent);
        snapshot.taken_at = self.machine.now();
        let snapshot = Arc::new(snapshot);
        let last = self.last.replace(snapshot.clone());
        if snapshot.malformed > last.as_ref().map_or(0, |last| last.malformed) {
            tracing::warn!(
                loop = "tickets",
                tickets = snapshot.malformed,
                example,
                "some tickets have a field that cannot be read; they are counted without it"
            );
        }
        self.log_slow(&snapshot, duration);
        let known = last.map(|last| last.states()).unwrap_or_default();
        let open = &self.settings.open_states;
        let mut states = snapshot.states();
        states.retain(|state| {
            !known.contains(state) && !open.iter().any(|open| open.trim() == &**state)
        });
        if !states.is_empty() {
            let states = Vec::from_iter(states).join(",");
            tracing::info!(
                loop = "tickets",
                states,
                "tickets in these states do not count as open; --tickets.open-states sets which do"
            );
        }
        snapshot
    }

    fn log_slow(&self, snapshot: &Snapshot, duration: Duration) {
        if duration > self.settings.max_age {
            tracing::warn!(
                loop = "tickets",
                tickets = snapshot.tickets,
                took = %shown_duration(duration),
                "the ticket scan took longer than --tickets.max-age; ticket series were absent until it ended"
            );
        }
    }
}

/// Checks that a scan has not become too large or too long.
fn check_limits(aggregate: &Aggregate, took: Duration) -> Result<(), ScanError> {
    if aggregate.tickets() > MAX_TICKETS || aggregate.deals() > MAX_DEALS {
        return Err(ScanError::Listing(
            "there are more than 2 million tickets or 1 million deals, the maximum that can be counted",
        ));
    }
    if took > MAX_SCAN {
        return Err(ScanError::Listing(
            "reading all tickets once took longer than 6 hours",
        ));
    }
    Ok(())
}
