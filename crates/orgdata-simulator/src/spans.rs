//! A set of numbers kept as ranges: which generated events are gone.

use std::ops::Range;

/// Disjoint ranges in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(Vec<Range<u64>>);

// === impl Spans ===

impl Spans {
    /// Adds a range; what is in the set already stays.
    pub(super) fn insert(&mut self, mut added: Range<u64>) {
        if added.is_empty() {
            return;
        }
        self.0.retain(|held| {
            let apart = held.end < added.start || added.end < held.start;
            if !apart {
                added = added.start.min(held.start)..added.end.max(held.end);
            }
            apart
        });
        let at = self.0.partition_point(|held| held.start < added.start);
        self.0.insert(at, added);
    }

    /// The parts of `within` that are not in the set, ascending.
    pub(super) fn missing(&self, within: Range<u64>) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        let mut from = within.start;
        let first = self.0.partition_point(|held| held.end <= within.start);
        for held in self
            .0
            .iter()
            .skip(first)
            .take_while(|held| held.start < within.end)
        {
            if from < held.start {
                parts.push(from..held.start);
            }
            from = held.end;
        }
        if from < within.end {
            parts.push(from..within.end);
        }
        parts
    }

    /// How many numbers the set holds.
    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|held| held.end - held.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_what_is_missing_is_found() {
        let mut spans = Spans::default();
        for range in [10..20, 30..40, 0..0, 15..25, 40..41] {
            spans.insert(range);
        }
        assert_eq!(spans.len(), 15 + 11);
        assert_eq!(spans.missing(0..50), [0..10, 25..30, 41..50]);
        assert_eq!(spans.missing(12..41), vec![25..30]);
        assert!(spans.missing(12..20).is_empty());
        spans.insert(5..45);
        assert_eq!(spans.missing(0..50), [0..5, 45..50]);
    }
}
