//! The state file of an exporter, running or not, opened by another command.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rusqlite::Connection;

use super::file::{OpenError, check_regular, probe};
use super::open::{check_application, connect};

/// What a state file says to a user.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The organization's id, once known.
    pub organization: Option<String>,
    /// Log records that wait for the collector.
    pub waiting: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

// === impl Summary ===

impl Summary {
    /// Reads a file; `None` if it is missing or empty and can be created.
    ///
    /// # Errors
    /// If it cannot be read or created, or is not a state file that this program can use.
    pub fn read(path: &Path) -> Result<Option<Self>, OpenError> {
        match path.metadata() {
            Ok(file) if file.is_file() && file.len() == 0 => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                probe(path)?;
                return Ok(None);
            }
            _ => {}
        }
        let connection = open_beside(path)?;
        let sql =
            "SELECT organization, (SELECT coalesce(sum(records - acknowledged), 0) FROM outbox),
                    (SELECT count(*) FROM dead_letters) FROM state";
        let summary = connection.query_row(sql, [], |row| {
            Ok(Self {
                organization: row.get(0)?,
                waiting: row.get(1)?,
                dead_letters: row.get(2)?,
            })
        });
        summary
            .map(Some)
            .map_err(|error| OpenError::sqlite(path, error))
    }
}

/// Opens a file that exists.
pub(super) fn open_beside(path: &Path) -> Result<Connection, OpenError> {
    check_regular(path)?;
    let io = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => OpenError::missing(path),
        _ => OpenError::io(path, &error),
    };
    // SQLite would open a file that this user cannot write for reading, and says little about one that it cannot open.
    File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(io)?;
    let path = &path.canonicalize().map_err(io)?;
    // A reader of a file with a write-ahead log writes too.
    probe(path)?;
    let connection = connect(Some(path)).map_err(|error| OpenError::sqlite(path, error))?;
    check_application(&connection, path)?;
    Ok(connection)
}
