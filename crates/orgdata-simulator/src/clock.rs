//! The simulator's clock: the machine's, shifted at will, or one that stands still until it is moved.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// Where the time of new events and of the `Date` header comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSource {
    /// The machine's clock. It can still be shifted, to test a clock that jumps.
    Real,
    /// A clock that starts here and moves only when told.
    Manual(Timestamp),
}

/// A clock in whole milliseconds, as the API's timestamps are.
#[derive(Debug)]
pub(super) struct Clock {
    manual: bool,
    /// The time itself when manual; what is added to the machine's time otherwise.
    millis: AtomicI64,
}

/// A time as milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// Milliseconds since 1970 as a time; times out of the calendar's range become its ends.
pub(super) fn timestamp(millis: i64) -> Timestamp {
    let bounded = millis.clamp(
        Timestamp::MIN.as_millisecond() + 1,
        Timestamp::MAX.as_millisecond(),
    );
    Timestamp::from_millisecond(bounded).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A duration in whole milliseconds, at most some 290 million years.
pub(super) fn duration_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A time as the API writes it: UTC, three decimals, `Z`.
pub(super) fn text(millis: i64) -> String {
    format!("{:.3}", timestamp(millis))
}

// === impl Clock ===

impl Clock {
    pub(super) fn new(source: ClockSource) -> Self {
        match source {
            ClockSource::Real => Self {
                manual: false,
                millis: AtomicI64::new(0),
            },
            ClockSource::Manual(at) => Self {
                manual: true,
                millis: AtomicI64::new(millis(at)),
            },
        }
    }

    /// Milliseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        let held = self.millis.load(Ordering::SeqCst);
        if self.manual {
            held
        } else {
            millis(Timestamp::now()).saturating_add(held)
        }
    }

    /// Moves the clock by so many milliseconds, backwards when negative.
    pub(super) fn shift(&self, by: i64) {
        self.millis.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets the clock.
    pub(super) fn set(&self, at: i64) {
        if self.manual {
            self.millis.store(at, Ordering::SeqCst);
        } else {
            self.millis.store(
                at.saturating_sub(millis(Timestamp::now())),
                Ordering::SeqCst,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::new(ClockSource::Manual(timestamp(1_000)));
        assert_eq!(clock.now(), 1_000);
        clock.shift(-250);
        assert_eq!(clock.now(), 750);
        clock.set(5);
        assert_eq!(clock.now(), 5);
    }

    #[test]
    fn a_time_has_three_decimals_and_a_z() {
        assert_eq!(text(1_893_456_000_000), "2030-01-01T00:00:00.000Z");
        assert_eq!(text(1_893_456_000_120), "2030-01-01T00:00:00.120Z");
    }
}
