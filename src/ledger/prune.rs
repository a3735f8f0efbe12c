//! Which known ids are kept: those that a poll, a sweep or a re-read can meet again.

use jiff::Timestamp;
use rusqlite::Transaction;

use super::types::EventId;
use super::{micros, timestamp, unpack_ids};

/// The ids of this many entries of the last sweeps are never pruned: one of them ends the next sweep.
const MIN_IDS: i64 = 10_000;

/// Beyond this number the oldest ids go anyway.
const MAX_IDS: i64 = 2_000_000;

/// Ids that are no longer kept.
#[derive(Default)]
pub(super) struct Pruned {
    pub(super) ids: Vec<EventId>,
    /// The newest creation time among them.
    pub(super) newest: Option<Timestamp>,
}

/// Deletes the ids of settled pages that are older than `before`, or too many. The watermark keeps their entries from being counted again.
pub(super) fn prune(
    transaction: &Transaction<'_>,
    before: Timestamp,
    sweep: i64,
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let mut delete = transaction.prepare_cached(
        "DELETE FROM pages WHERE sweep < ?1 AND page IN (
             SELECT page FROM (
                 SELECT page, newest, sum(length(ids) / 8) OVER newest_first AS ids, length(ids) / 8 AS own
                 FROM pages WINDOW newest_first AS (ORDER BY sweep DESC, newest DESC, page)
             ) WHERE ids - own >= ?2 AND (newest < ?3 OR ids > ?4)
         ) RETURNING newest, ids",
    )?;
    let mut rows = delete.query((sweep, MIN_IDS, micros(before), MAX_IDS))?;
    while let Some(row) = rows.next()? {
        pruned.newest = pruned.newest.max(Some(timestamp(row.get(0)?)));
        let ids = row.get_ref(1)?;
        let ids = ids.as_blob().map_err(rusqlite::Error::from)?;
        pruned.ids.extend(unpack_ids(ids));
    }
    if let Some(newest) = pruned.newest {
        transaction.execute(
            "UPDATE state SET pruned_at = max(coalesce(pruned_at, ?1), ?1)",
            [micros(newest)],
        )?;
    }
    Ok(pruned)
}
