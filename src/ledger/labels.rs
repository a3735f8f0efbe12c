//! Under which label an event is counted: what was counted under a label stays there.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::Settings;
use super::actors::{ActorLabel, OTHER_ACTORS, Slot, Slots, UNKNOWN_TYPE, cut, is_reserved};
use super::store::{micros, timestamp};
use super::types::{Commit, Disposition};
use crate::metrics::audit::{Delta, EventLabels, Total};

/// Activity types beyond this number are counted under `other`: the set is open, the series must not be.
pub(crate) const MAX_ACTIVITY_TYPES: usize = 1000;

/// The file remembers what was counted for at least so many actors, whether they have a slot or not.
const REMEMBERED: usize = 10_000;

/// And for so many times `--metrics.max-actors`.
const REMEMBERED_PER_SLOT: usize = 10;

/// And under so many ways of making labels: each key of `--metrics.actor-label=hash` is one.
const REMEMBERED_SCHEMES: i64 = 8;

/// In the table `totals`: how many events were counted under labels that were forgotten.
const FORGOTTEN: &str = "forgotten";

/// The labels in use.
#[derive(Debug)]
pub(super) struct Labels {
    actor_label: ActorLabel,
    /// Values counted under one way of making labels are never shown under another.
    scheme: String,
    slots: Slots,
    activity_types: HashSet<Arc<str>>,
}

/// Counted events of one page, by label set.
type Counts = BTreeMap<EventLabels, u64>;

/// What a transaction does to the slots, to be undone where it fails.
#[derive(Debug, Default)]
pub(super) struct Changed {
    granted: Vec<Arc<str>>,
    /// And when each was active last.
    retired: Vec<(Arc<str>, Timestamp)>,
}

/// What a page tells of an actor.
struct Seen {
    name: Option<String>,
    at: Timestamp,
}

const UPSERT_ACTOR: &str = "INSERT INTO actors (scheme, actor, name, last_at) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (scheme, actor) DO UPDATE SET name = coalesce(excluded.name, name), last_at = max(last_at, excluded.last_at)";

// === impl Labels ===

impl Labels {
    /// No label yet.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            scheme: settings.actor_label.scheme(),
            actor_label: settings.actor_label.clone(),
            slots: Slots::new(settings.max_actors, settings.actor_idle),
            activity_types: HashSet::new(),
        }
    }

    /// Introduces every label set with the value that an earlier process left.
    pub(super) fn restore(
        &mut self,
        connection: &Connection,
        delta: &mut Delta,
    ) -> rusqlite::Result<()> {
        // By the service's clock, as all of them are, and this machine's may be far from it; the next commit knows better how late it is.
        let newest: Option<i64> = connection.query_row(
            "SELECT max(last_at) FROM actors WHERE scheme = ?1",
            [&self.scheme],
            |row| row.get(0),
        )?;
        let now = newest.map_or_else(Timestamp::now, timestamp);
        let mut actors = connection.prepare(
            "SELECT actor, name, last_at FROM actors WHERE scheme = ?1 ORDER BY last_at DESC",
        )?;
        let actors = actors.query_map([&self.scheme], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get(2)?,
            ))
        })?;
        let mut hidden = HashSet::new();
        for actor in actors {
            let (actor, name, last_at) = actor?;
            let actor: Arc<str> = actor.into();
            if !self.slots.restore(actor.clone(), timestamp(last_at), now) {
                hidden.insert(actor);
            } else if let (Some(name), "id") = (name, self.scheme.as_str()) {
                delta.names.push((actor, cut(&name)));
            }
        }
        let mut events =
            connection.prepare("SELECT activity_type, actor, count FROM events WHERE scheme = ?1 ORDER BY activity_type, actor")?;
        let events = events.query_map([&self.scheme], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })?;
        for event in events {
            let (activity_type, actor, count) = event?;
            let activity_type: Arc<str> = activity_type.into();
            // The rows are sorted by type, so it is always the same types that a file with too many of them shows.
            let is_known = activity_type.as_ref() == OTHER_ACTORS
                || self.activity_types.contains(&activity_type)
                || self.learn(&activity_type);
            if is_known && !hidden.contains(actor.as_str()) {
                let labels = EventLabels {
                    activity_type,
                    actor: shown_actor(&self.scheme, &actor),
                };
                delta.introduced.push((labels, count.cast_unsigned()));
            }
        }
        Ok(())
    }

    /// How labels are made at present.
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Undoes what a transaction that failed did to the slots.
    pub(super) fn undo(&mut self, changed: Changed) {
        for actor in changed.granted {
            self.slots.release(&actor);
        }
        for (actor, last_at) in changed.retired {
            self.slots.give_back(actor, last_at);
        }
    }

    /// Sorts the events of a page under their label sets; a set seen first is introduced with the value it has in the file.
    pub(super) fn count(
        &mut self,
        transaction: &Transaction<'_>,
        commit: &Commit,
        delta: &mut Delta,
        changed: &mut Changed,
    ) -> rusqlite::Result<()> {
        let now = commit.server_time;
        // Before anything is counted: a slot that is free by now is for whoever comes first.
        changed.retired = self.slots.retire(now);
        delta.retired = changed
            .retired
            .iter()
            .map(|(actor, _)| actor.clone())
            .collect();
        let mut counts = Counts::new();
        let mut folded = 0;
        let mut seen: BTreeMap<Arc<str>, Seen> = BTreeMap::new();
        for entry in &commit.entries {
            let Ok(event) = &entry.event else { continue };
            let counted = match entry.disposition {
                Disposition::Baseline | Disposition::History => false,
                Disposition::Live => true,
                Disposition::Late => commit
                    .count_floor
                    .is_none_or(|floor| entry.created_at >= floor),
            };
            // Whoever was active in the past alone is not active now: years of history must not keep the slots from those who are.
            let at = if counted {
                now
            } else {
                entry.created_at.min(now)
            };
            if !counted && self.slots.is_idle(at, now) {
                continue;
            }
            let actor = match (self.actor_label.label(event.actor.as_ref()), &event.actor) {
                (Some(label), Some(reference)) if !is_reserved(&label) => {
                    match self.slots.take(&label, at) {
                        Slot::Folded => {
                            folded += u64::from(counted);
                            Some(OTHER_ACTORS.into())
                        }
                        slot => {
                            let (actor, is_new) = match slot {
                                Slot::New(actor) => (actor, true),
                                Slot::Held(actor) => (actor, false),
                                Slot::Folded => unreachable!("has an arm of its own"),
                            };
                            if is_new {
                                changed.granted.push(actor.clone());
                                delta.introduced.extend(self.stored(transaction, &actor)?);
                            }
                            // Once a page and actor, not once an event; the newest name wins, and a late row may have an older one.
                            let seen = seen.entry(actor.clone()).or_insert(Seen { name: None, at });
                            seen.at = seen.at.max(at);
                            if reference.name.is_some()
                                && (is_new || entry.disposition != Disposition::Late)
                            {
                                seen.name = reference.name.as_deref().map(cut);
                            }
                            Some(actor)
                        }
                    }
                }
                (label, _) => label.map(Into::into),
            };
            let activity_type = self.activity_type(&event.activity_type);
            *counts
                .entry(EventLabels {
                    activity_type,
                    actor,
                })
                .or_default() += u64::from(counted);
        }
        for (label, Seen { name, at }) in seen {
            transaction.prepare_cached(UPSERT_ACTOR)?.execute(params![
                self.scheme,
                &*label,
                name,
                micros(at)
            ])?;
            if let (Some(name), "id") = (name, self.scheme.as_str()) {
                delta.names.push((label, name));
            }
        }
        // Introduced at 0 first, so that a scrape between this commit and the next sees the value before the rise.
        delta
            .introduced
            .extend(counts.keys().map(|labels| (labels.clone(), 0)));
        if folded > 0 {
            delta.totals.push((Total::Folded, folded));
        }
        add_counts(transaction, &self.scheme, &counts)?;
        delta
            .events
            .extend(counts.into_iter().filter(|(_, rise)| *rise > 0));
        if !changed.granted.is_empty() {
            self.forget(transaction)?;
        }
        Ok(())
    }

    /// What is stored under an actor's label.
    fn stored(
        &self,
        transaction: &Transaction<'_>,
        actor: &Arc<str>,
    ) -> rusqlite::Result<Vec<(EventLabels, u64)>> {
        let mut known =
            transaction.prepare_cached("SELECT 1 FROM actors WHERE scheme = ?1 AND actor = ?2")?;
        if !known.exists(params![self.scheme, &**actor])? {
            return Ok(Vec::new());
        }
        // One look-up a type: by the actor alone it would be the whole table, once for each of a flood of actors.
        let mut count = transaction.prepare_cached(
            "SELECT count FROM events WHERE scheme = ?1 AND activity_type = ?2 AND actor = ?3",
        )?;
        let other: Arc<str> = OTHER_ACTORS.into();
        let types = self
            .activity_types
            .iter()
            .chain((!self.activity_types.contains(&other)).then_some(&other));
        let mut stored = Vec::new();
        for activity_type in types {
            let count: Option<i64> = count
                .query_row(params![self.scheme, &**activity_type, &**actor], |row| {
                    row.get(0)
                })
                .optional()?;
            let labels = || EventLabels {
                activity_type: activity_type.clone(),
                actor: Some(actor.clone()),
            };
            stored.extend(count.map(|count| (labels(), count.cast_unsigned())));
        }
        Ok(stored)
    }

    /// Forgets the actors that were idle for longest, with what was counted for them, where the file remembers too many. One that comes
    /// back all the same begins at 0, long after its series had left.
    fn forget(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let limit = i64::try_from(
            self.slots
                .max()
                .saturating_mul(REMEMBERED_PER_SLOT)
                .max(REMEMBERED),
        )
        .unwrap_or(i64::MAX);
        let held: i64 = transaction
            .prepare_cached("SELECT count(*) FROM actors WHERE scheme = ?1")?
            .query_row([&self.scheme], |row| row.get(0))?;
        if held <= limit {
            return Ok(());
        }
        // A tenth more than it must be, so that it is not done again for every page of a flood.
        let excess = held - limit + limit / 10;
        let mut oldest = transaction.prepare_cached(
            "SELECT actor FROM actors WHERE scheme = ?1 ORDER BY last_at LIMIT ?2",
        )?;
        let oldest =
            oldest.query_map(params![self.scheme, excess], |row| row.get::<_, String>(0))?;
        let oldest: Vec<String> = oldest.collect::<Result<_, _>>()?;
        let mut delete =
            transaction.prepare_cached("DELETE FROM actors WHERE scheme = ?1 AND actor = ?2")?;
        for actor in oldest.iter().filter(|actor| !self.slots.holds(actor)) {
            delete.execute(params![self.scheme, actor])?;
        }
        delete_events(
            transaction,
            "scheme = ?1 AND actor NOT IN (SELECT actor FROM actors WHERE scheme = ?1) AND actor NOT IN ('none', 'other', '')",
            &self.scheme,
        )
    }

    fn activity_type(&mut self, name: &str) -> Arc<str> {
        let name = cut(if name.is_empty() { UNKNOWN_TYPE } else { name });
        if let Some(known) = self.activity_types.get(name.as_str()) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        if self.learn(&name) {
            name
        } else {
            OTHER_ACTORS.into()
        }
    }

    /// Whether there is room for one more activity type.
    fn learn(&mut self, activity_type: &Arc<str>) -> bool {
        self.activity_types.len() < MAX_ACTIVITY_TYPES
            && self.activity_types.insert(activity_type.clone())
    }
}

/// Events counted since the file was begun, under whatever labels, also such as are shown no more.
pub(super) fn counted(connection: &Connection) -> rusqlite::Result<u64> {
    let sum = "SELECT coalesce((SELECT sum(count) FROM events), 0) + coalesce((SELECT value FROM totals WHERE name = ?1), 0)";
    connection
        .query_row(sum, [FORGOTTEN], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)
}

/// Forgets the ways of making labels that were not in use for longest.
pub(super) fn forget_schemes(connection: &Connection, current: &str) -> rusqlite::Result<()> {
    let mut old =
        connection.prepare("SELECT scheme FROM actors WHERE scheme <> ?1 GROUP BY scheme ORDER BY max(last_at) DESC LIMIT -1 OFFSET ?2")?;
    let old = old.query_map(params![current, REMEMBERED_SCHEMES - 1], |row| {
        row.get::<_, String>(0)
    })?;
    let old: Vec<String> = old.collect::<Result<_, _>>()?;
    if old.is_empty() {
        return Ok(());
    }
    let transaction = connection.unchecked_transaction()?;
    for scheme in &old {
        transaction.execute("DELETE FROM actors WHERE scheme = ?1", [scheme])?;
        delete_events(&transaction, "scheme = ?1", scheme)?;
    }
    transaction.commit()
}

fn add_counts(
    transaction: &Transaction<'_>,
    scheme: &str,
    counts: &Counts,
) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO events (scheme, activity_type, actor, count) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (scheme, activity_type, actor) DO UPDATE SET count = count + excluded.count",
    )?;
    for (labels, rise) in counts {
        upsert.execute(params![
            scheme,
            &*labels.activity_type,
            labels.actor.as_deref().unwrap_or_default(),
            rise.cast_signed()
        ])?;
    }
    Ok(())
}

/// Deletes rows of `events`; their sum is remembered, so that the number of all events stays right.
fn delete_events(connection: &Connection, condition: &str, scheme: &str) -> rusqlite::Result<()> {
    let mut delete = connection.prepare(&format!(
        "DELETE FROM events WHERE {condition} RETURNING count"
    ))?;
    let gone: i64 = delete
        .query_map([scheme], |row| row.get::<_, i64>(0))?
        .sum::<rusqlite::Result<i64>>()?;
    connection.execute(
        "INSERT INTO totals (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        params![FORGOTTEN, gone],
    )?;
    Ok(())
}

fn shown_actor(scheme: &str, actor: &str) -> Option<Arc<str>> {
    (scheme != "none").then(|| actor.into())
}
