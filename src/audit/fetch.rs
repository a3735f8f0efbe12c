//! Asking for a page, and finding out whose fault it is when that fails: the way, the size of the page, or this very place.

use crate::api::{ApiError, AuditPage, AuditQuery, Client, Cursor, Priority};

/// A place is at fault only after this many calls in a row that failed there.
pub(crate) const STRIKES: u32 = 3;

/// As many where a gap may follow from it: some minutes, with the waits between them. Nobody gets the entries back.
pub(crate) const STRIKES_BEFORE_A_GAP: u32 = 8;

/// Pages read with a reduced limit before a larger one is tried again; twice as many after each time that it was too large.
const PATIENCE: u32 = 20;

/// The most such pages.
const LONGEST_PATIENCE: u32 = 20 * 64;

/// Where a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At the newest entry.
    Top,
    /// Newer than a cursor.
    After(Cursor),
    /// Older than a cursor.
    Before(Cursor),
}

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// The page.
    Page(AuditPage),
    /// The service works, but not at this place, not even for one entry.
    Refused(ApiError),
}

/// Asks for pages, with a limit that shrinks where a page is too much.
#[derive(Debug)]
pub(crate) struct Fetcher {
    client: Client,
    page_size: u32,
    /// A larger page may not fit into the state file.
    max_bytes: usize,
    limit: u32,
    /// Pages since the limit was changed.
    calm: u32,
    /// After so many the next larger limit is tried.
    patience: u32,
    /// No page was read with this limit since it was raised.
    raised: bool,
    /// The place that failed last, and how often in a row.
    suspect: Option<(Place, u32)>,
}

// === impl Fetcher ===

impl Fetcher {
    pub(crate) fn new(client: Client, page_size: u32) -> Self {
        Self {
            client,
            page_size,
            max_bytes: usize::MAX,
            limit: page_size,
            calm: 0,
            patience: PATIENCE,
            raised: false,
            suspect: None,
        }
    }

    /// A page of more bytes is asked for again with fewer entries.
    pub(crate) fn within(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// A page whose emptiness has consequences: one without entries is asked for once more, since it may have been an accident.
    pub(crate) async fn page_for_sure(
        &mut self,
        place: &Place,
        priority: Priority,
        patience: u32,
    ) -> Result<Fetched, ApiError> {
        match self.page(place, priority, patience).await? {
            Fetched::Page(page) if page.items().next().is_none() => {
                self.page(place, priority, patience).await
            }
            fetched => Ok(fetched),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The items asked for at present.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// A page at a place; the place is at fault after `patience` failures there in a row.
    ///
    /// # Errors
    /// Where nothing can be said of the place: the service or the way to it fails as a whole, or it is too early to tell.
    pub(crate) async fn page(
        &mut self,
        place: &Place,
        priority: Priority,
        patience: u32,
    ) -> Result<Fetched, ApiError> {
        // Once the size of the page is known to be at fault here, nothing else has to be ruled out again.
        let mut too_large = self.raised;
        loop {
            let error = match self.ask(place, self.limit, priority).await {
                // A service that heeds no limit has no smaller one.
                Ok(page)
                    if page.bytes() > self.max_bytes
                        && page.len() > 1
                        && page.len() <= self.limit as usize =>
                {
                    self.limit = u32::try_from(page.len() * self.max_bytes / page.bytes())
                        .unwrap_or(1)
                        .max(1);
                    self.was_too_large();
                    tracing::debug!(
                        bytes = page.bytes(),
                        limit = self.limit,
                        "a page is large beside the state file; asking for fewer entries"
                    );
                    continue;
                }
                Ok(page) => {
                    self.went_well(place);
                    return Ok(Fetched::Page(page));
                }
                Err(error) if !error.may_be_the_request() => return Err(error),
                Err(error) => error,
            };
            let strikes = 1 + self
                .suspect
                .take()
                .filter(|(suspect, _)| suspect == place)
                .map_or(0, |(_, strikes)| strikes);
            self.suspect = Some((place.clone(), strikes));
            if error.is_transient() && strikes < STRIKES && !too_large {
                return Err(error);
            }
            if self.limit > 1 {
                match self.ask(place, 1, priority).await {
                    Ok(_) => {
                        self.suspect = None;
                        self.limit /= 2;
                        self.was_too_large();
                        too_large = true;
                        tracing::warn!(%error, limit = self.limit, "a page cannot be read whole; asking for half as many entries");
                        continue;
                    }
                    Err(other) if !other.may_be_the_request() => return Err(other),
                    Err(_) => {}
                }
            }
            if strikes < patience || *place == Place::Top {
                return Err(error);
            }
            // One request that has nothing to do with the place: if it works, the place is at fault.
            self.ask(&Place::Top, 1, priority).await?;
            self.suspect = None;
            return Ok(Fetched::Refused(error));
        }
    }

    /// The entry just below a cursor, or an empty page; `None` where the service, rather than the way to it, does not tell.
    ///
    /// # Errors
    /// As the client's.
    pub(crate) async fn below(&self, cursor: &Cursor) -> Result<Option<AuditPage>, ApiError> {
        match self
            .ask(&Place::Before(cursor.clone()), 1, Priority::Live)
            .await
        {
            Ok(page) => Ok(Some(page)),
            Err(error) if error.may_be_the_request() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn ask(
        &self,
        place: &Place,
        limit: u32,
        priority: Priority,
    ) -> Result<AuditPage, ApiError> {
        let mut query = AuditQuery {
            limit,
            ..AuditQuery::default()
        };
        match place {
            Place::Top => {}
            Place::After(cursor) => query.after = Some(cursor.clone()),
            Place::Before(cursor) => query.before = Some(cursor.clone()),
        }
        self.client.audit_page(&query, priority).await
    }

    fn was_too_large(&mut self) {
        self.calm = 0;
        if std::mem::take(&mut self.raised) {
            self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
        }
    }

    fn went_well(&mut self, place: &Place) {
        self.suspect.take_if(|(suspect, _)| suspect == place);
        if std::mem::take(&mut self.raised) {
            self.patience = PATIENCE;
        }
        if self.limit < self.page_size {
            self.calm += 1;
            if self.calm >= self.patience {
                self.calm = 0;
                self.limit = (self.limit * 2).min(self.page_size);
                self.raised = true;
            }
        }
    }
}
