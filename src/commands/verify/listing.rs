//! The audit logs of a window, page by page from the newest entry down.

use std::time::Duration;

use indicatif::ProgressBar;
use jiff::Timestamp;
use orgdata_api::{AuditPage, Backoff, Client, FailureReason as R};
use tokio::time::Instant;

use crate::audit::Entry;
use crate::util::shown_wait;

/// The listing is left after this many entries in a row that are older than the window: some may be listed by arrival.
const MAX_OLDER: u32 = 10_000;

/// A smaller page might have only the entry of its cursor.
const MIN_PAGE: u32 = 2;

/// How often the listing is begun again because the API no longer knows a cursor.
const MAX_RESTARTS: u32 = 5;

/// After this many pages without entries, although the one before said that there are more, the listing is begun again; after as many once
/// more, its end is believed.
const MAX_DOUBTS: u32 = 3;

/// The wait after a failure, which doubles, and its maximum.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A walk down the listing.
pub(super) struct Listing {
    client: Client,
    bar: ProgressBar,
    /// The beginning of the window.
    from: Timestamp,
    page_size: u32,
    limit: u32,
    /// How long a page may fail.
    patience: Duration,
    cursor: Option<String>,
    /// The page before said that there are more entries. Assumed at the top of the listing.
    has_more: bool,
    doubts: u32,
    restarts: u32,
    /// The number of entries in a row that are older than the window.
    older: u32,
    /// The listing ended.
    pub(super) is_over: bool,
    /// When the last entry was created that was read.
    pub(super) reached: Option<Timestamp>,
}

// === impl Listing ===

impl Listing {
    pub(super) fn new(
        client: Client,
        bar: ProgressBar,
        from: Timestamp,
        page_size: u32,
        patience: Duration,
    ) -> Self {
        let page_size = page_size.max(MIN_PAGE);
        Self {
            client,
            bar,
            from,
            page_size,
            limit: page_size,
            patience,
            cursor: None,
            has_more: true,
            doubts: 0,
            restarts: 0,
            older: 0,
            is_over: false,
            reached: None,
        }
    }

    /// Returns the next page; `None` at the end of the window or of the listing. A page that fails is requested again, with half as many
    /// entries.
    ///
    /// # Errors
    /// If a page fails for longer than the patience, or cannot work.
    pub(super) async fn page(&mut self) -> Result<Option<AuditPage>, String> {
        let mut backoff = Backoff::new(FIRST_WAIT, MAX_WAIT);
        let begun = Instant::now();
        while !self.is_over && self.older < MAX_OLDER {
            let answer = self.client.audit_page(self.limit, self.cursor.as_deref());
            let error = match answer.await {
                Ok(page) if self.is_doubtful(&page) => {
                    self.doubts += 1;
                    if self.doubts == MAX_DOUBTS {
                        self.restart();
                    }
                    tokio::time::sleep(FIRST_WAIT).await;
                    continue;
                }
                Ok(page) => {
                    self.advance(&page);
                    return Ok(Some(page));
                }
                Err(error) => error,
            };
            let is_final = !error.is_transient() && error.reason() != R::TooLarge;
            match error.reason() {
                R::Rejected if self.cursor.is_some() && self.restarts < MAX_RESTARTS => {
                    self.restart();
                }
                _ if is_final || begun.elapsed() >= self.patience => return Err(error.to_string()),
                _ => self.limit = (self.limit / 2).max(MIN_PAGE),
            }
            let wait = backoff.next(error.retry_after());
            let message = format!(
                "the API fails; trying again in {}: {error}",
                shown_wait(wait)
            );
            self.bar.set_message(message);
            tokio::time::sleep(wait).await;
        }
        Ok(None)
    }

    /// Returns when an entry was created. One without a readable time has that of the entry before it.
    pub(super) fn time_of(&mut self, entry: &Entry<'_>, now: Timestamp) -> Timestamp {
        let at = entry.created_at.or(self.reached).unwrap_or(now);
        self.reached = Some(at);
        self.older = if at < self.from { self.older + 1 } else { 0 };
        at
    }

    /// Reports whether the page is empty although there should be more. If that happens again from the top, the listing ends there.
    fn is_doubtful(&self, page: &AuditPage) -> bool {
        let is_end = page.end_cursor.is_none() && page.is_empty()
            || page.end_cursor.is_some() && page.end_cursor == self.cursor;
        is_end && self.has_more && self.doubts < 2 * MAX_DOUBTS
    }

    fn advance(&mut self, page: &AuditPage) {
        self.bar.set_message("");
        self.bar.inc(page.len() as u64);
        self.is_over = page.end_cursor.is_none() || page.end_cursor == self.cursor;
        self.limit = (self.limit * 2).min(self.page_size);
        self.has_more = page.has_more;
        self.cursor.clone_from(&page.end_cursor);
    }

    /// Begins again at the top of the listing.
    fn restart(&mut self) {
        (self.cursor, self.has_more, self.older) = (None, true, 0);
        self.restarts += 1;
    }
}
