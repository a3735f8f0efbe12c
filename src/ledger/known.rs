//! The known ids, in memory and in the file, each with the number of the sweep that settles it, and which of them are kept: those that a sweep or
//! a pass can meet again.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};

use super::types::{Commit, Disposition, EventId, NewEntry, Prune, Seen};
use super::{micros, timestamp};

/// Beyond this number, only the ids of counted entries are kept: not those of a long history.
const MAX_UNCOUNTED: usize = 2_000_000;

/// There is no room for more than this number. The table in memory has the same size at both.
const MAX_IDS: usize = 3_000_000;

/// An [`EventId`] that needs no padding beside a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, packed(4))]
struct Key(u64);

/// The ids that the ledger knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The number of the sweep that settles each of them.
    ids: HashMap<Key, u32, foldhash::fast::RandomState>,
    /// The number of the last sweep.
    settled: u32,
}

/// Ids that are no longer kept.
#[derive(Default)]
pub(super) struct Pruned {
    ids: Vec<EventId>,
    /// The newest creation time among them.
    pub(super) newest: Option<Timestamp>,
}

// === impl Known ===

impl Known {
    /// Reads the ids of the file.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let settled = connection.query_row("SELECT settled FROM state", [], |row| row.get(0))?;
        let mut known = Self {
            settled,
            ..Self::default()
        };
        let mut pages = connection.prepare("SELECT sweep, ids FROM pages")?;
        let mut rows = pages.query([])?;
        while let Some(row) = rows.next()? {
            let sweep = row.get(0)?;
            known.ids.extend(ids(row, 1)?.map(|id| (Key(id.0), sweep)));
        }
        Ok(known)
    }

    /// Returns what is known of an entry.
    pub(super) fn seen(&self, id: EventId) -> Seen {
        match self.ids.get(&Key(id.0)) {
            Some(sweep) if *sweep <= self.settled => Seen::Settled(*sweep),
            Some(_) => Seen::Unsettled,
            None => Seen::Unknown,
        }
    }

    /// Reports whether only the ids of counted entries are kept.
    pub(super) fn is_crowded(&self) -> bool {
        self.ids.len() >= MAX_UNCOUNTED
    }

    /// Reports whether there is no room for the ids of a catch-up.
    pub(super) fn is_full(&self) -> bool {
        self.ids.len() >= MAX_IDS
    }

    /// Follows a commit that has kept these ids.
    pub(super) fn follow(&mut self, commit: &Commit, kept: &[EventId], pruned: &Pruned) {
        for id in &pruned.ids {
            self.ids.remove(&Key(id.0));
        }
        if !pruned.ids.is_empty() {
            self.ids.shrink_to_fit();
        }
        let kept = kept.iter().map(|id| (Key(id.0), commit.sweep));
        self.ids.extend(kept);
        self.settled = self.settled.max(commit.settled);
    }
}

/// Writes the ids of a commit, and returns those that are kept.
pub(super) fn write(
    transaction: &Transaction<'_>,
    commit: &Commit,
    is_crowded: bool,
) -> rusqlite::Result<Vec<EventId>> {
    let is_counted =
        |entry: &&NewEntry| matches!(entry.disposition, Disposition::Live | Disposition::Late);
    let kept = commit.entries.iter();
    let kept = kept.filter(|entry| !is_crowded || commit.is_sweep || is_counted(entry));
    let newest = kept.clone().map(|entry| entry.created_at).max();
    let kept: Vec<EventId> = kept.map(|entry| entry.id).collect();
    if let Some(newest) = newest.map(micros) {
        let ids: Vec<u8> = kept.iter().flat_map(|id| id.0.to_le_bytes()).collect();
        transaction
            .prepare_cached("INSERT INTO pages (newest, sweep, ids) VALUES (?1, ?2, ?3)")?
            .execute(params![newest, commit.sweep, ids])?;
    }
    let newest = commit.entries.iter().map(|entry| entry.created_at).max();
    if let Some(newest) = newest.map(micros) {
        transaction
            .prepare_cached("UPDATE state SET newest_at = max(coalesce(newest_at, ?1), ?1)")?
            .execute([newest])?;
    }
    Ok(kept)
}

/// Deletes ids that are no longer needed. The watermark keeps their entries from being counted again.
pub(super) fn prune(transaction: &Transaction<'_>, prune: &Prune) -> rusqlite::Result<Pruned> {
    let mut pages = Vec::new();
    let mut old = transaction.prepare_cached(
        "SELECT page, ids FROM (
             SELECT *, sum(length(ids) / 8) OVER (ORDER BY newest DESC, page DESC) AS newer FROM pages
         ) WHERE sweep <= ?1 AND newest <= ?2 AND newer > ?3",
    )?;
    let mut rows = old.query(params![prune.sweep, micros(prune.at), prune.newest])?;
    while let Some(row) = rows.next()? {
        if !ids(row, 1)?.any(|id| prune.listed.contains(&id)) {
            pages.push(row.get(0)?);
        }
    }
    let mut pruned = Pruned::default();
    let mut delete =
        transaction.prepare_cached("DELETE FROM pages WHERE page = ?1 RETURNING newest, ids")?;
    for page in pages {
        let page: i64 = page;
        let mut rows = delete.query([page])?;
        while let Some(row) = rows.next()? {
            pruned.newest = pruned.newest.max(Some(timestamp(row.get(0)?)));
            pruned.ids.extend(ids(row, 1)?);
        }
    }
    if let Some(newest) = pruned.newest {
        transaction.execute(
            "UPDATE state SET pruned_at = max(coalesce(pruned_at, ?1), ?1)",
            [micros(newest)],
        )?;
    }
    Ok(pruned)
}

/// Returns the ids of a page.
fn ids<'a>(
    row: &'a Row<'_>,
    column: usize,
) -> rusqlite::Result<impl Iterator<Item = EventId> + 'a> {
    let bytes = row
        .get_ref(column)?
        .as_blob()
        .map_err(rusqlite::Error::from)?;
    let ids = bytes.as_chunks::<8>().0.iter();
    Ok(ids.map(|id| EventId(u64::from_le_bytes(*id))))
}
