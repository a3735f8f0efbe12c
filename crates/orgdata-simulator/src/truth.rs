//! The true numbers of the audit log, which tests compare with, and every entry in order.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::clock;
use crate::sim::Simulator;
use crate::world::{Row, World};

/// A moment in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// Which entries to count or to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only entries that arrived since then, with late ones among them.
    pub since: Option<Moment>,
    /// Also entries that were removed.
    pub removed: bool,
}

/// Numbers about the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// The number of entries.
    pub total: u64,
    /// Entries by type and `actorUserId`. A malformed entry without a type counts under `""`.
    pub counts: BTreeMap<(String, Option<i64>), u64>,
}

/// An entry as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its id; empty if a malformed entry has none.
    pub id: String,
    /// Its type; empty if a malformed entry has none.
    pub activity_type: String,
    /// Its actor.
    pub actor: Option<i64>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its JSON.
    pub json: String,
}

// === impl Scope ===

impl Scope {
    /// Returns the scope of everything that arrived since a mark, even if it was removed.
    pub fn arrived_since(mark: Moment) -> Self {
        Self {
            since: Some(mark),
            removed: true,
        }
    }

    fn rows(self, world: &World) -> Vec<Row> {
        let arrived = |row: &&Row| self.since.is_none_or(|mark| row.key.number >= mark.0);
        let removed = world.removed.iter().filter(|_| self.removed);
        let rows = world.rows.iter().chain(removed).filter(arrived);
        let mut rows: Vec<Row> = rows.cloned().collect();
        rows.sort_by_key(|row| world.rank(row.key));
        rows
    }
}

// === impl Simulator ===

impl Simulator {
    /// Returns this moment in the order of arrival.
    pub fn mark(&self) -> Moment {
        Moment(self.state().world.next_number)
    }

    /// Returns numbers about all entries.
    pub fn truth(&self) -> Truth {
        self.truth_of(Scope::default())
    }

    /// Returns numbers about the entries of a scope.
    pub fn truth_of(&self, scope: Scope) -> Truth {
        let mut truth = Truth::default();
        for entry in self.entries_of(scope) {
            let series = (entry.activity_type, entry.actor);
            *truth.counts.entry(series).or_default() += 1;
            truth.total += 1;
        }
        truth
    }

    /// Returns all entries, oldest first in the order of the listing.
    pub fn entries(&self) -> impl Iterator<Item = Served> + use<> {
        self.entries_of(Scope::default())
    }

    /// Returns the entries of a scope, oldest first in the order of the listing.
    pub fn entries_of(&self, scope: Scope) -> impl Iterator<Item = Served> + use<> {
        let world = self.state().world.clone();
        let rows = scope.rows(&world);
        rows.into_iter().map(move |row| {
            let entry = world.entry(&row);
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            Served {
                id: text("id"),
                activity_type: text("type"),
                actor: entry["actorUserId"].as_i64(),
                created_at: clock::timestamp(row.key.created),
                json: entry.to_string(),
            }
        })
    }
}
