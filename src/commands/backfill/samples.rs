//! Which samples a counter needs so that Prometheus answers as if it had scraped it.
//!
//! `increase()` uses only the samples inside its window, and extrapolates from their distance to its ends. Samples at the
//! increases alone would give no answer, or twice the truth; a sample at every step would be a billion in a year. So there
//! are samples at each step for [`FILL`] before and after every increase. The error of a window is at most a step in [`FILL`],
//! or in the window if that is shorter.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

/// The increases of each series, by activity type and actor, and then by time in seconds.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) series: BTreeMap<(String, Option<String>), BTreeMap<i64, u64>>,
    pub(super) actors: HashSet<String>,
    pub(super) events: u64,
    pub(super) times: Option<(Timestamp, Timestamp)>,
}

/// How long there are samples before and after each increase, in seconds.
const FILL: i64 = 15 * 60;

/// A grid of times, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    step: i64,
    /// [`FILL`] in whole steps, in seconds.
    fill: i64,
    /// The time of the last sample.
    last: i64,
}

// === impl Grid ===

impl Grid {
    /// Returns a grid that ends at or before `end`.
    pub(super) fn new(step: Duration, end: Timestamp) -> Self {
        let step = step.as_secs().cast_signed();
        Self {
            step,
            fill: FILL.div_euclid(step) * step,
            last: end.as_second().div_euclid(step) * step,
        }
    }

    /// Returns the first sample that shows an event of this time.
    pub(super) fn place(&self, at: Timestamp) -> i64 {
        let second = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
        (-(-second).div_euclid(self.step) * self.step).min(self.last)
    }

    /// Passes each sample of a counter to `each`, in order, from 0 before the first increase on.
    pub(super) fn expand<E>(
        &self,
        increases: &BTreeMap<i64, u64>,
        mut each: impl FnMut(i64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut next, mut value) = (i64::MIN, 0);
        let mut due = increases.iter().peekable();
        for at in increases.keys() {
            next = next.max(at - self.fill);
            while next <= self.last.min(at + self.fill) {
                while let Some((_, count)) = due.next_if(|(due, _)| **due <= next) {
                    value += count;
                }
                each(next, value)?;
                next += self.step;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_increases_samples_are_near_them_once_each_and_show_every_increase() {
        let mut random = fastrand::Rng::with_seed(7);
        let end = Timestamp::from_second(60 * 500).expect("a time");
        let grid = Grid::new(Duration::from_secs(60), end);
        for _ in 0..500 {
            let mut at = 0;
            let increases: BTreeMap<i64, u64> = std::iter::repeat_with(|| {
                at += 60 * random.i64(1..50);
                (at, random.u64(1..5))
            })
            .take_while(|(at, _)| *at <= grid.last)
            .collect();
            let mut expected = BTreeMap::new();
            for time in (-3600..=grid.last).step_by(60) {
                let is_near = |at: &i64| (time - at).abs() <= 900;
                if increases.keys().any(is_near) {
                    expected.insert(time, increases.range(..=time).map(|(_, count)| count).sum());
                }
            }
            let mut samples = Vec::new();
            let all = grid.expand(&increases, |at, value| {
                samples.push((at, value));
                Ok::<_, ()>(())
            });
            assert_eq!(all, Ok(()));
            assert_eq!(samples, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
