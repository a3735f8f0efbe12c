//! A counter whose first increase in a process stays hidden until Prometheus has seen the value before it.
//!
//! `increase()` needs two samples, so it misses the first increase of a series. A series therefore shows the value it was
//! introduced with (0 if it is new, the stored value after a restart) and adds its increases `--metrics.zero-hold` after the
//! first scrape that showed it. Only scrapers see that; everybody else sees the [true values](true_values).

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use tokio::time::Instant;

use crate::ledger::TraceContext;

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
    last_rise: Option<Box<Rise>>,
}

#[derive(Debug)]
struct Hold {
    /// The value that is shown.
    introduced: u64,
    introduced_at: Instant,
    /// When the first scrape that showed it began.
    scraped_at: Option<Instant>,
}

#[derive(Debug)]
struct Rise {
    by: u64,
    trace: TraceContext,
    at: SystemTime,
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
            last_rise: None,
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn rise(&mut self, by: u64, trace: Option<TraceContext>) {
        self.total += by;
        if let Some(trace) = trace {
            let at = SystemTime::now();
            self.last_rise = Some(Box::new(Rise { by, trace, at }));
        }
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
        let rise = match (&self.hold, &self.last_rise) {
            // An exemplar would describe an increase that is not visible.
            (Some(hold), _) if !SHOWS_ALL.get() && !self.is_visible(now, zero_hold) => {
                return ConstCounter::new(hold.introduced).encode(encoder);
            }
            (_, None) => return ConstCounter::new(self.total).encode(encoder),
            (_, Some(rise)) => rise,
        };
        let counter = CounterWithExemplar::<[(&str, String); 2]>::default();
        counter.inc_by(self.total.saturating_sub(rise.by), None, None);
        let trace_id = format!("{:032x}", u128::from_be_bytes(rise.trace.trace_id));
        let span_id = format!("{:016x}", u64::from_be_bytes(rise.trace.span_id));
        let labels = [("trace_id", trace_id), ("span_id", span_id)];
        counter.inc_by(rise.by, Some(labels), Some(rise.at));
        counter.encode(encoder)
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
