//! The audit log at one moment: generated entries by number, stored ones by key, and what was removed.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use serde_json::Value;

use crate::clock;
use crate::config::Config;
use crate::data;
use crate::entry::{self, View};
use crate::fields::Fields;
use crate::readings::KeyReading;
use crate::timeline::{Timeline, partition_point};

/// The place of an entry in the order of arrival: (i + 1, 0) for generated entry i, and (i + 1, 1), (i + 1, 2), … for
/// entries that are stored after it. It never changes and is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq {
    pub(crate) generated: u64,
    pub(crate) added: u64,
}

/// The place of an entry in the listing, which a cursor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// `createdAt` in milliseconds, or 0 if the listing is by arrival.
    pub(crate) at: i64,
    pub(crate) seq: Seq,
}

/// An entry without its content.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// `createdAt`, in milliseconds since 1970.
    pub(crate) created: i64,
    fields: Arc<Fields>,
    removed: bool,
}

/// The audit log at one moment.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    organization: i64,
    reading: KeyReading,
    pub(crate) timeline: Timeline,
    /// Numbers of generated entries that were removed.
    removed: Vec<Range<u64>>,
    /// Entries that were not generated, with the removed ones among them.
    stored: BTreeMap<Key, Row>,
    next_added: u64,
}

// === impl World ===

impl World {
    pub(crate) fn new(config: &Config, now: i64) -> Self {
        let span = clock::millis(config.history_span);
        Self {
            seed: config.seed,
            organization: config.organization_id,
            reading: config.readings.key,
            timeline: Timeline::new(config.seed, now, config.history, span, config.rate),
            removed: Vec::new(),
            stored: BTreeMap::new(),
            next_added: 1,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> u64 {
        let removed: u64 = self.removed.iter().map(|gone| gone.end - gone.start).sum();
        let stored = self.stored.values().filter(|row| !row.removed).count() as u64;
        self.timeline.made() - removed + stored
    }

    /// Returns the place of the next arrival, at the earliest.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq {
            generated: self.timeline.made(),
            added: self.next_added,
        }
    }

    /// Returns whether any entry of a type can exist: the filter refuses other types.
    pub(crate) fn has_kind(&self, name: &str) -> bool {
        let given = |row: &Row| row.fields.text("type") == Some(name);
        data::kinds().any(|kind| kind == name) || self.stored.values().any(given)
    }

    /// Returns whether the organization has this deal.
    pub(crate) fn has_deal(&self, id: i64) -> bool {
        let given = |row: &Row| row.fields.values.get("dealId") == Some(&id.into());
        data::is_deal(id) || self.stored.values().any(given)
    }

    /// Returns entries above a place, oldest first, with the removed ones or without.
    pub(crate) fn up(&self, from: Bound<Key>, removed: bool) -> impl Iterator<Item = Row> + '_ {
        let first = match from {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.count_below(key),
            Bound::Excluded(key) => self.count_up_to(key),
        };
        merge(
            self.generated(first..self.timeline.made()),
            self.stored
                .range((from, Bound::Unbounded))
                .map(|(_, row)| row.clone()),
            |generated, stored| generated < stored,
        )
        .filter(move |row| removed || !row.removed)
    }

    /// Returns entries below a place, newest first, without the removed ones.
    pub(crate) fn down(&self, from: Bound<Key>) -> impl Iterator<Item = Row> + '_ {
        let end = match from {
            Bound::Unbounded => self.timeline.made(),
            Bound::Included(key) => self.count_up_to(key),
            Bound::Excluded(key) => self.count_below(key),
        };
        // Millions of entries that retention removed are not visited one by one.
        let oldest = self.removed.iter().find(|gone| gone.start == 0);
        let start = oldest.map_or(0, |gone| gone.end);
        let stored = self.stored.range((Bound::Unbounded, from)).rev();
        merge(
            self.generated(start..end).rev(),
            stored.map(|(_, row)| row.clone()),
            |generated, stored| generated > stored,
        )
        .filter(|row| !row.removed)
    }

    /// Returns the n-th newest entry, from 0.
    pub(crate) fn newest(&self, n: u64) -> Option<Row> {
        self.down(Bound::Unbounded).nth(usize::try_from(n).ok()?)
    }

    /// Returns what filters and counts look at in an entry.
    pub(crate) fn view(&self, row: &Row) -> View {
        if *row.fields == Fields::new() {
            entry::view(self.seed, row.key.seq)
        } else {
            View::of(&self.entry(row))
        }
    }

    /// Returns an entry as it is served.
    pub(crate) fn entry(&self, row: &Row) -> Value {
        let mut entry = entry::draw(self.seed, row.key.seq, row.created, self.organization);
        row.fields.apply_to_entry(&mut entry);
        entry
    }

    /// Returns the id of an entry, or an empty text if it has none.
    pub(crate) fn id(&self, row: &Row) -> String {
        let entry = self.entry(row);
        entry["id"].as_str().unwrap_or_default().to_owned()
    }

    /// Stores an entry that was created at this time.
    pub(crate) fn insert(&mut self, created: i64, fields: Fields) -> Row {
        let seq = self.next_seq();
        self.next_added += 1;
        let row = Row {
            key: self.key(created, seq),
            created,
            fields: Arc::new(fields),
            removed: false,
        };
        self.stored.insert(row.key, row.clone());
        row
    }

    /// Removes every entry below this key.
    pub(crate) fn remove_below(&mut self, key: Key) {
        self.remove_generated(0..self.count_below(key));
        for (_, row) in self.stored.range_mut(..key) {
            row.removed = true;
        }
    }

    /// Removes the entry with this key and every one above it.
    pub(crate) fn remove_from(&mut self, key: Key) {
        self.remove_generated(self.count_below(key)..self.timeline.made());
        for (_, row) in self.stored.range_mut(key..) {
            row.removed = true;
        }
    }

    /// Removes every entry that was created before this time.
    pub(crate) fn remove_older(&mut self, edge: i64) {
        let made = self.timeline.made();
        self.remove_generated(0..partition_point(0..made, |i| self.timeline.time(i) < edge));
        for row in self.stored.values_mut().filter(|row| row.created < edge) {
            row.removed = true;
        }
    }

    /// Removes a range of generated entries and merges it with those it touches.
    fn remove_generated(&mut self, mut range: Range<u64>) {
        self.removed.retain(|gone| {
            let apart = gone.end < range.start || range.end < gone.start;
            if !apart {
                range = range.start.min(gone.start)..range.end.max(gone.end);
            }
            apart
        });
        self.removed.push(range);
    }

    fn generated(&self, numbers: Range<u64>) -> impl DoubleEndedIterator<Item = Row> + '_ {
        let none = Arc::new(Fields::new());
        numbers.map(move |i| Row {
            key: self.generated_key(i),
            created: self.timeline.time(i),
            fields: Arc::clone(&none),
            removed: self.removed.iter().any(|gone| gone.contains(&i)),
        })
    }

    fn generated_key(&self, i: u64) -> Key {
        let seq = Seq {
            generated: i + 1,
            added: 0,
        };
        self.key(self.timeline.time(i), seq)
    }

    /// Returns how many generated entries have a lower key.
    fn count_below(&self, key: Key) -> u64 {
        partition_point(0..self.timeline.made(), |i| self.generated_key(i) < key)
    }

    /// Returns how many generated entries have a lower key or this one.
    fn count_up_to(&self, key: Key) -> u64 {
        partition_point(0..self.timeline.made(), |i| self.generated_key(i) <= key)
    }

    fn key(&self, created: i64, seq: Seq) -> Key {
        let at = match self.reading {
            KeyReading::CreatedAt => created,
            KeyReading::Arrival => 0,
        };
        Key { at, seq }
    }
}

/// Merges two sorted sources.
fn merge(
    a: impl Iterator<Item = Row>,
    b: impl Iterator<Item = Row>,
    a_is_first: fn(Key, Key) -> bool,
) -> impl Iterator<Item = Row> {
    let (mut a, mut b) = (a.peekable(), b.peekable());
    std::iter::from_fn(move || match (a.peek(), b.peek()) {
        (Some(next_a), Some(next_b)) if a_is_first(next_a.key, next_b.key) => a.next(),
        (Some(_), None) => a.next(),
        _ => b.next(),
    })
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds as _;

    use super::*;
    use crate::dice::{Dice, Purpose};

    /// Returns a world after many random steps of every kind.
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
            match dice.below(6) {
                0 => now += dice.below(20_000) as i64,
                1 | 2 => drop(world.insert(now - 500 + dice.below(600) as i64, Fields::new())),
                3 => newest
                    .into_iter()
                    .for_each(|row| world.remove_from(row.key)),
                4 => {
                    let oldest = world.newest(20);
                    oldest
                        .into_iter()
                        .for_each(|row| world.remove_below(row.key));
                }
                _ => world.remove_older(now - 100_000),
            }
            world.timeline.sync(now);
        }
        world
    }

    #[test]
    fn both_directions_show_the_same_entries_from_anywhere() {
        for seed in 0..60 {
            let readings = [KeyReading::CreatedAt, KeyReading::Arrival];
            let world = random_world(seed, readings[seed as usize % 2]);
            let keys = |removed| world.up(Bound::Unbounded, removed).map(|row| row.key);
            let (all, every): (Vec<Key>, Vec<Key>) = (keys(false).collect(), keys(true).collect());
            assert!(all.is_sorted_by(|a, b| a < b), "seed {seed}");
            assert!(every.is_sorted_by(|a, b| a < b), "seed {seed}");
            assert_eq!(all.len() as u64, world.len(), "seed {seed}");
            assert!(all.iter().all(|key| every.contains(key)), "seed {seed}");
            // The places of removed entries are places too.
            for place in every {
                for from in [Bound::Included(place), Bound::Excluded(place)] {
                    let above = all
                        .iter()
                        .filter(|key| (from, Bound::Unbounded).contains(*key));
                    let below = all
                        .iter()
                        .filter(|key| (Bound::Unbounded, from).contains(*key));
                    assert!(world.up(from, false).map(|row| row.key).eq(above.copied()));
                    assert!(world.down(from).map(|row| row.key).eq(below.rev().copied()));
                }
            }
        }
    }
}
