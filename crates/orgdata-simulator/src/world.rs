//! The audit log itself: generated events by their numbers, added ones by their keys, and what is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::catalogue::{self, KINDS};
use super::clock;
use super::config::Config;
use super::draw::{self, Entry, Facets};
use super::patch::{Fields, is_known_kind};
use super::readings::KeyReading;
use super::spans::Spans;
use super::timeline::Timeline;

/// The place of an entry in the order of arrival: generated event i is (i + 1, 0), and what is added after it and
/// before event i + 1 is (i + 1, 1), (i + 1, 2), … It never changes and is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seq {
    pub(super) generated: u64,
    pub(super) added: u64,
}

/// The place of an entry in the order of the listing: what a cursor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// `createdAt` in milliseconds, or 0 when the order of arrival decides.
    pub(super) at: i64,
    pub(super) seq: Seq,
}

/// An entry given by hand, with what filters look at.
#[derive(Debug)]
pub(super) struct Patch {
    fields: Fields,
    kind: String,
    actor: Option<i64>,
    target: Option<i64>,
    deal: Option<i64>,
}

/// One entry, not yet drawn.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) seq: Seq,
    /// Milliseconds since 1970.
    pub(super) created: i64,
    patch: Option<Arc<Patch>>,
}

/// What filters and counts look at in an entry.
#[derive(Clone, Debug)]
pub(super) struct View<'a> {
    pub(super) kind: &'a str,
    pub(super) actor: Option<i64>,
    pub(super) target: Option<i64>,
    pub(super) deal: Option<i64>,
}

/// The audit log at one moment; a clone is a cheap snapshot.
#[derive(Clone, Debug)]
pub(super) struct World {
    seed: u64,
    organization: (i64, Arc<str>),
    reading: KeyReading,
    pub(super) timeline: Timeline,
    /// Numbers of generated events that retention or a restore took.
    pub(super) gone: Spans,
    pub(super) added: Arc<BTreeMap<Key, Row>>,
    /// Added entries that are gone: the truth about everything that ever happened needs them.
    pub(super) lost: Arc<BTreeMap<Key, Row>>,
    next_added: u64,
    /// Types and deals that only added entries brought.
    extra_kinds: BTreeSet<String>,
    extra_deals: BTreeSet<i64>,
}

// === impl Row ===

impl Row {
    /// What filters and counts look at.
    pub(super) fn view(&self, seed: u64) -> View<'_> {
        match &self.patch {
            Some(patch) => View {
                kind: &patch.kind,
                actor: patch.actor,
                target: patch.target,
                deal: patch.deal,
            },
            None => {
                let (facets, _) = Facets::draw(seed, self.seq);
                View {
                    kind: facets.kind.name,
                    actor: facets.actor,
                    target: facets.target,
                    deal: facets.deal,
                }
            }
        }
    }
}

// === impl World ===

impl World {
    pub(super) fn new(config: &Config, start: i64) -> Self {
        let span = clock::duration_millis(config.history_span);
        Self {
            seed: config.seed,
            organization: (
                config.organization_id,
                Arc::from(config.organization_name.as_str()),
            ),
            reading: config.readings.key,
            timeline: Timeline::new(config.seed, start, config.history, span, config.rate),
            gone: Spans::default(),
            added: Arc::default(),
            lost: Arc::default(),
            next_added: 1,
            extra_kinds: BTreeSet::new(),
            extra_deals: BTreeSet::new(),
        }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Entries there are.
    pub(super) fn len(&self) -> u64 {
        self.timeline.made() - self.gone.len() + self.added.len() as u64
    }

    /// The place that the next arrival will have at the earliest.
    pub(super) fn next_seq(&self) -> Seq {
        Seq {
            generated: self.timeline.made(),
            added: self.next_added,
        }
    }

    /// All activity types that an entry can have: the allowed values of the filter.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &str> {
        KINDS
            .iter()
            .map(|kind| kind.name)
            .chain(self.extra_kinds.iter().map(String::as_str))
    }

    /// Whether the organization has this deal.
    pub(super) fn has_deal(&self, id: i64) -> bool {
        catalogue::is_deal(id) || self.extra_deals.contains(&id)
    }

    /// The row of a generated event.
    pub(super) fn generated(&self, i: u64) -> Row {
        let seq = Seq {
            generated: i + 1,
            added: 0,
        };
        let created = self.timeline.time(i);
        Row {
            key: self.key(created, seq),
            seq,
            created,
            patch: None,
        }
    }

    /// The JSON of an entry, exactly as it is served.
    pub(super) fn json(&self, row: &Row) -> String {
        let entry = self.draw(row);
        let text = match &row.patch {
            None => serde_json::to_string(&entry),
            Some(patch) => serde_json::to_string(&patched(&entry, &patch.fields)),
        };
        text.unwrap_or_default()
    }

    /// The id of an entry; empty when it has none that is a string.
    pub(super) fn id(&self, row: &Row) -> String {
        match &row.patch {
            None => draw::id(self.seed, row.seq),
            Some(patch) if patch.fields.omitted.iter().any(|field| field == "id") => String::new(),
            Some(patch) => match patch.fields.values.get("id") {
                Some(id) => id.as_str().unwrap_or_default().to_owned(),
                None => draw::id(self.seed, row.seq),
            },
        }
    }

    /// Adds an entry created at that time, whatever came before it.
    pub(super) fn insert(&mut self, created: i64, fields: &Fields) -> Row {
        let seq = self.next_seq();
        self.next_added += 1;
        let mut row = Row {
            key: self.key(created, seq),
            seq,
            created,
            patch: None,
        };
        if !fields.is_empty() {
            let entry = patched(&self.draw(&row), fields);
            let number = |field: &str| entry.get(field).and_then(Value::as_i64);
            let kind = entry
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            if !kind.is_empty() && !is_known_kind(&kind) {
                self.extra_kinds.insert(kind.clone());
            }
            self.extra_deals
                .extend(number("dealId").filter(|&id| !catalogue::is_deal(id)));
            row.patch = Some(Arc::new(Patch {
                fields: fields.clone(),
                kind,
                actor: number("actorUserId"),
                target: number("targetUserId"),
                deal: number("dealId"),
            }));
        }
        Arc::make_mut(&mut self.added).insert(row.key, row.clone());
        row
    }

    /// Takes away every entry below this key.
    pub(super) fn drop_below(&mut self, key: Key) {
        self.gone.insert(0..self.first_at(key));
        let kept = Arc::make_mut(&mut self.added).split_off(&key);
        let dropped = std::mem::replace(&mut self.added, Arc::new(kept));
        Arc::make_mut(&mut self.lost).extend(Arc::unwrap_or_clone(dropped));
    }

    /// Takes away this entry and every one above it.
    pub(super) fn drop_from(&mut self, key: Key) {
        self.gone.insert(self.first_at(key)..self.timeline.made());
        let dropped = Arc::make_mut(&mut self.added).split_off(&key);
        Arc::make_mut(&mut self.lost).extend(dropped);
    }

    /// Takes away everything created before this time. By arrival or by time, generated events are in order of time.
    pub(super) fn drop_older(&mut self, than: i64) {
        let mut edge = 0;
        let mut end = self.timeline.made();
        while edge < end {
            let middle = edge + (end - edge) / 2;
            if self.timeline.time(middle) < than {
                edge = middle + 1
            } else {
                end = middle
            }
        }
        self.gone.insert(0..edge);
        let (old, kept) = self
            .added
            .iter()
            .map(|(key, row)| (*key, row.clone()))
            .partition(|(_, row)| row.created < than);
        let old: BTreeMap<Key, Row> = old;
        self.added = Arc::new(kept);
        Arc::make_mut(&mut self.lost).extend(old);
    }

    /// Takes away everything.
    pub(super) fn drop_all(&mut self) {
        self.gone.insert(0..self.timeline.made());
        let dropped = std::mem::take(&mut self.added);
        Arc::make_mut(&mut self.lost).extend(Arc::unwrap_or_clone(dropped));
    }

    /// The audit log as if nothing had ever been taken away.
    pub(super) fn with_removed(&self) -> Self {
        let mut world = self.clone();
        world.gone = Spans::default();
        let lost = self.lost.iter().map(|(key, row)| (*key, row.clone()));
        Arc::make_mut(&mut world.added).extend(lost);
        world
    }

    fn key(&self, created: i64, seq: Seq) -> Key {
        match self.reading {
            KeyReading::CreatedAt => Key { at: created, seq },
            KeyReading::Arrival => Key { at: 0, seq },
        }
    }

    fn draw(&self, row: &Row) -> Entry {
        Entry::draw(
            self.seed,
            row.seq,
            row.created,
            (self.organization.0, &self.organization.1),
        )
    }
}

fn patched(entry: &Entry, fields: &Fields) -> Map<String, Value> {
    let mut map = match serde_json::to_value(entry) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    fields.apply_to_entry(&mut map);
    map
}
