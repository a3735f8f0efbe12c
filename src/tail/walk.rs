//! Going down the listing page by page: which cursor is next, how many entries to request, and whether the listing ends.
//!
//! First pass, sweep, re-read and history each are one walk. The cursors of its last pages belong to its durable state; the rest is here,
//! and a restart may forget it.

use std::time::Duration;

use jiff::Timestamp;
use orgdata_api::{ApiError, FailureReason};

use super::step::{Page, Request, Step, Task};
use crate::ledger::EventId;

/// Cursors that are kept.
const MAX_CURSORS: usize = 8;
/// The limit is doubled after this many pages.
const PAGES_BEFORE_RAISE: u32 = 4;
/// A cursor is given up after this many failures in a row.
const FAILURES_BEFORE_LOST: u32 = 3;
/// A page of at least this many entries counts as full if none was longer: the service may cap pages.
const CAPPED: usize = 10;

/// An end of the listing is confirmed after this time.
pub(super) const CONFIRM: Duration = Duration::from_secs(2);
/// An end is believed if the page before was requested at most this long ago.
const FRESH: Duration = Duration::from_secs(30);
/// Or if that has failed this often.
const MAX_ENDS: u32 = 3;

/// History ends after this many unknown entries in a row that are older than wanted; a sweep that meets no settled entry after as many that
/// are older than the watermark.
pub(super) const MAX_OLDER: u32 = 10_000;

/// What a failed request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The cursor, perhaps: the service refused the request.
    Refused,
    /// The page, perhaps: too large, or with an entry that cannot be read.
    Page,
    /// Nothing about the page: the service cannot be reached, or the key is not accepted.
    Away,
}

/// The part of a walk that a restart may forget.
#[derive(Debug)]
pub(super) struct Walk {
    /// The number of entries to request.
    pub(super) limit: u32,
    max: u32,
    min: u32,
    /// Pages since the limit was changed, and failures since the last page.
    pages: u32,
    failures: u32,
    /// A poll has succeeded since the last page.
    pub(super) polled: bool,
    /// It has failed since it brought something new.
    pub(super) is_failing: bool,
    end: End,
    /// How often the end was met too late after the page before, and when the page was requested that led to it again.
    ends: u32,
    led_at: Duration,
    /// The last entry, if it had any, of the last page with a cursor.
    last: Option<Option<EventId>>,
}

/// How sure it is that the listing ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// It was met, and the page before is requested again.
    Met,
    /// The page before leads on again.
    LedTo,
}

/// The re-read under way.
#[derive(Debug)]
pub(super) struct Reread {
    pub(super) cursors: Vec<String>,
    pub(super) floor: Timestamp,
    pub(super) older: u32,
    /// Whether it covers the window, and when it began.
    pub(super) is_whole: bool,
    pub(super) began: Duration,
    /// What [`TailState::read_to`] and [`TailState::short_read_to`] become when it is complete.
    pub(super) reaches: Timestamp,
    pub(super) short_reaches: Timestamp,
}

// === impl Cause ===

impl Cause {
    /// Returns what an error says about the request.
    pub(super) fn of(error: &ApiError) -> Self {
        use FailureReason as R;
        match error.reason() {
            R::Key | R::Connect | R::Unauthorized | R::Forbidden => Self::Away,
            R::Rejected => Self::Refused,
            _ => Self::Page,
        }
    }
}

// === impl Walk ===

impl Walk {
    /// Returns a walk whose pages have between `min` and `max` entries.
    pub(super) fn new(max: u32, min: u32) -> Self {
        Self {
            limit: max,
            max,
            min,
            pages: 0,
            failures: 0,
            polled: false,
            is_failing: false,
            end: End::Open,
            ends: 0,
            led_at: Duration::ZERO,
            last: None,
        }
    }

    /// Notes a failed request. Returns whether its cursor is to be given up.
    pub(super) fn failed(&mut self, cause: Cause) -> bool {
        self.end = End::Open;
        if cause == Cause::Away {
            return false;
        }
        self.is_failing = true;
        (self.limit, self.pages) = ((self.limit / 2).max(self.min), 0);
        self.failures += 1;
        let is_lost =
            cause == Cause::Refused || (self.failures >= FAILURES_BEFORE_LOST && self.polled);
        if is_lost {
            (self.failures, self.polled) = (0, false);
        }
        is_lost
    }

    /// Lowers the limit; reports whether that is possible.
    pub(super) fn shrink(&mut self, to: usize) -> bool {
        let lower = u32::try_from(to).unwrap_or(u32::MAX).max(self.min);
        let is_less = lower < self.limit;
        self.limit = lower.min(self.limit);
        is_less
    }

    /// Begins somewhere else, with the same limit.
    pub(super) fn restart(&mut self) {
        (self.failures, self.end) = (0, End::Open);
    }

    /// Begins as if nothing had failed.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.max, self.min);
    }

    /// Notes a page: keeps its cursor, or gives up that of its request. Reports whether the listing ends here.
    pub(super) fn page(
        &mut self,
        cursors: &mut Vec<String>,
        request: &Request,
        page: &Page,
        longest: usize,
        step: &mut Step,
    ) -> bool {
        self.failures = 0;
        self.pages += 1;
        if self.pages >= PAGES_BEFORE_RAISE {
            (self.limit, self.pages) = ((self.limit * 2).min(self.max), 0);
        }
        let length = page.rows.len();
        let is_full = length >= request.limit as usize || (length >= CAPPED && length >= longest);
        // Nothing is above the beginning of a walk.
        let is_begin = match request.task {
            Task::Reread => cursors.len() == 1 && length > 0,
            _ => request.before.is_none(),
        };
        match &page.end {
            Some(end) if !cursors.contains(end) => {
                let last = Some(page.rows.last().map(|row| row.id));
                // Otherwise the page is another one, and what is below it may be too.
                let is_same = self.end == End::Met && last == self.last;
                self.end = if is_same { End::LedTo } else { End::Open };
                self.ends *= u32::from(is_same);
                (self.last, self.led_at) = (last, page.requested);
                cursors.push(end.clone());
                if cursors.len() > MAX_CURSORS {
                    cursors.remove(0);
                }
                false
            }
            Some(_) if is_full => {
                self.is_failing = true;
                (self.limit, self.pages, self.end) = (self.max, 0, End::Open);
                step.is_stuck = true;
                false
            }
            _ if self.end == End::Met && is_begin => true,
            // The cursor may have expired since. If requests are rare, that cannot be told for ever.
            _ if self.end == End::LedTo
                && (page.at.saturating_sub(self.led_at) <= FRESH || self.ends >= MAX_ENDS) =>
            {
                true
            }
            _ => {
                self.ends += u32::from(self.end == End::LedTo);
                self.end = End::Met;
                cursors.pop();
                step.wait = CONFIRM;
                false
            }
        }
    }
}
