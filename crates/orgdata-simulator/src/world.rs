//! The audit log: which entries there are, and in which order.
//!
//! An entry is stored as its time and its number, 24 bytes; its content is generated from the seed and the number
//! whenever it is asked for. Live entries are added when the clock has passed their time, so they do not depend on
//! requests.

use serde_json::Value;

use crate::clock;
use crate::config::Config;
use crate::data;
use crate::dice::{Purpose, hash};
use crate::entry::{self, Key};
use crate::fields::Fields;
use crate::readings::KeyReading;

/// One in so many groups of four entries of the history shares one moment.
const SHARED: u64 = 16;

/// An entry without its content.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// Fields that were given by hand.
    fields: Option<Box<Fields>>,
}

/// The audit log.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// When the simulator started, in milliseconds since 1970.
    start: i64,
    organization: i64,
    pub(crate) organization_name: String,
    reading: KeyReading,
    /// In the order of the listing, oldest first.
    pub(crate) rows: Vec<Row>,
    pub(crate) removed: Vec<Row>,
    /// The number of the next entry.
    pub(crate) next_number: u64,
    /// Live entries per second.
    pub(crate) rate: f64,
    /// The time of the last live entry, in milliseconds since 1970.
    live_at: f64,
}

// === impl World ===

impl World {
    pub(crate) fn new(config: &Config, now: i64) -> Self {
        let mut world = Self {
            seed: config.seed,
            start: now,
            organization: config.organization_id,
            organization_name: data::ORGANIZATION_NAME.to_owned(),
            reading: config.readings.key,
            rows: Vec::new(),
            removed: Vec::new(),
            next_number: 0,
            rate: config.rate,
            live_at: now as f64,
        };
        let period = clock::millis(config.history_span) as f64 / config.history.max(1) as f64;
        for i in 0..config.history {
            let shared = hash(config.seed, Purpose::Time, i / 4, 0).is_multiple_of(SHARED);
            let number = if shared { i | 3 } else { i };
            let left = config.history.saturating_sub(number);
            world.insert(now - (period * left as f64) as i64, None);
        }
        world
    }

    /// Sets the live entries per second.
    pub(crate) fn set_rate(&mut self, now: i64, rate: f64) {
        (self.rate, self.live_at) = (rate, self.live_at.max(now as f64));
    }

    /// Adds the live entries that are due.
    pub(crate) fn sync(&mut self, now: i64) {
        let period = 1000.0 / self.rate;
        while self.live_at + period <= now as f64 {
            self.live_at += period;
            self.insert(self.live_at as i64, None);
        }
    }

    /// Adds an entry that was created at this time, with some fields given.
    pub(crate) fn insert(&mut self, created: i64, fields: Option<Box<Fields>>) -> &Row {
        let number = self.next_number;
        self.next_number += 1;
        let key = Key { created, number };
        let place = self.count_below(key, false);
        self.rows.insert(place, Row { key, fields });
        &self.rows[place]
    }

    /// Returns the number of entries below a place, with the one at the place or without.
    pub(crate) fn count_below(&self, key: Key, inclusive: bool) -> usize {
        let key = self.rank(key);
        self.rows.partition_point(|row| {
            let rank = self.rank(row.key);
            rank < key || (inclusive && rank == key)
        })
    }

    /// Removes the oldest entries up to the newest `keep`.
    pub(crate) fn retain(&mut self, keep: usize) {
        let count = self.rows.len().saturating_sub(keep);
        self.removed.extend(self.rows.drain(..count));
    }

    /// Returns a value that sorts entries in the order of the listing.
    pub(crate) fn rank(&self, key: Key) -> (i64, u64) {
        match self.reading {
            KeyReading::CreatedAt => (key.created, key.number),
            KeyReading::Arrival => (0, key.number),
        }
    }

    /// Returns whether a field was given this value by hand for any entry.
    pub(crate) fn was_given(&self, field: &str, value: &Value) -> bool {
        let mut given = self.rows.iter().filter_map(|row| row.fields.as_ref());
        given.any(|fields| fields.get(field) == Some(value))
    }

    /// Returns an entry as it is served.
    pub(crate) fn entry(&self, row: &Row) -> Value {
        let organization = (self.organization, self.organization_name.as_str());
        let mut entry = entry::draw(self.seed, self.start, row.key, organization);
        if let Some(fields) = &row.fields {
            fields.apply_to_entry(&mut entry);
        }
        entry
    }
}
