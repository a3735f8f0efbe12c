//! The known ids, in memory and in the file, and which of them are kept: those that a poll, a sweep or a re-read can meet again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};

use super::types::{Commit, EventId, EventIds, Standing};
use super::{micros, timestamp};

/// The ids of this many entries of the last sweeps are never pruned: one of them ends the next sweep.
const MIN_IDS: i64 = 10_000;

/// Beyond this number the oldest ids go anyway.
const MAX_IDS: i64 = 2_000_000;

/// The ids that the ledger knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    settled: EventIds,
    /// The others, by the numbers of their sweeps.
    unsettled: BTreeMap<i64, EventIds>,
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
    /// Reads the ids of the file, while the sweep of this number is the current one.
    pub(super) fn load(connection: &Connection, number: i64) -> rusqlite::Result<Self> {
        let mut known = Self::default();
        let mut pages = connection.prepare("SELECT sweep, ids FROM pages")?;
        let mut rows = pages.query([])?;
        while let Some(row) = rows.next()? {
            known.learn(ids(row, 1)?, row.get(0)?);
        }
        known.settle(number);
        Ok(known)
    }

    /// Returns what is known of an entry while the sweep of this number is the current one.
    pub(super) fn standing(&self, id: EventId, number: i64) -> Standing {
        let mut unsettled = self.unsettled.iter();
        match unsettled.find(|(_, ids)| ids.contains(&id)) {
            None if !self.settled.contains(&id) => Standing::Unknown,
            Some((sweep, _)) if *sweep > number => Standing::Upper,
            Some((sweep, _)) if *sweep == number => Standing::Current,
            _ => Standing::Settled,
        }
    }

    /// Follows a commit: adds the entries that its sweep has met, settles those of all sweeps before the current one, and removes what was
    /// pruned.
    pub(super) fn follow(&mut self, commit: &Commit, number: i64, pruned: &Pruned) {
        self.learn(commit.entries.iter().map(|entry| entry.id), commit.sweep);
        self.settle(number);
        for id in &pruned.ids {
            self.settled.remove(id);
        }
        if !pruned.ids.is_empty() {
            self.settled.shrink_to_fit();
        }
    }

    fn learn(&mut self, ids: impl Iterator<Item = EventId>, sweep: i64) {
        self.unsettled.entry(sweep).or_default().extend(ids);
    }

    fn settle(&mut self, number: i64) {
        while let Some(first) = self.unsettled.first_entry()
            && *first.key() < number
        {
            let mut ids = first.remove();
            // The smaller set moves.
            if ids.len() > self.settled.len() {
                std::mem::swap(&mut ids, &mut self.settled);
            }
            self.settled.extend(ids);
        }
    }
}

/// Writes the ids of a commit.
pub(super) fn write(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    let Some(newest) = commit.entries.iter().map(|entry| entry.created_at).max() else {
        return Ok(());
    };
    let ids = commit.entries.iter().map(|entry| entry.id.0.to_le_bytes());
    let ids: Vec<u8> = ids.flatten().collect();
    transaction
        .prepare_cached("INSERT INTO pages (sweep, newest, ids) VALUES (?1, ?2, ?3)")?
        .execute(params![commit.sweep, micros(newest), ids])?;
    transaction
        .prepare_cached("UPDATE state SET newest_at = max(coalesce(newest_at, ?1), ?1)")?
        .execute([micros(newest)])?;
    Ok(())
}

/// Deletes the ids of settled pages that are older than `before`, without the newest 10,000 of these, which a re-read may meet below its
/// floor; and of pages beyond the maximum, unless they are dated ahead. The watermark keeps their entries from being counted again.
pub(super) fn prune(
    transaction: &Transaction<'_>,
    before: Timestamp,
    sweep: i64,
    now: Timestamp,
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let mut delete = transaction.prepare_cached(
        "DELETE FROM pages WHERE sweep < ?1 AND page IN (
             SELECT page FROM (
                 SELECT page, newest, sum(length(ids) / 8) OVER newest_first AS ids, length(ids) / 8 AS own,
                        sum(iif(newest < ?3, length(ids) / 8, 0)) OVER newest_first AS older
                 FROM pages WINDOW newest_first AS (ORDER BY sweep DESC, newest DESC, page)
             ) WHERE (newest < ?3 AND older - own >= ?2) OR (newest <= ?5 AND ids > ?4)
         ) RETURNING newest, ids",
    )?;
    let (before, now) = (micros(before), micros(now));
    let mut rows = delete.query((sweep, MIN_IDS, before, MAX_IDS, now))?;
    while let Some(row) = rows.next()? {
        pruned.newest = pruned.newest.max(Some(timestamp(row.get(0)?)));
        pruned.ids.extend(ids(row, 1)?);
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
