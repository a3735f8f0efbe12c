//! Going through the audit log in the order of the listing, upwards or downwards, from any place.

use std::iter::Peekable;
use std::ops::Bound;

use super::world::{Key, Row, World};

/// Two ascending (or two descending) sources as one.
struct Merge<A: Iterator<Item = Row>, B: Iterator<Item = Row>> {
    generated: Peekable<A>,
    added: Peekable<B>,
    up: bool,
}

/// The part of the listing between two places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between {
    pub(super) low: Bound<Key>,
    pub(super) high: Bound<Key>,
}

// === impl Merge ===

impl<A: Iterator<Item = Row>, B: Iterator<Item = Row>> Iterator for Merge<A, B> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let generated_first = match (self.generated.peek(), self.added.peek()) {
            (Some(generated), Some(added)) => (generated.key < added.key) == self.up,
            (generated, _) => generated.is_some(),
        };
        if generated_first {
            self.generated.next()
        } else {
            self.added.next()
        }
    }
}

// === impl Between ===

impl Between {
    /// The whole listing.
    pub(super) const ALL: Self = Self {
        low: Bound::Unbounded,
        high: Bound::Unbounded,
    };

    fn is_empty(&self) -> bool {
        match (self.low, self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) => low >= high,
        }
    }
}

// === impl World ===

impl World {
    /// Entries from the oldest to the newest.
    pub(super) fn up(&self, between: Between) -> impl Iterator<Item = Row> + '_ {
        let numbers = self.numbers(between).into_iter().flatten();
        Merge {
            generated: numbers.map(|i| self.generated(i)).peekable(),
            added: self.added_rows(between).peekable(),
            up: true,
        }
    }

    /// Entries from the newest to the oldest.
    pub(super) fn down(&self, between: Between) -> impl Iterator<Item = Row> + '_ {
        let numbers = self
            .numbers(between)
            .into_iter()
            .rev()
            .flat_map(Iterator::rev);
        Merge {
            generated: numbers.map(|i| self.generated(i)).peekable(),
            added: self.added_rows(between).rev().peekable(),
            up: false,
        }
    }

    /// The n-th newest entry, from 0.
    pub(super) fn newest(&self, n: u64) -> Option<Row> {
        self.down(Between::ALL)
            .nth(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// The number of the first generated event at or above a key.
    pub(super) fn first_at(&self, key: Key) -> u64 {
        let (mut low, mut high) = (0, self.timeline.made());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.generated(middle).key < key {
                low = middle + 1
            } else {
                high = middle
            }
        }
        low
    }

    fn numbers(&self, between: Between) -> Vec<std::ops::Range<u64>> {
        let above = |key: Key| self.first_at(key) + u64::from(self.is_generated(key));
        let low = match between.low {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.first_at(key),
            Bound::Excluded(key) => above(key),
        };
        let high = match between.high {
            Bound::Unbounded => self.timeline.made(),
            Bound::Included(key) => above(key),
            Bound::Excluded(key) => self.first_at(key),
        };
        if low < high {
            self.gone.missing(low..high)
        } else {
            Vec::new()
        }
    }

    fn is_generated(&self, key: Key) -> bool {
        let at = self.first_at(key);
        at < self.timeline.made() && self.generated(at).key == key
    }

    fn added_rows(&self, between: Between) -> impl DoubleEndedIterator<Item = Row> + '_ {
        // A tree refuses an inverted range by panicking.
        let range = (!between.is_empty()).then(|| self.added.range((between.low, between.high)));
        range.into_iter().flatten().map(|(_, row)| row.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds as _;

    use super::super::config::Config;
    use super::super::dice::{Dice, Purpose};
    use super::super::patch::Fields;
    use super::super::readings::KeyReading;
    use super::*;

    /// A world after many random steps of every kind.
    fn random_world(seed: u64, key: KeyReading) -> World {
        let mut dice = Dice::new(seed, Purpose::Shuffle, 0, 0);
        let mut config = Config {
            seed,
            history: dice.below(40),
            rate: 0.5,
            ..Config::quiet()
        };
        config.readings.key = key;
        let mut now = 1_000_000;
        let mut world = World::new(&config, now);
        for _ in 0..40 {
            let newest = world.newest(dice.below(5));
            match dice.below(7) {
                0 => now += i64::try_from(dice.below(20_000)).unwrap(),
                1 => assert!(world.timeline.add(now, dice.below(5))),
                2 | 3 => {
                    world.insert(
                        now - 500 + i64::try_from(dice.below(600)).unwrap(),
                        &Fields::new(),
                    );
                }
                4 => newest.into_iter().for_each(|row| world.drop_from(row.key)),
                5 => world
                    .newest(20)
                    .into_iter()
                    .for_each(|row| world.drop_below(row.key)),
                _ => world.drop_older(now - 100_000),
            }
            world.timeline.sync(now);
        }
        world
    }

    #[test]
    fn both_ways_show_the_same_entries_in_order_from_anywhere() {
        for seed in 0..60 {
            let key = if seed % 2 == 0 {
                KeyReading::CreatedAt
            } else {
                KeyReading::Arrival
            };
            let world = random_world(seed, key);
            let all: Vec<Key> = world.up(Between::ALL).map(|row| row.key).collect();
            assert!(all.is_sorted_by(|a, b| a < b), "seed {seed}");
            assert_eq!(all.len() as u64, world.len(), "seed {seed}");
            let every: Vec<Key> = world
                .with_removed()
                .up(Between::ALL)
                .map(|row| row.key)
                .collect();
            assert!(
                every.is_sorted_by(|a, b| a < b) && all.iter().all(|key| every.contains(key)),
                "seed {seed}"
            );
            // Places of entries that are gone are places too.
            for low in every.iter().step_by(3) {
                for high in every.iter().step_by(5) {
                    for (low, high) in [
                        (Bound::Excluded(*low), Bound::Excluded(*high)),
                        (Bound::Included(*low), Bound::Included(*high)),
                    ] {
                        let between = Between { low, high };
                        let expected: Vec<Key> = all
                            .iter()
                            .copied()
                            .filter(|key| (low, high).contains(key))
                            .collect();
                        let up: Vec<Key> = world.up(between).map(|row| row.key).collect();
                        let mut down: Vec<Key> = world.down(between).map(|row| row.key).collect();
                        down.reverse();
                        assert_eq!((&up, &down), (&expected, &expected), "seed {seed}");
                    }
                }
            }
        }
    }
}
