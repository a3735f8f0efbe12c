//! A map from 64-bit keys that stays small: with no values 10 to 13 bytes an entry, where a `HashMap` takes up to 18, and double while it grows.

/// Tables the map is made of; they grow one by one, so that growing never needs much memory at once.
const SHARDS: usize = 64;

/// Slots of a table that begins.
const FIRST_SLOTS: usize = 16;

/// Keys are the hashes or the bijective mixes of identifiers; two different ones among two million collide once in nine million scans. With `()` for
/// values it is a set.
#[derive(Debug)]
pub(super) struct IdMap<V> {
    shards: Vec<Shard<V>>,
    len: usize,
}

/// Open addressing with linear probing, at most four fifths full; the key 0 marks a free slot.
#[derive(Debug, Default)]
struct Shard<V> {
    keys: Vec<u64>,
    values: Vec<V>,
    len: usize,
}

// === impl IdMap ===

impl<V: Copy + Default> IdMap<V> {
    pub(super) fn new() -> Self {
        Self {
            shards: std::iter::repeat_with(Shard::default)
                .take(SHARDS)
                .collect(),
            len: 0,
        }
    }

    /// Inserts a key that is not there yet; the value of one that is comes back to be changed.
    pub(super) fn insert(&mut self, key: u64, value: V) -> Option<&mut V> {
        let key = mix(key).max(1);
        let shard = &mut self.shards[(key >> 58) as usize];
        let slot = match shard.find(key) {
            Ok(slot) => return Some(&mut shard.values[slot]),
            Err(slot) => slot,
        };
        self.len += 1;
        shard.insert_new(key, value, slot);
        None
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The values, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = V> {
        self.shards
            .iter()
            .flat_map(|shard| shard.keys.iter().zip(&shard.values))
            .filter(|(key, _)| **key != 0)
            .map(|(_, value)| *value)
    }
}

// === impl Shard ===

impl<V: Copy + Default> Shard<V> {
    /// Where a key is, or the free slot where it would go; without slots that is 0.
    fn find(&self, key: u64) -> Result<usize, usize> {
        let slots = self.keys.len();
        if slots == 0 {
            return Err(0);
        }
        // The upper six bits chose the shard; the rest is spread over its slots without a division.
        let mut slot = ((u128::from(key << 6) * slots as u128) >> 64) as usize;
        loop {
            match self.keys[slot] {
                0 => return Err(slot),
                found if found == key => return Ok(slot),
                _ => slot = if slot + 1 == slots { 0 } else { slot + 1 },
            }
        }
    }

    fn insert_new(&mut self, key: u64, value: V, mut slot: usize) {
        if (self.len + 1) * 5 > self.keys.len() * 4 {
            self.grow();
            slot = self.find(key).unwrap_or_else(|free| free);
        }
        self.keys[slot] = key;
        self.values[slot] = value;
        self.len += 1;
    }

    /// Growing by three tenths wastes less than doubling; an entry is moved four times on the average.
    fn grow(&mut self) {
        let slots = (self.keys.len() * 13 / 10).max(FIRST_SLOTS);
        let keys = std::mem::replace(&mut self.keys, vec![0; slots]);
        let values = std::mem::replace(&mut self.values, vec![V::default(); slots]);
        for (key, value) in keys.into_iter().zip(values).filter(|(key, _)| *key != 0) {
            let slot = self.find(key).unwrap_or_else(|free| free);
            self.keys[slot] = key;
            self.values[slot] = value;
        }
    }
}

/// The finalizer of SplitMix64: a bijection, so that whole numbers never collide, that spreads consecutive ones over all bits.
fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(inserts in proptest::collection::vec((0_u64..2000, any::<u8>()), 0..3000)) {
            let mut map = IdMap::<u8>::new();
            let mut model = HashMap::new();
            for (key, value) in inserts {
                let known = map.insert(key, value).map(|value| *value);
                prop_assert_eq!(known, model.get(&key).copied());
                model.entry(key).or_insert(value);
            }
            prop_assert_eq!(map.len(), model.len());
            let (mut ours, mut theirs): (Vec<u8>, Vec<u8>) = (map.values().collect(), model.into_values().collect());
            ours.sort_unstable();
            theirs.sort_unstable();
            prop_assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_million_ids_take_at_most_thirteen_megabytes() {
        let mut map = IdMap::new();
        for id in 0..1_000_000 {
            assert!(map.insert(id, ()).is_none());
        }
        let slots: usize = map.shards.iter().map(|shard| shard.keys.capacity()).sum();
        assert!(slots * 8 < 13_000_000, "{}", slots * 8);
        assert!(map.insert(999_999, ()).is_some());
    }
}
