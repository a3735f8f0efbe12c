//! One pass over a range, from the newest entry down: for those who sort what they read, or only count it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use jiff::Timestamp;

use super::BackfillError;
use super::patience::Patience;
use super::plan::{Plan, Range};
use crate::api::{AuditPage, Client, Priority};
use crate::audit::{Event, Fetched, Fetcher, Place, STRIKES, TailError};
use crate::metrics::Metrics;

/// A pass under way.
#[derive(Debug)]
pub(super) struct Scan {
    fetcher: Fetcher,
    patience: Patience,
    range: Range,
    place: Option<Place>,
    /// It was begun again because a cursor was refused, and has not come further down since.
    again: bool,
    /// Hashes of the cursors that led here: one that comes again leads in a circle.
    cursors: HashSet<u64>,
    hasher: RandomState,
    /// Creation time of the newest entry of the first page: where the way down begins.
    top: Option<Timestamp>,
    /// Creation time of the newest entry of the last page.
    at: Option<Timestamp>,
    /// The earliest of these so far.
    deepest: Option<Timestamp>,
}

// === impl Scan ===

impl Scan {
    pub(super) fn new(plan: &Plan) -> Result<Self, BackfillError> {
        let client = Client::new(plan.settings.api.clone(), Metrics::new(Duration::ZERO).api)
            .map_err(|error| BackfillError::Setting(format!("--api.ca-file: {error}")))?;
        Ok(Self {
            fetcher: Fetcher::new(client, plan.page_size),
            patience: Patience::new(plan.patience),
            range: plan.range,
            place: Some(Place::Top),
            again: false,
            cursors: HashSet::new(),
            hasher: RandomState::new(),
            top: None,
            at: None,
            deepest: None,
        })
    }

    /// The next page's entries; `None` when the range was passed. An entry may come more than once.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Event>>, BackfillError> {
        loop {
            let Some(place) = self.place.clone() else {
                return Ok(None);
            };
            match self
                .fetcher
                .page_for_sure(&place, Priority::Range, STRIKES)
                .await
            {
                Ok(Fetched::Page(page)) => {
                    self.patience.worked();
                    return self.read(&page).map(Some);
                }
                Ok(Fetched::Refused(error)) if self.again => {
                    return Err(BackfillError::Failed(format!(
                        "the service cannot serve what is below a page: {error}"
                    )));
                }
                Ok(Fetched::Refused(error)) => {
                    tracing::warn!(%error, "the service refuses a cursor; reading begins again from the newest entry, and counts nothing twice");
                    (self.again, self.place) = (true, Some(Place::Top));
                    self.cursors.clear();
                }
                Err(error) => {
                    tokio::time::sleep(self.patience.failed(&TailError::Api(error))?).await
                }
            }
        }
    }

    /// How much of the time between the newest entry and the beginning was passed, where there is a beginning.
    pub(super) fn part(&self) -> Option<f64> {
        let (from, top, at) = (self.range.from?, self.top?, self.at?);
        let whole = top.duration_since(from).as_secs_f64();
        (whole > 0.0).then(|| (top.duration_since(at).as_secs_f64() / whole).clamp(0.0, 1.0))
    }

    fn read(&mut self, page: &AuditPage) -> Result<Vec<Event>, BackfillError> {
        let events: Vec<Event> = page
            .items()
            .map(|raw| Event::read(raw, page.server_time).0)
            .collect();
        let newest = events.iter().map(|event| event.created_at).max();
        self.top = self.top.or(newest);
        self.at = newest.or(self.at);
        if newest.is_some_and(|newest| self.deepest.is_none_or(|deepest| newest < deepest)) {
            (self.deepest, self.again) = (newest, false);
        }
        // Pages may not be sorted: below the beginning is where all of a page is.
        let below = self
            .range
            .from
            .is_some_and(|from| newest.is_some_and(|newest| newest < from));
        let next = page
            .end_cursor
            .clone()
            .filter(|_| !events.is_empty() && !below)
            .map(Place::Before);
        // Some services repeat the entry of the cursor: where there is room for more, it was the last.
        let next = next.filter(|next| {
            events.len() > 1
                || page.has_more
                || self.fetcher.limit() == 1
                || self.place.as_ref() != Some(next)
        });
        let cursor = if let Some(Place::Before(cursor)) = &next {
            cursor.as_str()
        } else {
            ""
        };
        if next.is_some() && !self.cursors.insert(self.hasher.hash_one(cursor)) {
            return Err(BackfillError::Failed(format!(
                "the service leads in a circle, so older entries cannot be reached (cursor {cursor:?})"
            )));
        }
        self.place = next;
        Ok(events)
    }
}
