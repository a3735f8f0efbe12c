//! The label under which an event is counted. A counted event never moves to another label. If labels are made in another way, or with another
//! key, the counters begin at 0.
//!
//! An actor gets a label while there is room, and keeps it: a start loads the labels in the file, and those that were active
//! last if `--metrics.max-actors` is now lower. So the file never holds more actors than the highest limit it was used with.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use ring::hmac;
use rusqlite::{Connection, Transaction, params};

use super::micros;
use super::types::{ActorRef, Changes, Commit, Disposition, EventLabels, NewEntry, Total};
use crate::util::one_line;

/// The label of an event without an actor.
const NO_ACTOR: &str = "none";

/// The label of actors beyond `--metrics.max-actors`, and of activity types beyond [`MAX_ACTIVITY_TYPES`].
const OTHER_ACTORS: &str = "other";

/// The maximum length of a label value, in characters.
pub const MAX_LABEL: usize = 200;

/// The label of an activity type or actor without a character that can be shown: an empty label is the same as none.
const UNKNOWN: &str = "unknown";

/// The maximum number of activity types with series of their own.
pub const MAX_ACTIVITY_TYPES: usize = 1000;

/// What is shown of an actor, in the label `actor` (`--metrics.actor-label`) or in log records (`--otlp.actor`).
#[derive(Clone, Debug)]
pub enum ActorPrivacy {
    /// Everything; only in log records.
    Full,
    /// The user's id.
    Id,
    /// First and last name; the id if there is none.
    Name,
    /// A keyed hash of the id.
    Hash(hmac::Key),
    /// Nothing.
    None,
}

/// The labels in use.
#[derive(Debug)]
pub(super) struct LabelsInUse {
    actor_label: ActorPrivacy,
    max_actors: usize,
    /// The actors with series of their own.
    actors: HashSet<Arc<str>>,
    activity_types: HashSet<Arc<str>>,
}

// === impl ActorPrivacy ===

impl ActorPrivacy {
    /// Returns a name for this way of making labels.
    pub(super) fn scheme(&self) -> String {
        match self {
            Self::Full | Self::Id => "id".to_owned(),
            Self::Name => "name".to_owned(),
            Self::Hash(key) => format!("hash:{:.8}", hash(key, "scheme")),
            Self::None => "none".to_owned(),
        }
    }

    /// Returns the label of an actor; `None` if no label is made.
    pub(crate) fn label(&self, actor: Option<&ActorRef>) -> Option<String> {
        let Some(actor) = actor else {
            return (!matches!(self, Self::None)).then(|| NO_ACTOR.into());
        };
        match self {
            Self::Full | Self::Id => Some(label_or_unknown(&actor.id)),
            Self::Name => {
                let name = actor.name.as_deref().map(label_value);
                // An actor whose name is blank, or one of our labels, is shown by id.
                let name = name.filter(|name| !is_reserved(name));
                Some(name.unwrap_or_else(|| label_or_unknown(&actor.id)))
            }
            Self::Hash(key) => Some(hash(key, &actor.id)),
            Self::None => None,
        }
    }
}

// === impl LabelsInUse ===

impl LabelsInUse {
    /// Deletes what was counted under labels that were made in another way, also from the bytes of the file.
    pub(super) fn begin(
        connection: &Connection,
        actor_label: &ActorPrivacy,
    ) -> rusqlite::Result<()> {
        let to = actor_label.scheme();
        let from: String =
            connection.query_row("SELECT actor_label FROM state", [], |row| row.get(0))?;
        if from == to {
            return Ok(());
        }
        connection.pragma_update(None, "secure_delete", true)?;
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch("DELETE FROM events; DELETE FROM actors")?;
        transaction.execute("UPDATE state SET actor_label = ?1", [&to])?;
        transaction.commit()?;
        connection.pragma_update(None, "secure_delete", false)?;
        // Unused pages and the write-ahead log may have older copies of a label.
        connection.execute_batch("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")?;
        tracing::warn!(
            from,
            to,
            "--metrics.actor-label or the hash key has changed: counters of events begin at 0, and the old labels are deleted"
        );
        Ok(())
    }

    /// Reads the series of an earlier transaction or process: the most recently active actors, and all activity types.
    pub(super) fn load(
        connection: &Connection,
        actor_label: &ActorPrivacy,
        max_actors: usize,
    ) -> rusqlite::Result<(Self, Changes)> {
        let mut labels = Self {
            actor_label: actor_label.clone(),
            max_actors,
            actors: HashSet::new(),
            activity_types: HashSet::new(),
        };
        let mut changes = Changes::default();
        let mut actors = connection
            .prepare("SELECT actor, name FROM actors ORDER BY last_at DESC, actor LIMIT ?1")?;
        let mut rows = actors.query([max_actors])?;
        while let Some(row) = rows.next()? {
            let (actor, name): (Arc<str>, Option<String>) = (row.get(0)?, row.get(1)?);
            let name = name.map(|name| (actor.clone(), label_value(&name)));
            changes.names.extend(name);
            labels.actors.insert(actor);
        }
        let mut events = connection.prepare("SELECT activity_type, actor, count FROM events")?;
        let mut rows = events.query([])?;
        while let Some(row) = rows.next()? {
            let (activity_type, actor): (Arc<str>, Arc<str>) = (row.get(0)?, row.get(1)?);
            // Also types of actors without a series: a start with a higher limit shows them again.
            if &*activity_type != OTHER_ACTORS {
                labels.activity_types.insert(activity_type.clone());
            }
            if labels.actors.contains(&actor) || is_reserved(&actor) {
                let actor = Some(actor).filter(|_| !matches!(actor_label, ActorPrivacy::None));
                let series = EventLabels {
                    activity_type,
                    actor,
                };
                changes.introduced.push((series, row.get(2)?));
            }
        }
        Ok((labels, changes))
    }

    /// Adds the events of a commit to the counts. A series seen for the first time is introduced with its stored value.
    pub(super) fn count(
        &mut self,
        transaction: &Transaction<'_>,
        commit: &Commit,
        changes: &mut Changes,
    ) -> rusqlite::Result<()> {
        let now = commit.server_time;
        let keeps_names = matches!(self.actor_label, ActorPrivacy::Id);
        let mut counts: BTreeMap<EventLabels, u64> = BTreeMap::new();
        let mut names: BTreeMap<Arc<str>, Option<String>> = BTreeMap::new();
        let mut folded = 0;
        for (entry, is_late, number) in alike(commit) {
            let actor = match (self.actor_label.label(entry.actor.as_ref()), &entry.actor) {
                (Some(label), Some(actor)) if !is_reserved(&label) => {
                    match self.actor(&label) {
                        Some(label) => {
                            let name = names.entry(label.clone()).or_default();
                            // A late entry may have an old name.
                            if keeps_names
                                && !is_late
                                && let Some(current) = actor.name.as_deref().map(label_value)
                                && !current.is_empty()
                            {
                                *name = Some(current);
                            }
                            Some(label)
                        }
                        None => {
                            folded += number;
                            Some(OTHER_ACTORS.into())
                        }
                    }
                }
                (label, _) => label.map(Into::into),
            };
            let activity_type = entry.activity_type.as_deref().unwrap_or_default();
            let activity_type = self.activity_type(activity_type);
            let series = EventLabels {
                activity_type,
                actor,
            };
            *counts.entry(series).or_default() += number;
        }
        let mut upsert = transaction.prepare_cached(
            "INSERT INTO actors (actor, name, last_at) VALUES (?1, ?2, ?3)
             ON CONFLICT (actor) DO UPDATE SET name = coalesce(excluded.name, name), last_at = max(last_at, excluded.last_at)",
        )?;
        for (actor, name) in names {
            upsert.execute(params![&*actor, name, micros(now)])?;
            changes.names.extend(name.map(|name| (actor, name)));
        }
        let mut upsert = transaction.prepare_cached(
            "INSERT INTO events (activity_type, actor, count, first_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (actor, activity_type) DO UPDATE SET count = count + excluded.count",
        )?;
        for (series, increase) in &counts {
            let actor = series.actor.as_deref().unwrap_or_default();
            upsert.execute(params![
                &*series.activity_type,
                actor,
                increase,
                micros(now)
            ])?;
        }
        if folded > 0 {
            changes.totals.push((Total::Folded, folded));
        }
        changes
            .introduced
            .extend(counts.keys().map(|series| (series.clone(), 0)));
        changes.events.extend(counts);
        Ok(())
    }

    /// Returns an actor's label if it has one, or if there is room for it.
    fn actor(&mut self, label: &str) -> Option<Arc<str>> {
        match self.actors.get(label) {
            Some(known) => Some(known.clone()),
            None if self.actors.len() < self.max_actors => {
                let label: Arc<str> = label.into();
                self.actors.insert(label.clone());
                Some(label)
            }
            None => None,
        }
    }

    /// Returns the label of an activity type: its own if it has one, or if there is room for it.
    fn activity_type(&mut self, name: &str) -> Arc<str> {
        let name = label_or_unknown(name);
        match self.activity_types.get(&*name) {
            Some(known) => known.clone(),
            None if self.activity_types.len() < MAX_ACTIVITY_TYPES => {
                let name: Arc<str> = name.into();
                self.activity_types.insert(name.clone());
                name
            }
            None => OTHER_ACTORS.into(),
        }
    }
}

/// Returns the counted events of a commit with how often each occurs: an event, whether it is late, and the number of such
/// events. The event that occurs last comes last, because its actor has the current name.
fn alike(commit: &Commit) -> impl Iterator<Item = (&NewEntry, bool, u64)> {
    let mut groups: HashMap<_, (usize, u64), foldhash::fast::RandomState> = HashMap::default();
    for (index, entry) in commit.entries.iter().enumerate() {
        if entry.is_counted() {
            let is_late = entry.disposition == Disposition::Late;
            let group = groups
                .entry((&entry.activity_type, &entry.actor, is_late))
                .or_default();
            *group = (index, group.1 + 1);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(_, (last, _))| *last);
    groups
        .into_iter()
        .map(|((_, _, is_late), (last, number))| (&commit.entries[last], is_late, number))
}

/// Returns a text as a label value: on one line of at most [`MAX_LABEL`] characters. It is empty if no character can be shown.
pub(crate) fn label_value(text: &str) -> String {
    one_line(text, MAX_LABEL)
}

/// Returns a text as a label value that is not empty.
fn label_or_unknown(text: &str) -> String {
    let label = label_value(text);
    match label.is_empty() {
        true => UNKNOWN.to_owned(),
        false => label,
    }
}

/// Reports whether a label is one of ours.
fn is_reserved(label: &str) -> bool {
    [NO_ACTOR, OTHER_ACTORS, ""].contains(&label)
}

/// Returns the first 64 bits of a keyed hash in hexadecimal digits.
fn hash(key: &hmac::Key, text: &str) -> String {
    let hash = hmac::sign(key, text.as_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    format!("{:016x}", u64::from_be_bytes(first))
}
