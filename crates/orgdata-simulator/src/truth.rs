//! What is the case: the numbers that a test compares with, and every entry in order.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;

use super::clock;
use super::sim::Simulator;
use super::walk::Between;
use super::world::{Key, Row, Seq, World};

/// Entries that are drawn from the audit log at once.
const CHUNK: usize = 256;

/// A moment in the order of arrival: every entry arrived before it or since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(Seq);

/// Why a text is no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a mark is two numbers with a point between them, as \"5000.1\"")]
pub struct MarkError;

/// Which entries to count or to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only those that arrived since then, late rows among them.
    pub since: Option<Mark>,
    /// Only those with this `createdAt` or a later one.
    pub created_since: Option<Timestamp>,
    /// Also those that retention or a restore took away.
    pub removed: bool,
}

/// Numbers about the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Entries in the scope.
    pub total: u64,
    /// Entries by type and `actorUserId`. A malformed entry counts under the type `""` when it has none.
    pub counts: BTreeMap<(String, Option<i64>), u64>,
    /// `createdAt` of the oldest and the newest one.
    pub created: Option<(Timestamp, Timestamp)>,
}

/// One entry, as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its id; empty when a malformed entry has none.
    pub id: String,
    /// Its type; empty when a malformed entry has none.
    pub activity_type: String,
    /// Its actor.
    pub actor: Option<i64>,
    /// Its deal.
    pub deal: Option<i64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its JSON, byte by byte.
    pub json: String,
}

/// The entries of a moment, oldest first in the order of the listing. It holds a few hundred at a time.
#[derive(Debug)]
pub struct Entries {
    world: Arc<World>,
    scope: Scope,
    from: Bound<Key>,
    rows: std::vec::IntoIter<Row>,
}

// === impl Mark ===

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.generated, self.0.added)
    }
}

impl FromStr for Mark {
    type Err = MarkError;

    fn from_str(text: &str) -> Result<Self, MarkError> {
        let (generated, added) = text.split_once('.').ok_or(MarkError)?;
        let number = |text: &str| text.parse().map_err(|_| MarkError);
        Ok(Self(Seq {
            generated: number(generated)?,
            added: number(added)?,
        }))
    }
}

// === impl Scope ===

impl Scope {
    /// What arrived since a mark, whether it is still there or not.
    pub fn arrived_since(mark: Mark) -> Self {
        Self {
            since: Some(mark),
            removed: true,
            ..Self::default()
        }
    }

    fn takes(&self, row: &Row) -> bool {
        self.since.is_none_or(|mark| row.seq >= mark.0)
            && self
                .created_since
                .is_none_or(|time| row.created >= clock::millis(time))
    }
}

// === impl Simulator ===

impl Simulator {
    /// This moment in the order of arrival.
    pub fn mark(&self) -> Mark {
        Mark(self.world().next_seq())
    }

    /// Numbers about all entries there are.
    pub fn truth(&self) -> Truth {
        self.truth_of(Scope::default())
    }

    /// Numbers about the entries of a scope. A million takes a fraction of a second.
    pub fn truth_of(&self, scope: Scope) -> Truth {
        let world = self.snapshot(scope);
        let mut truth = Truth::default();
        let mut by_kind: BTreeMap<String, BTreeMap<Option<i64>, u64>> = BTreeMap::new();
        let mut edges: Option<(i64, i64)> = None;
        for row in world.up(Between::ALL).filter(|row| scope.takes(row)) {
            let view = row.view(world.seed());
            truth.total += 1;
            // Types are few: a text is only made for one that was not seen yet.
            match by_kind.get_mut(view.kind) {
                Some(actors) => *actors.entry(view.actor).or_default() += 1,
                None => {
                    by_kind.insert(view.kind.to_owned(), BTreeMap::from([(view.actor, 1)]));
                }
            }
            edges = Some(edges.map_or((row.created, row.created), |(old, new)| {
                (old.min(row.created), new.max(row.created))
            }));
        }
        let flat = by_kind.into_iter().flat_map(|(kind, actors)| {
            actors
                .into_iter()
                .map(move |(actor, count)| ((kind.clone(), actor), count))
        });
        truth.counts = flat.collect();
        truth.created = edges.map(|(old, new)| (clock::timestamp(old), clock::timestamp(new)));
        truth
    }

    /// All entries there are, oldest first in the order of the listing.
    pub fn entries(&self) -> Entries {
        self.entries_of(Scope::default())
    }

    /// The entries of a scope, oldest first in the order of the listing.
    pub fn entries_of(&self, scope: Scope) -> Entries {
        Entries {
            world: self.snapshot(scope),
            scope,
            from: Bound::Unbounded,
            rows: Vec::new().into_iter(),
        }
    }

    fn snapshot(&self, scope: Scope) -> Arc<World> {
        let world = self.world();
        if scope.removed {
            Arc::new(world.with_removed())
        } else {
            world
        }
    }
}

// === impl Entries ===

impl Iterator for Entries {
    type Item = Served;

    fn next(&mut self) -> Option<Served> {
        loop {
            let Some(row) = self.rows.next() else {
                let part = Between {
                    low: self.from,
                    high: Bound::Unbounded,
                };
                let rows: Vec<Row> = self.world.up(part).take(CHUNK).collect();
                self.from = Bound::Excluded(rows.last()?.key);
                self.rows = rows.into_iter();
                continue;
            };
            if self.scope.takes(&row) {
                let view = row.view(self.world.seed());
                return Some(Served {
                    id: self.world.id(&row),
                    activity_type: view.kind.to_owned(),
                    actor: view.actor,
                    deal: view.deal,
                    created_at: clock::timestamp(row.created),
                    json: self.world.json(&row),
                });
            }
        }
    }
}
