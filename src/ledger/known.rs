//! The ids that the ledger holds, in memory: a look-up on disk would touch the whole tree.

use std::collections::HashSet;

use super::types::EventId;

/// How many sets share the ids. One alone doubles at once, and holds the old half and the new whole while it does.
const SHARDS: usize = 64;

/// A set of ids that grows a little at a time.
#[derive(Debug)]
pub(super) struct Known {
    shards: [HashSet<EventId>; SHARDS],
}

// === impl Known ===

impl Default for Known {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| HashSet::new()),
        }
    }
}

impl Known {
    pub(super) fn contains(&self, id: EventId) -> bool {
        self.shards[shard(id)].contains(&id)
    }

    pub(super) fn insert(&mut self, id: EventId) {
        self.shards[shard(id)].insert(id);
    }

    pub(super) fn remove(&mut self, id: EventId) {
        self.shards[shard(id)].remove(&id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(HashSet::is_empty)
    }
}

/// Ids are hashes, so any bits of them will do.
fn shard(id: EventId) -> usize {
    (id.0 % SHARDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inserted_is_known_until_it_is_removed() {
        let mut known = Known::default();
        assert!(known.is_empty());
        for id in 0..1000 {
            assert!(!known.contains(EventId(id)));
            known.insert(EventId(id));
        }
        for id in 0..1000 {
            assert!(known.contains(EventId(id)) && !known.contains(EventId(id + 1000)));
            known.remove(EventId(id));
            assert!(!known.contains(EventId(id)));
        }
        assert!(known.is_empty());
    }
}
