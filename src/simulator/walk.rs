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
        if generated_first { self.generated.next() } else { self.added.next() }
    }
}

// === impl Between ===

impl Between {
    /// The whole listing.
    pub(super) const ALL: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    fn is_empty(&self) -> bool {
        match (self.low, self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
        }
    }
}

// === impl World ===

impl World {
    /// Entries from the oldest to the newest.
    pub(super) fn up(&self, between: Between) -> impl Iterator<Item = Row> + '_ {
        let numbers = self.numbers(between).into_iter().flatten();
        Merge { generated: numbers.map(|i| self.generated(i)).peekable(), added: self.added_rows(between).peekable(), up: true }
    }

    /// Entries from the newest to the oldest.
    pub(super) fn down(&self, between: Between) -> impl Iterator<Item = Row> + '_ {
        let numbers = self.numbers(between).into_iter().rev().flat_map(Iterator::rev);
        Merge { generated: numbers.map(|i| self.generated(i)).peekable(), added: self.added_rows(between).rev().peekable(), up: false }
    }

    /// The n-th newest entry, from 0.
    pub(super) fn newest(&self, n: u64) -> Option<Row> {
        self.down(Between::ALL).nth(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// The number of the first generated event at or above a key.
    pub(super) fn first_at(&self, key: Key) -> u64 {
        let (mut low, mut high) = (0, self.timeline.made());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.generated(middle).key < key { low = middle + 1 } else { high = middle }
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
        if low < high { self.gone.missing(low..high) } else { Vec::new() }
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
