//! The simulator's clock: the machine's, which can be shifted, or one that only moves on request.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// The source of the time of new entries and of the `Date` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The machine's clock.
    Real,
    /// A clock that starts at this time and only moves on request.
    Manual(Timestamp),
}

/// A clock in whole milliseconds, like the API's timestamps.
#[derive(Debug)]
pub(crate) struct Clock {
    source: ClockSource,
    /// Milliseconds that are added to the source's time.
    offset: AtomicI64,
}

/// Returns milliseconds since 1970 as a time, bounded by what can be represented.
pub(crate) fn timestamp(millis: i64) -> Timestamp {
    let (min, max) = (
        Timestamp::MIN.as_millisecond(),
        Timestamp::MAX.as_millisecond(),
    );
    Timestamp::from_millisecond(millis.clamp(min, max)).unwrap_or_default()
}

/// Returns a duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a time as the API writes it: UTC, three decimals, `Z`.
pub(crate) fn text(millis: i64) -> String {
    format!("{:.3}", timestamp(millis))
}

// === impl Clock ===

impl Clock {
    pub(crate) fn new(source: ClockSource) -> Self {
        Self {
            source,
            offset: AtomicI64::new(0),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.base()
            .saturating_add(self.offset.load(Ordering::SeqCst))
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&self, by: i64) {
        self.offset.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the clock, forward or back.
    pub(crate) fn set(&self, at: i64) {
        self.offset
            .store(at.saturating_sub(self.base()), Ordering::SeqCst);
    }

    fn base(&self) -> i64 {
        let base = match self.source {
            ClockSource::Real => Timestamp::now(),
            ClockSource::Manual(start) => start,
        };
        base.as_millisecond()
    }
}
