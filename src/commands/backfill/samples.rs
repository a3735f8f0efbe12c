//! Which samples a counter needs so that Prometheus answers as if it had scraped it.
//!
//! `increase()` uses only the samples inside its window, and extrapolates from their distance to its ends. Samples at the
//! increases alone would give no answer, or twice the truth; a sample at every step would be a billion in a year. So there
//! are samples at each step for `fill` before and after every increase. The error of a window is at most a step in `fill`,
//! or in the window if that is shorter.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

/// A grid of times, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) step: i64,
    /// The number of samples before and after each increase; there is always one before.
    pub(super) fill: i64,
    /// The time of the last sample.
    pub(super) last: i64,
}

// === impl Grid ===

impl Grid {
    /// Returns a grid that ends at or before `end`.
    pub(super) fn new(step: Duration, fill: Duration, end: Timestamp) -> Self {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let (step, fill) = (seconds(step), seconds(fill));
        Self {
            step,
            fill: fill / step + i64::from(fill % step > 0),
            last: end.as_second().div_euclid(step) * step,
        }
    }

    /// Returns the first sample that shows an event of this time.
    pub(super) fn place(&self, at: Timestamp) -> i64 {
        let second = at.as_second() + i64::from(at.subsec_nanosecond() > 0);
        let steps = second.div_euclid(self.step) + i64::from(second.rem_euclid(self.step) > 0);
        (steps * self.step).min(self.last)
    }

    /// Passes each sample of a counter to `each`, in order, from 0 before the first increase on.
    pub(super) fn expand<E>(
        &self,
        increases: &BTreeMap<i64, u64>,
        mut each: impl FnMut(i64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { step, fill, last } = *self;
        // Returns the time after those that it passes on.
        let mut run = |mut at: i64, through: i64, value: u64| -> Result<i64, E> {
            while at <= through {
                each(at, value)?;
                at += step;
            }
            Ok(at)
        };
        let first = increases.keys().next().copied().unwrap_or_default();
        let before = fill.max(1) * step;
        // The next sample, and the last one that belongs to the increases until now.
        let (mut next, mut through) = (first - before, first - before - step);
        let mut value = 0;
        for (&at, count) in increases {
            next = run(next, through.min(at - step), value)?;
            run(next.max(at - before), at - step, value)?;
            value += count;
            next = run(at, at, value)?;
            through = (at + fill * step).min(last);
        }
        run(next, through, value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(step: u64, fill: u64, end: i64) -> Grid {
        let end = Timestamp::from_second(end).expect("a time");
        Grid::new(Duration::from_secs(step), Duration::from_secs(fill), end)
    }

    fn expand(grid: Grid, rises: &[(i64, u64)]) -> Vec<(i64, u64)> {
        let mut samples = Vec::new();
        grid.expand(&rises.iter().copied().collect(), |at, value| {
            samples.push((at, value));
            Ok::<_, ()>(())
        })
        .expect("no error");
        samples
    }

    #[test]
    fn an_event_is_in_the_first_sample_at_or_after_it_and_none_is_after_the_end() {
        let grid = grid(60, 0, 1000);
        assert_eq!(
            [0, 1, 60_000_000, 60_000_001, 999_000_000, -1]
                .map(|at| grid.place(Timestamp::from_microsecond(at).expect("a time"))),
            [0, 60, 60, 120, 960, 0]
        );
    }

    #[test]
    fn a_rise_alone_has_the_value_before_it_and_what_is_filled() {
        assert_eq!(expand(grid(60, 0, 6000), &[(600, 3)]), [(540, 0), (600, 3)]);
        assert_eq!(
            expand(grid(60, 120, 6000), &[(600, 3)]),
            [(480, 0), (540, 0), (600, 3), (660, 3), (720, 3)]
        );
        assert_eq!(
            expand(grid(60, 120, 660), &[(600, 3)]).last(),
            Some(&(660, 3)),
            "nothing after the end"
        );
    }

    #[test]
    fn rises_near_each_other_share_what_is_between_them_and_far_ones_have_a_hole() {
        assert_eq!(
            expand(grid(60, 60, 6000), &[(600, 1), (660, 1), (780, 1)])
                .iter()
                .map(|(at, _)| *at)
                .collect::<Vec<_>>(),
            [540, 600, 660, 720, 780, 840]
        );
        let far = expand(grid(60, 60, 6000), &[(600, 1), (1200, 2)]);
        assert_eq!(
            far,
            [
                (540, 0),
                (600, 1),
                (660, 1),
                (1140, 1),
                (1200, 3),
                (1260, 3)
            ]
        );
        assert_eq!(
            expand(grid(60, 0, 6000), &[(600, 1), (720, 1)]),
            [(540, 0), (600, 1), (660, 1), (720, 2)]
        );
    }

    #[test]
    fn whatever_the_rises_samples_stand_on_the_grid_once_each_and_show_every_rise() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let grid = grid(60, random.u64(0..1000), 60 * 500);
            let mut at = 0;
            let rises: Vec<(i64, u64)> = std::iter::repeat_with(|| {
                at += 60 * random.i64(1..20);
                (at, random.u64(1..5))
            })
            .take_while(|(at, _)| *at <= grid.last)
            .collect();
            let samples = expand(grid, &rises);
            assert!(
                samples
                    .windows(2)
                    .all(|pair| pair[1].0 > pair[0].0 && pair[1].1 >= pair[0].1)
            );
            assert!(
                samples
                    .iter()
                    .all(|(at, _)| at % 60 == 0 && *at <= grid.last)
            );
            let mut total = 0;
            for (at, count) in rises {
                assert!(samples.contains(&(at - 60, total)));
                total += count;
                assert!(samples.contains(&(at, total)));
            }
        }
    }
}
