//! Which known ids are kept: those that a poll, a range or a re-read can meet again.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Transaction};

use super::commit::Ledger;
use super::tail_state::STRIDE;
use super::types::{Commit, EventId};
use super::{micros, timestamp, unpack_ids};

/// The ids of this many entries at the top of the listing are never pruned.
const MIN_IDS: i64 = 10_000;

/// While history is read, the ids of its first and of its last pages are not pruned: this number of each.
const MIN_PAGES: i64 = 8;

/// Ids that are no longer kept.
#[derive(Default)]
pub(super) struct Pruned {
    ids: Vec<EventId>,
    /// The newest creation time among them.
    newest: Option<Timestamp>,
    /// So many may have gone that memory is given back.
    after_reread: bool,
}

// === impl Ledger ===

impl Ledger {
    /// Returns the time before which no re-read looks after one that started then.
    fn cutoff(&self, reread_at: Timestamp) -> i64 {
        let window = SignedDuration::try_from(self.settings.reread_window);
        let window = window.unwrap_or(SignedDuration::MAX);
        micros(reread_at.checked_sub(window).unwrap_or(Timestamp::MIN))
    }

    /// Deletes ids that no re-read can meet again: older than its window, and not at the top of the listing. While a long history is
    /// read, deletes the ids in its middle, so that it takes no more memory than a short one: a re-read may meet its first pages, and an
    /// inclusive cursor the last ones.
    pub(super) fn prune(
        &self,
        transaction: &Transaction<'_>,
        commit: &Commit,
    ) -> rusqlite::Result<Pruned> {
        let tail = commit.tail.as_ref();
        let reread_at = tail
            .filter(|tail| tail.ranges.is_empty())
            .and_then(|tail| tail.reread_at);
        if let Some(reread_at) = reread_at.filter(|at| Some(*at) != self.reread_at) {
            let top: Option<i64> = transaction
                .prepare_cached(
                    "SELECT place FROM (SELECT place, sum(length(ids) / 8) OVER (ORDER BY place DESC) AS ids FROM pages WHERE top = 1)
                     WHERE ids >= ?1 ORDER BY place DESC LIMIT 1",
                )?
                .query_row([MIN_IDS], |row| row.get(0))
                .optional()?;
            let pruned = delete_ids(
                transaction,
                "at < ?1 AND newest < ?1 AND (top = 0 OR place < ?2)",
                (self.cutoff(reread_at), top.unwrap_or(i64::MIN)),
            )?;
            return Ok(Pruned {
                after_reread: true,
                ..pruned
            });
        }
        // The number of pages that were read, less than a stride for a range.
        let read = STRIDE - commit.place.rem_euclid(STRIDE);
        let is_long = !commit.top && (2 * MIN_PAGES + 1..STRIDE).contains(&read);
        let Some(reread_at) = self.reread_at.filter(|_| is_long) else {
            return Ok(Pruned::default());
        };
        delete_ids(
            transaction,
            "newest < ?1 AND place = ?2",
            (self.cutoff(reread_at), commit.place + MIN_PAGES),
        )
    }

    /// After ids were pruned from the file: memory follows.
    pub(super) fn forget(&mut self, pruned: Pruned) {
        if pruned.ids.is_empty() {
            return;
        }
        self.prune_floor = self.prune_floor.max(pruned.newest);
        let mut known = self.known_mut();
        for id in pruned.ids {
            known.remove(&id);
        }
        // After each page of a history, the set would only grow again.
        if pruned.after_reread {
            known.shrink_to_fit();
        }
    }
}

/// Deletes the ids of some pages.
fn delete_ids(
    transaction: &Transaction<'_>,
    which: &str,
    parameters: impl rusqlite::Params,
) -> rusqlite::Result<Pruned> {
    let mut pruned = Pruned::default();
    let delete = format!("DELETE FROM pages WHERE {which} RETURNING newest, ids");
    let mut delete = transaction.prepare_cached(&delete)?;
    let mut rows = delete.query(parameters)?;
    while let Some(row) = rows.next()? {
        pruned.newest = pruned.newest.max(Some(timestamp(row.get(0)?)));
        let ids = row.get_ref(1)?;
        let ids = ids.as_blob().map_err(rusqlite::Error::from)?;
        pruned.ids.extend(unpack_ids(ids));
    }
    if let Some(newest) = pruned.newest {
        transaction.execute(
            "UPDATE state SET prune_floor = max(coalesce(prune_floor, ?1), ?1)",
            [micros(newest)],
        )?;
    }
    Ok(pruned)
}
