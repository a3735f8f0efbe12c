//! Where the counters of a state file begin, read beside the exporter that has it.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::OptionalExtension;

use super::open::{OpenError, open_beside};
use super::store::timestamp;

/// How the counters of a state file began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The service whose file it is.
    pub base_url: String,
    /// The filters' fingerprint.
    pub filters: String,
    /// When the service answered for the first time, by its clock.
    pub born_at: Timestamp,
    /// Creation time of the newest entry that was there by then and is not counted; `None` where there was none.
    pub newest_uncounted: Option<Timestamp>,
    /// It took the place of a damaged file: another one's counters stood before it.
    pub recreated: bool,
}

// === impl Beginning ===

impl Beginning {
    /// Reads it from an exporter's state file; `None` where the service has not answered that exporter yet.
    ///
    /// # Errors
    /// Where the file is missing, not ours, or cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        let read = |row: &rusqlite::Row<'_>| {
            let Some(born_at) = row.get::<_, Option<i64>>(2)? else {
                return Ok(None);
            };
            Ok(Some(Self {
                base_url: row.get(0)?,
                filters: row.get(1)?,
                born_at: timestamp(born_at),
                newest_uncounted: row.get::<_, Option<i64>>(3)?.map(timestamp),
                recreated: row.get::<_, Option<i64>>(4)?.is_some(),
            }))
        };
        let connection = open_beside(path)?;
        let found = connection
            .query_row(
                "SELECT base_url, filters, born_at, count_floor, recreated_at FROM state",
                [],
                read,
            )
            .optional();
        found
            .map(Option::flatten)
            .map_err(|error| OpenError::Sqlite {
                path: path.to_owned(),
                error,
            })
    }
}
