//! The known ids, in memory and in the file, and which of them are kept: those that a sweep or a pass can meet again.

use jiff::Timestamp;
use rusqlite::{Connection, Row, Transaction, params};

use super::types::{Commit, EventId, EventIds, Prune, Seen};
use super::{micros, timestamp};

/// Beyond this number the oldest ids go anyway.
const MAX_IDS: usize = 2_000_000;

/// The ids that the ledger knows.
#[derive(Debug, Default)]
pub(super) struct Known {
    settled: EventIds,
    unsettled: EventIds,
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
        let mut known = Self::default();
        let mut pages =
            connection.prepare("SELECT page <= settled_page, ids FROM pages JOIN state")?;
        let mut rows = pages.query([])?;
        while let Some(row) = rows.next()? {
            let is_settled = row.get(0)?;
            let known = if is_settled {
                &mut known.settled
            } else {
                &mut known.unsettled
            };
            known.extend(ids(row, 1)?);
        }
        Ok(known)
    }

    /// Returns what is known of an entry.
    pub(super) fn seen(&self, id: EventId) -> Seen {
        if self.settled.contains(&id) {
            Seen::Settled
        } else if self.unsettled.contains(&id) {
            Seen::Unsettled
        } else {
            Seen::Unknown
        }
    }

    /// Reports whether there are more than may be kept.
    pub(super) fn is_over(&self) -> bool {
        self.settled.len() > MAX_IDS
    }

    /// Follows a commit.
    pub(super) fn follow(&mut self, commit: &Commit, pruned: &Pruned) {
        if !commit.forgets {
            let ids = commit.entries.iter().map(|entry| entry.id);
            self.unsettled.extend(ids);
        }
        if commit.settles {
            self.settled.extend(self.unsettled.drain());
        }
        for id in &pruned.ids {
            self.settled.remove(id);
        }
        if !pruned.ids.is_empty() {
            self.settled.shrink_to_fit();
        }
    }
}

/// Writes the ids of a commit.
pub(super) fn write(transaction: &Transaction<'_>, commit: &Commit) -> rusqlite::Result<()> {
    let newest = commit.entries.iter().map(|entry| entry.created_at).max();
    if let Some(newest) = newest.map(micros) {
        if !commit.forgets {
            let ids = commit.entries.iter().map(|entry| entry.id.0.to_le_bytes());
            let ids: Vec<u8> = ids.flatten().collect();
            transaction
                .prepare_cached("INSERT INTO pages (newest, ids) VALUES (?1, ?2)")?
                .execute(params![newest, ids])?;
        }
        transaction
            .prepare_cached("UPDATE state SET newest_at = max(coalesce(newest_at, ?1), ?1)")?
            .execute([newest])?;
    }
    if commit.settles {
        transaction
            .prepare_cached(
                "UPDATE state SET settled_page = (SELECT coalesce(max(page), 0) FROM pages)",
            )?
            .execute([])?;
    }
    Ok(())
}

/// Deletes settled ids that are no longer needed, and the oldest ones if there are too many, unless they are dated ahead. The watermark keeps
/// their entries from being counted again.
pub(super) fn prune(
    transaction: &Transaction<'_>,
    prune: Option<&Prune>,
    is_over: bool,
    now: Timestamp,
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let mut pages = Vec::new();
    if let Some(Prune { before, met }) = prune {
        let mut old = transaction.prepare_cached(
            "SELECT page, ids FROM pages JOIN state WHERE page <= settled_page AND newest < ?1",
        )?;
        let mut rows = old.query([micros(*before)])?;
        while let Some(row) = rows.next()? {
            if !ids(row, 1)?.any(|id| met.contains(&id)) {
                pages.push(row.get(0)?);
            }
        }
    }
    if is_over {
        let mut oldest = transaction.prepare_cached(
            "SELECT page FROM (
                 SELECT page, newest, sum(length(ids) / 8) OVER (ORDER BY newest DESC, page) AS ids
                 FROM pages JOIN state WHERE page <= settled_page
             ) WHERE ids > ?1 AND newest <= ?2",
        )?;
        let mut rows = oldest.query(params![MAX_IDS as u64, micros(now)])?;
        while let Some(row) = rows.next()? {
            pages.push(row.get(0)?);
        }
    }
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
