//! The state file, and whether it is one of the organization of the key.

use std::time::Duration;

use super::{Outcome, bad, good};
use crate::ledger::{self, Summary};
use crate::util::{counted, shown_duration};

/// Opens the state file in a thread of its own, since its disk may hang.
pub(super) async fn check(
    settings: &ledger::LedgerOptions,
    limit: Duration,
) -> (Outcome, Option<Summary>) {
    let Some(path) = settings.path.clone() else {
        return (good("in memory, and lost when the process ends"), None);
    };
    let name = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || Summary::read(&path));
    let Ok(Ok(read)) = tokio::time::timeout(limit, read).await else {
        let limit = shown_duration(limit);
        let said = format!(
            "cannot read {name} within {limit}; check whether its disk hangs, or give --state.path a file on another one"
        );
        return (bad(said), None);
    };
    match read {
        Err(error) => (bad(error), None),
        Ok(None) => {
            let said = format!("{name} does not exist yet and can be created");
            (good(said), None)
        }
        Ok(Some(summary)) => {
            let records = counted(summary.waiting, "log record", "log records");
            let letters = counted(summary.dead_letters, "dead letter", "dead letters");
            let said = format!("{name} can be used; not delivered: {records}; {letters}");
            (good(said), Some(summary))
        }
    }
}

/// Compares the organizations of what the key can read with that of the state file. `None` if nothing names one.
pub(super) fn organization(of_key: &[String], state: Option<Summary>) -> Option<Outcome> {
    let first = of_key.first()?;
    Some(match state.and_then(|state| state.organization) {
        None => good(first),
        Some(ours) if of_key.contains(&ours) => {
            good(format!("{ours}, the same for the key and the state file"))
        }
        Some(ours) => bad(format!(
            "the API key belongs to organization {first}, but the state file to {ours}; use a key of organization {ours}, or give --state.path another file"
        )),
    })
}
