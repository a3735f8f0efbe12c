//! Counters that show their first increases late.
//!
//! `increase()` needs two samples, so it misses the first increase of a series. A series therefore shows scrapers the value it
//! was introduced with (0 if it is new, the stored value after a restart), and its increases `--metrics.zero-hold` after the
//! first scrape that showed it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// One counter.
#[derive(Debug)]
pub(super) struct Series {
    total: u64,
    introduced: u64,
    introduced_at: Instant,
}

/// When scrapes began that were completed, in order. A series is held until one of them was after its introduction and
/// [`hold`](Self::hold) ago.
#[derive(Debug)]
pub(super) struct Scrapes {
    /// `--metrics.zero-hold`; if it is 0, nothing is held.
    pub(super) hold: Duration,
    began: VecDeque<Instant>,
}

// === impl Series ===

impl Default for Series {
    fn default() -> Self {
        Self::introduced(0)
    }
}

impl Series {
    pub(super) fn introduced(value: u64) -> Self {
        Self {
            total: value,
            introduced: value,
            introduced_at: Instant::now(),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn rise(&mut self, by: u64) {
        self.total += by;
    }

    /// Returns the value for scrapers, who saw all that was introduced until `seen`.
    pub(super) fn shown(&self, seen: Option<Instant>) -> u64 {
        match seen {
            Some(seen) if self.introduced_at <= seen => self.total,
            _ => self.introduced,
        }
    }
}

// === impl Scrapes ===

impl Scrapes {
    pub(super) fn new(hold: Duration) -> Self {
        Self {
            hold,
            began: VecDeque::new(),
        }
    }

    /// Notes a completed scrape. One right after another is left out, so that there are few of them.
    pub(super) fn completed(&mut self, began: Instant) {
        let last = self.began.back();
        if last.is_none_or(|last| began.duration_since(*last) >= self.hold / 32) {
            self.began.push_back(began);
        }
        // Of the scrapes that are longer ago than the hold, only the last one matters.
        let is_long_ago = |next: &Instant| began.duration_since(*next) >= self.hold;
        while self.began.get(1).is_some_and(is_long_ago) {
            self.began.pop_front();
        }
    }

    /// Returns until when a series must have been introduced for its increases to be visible at `now`.
    pub(super) fn seen(&self, now: Instant) -> Option<Instant> {
        if self.hold.is_zero() {
            return Some(now);
        }
        let mut latest = self.began.iter().rev();
        latest
            .find(|began| now.duration_since(**began) >= self.hold)
            .copied()
    }
}
