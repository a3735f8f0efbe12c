//! Pages of the ticket listing, several on their way at a time where it is clear which come next.

use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use crate::api::{ApiError, Client, TicketPage};

/// Pages asked for at the same time once the number of tickets is known. The client's rate limit stands above it, and the tail goes first.
pub const CONCURRENCY: usize = 4;

/// Where pages come from: the client, or a script in a test.
pub trait PageSource: Sync {
    /// `limit` tickets from `offset` on.
    fn page(
        &self,
        limit: u32,
        offset: u64,
    ) -> impl Future<Output = Result<TicketPage, ApiError>> + Send;

    /// Counts fields of tickets that the specification does not name.
    fn unknown_fields(&self, _count: u64) {}
}

type PageFuture<'a> = Pin<Box<dyn Future<Output = Result<TicketPage, ApiError>> + Send + 'a>>;

/// Fetches pages, several at a time where it is clear which come next.
pub(super) struct Pages<'a, S> {
    source: &'a S,
    /// Tickets asked for in one request.
    pub(super) limit: u32,
    /// Asked for in advance.
    ahead: FuturesOrdered<PageFuture<'a>>,
    /// The offset of the first page in `ahead`.
    front: u64,
    /// The offset of the next page to ask for.
    back: u64,
    step: u64,
    /// No page is asked for in advance from here on.
    end: u64,
}

// === impl Pages ===

impl<'a, S: PageSource> Pages<'a, S> {
    pub(super) fn new(source: &'a S, limit: u32) -> Self {
        Self {
            source,
            limit,
            ahead: FuturesOrdered::new(),
            front: 0,
            back: 0,
            step: 0,
            end: 0,
        }
    }

    /// After the first page: the next ones begin at `next` and at every multiple of it, as long as they do not turn out otherwise.
    pub(super) fn plan(&mut self, next: u64, total: Option<u64>) {
        // The page at `end` would hold nothing but the overlap.
        (self.front, self.back, self.step, self.end) =
            (next, next, next, total.unwrap_or(0).saturating_sub(1));
    }

    /// The page at `offset`, asked for with `self.limit`; half of it where the answer would be too large to be read.
    pub(super) async fn get(&mut self, offset: u64) -> Result<TicketPage, ApiError> {
        if offset != self.front {
            self.forget();
        }
        loop {
            while self.ahead.len() < CONCURRENCY && self.back < self.end && self.step > 0 {
                let (source, limit, back) = (self.source, self.limit, self.back);
                self.ahead.push_back(Box::pin(source.page(limit, back)));
                self.back = self.back.saturating_add(self.step);
            }
            let page = match self.ahead.next().await {
                Some(page) => {
                    self.front = self.front.saturating_add(self.step);
                    page
                }
                None => self.source.page(self.limit, offset).await,
            };
            match page {
                Err(ApiError::TooLarge { .. }) if self.limit > 1 => {
                    self.limit = (self.limit / 2).max(1);
                    tracing::warn!(
                        limit = self.limit,
                        "a page of tickets was too large to be read; asking for smaller ones"
                    );
                    self.forget();
                }
                page => return page,
            }
        }
    }

    /// The pages asked for in advance are not the ones that come next.
    fn forget(&mut self) {
        self.ahead.clear();
        (self.step, self.end) = (0, 0);
    }
}

// === impl PageSource ===

impl PageSource for Client {
    async fn page(&self, limit: u32, offset: u64) -> Result<TicketPage, ApiError> {
        self.ticket_page(limit, offset).await
    }

    fn unknown_fields(&self, count: u64) {
        Client::unknown_fields(self, count);
    }
}
