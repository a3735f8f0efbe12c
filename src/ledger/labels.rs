//! Under which label an event is counted: what was counted under a label stays there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::Settings;
use super::actors::{ActorLabel, OTHER_ACTORS, Slot, Slots, cut};
use super::store::{micros, timestamp};
use super::types::{Commit, Disposition};
use crate::metrics::audit::{Delta, EventLabels, Total};

/// Activity types beyond this number are counted under `other`: the set is open, the series must not be.
const MAX_ACTIVITY_TYPES: usize = 1000;

/// The labels in use.
#[derive(Debug)]
pub(super) struct Labels {
    actor_label: ActorLabel,
    /// Values counted under one way of making labels are never shown under another.
    scheme: String,
    slots: Slots,
    activity_types: HashSet<Arc<str>>,
}

/// By scheme, activity type and actor: what the scrapes of an earlier process saw at last, where that was not all.
pub(super) type Shown = HashMap<(String, String, String), u64>;

/// Counted events of one page, by label set.
type Counts = BTreeMap<EventLabels, u64>;

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
    pub(super) fn restore(&mut self, connection: &Connection, shown: &Shown, delta: &mut Delta) -> rusqlite::Result<()> {
        let now = Timestamp::now();
        let mut actors = connection.prepare("SELECT actor, name, last_at FROM actors WHERE scheme = ?1 ORDER BY last_at DESC")?;
        let actors =
            actors.query_map([&self.scheme], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?, row.get(2)?)))?;
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
        let mut events = connection.prepare("SELECT activity_type, actor, count FROM events WHERE scheme = ?1")?;
        let events =
            events.query_map([&self.scheme], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?)))?;
        for event in events {
            let (activity_type, actor, count) = event?;
            let activity_type: Arc<str> = activity_type.into();
            self.activity_types.insert(activity_type.clone());
            if !hidden.contains(actor.as_str()) {
                let shown = shown.get(&(self.scheme.clone(), activity_type.to_string(), actor.clone()));
                let labels = EventLabels { activity_type, actor: shown_actor(&self.scheme, &actor) };
                let (count, shown) = (count.cast_unsigned(), shown.copied().unwrap_or(u64::MAX));
                delta.introduced.push((labels.clone(), count.min(shown)));
                delta.held.extend((shown < count).then(|| (labels, count - shown)));
            }
        }
        Ok(())
    }

    /// How labels are made at present.
    pub(super) fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Frees the slots of actors that were idle for too long.
    pub(super) fn retire(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        self.slots.retire(now)
    }

    /// Takes a slot back: the transaction that wanted it failed.
    pub(super) fn release(&mut self, actor: &str) {
        self.slots.release(actor);
    }

    /// Sorts the events of a page under their label sets; a set seen first is introduced with the value it has in the file.
    pub(super) fn count(
        &mut self,
        transaction: &Transaction<'_>,
        commit: &Commit,
        delta: &mut Delta,
        granted: &mut Vec<Arc<str>>,
    ) -> rusqlite::Result<()> {
        let mut counts = Counts::new();
        let mut folded = 0;
        let mut seen: BTreeMap<Arc<str>, (Option<String>, Timestamp)> = BTreeMap::new();
        for entry in &commit.entries {
            let Ok(event) = &entry.event else { continue };
            let counted = match entry.disposition {
                Disposition::Baseline | Disposition::History => false,
                Disposition::Live => true,
                Disposition::Late => commit.count_floor.is_none_or(|floor| entry.created_at >= floor),
            };
            let mut active_at = commit.server_time;
            if entry.disposition == Disposition::History && event.actor.is_some() {
                // Whoever was active long ago has no label, and keeps none from those who are active now.
                active_at = active_at.min(entry.created_at);
                if self.slots.is_idle(active_at, commit.server_time) {
                    continue;
                }
            }
            let label = self.actor_label.label(event.actor.as_ref());
            let actor = match label {
                Some(label) if event.actor.is_some() => Some(match self.slots.take(&label, active_at) {
                    Slot::Held(actor) => actor,
                    Slot::New(actor) => {
                        granted.push(actor.clone());
                        delta.introduced.extend(stored(transaction, &self.scheme, &actor)?);
                        actor
                    }
                    Slot::Folded => {
                        folded += u64::from(counted);
                        OTHER_ACTORS.into()
                    }
                }),
                other => other.map(Into::into),
            };
            if let (Some(label), Some(reference)) = (&actor, &event.actor)
                && &**label != OTHER_ACTORS
            {
                // Once a page and actor, not once an event; the newest name wins.
                let (name, last_at) = seen.entry(label.clone()).or_insert((None, active_at));
                *last_at = active_at.max(*last_at);
                if reference.name.is_some() {
                    name.clone_from(&reference.name);
                }
            }
            let activity_type = self.activity_type(&event.activity_type);
            *counts.entry(EventLabels { activity_type, actor }).or_default() += u64::from(counted);
        }
        for (label, (name, last_at)) in seen {
            transaction.prepare_cached(UPSERT_ACTOR)?.execute(params![self.scheme, &*label, name, micros(last_at)])?;
            if let (Some(name), "id") = (name, self.scheme.as_str()) {
                delta.names.push((label, cut(&name)));
            }
        }
        // Introduced at 0 first, so that a scrape between this commit and the next sees the value before the rise.
        delta.introduced.extend(counts.keys().map(|labels| (labels.clone(), 0)));
        if folded > 0 {
            delta.totals.push((Total::Folded, folded));
        }
        add_counts(transaction, &self.scheme, &counts)?;
        delta.events.extend(counts.into_iter().filter(|(_, rise)| *rise > 0));
        Ok(())
    }

    fn activity_type(&mut self, name: &str) -> Arc<str> {
        let name = cut(name);
        if let Some(known) = self.activity_types.get(name.as_str()) {
            return known.clone();
        }
        if self.activity_types.len() >= MAX_ACTIVITY_TYPES {
            return OTHER_ACTORS.into();
        }
        let name: Arc<str> = name.into();
        self.activity_types.insert(name.clone());
        name
    }
}

fn add_counts(transaction: &Transaction<'_>, scheme: &str, counts: &Counts) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO events (scheme, activity_type, actor, count) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (scheme, activity_type, actor) DO UPDATE SET count = count + excluded.count",
    )?;
    for (labels, rise) in counts {
        upsert.execute(params![scheme, &*labels.activity_type, labels.actor.as_deref().unwrap_or_default(), rise.cast_signed()])?;
    }
    Ok(())
}

/// What is stored under an actor's label.
fn stored(transaction: &Transaction<'_>, scheme: &str, actor: &Arc<str>) -> rusqlite::Result<Vec<(EventLabels, u64)>> {
    let mut rows = transaction.prepare_cached("SELECT activity_type, count FROM events WHERE scheme = ?1 AND actor = ?2")?;
    let rows = rows.query_map(params![scheme, &**actor], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    rows.map(|row| {
        row.map(|(activity_type, count)| {
            (EventLabels { activity_type: activity_type.into(), actor: Some(actor.clone()) }, count.cast_unsigned())
        })
    })
    .collect()
}

fn shown_actor(scheme: &str, actor: &str) -> Option<Arc<str>> {
    (scheme != "none").then(|| actor.into())
}
