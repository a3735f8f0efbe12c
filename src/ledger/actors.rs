//! How an actor becomes a label, and which actors have one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ring::hmac;

use super::types::ActorRef;

/// The label of an event without an actor.
pub const NO_ACTOR: &str = "none";

/// The label of actors beyond `--metrics.max-actors`.
pub const OTHER_ACTORS: &str = "other";

/// The longest label value, in characters; a longer one is cut and marked.
pub const MAX_LABEL: usize = 200;

/// The activity type of an event that names none: an empty label is the same as none.
pub const UNKNOWN_TYPE: &str = "unknown";

/// How the label `actor` is made (`--metrics.actor-label`).
#[derive(Clone, Debug)]
pub enum ActorLabel {
    /// The user's id.
    Id,
    /// First and last name; the id where there is none.
    Name,
    /// A keyed hash of the id.
    Hash(hmac::Key),
    /// No label.
    None,
}

/// The actors that have a label of their own.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    idle: Duration,
    last_at: HashMap<Arc<str>, Timestamp>,
}

/// What becomes of an actor's label.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// It has one.
    Held(Arc<str>),
    /// It has one from now on; its stored values are to be shown again.
    New(Arc<str>),
    /// There is none left.
    Folded,
}

// === impl ActorLabel ===

impl ActorLabel {
    /// A word for this way of making labels, so that values counted in one way are never shown in another.
    pub fn scheme(&self) -> String {
        match self {
            Self::Id => "id".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Hash(key) => format!("hash:{}", hex(&hmac::sign(key, b"scheme").as_ref()[..4])),
            Self::None => "none".to_owned(),
        }
    }

    /// The label of an actor; `None` where no label is made.
    pub fn label(&self, actor: Option<&ActorRef>) -> Option<String> {
        let Some(actor) = actor else {
            return (!matches!(self, Self::None)).then(|| NO_ACTOR.to_owned());
        };
        match self {
            Self::Id => Some(cut(&actor.id)),
            Self::Name => {
                // Somebody called like a label of ours is known by the id.
                let name = actor.name.as_deref().filter(|name| !is_reserved(name));
                Some(cut(name.unwrap_or(&actor.id)))
            }
            Self::Hash(key) => Some(hex(&hmac::sign(key, actor.id.as_bytes()).as_ref()[..8])),
            Self::None => None,
        }
    }
}

// === impl Slots ===

impl Slots {
    /// No actor yet; at most `max` with a label of their own, each until it was idle for `idle`.
    pub(crate) fn new(max: usize, idle: Duration) -> Self {
        Self {
            max,
            idle,
            last_at: HashMap::new(),
        }
    }

    /// An actor of an earlier process; `false` when it was idle for too long, or there is no slot left.
    pub(super) fn restore(&mut self, actor: Arc<str>, last_at: Timestamp, now: Timestamp) -> bool {
        let active = !self.is_idle(last_at, now) && self.last_at.len() < self.max;
        if active {
            self.last_at.insert(actor, last_at);
        }
        active
    }

    /// The label under which an event of `actor` at `now` is counted.
    pub(crate) fn take(&mut self, actor: &str, now: Timestamp) -> Slot {
        if let Some((label, last_at)) = self.last_at.get_key_value(actor) {
            let (label, last_at) = (label.clone(), *last_at);
            self.last_at.insert(label.clone(), last_at.max(now));
            return Slot::Held(label);
        }
        if self.last_at.len() >= self.max {
            return Slot::Folded;
        }
        let label: Arc<str> = actor.into();
        self.last_at.insert(label.clone(), now);
        Slot::New(label)
    }

    /// Frees the slots of actors that were idle for too long, and tells when each was active last.
    pub(crate) fn retire(&mut self, now: Timestamp) -> Vec<(Arc<str>, Timestamp)> {
        let idle: Vec<_> = self
            .last_at
            .iter()
            .filter(|(_, last_at)| self.is_idle(**last_at, now))
            .map(|(actor, last_at)| (actor.clone(), *last_at))
            .collect();
        for (actor, _) in &idle {
            self.last_at.remove(actor);
        }
        idle
    }

    /// Takes a slot back: the transaction that wanted it failed.
    pub(super) fn release(&mut self, actor: &str) {
        self.last_at.remove(actor);
    }

    /// Gives a slot back: the transaction that freed it failed.
    pub(super) fn give_back(&mut self, actor: Arc<str>, last_at: Timestamp) {
        self.last_at.insert(actor, last_at);
    }

    /// Whether an actor has a label of its own.
    pub(super) fn holds(&self, actor: &str) -> bool {
        self.last_at.contains_key(actor)
    }

    /// How many actors can have one.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Whether an actor that was active last at `last_at` has been idle for too long.
    pub(super) fn is_idle(&self, last_at: Timestamp, now: Timestamp) -> bool {
        now.duration_since(last_at) > self.idle.try_into().unwrap_or(jiff::SignedDuration::MAX)
    }
}

/// A label value of bounded length.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_LABEL) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Whether a label is one of ours, which no actor owns.
pub(crate) fn is_reserved(label: &str) -> bool {
    [NO_ACTOR, OTHER_ACTORS, ""].contains(&label)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> ActorRef {
        ActorRef {
            id: "13".into(),
            name: Some("Ada L".into()),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn each_mode_makes_its_label_and_the_hash_shows_nothing() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"k");
        assert_eq!(ActorLabel::Id.label(Some(&ada())).as_deref(), Some("13"));
        assert_eq!(
            ActorLabel::Name.label(Some(&ada())).as_deref(),
            Some("Ada L")
        );
        assert_eq!(ActorLabel::None.label(Some(&ada())), None);
        let hash = ActorLabel::Hash(key).label(Some(&ada())).expect("a label");
        assert!(hash.len() == 16 && !hash.contains("13"), "{hash}");
        assert_eq!(ActorLabel::Id.label(None).as_deref(), Some("none"));
        assert_eq!(
            ActorLabel::Name
                .label(Some(&ActorRef {
                    id: "7".into(),
                    name: None
                }))
                .as_deref(),
            Some("7")
        );
    }

    #[test]
    fn past_the_limit_actors_are_folded_until_one_is_idle() {
        let mut slots = Slots::new(1, Duration::from_secs(10));
        assert_eq!(slots.take("a", at(0)), Slot::New("a".into()));
        assert_eq!(slots.take("b", at(1)), Slot::Folded);
        assert_eq!(slots.take("a", at(5)), Slot::Held("a".into()));
        assert!(slots.retire(at(15)).is_empty());
        assert_eq!(slots.retire(at(16)), [("a".into(), at(5))]);
        assert_eq!(slots.take("b", at(16)), Slot::New("b".into()));
    }

    #[test]
    fn somebody_called_like_a_label_of_ours_is_known_by_the_id() {
        for name in [NO_ACTOR, OTHER_ACTORS, ""] {
            let actor = ActorRef {
                id: "7".into(),
                name: Some(name.into()),
            };
            assert_eq!(ActorLabel::Name.label(Some(&actor)).as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_long_label_is_cut_and_marked() {
        let label = cut(&"ü".repeat(1000));
        assert_eq!(label.chars().count(), MAX_LABEL + 1);
        assert!(label.ends_with('…'));
    }
}
