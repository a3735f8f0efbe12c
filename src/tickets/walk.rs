//! The way through the pages of one attempt: where the next one begins, when the end is reached, and what looked wrong on the way.

use std::fmt;

use super::fold::Fold;
use super::scan::ScanError;
use crate::api::TicketPage;

/// How many pages in a row may bring nothing although there should be more.
const MAX_EMPTY: u32 = 5;

/// How many pages in a row may bring only known tickets.
const MAX_STALLED: u32 = 10;

/// How many pages of rows an attempt may read beyond three for each distinct ticket: a service that shows its first page again and again, each
/// time with a new ticket on it, would go on for ever.
const MAX_WASTED: u64 = 20;

/// How many pages in a row may begin like the first one, and bring only known tickets, before the service is taken at its word.
const MAX_RESTARTS: u32 = 2;

/// Why a scan may have missed a ticket or counted one that was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// `totalCount` changed between two pages.
    TotalMoved {
        /// On the first page.
        from: Option<u64>,
        /// On a later one.
        to: Option<u64>,
    },
    /// The last row of a page was not the first of the next one, which was asked to begin with it.
    OverlapDisagrees {
        /// Where the page began.
        offset: u64,
    },
    /// A page was empty although there should be more.
    EmptyPage {
        /// Where the page began.
        offset: u64,
        /// `totalCount`.
        total: u64,
    },
    /// Page after page brought hardly any but tickets that were known.
    Stalled {
        /// Where the last of them began.
        offset: u64,
    },
    /// There are not as many tickets as `totalCount` says.
    CountDiffers {
        /// Distinct tickets.
        seen: u64,
        /// `totalCount`.
        total: u64,
    },
    /// No `totalCount` to compare with.
    TotalMissing,
    /// The service sends one ticket a page, and one row cannot overlap with the next.
    NoOverlap,
}

/// What follows a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A page from here on.
    At(u64),
    /// Nothing.
    End,
}

/// One walk over the listing.
#[derive(Debug, Default)]
pub(super) struct Walk {
    total: Option<u64>,
    doubt: Option<Doubt>,
    /// The row that the next page should begin with.
    overlap: Option<u64>,
    /// The first row of the listing.
    first: Option<u64>,
    /// The most rows a page had.
    widest: u64,
    pages: u64,
    /// All rows, repeated ones too.
    rows: u64,
    empty: u32,
    stalled: u32,
    restarts: u32,
}

// === impl Walk ===

impl Walk {
    /// Takes a page that was asked for with `limit` at `offset`.
    pub(super) fn take(
        &mut self,
        page: &TicketPage,
        limit: u32,
        offset: u64,
        fold: &mut Fold,
    ) -> Result<Next, ScanError> {
        self.pages += 1;
        if self.pages == 1 {
            self.total = page.total_count;
        } else if page.total_count != self.total {
            self.doubt(Doubt::TotalMoved {
                from: self.total,
                to: page.total_count,
            });
        }
        let rows = page.len() as u64;
        self.rows += rows;
        self.widest = self.widest.max(rows);
        let before = fold.tickets();
        let (mut first, mut last) = (None, None);
        for raw in page.items() {
            let key = fold.add(raw).key;
            first.get_or_insert(key);
            last = Some(key);
        }
        let overlap = self.overlap.take();
        match overlap {
            Some(_) if first != overlap => self.doubt(Doubt::OverlapDisagrees { offset }),
            None if self.pages > 1 && rows > 0 => self.doubt(Doubt::NoOverlap),
            _ => {}
        }
        let restarted = offset > 0 && first.is_some() && first == self.first;
        self.first = self.first.or(first);
        let reach = offset.saturating_add(rows);
        if rows <= u64::from(overlap.is_some()) {
            return Ok(self.nothing_new(reach, offset, limit));
        }
        self.empty = 0;
        if fold.tickets() == before {
            self.stalled += 1;
            self.restarts = if restarted { self.restarts + 1 } else { 0 };
            if self.restarts >= MAX_RESTARTS {
                return Err(ScanError::OffsetIgnored { offset, rows });
            }
        } else {
            (self.stalled, self.restarts) = (0, 0);
        }
        // With the overlap, each ticket is read at most twice.
        let wasted = self.rows
            > fold
                .tickets()
                .saturating_mul(3)
                .saturating_add(MAX_WASTED * self.widest);
        if self.stalled >= MAX_STALLED || wasted {
            self.doubt(Doubt::Stalled { offset });
            return Ok(Next::End);
        }
        // A full page at the end of the count is followed by one more: a count that says too little would go unnoticed.
        let full = rows == u64::from(limit) || Some(rows) == page.limit;
        if self.total.is_some_and(|total| reach >= total) && !full {
            return Ok(Next::End);
        }
        if rows == 1 {
            // To overlap would be to ask for the same page for ever.
            return Ok(Next::At(reach));
        }
        self.overlap = last;
        Ok(Next::At(reach - 1))
    }

    /// What looked wrong so far.
    pub(super) fn doubted(&self) -> Option<Doubt> {
        self.doubt
    }

    /// What the first page said of the number of tickets.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// What looks wrong at the end.
    pub(super) fn verdict(&self, fold: &Fold) -> Option<Doubt> {
        let seen = fold.tickets();
        self.doubt.or(match self.total {
            None => Some(Doubt::TotalMissing),
            Some(total) if total != seen => Some(Doubt::CountDiffers { seen, total }),
            Some(_) => None,
        })
    }

    /// A page with nothing beyond the overlap: the end, unless there should be more. Then what lies behind a hole is still counted.
    fn nothing_new(&mut self, reach: u64, offset: u64, limit: u32) -> Next {
        let Some(total) = self.total.filter(|total| *total > reach) else {
            return Next::End;
        };
        self.doubt(Doubt::EmptyPage { offset, total });
        self.empty += 1;
        if self.empty >= MAX_EMPTY {
            return Next::End;
        }
        let step = if self.widest > 1 {
            self.widest
        } else {
            u64::from(limit)
        };
        Next::At(offset.saturating_add(step))
    }

    /// The first doubt is the one that is told; those after it follow from it.
    fn doubt(&mut self, doubt: Doubt) {
        self.doubt.get_or_insert(doubt);
    }
}

// === impl Doubt ===

impl Doubt {
    /// Whether the listing moved, so that there is no use in reading on before reading it again. The other doubts may be the service's habit.
    pub(super) fn is_movement(self) -> bool {
        matches!(
            self,
            Self::TotalMoved { .. } | Self::OverlapDisagrees { .. }
        )
    }

    /// Whether reading again may help.
    pub(super) fn may_pass(self) -> bool {
        !matches!(self, Self::TotalMissing | Self::NoOverlap)
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |total: &Option<u64>| {
            total.map_or_else(|| "nothing".to_owned(), |total| total.to_string())
        };
        match self {
            Self::TotalMoved { from, to } => write!(
                f,
                "totalCount went from {} to {} between two pages",
                count(from),
                count(to)
            ),
            Self::OverlapDisagrees { offset } => write!(
                f,
                "the rows had moved when the page at offset {offset} was read"
            ),
            Self::EmptyPage { offset, total } => write!(
                f,
                "the page at offset {offset} brought nothing, of {total} tickets"
            ),
            Self::Stalled { offset } => write!(
                f,
                "page after page up to offset {offset} brought few but tickets already seen"
            ),
            Self::CountDiffers { seen, total } => write!(
                f,
                "{seen} different tickets were read, and totalCount says {total}"
            ),
            Self::TotalMissing => f.write_str("the service sends no totalCount to compare with"),
            Self::NoOverlap => f.write_str(
                "the service sends one ticket a page, so pages cannot be compared where they meet",
            ),
        }
    }
}
