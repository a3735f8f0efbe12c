//! The times of generated entries, a function of their number that never decreases.

use std::ops::Range;

use crate::dice::{Purpose, hash};

/// Neighbouring entries that may share one moment.
const BLOCK: u64 = 4;
/// One block in so many shares one moment.
const SHARED: u64 = 16;

/// Entries at a constant pace.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The number of its first entry.
    first: u64,
    /// The time of its first entry, in milliseconds since 1970.
    start: i64,
    /// The time between two entries, in nanoseconds.
    period: u64,
    /// The latest time of an entry.
    end: i64,
}

/// The times of all generated entries, past and future.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    seed: u64,
    /// In order; the last one is live if `rate` is not 0.
    runs: Vec<Run>,
    /// The number of entries that exist.
    made: u64,
    rate: f64,
    /// The latest time seen. Entries stay if the clock goes back.
    seen: i64,
}

/// Returns the first number in `range` that does not satisfy `before`, which only the lower ones do.
pub(crate) fn partition_point(range: Range<u64>, before: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

// === impl Timeline ===

impl Timeline {
    /// Spreads `history` entries over the `span` milliseconds before `now`; `rate` entries per second follow.
    pub(crate) fn new(seed: u64, now: i64, history: u64, span: i64, rate: f64) -> Self {
        let period = u128::from(span.unsigned_abs()) * 1_000_000 / u128::from(history.max(1));
        let past = Run {
            first: 0,
            start: now.saturating_sub(span),
            period: u64::try_from(period).unwrap_or(u64::MAX),
            end: now,
        };
        let mut timeline = Self {
            seed,
            runs: vec![past],
            made: history,
            rate: 0.0,
            seen: now,
        };
        timeline.set_rate(now, rate);
        timeline
    }

    /// Returns the number of entries that exist.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Returns the live entries per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the time of an entry, in milliseconds since 1970.
    pub(crate) fn time(&self, i: u64) -> i64 {
        let run = self.runs.partition_point(|run| run.first <= i);
        self.time_in(&self.runs[run.saturating_sub(1)], i)
    }

    /// Makes the live entries that are due.
    pub(crate) fn sync(&mut self, now: i64) {
        self.seen = self.seen.max(now);
        let Some(run) = self.runs.last().filter(|_| self.rate > 0.0) else {
            return;
        };
        let elapsed = u128::from(self.seen.abs_diff(run.start)) * 1_000_000;
        let most = u64::try_from(elapsed / u128::from(run.period)).unwrap_or(u64::MAX);
        let due = self.made..run.first.saturating_add(most).saturating_add(1);
        self.made = partition_point(due, |i| self.time_in(run, i) <= self.seen);
    }

    /// Changes the number of live entries per second.
    pub(crate) fn set_rate(&mut self, now: i64, rate: f64) {
        self.sync(now);
        self.rate = rate;
        if rate > 0.0 {
            let period = ((1e9 / rate) as u64).max(1);
            self.runs.push(Run {
                first: self.made,
                start: self.seen.saturating_add((period / 1_000_000) as i64),
                period,
                end: i64::MAX,
            });
        }
    }

    fn time_in(&self, run: &Run, i: u64) -> i64 {
        let number = i - run.first;
        let block = number / BLOCK;
        let shared = hash(self.seed, Purpose::Time, run.first, block).is_multiple_of(SHARED);
        let number = if shared {
            block * BLOCK + BLOCK - 1
        } else {
            number
        };
        let millis = u128::from(number) * u128::from(run.period) / 1_000_000;
        let time = run
            .start
            .saturating_add_unsigned(u64::try_from(millis).unwrap_or(u64::MAX));
        time.min(run.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never_decreases(timeline: &Timeline) -> bool {
        (1..timeline.made()).all(|i| timeline.time(i - 1) <= timeline.time(i))
    }

    #[test]
    fn history_ends_at_the_start_and_some_times_are_equal() {
        let timeline = Timeline::new(1, 1_000_000, 5_000, 900_000, 0.0);
        assert_eq!(timeline.made(), 5_000);
        assert!(never_decreases(&timeline));
        assert!(timeline.time(0) >= 100_000 && timeline.time(4_999) <= 1_000_000);
        assert!((1..5_000).any(|i| timeline.time(i - 1) == timeline.time(i)));
    }

    #[test]
    fn live_entries_come_with_the_clock_and_stay_if_it_goes_back() {
        let mut timeline = Timeline::new(3, 0, 10, 1_000, 2.5);
        timeline.sync(100_000);
        let made = timeline.made();
        assert!((255..=262).contains(&made), "{made}");
        assert!((0..made).all(|i| timeline.time(i) <= 100_000) && timeline.time(made) > 100_000);
        timeline.sync(5);
        assert_eq!(timeline.made(), made);
        timeline.set_rate(101_000, 100.0);
        timeline.sync(102_000);
        assert!(never_decreases(&timeline) && timeline.made() > made + 90);
        timeline.set_rate(102_000, 0.0);
        let made = timeline.made();
        timeline.sync(i64::MAX / 2);
        assert_eq!(timeline.made(), made);
    }
}
