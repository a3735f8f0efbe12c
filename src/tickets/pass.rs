//! One pass over the pages: where the next one starts, when the listing ends, and what looked wrong.
//!
//! Pages overlap by one row. If the last row of a page is the first row of the next one, no row moved across the boundary
//! between the two requests: the rows above are still above, the rows below still below.

use orgdata_api::TicketPage;

use super::aggregate::Aggregate;
use super::scan::ScanError;

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

/// One pass.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// The `totalCount` of the first page.
    total: Option<u64>,
    /// What looked wrong first; later doubts follow from it.
    pub(super) doubt: Option<Doubt>,
    /// The row that the next page should start with.
    overlap: Option<u64>,
    /// All rows, including repeated ones.
    rows: u64,
    /// The most rows on a page.
    widest: u64,
}

// === impl Pass ===

impl Pass {
    pub(super) fn new(total: Option<u64>) -> Self {
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
    pub(super) fn take(
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
    pub(super) fn verdict(&self, seen: u64) -> Option<Doubt> {
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
    pub(super) fn is_movement(self) -> bool {
        matches!(self, Self::TotalMoved { .. } | Self::RowsMoved { .. })
    }
}
