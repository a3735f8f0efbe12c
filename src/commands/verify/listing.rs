//! The audit logs of a window, page by page from the newest entry down.

use indicatif::ProgressBar;
use jiff::Timestamp;
use orgdata_api::{AuditPage, Backoff, Client, FailureReason as R};
use tokio::time::{Instant, sleep};

use crate::audit::Entry;

/// A page of the API, or a request to the collector, is tried again for this many times `--api.timeout`.
pub(super) const PATIENCE: u32 = 10;

/// The listing is left after this many entries in a row that are older than the window: some may be listed by arrival.
const MAX_OLDER: u32 = 10_000;

/// A smaller page might have only the entry of its cursor.
const MIN_PAGE: u32 = 2;

/// How often the listing is begun again because the API rejects a cursor, or says that there are more entries and lists none.
const MAX_RESTARTS: u32 = 3;

/// A walk down the listing.
pub(super) struct Listing {
    client: Client,
    bar: ProgressBar,
    /// The beginning of the window.
    from: Timestamp,
    page_size: u32,
    limit: u32,
    cursor: Option<String>,
    /// The page before said that there are more entries. Assumed at the top of the listing.
    has_more: bool,
    restarts: u32,
    /// The number of entries in a row that are older than the window.
    older: u32,
    /// The listing ended.
    pub(super) is_over: bool,
    /// When the last entry was created that was read.
    reached: Option<Timestamp>,
}

// === impl Listing ===

impl Listing {
    pub(super) fn new(client: Client, bar: ProgressBar, from: Timestamp, page_size: u32) -> Self {
        let page_size = page_size.max(MIN_PAGE);
        Self {
            client,
            bar,
            from,
            page_size,
            limit: page_size,
            cursor: None,
            has_more: true,
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
    /// If a page fails for longer than the patience, or cannot work. The message says what was not read.
    pub(super) async fn page(&mut self) -> Result<Option<AuditPage>, String> {
        let patience = self.client.settings().timeout * PATIENCE;
        let (mut backoff, begun) = (Backoff::default(), Instant::now());
        while !self.is_over && self.older < MAX_OLDER {
            let may_restart = self.restarts < MAX_RESTARTS;
            let answer = self.client.audit_page(self.limit, self.cursor.as_deref());
            let mut retry_after = None;
            match answer.await {
                Ok(page) if may_restart && self.breaks_off(&page) => self.restart(),
                // A listing without entries is believed.
                Ok(page) if self.breaks_off(&page) && (self.reached.is_some() || page.has_more) => {
                    let unread = self.unread();
                    return Err(format!(
                        "the API says that there are more entries, but lists none; {unread}"
                    ));
                }
                Ok(page) => {
                    self.advance(&page);
                    return Ok(Some(page));
                }
                Err(error) => {
                    retry_after = error.retry_after();
                    self.bar.set_message(format!("the API fails: {error}"));
                    match error.reason() {
                        R::Rejected if may_restart && self.cursor.is_some() => self.restart(),
                        reason
                            if begun.elapsed() < patience
                                && (error.is_transient() || reason == R::TooLarge) =>
                        {
                            self.limit = (self.limit / 2).max(MIN_PAGE);
                        }
                        _ => {
                            let unread = self.unread();
                            return Err(format!("{error}; {unread}"));
                        }
                    }
                }
            }
            sleep(backoff.next(retry_after)).await;
        }
        Ok(None)
    }

    /// Returns the entries of a page, each with its JSON and the time of its creation. One without a readable time has that of the entry before
    /// it.
    pub(super) fn entries<'p>(
        &mut self,
        page: &'p AuditPage,
    ) -> Vec<(Entry<'p>, &'p str, Timestamp)> {
        let now = now(page);
        let entries = page.items().map(|json| {
            let entry = Entry::read(json);
            let at = entry.created_at.or(self.reached).unwrap_or(now);
            self.reached = Some(at);
            self.older = if at < self.from { self.older + 1 } else { 0 };
            (entry, json, at)
        });
        entries.collect()
    }

    /// Returns what was not read.
    fn unread(&self) -> String {
        match self.reached {
            Some(at) => format!("the audit logs before {at:.0} were not read"),
            None => "nothing was read".to_owned(),
        }
    }

    /// Reports whether the listing ends although this page, or the one before, says that there are more entries.
    fn breaks_off(&self, page: &AuditPage) -> bool {
        let is_empty = page.end_cursor.is_none() && page.is_empty();
        let is_same = self.is_last(page) && page.end_cursor.is_some();
        self.has_more && (is_empty || is_same) || page.has_more && self.is_last(page)
    }

    /// Reports whether no cursor leads on. That of an empty page may be another one in each answer.
    fn is_last(&self, page: &AuditPage) -> bool {
        let is_below_end = page.is_empty() && !page.has_more && !self.has_more;
        is_below_end || page.end_cursor.is_none() || page.end_cursor == self.cursor
    }

    fn advance(&mut self, page: &AuditPage) {
        self.bar.set_message("");
        self.bar.inc(page.len() as u64);
        self.is_over = self.is_last(page);
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

/// Returns when a page came, by the API's clock or this machine's, whichever is earlier.
pub(super) fn now(page: &AuditPage) -> Timestamp {
    page.server_time.min(Timestamp::now())
}
