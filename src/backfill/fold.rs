//! Under which labels an event is counted: as the exporter would have, had it been there.

use std::collections::HashSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{
    MAX_ACTIVITY_TYPES, OTHER_ACTORS, Slot, Slots, UNKNOWN_TYPE, cut, is_reserved,
};

/// Between two looks for actors that are idle.
const RETIRE: SignedDuration = SignedDuration::from_hours(1);

/// Follows the events from the oldest to the newest.
#[derive(Debug)]
pub(super) struct Fold {
    slots: Slots,
    types: HashSet<String>,
    retired_at: Option<Timestamp>,
    /// Events under `other` because there were too many actors.
    pub(super) folded: u64,
}

// === impl Fold ===

impl Fold {
    pub(super) fn new(max_actors: usize, actor_idle: Duration) -> Self {
        Self {
            slots: Slots::new(max_actors, actor_idle),
            types: HashSet::new(),
            retired_at: None,
            folded: 0,
        }
    }

    /// The labels of an event; `actor` is the label's value before folding, or `None` where there is no such label.
    pub(super) fn labels(
        &mut self,
        activity_type: &str,
        actor: Option<&str>,
        at: Timestamp,
    ) -> (String, Option<String>) {
        if self
            .retired_at
            .is_none_or(|last| at.duration_since(last) >= RETIRE)
        {
            self.slots.retire(at);
            self.retired_at = Some(at);
        }
        let actor = actor.map(|actor| {
            if !is_reserved(actor) && self.slots.take(actor, at) == Slot::Folded {
                self.folded += 1;
                return OTHER_ACTORS.to_owned();
            }
            actor.to_owned()
        });
        let activity_type = cut(if activity_type.is_empty() {
            UNKNOWN_TYPE
        } else {
            activity_type
        });
        let known = self.types.contains(&activity_type)
            || self.types.len() < MAX_ACTIVITY_TYPES && self.types.insert(activity_type.clone());
        (
            if known {
                activity_type
            } else {
                OTHER_ACTORS.to_owned()
            },
            actor,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(hour * 3600).expect("in range")
    }

    #[test]
    fn actors_past_the_limit_are_other_until_one_is_idle() {
        let mut fold = Fold::new(1, Duration::from_secs(10 * 3600));
        let mut actor =
            |actor: &str, hour| fold.labels("A", Some(actor), at(hour)).1.expect("a label");
        assert_eq!(
            [
                actor("7", 0),
                actor("8", 1),
                actor("none", 2),
                actor("7", 3)
            ],
            ["7", "other", "none", "7"]
        );
        assert_eq!(actor("8", 20), "8");
        assert_eq!(fold.folded, 1);
    }

    #[test]
    fn types_past_the_limit_are_other_and_without_a_label_there_is_no_actor() {
        let mut fold = Fold::new(1, Duration::from_secs(1));
        for number in 0..MAX_ACTIVITY_TYPES {
            assert_eq!(
                fold.labels(&number.to_string(), None, at(0)),
                (number.to_string(), None)
            );
        }
        assert_eq!(fold.labels("one more", None, at(0)).0, "other");
        assert_eq!(fold.labels("5", None, at(0)).0, "5");
        assert_eq!(
            Fold::new(1, Duration::ZERO).labels("", None, at(0)).0,
            "unknown"
        );
    }
}
