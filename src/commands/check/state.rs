//! The state file, and whether it is one of the organization of the key.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Access, access};

use super::{Outcome, bad, good, warning};
use crate::ledger::{self, Content, Look, OpenError};
use crate::util::{counted, shown_duration};

/// Looks at the state file in a thread of its own, since its disk may hang.
pub(super) async fn check(
    settings: &ledger::LedgerOptions,
    limit: Duration,
) -> (Outcome, Option<Look>) {
    let Some(path) = settings.path.clone() else {
        return (good("in memory, and lost when the process ends"), None);
    };
    let name = path.display().to_string();
    let look = tokio::task::spawn_blocking(move || look(&path));
    let Ok(Ok(look)) = tokio::time::timeout(limit, look).await else {
        let limit = shown_duration(limit);
        let said = format!(
            "cannot read {name} within {limit}; check whether its disk hangs, or give --state.path a file on another one"
        );
        return (bad(said), None);
    };
    let look = match look {
        Ok(look) => look,
        Err(error) => return (bad(error), None),
    };
    let used = match look.held {
        true => "a running exporter uses it",
        false => "it can be used",
    };
    let finding = match &look.content {
        Content::Nothing => good(format!("{name} does not exist yet and can be created")),
        Content::Damaged(how) => warning(format!(
            "{name} is damaged: {how}; the exporter would begin with a new one, with counters at 0; restore a copy if there is one"
        )),
        Content::State(state) => {
            let records = counted(state.waiting, "log record", "log records");
            let letters = counted(state.dead_letters, "dead letter", "dead letters");
            good(format!(
                "{name}: {used}; not delivered: {records}; {letters}"
            ))
        }
    };
    (finding, Some(look))
}

/// Checks also whether this user could write the file and the files beside it.
fn look(path: &Path) -> Result<Look, OpenError> {
    // What counts is where a symbolic link leads to.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    check_writable(path).map_err(|error| OpenError::unwritable(path, &error))?;
    Look::at(path)
}

/// Checks whether this user could write a file, which may be missing, and files beside it.
fn check_writable(file: &Path) -> io::Result<()> {
    let file = Path::new(".").join(file);
    let directory = file.parent().unwrap_or(&file);
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if file.exists() {
        access(&file, Access::READ_OK | Access::WRITE_OK)?;
    }
    Ok(())
}

/// Compares the organizations of what the key can read with that of the state file. `None` if nothing names one.
pub(super) fn organization(of_key: &[String], look: Option<Look>) -> Option<Outcome> {
    let first = of_key.first()?;
    let ours = match look?.content {
        Content::State(state) => state.organization,
        _ => None,
    };
    Some(match ours {
        None => good(first),
        Some(ours) if of_key.contains(&ours) => {
            good(format!("{ours}, the same for the key and the state file"))
        }
        Some(ours) => bad(format!(
            "the API key belongs to organization {first}, but the state file to {ours}; use a key of organization {ours}, or give --state.path another file"
        )),
    })
}
