//! A counter whose first increase in a process stays hidden until Prometheus has seen the value before it.
//!
//! `increase()` needs two samples, so it misses the first increase of a series. A series therefore shows the value it was
//! introduced with (0 if it is new, the stored value after a restart) and adds its increases `--metrics.zero-hold` after the
//! first scrape that showed it. Only scrapers see that; everybody else sees the [true values](true_values).

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use tokio::time::Instant;

thread_local! {
    /// Whether what is encoded on this thread shows increases at once. A registry passes its collectors no arguments.
    static SHOWS_ALL: Cell<bool> = const { Cell::new(false) };
}

/// Encodes something with the true value of each series, whether or not a scraper has seen it.
pub fn true_values<T>(encode: impl FnOnce() -> T) -> T {
    /// Resets it also if the encoder panics: the thread goes on.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            SHOWS_ALL.set(false);
        }
    }
    SHOWS_ALL.set(true);
    let _reset = Reset;
    encode()
}

/// One counter. It is small because there are thousands.
#[derive(Debug)]
pub(super) struct Series {
    total: u64,
    /// Until the increases are visible.
    hold: Option<Box<Hold>>,
}

#[derive(Debug)]
struct Hold {
    /// The value that is shown.
    introduced: u64,
    introduced_at: Instant,
    /// When the first scrape that showed it began.
    scraped_at: Option<Instant>,
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
            hold: Some(Box::new(Hold {
                introduced: value,
                introduced_at: Instant::now(),
                scraped_at: None,
            })),
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn rise(&mut self, by: u64) {
        self.total += by;
    }

    /// Notes a complete scrape that began at `began`. A series introduced later was not in it.
    pub(super) fn scraped(&mut self, began: Instant, zero_hold: Duration) {
        if let Some(hold) = &mut self.hold
            && hold.introduced_at <= began
        {
            hold.scraped_at.get_or_insert(began);
        }
        if self.is_visible(began, zero_hold) {
            self.hold = None;
        }
    }

    /// Writes what a scrape at `now` shows.
    pub(super) fn encode(
        &self,
        now: Instant,
        zero_hold: Duration,
        encoder: MetricEncoder<'_>,
    ) -> fmt::Result {
        let shown = match &self.hold {
            Some(hold) if !SHOWS_ALL.get() && !self.is_visible(now, zero_hold) => hold.introduced,
            _ => self.total,
        };
        ConstCounter::new(shown).encode(encoder)
    }

    /// Returns whether scrapers see an older value at `now`.
    pub(super) fn is_held(&self, now: Instant, zero_hold: Duration) -> bool {
        let hold = self.hold.as_ref();
        hold.is_some_and(|hold| hold.introduced < self.total) && !self.is_visible(now, zero_hold)
    }

    fn is_visible(&self, now: Instant, zero_hold: Duration) -> bool {
        let scraped_at = self.hold.as_ref().map(|hold| hold.scraped_at);
        zero_hold.is_zero()
            || scraped_at.is_none_or(|at| {
                at.is_some_and(|at| now.saturating_duration_since(at) >= zero_hold)
            })
    }
}
